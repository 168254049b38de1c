"""Calls, each an operation of its own, on a real loop; and what their records say they waited for."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from mcp_probe.model import Await, RequestRecord
from mcp_probe.session import Probe
from tests.kept import Kept, keep
from tests.running import Backend, run_on

MS = 1_000_000
HELD_S = 0.1
CLOSE_MS = 25.0
"""The calls note what they do in steps of their own; on a busy machine another step may come in between."""
MOST_TRIES = 6


class Turns:
    """When each call asked for a connection, got it, and gave it back."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        self.got: dict[str, int] = {}
        self.gave_back: dict[str, int] = {}

    def in_turn(self) -> list[str]:
        return sorted(self.got, key=self.got.__getitem__)

    def waited_ms(self, name: str) -> float:
        return (self.got[name] - self.asked[name]) / MS

    def held_ms(self, victim: str, holder: str) -> float:
        """For how long ``holder`` had a connection while ``victim`` waited."""
        if victim == holder:
            return 0.0
        since, until = max(self.got[holder], self.asked[victim]), min(self.gave_back[holder], self.got[victim])
        return max(0, until - since) / MS


@dataclass
class Scene:
    """One run of some calls."""

    probe: Probe
    kept: Kept = field(default_factory=Kept)
    hooks: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    turns: Turns = field(default_factory=Turns)

    async def call(self, name: str, body: Callable[[], Awaitable[Any]]) -> Any:
        async def called() -> Any:
            return await body()

        called.__qualname__ = name
        return await self.probe.profile(called)()

    def record(self, name: str) -> RequestRecord:
        (record,) = self.kept.requests(name, kind="function")
        return record

    def awaits(self, name: str, *kinds: str) -> list[Await]:
        """What hooks saw, not looks."""
        return [one for one in self.record(name).awaits or () if (one.kind in kinds or not kinds) and not one.looks]

    def waited_ms(self, name: str, *kinds: str) -> float:
        return sum(one.ns for one in self.awaits(name, *kinds)) / MS

    def named_share(self, name: str) -> float:
        """Of its awaiting, what has a name."""
        record = self.record(name)
        assert record.budget.awaiting is not None
        return sum(one.ns for one in record.awaits or () if one.stage == "awaiting") / record.budget.awaiting

    def everything(self) -> str:
        """All that leaves the process: the recording, and the summary as JSON."""
        return b"".join(self.kept.lines).decode(errors="replace") + self.summary


def play(scenario: Callable[[Scene], Awaitable[None]], backend: Backend = "asyncio") -> Scene:
    """Run it with a probe of its own. No hook may fail meanwhile."""
    probe = Probe()
    scene = Scene(probe)
    scene.kept = keep(probe)
    try:
        run_on(backend, lambda: scenario(scene))
        scene.summary = json.dumps(dataclasses.asdict(probe.snapshot()), default=str)
    finally:
        scene.hooks = dict(probe._hub.hooks)
        probe.detach()
    assert [state for state in scene.hooks.values() if state.startswith("disabled")] == []
    return scene


def play_undisturbed(scenario: Callable[[Scene], Awaitable[None]]) -> Scene:
    """As :func:`play`, once more where the machine kept the loop waiting: such a run proves nothing of single waits."""
    late_ms = 0.0

    async def watched(scene: Scene) -> None:
        nonlocal late_ms
        late_ms = 0.0

        async def look() -> None:
            nonlocal late_ms
            while True:
                since = time.monotonic()
                await anyio.sleep(0.005)
                late_ms = max(late_ms, (time.monotonic() - since) * 1000 - 5)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            await scenario(scene)
            tasks.cancel_scope.cancel()

    for _ in range(MOST_TRIES):
        scene = play(watched)
        if late_ms < CLOSE_MS / 2:
            break
    return scene


def held_in(awaits: list[Await]) -> dict[str, float]:
    """Holder -> ms of these waits."""
    found: dict[str, float] = defaultdict(float)
    for one in awaits:
        for part in one.holders:
            found[part.operation] += (part.to_ns - part.from_ns) / part.among / MS
    return dict(found)


def check_waves(scene: Scene, places: int, kind: str = "connection-pool") -> list[Await]:
    """Each call waited as long as it notes itself, in waves, for those that had the ``places``. Returns the waits."""
    found = []
    turns = scene.turns
    names = turns.in_turn()
    for place, name in enumerate(names):
        waits = scene.awaits(name, kind)
        waited_ms = scene.waited_ms(name, kind)
        wave = place // places
        if not wave:
            assert waited_ms < CLOSE_MS
            continue
        assert waited_ms == pytest.approx(turns.waited_ms(name), abs=CLOSE_MS)
        assert waited_ms >= wave * HELD_S * 1000 - 2
        held = held_in(waits)
        assert sum(held.values()) == pytest.approx(waited_ms, abs=0.01)
        for holder in names:
            assert held.get(holder, 0.0) == pytest.approx(turns.held_ms(name, holder) / places, abs=CLOSE_MS)
        for one in waits:
            assert one.limit == places
            assert {part.where for part in one.holders if part.request} == {one.where}
        found += waits
    assert found
    return found
