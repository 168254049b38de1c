"""``http-sweep``: document 004's concurrency sweep, its findings and its tuning table, for each client library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Measured, Outcome
from mcp_probe.workloads.bench.statistics import counted
from mcp_probe.workloads.models.http_load import Level
from mcp_probe.workloads.scenarios import http_runs as runs
from mcp_probe.workloads.scenarios.documents import doc004 as doc
from mcp_probe.workloads.scenarios.tables import Table
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


def swept(concurrency: int, connections: int) -> Level:
    """The document's client of a level: it keeps half of its connections, or half of the workers' number."""
    return Level(concurrency=concurrency, connections=connections, keepalive=min(concurrency, connections) // 2)


async def run(bench: Bench) -> Outcome:
    """The sweep with every library there is, the tuning table, the pool's own wait, and what bounds it all."""
    levels = [_sized(bench, swept(*level)) for level in bench.size(QUICK_LEVELS, doc.LEVELS)]
    with delay_server(runs.DELAY_MS) as server:
        names = runs.libraries(bench)
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


async def _sweep(bench: Bench, library: str, levels: Sequence[Level], url: str) -> list[runs.Found]:
    """Every level, one of the first again at the end, and the probe's sentences. A full run has a process for each."""
    told = runs.Told()
    repeated = next(level for level in levels if level.concurrency == REPEATED)
    found: list[runs.Found] = []
    groups = [[*levels, repeated]] if bench.quick else [[level] for level in (*levels, repeated)]
    for group in groups:
        bench.step(f"{library}: {', '.join(_label(level) for level in group)}")
        measured = await runs.measure(bench, library, group, url)
        for one in measured[: len(levels) - len(found)]:
            _level_rows(bench, one, told)
        found += measured
    *sweep, again = found
    floor = runs.repeat_floor(sweep[levels.index(repeated)], again)
    _fall_row(bench, library, sweep, floor)
    bench.step(f"{library}: what the probe says at 100 and at 500")
    told |= await runs.whys(library, [replace(swept(*level), seconds=0.3, drain_s=0.3) for level in EXPLAINED], url)
    if library == runs.DOCUMENTED_LIBRARY:
        _levels_not_run(bench, sweep)
        _documented_little(bench)
        for note in doc.NOTES:
            bench.note(note)
    _sweep_claims(bench, library, sweep, floor)
    return sweep


# --- rows ---


def _figures(one: runs.Found) -> dict[str, float | None]:
    said = one.said
    latencies = {name: said.get(f"{name}_ms") for name in ("mean", "p50", "p95", "p99", "max")}
    return {"requests": said["answered"], "throughput": one.rps, **latencies, "success": one.success_percent}


def _level_rows(bench: Bench, one: runs.Found, told: runs.Told) -> None:
    """Every figure of the sweep's table for one level; P95 is printed of one only."""
    documented = one.library == runs.DOCUMENTED_LIBRARY
    printed = doc.SWEEP.get((one.level.concurrency, one.level.connections), {}) if documented else {}
    name, level, why = TABLE if documented else f"{TABLE}, {one.library}", _label(one.level), told.later(one.level)
    table = runs.table_of(bench, name, one, x=level, why=one.because(why))
    figures = _figures(one)
    for metric in [metric for metric in METRICS if metric in printed or metric != "p95"]:
        unit, what = METRICS[metric]
        if metric == "throughput":
            runs.rate_row(bench, name, f"{level}: {what}", one, documented=printed.get(metric), x=level, why=why)
            continue
        note, scale = "" if figures[metric] is not None else "nothing was answered", 1.0
        if metric == "requests" and printed:
            lasted = printed["requests"] / printed["throughput"]
            scale = one.said["seconds"] / lasted
            note = f"in {one.said['seconds']:.1f} s; in the document, by its own throughput, in {lasted:.0f} s"
        elif metric == "success" and one.errors:
            note = ", ".join(f"{count} {name}" for name, count in one.said["errors"].items())
        more = {"metric": metric, "scale": scale, "note": note}
        table.put(f"{level}: {what}", unit, figures[metric], printed.get(metric), **more)


def _levels_not_run(bench: Bench, sweep: Sequence[runs.Found]) -> None:
    """Documented levels that a quick run leaves out."""
    measured = {(one.level.concurrency, one.level.connections) for one in sweep}
    for (concurrency, connections), printed in doc.SWEEP.items():
        if (concurrency, connections) not in measured:
            label = _label(swept(concurrency, connections))
            table = Table(bench, TABLE, series=runs.DOCUMENTED_LIBRARY, x=label, note="full runs only")
            for metric, value in printed.items():
                unit, what = METRICS[metric]
                table.put(f"{label}: {what}", unit, None, value, metric=metric)


def _label(level: Level) -> str:
    return f"c{level.concurrency}/l{level.connections}"


def _fall_row(bench: Bench, library: str, sweep: Sequence[runs.Found], floor: float | None) -> None:
    """The sweep's headline: how much of the best throughput is left at the last level."""
    best, last = max(sweep, key=lambda one: one.rps), sweep[-1]
    known = doc.SWEEP[100, 100]["throughput"] / doc.SWEEP[3000, 1000]["throughput"]
    name, documented = (TABLE, known) if library == runs.DOCUMENTED_LIBRARY else (f"{TABLE}, {library}", None)
    note = f"A/A: c{REPEATED} again at the end" if last.rps else "nothing was answered at the last level"
    table = Table(bench, name, metric="ratio", series=library, floor=floor, note=note, why=_bound(best, last))
    label, fall = f"{_label(best.level)} over {_label(last.level)}", best.rps / last.rps if last.rps else None
    contended = best.contended or last.contended
    table.put(f"throughput, best over last: {label}", "×", fall, documented, contended=contended)


def _documented_little(bench: Bench) -> None:
    """What the document's own rows say of their concurrency."""
    rule = "arithmetic on the document: a closed loop of so many workers must give their number"
    table = Table(bench, HIDDEN, metric="Little's law", series="document")
    for (concurrency, connections), printed in doc.SWEEP.items():
        level, in_flight = _label(swept(concurrency, connections)), printed["throughput"] * printed["mean"] / 1000
        note = rule if in_flight >= 0.5 * concurrency else f"{rule}; this row cannot be of 100 workers"
        label = f"{level}: throughput × mean latency, of the document's own row"
        table.put(label, "", in_flight, concurrency, x=level, note=note)


async def _tuning(bench: Bench, library: str, sweep: Sequence[runs.Found], url: str) -> None:
    """The tuning table; some of its lines are levels of the sweep. A quick run leaves out what drains slowly."""
    most_workers = bench.size(200, 1000)
    found = {one.level: one for one in sweep}
    wanted = [
        _sized(bench, Level(concurrency=workers, connections=most, keepalive=kept))
        for _, workers, most, kept, _, _ in doc.TUNED
    ]
    missing = [level for level in wanted if level not in found and level.concurrency <= most_workers]
    bench.step(f"{library}: the tuning table")
    found |= dict(zip(missing, await runs.measure(bench, library, missing, url), strict=True))
    for level, (load, workers, connections, keepalive, lowest, printed) in zip(wanted, doc.TUNED, strict=True):
        label = f"{load}: {connections} connections, {keepalive} kept"
        more: dict[str, Any] = {"documented": lowest, "series": "expected throughput", "x": load}
        note = f"the document expects {printed}; {workers} workers"
        if level in found:
            runs.rate_row(bench, TUNING, label, found[level], note=note, **more)
        else:
            bench.row(TUNING, label, "1/s", None, metric="throughput", note=f"full runs only; {note}", **more)


# --- claims ---


def _sweep_claims(bench: Bench, library: str, sweep: Sequence[runs.Found], floor: float | None) -> None:
    best, last = max(sweep, key=lambda one: one.rps), sweep[-1]
    contended, bound = any(one.contended for one in sweep), _bound(best, last)
    rates = ", ".join(f"{_label(one.level)} {one.rps:.0f}" for one in sweep)
    fall = [Measured(best.rps / last.rps, floor=floor, contended=contended)] if last.rps else []
    told = f"best over last {fall[0].value:.1f}×" if fall else "nothing at the last level"
    said, untold = f"{rates} requests/s: {told}", "nothing was answered at the last level"
    bench.claim(runs.twin("3", library), *fall, said=said, untold=untold, why=bound)
    tails = [tail for one in sweep if (tail := one.said.get("p99_ms")) is not None]
    grows = [Measured(max(tails) / min(tails), floor=floor, contended=contended)] if tails else []
    told = f"{min(tails):.0f} to {max(tails):.0f} ms: {grows[0].value:.0f}×" if grows else "no latency at all"
    cancelled = sum(one.said["cancelled"] for one in sweep)
    cut = f", and {cancelled} requests unanswered when the drain was cut off" if cancelled else ""
    bench.claim(runs.twin("4", library), *grows, said=f"{told}{cut}", untold="nothing was answered", why=bound)


def _bound(best: runs.Found, last: runs.Found) -> str:
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
    said = await runs.profile(library, replace(swept(100, 100), seconds=0.3, drain_s=0.3), url)
    share = said["shares"][0].get("_assign_requests_to_connections", 0.0)
    note = "by the interpreter's own profiler, which makes small functions dearer than they are"
    table = Table(bench, HIDDEN, metric="profile", series=library, note=note)
    label = f"{library}: share of the client's time in the pool's search for a connection, c100/l100"
    table.put(label, "%", 100 * share, x="_assign_requests_to_connections")


async def _knee(bench: Bench, library: str, url: str) -> None:
    """As many kept connections as connections and workers: no reconnection, so the pool's work alone shows."""
    sizes = (10, 20, 50, 100, 200)
    bench.step(f"{library}: the knee")
    levels = [Level(concurrency=n, connections=n, keepalive=n, seconds=1.5, drain_s=2.0) for n in sizes]
    for one in await runs.measure(bench, library, levels, url):
        workers = one.level.concurrency
        label = f"{library}: {workers} workers, as many connections, all kept"
        runs.rate_row(bench, HIDDEN, label, one, metric="knee", x=workers)


async def _pool_wait(bench: Bench, url: str) -> None:
    """More workers than connections: each waits for (workers / connections) turns, the HTTP analogue of waves.

    Last, what the server is capable of without a client library, so that nobody takes the client's limit for its.
    """
    crowds = bench.size((200,), (200, 500))
    base = Level(concurrency=POOL, connections=POOL, keepalive=POOL, seconds=bench.size(0.4, 2.0))
    many = [replace(base, concurrency=c, seconds=bench.size(0.8, 3.0), drain_s=3.0) for c in crowds]
    levels = [base, *many, base, Level(pattern="raw", concurrency=400, seconds=bench.size(0.4, 2.0))]
    first, *crowded, again, raw = await runs.measure(bench, runs.SDK_LIBRARY, levels, url)
    alone_ms, floor = first.said["p50_ms"], runs.repeat_floor(first, again)
    found = []
    for one in crowded:
        workers = one.level.concurrency
        expected = workers / POOL * alone_ms
        contended = one.contended or first.contended
        found.append(Measured(one.said["p50_ms"] / expected, floor=floor, contended=contended))
        note = (
            f"expected {expected:.0f} ms: {workers}/{POOL} × {alone_ms:.1f} ms; client at {one.cpu_percent:.0f} %; "
            f"never more than {one.server.in_flight_peak} in flight at the server"
        )
        table = runs.table_of(bench, HIDDEN, one, metric="pool wait", x=workers, little=one.little, why=one.because(""))
        label = f"{runs.SDK_LIBRARY}: {workers} workers for {POOL} connections, median latency"
        table.put(label, "ms", one.said["p50_ms"], note=note)
    label = "no client library, 400 workers with a connection each, throughput"
    runs.rate_row(bench, HIDDEN, label, raw, series="raw", x="c400", protocol=raw.version)
    peak = max(one.server.in_flight_peak for one in crowded)
    bench.claim(
        doc.CLAIMS["004-pool"],
        found,
        counted(peak),
        said=", ".join(f"{each.value:.2f} of the expected" for each in found)
        + f"; at most {peak} in flight at the server",
    )
