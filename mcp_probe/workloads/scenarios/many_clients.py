"""``many-clients``: many clients of one HTTP server at once, with a session each and with one for all of them.

Each client is a connection of its own. That all calls are inside at once is no matter of time: they wait for each
other. What sessions hold of memory is the kernel's count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import anyio

from mcp_probe.workloads.bench.context import Bench, Interleaved, Ms
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Asked, Outcome, Stats
from mcp_probe.workloads.bench.statistics import describe, ratio_of
from mcp_probe.workloads.raw_http import RawSession
from mcp_probe.workloads.scenarios.counted_calls import COUNTING, CPU_NOTE, Caller, through
from mcp_probe.workloads.scenarios.own_claims import exactly, judged
from mcp_probe.workloads.scenarios.readings import most_in_flight
from mcp_probe.workloads.scenarios.tables import Table

TABLE = "now clients"
EACH, ONE = "a session each", "one session for all"
ALONE = 1
IDS_EACH = 1_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """Of so many clients. ``inside``: how many calls the server had at once, by its own count."""

    count: int
    inside: int
    taken: Interleaved
    cpu_us: dict[str, Stats]


class Crowd:
    """Clients that call at the same time, on a thread each."""

    def __init__(self, sessions: Sequence[RawSession], pool: ThreadPoolExecutor) -> None:
        self.sessions = sessions
        self._pool = pool

    async def each(self, do: Callable[[RawSession], object]) -> list[object]:
        """What ``do`` gives for each of them, all at once."""
        return await anyio.to_thread.run_sync(lambda: list(self._pool.map(do, self.sessions)))


class Round:
    """Every client makes ``calls`` calls, one after another; keeps the server's CPU time, microseconds a call."""

    def __init__(self, crowd: Crowd, caller: Caller, calls: int) -> None:
        self._crowd, self._caller, self._calls = crowd, caller, calls
        self.cpu_us: list[float] = []

    async def __call__(self) -> Ms:
        """Milliseconds of the round over the number of its calls: what a call takes of the server's time."""
        whole = self._calls * len(self._crowd.sessions)
        before = (await anyio.to_thread.run_sync(self._caller.counted))["cpu_ns"]
        began = time.perf_counter_ns()
        await self._crowd.each(self._some)
        wall_ms = (time.perf_counter_ns() - began) / 1e6
        after = (await anyio.to_thread.run_sync(self._caller.counted))["cpu_ns"]
        self.cpu_us.append((after - before) / 1e3 / whole)
        return Ms(wall_ms / whole)

    def _some(self, session: RawSession) -> None:
        for number in range(self._calls):
            session.call("add", a=number, b=1).text()


async def run(bench: Bench) -> Outcome:
    """Each number of clients; then what becomes of sessions."""
    counts = bench.size([ALONE, 8, 32], [ALONE, 10, 50, 200])
    found = []
    async with bench.server(COUNTING, transport="json", connect=False) as server:
        with RawSession(server.url) as control:
            await anyio.to_thread.run_sync(control.open)
            caller = Caller(through(control))
            for count in counts:
                bench.step(f"{count} clients")
                with ThreadPoolExecutor(count) as pool, ExitStack() as stack:
                    found.append(await _at_once(bench, server, caller, pool, stack, count))
                _rows(bench, server, found[-1])
            bench.step("what a session holds")
            await _memory(bench, server, caller, bench.size(100, 1000))
            kept = await anyio.to_thread.run_sync(_left_and_ended, server.url)
    _width_claim(bench, server, found)
    _cost_claim(bench, server, found[-1])
    _kept_claim(bench, kept)
    return bench.outcome()


async def _at_once(
    bench: Bench, server: ProfiledServer, caller: Caller, pool: ThreadPoolExecutor, stack: ExitStack, count: int
) -> Found:
    own = Crowd([stack.enter_context(RawSession(server.url or "")) for _ in range(count)], pool)
    apart = [RawSession(server.url or "", first_id=IDS_EACH * (at + 1)) for at in range(count)]
    shared = Crowd([stack.enter_context(session) for session in apart], pool)
    await own.each(RawSession.open)
    for session in shared.sessions:
        session.session_id = own.sessions[0].session_id
    with server.phase(f"{count} meet"):
        met = await own.each(lambda session: session.call("meet", name=f"{count}", count=count).text())
    calls = max(2, bench.size(40, 400) // count)
    rounds = {EACH: Round(own, caller, calls), ONE: Round(shared, caller, calls)}
    turns = bench.size(3, 8)
    taken = await bench.interleaved(rounds, turns, twin=EACH)
    for label, one in rounds.items():
        with server.phase(f"{count} clients, {label}"):
            await one()
    await own.each(RawSession.end)
    inside = min(int(str(each)) for each in met)
    return Found(
        count,
        inside,
        taken,
        {label: describe(one.cpu_us[-turns:], contended=taken.stats[label].contended) for label, one in rounds.items()},
    )


def _rows(bench: Bench, server: ProfiledServer, found: Found) -> None:
    table = Table(bench, TABLE, x=found.count)
    for label, stats in found.taken.stats.items():
        name = f"{found.count} at once, {label}"
        own = table.sub(series=label, why=server.later(f"{found.count} clients, {label}", "add"))
        own.put(name, "ms", stats, metric="time a call", floor=found.taken.floor)
        cpu = found.cpu_us[label]
        counted = own.sub(contended=stats.contended, note=CPU_NOTE, metric="CPU of a call")
        counted.put(f"{name}: server's CPU", "µs", cpu)


async def _memory(bench: Bench, server: ProfiledServer, caller: Caller, count: int) -> None:
    """Sessions that are opened and kept, so many; the kernel's count is not of them alone, so there are many."""

    def opened() -> float | None:
        before = caller.counted()["resident_bytes"]
        sessions = [RawSession(server.url or "") for _ in range(count)]
        for session in sessions:
            session.open()
            session.close()
        after = caller.counted()["resident_bytes"]
        for session in sessions:
            session.end()
            session.close()
        return None if before is None else (after - before) / count

    held = await anyio.to_thread.run_sync(opened)
    note = f"of {count} that were opened and kept; of the process, as the kernel counts"
    if held is None:
        note = "this system does not say how much memory a process has"
    Table(bench, TABLE).put("what a session holds", "KB", None if held is None else held / 1e3, note=note)


def _left_and_ended(url: str) -> tuple[int, int]:
    """Statuses of a call in a session whose client has gone, and in one that its client had ended."""
    statuses = []
    for ends in (False, True):
        with RawSession(url) as gone:
            gone.open()
            if ends:
                gone.end()
        with RawSession(url) as back:
            back.session_id = gone.session_id
            statuses.append(back.call("add", a=1, b=2).status)
    return statuses[0], statuses[1]


def _width_claim(bench: Bench, server: ProfiledServer, found: Sequence[Found]) -> None:
    seen = [most_in_flight(server.seen(f"{each.count} meet").only("meet").requests) for each in found]
    truth = [each.inside for each in found]
    exactly(
        bench,
        "now-11",
        "a server handles as many calls at once as it has clients, and the probe counts them so",
        said=f"{' / '.join(map(str, truth))} inside at once by the server's own count, "
        f"{' / '.join(map(str, seen))} by the probe",
        how=f"{' / '.join(str(each.count) for each in found)}; none of them leaves before the last has come",
        fine=seen == truth == [each.count for each in found],
        why=server.why(f"{found[-1].count} meet"),
    )


def _cost_claim(bench: Bench, server: ProfiledServer, most: Found) -> None:
    each, one = most.cpu_us[EACH], most.cpu_us[ONE]
    ratio = ratio_of(each, one)
    judged(
        bench,
        "now-12",
        "a call costs the same in many sessions as in one",
        Asked("same"),
        ratio,
        said=f"{each.median:.0f} µs of the server's CPU in {most.count} sessions, {one.median:.0f} µs in one: "
        f"{ratio.value:.2f}×",
        how="the server's CPU time of a call, in many sessions over in one",
        why=f"In many: {server.why(f'{most.count} clients, {EACH}')} "
        f"In one: {server.why(f'{most.count} clients, {ONE}')}",
    )


def _kept_claim(bench: Bench, statuses: tuple[int, int]) -> None:
    gone, ended = statuses
    exactly(
        bench,
        "now-13",
        "a client that goes without ending its session leaves it with the server",
        said=f"status {gone} for a call in a session whose client had gone, {ended} in one that it had ended",
        how="200 and 404",
        fine=(gone, ended) == (200, 404),
        why="A session lives until its client ends it, or for half an hour without a request (the SDK's default).",
    )
