"""``io-models``: document 003's I/O-bound tables against a local server that answers after a known delay.

The document compares 1 000 connections of asyncio with 100 threads; the rows of conditions compare equals.
"""

from __future__ import annotations

import os

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.bench.statistics import counted
from mcp_probe.workloads.models.clients import ASYNC_LIBRARIES, SYNC_LIBRARIES, installed
from mcp_probe.workloads.models.model_process import explain_models
from mcp_probe.workloads.models.urls import paths
from mcp_probe.workloads.scenarios.documents import doc003 as doc
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
                _documented_rows(bench, one, doc.IO_BOUND[plan.documented], whys.get(plan.documented, ""), libraries)
            _condition_rows(bench, one)
        claims = None
        if EQUAL in found:  # once more at the end, for the A/A
            bench.step(f"{EQUAL}, again")
            equal = found[EQUAL].plan
            again = await measure(bench, equal, servers[equal.delay_ms], libraries)
            claims = Claims(bench, found, again, libraries, whys)
            _ratio_rows(bench, found, claims)
    bench.row(TABLE, "CPU cores", "", os.cpu_count(), documented=doc.CORES, metric="cores")
    for key, documented in doc.IO_BOUND.items():
        if key not in found:
            _not_run(bench, documented, "full runs only" if bench.quick else "failed")
    if claims is not None and found.keys() >= {plan.x for plan in every} - {"asyncio 100000"}:
        claims.judge()
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


def _scales(plan: Plan, documented: doc.IoTable) -> dict[str, float]:
    """What of the documented figure to expect at this run's size: by count for sums, by waiting alone for times."""
    share = plan.urls / documented.urls
    ideal = documented.urls / documented.concurrency * DOCUMENTED_DELAY_MS / 1000
    time = plan.ideal_s / ideal
    sums = dict.fromkeys(("downloaded", "uploaded", "written", "failures"), share)
    return {**sums, "time": time, "download speed": share / time, "upload speed": share / time}


def _size_note(plan: Plan, documented: doc.IoTable) -> str:
    parts = [plan.note] if plan.note else []
    if plan.urls != documented.urls:
        parts.append(f"{plan.urls:,} URLs instead of {documented.urls:,}")
    if plan.delay_ms != 180.0:
        parts.append(f"{plan.delay_ms:g} ms an answer instead of 180")
    return "; ".join(parts)


def _documented_rows(bench: Bench, one: Found, documented: doc.IoTable, why: str, libraries: tuple[str, str]) -> None:
    plan, figures, scales = one.plan, _figures(one), _scales(one.plan, documented)
    library = libraries[0] if plan.model in ("sync", "threads") else libraries[1]
    notes = {
        "time": _size_note(plan, documented),
        "downloaded": "the document counts all traffic of its host, both ways",
    }
    table = Table(bench, TABLE, why=why or one.reading)
    for metric, known in documented.figures.items():
        unit, what = doc.IO_METRICS[metric]
        note = notes.get(metric, "")
        if figures[metric] is None:
            note = "the run is shorter than a window of 0.2 s, or this system does not tell"
        own = table.sub(
            x=documented.x, contended=one.contended, scale=scales.get(metric, 1.0), **doc.charted(metric, what)
        )
        protocol = library if metric == "time" else ""
        own.put(f"{documented.label}: {what}", unit, figures[metric], known, protocol=protocol, note=note)
    if plan.threads > 1:
        printed = next(int(word) for word in plan.documented.split() if word.isdigit())
        table.put(f"{documented.label}: threads", "", plan.threads, printed, metric="threads")


def _not_run(bench: Bench, documented: doc.IoTable, note: str) -> None:
    table = Table(bench, TABLE, x=documented.x, note=note)
    for metric, known in documented.figures.items():
        unit, what = doc.IO_METRICS[metric]
        table.put(f"{documented.label}: {what}", unit, None, known, **doc.charted(metric, what))


def _condition_rows(bench: Bench, one: Found) -> None:
    plan = one.plan
    rows: list[tuple[str, str, float | None, str]] = []
    if not plan.documented:
        rows.append(("execution time", "s", one.run.seconds, "time"))
        rows.append(("memory, resident, maximum", "MB", one.run.rss_max_mb, "memory"))
    if plan.descriptors or plan.together:
        rows.append(("failed requests", "", one.failures, "failures"))
        rows.append(("threads that got no event loop", "", one.run.said["without_loop"], "without loop"))
        rows.append(("open files allowed", "", one.run.said["descriptors"], "files"))
    else:
        rows.append(("CPU per request, client", "ms", one.cpu_ms, "CPU per request"))
        rows.append(("requests in flight at the server, at most", "", one.server.in_flight_peak, "in flight"))
        rows.append(("connections opened", "", one.server.connections, "connections"))
    table = Table(bench, HIDDEN, x=plan.x, contended=one.contended, note=plan.note, why=one.reading)
    for what, unit, measured, metric in rows:
        table.put(f"{plan.x}: {what}", unit, measured, metric=metric, series=what)


def _ratio_rows(bench: Bench, found: dict[str, Found], claims: Claims) -> None:
    """What the document compares and what it should have."""
    if "100 threads" not in found:
        return
    reading = " ".join(f"{name}: {found[name].reading}" for name in ("100 threads", EQUAL, "asyncio") if name in found)
    hidden, table = (Table(bench, name, metric="ratio", why=reading) for name in (HIDDEN, TABLE))
    threads, equal = found["100 threads"], found[EQUAL]
    label, note = "CPU of a request, 100 threads over asyncio", "documented: its CPU time over its requests"
    ratio, floor = threads.cpu_ms / equal.cpu_ms, claims.cpu_floor
    hidden.put(label, "×", ratio, doc.CPU_OF_A_REQUEST, x=label, floor=floor, note=note)
    label = "100 threads over asyncio, as many connections"
    hidden.put(label, "×", claims.times(threads, equal), x=label)
    if "asyncio" in found:
        most, label = found["asyncio"], "100 threads over asyncio, execution time"
        note = f"{most.plan.limit} connections against 100, as in the document"
        known = doc.IO_BOUND["100 threads"].figures["time"] / doc.IO_BOUND["asyncio"].figures["time"]
        table.put(label, "×", claims.times(threads, most), known, x=label, note=note)


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
    bench.claim(doc.CLAIMS["003-io-bytes"], counted(len(wrong)), said=said)
