"""Document 001, scenario S6: three dependent steps, each of which may make its calls at once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import fmean

from mcp_probe.workloads.bench.context import Bench, Ms
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.bench.statistics import halves_floor
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.arms import Arm, put_arm, take_turns
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.tables import Burst, One, Table, burst, through_session

SERVER = "mcp_probe.workloads.servers.delays"
STEPS = ("fetch", "search", "write")
WAYS = (("parallel", False), ("one by one", True))


class Workflow:
    """The steps, one after another."""

    def __init__(self, one: One, scale: float, *, one_by_one: bool) -> None:
        self.steps: list[Burst] = []
        for count, delay_ms, size in doc.STAGES:
            call = Call("wait", {"delay_ms": scale * delay_ms, "payload_bytes": size})
            self.steps.append(burst(one, [call] * count, one_by_one=one_by_one))
        self.wall_ms: list[float] = []

    @property
    def last_ns(self) -> tuple[int, int]:
        """From the first step's beginning to the last one's end."""
        return self.steps[0].last_ns[0], self.steps[-1].last_ns[1]

    async def __call__(self) -> Ms:
        """One round."""
        began = time.perf_counter_ns()
        for step in self.steps:
            await step()
        self.wall_ms.append((time.perf_counter_ns() - began) / 1e6)
        return Ms(self.wall_ms[-1])

    def little(self, excused: str = "") -> None:
        """Each step has its own."""


async def run(bench: Bench) -> Outcome:
    """Both ways by turns; the critical path is the slowest call of each step."""
    scale = bench.size(quick=0.25, full=1.0)
    async with bench.server(SERVER) as server:
        one = through_session(server.session)
        flows = {name: Workflow(one, scale, one_by_one=serial) for name, serial in WAYS}
        bench.step("three dependent steps")
        arms = await take_turns(bench, flows, bench.size(quick=3, full=8), server, twin="parallel")
        _rows(bench, flows, arms, scale)
    critical_ms = scale * sum(delay_ms for _, delay_ms, _ in doc.STAGES)
    parallel, serial = arms["parallel"], arms["one by one"]
    path, gain = parallel.quickest_over(critical_ms), serial.quickest_over(parallel)
    bench.claim(
        doc.CLAIMS["001-9"],
        path,
        said=f"{serial.quickest_ms:.0f} and {parallel.quickest_ms:.0f} ms: {gain.value:.2f}×; "
        f"the critical path of {critical_ms:g} ms took {path.value:.2f} times its sleep",
        why=server.why("parallel"),
    )
    return bench.outcome()


def _rows(bench: Bench, flows: Mapping[str, Workflow], arms: Mapping[str, Arm], scale: float) -> None:
    said = " → ".join(f"{count} × {delay_ms:g} ms" for count, delay_ms, _ in doc.STAGES)
    said += "" if scale == 1 else f", at {scale:g} of it"
    table = Table(bench, "001 S6", note=f"{said}; the document names the scenario and prints no figure of it")
    for name, flow in flows.items():
        put_arm(table, f"workflow, {name}", arms[name], series=name, x="all steps")
        for step, calls in zip(STEPS, flow.steps, strict=True):
            mean, floor = fmean(calls.wall_ms), halves_floor(calls.wall_ms)
            own = table.sub(series=name, x=step, floor=floor, note="mean of all rounds")
            own.put(f"{step}, {name}", "ms", mean, little=calls.little())
    parallel = arms["parallel"]
    ratio = arms["one by one"].quickest_over(parallel)
    table.put("ratio of the quickest rounds", "×", ratio, metric="ratio", floor=parallel.floor)
