"""Document 000's conclusion, tried: the same CPU-bound handler as a tool of a real stdio server.

The document measured no transport. Here client and server are two processes, so calls that are sent without waiting
overlap with the client's own work; and what piles up is finished answers at the one writer, not handlers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import median
from typing import Any

from mcp_probe.aggregate.explain import Seen, explain, what_grew
from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench, Ms
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Measured, Outcome, Stats
from mcp_probe.workloads.bench.statistics import quickest
from mcp_probe.workloads.client import Call, LoadSession
from mcp_probe.workloads.models.dispatch import LIMIT
from mcp_probe.workloads.scenarios.documents.doc000 import CLAIMS
from mcp_probe.workloads.scenarios.readings import most_in_flight, most_outstanding
from mcp_probe.workloads.scenarios.tables import Burst, Table, burst, through_session

SERVER = "mcp_probe.workloads.servers.compute"
TOOLS = {"compute": "async tool", "compute_in_thread": "plain def tool"}
SHORT = {"compute": "async", "compute_in_thread": "def"}
WAYS = ("one by one", "pipelined", f"{LIMIT} at once")
SETTLING = 30
MANY = 3000
KIB, MIB = 1024.0, 1024.0**2


class PerCall:
    """A round that counts microseconds a call; Bench calls every unit of a round's own time milliseconds."""

    def __init__(self, burst: Burst, calls: int) -> None:
        self.burst = burst
        self._calls = calls
        self.us: list[float] = []

    async def __call__(self) -> Ms:
        """One round."""
        self.us.append(1e3 * await self.burst() / self._calls)
        return Ms(self.us[-1])


@dataclass(frozen=True, slots=True)
class Group:
    """One tool, so many calls: the ways by turns."""

    tool: str
    count: int
    turns: dict[str, PerCall]
    stats: dict[str, Stats]
    floor: float | None

    @property
    def gain(self) -> float:
        """Throughput of pipelined calls over that of calls one by one, quickest rounds."""
        return min(self.turns["one by one"].us) / min(self.turns["pipelined"].us)

    @property
    def against_pipelined(self) -> Measured:
        """Throughput one by one over pipelined, quickest rounds."""
        pipelined, single = self.turns["pipelined"].us, self.turns["one by one"].us
        return quickest(pipelined, single, floor=self.floor, contended=self.stats["pipelined"].contended)

    def label(self, way: str) -> str:
        """What its rows are called."""
        return f"{self.count:,} × {SHORT[self.tool]}, {way}"

    def phase(self, way: str) -> str:
        """The label of its readings."""
        return f"{self.tool} {self.count} {way}"


async def run(bench: Bench) -> Outcome:
    """Times and readings under the probe; then memory, in servers that nobody times."""
    groups: list[Group] = []
    async with bench.server(SERVER) as server:
        for tool, count, rounds in _plan(bench):
            bench.step(f"{count} calls of a {TOOLS[tool]}")
            group = await _measure(bench, server.session, tool, count, rounds)
            groups.append(group)
            for way, turn in group.turns.items():
                server.mark(group.phase(way), turn.burst.last_ns)
            _rows(bench, server, group)
    seen = {group.phase(way): server.seen(group.phase(way)) for group in groups for way in WAYS}
    for group in groups:
        for way in WAYS:
            _stage_rows(bench, group, way, seen[group.phase(way)])
    await _memory(bench)
    _check(bench, groups, seen)
    return bench.outcome()


def _plan(bench: Bench) -> list[tuple[str, int, int]]:
    """Tool, calls of a round, rounds."""
    if bench.quick:
        return [("compute", 300, 2), ("compute_in_thread", 150, 2)]
    return [("compute", 1000, 4), ("compute", 3000, 2), ("compute_in_thread", 1000, 2)]


async def _measure(bench: Bench, session: LoadSession, tool: str, count: int, rounds: int) -> Group:
    calls = [Call(tool, {"item": item}) for item in range(count)]
    one = through_session(session)
    turns = {
        "one by one": PerCall(burst(one, calls, one_by_one=True), count),
        "pipelined": PerCall(burst(one, calls), count),
        WAYS[2]: PerCall(burst(one, calls, in_flight=LIMIT), count),
    }
    found = await bench.interleaved(turns, rounds, twin="pipelined")
    return Group(tool, count, turns, found.stats, found.floor)


def _rows(bench: Bench, server: ProfiledServer, group: Group) -> None:
    name = TOOLS[group.tool]
    note = f"CPU-bound {name}, one session, wall time of a call"
    table = Table(bench, "000 on stdio", x=group.count, note=note, floor=group.floor)
    for way, turn in group.turns.items():
        little, why = turn.burst.little(), server.later(group.phase(way))
        table.put(group.label(way), "µs", group.stats[way], series=f"{name}, {way}", little=little, why=why)
    table.put(
        f"{group.count:,} × {SHORT[group.tool]}, gain of pipelining",
        "×",
        group.gain,
        metric="ratio",
        series=name,
        contended=group.stats["pipelined"].contended,
        why=server.grown(group.phase("one by one"), group.phase("pipelined")),
        note="throughput of pipelined over one by one, quickest rounds",
    )


def _stage_rows(bench: Bench, group: Group, way: str, seen: Seen) -> None:
    """Where the time of a call went, medians of the last round."""
    label = group.label(way)
    table = Table(bench, "000 conditions", metric="stage", x=group.count, note="median of the last round")
    requests = [request for request in seen.requests if request.method == "tools/call"]
    for stage, values in (
        ("queue", [_between(request.arrival_ns, request.first_step_ns) for request in requests]),
        ("handling", [_between(request.first_step_ns, request.result_ns) for request in requests]),
        ("writer wait", [request.budget.write_wait for request in requests]),
    ):
        known = [value / 1e6 for value in values if value is not None]
        table.put(f"{label}: {stage}", "ms", median(known) if known else None, series=stage)
    counts = Table(bench, "000 conditions", metric="in flight", x=group.count, note="at most, in the last round")
    counts.put(f"{label}: handlers at once", "", float(most_in_flight(requests)), series="handlers")
    counts.put(f"{label}: outstanding", "", float(most_outstanding(requests)), series="outstanding")


def _between(since_ns: int | None, until_ns: int | None) -> int | None:
    return None if since_ns is None or until_ns is None else until_ns - since_ns


# --- memory ---


async def _memory(bench: Bench) -> None:
    """Traced in one server, resident in another; both without the probe, whose records would count."""
    table = Table(bench, "000 conditions", metric="memory on stdio")
    for count in bench.size(quick=(300,), full=(1000, 3000)):
        calls = [Call("compute", {"item": item}) for item in range(count)]
        bench.step(f"memory of {count} calls")
        async with bench.server(SERVER, probe=False) as server:
            one = through_session(server.session)
            ways = {
                "one by one": burst(one, calls, one_by_one=True),
                "pipelined": burst(one, calls),
                WAYS[2]: burst(one, calls, in_flight=LIMIT),
            }
            for way, round_of in ways.items():
                if count >= MANY and way != "pipelined":
                    continue  # what does not grow with the calls is known from fewer
                await burst(one, calls[:SETTLING], one_by_one=True)()
                base = (await _ask(server.session, "trace_memory"))["base_bytes"]
                await round_of()
                peak = (await _ask(server.session, "traced_memory"))["peak_bytes"] - base
                table.put(
                    f"{count:,} calls, {way}: peak over base",
                    "KiB",
                    peak / KIB,
                    series=way,
                    x=count,
                    note="tracemalloc in the server, in a round that is not timed",
                )
                if way == "pipelined":
                    table.put(
                        f"{count:,} calls, pipelined: of each",
                        "KiB",
                        peak / count / KIB,
                        x=count,
                        metric="memory of a call on stdio",
                    )
        if count < MANY:
            continue  # it fits into what the process had before
        async with bench.server(SERVER, probe=False) as server:
            before = (await _ask(server.session, "resident_memory"))["peak_bytes"]
            await burst(through_session(server.session), calls)()
            grown = (await _ask(server.session, "resident_memory"))["peak_bytes"] - before
            table.put(
                f"{count:,} calls, pipelined: growth of the peak in RAM",
                "MB",
                grown / MIB,
                x=count,
                metric="RAM",
                note="nothing traced",
            )


async def _ask(session: LoadSession, tool: str) -> dict[str, Any]:
    answer = await session.call(tool)
    if answer.error is not None:
        raise LaunchError(f"{tool} failed: {answer.error}")
    said: dict[str, Any] = json.loads(answer.text)
    return said


# --- the claim ---


def _check(bench: Bench, groups: list[Group], seen: dict[str, Seen]) -> None:
    on_loop = [group for group in groups if group.tool == "compute"]
    pipelined = seen[max(on_loop, key=lambda group: group.count).phase("pipelined")]
    single = seen[max(on_loop, key=lambda group: group.count).phase("one by one")]
    bench.claim(
        CLAIMS["000-7"],
        [group.against_pipelined for group in on_loop],
        said="; ".join(f"pipelined {group.gain:.2f}× the throughput, {group.count:,} calls" for group in on_loop),
        why=f"{explain(pipelined)} {what_grew(single, pipelined)}",
    )
