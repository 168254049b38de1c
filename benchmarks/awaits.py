"""What naming awaits costs: the same probe with ``awaits=False``, off again, and on, interleaved in one process.

Client and server share a process, over memory streams. Each burst attaches anew, since the switch is one of attaching.
A figure is the median of the differences within one cycle with its 95 % interval; every generation is a process of its
own. ``loop`` is the CPU time of the loop's thread, ``process`` that of all threads, with the records of its calls.

``--quick`` takes half a minute. Run it on a quiet machine: ``chrt -r 5 python benchmarks/awaits.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyio
from mcp.client.session import ClientSession
from mcp.server import MCPServer
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.shared.memory import create_client_server_memory_streams

import mcp_probe
from benchmarks.blocks import Estimate, estimate
from benchmarks.machine import describe_machine
from mcp_probe.workloads.bench.statistics import turn_order

VARIANTS = ("bare", "off", "off again", "on")
CALLS, WARM_UP = 300, 60
TAKEN = 100
"""Locks that a call of the tools ``free`` and ``waited`` takes."""

gate = asyncio.Lock()  # of the burst: one that somebody waited for belongs to its loop

Row = dict[str, float]


async def nothing() -> str:
    return "done"


async def one_free_lock() -> str:
    async with gate:
        return "done"


async def free() -> str:
    for _ in range(TAKEN):
        async with gate:
            pass
    return "done"


async def waited() -> str:
    """Two tasks that take turns: each acquire waits for the other's release."""

    async def turns() -> None:
        for _ in range(TAKEN // 2):
            async with gate:
                await asyncio.sleep(0)

    await asyncio.gather(turns(), turns())
    return "done"


TOOLS: dict[str, tuple[Callable[[], Awaitable[str]], str, int]] = {
    "nothing": (nothing, "a tool that does nothing", 1),
    "one_free_lock": (one_free_lock, "a tool that takes a free lock", 1),
    "free": (free, "each of 100 free locks", TAKEN),
    "waited": (waited, "each of 100 locks that another task holds", TAKEN),
}


async def burst(variant: str, tool: str, calls: int) -> Row:
    """Microseconds for each call."""
    global gate
    server = MCPServer("bench", log_level="WARNING")
    server._lowlevel_server.middleware[:] = [
        one for one in server._lowlevel_server.middleware if not isinstance(one, OpenTelemetryMiddleware)
    ]
    server.tool()(TOOLS[tool][0])
    probe = None if variant == "bare" else mcp_probe.attach(server, telemetry="off", awaits=variant == "on")
    lowlevel = server._lowlevel_server
    gate = asyncio.Lock()
    taken = []
    async with create_client_server_memory_streams() as (near, far), anyio.create_task_group() as group:
        group.start_soon(lambda: lowlevel.run(far[0], far[1], lowlevel.create_initialization_options()))
        async with ClientSession(near[0], near[1]) as client:
            await client.initialize()
            for _ in range(WARM_UP):
                assert not (await client.call_tool(tool, {})).is_error
            if probe is not None:
                probe.snapshot()
            loop_ns, process_ns = time.thread_time_ns(), time.process_time_ns()
            for _ in range(calls):
                began = time.perf_counter_ns()
                await client.call_tool(tool, {})
                taken.append(time.perf_counter_ns() - began)
            loop_ns = time.thread_time_ns() - loop_ns
            if probe is not None:
                await asyncio.to_thread(probe.snapshot)
            process_ns = time.process_time_ns() - process_ns
        group.cancel_scope.cancel()
    if probe is not None:
        probe.detach()
    return {
        "p50": statistics.median(taken) / 1e3,
        "loop": loop_ns / calls / 1e3,
        "process": process_ns / calls / 1e3,
    }


def generation(cycles: int, calls: int) -> list[dict[str, dict[str, Row]]]:
    """(tool -> variant -> figures) of each cycle."""
    found = []
    for cycle in range(cycles):
        order = turn_order(VARIANTS, cycle)
        found.append({tool: {one: asyncio.run(burst(one, tool, calls)) for one in order} for tool in TOOLS})
    return found


def differences(found: list[list[dict[str, dict[str, Row]]]], tool: str, of: str, figure: str) -> Estimate:
    """``of`` minus what it is held against: the mean of both ``off``; for ``off again`` the first (A/A)."""

    def difference(rows: dict[str, Row]) -> float:
        if of == "off again":
            return rows["off again"][figure] - rows["off"][figure]
        off = (rows["off"][figure] + rows["off again"][figure]) / 2
        return rows["on"][figure] - off if of == "on" else off - rows["bare"][figure]

    return estimate([[difference(cycle[tool]) / TOOLS[tool][2] for cycle in one] for one in found])


def text_of(found: list[list[dict[str, dict[str, Row]]]]) -> str:
    """For a terminal, and for the page."""
    lines = [
        "| microseconds | figure | bare | probe without awaits adds | off again (the floor) | awaits add |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for tool, (_, title, parts) in TOOLS.items():
        for figure in ("p50", "loop", "process"):
            bare = statistics.median(cycle[tool]["bare"][figure] for one in found for cycle in one) / parts
            cells = [written(differences(found, tool, of, figure)) for of in ("off", "off again", "on")]
            lines.append(f"| {title} | {figure} | {bare:,.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def written(one: Estimate) -> str:
    return f"{one.us:+.2f} ({one.low:+.2f} … {one.high:+.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--generation", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    generations, cycles, calls = (2, 4, 100) if options.quick else (5, 8, CALLS)
    if options.generation:
        print(json.dumps(generation(cycles, calls)))
        return
    command: list[Any] = [sys.executable, __file__, "--generation", *(["--quick"] if options.quick else [])]
    found = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(generations)
    ]
    machine = describe_machine()
    print(f"CPython {machine['python']}, {machine['cpu']}, {machine['cores']} cores, {machine['commit']}\n")
    print(text_of(found))


if __name__ == "__main__":
    main()
