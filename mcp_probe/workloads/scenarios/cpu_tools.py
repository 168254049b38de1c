"""``cpu-tools``: tools that compute, on the event loop and in threads: 003's CPU section as an MCP server has it."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from mcp_probe.aggregate.explain import explain
from mcp_probe.workloads.bench.context import Bench, Interleaved, Ms, Timed
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome, Stats
from mcp_probe.workloads.bench.statistics import ratio_of
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.documents.doc003 import CLAIMS

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
    together: dict[tuple[str, int], Stats] = {}
    quick: dict[str, Stats] = {}
    async with bench.server(MODULE) as server:
        await server.session.pipelined([Call(tool, {"cpu_ms": 1}) for tool in KINDS])
        for count in COUNTS:
            bench.step(f"{count} computing calls at once")
            with server.phase(f"{count} at once"):
                ways = {tool: _burst(server, tool, count) for tool in KINDS}
                found = await bench.interleaved(ways, rounds, twin="on_the_loop")
            for tool in KINDS:
                together[tool, count] = found.stats[tool]
                _together_row(bench, server, tool, count, found)
        for tool in KINDS:
            bench.step(f"a quick call behind {KINDS[tool]}")
            with server.phase(f"quick behind {tool}"):
                quick[tool] = await bench.timed(_quick_behind(server, tool), rounds)
            _quick_row(bench, server, tool, quick[tool])
    _claims(bench, together, quick, server)
    return bench.outcome()


def _burst(server: ProfiledServer, tool: str, count: int) -> Timed:
    async def burst() -> None:
        await server.session.pipelined([Call(tool, {"cpu_ms": CPU_MS})] * count)

    return burst


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


def _together_row(bench: Bench, server: ProfiledServer, tool: str, count: int, found: Interleaved) -> None:
    bench.row(
        TABLE,
        f"{KINDS[tool]}: {count} of {CPU_MS:g} ms at once",
        "ms",
        found.stats[tool],
        metric="CPU tools",
        series=KINDS[tool],
        x=count,
        floor=found.floor,
        why=server.later(f"{count} at once", tool),
        note=f"{count * CPU_MS:g} ms of computation in one process",
    )


def _quick_row(bench: Bench, server: ProfiledServer, tool: str, stats: Stats) -> None:
    bench.row(
        TABLE,
        f"quick call behind {LONG_MS:g} ms: {KINDS[tool]}",
        "ms",
        stats,
        metric="quick call",
        series=KINDS[tool],
        x=KINDS[tool],
        why=server.later(f"quick behind {tool}", "quick"),
        note="sent 20 ms after the other; where the loop is held it lies in the pipe, unread",
    )


def _claims(
    bench: Bench, together: Mapping[tuple[str, int], Stats], quick: Mapping[str, Stats], server: ProfiledServer
) -> None:
    grows = {tool: together[tool, 8].median - together[tool, 1].median for tool in KINDS}
    bench.claim(
        CLAIMS["003-tools"],
        ratio_of(together["in_a_thread", 8], together["on_the_loop", 8]),
        said=", ".join(f"{KINDS[tool]}: {ms:.0f} ms more for 8 calls than for 1" for tool, ms in grows.items())
        + f", of {7 * CPU_MS:g} ms of computation",
        why=explain(server.seen("8 at once"), "in_a_thread"),
    )
    held, free = quick["on_the_loop"], quick["in_a_thread"]
    bench.claim(
        CLAIMS["003-tools-quick"],
        ratio_of(held, free),
        said=f"{held.median:.0f} ms behind the async tool, {free.median:.0f} ms behind the one in a thread",
        why=explain(server.seen("quick behind on_the_loop"), "quick"),
    )
