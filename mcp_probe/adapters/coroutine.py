"""Follow a coroutine from inside: where its request began in the middle of a step, and where nothing else can.

A request that begins in the middle of a step (HTTP, in-process, mcp 1.x, ``profile``) has no handle of
its own for that first step; the wrapper sees it end. Where the loop cannot be hooked at all, it times
every step: those are exact, but when the coroutine became ready again is not known, so the time between
its steps is claimed by nothing and shows as ``unaccounted``; child tasks and the loop are not seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

from mcp_probe.capture.guard import Fail, Guard, guarded
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import WAKE_UNKNOWN, RawRequest

UNIT = 1


class Followed:
    """An awaitable that runs ``awaitable`` and times each of its steps for ``raw``.

    Values, exceptions and cancellation pass through untouched; ``fail`` is told of a fault of ours.
    """

    def __init__(self, awaitable: Awaitable[Any], raw: RawRequest, monitor: LoopMonitor, fail: Fail) -> None:
        self._iterator: Any = awaitable.__await__()
        self._raw = raw
        self._monitor = monitor
        self.guard = Guard("steps", fail, self._broken)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> Followed:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """One step. Where it is the last one, whoever began the request sees it end."""
        self._begin()
        result = self._iterator.send(value) if value is not None else next(self._iterator)
        self._end()
        return result

    def throw(self, *exc: Any) -> Any:
        """One step that starts with an exception."""
        self._begin()
        result = self._iterator.throw(*exc)
        self._end()
        return result

    def close(self) -> None:
        """The coroutine is dropped."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

    @guarded
    def _begin(self) -> None:
        monitor = self._monitor
        if monitor.alive and monitor.quality == "unavailable" and monitor.owner is not self._raw:
            now = now_ns()
            monitor.begin(self._raw, UNIT, now, now, WAKE_UNKNOWN, now)

    @guarded
    def _end(self) -> None:
        monitor = self._monitor
        if monitor.alive and monitor.owner is self._raw:
            monitor.close(now_ns(), False)

    def _broken(self) -> None:
        self._monitor.alive = False
