"""What one option of the probe costs: the same probe with it off, off again, and on, interleaved in one process.

Client and server share a process, over memory streams. Each burst attaches anew, since an option is one of attaching.
A figure is the median of the differences within one cycle with its 95 % interval; every generation is a process of its
own. ``loop`` is the CPU time of the loop's thread, ``others`` that of all other threads, which make the records of its
calls, and ``process`` both together.

``--quick`` takes half a minute. Run it on a quiet machine: ``chrt -r 5 python benchmarks/awaits.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.server import MCPServer

import mcp_probe
from benchmarks.blocks import Estimate, estimate
from benchmarks.machine import describe_machine
from benchmarks.subjects import client_of, without_spans
from mcp_probe.workloads.bench.statistics import turn_order

VARIANTS = ("bare", "off", "off again", "on")
FIGURES = ("p50", "loop", "others", "process")
CALLS, WARM_UP = 300, 60

Row = dict[str, float]
Cycle = dict[str, dict[str, Row]]
"""Tool -> variant -> figures."""


@dataclass(frozen=True)
class Tool:
    """What is called. ``parts``: of a call, where the figure is of one of them."""

    function: Callable[..., Any]
    title: str
    parts: int = 1


@dataclass(frozen=True)
class Switch:
    """What is switched. ``prepare`` is called on the loop of each burst before it begins."""

    name: str
    script: str  # the program that runs this, for processes of its own
    off: Mapping[str, Any]
    on: Mapping[str, Any]
    tools: Mapping[str, Tool]
    prepare: Callable[[], None] = field(default=lambda: None)

    async def burst(self, variant: str, tool: str, calls: int) -> Row:
        """Microseconds for each call."""
        server = MCPServer("bench", log_level="WARNING")
        without_spans(server._lowlevel_server)
        server.tool(tool)(self.tools[tool].function)
        options = self.on if variant == "on" else self.off
        probe = None if variant == "bare" else mcp_probe.attach(server, telemetry="off", **options)
        self.prepare()
        taken = []
        async with client_of(server) as client:
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
        if probe is not None:
            probe.detach()
        return {
            "p50": statistics.median(taken) / 1e3,
            "loop": loop_ns / calls / 1e3,
            "others": (process_ns - loop_ns) / calls / 1e3,
            "process": process_ns / calls / 1e3,
        }

    def generation(self, cycles: int, calls: int) -> list[Cycle]:
        """The figures of each cycle."""
        found = []
        for cycle in range(cycles):
            order = turn_order(VARIANTS, cycle)
            found.append(
                {tool: {one: asyncio.run(self.burst(one, tool, calls)) for one in order} for tool in self.tools}
            )
        return found

    def differences(self, found: list[list[Cycle]], tool: str, of: str, figure: str) -> Estimate:
        """``of`` minus what it is held against: the mean of both ``off``; for ``off again`` the first (A/A)."""

        def difference(rows: dict[str, Row]) -> float:
            if of == "off again":
                return rows["off again"][figure] - rows["off"][figure]
            off = (rows["off"][figure] + rows["off again"][figure]) / 2
            return rows["on"][figure] - off if of == "on" else off - rows["bare"][figure]

        parts = self.tools[tool].parts
        return estimate([[difference(cycle[tool]) / parts for cycle in one] for one in found])

    def text_of(self, found: list[list[Cycle]]) -> str:
        """For a terminal, and for the page."""
        lines = [
            f"| microseconds | figure | bare | probe without {self.name} adds | off again (the floor) "
            f"| {self.name} adds |",
            "| --- | --- | ---: | ---: | ---: | ---: |",
        ]
        for name, tool in self.tools.items():
            for figure in FIGURES:
                bare = statistics.median(cycle[name]["bare"][figure] for one in found for cycle in one) / tool.parts
                cells = [self.differences(found, name, of, figure).text(2) for of in ("off", "off again", "on")]
                lines.append(f"| {tool.title} | {figure} | {bare:,.2f} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def main(self, description: str | None) -> None:
        """The command line."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--quick", action="store_true")
        parser.add_argument("--generation", action="store_true", help=argparse.SUPPRESS)
        options = parser.parse_args()
        generations, cycles, calls = (2, 4, 100) if options.quick else (5, 8, CALLS)
        if options.generation:
            print(json.dumps(self.generation(cycles, calls)))
            return
        command = [sys.executable, self.script, "--generation", *(["--quick"] if options.quick else [])]
        load = os.getloadavg()[0]
        found = [
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(generations)
        ]
        machine = describe_machine()
        loads = f"load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end"
        print(
            f"CPython {machine['python']}, {machine['cpu']}, {machine['cores']} cores, {machine['commit']}; {loads}\n"
        )
        print(self.text_of(found))
