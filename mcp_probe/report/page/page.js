"use strict";
// Draws timelines and waterfalls from the page's data, one process at a time. Texts go in as text nodes only.
const { make } = look;

// As figures.duration: two or three digits, in the unit that keeps them.
function duration(ms) {
  if (ms === null || ms === undefined || !isFinite(ms)) return "–";
  const units = [[1, "ms", 999.5], [1e3, "s", 6e5], [6e4, "min", 7.2e6], [3.6e6, "h", Infinity]];
  const [scale, unit] = units.find((row) => Math.abs(ms) < row[2]);
  const value = ms / scale;
  const size = Math.abs(value);
  if (size === 0) return `0 ${unit}`;
  if (size < 0.005) return `<0.01 ${unit}`;
  const isFine = unit === "s";
  const digits = size < 0.995 || (isFine && size < 9.995) ? 2 : size < 9.95 || (isFine && size < 99.95) ? 1 : 0;
  return `${value.toFixed(digits)} ${unit}`;
}

function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "kB", "MB", "GB"];
  let at = 0;
  while (Math.abs(count) >= 999.5 && at < 3) { count /= 1000; at += 1; }
  return `${Number(count.toPrecision(3))} ${units[at]}`;
}

// Paper is narrower than most windows: pictures are drawn for its width before they are printed.
const PAPER = 720;
let isPrinting = false;
addEventListener("beforeprint", () => { isPrinting = true; });
addEventListener("afterprint", () => { isPrinting = false; });
const widthOf = (node) => (isPrinting ? PAPER : Math.max(240, node.clientWidth));

function draw(article) {
  const data = JSON.parse(article.querySelector("script.data").textContent);
  const prefix = article.dataset.prefix;

  const colours = new Map();
  data.occupancy.forEach((series, at) => {
    colours.set(series.name, series.kind === "operation" ? `var(--op${at % 9})` : `var(--${series.kind})`);
  });

  // --- timeline ---------------------------------------------------------------------------------

  const place = article.querySelector(".timeline");
  const range = { from: 0, to: data.ms };
  const listeners = [];

  function ticks(from, to, most) {
    const raw = (to - from) / most;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw);
    const found = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
    return found;
  }

  // The mean of a series (one value a bin) in each of so many columns between two instants.
  function columns(values, from, to, count) {
    const found = new Array(count);
    const width = (to - from) / count;
    for (let at = 0; at < count; at += 1) {
      const first = Math.min(data.bins - 1, Math.floor((from + at * width) / data.bin));
      const last = Math.min(data.bins, Math.max(first + 1, Math.ceil((from + (at + 1) * width) / data.bin)));
      let sum = 0;
      for (let bin = first; bin < last; bin += 1) sum += values[bin];
      found[at] = sum / (last - first);
    }
    return found;
  }

  function lanes() {
    const rows = [];
    if (data.occupancy.length) rows.push({ name: "Event loop", kind: "stack", height: 130 });
    rows.push({ name: "Requests in flight", kind: "lines", height: 62, unit: (v) => v.toFixed(v < 10 ? 1 : 0), series: [["in flight", data.flight, 100, ""]] });
    for (const pool of data.pools) {
      rows.push({
        name: `Pool ${pool.name}`, kind: "lines", height: 50, unit: (v) => v.toFixed(v < 10 ? 1 : 0), limit: pool.max,
        series: [["running", pool.running, 100, " third"], ["waiting", pool.waiting, 100, " second"]],
      });
    }
    if (data.gc.some((value) => value > 0)) {
      rows.push({ name: "Garbage collector", kind: "lines", height: 36, most: 1, unit: (v) => `${Math.round(100 * v)} %`, series: [["pauses of 1 ms and more", data.gc, 1000, " second"]] });
    }
    if (data.resident.length > 1) rows.push({ name: "Memory of the process", kind: "points", height: 46, unit: bytes });
    return rows;
  }

  function drawTimeline() {
    const width = widthOf(place);
    const isNarrow = width < 560;
    const gap = isNarrow ? 34 : 22;
    const rows = lanes();
    const height = rows.reduce((sum, row) => sum + row.height + gap, 0) + 18;
    const x = (ms) => ((ms - range.from) / (range.to - range.from)) * width;
    const count = Math.max(1, Math.min(Math.floor(width), Math.ceil((range.to - range.from) / data.bin)));
    const plot = make("svg", {
      class: "plot", viewBox: `0 0 ${width} ${height}`, height, role: "group", tabindex: "0",
      "aria-label": "The window over time. Drag to zoom; plus and minus zoom, arrows move, Escape shows all.",
    });
    let top = 0;
    for (const row of rows) {
      top += gap;
      plot.append(make("rect", { class: "lane", x: 0, y: top, width, height: row.height, rx: 4 }));
      for (const at of ticks(range.from, range.to, width / 110)) {
        plot.append(make("line", { class: "grid", x1: x(at), x2: x(at), y1: top, y2: top + row.height }));
      }
      let told = "";
      if (row.kind === "stack") told = drawStack(plot, top, row.height, width, count);
      else if (row.kind === "lines") told = drawLines(plot, row, top, width, count);
      else told = drawPoints(plot, row, top, x);
      plot.append(make("text", { class: "label", x: 2, y: top - (isNarrow ? 19 : 6) }, row.name));
      plot.append(make("text", isNarrow ? { x: 2, y: top - 5 } : { x: width - 2, y: top - 6, "text-anchor": "end" }, told));
      top += row.height;
    }
    for (const at of ticks(range.from, range.to, width / 110)) {
      const anchor = x(at) < 20 ? "start" : x(at) > width - 20 ? "end" : "middle";
      plot.append(make("text", { x: x(at), y: top + 14, "text-anchor": anchor }, duration(at)));
    }
    listen(plot, width, height);
    return plot;
  }

  function area(lower, upper, top, height, width) {
    const step = width / upper.length;
    const y = (value) => (top + height * (1 - Math.min(1, value))).toFixed(1);
    let path = "";
    upper.forEach((value, at) => { path += `${at ? "L" : "M"}${(at * step).toFixed(1)} ${y(value)}L${((at + 1) * step).toFixed(1)} ${y(value)}`; });
    for (let at = lower.length - 1; at >= 0; at -= 1) path += `L${((at + 1) * step).toFixed(1)} ${y(lower[at])}L${(at * step).toFixed(1)} ${y(lower[at])}`;
    return `${path}Z`;
  }

  function drawStack(plot, top, height, width, count) {
    let lower = new Array(count).fill(0);
    for (const series of data.occupancy) {
      const values = columns(series.values, range.from, range.to, count);
      const upper = lower.map((value, at) => value + values[at] / 1000 / data.loops);
      plot.append(make("path", { d: area(lower, upper, top, height, width), fill: colours.get(series.name) }));
      lower = upper;
    }
    const mean = lower.reduce((sum, value) => sum + value, 0) / count;
    return `busy ${Math.round(100 * mean)} % of the time shown`;
  }

  function drawLines(plot, row, top, width, count) {
    const drawn = row.series.map(([name, values, scale, kind]) => [name, columns(values, range.from, range.to, count).map((v) => v / scale), kind]);
    const most = row.most || Math.max(1, ...drawn.flatMap(([, values]) => values)) * 1.08;
    const step = width / count;
    for (const [, values, kind] of drawn) {
      const y = (value) => (top + row.height * (1 - Math.min(1, value / most))).toFixed(1);
      const d = values.map((value, at) => `${at ? "L" : "M"}${(at * step).toFixed(1)} ${y(value)}L${((at + 1) * step).toFixed(1)} ${y(value)}`).join("");
      if (!kind) plot.append(make("path", { class: "fill", d: area(new Array(count).fill(0), values.map((v) => v / most), top, row.height, width) }));
      plot.append(make("path", { class: `line${kind}`, d }));
    }
    const peaks = drawn.map(([name, values]) => `${name} up to ${row.unit(Math.max(...values))}`).join(", ");
    return row.limit ? `means of a second: ${peaks}, of ${row.limit}` : peaks;
  }

  function drawPoints(plot, row, top, x) {
    const shown = data.resident.filter(([at]) => at >= range.from && at <= range.to);
    const points = shown.length > 1 ? shown : data.resident;
    const sizes = points.map(([, size]) => size);
    const least = Math.min(...sizes);
    const most = Math.max(...sizes);
    const y = (size) => top + row.height * (0.92 - 0.84 * (most > least ? (size - least) / (most - least) : 0.5));
    plot.append(make("path", { class: "line", d: points.map(([at, size], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(size).toFixed(1)}`).join("") }));
    return `${bytes(least)} to ${bytes(most)}`;
  }

  // --- pointing, brushing, keys -------------------------------------------------------------------

  function show(from, to) {
    const least = Math.min(data.ms, Math.max(4 * data.bin, 1));
    let length = Math.min(data.ms, Math.max(least, to - from));
    from = Math.max(0, Math.min(data.ms - length, from));
    range.from = from;
    range.to = from + length;
    for (const listener of listeners) listener();
  }

  function zoom(factor) {
    const middle = (range.from + range.to) / 2;
    const half = ((range.to - range.from) / 2) * factor;
    show(middle - half, middle + half);
  }

  function move(part) {
    const by = (range.to - range.from) * part;
    show(range.from + by, range.to + by);
  }

  function listen(plot, width, height) {
    let start = null;
    const cursor = make("line", { class: "cursor", y1: 0, y2: height, x1: -9, x2: -9 });
    const brush = make("rect", { class: "brush", y: 0, height, x: 0, width: 0 });
    plot.append(cursor, brush);
    const at = (event) => {
      const box = plot.getBoundingClientRect();
      return Math.max(0, Math.min(width, ((event.clientX - box.left) / box.width) * width));
    };
    const instant = (x) => range.from + (x / width) * (range.to - range.from);
    plot.addEventListener("pointerdown", (event) => {
      start = at(event);
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      const x = at(event);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      if (start !== null) {
        brush.setAttribute("x", Math.min(start, x));
        brush.setAttribute("width", Math.abs(x - start));
      }
      point(event, instant(x), (range.to - range.from) / width);
    });
    plot.addEventListener("pointerup", (event) => {
      const x = at(event);
      const first = start;
      start = null;
      brush.setAttribute("width", 0);
      if (first !== null && Math.abs(x - first) > 4) show(instant(Math.min(first, x)), instant(Math.max(first, x)));
    });
    plot.addEventListener("pointercancel", () => { start = null; brush.setAttribute("width", 0); });
    plot.addEventListener("pointerleave", look.hide);
    plot.addEventListener("dblclick", () => show(0, data.ms));
    plot.addEventListener("keydown", onKey);
  }

  function onKey(event) {
    const actions = {
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.25),
      ArrowRight: () => move(0.25), Escape: () => show(0, data.ms),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
    place.querySelector(".plot").focus();
  }

  function point(event, ms, width) {
    const value = (values) => columns(values, ms, ms + Math.max(width, data.bin / 2), 1)[0];
    const rows = [["at", duration(ms)], ["in flight", (value(data.flight) / 100).toFixed(1)]];
    for (const series of data.occupancy) {
      const share = value(series.values) / 10 / data.loops;
      if (share >= 0.5) rows.push([series.name, `${Math.round(share)} %`]);
    }
    for (const pool of data.pools) {
      const running = value(pool.running) / 100;
      if (running >= 0.05) rows.push([pool.name, `${running.toFixed(1)} running`]);
    }
    look.place(event.pageX, event.pageY, ...rows.map(([name, text]) => make("div", {}, make("span", {}, name), make("b", {}, text))));
  }

  // The whole window in one strip; what is shown above is left clear, and a click moves it.
  function drawOverview() {
    const width = widthOf(place);
    const height = 30;
    const strip = make("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    strip.append(make("rect", { class: "lane", width, height, rx: 4 }));
    const count = Math.max(1, Math.min(Math.floor(width / 2), data.bins));
    const flight = columns(data.flight, 0, data.ms, count);
    const most = Math.max(1, ...flight);
    strip.append(make("path", { class: "fill", style: "opacity:.6", d: area(new Array(count).fill(0), flight.map((v) => v / most), 2, height - 2, width) }));
    const left = (range.from / data.ms) * width;
    const right = (range.to / data.ms) * width;
    strip.append(make("rect", { class: "shade", width: left, height }), make("rect", { class: "shade", x: right, width: Math.max(0, width - right), height }));
    for (const x of [left, right]) strip.append(make("line", { class: "handle", x1: x, x2: x, y1: 0, y2: height }));
    // Drag to choose a time; a click moves the one that is shown.
    const brush = make("rect", { class: "brush", y: 0, height, x: 0, width: 0 });
    strip.append(brush);
    const at = (event) => {
      const box = strip.getBoundingClientRect();
      return Math.max(0, Math.min(width, ((event.clientX - box.left) / box.width) * width));
    };
    let start = null;
    strip.addEventListener("pointerdown", (event) => { start = at(event); strip.setPointerCapture(event.pointerId); });
    strip.addEventListener("pointermove", (event) => {
      if (start === null) return;
      brush.setAttribute("x", Math.min(start, at(event)));
      brush.setAttribute("width", Math.abs(at(event) - start));
    });
    strip.addEventListener("pointercancel", () => { start = null; brush.setAttribute("width", 0); });
    strip.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const ends = [start, at(event)].map((x) => (x / width) * data.ms).sort((a, b) => a - b);
      start = null;
      if (((ends[1] - ends[0]) / data.ms) * width > 4) return show(...ends);
      const half = (range.to - range.from) / 2;
      show(ends[0] - half, ends[0] + half);
    });
    return strip;
  }

  function startTimeline() {
    if (!place) return;
    const told = make("output", { "aria-live": "polite" });
    const button = (text, name, action) => make("button", { type: "button", "aria-label": name, onclick: action }, text);
    const tools = make("div", { class: "tools" },
      button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)),
      button("←", "Earlier", () => move(-0.5)), button("→", "Later", () => move(0.5)),
      button("All", "All of the window", () => show(0, data.ms)), told);
    const legend = make("div", { class: "legend" }, ...data.occupancy.map((series) =>
      make("span", {}, make("i", { style: `background:${colours.get(series.name)}` }), series.name)));
    const holder = make("div");
    const strip = make("div", { class: "overviewstrip" });
    place.append(tools, legend, holder, strip);
    const draw = () => {
      holder.replaceChildren(drawTimeline());
      strip.replaceChildren(drawOverview());
      told.textContent = `${duration(range.from)} to ${duration(range.to)}: ${duration(range.to - range.from)} shown`;
    };
    listeners.push(draw);
    draw();
    addEventListener("beforeprint", draw);
    addEventListener("afterprint", draw);
    let width = place.clientWidth;
    addEventListener("resize", () => { if (place.clientWidth !== width) { width = place.clientWidth; draw(); } });
  }

  // --- requests -----------------------------------------------------------------------------------

  const byId = new Map(data.requests.map((request) => [request.id, request]));
  const list = article.querySelector(".waterfalls");
  const filter = { operation: "", ids: null, told: "" };
  const FIRST = 25;
  let most = FIRST;

  function total(request) { return request.to - request.from; }

  function budgetBar(request) {
    const bar = make("div", { class: "bar", "aria-hidden": "true", style: `--length:${Math.max(0.04, total(request) / total(data.requests[0]))}` });
    const whole = request.budget.reduce((sum, ms) => sum + (ms || 0), 0) || 1;
    request.budget.forEach((ms, at) => {
      if (ms > 0) bar.append(make("i", { class: data.parts[at].role, style: `width:${(100 * ms) / whole}%`, title: `${data.parts[at].name} ${duration(ms)}` }));
    });
    return bar;
  }

  function row(request) {
    const bad = request.outcome === "ok" ? null : make("span", { class: request.outcome === "cancelled" ? "warn" : "critical" }, ` ${request.outcome.replace("_", " ")}`);
    const details = make("details", { class: "request", id: `${prefix}r${request.id}` },
      make("summary", {}, make("b", {}, request.name, bad), make("span", { class: "time" }, duration(total(request))), budgetBar(request)));
    details.addEventListener("toggle", () => {
      if (details.open && details.childElementCount === 1) details.append(fall(request));
    });
    return details;
  }

  function link(id, text) {
    return byId.has(id) ? make("a", { href: `#${prefix}r${id}`, onclick: (event) => { event.preventDefault(); open(id); } }, text) : text;
  }

  function open(id) {
    let found = document.getElementById(`${prefix}r${id}`);
    if (!found) {
      Object.assign(filter, { operation: "", ids: null, told: "" });
      most = Math.max(most, data.requests.findIndex((request) => request.id === id) + 1);
      drawList();
      found = document.getElementById(`${prefix}r${id}`);
    }
    found.open = true;
    found.querySelector("summary").focus();
    found.scrollIntoView({ block: "center" });
    history.replaceState(null, "", `#${prefix}r${id}`);
  }

  function drawList() {
    if (!list) return;
    const isZoomed = range.to - range.from < data.ms;
    const found = data.requests.filter((request) =>
      (filter.ids ? filter.ids.has(request.id) : true)
      && (!filter.operation || request.name === filter.operation)
      && (filter.ids || !isZoomed || (request.to >= range.from && request.from <= range.to)));
    const names = [...new Set(data.requests.map((request) => request.name))].sort();
    const select = make("select", { "aria-label": "Operation", onchange: (event) => { filter.operation = event.target.value; filter.ids = null; most = FIRST; drawList(); list.querySelector("select").focus(); } },
      make("option", { value: "" }, "all operations"), ...names.map((name) => make("option", { value: name, selected: name === filter.operation ? "" : null }, name)));
    const told = filter.ids ? filter.told : isZoomed ? "those in the time shown above" : "";
    const clear = filter.ids || filter.operation ? make("button", { type: "button", onclick: () => { Object.assign(filter, { operation: "", ids: null, told: "" }); press(null); drawList(); } }, "Show all") : null;
    const rest = found.length - most;
    list.replaceChildren(
      make("div", { class: "tools" }, select, clear, make("output", { "aria-live": "polite" }, [found.length === 1 ? "1 request" : `${found.length} requests`, told].filter(Boolean).join(": "))),
      ...found.slice(0, most).map(row),
      rest > 0 ? make("p", {}, make("button", { type: "button", onclick: () => { most += 100; drawList(); } }, `Show ${Math.min(100, rest)} more`)) : "");
  }

  // --- one request ----------------------------------------------------------------------------------

  function fall(request) {
    const host = make("div");
    host.append(facts(request));
    const picture = make("div");
    host.append(picture, reasons(request));
    look.reachable(host);
    const draw = () => picture.replaceChildren(drawFall(request, widthOf(host.clientWidth ? host : list)));
    queueMicrotask(draw);
    addEventListener("beforeprint", draw);
    addEventListener("afterprint", draw);
    return host;
  }

  function facts(request) {
    const list = make("ul", { class: "facts" });
    request.budget.forEach((ms, at) => {
      const part = data.parts[at];
      const [tag, lo, hi] = request.quality[part.name.replace(" ", "_")] || ["exact"];
      if (ms === null || ms > 0) {
        const bounds = lo !== undefined && lo !== null && hi !== null ? `, between ${duration(lo)} and ${duration(hi)}` : "";
        list.append(make("li", { title: `${part.meaning}; ${ms === null ? "could not be known" : tag}${bounds}` },
          make("i", { class: part.role }), `${part.name} ${duration(ms)}`));
      }
    });
    const told = [`arrived at ${duration(request.from)}`, request.steps === 1 ? "1 step" : `${request.steps} steps`];
    if (request.weight > 1) told.push(`stands for ${request.weight} requests`);
    if (request.partial) told.push("partly seen");
    if (request.error) told.push(`error ${request.error}`);
    if (request.memory && request.memory[0] !== null) told.push(`requested ${bytes(request.memory[0])}, peak ${bytes(request.memory[1])}`);
    list.append(make("li", { class: "dim" }, told.join(" · ")));
    return list;
  }

  function spans(request) {
    const rows = [];
    const add = (label, bars, to) => rows.push({ label, bars, to });
    add("request", [[request.from, request.to, "handling", "not known in detail"], ...request.phases.map(([from, to, at]) =>
      [from, to, data.parts[at].role, `${data.parts[at].name} ${duration(to - from)}: ${data.parts[at].meaning}`])]);
    if (request.own.length) {
      add("on the loop", request.own.map(([from, to, , , where, cause, sure]) => [from, to, "busy", [duration(to - from), cause, where && `${where} (${sure})`].filter(Boolean).join(", ")]));
    }
    if (request.waits.length) {
      add("could run, waited", request.waits.flatMap(([earliest, from, to, stage]) => [
        ...(earliest < from ? [[earliest, from, "maybe", `may have waited (${stage})`]] : []),
        [from, to, "waits", `${stage}: waited ${duration(to - from)}`]]));
    }
    for (const [from, to, name, id, where, cause] of request.blocked.slice(0, 8).sort((a, b) => a[0] - b[0])) {
      add(`behind ${name === "(loop)" ? "background work" : name}`, [[Math.max(from, request.from), Math.min(to, request.to), "op", [name, duration(to - from), cause, where].filter(Boolean).join(", "), name]], id);
    }
    for (const [pool, submit, start, finish, resumed] of request.jobs) {
      const bars = [[submit, start ?? request.to, "jobwait", `waits for a thread of ${pool}`]];
      if (start !== null) bars.push([start, finish ?? request.to, "job", `runs in ${pool}`]);
      if (finish !== null) bars.push([finish, resumed ?? request.to, "back", "done, call not yet resumed"]);
      add(`job in ${pool}`, bars);
    }
    for (const [kind, object, where, from, to, ms, tag, count, , holders] of (request.awaits || []).slice(0, 16)) {
      const times = count > 1 ? `, ${count} times` : "";
      add(kind === object ? kind : `${kind} ${object}`, [[from, to, "await", `${kind} ${object}: ${duration(ms)}${times}, ${tag}${where ? `, at ${where}` : ""}`]]);
      for (const [id, name, taken, since, until] of holders.slice(0, 4)) {
        add(`held by ${name}`, [[since, until, "holder", `${name} held it${taken ? ` since ${taken}` : ""}`]], id);
      }
    }
    return rows;
  }

  function drawFall(request, width) {
    const rows = spans(request);
    const isNarrow = width < 560;
    const margin = isNarrow ? 104 : 210;
    const line = 21;
    const from = request.from;
    const length = Math.max(0.001, total(request));
    const x = (ms) => margin + ((ms - from) / length) * (width - margin - 2);
    const svg = make("svg", { class: "fall", viewBox: `0 0 ${width} ${rows.length * line + 22}`, role: "group", "aria-label": `What happened in this call of ${request.name}, over ${duration(length)}` });
    for (const at of ticks(0, length, (width - margin) / 90)) {
      svg.append(make("line", { class: "grid", x1: x(from + at), x2: x(from + at), y1: 0, y2: rows.length * line }),
        make("text", { x: x(from + at), y: rows.length * line + 15, "text-anchor": x(from + at) > width - 30 ? "end" : "middle" }, duration(at)));
    }
    rows.forEach((found, index) => {
      const y = index * line;
      const letters = isNarrow ? 16 : 32;
      const short = found.label.length > letters ? `${found.label.slice(0, letters - 1)}…` : found.label;
      const label = make("text", { class: "label", x: 0, y: y + 14 }, short, make("title", {}, found.label));
      if (found.to && byId.has(found.to)) {
        const anchor = make("a:svg", { href: `#${prefix}r${found.to}`, onclick: (event) => { event.preventDefault(); open(found.to); } }, label);
        svg.append(anchor);
      } else svg.append(label);
      for (const [start, end, kind, told, name] of found.bars) {
        const left = Math.max(margin, x(start));
        const right = Math.min(width - 1, x(end));
        const style = kind === "op" ? `fill:${colours.get(name) || "var(--rest)"}` : null;
        svg.append(make("rect", { class: kind, style, x: left, y: y + 3, width: Math.max(1.5, right - left), height: line - 7, rx: 2 }, make("title", {}, told)));
      }
    });
    return svg;
  }

  // The same as text: what the picture shows by place and colour.
  function reasons(request) {
    const items = [];
    for (const [name, lo, hi] of request.blamed.filter((found) => found[2] >= 0.05)) {
      const step = request.blocked.find((found) => found[2] === name && byId.has(found[3]));
      const text = lo === hi ? duration(hi) : lo > 0 ? `${duration(lo)} to ${duration(hi)}` : `at most ${duration(hi)}`;
      const who = { "(loop)": "background work", "(many small steps)": "brief work" }[name] || name;
      items.push(make("li", {}, "Waited ", make("b", {}, text), " for ", step ? link(step[3], who) : who,
        step && step[4] ? " at " : null, step && step[4] ? make("span", { class: "place" }, step[4]) : null));
    }
    for (const [, , , , where, cause] of request.own.filter((step) => step[4]).slice(0, 3)) {
      items.push(make("li", {}, "On the loop", cause ? ` (${cause})` : "", " at ", make("span", { class: "place" }, where)));
    }
    for (const [kind, object, where, , , ms, , , , holders] of [...(request.awaits || [])].sort((a, b) => b[5] - a[5]).slice(0, 5)) {
      const item = make("li", {}, `Awaited ${kind === object ? kind : `${kind} ${object}`} for `, make("b", {}, duration(ms)));
      if (where) item.append(" at ", make("span", { class: "place" }, where));
      holders.slice(0, 3).forEach(([id, name], at) => item.append(at ? ", " : "; held by ", link(id, name)));
      items.push(item);
    }
    if (request.awaits === null) items.push(make("li", { class: "dim" }, "Nothing looked at what it awaited."));
    return make("ul", { class: "why" }, ...items);
  }

  // --- the map ----------------------------------------------------------------------------------------

  const cells = article.querySelectorAll(".heat button");

  function press(cell) {
    for (const one of cells) one.setAttribute("aria-pressed", one === cell);
  }

  function startMap() {
    const pairs = new Map(data.pairs.map((pair) => [`${pair.victim}\n${pair.blocker}`, pair]));
    for (const cell of cells) {
      const pair = pairs.get(`${cell.dataset.victim}\n${cell.dataset.blocker}`);
      if (!pair || !pair.ids.length) { cell.disabled = true; continue; }
      cell.addEventListener("click", () => {
        Object.assign(filter, { operation: "", ids: new Set(pair.ids), told: `${pair.victim} that waited longest for ${pair.blocker}` });
        press(cell);
        drawList();
        article.querySelector(".requests").scrollIntoView();
        open(pair.ids[0]);
      });
    }
  }

  // --- start --------------------------------------------------------------------------------------------

  listeners.push(drawList);
  startTimeline();
  drawList();
  startMap();
  return (id) => { if (byId.has(id)) open(id); };
}

// --- one of several -----------------------------------------------------------------------------------

const articles = [...document.querySelectorAll("main article")];
const opened = new Map();

// Shows one process, drawn when it is first wanted.
function choose(article) {
  for (const one of articles) one.hidden = one !== article;
  if (!opened.has(article)) {
    opened.set(article, draw(article));
    look.reachable(article);
  }
  const links = [...article.querySelectorAll("section")].map((section) => make("a", { href: `#${section.id}` }, section.dataset.title));
  document.querySelector("header nav").replaceChildren(...links);
  if (picker) picker.value = String(articles.indexOf(article));
}

const picker = articles.length < 2 ? null : make("select", { "aria-label": "Process", onchange: () => { choose(articles[picker.value]); scrollTo(0, 0); } },
  ...articles.map((article, at) => make("option", { value: at }, `${at + 1} · ${article.getAttribute("aria-label")}`)));
if (picker) document.querySelector("header nav").before(picker);

// What the address names, in whichever process it is.
function follow() {
  const [, prefix, request] = /^#(\d+-)?(?:r(\d+))?/.exec(location.hash) || [];
  const article = articles.find((one) => one.dataset.prefix === (prefix || "")) || articles[0];
  const isHidden = article.hidden;
  choose(article);
  const target = location.hash.length > 1 ? document.getElementById(location.hash.slice(1)) : null;
  if (request) opened.get(article)(Number(request));
  else if (target && isHidden) target.scrollIntoView();
}

addEventListener("hashchange", follow);
follow();
