"""Which loop is this? Follows the one that runs on the calling thread, with the hooks that fit it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp_probe.adapters.asyncio_loop import AsyncioHooks
from mcp_probe.adapters.hook import PATCHING
from mcp_probe.adapters.loop_hooks import LoopHooks
from mcp_probe.adapters.threads import ThreadHooks
from mcp_probe.adapters.trio_loop import TrioHooks
from mcp_probe.adapters.unknown_loop import UnknownHooks
from mcp_probe.adapters.uvloop_loop import UvloopHooks
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.loop_monitor import LoopMonitor


class Loops:
    """The loop hooks of the process."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.kinds: tuple[LoopHooks[Any], ...] = (
            AsyncioHooks(hub),
            UvloopHooks(hub),
            TrioHooks(hub),
            UnknownHooks(hub),  # the last one: it takes what the others leave
        )
        self.threads = ThreadHooks(hub)
        self._restored = False

    def install(self) -> None:
        """Patch what is process-wide."""
        for hook, install in (*((kind.hook, kind.install) for kind in self.kinds), ("executors", self.threads.install)):
            try:
                install()
            except Exception as exc:  # noqa: BLE001 - an unknown interpreter must not stop the server
                self._hub.fail(hook, exc)

    def restore(self) -> list[str]:
        """Undo everything; sentences for what could not be put back."""
        with PATCHING:
            self._restored = True
            stuck = self.threads.restore()
            return stuck + [sentence for kind in reversed(self.kinds) for sentence in kind.restore()]

    def follow(self) -> LoopMonitor | None:
        """The monitor of the running loop, followed from now on if need be; ``None`` where no loop runs."""
        monitor = self._hub.monitor()
        if monitor is not None and monitor.alive and monitor.is_running():
            return monitor
        with PATCHING:  # a loop may come to be known while another thread restores
            monitor = None if self._restored else self._follow(_running_loop())
            if monitor is not None:
                self._hub.resume_monitor(monitor)
        if monitor is not None:
            self.threads.follow(monitor.name)  # it imports: another thread that imports may wait for PATCHING
        return monitor

    def _follow(self, loop: Any) -> LoopMonitor | None:
        found = () if loop is None else (kind.follow(loop) for kind in self.kinds)
        return next((monitor for monitor in found if monitor is not None), None)


def _running_loop() -> Any:
    """The loop that runs on this thread, or the token of trio's run."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        return trio.lowlevel.current_trio_token() if trio is not None and trio.lowlevel.in_trio_run() else None
