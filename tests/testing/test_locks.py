"""Awaits under a lock: from timelines made up by hand, and from locks of each library on each loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from mcp.client import Client
from mcp.server.mcpserver import MCPServer

from mcp_probe.model import LockHold, StepRun
from mcp_probe.testing.locks import suspended_within
from mcp_probe.testing.start import profile_server
from tests.loops import LOOPS
from tests.running import kind_of, run_on


def step(task: int, suspended: int, start: int, end: int) -> StepRun:
    return StepRun(task, suspended, start, start, start, end, 0)


def held(since: int, until: int) -> LockHold:
    return LockHold("lock", "asyncio.Lock GATE", "shop.py:3", since, until)


STEPS = (step(1, 0, 10, 20), step(2, 12, 21, 30), step(1, 20, 40, 50), step(1, 50, 70, 80))


@pytest.mark.parametrize(
    ("hold", "suspensions"),
    [
        (held(12, 18), []),
        (held(12, 45), [(20, 40)]),
        (held(12, 75), [(20, 40), (50, 70)]),
        (held(41, 49), []),
        (held(41, 71), [(50, 70)]),
        (held(22, 29), []),  # the other task's, while the first one was suspended
        (held(30, 45), []),  # it got the lock as it was woken: it had no turn yet
        (held(90, 95), []),  # nobody saw that step
    ],
)
def test_a_hold_counts_the_suspensions_of_its_own_task(hold: LockHold, suspensions: list[tuple[int, int]]) -> None:
    assert suspended_within(hold, STEPS) == suspensions


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=20), st.data())
def test_a_hold_within_one_step_is_never_over_an_await(lengths: list[tuple[int, int]], data: st.DataObject) -> None:
    now, suspended, steps = 0, 0, []
    for gap, length in lengths:
        steps.append(step(1, suspended, now + gap, now + gap + length))
        suspended = now = now + gap + length
    first = data.draw(st.integers(0, len(steps) - 1))
    last = data.draw(st.integers(first, len(steps) - 1))
    found = suspended_within(held(steps[first].start_ns, steps[last].end_ns), steps)
    # Steps that touch have no instant between them, so the later one may be taken for the one that ended.
    assert len(found) == last - first


@pytest.mark.parametrize("backend", LOOPS, ids=str)
@pytest.mark.parametrize("library", ["asyncio", "anyio", "trio"])
def test_a_lock_held_over_an_await_is_seen_without_anybody_waiting_for_it(library: str, backend: Any) -> None:
    if (library == "trio") != (kind_of(backend) == "trio") and library != "anyio":
        pytest.skip(f"a lock of {library} does not run on {kind_of(backend)}")
    makers: dict[str, Callable[[], Any]] = {"asyncio": asyncio.Lock, "anyio": anyio.Lock, "trio": trio.Lock}
    server = MCPServer("locks")
    locks: list[Any] = []

    def lock() -> Any:
        if not locks:
            locks.append(makers[library]())
        return locks[0]

    @server.tool()
    async def over() -> str:
        async with lock():
            await anyio.sleep(0)
        return "over"

    @server.tool()
    async def briefly() -> str:
        async with lock():
            pass
        await anyio.sleep(0)
        return "briefly"

    async def calls() -> None:
        async with Client(server) as client:
            for _ in range(3):
                await client.call_tool("over", {})
                await client.call_tool("briefly", {})

    profile = profile_server(server)
    try:
        run_on(backend, calls)
        assert [one.times >= 1 for one in profile.awaits_under_lock("over")] == [True] * 3
        assert profile.awaits_under_lock("briefly") == []
    finally:
        profile.stop()
