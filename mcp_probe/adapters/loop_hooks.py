"""Hooks on one kind of event loop: what asyncio_loop, uvloop_loop, trio_loop and unknown_loop each implement."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar
from weakref import ref

from mcp_probe.capture.hub import Hub
from mcp_probe.capture.loop_monitor import LoopMonitor

M = TypeVar("M", bound=LoopMonitor)


def asyncio_tasks(loop: Any) -> dict[int, Any]:
    """The tasks of an asyncio or uvloop ``loop`` by id; none if it is gone. Any thread."""
    return {} if loop is None else {id(task): task for task in asyncio.all_tasks(loop)}


class LoopHooks(ABC, Generic[M]):
    """Makes a monitor for each loop of its kind that it meets, and holds on to no loop."""

    hook: ClassVar[str]
    """What reports call the hooks that see its steps."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._monitors: dict[int, M] = {}  # by id(loop)

    def install(self) -> None:
        """Patch what is process-wide. What cannot be hooked here is told to the hub, and raises nothing."""

    def follow(self, loop: Any) -> M | None:
        """The monitor of ``loop``, which runs on the calling thread: made at the first call, the same ever after.

        ``None`` where it is of another kind, cannot be hooked, or its hooks have failed.
        """
        known = self._monitors.get(id(loop))
        if known is not None and known.loop() is loop:
            return known if known.alive else None
        if not self.fits(loop):
            return None
        for key in [key for key, monitor in self._monitors.items() if monitor.is_over()]:
            self.release(key)
        monitor = self.begin(loop)
        if monitor is not None:
            self._monitors[id(loop)] = monitor
        return monitor

    @abstractmethod
    def fits(self, loop: Any) -> bool:
        """Whether ``loop`` is of this kind."""

    @abstractmethod
    def begin(self, loop: Any) -> M | None:
        """Hook ``loop``, and have the hub add its monitor. ``None`` where that cannot be done; the hub is told why."""

    def release(self, key: int) -> list[str]:
        """Stop following the loop of this id. Returns a sentence for each thing that could not be put back."""
        monitor = self._monitors.pop(key, None)
        if monitor is not None:
            self._hub.drop_monitor(monitor)
        return []

    def restore(self) -> list[str]:
        """Undo everything, for good. Returns sentences as above."""
        return [sentence for key in list(self._monitors) for sentence in self.release(key)]


def weakly(loop: Any, forget: Callable[[Any], object] | None = None) -> Callable[[], Any]:
    """A weak reference, as far as ``loop`` allows one; ``forget`` is called as it dies."""
    try:
        return ref(loop, forget)
    except TypeError:
        return lambda: loop
