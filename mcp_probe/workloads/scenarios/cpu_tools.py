"""``cpu-tools``: tools that compute, on the event loop and in threads: 003's CPU section as an MCP server has it."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from mcp_probe.aggregate.explain import explain
from mcp_probe.workloads.bench.context import Bench, Ms, Timed
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome, Stats
from mcp_probe.workloads.bench.statistics import ratio_of
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.arms import Arm, put_arm, take_turns
from mcp_probe.workloads.scenarios.documents.doc003 import CLAIMS
from mcp_probe.workloads.scenarios.tables import Table, burst, through_session

MODULE = "mcp_probe.workloads.servers.cpu_tools"
TABLE = "003 conditions"
KINDS: Mapping[str, str] = {"on_the_loop": "async tool", "in_a_thread": "tool in a thread"}
COUNTS = (1, 4, 8)
CPU_MS = 5.0
LONG_MS = 60.0
"""Of the computation that a quick call comes behind: long beside anything the transport does."""


async def run(bench: Bench) -> Outcome:
    """N computing calls at once, and a quick call behind one that computes."""
    rounds = bench.size(4, 11)
    together: dict[str, Arm] = {}
    quick: dict[str, Stats] = {}
    async with bench.server(MODULE) as server:
        one = through_session(server.session)
        await server.session.pipelined([Call(tool, {"cpu_ms": 1}) for tool in KINDS])
        for count in COUNTS:
            bench.step(f"{count} computing calls at once")
            ways = {f"{tool} {count}": burst(one, [Call(tool, {"cpu_ms": CPU_MS})] * count) for tool in KINDS}
            together |= await take_turns(bench, ways, rounds, server, twin=f"on_the_loop {count}")
            note = f"{count * CPU_MS:g} ms of computation in one process"
            table = Table(bench, TABLE, metric="CPU tools", x=count, note=note)
            for tool, kind in KINDS.items():
                label = f"{kind}: {count} of {CPU_MS:g} ms at once"
                put_arm(table, label, together[f"{tool} {count}"], series=kind, little=None)
        note = "sent 20 ms after the other; where the loop is held it lies in the pipe, unread"
        table = Table(bench, TABLE, metric="quick call", note=note)
        for tool, kind in KINDS.items():
            bench.step(f"a quick call behind {kind}")
            phase = f"quick behind {tool}"
            with server.phase(phase):
                quick[tool] = await bench.timed(_quick_behind(server, tool), rounds)
            why = server.later(phase, "quick")
            table.put(f"quick call behind {LONG_MS:g} ms: {kind}", "ms", quick[tool], series=kind, x=kind, why=why)
    _claims(bench, together, quick, server)
    return bench.outcome()


def _quick_behind(server: ProfiledServer, tool: str) -> Timed:
    """The quick call is sent when the server has begun to compute, or 20 ms later than its order at the latest."""

    async def behind() -> Ms:
        answers = []

        async def quick() -> None:
            await anyio.sleep(0.02)
            answers.append(await server.session.call("quick"))

        async with anyio.create_task_group() as group:
            group.start_soon(quick)
            await server.session.call(tool, cpu_ms=LONG_MS)
        return Ms(answers[0].total_ms)

    return behind


def _claims(bench: Bench, together: Mapping[str, Arm], quick: Mapping[str, Stats], server: ProfiledServer) -> None:
    grows = {
        kind: together[f"{tool} 8"].stats.median - together[f"{tool} 1"].stats.median for tool, kind in KINDS.items()
    }
    bench.claim(
        CLAIMS["003-tools"],
        ratio_of(together["in_a_thread 8"].stats, together["on_the_loop 8"].stats),
        said=", ".join(f"{kind}: {ms:.0f} ms more for 8 calls than for 1" for kind, ms in grows.items())
        + f", of {7 * CPU_MS:g} ms of computation",
        why=server.why("in_a_thread 8"),
    )
    held, free = quick["on_the_loop"], quick["in_a_thread"]
    bench.claim(
        CLAIMS["003-tools-quick"],
        ratio_of(held, free),
        said=f"{held.median:.0f} ms behind the async tool, {free.median:.0f} ms behind the one in a thread",
        why=explain(server.seen("quick behind on_the_loop"), "quick"),
    )
