"""``http-sweep``: document 004's concurrency sweep, its findings and its tuning table, for each client library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.models.http_load import Level
from mcp_probe.workloads.models.process import ask_model
from mcp_probe.workloads.scenarios.documents.doc004 import LEVELS, TUNED
from mcp_probe.workloads.scenarios.documents.doc004 import SWEEP as DOCUMENTED
from mcp_probe.workloads.scenarios.http_runs import (
    DELAY_MS,
    DOCUMENTED_LIBRARY,
    MODULE,
    SDK_LIBRARY,
    Found,
    arguments,
    libraries,
    measure,
    whys,
)
from mcp_probe.workloads.scenarios.verdicts import graded
from mcp_probe.workloads.servers.delay_http import delay_server

TABLE, TUNING, HIDDEN = "004 sweep", "004 tuning", "004 conditions"

QUICK_LEVELS = ((100, 100), (500, 200), (1000, 500))

METRICS: Mapping[str, tuple[str, str]] = {
    "requests": ("", "requests"),
    "throughput": ("1/s", "throughput"),
    "mean": ("ms", "mean latency"),
    "p50": ("ms", "median latency"),
    "p95": ("ms", "P95 latency"),
    "p99": ("ms", "P99 latency"),
    "max": ("ms", "maximum latency"),
    "success": ("%", "success"),
}
POOL = 20
"""Connections of the rows that show pure pool wait: few enough for the client's CPU to keep up."""
# Beyond ± 15 % a loaded machine's latencies are off, but in proportion still.
POOL_TOLERANCE, POOL_SHAPE = 0.15, 0.5


def swept(concurrency: int, connections: int) -> Level:
    """The document's client of a level: it keeps half of its connections, or half of the workers' number."""
    return Level(concurrency=concurrency, connections=connections, keepalive=min(concurrency, connections) // 2)


async def run(bench: Bench) -> Outcome:
    """The sweep with every library there is, the tuning table, the pool's own wait, and what bounds it all."""
    levels = [swept(*level) for level in bench.size(QUICK_LEVELS, LEVELS)]
    tuned = [Level(concurrency=workers, connections=most, keepalive=kept) for _, workers, most, kept, _, _ in TUNED]
    with delay_server(DELAY_MS) as server:
        names = libraries(bench)
        for library in names:
            bench.step(f"{library}: {len(levels)} levels")
            sweep = await measure(bench, library, _sized(bench, levels), server.url)
            sentences = await _whys(bench, library, server.url)
            _sweep_rows(bench, library, sweep, sentences)
            _sweep_claims(bench, library, sweep)
            await _scan_share(bench, library, server.url)
            if library == names[0]:
                bench.step(f"{library}: the tuning table")
                _tuning_rows(bench, await measure(bench, library, _sized(bench, tuned), server.url))
            if not bench.quick:
                await _knee(bench, library, server.url)
        bench.step("the wait for a connection")
        await _pool_wait(bench, server.url)
        await _raw(bench, server.url)
    return bench.outcome()


def _sized(bench: Bench, levels: Sequence[Level]) -> list[Level]:
    seconds, drain_s = bench.size(0.6, 3.0), bench.size(1.5, 4.0)
    return [replace(level, seconds=seconds, drain_s=drain_s) for level in levels]


async def _whys(bench: Bench, library: str, url: str) -> dict[int, str]:
    """The probe's sentences for the first and the last quick level."""
    sentences = {}
    for level in (swept(100, 100), swept(500, 200)):
        bench.step(f"{library}: what the probe says at {level.concurrency}")
        found = await whys(library, [replace(level, seconds=0.4, drain_s=0.5)], url)
        sentences[level.concurrency] = found["limits"]
    return sentences


# --- rows ---


def _figures(one: Found) -> dict[str, float | None]:
    said = one.said
    return {
        "requests": said["answered"],
        "throughput": one.rps,
        "mean": said["mean_ms"],
        "p50": said.get("p50_ms"),
        "p95": said.get("p95_ms"),
        "p99": said.get("p99_ms"),
        "max": said["max_ms"],
        "success": one.success_percent,
    }


def _sweep_rows(bench: Bench, library: str, sweep: Sequence[Found], sentences: Mapping[int, str]) -> None:
    documented = library == DOCUMENTED_LIBRARY
    for one in sweep:
        place = (one.level.concurrency, one.level.connections)
        printed = DOCUMENTED.get(place, {}) if documented else {}
        figures = _figures(one)
        # Every level has the figures of the sweep's table; P95 is printed of one only.
        for metric in [name for name in METRICS if name in printed or name != "p95"]:
            _metric_row(bench, one, metric, figures[metric], printed.get(metric), sentences)
    if documented:
        measured = {(one.level.concurrency, one.level.connections) for one in sweep}
        for place, printed in DOCUMENTED.items():
            if place not in measured:
                for metric, value in printed.items():
                    unit, what = METRICS[metric]
                    more = {"metric": metric, "series": library, "x": _label(*place), "note": "full runs only"}
                    bench.row(TABLE, f"{_label(*place)}: {what}", unit, None, documented=value, **more)
        _documented_little(bench)


def _label(concurrency: int, connections: int) -> str:
    return f"c{concurrency}/l{connections}"


def _metric_row(
    bench: Bench,
    one: Found,
    metric: str,
    measured: float | None,
    printed: float | None,
    sentences: Mapping[int, str],
) -> None:
    unit, what = METRICS[metric]
    level = one.level
    label = _label(level.concurrency, level.connections)
    note, scale = "", 1.0
    if metric == "requests" and printed is not None:
        lasted = printed / DOCUMENTED[(level.concurrency, level.connections)]["throughput"]
        scale = one.said["seconds"] / lasted
        note = f"in {one.said['seconds']:.1f} s; in the document, by its own throughput, in {lasted:.0f} s"
    elif metric == "throughput":
        cpu = "" if one.cpu_ms is None else f"{one.cpu_ms:.2f} ms of client CPU a request; "
        note = f"{cpu}client at {one.cpu_percent:.0f} %, server at {one.server_percent:.0f} % of a core; "
        note += f"{one.server.connections} connections opened" + (f"; {one.excuse}" if one.excuse else "")
    elif metric == "success" and one.errors:
        note = ", ".join(f"{count} {name}" for name, count in one.said["errors"].items())
    bench.row(
        TABLE if one.library == DOCUMENTED_LIBRARY else f"{TABLE}, {one.library}",
        f"{label}: {what}",
        unit,
        measured,
        documented=printed,
        scale=scale,
        metric=metric,
        series=one.library,
        x=label,
        little=one.little if metric == "throughput" else None,
        contended=one.contended,
        why=sentences.get(level.concurrency, "") if metric == "throughput" else "",
        protocol=one.protocol,
        note=note,
    )


def _documented_little(bench: Bench) -> None:
    """What the document's own rows say of their concurrency."""
    for (concurrency, connections), printed in DOCUMENTED.items():
        in_flight = printed["throughput"] * printed["mean"] / 1000
        bench.row(
            HIDDEN,
            f"{_label(concurrency, connections)}: throughput × mean latency, of the document's own row",
            "",
            in_flight,
            documented=concurrency,
            metric="Little's law",
            series="document",
            x=_label(concurrency, connections),
            note="arithmetic on the document: a closed loop of so many workers must give their number"
            + ("; this row cannot be of 100 workers" if in_flight < 0.5 * concurrency else ""),
        )


def _tuning_rows(bench: Bench, found: Sequence[Found]) -> None:
    for one, (load, concurrency, connections, keepalive, lowest, printed) in zip(found, TUNED, strict=True):
        bench.row(
            TUNING,
            f"{load}: {connections} connections, {keepalive} kept",
            "1/s",
            one.rps,
            documented=lowest,
            metric="throughput",
            series="expected throughput",
            x=load,
            little=one.little,
            contended=one.contended,
            protocol=one.protocol,
            note=f"the document expects {printed}; {concurrency} workers"
            + (f"; {one.excuse}" if one.excuse else "")
            + (f"; {one.cpu_ms:.2f} ms of client CPU a request" if one.cpu_ms is not None else ""),
        )


# --- claims ---


def _claim_id(number: str, library: str) -> str:
    return f"004-{number}" if library == DOCUMENTED_LIBRARY else f"004-{number} ({library})"


def _sweep_claims(bench: Bench, library: str, sweep: Sequence[Found]) -> None:
    best = max(sweep, key=lambda one: one.rps)
    last = sweep[-1]
    fall = best.rps / max(last.rps, 1e-9)
    most = max(one.level.concurrency for one in sweep)
    said = ", ".join(f"{_label(one.level.concurrency, one.level.connections)} {one.rps:.0f}" for one in sweep)
    contended = any(one.contended for one in sweep)
    earlier = best.level.concurrency < most
    bench.check(
        _claim_id("3", library),
        f"the best concurrency is not the highest ({library})",
        documented="1 508 requests/s at c100, 252 at c3000: 6.0×",
        measured=f"{said} requests/s: best over last {fall:.1f}×",
        tolerance="the best is before the highest, and more than twice the last",
        # What others' load takes from a level is not the level's; what a request costs the client is.
        verdict=graded(earlier and fall > 2, earlier or (contended and _dearer(sweep[0], last))),
        why=_bound(best, last),
        value=fall,
        contended=contended,
    )
    tails = [(one, one.said.get("p99_ms")) for one in sweep]
    known = [tail for _, tail in tails if tail is not None]
    grows = max(known) / min(known) if known else 0.0
    cancelled = sum(one.said["cancelled"] for one in sweep)
    limit = 20.0 if len(sweep) > len(QUICK_LEVELS) else 3.0
    verdict = graded(grows > 20, grows > limit or cancelled > 0)
    bench.check(
        _claim_id("4", library),
        f"P99 explodes with concurrency ({library})",
        documented="15 ms at c100, 48 333 ms at c3000: 3 174×",
        measured=f"{min(known, default=0):.0f} to {max(known, default=0):.0f} ms: {grows:.0f}×"
        + (f", and {cancelled} requests unanswered when the drain was cut off" if cancelled else ""),
        tolerance="> 20× over the whole sweep; a run of three levels sees a part of it",
        verdict=verdict,
        why="The document's 15 ms are not of 100 workers: 1 508 requests/s × 6.51 ms make 9.8 in flight.",
        value=grows,
        contended=contended,
    )


def _dearer(first: Found, last: Found) -> bool:
    """Whether a request costs the client clearly more CPU at the last level than at the first."""
    return first.cpu_ms is not None and (last.cpu_ms is None or last.cpu_ms > 1.3 * first.cpu_ms)


def _bound(best: Found, last: Found) -> str:
    """What it was that fell: the client's work per request, while the server had nothing to do."""
    if best.cpu_ms is None or last.cpu_ms is None:
        return "Nothing was answered at one end, so there is no CPU per request to compare."
    return (
        f"Client CPU per request {best.cpu_ms:.2f} ms at {_label(best.level.concurrency, best.level.connections)}, "
        f"{last.cpu_ms:.2f} ms at {_label(last.level.concurrency, last.level.connections)}; the server used "
        f"{best.server_percent:.0f} % and {last.server_percent:.0f} % of a core."
    )


async def _scan_share(bench: Bench, library: str, url: str) -> None:
    """How much of the client's time its pool takes to look through its own connections and requests."""
    level = replace(swept(100, 100), seconds=0.4, drain_s=0.5)
    said = await ask_model(MODULE, *arguments(library, [level], url), "--profile")
    share = said["shares"][0].get("_assign_requests_to_connections", 0.0)
    bench.row(
        HIDDEN,
        f"{library}: share of the client's time in the pool's search for a connection, c100/l100",
        "%",
        100 * share,
        metric="profile",
        series=library,
        x="_assign_requests_to_connections",
        note="by the interpreter's own profiler, which makes small functions dearer than they are",
    )


async def _knee(bench: Bench, library: str, url: str) -> None:
    """As many kept connections as connections and workers: no reconnection, so the pool's work alone shows."""
    sizes = (10, 20, 50, 100, 200)
    bench.step(f"{library}: the knee")
    levels = [Level(concurrency=n, connections=n, keepalive=n, seconds=2.0, drain_s=2.0) for n in sizes]
    for one in await measure(bench, library, levels, url):
        bench.row(
            HIDDEN,
            f"{library}: {one.level.concurrency} workers, as many connections, all kept",
            "1/s",
            one.rps,
            metric="knee",
            series=library,
            x=one.level.concurrency,
            little=one.little,
            contended=one.contended,
            protocol=one.protocol,
            note=f"{one.cpu_ms or 0:.2f} ms of client CPU a request, client at {one.cpu_percent:.0f} % of a core",
        )


async def _pool_wait(bench: Bench, url: str) -> None:
    """More workers than connections: each waits for (workers / connections) turns, the HTTP analogue of waves."""
    crowds = bench.size((200,), (200, 500))
    base = Level(concurrency=POOL, connections=POOL, keepalive=POOL, seconds=bench.size(0.4, 2.0))
    levels = [base, *(replace(base, concurrency=c, seconds=bench.size(1.0, 3.0), drain_s=3.0) for c in crowds)]
    first, *crowded = await measure(bench, SDK_LIBRARY, levels, url)
    alone_ms = first.said["p50_ms"]
    ratios = []
    for one in crowded:
        expected = one.level.concurrency / POOL * alone_ms
        ratios.append(one.said["p50_ms"] / expected)
        bench.row(
            HIDDEN,
            f"{SDK_LIBRARY}: {one.level.concurrency} workers for {POOL} connections, median latency",
            "ms",
            one.said["p50_ms"],
            metric="pool wait",
            series=SDK_LIBRARY,
            x=one.level.concurrency,
            little=one.little,
            contended=one.contended,
            protocol=one.protocol,
            note=f"expected {expected:.0f} ms: {one.level.concurrency}/{POOL} × {alone_ms:.1f} ms; client at "
            f"{one.cpu_percent:.0f} %; never more than {one.server.in_flight_peak} in flight at the server",
        )
    within = all(abs(ratio - 1) <= POOL_TOLERANCE for ratio in ratios)
    near = all(abs(ratio - 1) <= POOL_SHAPE for ratio in ratios)
    peak = max(one.server.in_flight_peak for one in crowded)
    bench.check(
        "004-pool",
        "with more workers than connections the wait is workers / connections × latency",
        documented="not measured there",
        measured=", ".join(f"{ratio:.2f} of the expected" for ratio in ratios)
        + f"; at most {peak} in flight at the server",
        tolerance="± 15 %, and never more in flight than connections",
        verdict=graded(peak <= POOL and within, peak <= POOL and near),
        value=max(ratios, key=lambda ratio: abs(ratio - 1)),
        contended=any(one.contended for one in (first, *crowded)),
    )


async def _raw(bench: Bench, url: str) -> None:
    """What the server is capable of, so that nobody takes the client's limit for its."""
    level = Level(pattern="raw", concurrency=400, seconds=bench.size(0.4, 2.0))
    (one,) = await measure(bench, SDK_LIBRARY, [level], url)
    bench.row(
        HIDDEN,
        "no client library, 400 workers with a connection each, throughput",
        "1/s",
        one.rps,
        metric="throughput",
        series="raw",
        x="c400",
        little=one.little,
        contended=one.contended,
        protocol=one.version,
        note=f"client at {one.cpu_percent:.0f} %, server at {one.server_percent:.0f} % of a core",
    )
