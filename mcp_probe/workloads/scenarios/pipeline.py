"""Document 001, scenario S6: three dependent steps, each of which may make its calls at once."""

from __future__ import annotations

import time

from mcp_probe.workloads.bench.context import Bench, Interleaved, Ms
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.bench.statistics import halves_floor, quickest, scaled
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.documents import doc001 as doc
from mcp_probe.workloads.scenarios.tables import Burst, One, Table, burst, through_session

SERVER = "mcp_probe.workloads.servers.delays"
STEPS = ("fetch", "search", "write")
WAYS = (("parallel", False), ("one by one", True))


class Workflow:
    """The steps, one after another; ``wall_ms`` has every round."""

    def __init__(self, one: One, scale: float, *, one_by_one: bool) -> None:
        self.steps: list[Burst] = [
            burst(
                one,
                [Call("wait", {"delay_ms": scale * delay_ms, "payload_bytes": size})] * count,
                one_by_one=one_by_one,
            )
            for count, delay_ms, size in doc.STAGES
        ]
        self.wall_ms: list[float] = []

    async def __call__(self) -> Ms:
        """One round."""
        began = time.perf_counter_ns()
        for step in self.steps:
            await step()
        wall_ms = (time.perf_counter_ns() - began) / 1e6
        self.wall_ms.append(wall_ms)
        return Ms(wall_ms)


async def run(bench: Bench) -> Outcome:
    """Both ways by turns; the critical path is the slowest call of each step."""
    scale = bench.size(quick=0.25, full=1.0)
    async with bench.server(SERVER) as server:
        one = through_session(server.session)
        flows = {name: Workflow(one, scale, one_by_one=serial) for name, serial in WAYS}
        bench.step("three dependent steps")
        found = await bench.interleaved(flows, bench.size(quick=3, full=8), twin="parallel")
        for name, flow in flows.items():
            server.mark(name, (flow.steps[0].last_ns[0], flow.steps[-1].last_ns[1]))
        _rows(bench, server, flows, found, scale)
    critical_ms = scale * sum(delay_ms for _, delay_ms, _ in doc.STAGES)
    walls = {name: flow.wall_ms for name, flow in flows.items()}
    contended = any(stats.contended for stats in found.stats.values())
    path = scaled(quickest(walls["parallel"], floor=found.floor, contended=contended), 1 / critical_ms)
    bench.claim(
        doc.CLAIMS["001-9"],
        path,
        said=f"{min(walls['one by one']):.0f} and {min(walls['parallel']):.0f} ms: {_ratio(flows):.2f}×; "
        f"the critical path of {critical_ms:g} ms took {path.value:.2f} times its sleep",
        why=server.why("parallel"),
    )
    return bench.outcome()


def _ratio(flows: dict[str, Workflow]) -> float:
    """Of the quickest rounds."""
    return min(flows["one by one"].wall_ms) / min(flows["parallel"].wall_ms)


def _rows(bench: Bench, server: ProfiledServer, flows: dict[str, Workflow], found: Interleaved, scale: float) -> None:
    said = " → ".join(f"{count} × {delay_ms:g} ms" for count, delay_ms, _ in doc.STAGES)
    said += "" if scale == 1 else f", at {scale:g} of it"
    note = f"{said}; the document names the scenario and prints no figure of it"
    table = Table(bench, "001 S6", note=note, floor=found.floor)
    for name, flow in flows.items():
        label, why = f"workflow, {name}", server.later(name)
        table.put(label, "ms", found.stats[name], series=name, x="all steps", why=why)
        for step, calls in zip(STEPS, flow.steps, strict=True):
            mean, little = sum(calls.wall_ms) / len(calls.wall_ms), calls.little()
            own = table.sub(floor=halves_floor(calls.wall_ms), note="mean of all rounds")
            own.put(f"{step}, {name}", "ms", mean, series=name, x=step, little=little)
    contended = any(stats.contended for stats in found.stats.values())
    table.put("ratio of the quickest rounds", "×", _ratio(flows), metric="ratio", contended=contended)
