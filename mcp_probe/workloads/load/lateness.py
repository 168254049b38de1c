"""When the generator itself stood still: a beat on its own loop, timed apart from every request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

from mcp_probe.clock import now_ns

BEAT_S = 0.01
STOOD_NS = 25_000_000
"""A beat so much later than it should be is a pause. Timers on a busy machine come some milliseconds late anyway."""

_MOST_PAUSES = 100_000

Pauses = Sequence[tuple[int, int]]
"""From the last beat before to the first beat after, in order; nothing was sent and no answer was read between."""


class Beat:
    """Beats on the running loop while it is entered. Sees a busy loop, a held GIL and a process without a core."""

    def __init__(self) -> None:
        self.pauses: list[tuple[int, int]] = []
        self._last_ns = 0
        self._handle: asyncio.TimerHandle | None = None

    def __enter__(self) -> Beat:
        self._last_ns = now_ns()
        self._handle = asyncio.get_running_loop().call_later(BEAT_S, self._beat)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        self._note(now_ns())
        if self._handle is not None:
            self._handle.cancel()

    def _beat(self) -> None:
        self._note(now_ns())
        self._handle = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _note(self, now: int) -> None:
        if now - self._last_ns >= BEAT_S * 1e9 + STOOD_NS and len(self.pauses) < _MOST_PAUSES:
            self.pauses.append((self._last_ns, now))
        self._last_ns = now


def within(pauses: Pauses, start_ns: int, end_ns: int) -> int:
    """Nanoseconds of ``pauses`` between the two instants."""
    return sum(max(0, min(end, end_ns) - max(start, start_ns)) for start, end in pauses)
