"""Calls to a server that counts its own CPU time: ``mcp_probe.workloads.servers.counting``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import anyio

from mcp_probe.workloads.bench.context import Bench, Interleaved, Ms
from mcp_probe.workloads.bench.shapes import Stats, Why
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.facade import ThreadedClient
from mcp_probe.workloads.raw_http import RawSession
from mcp_probe.workloads.scenarios.tables import Table

COUNTING = "mcp_probe.workloads.servers.counting"
CPU_NOTE = "of a call, as the server's process counts it"

Ask = Callable[[str, dict[str, Any]], str]
"""Calls a tool and waits: the text of its answer."""


class Caller:
    """Makes calls one after another, and keeps what CPU time the server says they took, turn by turn.

    ``counts`` asks the server what it counted; ``None``: as the calls themselves are made.
    """

    def __init__(self, ask: Ask, counts: Ask | None = None) -> None:
        self._ask = ask
        self._counts = counts or ask
        self.cpu_us: list[float] = []

    async def some(self, count: int) -> Ms:
        """Milliseconds of one of ``count`` calls."""
        return await anyio.to_thread.run_sync(self._some, count)

    def counted(self) -> dict[str, Any]:
        """What the server counted so far; blocks."""
        found: dict[str, Any] = json.loads(self._counts("counted", {}))
        return found

    def _some(self, count: int) -> Ms:
        before = self.counted()["cpu_ns"]
        began = time.perf_counter_ns()
        for number in range(count):
            self._ask("add", {"a": number, "b": 1})
        wall_ms = (time.perf_counter_ns() - began) / 1e6
        self.cpu_us.append((self.counted()["cpu_ns"] - before) / 1e3 / count)
        return Ms(wall_ms / count)


def through(session: RawSession) -> Ask:
    """Calls on this connection."""
    return lambda tool, arguments: session.call(tool, **arguments).text()


def over_stdio(client: ThreadedClient) -> Ask:
    """Calls of this client's server."""
    return lambda tool, arguments: str(client.call(tool, arguments)["content"][0]["text"])


async def in_turns(bench: Bench, callers: Mapping[str, Caller], calls: int, rounds: int) -> Interleaved:
    """Rounds in which each caller makes ``calls`` calls; the first has two turns, for the A/A floor."""

    def turn(caller: Caller) -> Callable[[], Any]:
        return lambda: caller.some(calls)

    twin = next(iter(callers))
    return await bench.interleaved({label: turn(one) for label, one in callers.items()}, rounds, twin=twin, warm_up=1)


def put_calls(
    table: Table, callers: Mapping[str, Caller], found: Interleaved, rounds: int, whys: Mapping[str, Why]
) -> dict[str, Stats]:
    """Two rows each: time, and the server's CPU time; gives the latter, microseconds."""
    cpu = {
        label: describe(one.cpu_us[-rounds:], contended=found.stats[label].contended) for label, one in callers.items()
    }
    for label, stats in found.stats.items():
        table.put(label, "ms", stats, metric="a call", x=label, floor=found.floor, why=whys.get(label, ""))
    for label, stats in cpu.items():
        own = table.sub(metric="CPU of a call", x=label, why=whys.get(label, ""), note=CPU_NOTE)
        own.put(f"{label}: server's CPU", "µs", stats)
    return cpu
