"""``http-sweep``: document 004's concurrency sweep, its findings and its tuning table, for each client library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.models.http_load import Level
from mcp_probe.workloads.scenarios.documents.doc004 import LEVELS, TUNED
from mcp_probe.workloads.scenarios.documents.doc004 import SWEEP as DOCUMENTED
from mcp_probe.workloads.scenarios.http_runs import (
    DELAY_MS,
    DOCUMENTED_LIBRARY,
    SDK_LIBRARY,
    Found,
    Told,
    claim_id,
    libraries,
    measure,
    profile,
    rate_row,
    repeat_floor,
    whys,
)
from mcp_probe.workloads.scenarios.tables import Table
from mcp_probe.workloads.scenarios.verdicts import OTHERS, graded
from mcp_probe.workloads.servers.delay_http import delay_server

TABLE, TUNING, HIDDEN = "004 sweep", "004 tuning", "004 conditions"

QUICK_LEVELS = ((100, 100), (500, 200), (1000, 500))
REPEATED = 100
"""Workers of the level that is measured once more when all others have been: the sweep's A/A."""
EXPLAINED = ((100, 100), (500, 200))

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
    levels = [_sized(bench, swept(*level)) for level in bench.size(QUICK_LEVELS, LEVELS)]
    with delay_server(DELAY_MS) as server:
        names = libraries(bench)
        for library in names:
            sweep = await _sweep(bench, library, levels, server.url)
            if library == names[0]:
                await _tuning(bench, library, sweep, server.url)
            await _scan_share(bench, library, server.url)
            if not bench.quick:
                await _knee(bench, library, server.url)
        bench.step("the wait for a connection")
        await _pool_wait(bench, server.url)
    return bench.outcome()


def _sized(bench: Bench, level: Level) -> Level:
    return replace(level, seconds=bench.size(0.4, 1.5), drain_s=bench.size(0.8, 3.0))


async def _sweep(bench: Bench, library: str, levels: Sequence[Level], url: str) -> list[Found]:
    """Every level, one of the first again at the end, and the probe's sentences. A full run has a process for each."""
    told = Told()
    repeated = next(level for level in levels if level.concurrency == REPEATED)
    found: list[Found] = []
    groups = [[*levels, repeated]] if bench.quick else [[level] for level in (*levels, repeated)]
    for group in groups:
        bench.step(f"{library}: {', '.join(_label(level) for level in group)}")
        measured = await measure(bench, library, group, url)
        for one in measured[: len(levels) - len(found)]:
            _level_rows(bench, one, told)
        found += measured
    *sweep, again = found
    floor = repeat_floor(sweep[levels.index(repeated)], again)
    _fall_row(bench, library, sweep, floor)
    bench.step(f"{library}: what the probe says at 100 and at 500")
    told |= await whys(library, [replace(swept(*level), seconds=0.3, drain_s=0.3) for level in EXPLAINED], url)
    if library == DOCUMENTED_LIBRARY:
        _levels_not_run(bench, sweep)
        _documented_little(bench)
    _sweep_claims(bench, library, sweep)
    return sweep


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


def _level_rows(bench: Bench, one: Found, told: Told) -> None:
    """Every figure of the sweep's table for one level; P95 is printed of one only."""
    printed = DOCUMENTED.get((one.level.concurrency, one.level.connections), {})
    printed = printed if one.library == DOCUMENTED_LIBRARY else {}
    figures = _figures(one)
    for metric in [name for name in METRICS if name in printed or name != "p95"]:
        _metric_row(bench, one, metric, figures[metric], printed.get(metric), told)


def _levels_not_run(bench: Bench, sweep: Sequence[Found]) -> None:
    """Documented levels that a quick run leaves out."""
    measured = {(one.level.concurrency, one.level.connections) for one in sweep}
    for (concurrency, connections), printed in DOCUMENTED.items():
        if (concurrency, connections) not in measured:
            label = _label(swept(concurrency, connections))
            table = Table(bench, TABLE, series=DOCUMENTED_LIBRARY, x=label, note="full runs only")
            for metric, value in printed.items():
                unit, what = METRICS[metric]
                table.put(f"{label}: {what}", unit, None, value, metric=metric)


def _label(level: Level) -> str:
    return f"c{level.concurrency}/l{level.connections}"


def _fall_row(bench: Bench, library: str, sweep: Sequence[Found], floor: float | None) -> None:
    """The sweep's headline: how much of the best throughput is left at the last level."""
    best, last = max(sweep, key=lambda one: one.rps), sweep[-1]
    documented = library == DOCUMENTED_LIBRARY
    bench.row(
        TABLE if documented else f"{TABLE}, {library}",
        f"throughput, best over last: {_label(best.level)} over {_label(last.level)}",
        "×",
        best.rps / last.rps if last.rps else None,
        documented=DOCUMENTED[100, 100]["throughput"] / DOCUMENTED[3000, 1000]["throughput"] if documented else None,
        metric="ratio",
        series=library,
        floor=floor,
        contended=best.contended or last.contended,
        note=f"A/A: c{REPEATED} again at the end" if last.rps else "nothing was answered at the last level",
    )


def _metric_row(
    bench: Bench,
    one: Found,
    metric: str,
    measured: float | None,
    printed: float | None,
    told: Told,
) -> None:
    unit, what = METRICS[metric]
    level, label = one.level, f"{_label(one.level)}: {what}"
    table = TABLE if one.library == DOCUMENTED_LIBRARY else f"{TABLE}, {one.library}"
    if metric == "throughput":
        rate_row(bench, table, label, one, documented=printed, x=_label(level), why=told.later(level))
        return
    note, scale = "", 1.0
    if metric == "requests" and printed is not None:
        lasted = printed / DOCUMENTED[level.concurrency, level.connections]["throughput"]
        scale = one.said["seconds"] / lasted
        note = f"in {one.said['seconds']:.1f} s; in the document, by its own throughput, in {lasted:.0f} s"
    elif metric == "success" and one.errors:
        note = ", ".join(f"{count} {name}" for name, count in one.said["errors"].items())
    elif measured is None:
        note = "nothing was answered"
    bench.row(
        table,
        label,
        unit,
        measured,
        documented=printed,
        scale=scale,
        metric=metric,
        series=one.library,
        x=_label(level),
        contended=one.contended,
        protocol=one.protocol,
        note=note,
    )


def _documented_little(bench: Bench) -> None:
    """What the document's own rows say of their concurrency."""
    for (concurrency, connections), printed in DOCUMENTED.items():
        label, in_flight = _label(swept(concurrency, connections)), printed["throughput"] * printed["mean"] / 1000
        bench.row(
            HIDDEN,
            f"{label}: throughput × mean latency, of the document's own row",
            "",
            in_flight,
            documented=concurrency,
            metric="Little's law",
            series="document",
            x=label,
            note="arithmetic on the document: a closed loop of so many workers must give their number"
            + ("; this row cannot be of 100 workers" if in_flight < 0.5 * concurrency else ""),
        )


async def _tuning(bench: Bench, library: str, sweep: Sequence[Found], url: str) -> None:
    """The tuning table; some of its lines are levels of the sweep. A quick run leaves out what drains slowly."""
    most_workers = bench.size(200, 1000)
    found = {one.level: one for one in sweep}
    wanted = [
        _sized(bench, Level(concurrency=workers, connections=most, keepalive=kept))
        for _, workers, most, kept, _, _ in TUNED
    ]
    missing = [level for level in wanted if level not in found and level.concurrency <= most_workers]
    bench.step(f"{library}: the tuning table")
    found |= dict(zip(missing, await measure(bench, library, missing, url), strict=True))
    for level, (load, workers, connections, keepalive, lowest, printed) in zip(wanted, TUNED, strict=True):
        label = f"{load}: {connections} connections, {keepalive} kept"
        more: dict[str, Any] = {"documented": lowest, "series": "expected throughput", "x": load}
        note = f"the document expects {printed}; {workers} workers"
        if level in found:
            rate_row(bench, TUNING, label, found[level], note=note, **more)
        else:
            bench.row(TUNING, label, "1/s", None, metric="throughput", note=f"full runs only; {note}", **more)


# --- claims ---


def _sweep_claims(bench: Bench, library: str, sweep: Sequence[Found]) -> None:
    best = max(sweep, key=lambda one: one.rps)
    last = sweep[-1]
    fall = best.rps / last.rps if last.rps else float("inf")
    most = max(one.level.concurrency for one in sweep)
    said = ", ".join(f"{_label(one.level)} {one.rps:.0f}" for one in sweep)
    contended = any(one.contended for one in sweep)
    earlier = best.level.concurrency < most
    bench.check(
        claim_id("3", library),
        f"the best concurrency is not the highest ({library})",
        documented="1 508 requests/s at c100, 252 at c3000: 6.0×",
        measured=f"{said} requests/s: " + (f"best over last {fall:.1f}×" if last.rps else "nothing at the last level"),
        tolerance="the best is before the highest, and more than twice the last",
        # What others' load takes from a level is not the level's; what a request costs the client is.
        verdict=graded(earlier and fall > 2, earlier or (contended and _dearer(sweep[0], last))),
        why=_bound(best, last),
        value=fall if last.rps else None,
        contended=contended,
    )
    tails = [(one, one.said.get("p99_ms")) for one in sweep]
    known = [tail for _, tail in tails if tail is not None]
    grows = max(known) / min(known) if known else 0.0
    cancelled = sum(one.said["cancelled"] for one in sweep)
    limit = 20.0 if len(sweep) > len(QUICK_LEVELS) else 3.0
    verdict = graded(grows > 20, grows > limit or cancelled > 0)
    bench.check(
        claim_id("4", library),
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
        f"Client CPU per request {best.cpu_ms:.2f} ms at {_label(best.level)}, "
        f"{last.cpu_ms:.2f} ms at {_label(last.level)}; the server used "
        f"{best.server_percent:.0f} % and {last.server_percent:.0f} % of a core."
    )


async def _scan_share(bench: Bench, library: str, url: str) -> None:
    """How much of the client's time its pool takes to look through its own connections and requests."""
    said = await profile(library, replace(swept(100, 100), seconds=0.3, drain_s=0.3), url)
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
    levels = [Level(concurrency=n, connections=n, keepalive=n, seconds=1.5, drain_s=2.0) for n in sizes]
    for one in await measure(bench, library, levels, url):
        workers = one.level.concurrency
        label = f"{library}: {workers} workers, as many connections, all kept"
        rate_row(bench, HIDDEN, label, one, metric="knee", x=workers)


async def _pool_wait(bench: Bench, url: str) -> None:
    """More workers than connections: each waits for (workers / connections) turns, the HTTP analogue of waves.

    Last, what the server is capable of without a client library, so that nobody takes the client's limit for its.
    """
    crowds = bench.size((200,), (200, 500))
    base = Level(concurrency=POOL, connections=POOL, keepalive=POOL, seconds=bench.size(0.4, 2.0))
    many = [replace(base, concurrency=c, seconds=bench.size(0.8, 3.0), drain_s=3.0) for c in crowds]
    levels = [base, *many, Level(pattern="raw", concurrency=400, seconds=bench.size(0.4, 2.0))]
    first, *crowded, raw = await measure(bench, SDK_LIBRARY, levels, url)
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
    label = "no client library, 400 workers with a connection each, throughput"
    rate_row(bench, HIDDEN, label, raw, series="raw", x="c400", protocol=raw.version)
    within = all(abs(ratio - 1) <= POOL_TOLERANCE for ratio in ratios)
    near = all(abs(ratio - 1) <= POOL_SHAPE for ratio in ratios)
    peak = max(one.server.in_flight_peak for one in crowded)
    contended = any(one.contended for one in (first, *crowded))
    bench.check(
        "004-pool",
        "with more workers than connections the wait is workers / connections × latency",
        documented="not measured there",
        measured=", ".join(f"{ratio:.2f} of the expected" for ratio in ratios)
        + f"; at most {peak} in flight at the server",
        tolerance="± 15 %, and never more in flight than connections",
        verdict=graded(peak <= POOL and within, peak <= POOL and near, contended=contended and peak <= POOL),
        why=OTHERS if contended else "",
        value=max(ratios, key=lambda ratio: abs(ratio - 1)),
        contended=contended,
    )
