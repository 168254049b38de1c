"""Follow a coroutine from inside: where its request began in the middle of a step, and where nothing else can.

A request that begins in the middle of a step (HTTP, in-process, mcp 1.x, ``profile``) has no handle of
its own for that first step; the wrapper sees it end. Where the loop cannot be hooked at all, it times
every step: those are exact, but when the coroutine became ready again is not known, so the time between
its steps is claimed by nothing and shows as ``unaccounted``; child tasks and the loop are not seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

from mcp_probe.capture.steps import Track
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import WAKE_UNKNOWN, RawRequest

UNIT = 1
Fail = Callable[[str, Exception], None]


class Followed:
    """An awaitable that runs ``awaitable`` and times each of its steps for ``raw``.

    Values, exceptions and cancellation pass through untouched; ``fail`` is told of a fault of ours.
    """

    def __init__(self, awaitable: Awaitable[Any], raw: RawRequest, track: Track, fail: Fail) -> None:
        self._iterator: Any = awaitable.__await__()
        self._raw = raw
        self._track = track
        self._fail = fail

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> Followed:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """One step."""
        self._begin()
        try:
            result = self._iterator.send(value) if value is not None else next(self._iterator)
        except BaseException:
            self._end(done=True)
            raise
        self._end(done=False)
        return result

    def throw(self, *exc: Any) -> Any:
        """One step that starts with an exception."""
        self._begin()
        try:
            result = self._iterator.throw(*exc)
        except BaseException:
            self._end(done=True)
            raise
        self._end(done=False)
        return result

    def close(self) -> None:
        """The coroutine is dropped."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

    def _begin(self) -> None:
        track = self._track
        if track.alive and track.quality == "unavailable" and track.owner is not self._raw:
            try:
                now = now_ns()
                track.begin(self._raw, UNIT, now, now, WAKE_UNKNOWN, now)
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                self._broken(exc)

    def _end(self, *, done: bool) -> None:
        track = self._track
        if not done and track.alive and track.owner is self._raw:
            try:
                track.close(now_ns(), False)
            except Exception as exc:  # noqa: BLE001
                self._broken(exc)

    def _broken(self, exc: Exception) -> None:
        self._track.alive = False
        self._fail("steps", exc)
