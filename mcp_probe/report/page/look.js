"use strict";
// What every page of ours does: light or dark, and what a figure means on hover, by keyboard and by touch.
const look = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  function make(name, attributes = {}, ...children) {
    const isSvg = ["svg", "g", "rect", "line", "path", "text", "title", "a:svg"].includes(name);
    const node = isSvg ? document.createElementNS(SVG, name.split(":")[0]) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  // --- theme ------------------------------------------------------------------------------------

  const switcher = document.getElementById("theme");
  switcher.hidden = false;
  switcher.addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });

  // --- what a figure means ------------------------------------------------------------------------

  // A mouse gets the browser's own tooltips. A tap on a figure, or the focus of a key, shows the same text here.
  const tip = make("div", { class: "tip", role: "status", hidden: "" });
  document.body.append(tip);
  let told = null;

  function hide() {
    tip.hidden = true;
    if (told) told.classList.remove("told");
    told = null;
  }

  // Beside the page's point (x, y), and inside the window.
  function place(x, y, ...content) {
    tip.replaceChildren(...content);
    tip.hidden = false;
    const width = document.documentElement.clientWidth;
    const left = x + 14 + tip.offsetWidth > scrollX + width ? x - tip.offsetWidth - 14 : x + 14;
    tip.style.left = `${Math.max(scrollX + 4, Math.min(left, scrollX + width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 14}px`;
  }

  function textOf(node) {
    const own = [...node.children].find((child) => child.tagName === "title");
    return node.getAttribute("title") || (own ? own.textContent : "");
  }

  function tell(node) {
    hide();
    told = node;
    node.classList.add("told");
    const box = node.getBoundingClientRect();
    const figure = node.tagName === "TD" ? node.textContent.trim() : "";
    const content = figure ? [make("b", {}, figure), ": ", textOf(node)] : [textOf(node)];
    place(scrollX + box.left, scrollY + box.bottom - 8, ...content);
  }

  function figureOf(node) {
    for (let at = node; at && at !== document.body; at = at.parentElement) if (textOf(at)) return at;
    return null;
  }

  let pointer = "mouse";
  document.addEventListener("pointerdown", (event) => { pointer = event.pointerType; }, true);
  document.addEventListener("click", (event) => {
    const node = pointer === "mouse" ? null : figureOf(event.target);
    if (node && node !== told) tell(node);
    else hide();
  });
  document.addEventListener("focusin", (event) => {
    if (event.target.matches(":focus-visible") && textOf(event.target)) tell(event.target);
    else hide();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const table = event.target.closest && event.target.classList.contains("scroll") ? event.target : null;
    if (!table || !["ArrowLeft", "ArrowRight"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    const figures = [...table.querySelectorAll("td[title], td [title]")].filter((node) => !node.closest("button"));
    if (!figures.length) return;
    event.preventDefault();
    const now = figures.indexOf(told);
    const next = event.key === "ArrowRight" ? now + 1 : now < 0 ? figures.length - 1 : now - 1;
    if (next < 0 || next >= figures.length) return hide();
    figures[next].scrollIntoView({ block: "nearest", inline: "nearest" });
    tell(figures[next]);
  });

  // Figures outside tables are stops of the tab key; those inside are reached by arrows, table by table.
  function reachable(root) {
    for (const node of root.querySelectorAll("p span[title], li[title]")) {
      if (!node.closest(".scroll")) node.tabIndex = 0;
    }
    for (const table of root.querySelectorAll(".scroll")) {
      if (!table.hasAttribute("aria-label")) {
        table.setAttribute("role", "region");
        const heading = [...table.parentElement.querySelectorAll("h2, h3")].filter((one) => one.compareDocumentPosition(table) & 4).pop();
        table.setAttribute("aria-label", `${heading ? heading.firstChild.textContent.trim() : "Table"}; arrow keys tell how exact each figure is`);
      }
    }
  }

  reachable(document);
  return { make, tip, place, hide, reachable };
})();
