"""``io-models``: document 003's I/O-bound tables against a local server that answers after a known delay.

The document compares 1 000 connections of asyncio with 100 threads; the rows of conditions compare equals.
"""

from __future__ import annotations

import os

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.bench.statistics import counted, ratio_floor
from mcp_probe.workloads.models.clients import ASYNC_LIBRARIES, SYNC_LIBRARIES, installed
from mcp_probe.workloads.models.model_process import explain_models
from mcp_probe.workloads.models.urls import paths
from mcp_probe.workloads.scenarios.documents.doc003 import (
    CHARTS,
    CLAIMS,
)
from mcp_probe.workloads.scenarios.documents.doc003 import (
    CORES as DOCUMENTED_CORES,
)
from mcp_probe.workloads.scenarios.documents.doc003 import (
    IO_BOUND as DOCUMENTED,
)
from mcp_probe.workloads.scenarios.documents.doc003 import (
    IO_METRICS as METRICS,
)
from mcp_probe.workloads.scenarios.documents.doc003 import (
    IoTable as Documented,
)
from mcp_probe.workloads.scenarios.io_claims import Claims
from mcp_probe.workloads.scenarios.io_runs import MODULE, Found, Plan, arguments, measure, plans
from mcp_probe.workloads.scenarios.tables import Table
from mcp_probe.workloads.servers.delay_http import DelayServer, answer_bytes, delay_server

TABLE = "003 I/O-bound"
EQUAL = "asyncio, limit 100"
HIDDEN = "003 conditions"
DOCUMENTED_DELAY_MS = 182.8
"""Its mean time of one request, one after another: 182.84 s for 1 000."""


async def run(bench: Bench) -> Outcome:
    """003's I/O-bound section: nine tables, five plots, and the comparisons it did not make."""
    libraries = _libraries(bench)
    found: dict[str, Found] = {}
    every = plans(quick=bench.quick)
    with delay_server(180) as slow, delay_server(20) as quick:
        bench.step("what the probe says of each way")
        whys = await _whys(slow, quick, libraries)
        servers = {180.0: slow, 20.0: quick}
        for number, plan in enumerate(every, 1):
            bench.step(f"{plan.x} ({number} of {len(every)})")
            try:
                one = await measure(bench, plan, servers[plan.delay_ms], libraries)
            except LaunchError as exc:
                bench.note(f"{plan.x} was not measured: {exc}")
                continue
            found[plan.x] = one
            if plan.documented:
                _documented_rows(bench, one, DOCUMENTED[plan.documented], whys.get(plan.documented, ""), libraries)
            _condition_rows(bench, one)
        again = await _ratio_rows(bench, found, servers, libraries) if EQUAL in found else None
    bench.row(TABLE, "CPU cores", "", os.cpu_count(), documented=DOCUMENTED_CORES, metric="cores")
    for key, documented in DOCUMENTED.items():
        if key not in found:
            _not_run(bench, documented, "full runs only" if bench.quick else "failed")
    if again is not None and found.keys() >= {plan.x for plan in every} - {"asyncio 100000"}:
        Claims(bench, found, again, libraries, whys).judge()
    _same_bytes(bench, list(found.values()))
    return bench.outcome()


def _libraries(bench: Bench) -> tuple[str, str]:
    """The synchronous one and the asynchronous one: the document's where installed."""
    sync, asynchronous = installed(SYNC_LIBRARIES), installed(ASYNC_LIBRARIES)
    for wanted, used in (("requests", sync), ("aiohttp", asynchronous)):
        if wanted not in used:
            bench.lacks(wanted, f"its rows of document 003 were measured with {used[0]}")
    return sync[0], asynchronous[0]


async def _whys(slow: DelayServer, quick: DelayServer, libraries: tuple[str, str]) -> dict[str, str]:
    """One sentence of the probe for each way, from a run of its own that is too short to matter for times."""
    wanted = {
        "sync": (Plan("", "sync", 20), quick),
        "asyncio": (Plan("", "gather", 300, limit=100), slow),
        "100 threads": (Plan("", "threads", 300, 100), slow),
        "hybrid 10": (Plan("", "hybrid", 300, 10, limit=100), slow),
    }
    orders = {key: arguments(plan, server.url, libraries) for key, (plan, server) in wanted.items()}
    whys = await explain_models(MODULE, orders)
    whys["sync 100"] = whys["sync"]
    return whys


# --- rows ---


def _figures(one: Found) -> dict[str, float | None]:
    """Everything the document's tables have, of one run, in their units."""
    run, server = one.run, one.server
    return {
        "time": run.seconds,
        "downloaded": server.sent_bytes,
        "download speed": server.sent_bytes / run.seconds / 1000,
        "uploaded": server.received_bytes,
        "upload speed": server.received_bytes / run.seconds / 1000,
        "written": run.said["written_bytes"],
        "failures": one.failures,
        "CPU": run.cpu_percent,
        "CPU max": run.cpu_percent_max,
        "system CPU": run.system_percent,
        "system CPU max": run.system_percent_max,
        "memory": run.rss_mb,
        "memory max": run.rss_max_mb,
    }


def _scales(plan: Plan, documented: Documented) -> dict[str, float]:
    """What of the documented figure to expect at this run's size: by count for sums, by waiting alone for times."""
    share = plan.urls / documented.urls
    ideal = documented.urls / documented.concurrency * DOCUMENTED_DELAY_MS / 1000
    time = plan.ideal_s / ideal
    sums = dict.fromkeys(("downloaded", "uploaded", "written", "failures"), share)
    return {**sums, "time": time, "download speed": share / time, "upload speed": share / time}


def _size_note(plan: Plan, documented: Documented) -> str:
    parts = [plan.note] if plan.note else []
    if plan.urls != documented.urls:
        parts.append(f"{plan.urls:,} URLs instead of {documented.urls:,}")
    if plan.delay_ms != 180.0:
        parts.append(f"{plan.delay_ms:g} ms an answer instead of 180")
    return "; ".join(parts)


def _documented_rows(bench: Bench, one: Found, documented: Documented, why: str, libraries: tuple[str, str]) -> None:
    plan, figures = one.plan, _figures(one)
    scales, note = _scales(plan, documented), _size_note(plan, documented)
    library = libraries[0] if plan.model in ("sync", "threads") else libraries[1]
    for metric, value in documented.figures.items():
        unit, what = METRICS[metric]
        chart, series = CHARTS.get(metric, (metric, what))
        measured = figures[metric]
        said = note if metric == "time" else ""
        if metric == "downloaded":
            said = "the document counts all traffic of its host, both ways"
        if measured is None:
            said = "the run is shorter than a window of 0.2 s, or this system does not tell"
        bench.row(
            TABLE,
            f"{documented.label}: {what}",
            unit,
            measured,
            documented=value,
            scale=scales.get(metric, 1.0),
            metric=chart,
            series=series,
            x=documented.x,
            contended=one.contended,
            why=why or one.reading,
            protocol=library if metric == "time" else "",
            note=said,
        )

    if plan.threads > 1:
        printed = next(int(word) for word in plan.documented.split() if word.isdigit())
        bench.row(
            TABLE,
            f"{documented.label}: threads",
            "",
            plan.threads,
            documented=printed,
            metric="threads",
            why=why or one.reading,
        )


def _not_run(bench: Bench, documented: Documented, why: str) -> None:
    for metric, value in documented.figures.items():
        unit, what = METRICS[metric]
        label = f"{documented.label}: {what}"
        chart, series = CHARTS.get(metric, (metric, what))
        more = {"documented": value, "metric": chart, "series": series, "x": documented.x}
        bench.row(TABLE, label, unit, None, note=why, **more)


def _condition_rows(bench: Bench, one: Found) -> None:
    plan = one.plan
    where = {"x": plan.x, "contended": one.contended, "note": plan.note, "why": one.reading}

    def row(what: str, unit: str, measured: float | None, metric: str) -> None:
        bench.row(HIDDEN, f"{plan.x}: {what}", unit, measured, metric=metric, series=what, **where)

    if not plan.documented:
        row("execution time", "s", one.run.seconds, "time")
        row("memory, resident, maximum", "MB", one.run.rss_max_mb, "memory")
    if plan.descriptors or plan.together:
        row("failed requests", "", one.failures, "failures")
        row("threads that got no event loop", "", one.run.said["without_loop"], "without loop")
        row("open files allowed", "", one.run.said["descriptors"], "files")
        return
    row("CPU per request, client", "ms", one.cpu_ms, "CPU per request")
    row("requests in flight at the server, at most", "", one.server.in_flight_peak, "in flight")
    row("connections opened", "", one.server.connections, "connections")


async def _ratio_rows(
    bench: Bench, found: dict[str, Found], servers: dict[float, DelayServer], libraries: tuple[str, str]
) -> Found:
    """What the document compares and what it should have; A/A: asyncio with 100 connections once more, at the end."""
    equal = found[EQUAL]
    bench.step(f"{EQUAL}, again")
    again = await measure(bench, equal.plan, servers[equal.plan.delay_ms], libraries)
    floor = ratio_floor([equal.run.seconds], [again.run.seconds])
    cpu_floor = ratio_floor([equal.cpu_ms], [again.cpu_ms])
    reading = " ".join(f"{name}: {found[name].reading}" for name in ("100 threads", EQUAL, "asyncio") if name in found)
    table = Table(bench, TABLE, metric="ratio", why=reading)
    hidden = Table(bench, HIDDEN, metric="ratio", why=reading)
    if "100 threads" not in found:
        return again
    threads = found["100 threads"]
    cost, label = threads.cpu_ms / equal.cpu_ms, "CPU of a request, 100 threads over asyncio"
    hidden.put(
        label, "×", cost, 5.6 / 0.95, x=label, floor=cpu_floor, note="documented: its CPU time over its requests"
    )
    label = "100 threads over asyncio, as many connections"
    contended = threads.contended or equal.contended
    hidden.put(label, "×", threads.run.seconds / equal.run.seconds, x=label, floor=floor, contended=contended)
    if "asyncio" in found:
        most, label = found["asyncio"], "100 threads over asyncio, execution time"
        contended = threads.contended or most.contended
        note = f"{most.plan.limit} connections against 100, as in the document"
        ratio = threads.run.seconds / most.run.seconds
        table.put(label, "×", ratio, 50.01 / 14.08, x=label, floor=floor, contended=contended, note=note)
    return again


def _same_bytes(bench: Bench, every: list[Found]) -> None:
    """The check value: whoever had no failure must have written what the URLs say."""
    sound = [one for one in every if not one.failures]
    wrong = []
    for one in sound:
        share = one.plan.urls // one.plan.threads * one.plan.threads if one.plan.model == "hybrid" else one.plan.urls
        expected = sum(answer_bytes(path) for path in paths(share))
        if one.run.said["written_bytes"] != expected or one.server.requests != share:
            wrong.append(f"{one.plan.x}: {one.run.said['written_bytes']:,} bytes instead of {expected:,}")
    said = wrong[0] if wrong else f"{len(sound)} of {len(sound)} runs without failures exact"
    bench.claim(CLAIMS["003-io-bytes"], counted(len(wrong)), said=said)
