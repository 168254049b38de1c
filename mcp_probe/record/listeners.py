"""Hands frames to listeners. Each gets the header first, and a listener that fails does not affect the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from mcp_probe.model import Frame, FrameListener, Header

OnFault = Callable[[Exception], None]


class Listeners:
    """The listeners of one stream of frames.

    ``add`` may be called on any thread; ``take`` and ``close`` on one at a time. ``on_fault`` gets the
    exception of a listener that failed. ``header`` is the latest one.
    """

    def __init__(self, on_fault: OnFault) -> None:
        self._on_fault = on_fault
        self._added: tuple[FrameListener, ...] = ()
        self._hearing: list[FrameListener] = []
        self._faulty: list[FrameListener] = []
        self.header: Header | None = None

    def __bool__(self) -> bool:
        return bool(self._added)

    def add(self, listener: FrameListener) -> None:
        """``listener`` gets everything from the next batch on, the header first."""
        self._added = (*self._added, listener)

    def take(self, frames: Sequence[Frame]) -> None:
        """Hand ``frames`` on. Never raises."""
        added = self._added
        newcomers = [listener for listener in added if listener not in self._hearing and listener not in self._faulty]
        known = self.header
        for frame in frames:
            if isinstance(frame, Header):
                self.header = frame
        for listener in self._hearing:
            self._tell(listener, partial(listener.take, frames))
        for listener in newcomers:
            first = [known] if known is not None else []
            self._tell(listener, partial(listener.take, [*first, *frames]))
        self._hearing = [listener for listener in added if listener not in self._faulty]

    def close(self, timeout_s: float) -> None:
        """Close every listener, within ``timeout_s`` for all of them together. Never raises."""
        added, self._added, self._hearing = self._added, (), []
        deadline = time.monotonic() + timeout_s
        for listener in added:
            try:
                listener.close(max(0.0, deadline - time.monotonic()))
            except Exception as exc:  # noqa: BLE001 - if one listener fails, the others are still closed
                self._on_fault(exc)

    def forget(self) -> None:
        """Drop all listeners silently: they belong to another process."""
        self._added, self._hearing = (), []

    def _tell(self, listener: FrameListener, what: Callable[[], None]) -> None:
        """Call ``what``; if that fails, ``listener`` is dropped. Never raises."""
        try:
            what()
        except Exception as exc:  # noqa: BLE001 - if one listener fails, the others still get frames
            self._faulty.append(listener)
            self._on_fault(exc)
