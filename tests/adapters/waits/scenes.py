"""Calls, each an operation of its own, on a real loop; and what their records say they waited for."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from mcp_probe.model import Await, RequestRecord
from mcp_probe.session import Probe
from tests.kept import Kept, keep
from tests.running import Backend, run_on

MS = 1_000_000


@dataclass
class Scene:
    """One run of some calls."""

    probe: Probe
    kept: Kept = field(default_factory=Kept)
    hooks: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    async def call(self, name: str, body: Callable[[], Awaitable[Any]]) -> Any:
        async def called() -> Any:
            return await body()

        called.__qualname__ = name
        return await self.probe.profile(called)()

    def record(self, name: str) -> RequestRecord:
        (record,) = self.kept.requests(name, kind="function")
        return record

    def awaits(self, name: str, *kinds: str) -> list[Await]:
        return [one for one in self.record(name).awaits or () if one.kind in kinds or not kinds]

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


def held_in(awaits: list[Await]) -> dict[str, float]:
    """Holder -> ms of these waits."""
    found: dict[str, float] = defaultdict(float)
    for one in awaits:
        for part in one.holders:
            found[part.operation] += (part.to_ns - part.from_ns) / part.among / MS
    return dict(found)
