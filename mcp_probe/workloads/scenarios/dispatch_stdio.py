"""Document 000's conclusion, tried: the same CPU-bound handler as a tool of a real stdio server.

The document measured no transport. Here client and server are two processes, so calls that are sent without waiting
overlap with the client's own work; and what piles up is finished answers at the one writer, not handlers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from mcp_probe.aggregate.explain import Seen, explain, what_grew
from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench, Ms
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.client import Call, LoadSession
from mcp_probe.workloads.models.dispatch import LIMIT
from mcp_probe.workloads.scenarios.arms import Arm, put_arm, take_turns
from mcp_probe.workloads.scenarios.documents.doc000 import CLAIMS
from mcp_probe.workloads.scenarios.readings import most_in_flight, most_outstanding
from mcp_probe.workloads.scenarios.tables import Burst, Table, burst, through_session

SERVER = "mcp_probe.workloads.servers.compute"
TOOLS = {"compute": "async tool", "compute_in_thread": "plain def tool"}
SHORT = {"compute": "async", "compute_in_thread": "def"}
WAYS: Mapping[str, dict[str, Any]] = {
    "one by one": {"one_by_one": True},
    "pipelined": {},
    f"{LIMIT} at once": {"in_flight": LIMIT},
}
SETTLING = 30
MANY = 3000
KIB, MIB = 1024.0, 1024.0**2


class PerCall(Burst):
    """A round that counts microseconds a call; Bench calls every unit of a round's own time milliseconds."""

    async def __call__(self) -> Ms:
        """One round."""
        return Ms(1e3 * await super().__call__() / len(self.last_ms))


@dataclass(frozen=True, slots=True)
class Group:
    """One tool, so many calls: the ways by turns."""

    tool: str
    count: int
    arms: dict[str, Arm]

    @property
    def gain(self) -> float:
        """Throughput of pipelined calls over that of calls one by one, quickest rounds."""
        return self.arm("one by one").quickest_ms / self.arm("pipelined").quickest_ms

    def arm(self, way: str) -> Arm:
        """What came of this way."""
        return self.arms[phase(self.tool, self.count, way)]

    def label(self, way: str) -> str:
        """What its rows are called."""
        return f"{self.count:,} × {SHORT[self.tool]}, {way}"


def phase(tool: str, count: int, way: str) -> str:
    """The label of its readings."""
    return f"{tool} {count} {way}"


async def run(bench: Bench) -> Outcome:
    """Times and readings under the probe; then memory, in servers that nobody times."""
    groups: list[Group] = []
    async with bench.server(SERVER) as server:
        for tool, count, rounds in _plan(bench):
            bench.step(f"{count} calls of a {TOOLS[tool]}")
            one = through_session(server.session)
            plan = [(one, Call(tool, {"item": item})) for item in range(count)]
            ways = {phase(tool, count, way): PerCall(plan, **how) for way, how in WAYS.items()}
            arms = await take_turns(bench, ways, rounds, server, twin=phase(tool, count, "pipelined"))
            groups.append(Group(tool, count, arms))
            _rows(bench, server, groups[-1])
    for group in groups:
        for way in WAYS:
            _stage_rows(bench, group, way, server.seen(phase(group.tool, group.count, way)))
    await _memory(bench)
    _check(bench, groups, server)
    return bench.outcome()


def _plan(bench: Bench) -> list[tuple[str, int, int]]:
    """Tool, calls of a round, rounds."""
    if bench.quick:
        return [("compute", 300, 2), ("compute_in_thread", 150, 2)]
    return [("compute", 1000, 4), ("compute", 3000, 2), ("compute_in_thread", 1000, 2)]


def _rows(bench: Bench, server: ProfiledServer, group: Group) -> None:
    name = TOOLS[group.tool]
    note = f"CPU-bound {name}, one session, wall time of a call"
    table = Table(bench, "000 on stdio", x=group.count, note=note)
    for way in WAYS:
        put_arm(table, group.label(way), group.arm(way), unit="µs", series=f"{name}, {way}")
    pipelined = group.arm("pipelined")
    contended, note = pipelined.stats.contended, "throughput of pipelined over one by one, quickest rounds"
    why = server.grown(*(phase(group.tool, group.count, way) for way in ("one by one", "pipelined")))
    ratio = table.sub(metric="ratio", floor=pipelined.floor, contended=contended, why=why, note=note)
    ratio.put(group.label("gain of pipelining"), "×", group.gain, series=name)


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
    for count in bench.size(quick=(300,), full=(1000, 3000)):
        calls = [Call("compute", {"item": item}) for item in range(count)]
        table = Table(bench, "000 conditions", x=count)
        bench.step(f"memory of {count} calls")
        async with bench.server(SERVER, probe=False) as server:
            one = through_session(server.session)
            for way, how in WAYS.items():
                if count >= MANY and way != "pipelined":
                    continue  # what does not grow with the calls is known from fewer
                await burst(one, calls[:SETTLING], one_by_one=True)()
                base = (await _ask(server.session, "trace_memory"))["base_bytes"]
                await burst(one, calls, **how)()
                peak = (await _ask(server.session, "traced_memory"))["peak_bytes"] - base
                traced = table.sub(series=way, note="tracemalloc in the server, in a round that is not timed")
                traced.put(f"{count:,} calls, {way}: peak over base", "KiB", peak / KIB, metric="memory on stdio")
                if way == "pipelined":
                    label, metric = f"{count:,} calls, pipelined: of each", "memory of a call on stdio"
                    table.put(label, "KiB", peak / count / KIB, metric=metric)
        if count < MANY:
            continue  # it fits into what the process had before
        async with bench.server(SERVER, probe=False) as server:
            before = (await _ask(server.session, "resident_memory"))["peak_bytes"]
            await burst(through_session(server.session), calls)()
            grown = (await _ask(server.session, "resident_memory"))["peak_bytes"] - before
            label = f"{count:,} calls, pipelined: growth of the peak in RAM"
            table.put(label, "MB", grown / MIB, metric="RAM", note="nothing traced")


async def _ask(session: LoadSession, tool: str) -> dict[str, Any]:
    answer = await session.call(tool)
    if answer.error is not None:
        raise LaunchError(f"{tool} failed: {answer.error}")
    said: dict[str, Any] = json.loads(answer.text)
    return said


# --- the claim ---


def _check(bench: Bench, groups: list[Group], server: ProfiledServer) -> None:
    on_loop = [group for group in groups if group.tool == "compute"]
    count = max(group.count for group in on_loop)
    single, pipelined = (server.seen(phase("compute", count, way)) for way in ("one by one", "pipelined"))
    bench.claim(
        CLAIMS["000-7"],
        [group.arm("pipelined").quickest_over(group.arm("one by one")) for group in on_loop],
        said="; ".join(f"pipelined {group.gain:.2f}× the throughput, {group.count:,} calls" for group in on_loop),
        why=f"{explain(pipelined)} {what_grew(single, pipelined)}",
    )
