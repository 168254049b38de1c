"""Rows that share a table, and calls that are made together: what every scenario needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from mcp_probe.clock import now_ns
from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench, Ms
from mcp_probe.workloads.bench.shapes import Little, Measured, Stats
from mcp_probe.workloads.client import Call, LoadSession
from mcp_probe.workloads.facade import Facade


class Table:
    """Rows of one table; what they have in common is said once."""

    def __init__(self, bench: Bench, table: str, **shared: Any) -> None:
        self._bench = bench
        self._table = table
        self._shared = shared

    def sub(self, **shared: Any) -> Table:
        """Rows of the same table that have more in common."""
        return Table(self._bench, self._table, **{**self._shared, **shared})

    def put(
        self,
        label: str,
        unit: str,
        measured: Stats | Measured | float | None,
        documented: float | None = None,
        **more: Any,
    ) -> None:
        """Keeps one row; ``more`` overrules what is shared. A figure of a claim brings along what is known of it."""
        fields = {**self._shared, **more}
        if isinstance(measured, Measured):
            fields = {**self._shared, "floor": measured.floor, **more}
            fields["contended"] = measured.contended or fields.get("contended", False)
            measured = measured.value
        self._bench.row(self._table, label, unit, measured, documented=documented, **fields)


One = Callable[[Call], Awaitable[float]]
"""Makes one call; its latency, milliseconds. Raises: LaunchError where it failed."""


def through_session(session: LoadSession) -> One:
    """Calls on one session of the SDK's client."""

    async def one(call: Call) -> float:
        answer = await session.call(call.tool, **call.arguments)
        if answer.error is not None:
            raise LaunchError(f"{answer.operation} failed: {answer.error}")
        return answer.total_ms

    return one


def through_facade(facade: Facade) -> One:
    """Calls through a pool of threads."""

    async def one(call: Call) -> float:
        began = time.perf_counter_ns()
        await facade.invoke(call.tool, **call.arguments)
        return (time.perf_counter_ns() - began) / 1e6

    return one


class Round(Protocol):
    """What takes a turn: calls that are made together. Keeps every round's wall time, and when the last one was."""

    @property
    def wall_ms(self) -> Sequence[float]:
        """Of all rounds."""

    @property
    def last_ns(self) -> tuple[int, int]:
        """When the last round began and ended, on the probe's clock."""

    def __call__(self) -> Awaitable[Ms]:
        """One round."""

    def little(self, excused: str = "") -> Little | None:
        """Mean number of calls in flight over all rounds, beside the number that was asked for."""


class Burst:
    """One round of calls, all at once, at most ``in_flight`` of them, or one by one; for :meth:`Bench.timed`.

    Keeps every call's latency and every round's wall time, so that the row's figures can be held against
    each other by Little's law. ``last_ms`` has, for each call of the last round, when it was answered;
    ``last_ns`` is when that round began and ended, on the probe's clock.
    """

    def __init__(
        self, plan: Sequence[tuple[One, Call]], *, one_by_one: bool = False, in_flight: int | None = None
    ) -> None:
        self._plan = plan
        self._one_by_one = one_by_one
        self._asked = 1 if one_by_one else min(len(plan), in_flight or len(plan))
        self.wall_ms: list[float] = []
        self.latency_ms: list[float] = []
        self.last_ms: list[float] = []
        self.last_ns = (0, 0)

    async def __call__(self) -> Ms:
        """One round. Raises: LaunchError where a call failed."""
        self.last_ms = [0.0] * len(self._plan)
        limit = asyncio.Semaphore(self._asked)
        began_ns = now_ns()
        began = time.perf_counter_ns()

        async def make(place: int, one: One, call: Call) -> float:
            async with limit:
                latency_ms = await one(call)
            self.last_ms[place] = (time.perf_counter_ns() - began) / 1e6
            return latency_ms

        made = [make(place, one, call) for place, (one, call) in enumerate(self._plan)]
        latencies = [await call for call in made] if self._one_by_one else await asyncio.gather(*made)
        wall_ms = (time.perf_counter_ns() - began) / 1e6
        self.last_ns = (began_ns, now_ns())
        self.wall_ms.append(wall_ms)
        self.latency_ms += latencies
        return Ms(wall_ms)

    def little(self, excused: str = "") -> Little:
        """As :meth:`Round.little`."""
        return Little(sum(self.latency_ms) / sum(self.wall_ms), self._asked, excused)


def burst(one: One, calls: Sequence[Call], *, one_by_one: bool = False, in_flight: int | None = None) -> Burst:
    """Calls that all take the same way."""
    return Burst([(one, call) for call in calls], one_by_one=one_by_one, in_flight=in_flight)


def calls_of(tool: str, count: int, delay_ms: float, **more: Any) -> list[Call]:
    """``count`` times the same call."""
    return [Call(tool, {"delay_ms": delay_ms, **more})] * count
