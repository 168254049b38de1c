"""Calls of a backend at once, and what was recorded of them against what the backend has noted itself."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from mcp_probe.model import UNKNOWN_HOLDER, Await
from tests.adapters.waits.backend import Backend, Seen
from tests.capture.test_awaits import Scene
from tests.turns import MS, Turn

FOLDER = os.path.dirname(__file__) + os.sep
LATE_S = 0.1
CLOSE_MS = 15.0
"""A busy machine may stop our threads, or the backend's, between two stamps of the same instant."""


def phases(awaits: list[Await]) -> dict[str, float]:
    """ms by phase, the pool's by its kind."""
    found: Counter[str] = Counter()
    for one in awaits:
        found[one.phase or one.kind] += one.ns / MS  # type: ignore[assignment]
    return dict(found)


def check_phase(scene: Scene, name: str, phase: str, ms: float, awaits: list[Await] | None = None) -> None:
    """It took at least what the backend has slept, less what the loop and the call's own code took meanwhile."""
    found = phases(scene.awaits(name) if awaits is None else awaits).get(phase, 0.0)
    assert found > ms - no_wait(scene, name) - 5, (name, phase, found)


def check_order(scene: Scene, name: str, one: Seen, secured_ns: int | None = None) -> None:
    """No phase has what was another's: each begins after what the backend did in the one before. No clock is asked."""
    [first] = [wait for wait in scene.awaits(name) if wait.phase == "first-byte"]
    body = [wait for wait in scene.awaits(name) if wait.phase == "body"]
    assert one.first_ns <= first.to_ns
    assert all(first.to_ns <= wait.from_ns for wait in body)
    assert max(wait.to_ns for wait in body) >= one.last_ns
    if secured_ns is not None:
        assert first.from_ns >= secured_ns


def headers_late(scene: Scene, backend: Backend, name: str) -> float:
    """ms after which a busy machine let the call see the headers: the backend's pause before the body ran already."""
    [headers] = [one for one in scene.awaits(name) if one.phase == "first-byte"]
    return (headers.to_ns - backend.of(f"/{name}").first_ns) / MS


def no_wait(scene: Scene, name: str) -> float:
    """ms of the call in which it could not wait: it ran, or the loop or a pool had no turn for it."""
    budget = scene.record(name).budget
    return sum(filter(None, (budget.busy, budget.ready_wait, budget.executor_wait, budget.gc))) / MS


def waited_for_pool(scene: Scene, name: str) -> float:
    return sum(one.ns for one in scene.awaits(name, "connection-pool")) / MS


def opened(scene: Scene, *names: str) -> int:
    return sum(one.opened for name in names for one in scene.awaits(name))


def calls(scene: Scene, *names: str) -> int:
    return sum(one.calls for name in names for one in scene.awaits(name))


def at_once(scene: Scene, names: list[str], get: Callable[[str], Any]) -> Any:
    """All calls at once; notes when each asked, got its answer and let go of its connection."""

    async def run() -> None:
        gc.collect()  # or one of the tests before has left much for a pause of the whole process
        async with anyio.create_task_group() as tasks:
            for name in names:

                async def call(name: str = name) -> None:
                    scene.turns[name].asked = time.monotonic_ns()
                    await get(name)
                    scene.turns[name].gave_back = time.monotonic_ns()

                scene.turns[name] = Turn(name)
                tasks.start_soon(scene.call(name, call))

    return run()


def check_waves(scene: Scene, backend: Backend, names: list[str], places: int) -> None:
    """Waits for the pool are as the backend's own log says, and those who held it are those it served meanwhile.

    Of what lies between asking and the backend's log, what the loop and the calls' own code took is no wait.
    """
    served = sorted((backend.of(f"/{name}") for name in names), key=lambda one: one.came_ns)
    assert len({one.connection for one in served}) == places
    before: dict[int, Seen] = {}  # connection: the request that it served last
    for one in served:
        name = one.target[1:]
        asked = scene.turns[name].asked
        last, before[one.connection] = before.get(one.connection), one
        waited = waited_for_pool(scene, name)
        less = no_wait(scene, name) + CLOSE_MS
        if last is None:  # on a thread of its own the call may wait for the GIL before it asks
            assert waited < less or waited <= (one.came_ns - asked) / MS
            continue
        assert (last.last_ns - asked) / MS - less < waited <= (one.came_ns - asked) / MS
        found: Counter[str] = Counter()
        for wait in scene.awaits(name, "connection-pool"):
            assert wait.limit == places
            for part in wait.holders:
                found[part.operation] += (part.to_ns - part.from_ns) / part.among / MS  # type: ignore[assignment]
                assert part.operation == UNKNOWN_HOLDER or (part.where or "").startswith(FOLDER)
        assert sum(found.values()) == pytest.approx(waited, abs=CLOSE_MS)
        for other in served:  # while the backend had their requests, they held one connection each
            shared = (min(other.last_ns, last.last_ns) - max(other.came_ns, asked)) / places / MS
            if other is not one and shared > 0:
                assert found[other.target[1:]] > shared - less
    waves = Counter(one.connection for one in served)
    assert len(waves) == places
