"""``resumption``: a call whose connection breaks halfway, and that is read on from another one.

The server waits halfway until the client has gone, so that what comes after the break is no matter of time. What the
client receives, before and after, is the truth for what the probe counts of the call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import anyio

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench, Interleaved, Ms, Timed
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Asked, Outcome
from mcp_probe.workloads.bench.statistics import ratio_of
from mcp_probe.workloads.raw_http import Event, RawSession
from mcp_probe.workloads.scenarios.own_claims import exactly, judged
from mcp_probe.workloads.scenarios.tables import Table

SERVER = "mcp_probe.workloads.servers.resumable"
TABLE = "now resumption"
PLAIN, KEPT = "events are sent", "events are kept as well"
BROKEN, OTHER_IDS = 20, 1_000_000


@dataclass(frozen=True, slots=True)
class Read:
    """What came of one call that broke: progress before and after, the result's text, and how long reading on took."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    result: str
    resumed_ms: float


async def run(bench: Bench) -> Outcome:
    """What keeping events costs, then calls that break."""
    count = bench.size(100, 1000)
    bench.step("starting two servers")
    starts = [bench.server(SERVER, *more, transport="sse", connect=False) for more in ((), ("--keep",))]
    async with side_by_side(starts) as started:
        servers: dict[str, ProfiledServer] = dict(zip((PLAIN, KEPT), started, strict=True))
        with RawSession(servers[PLAIN].url or "") as plain, RawSession(servers[KEPT].url or "") as kept:
            sessions = {PLAIN: plain, KEPT: kept}
            for session in sessions.values():
                await anyio.to_thread.run_sync(session.open)
            bench.step(f"{count:,} events a call")
            found = await _timed(bench, servers, sessions, count)
        bench.step("connections that break")
        reads = await anyio.to_thread.run_sync(_broken_calls, servers[KEPT], bench.size(3, 10))
    _rows(bench, servers[KEPT], reads)
    _once_claim(bench, servers[KEPT], reads)
    _cost_claim(bench, servers, found, count)
    return bench.outcome()


# --- what keeping events costs --------------------------------------------------------------------


async def _timed(
    bench: Bench, servers: dict[str, ProfiledServer], sessions: dict[str, RawSession], count: int
) -> Interleaved:
    def turn(session: RawSession) -> Timed:
        return partial(anyio.to_thread.run_sync, _whole_call, session, count)

    for label, session in sessions.items():
        with servers[label].phase("calls"):
            await turn(session)()
    ways = {label: turn(session) for label, session in sessions.items()}
    taken = await bench.interleaved(ways, bench.size(5, 12), twin=PLAIN)
    table = Table(bench, TABLE, metric=f"a call with {count:,} events", floor=taken.floor)
    for label, stats in taken.stats.items():
        table.put(f"{count:,} events, {label}", "ms", stats, series=label, x=label, why=servers[label].later("calls"))
    return taken


def _whole_call(session: RawSession, count: int) -> Ms:
    began = time.perf_counter_ns()
    for event in session.stream("count_up", count=count, pauses=False):
        if _is_result(event):
            taken = Ms((time.perf_counter_ns() - began) / 1e6)
    return taken


# --- calls that break -----------------------------------------------------------------------------


def _broken_calls(server: ProfiledServer, calls: int) -> list[Read]:
    url = server.url or ""
    reads = []
    with RawSession(url) as first, RawSession(url, first_id=OTHER_IDS) as other:
        first.open()
        other.session_id = first.session_id
        for number in range(calls):
            reads.append(_broken(server, first, other, f"broken {number}"))
    return reads


def _broken(server: ProfiledServer, session: RawSession, other: RawSession, label: str) -> Read:
    """One call: read to the half, broken, left until it is over, and read on."""
    with server.phase(label):
        before: list[Event] = []
        for event in session.stream("count_up", count=BROKEN, pauses=True):
            before.append(event)
            if _progress(event) == BROKEN // 2:
                break
        session.close()
        other.call("go_on").text()
        began = time.perf_counter_ns()
        after: list[Event] = []
        for event in session.resume(before[-1].id):
            after.append(event)
            if _is_result(event):
                break
        resumed_ms = (time.perf_counter_ns() - began) / 1e6
        session.close()
    message = after[-1].message or {}
    if "result" not in message:
        raise LaunchError(f"The call that was read on from failed: {message}")
    return Read(_all_progress(before), _all_progress(after), message["result"]["content"][0]["text"], resumed_ms)


def _progress(event: Event) -> int | None:
    message = event.message or {}
    return int(message["params"]["progress"]) if message.get("method") == "notifications/progress" else None


def _all_progress(events: Sequence[Event]) -> tuple[int, ...]:
    return tuple(number for event in events if (number := _progress(event)) is not None)


def _is_result(event: Event) -> bool:
    return event.message is not None and ("result" in event.message or "error" in event.message)


# --- findings -------------------------------------------------------------------------------------


def _rows(bench: Bench, server: ProfiledServer, reads: Sequence[Read]) -> None:
    table = Table(bench, TABLE, why=server.later("broken 0", "count_up"))
    note = f"median of {len(reads)} calls of {BROKEN} events that broke after {BROKEN // 2}"
    resumed = sorted(read.resumed_ms for read in reads)[len(reads) // 2]
    table.put("to reconnect and read on to the result", "ms", resumed, metric="reading on", note=note)
    for part in ("before", "after"):
        received = min(len(getattr(read, part)) for read in reads)
        table.put(f"events received {part} the break", "", received, metric="events", note=note)


def _once_claim(bench: Bench, server: ProfiledServer, reads: Sequence[Read]) -> None:
    truth = tuple(range(1, BROKEN + 1))
    whole = [read.before + read.after == truth and read.result == f"counted to {BROKEN}" for read in reads]
    counted = []
    for number in range(len(reads)):
        calls = server.seen(f"broken {number}").only("count_up").requests
        sent = [value for each in calls for name, value, _ in each.measures if name == "notifications"]
        counted.append((len(calls), sent, [each.outcome for each in calls]))
    fine = all(whole) and all(each == (1, [BROKEN], ["ok"]) for each in counted)
    exactly(
        bench,
        "now-26",
        "a call outlives its connection: read on elsewhere, each event comes once, and the probe saw one whole call",
        said=f"{sum(whole)} of {len(reads)} calls came whole, {len(reads[0].before)} events before and "
        f"{len(reads[0].after)} after the break; the probe counted "
        + (f"one call with {BROKEN} notifications each" if fine else f"{counted}"),
        how=f"events 1 to {BROKEN} in order, once; then the result; one request, not cancelled",
        fine=fine,
        why=server.why("broken 0"),
    )


def _cost_claim(bench: Bench, servers: dict[str, ProfiledServer], taken: Interleaved, count: int) -> None:
    found = taken.stats
    ratio = ratio_of(found[KEPT], found[PLAIN], taken.floor)
    judged(
        bench,
        "now-27",
        "keeping events in memory costs a call next to nothing",
        Asked("at most"),
        ratio,
        said=f"{found[KEPT].median:.1f} and {found[PLAIN].median:.1f} ms for a call of {count:,} events: "
        f"{ratio.value:.2f}×",
        how="kept over not kept",
        why=f"Kept: {servers[KEPT].why('calls')} Not kept: {servers[PLAIN].why('calls')}",
    )
