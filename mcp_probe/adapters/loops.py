"""Which loop is this? Follows the one that runs on the calling thread, with the hooks it allows."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any

from mcp_probe.adapters.asyncio_loop import AsyncioHooks
from mcp_probe.adapters.coroutine import Followed
from mcp_probe.adapters.hook import PATCHING
from mcp_probe.adapters.threads import ThreadHooks
from mcp_probe.adapters.trio_loop import TrioHooks
from mcp_probe.adapters.uvloop_loop import UvloopHooks
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.record.raw import RawRequest


class Loops:
    """The loop hooks of the process."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.asyncio = AsyncioHooks(hub)
        self.uvloop = UvloopHooks(hub)
        self.trio = TrioHooks(hub)
        self.threads = ThreadHooks(hub)
        self._restored = False
        self.hooked = True  # False once a loop was met that only handlers can be followed on

    def install(self) -> None:
        """Patch what is process-wide."""
        for hook, install in (("steps (asyncio)", self.asyncio.install), ("executors", self.threads.install)):
            try:
                install()
            except Exception as exc:  # noqa: BLE001 - an unknown interpreter must not stop the server
                self._hub.fail(hook, exc)

    def restore(self) -> list[str]:
        """Undo everything; sentences for what could not be put back."""
        with PATCHING:
            self._restored = True
            return [*self.threads.restore(), *self.trio.restore(), *self.uvloop.restore(), *self.asyncio.restore()]

    def follow(self) -> LoopMonitor | None:
        """The monitor of the running loop, started now if need be; ``None`` where no loop is known."""
        monitor = self._hub.monitor()
        if monitor is not None and monitor.alive and monitor.is_running():
            return monitor
        with PATCHING:  # a loop may come to be known while another thread restores
            monitor = None if self._restored else self._follow() or self._follow_handlers()
            if monitor is not None:
                self._hub.resume_monitor(monitor)
                self.threads.follow(monitor.name)
            return monitor

    def followed(self, awaitable: Awaitable[Any], raw: RawRequest) -> Awaitable[Any]:
        """``awaitable``, wrapped so that the step in which ``raw`` began is seen to end."""
        try:
            monitor = self._hub.monitor()
            if monitor is None or not monitor.alive or monitor.closes_steps:
                return awaitable
            return Followed(awaitable, raw, monitor, self._hub.fail)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self._hub.fail("steps", exc)
            return awaitable

    def _follow_handlers(self) -> LoopMonitor | None:
        """A monitor for a running loop that no hook fits: only handlers' own steps will be on it."""
        try:
            name = type(asyncio.get_running_loop()).__module__.split(".")[0]
        except RuntimeError:
            return None
        monitor = self._hub.add_monitor(name)
        monitor.quality = "unavailable"
        self.hooked = False
        self._hub.missing("steps", f"no hooks for a {name} loop here; only the handlers' own steps are followed")
        return monitor

    def _follow(self) -> LoopMonitor | None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            trio = sys.modules.get("trio")
            if trio is not None and trio.lowlevel.in_trio_run():
                return self.trio.follow(trio.lowlevel.current_trio_token())
            return None
        if type(loop).__module__.split(".")[0] == "uvloop":
            return self.uvloop.follow(loop)
        return self.asyncio.follow(loop)
