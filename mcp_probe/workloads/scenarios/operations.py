"""The operations of document 002 over any session, their figures, and the document's own."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import anyio
from mcp.client import Client

from mcp_probe.aggregate.explain import Seen
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Little, Stats
from mcp_probe.workloads.bench.statistics import describe, little, ratio_floor
from mcp_probe.workloads.servers import twin

WARM_UP = 10

Key = TypeVar("Key", bound=str)

Operation = Callable[[Client, int], Awaitable[object]]


OPERATIONS: Mapping[str, Operation] = {
    "ping": lambda client, number: client.session.send_ping(),
    "tool call": lambda client, number: client.call_tool("add", {"a": number, "b": number + 1}),
    "resource read": lambda client, number: client.read_resource(twin.RESOURCE),
    "list tools": lambda client, number: client.list_tools(),
    "list resources": lambda client, number: client.list_resources(),
    "list prompts": lambda client, number: client.list_prompts(),
}
LISTS = ("list tools", "list resources", "list prompts")
PROBE_NAMES: Mapping[str, str] = {
    "ping": "ping",
    "tool call": "add",
    "resource read": "resources/read",
    "list tools": "tools/list",
    "list resources": "resources/list",
    "list prompts": "prompts/list",
}
"""What the probe calls them."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One operation over one transport: every call's milliseconds in order, the warm-up apart."""

    warm_up: tuple[float, ...]
    kept: tuple[float, ...]
    foreign_cores: float | None = None
    contended: bool = False

    @property
    def stats(self) -> Stats:
        """Of the kept calls: all are alike, so none of them is put aside once more."""
        return describe(self.kept, first_apart=False, foreign_cores=self.foreign_cores, contended=self.contended)

    @property
    def with_warm_up(self) -> Stats:
        """As the document took it: from the first call on."""
        every = (*self.warm_up, *self.kept)
        return describe(every, first_apart=False, foreign_cores=self.foreign_cores, contended=self.contended)


async def take_turns(
    bench: Bench, clients: Mapping[Key, Client], names: Sequence[str], count: int
) -> dict[tuple[Key, str], Timed]:
    """Every operation of ``names`` ``count`` times over every transport, one call at a time, all taking turns.

    Keys are (transport, operation). The document's lists are interleaved in the same way.
    """

    async def once() -> dict[tuple[Key, str], list[float]]:
        taken: dict[tuple[Key, str], list[float]] = {(key, name): [] for key in clients for name in names}
        for number in range(WARM_UP + count):
            for key, client in clients.items():
                for name in names:
                    began = time.perf_counter_ns()
                    await OPERATIONS[name](client, number)
                    taken[key, name].append((time.perf_counter_ns() - began) / 1e6)
        return taken

    taken, foreign, contended = await bench.quiet(once)
    return {
        key: Timed(tuple(values[:WARM_UP]), tuple(values[WARM_UP:]), foreign, contended)
        for key, values in taken.items()
    }


@dataclass(frozen=True, slots=True)
class Rate:
    """What a closed loop came to, in two runs: calls per second, L, and what the runs differed by."""

    per_s: float
    little: Little
    floor: float


async def closed_loop(client: Client, name: str, workers: int, count: int) -> Rate:
    """Twice: ``count`` calls of one operation by ``workers`` callers, each of whom waits for its answer."""
    runs = [await _loop(client, name, workers, count) for _ in range(2)]
    seconds, spent_s = (sum(part) for part in zip(*runs, strict=True))
    floor = ratio_floor([runs[0][0]], [runs[1][0]])
    return Rate(2 * count / seconds, little(2 * count, seconds, spent_s / (2 * count), workers), floor)


async def _loop(client: Client, name: str, workers: int, count: int) -> tuple[float, float]:
    """Seconds that one run took, and the sum of its calls' latencies."""
    left = iter(range(count))
    spent_ns = 0

    async def work() -> None:
        nonlocal spent_ns
        for number in left:
            began = time.perf_counter_ns()
            await OPERATIONS[name](client, number)
            spent_ns += time.perf_counter_ns() - began

    began = time.perf_counter_ns()
    async with anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(work)
    return (time.perf_counter_ns() - began) / 1e9, spent_ns / 1e9


def stages_ms(seen: Seen, name: str) -> dict[str, float]:
    """Mean milliseconds of a request's stages inside the server; empty where the probe saw none of them."""
    budgets = [each.budget for each in seen.requests if (each.name or each.method) == PROBE_NAMES[name]]
    if not budgets:
        return {}
    return {
        stage: sum(getattr(budget, part) or 0 for budget in budgets for part in parts) / len(budgets) / 1e6
        for stage, parts in STAGES.items()
    }


STAGES: Mapping[str, tuple[str, ...]] = {
    "read and queue": ("queue_transport", "queue_dispatch"),
    "handler": (
        *("busy", "ready_wait", "executor_wait", "executor_run", "executor_return", "awaiting", "gc", "unaccounted"),
    ),
    "write": ("write_wait", "write_flush"),
}
