"""What spans and metrics have in common on their way out: a courier, and an account of everything handed to it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mcp_probe.export.courier import Courier
from mcp_probe.export.delivery import OVERHEARD, Tally


class Line(ABC):
    """One courier and its exporter. One that was given up keeps them to itself until its call returns.

    The courier begins at once: a subclass has its own fields before it calls ``__init__``.
    """

    _exporter: Any = None

    def __init__(self, name: str, tally: Tally, interval_s: float) -> None:
        self._tally = tally
        self._lock = threading.Lock()
        self._in_flight = 0
        self._given_up = False
        self.courier = Courier(name, interval_s, self._deliver, self._release)

    @abstractmethod
    def _deliver(self, last: bool) -> bool:
        """Deliver what there is; whether that went well. The courier's thread."""

    def _unanswered(self) -> int:
        """How many are without an answer."""
        return self._in_flight

    def give_up(self) -> int:
        """How many were still waiting for an answer; they are not counted by the courier any more."""
        with self._lock:
            self._given_up = True
            return self._unanswered()

    def _settle(self, reason: str | None) -> bool:
        """Count what is in flight: delivered, or lost for a reason; an empty one says that there was nothing."""
        with self._lock:
            count, self._in_flight = self._in_flight, 0
            if self._given_up:
                return False
        if reason is None:
            self._tally.delivered(count)
        elif reason:
            self._tally.lost(count, reason)
        return not reason

    def _release(self) -> None:
        with suppress(Exception):  # it has had its chance; nothing is lost that was not counted
            if self._exporter is not None:
                self._exporter.shutdown()
        OVERHEARD.leave_thread()


class Sender:
    """What the pipeline calls of whatever has a :class:`Line`; ``None`` while there is nothing to send on."""

    _line: Line | None
    _tally: Tally

    def flush_soon(self) -> None:
        """Deliver without waiting for the next turn; does not block."""
        if self._line is not None:
            self._line.courier.wake()

    def begin_flush(self) -> Callable[[float], bool]:
        """Deliver at once; the function waits, so many seconds, and says whether that has ended."""
        line = self._line
        if line is None:
            return lambda _: True
        number = line.courier.ask()
        return lambda timeout_s: line.courier.wait(number, timeout_s)

    def say_unanswered(self) -> None:
        """The process may end now: say that something is without an answer."""
        line = self._line
        if line is not None and self._tally.reason is None:
            self._tally.pending(OVERHEARD.unanswered(line.courier.ident))

    def ask_to_close(self) -> None:
        """Begin the last delivery, without waiting for it."""
        if self._line is not None:
            self._line.courier.ask_to_close()

    def close(self, timeout_s: float) -> None:
        """Take no more, deliver what there is within ``timeout_s``, and count the rest as lost."""
        line, self._line = self._line, None
        if line is not None and not line.courier.close(timeout_s):
            self._tally.lost(line.give_up(), OVERHEARD.unanswered(line.courier.ident))

    def _flush(self, timeout_s: float) -> bool:
        """Whether a delivery that began now ended within ``timeout_s``. Blocks."""
        line = self._line
        return line is not None and line.courier.flush(timeout_s)
