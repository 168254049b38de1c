"""Threads that deliver telemetry, so that no other thread ever waits for a backend.

Invariants: nobody but the worker's own thread calls ``deliver`` and ``release``; ``wake`` never blocks; ``flush`` and
``close`` block for no longer than they are told, whatever the backend does. The thread is a daemon: one that hangs in
a call to a dead backend is left behind, at a detach as at the process's exit.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from mcp_probe.export import rejections
from mcp_probe.export.delivery import OVERHEARD, Tally

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""After a delivery that failed, and after many: a TLS handshake that fails costs the server's GIL tens of ms."""


class ExportWorker:
    """Calls ``deliver(last)`` every ``interval_s``, whenever woken, and once more when closed; then ``release()``.

    ``deliver`` returns whether it succeeded. After each failure the next one waits longer, unless somebody flushes or
    closes. Neither may raise. It starts at once; where the interpreter is ending and starts no thread any more, nothing
    is delivered.
    """

    def __init__(
        self, name: str, interval_s: float, deliver: Callable[[bool], bool], release: Callable[[], None]
    ) -> None:
        self._interval_s = interval_s
        self._deliver = deliver
        self._release = release
        self._changed = threading.Condition()
        self._asked = self._done = self._urgent = 0
        self._pause_s = 0.0
        self._closing = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            # In no request's context: the probe would take the thread for a job of that request.
            contextvars.Context().run(self._thread.start)
        except RuntimeError:
            self._ended.set()

    @property
    def ident(self) -> int | None:
        """Number of the thread."""
        return self._thread.ident

    def wake(self) -> None:
        """Deliver soon; once the pause is over, where the last delivery failed."""
        with self._changed:
            self._asked += 1
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Whether a delivery that began after this call ended within ``timeout_s``."""
        return self.wait(self.ask(), timeout_s)

    def ask(self) -> int:
        """Deliver at once, without waiting for it; the number is for :meth:`wait`."""
        with self._changed:
            self._asked += 1
            self._urgent = self._asked
            self._changed.notify_all()
            return self._asked

    def wait(self, number: int, timeout_s: float) -> bool:
        """Whether the delivery that was asked for ended within ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._done >= number, timeout_s)

    def ask_to_close(self) -> None:
        """Deliver a last time, without waiting for it; :meth:`close` then waits."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Deliver a last time; whether that ended within ``timeout_s``."""
        self.ask_to_close()
        return self._ended.wait(timeout_s)

    def _run(self) -> None:
        last = False
        while not last:
            due = time.monotonic() + max(self._interval_s, self._pause_s)
            with self._changed:
                while not self._is_time() and (left := due - time.monotonic()) > 0:
                    self._changed.wait(left)
                asked, last = self._asked, self._closing
            if self._deliver(last):
                self._pause_s = 0.0
            else:
                self._pause_s = min(max(FIRST_PAUSE_S, 2 * self._pause_s), LONGEST_PAUSE_S)
            with self._changed:
                self._done = asked
                self._changed.notify_all()
        self._release()
        self._ended.set()

    def _is_time(self) -> bool:
        if self._closing or self._urgent > self._done:
            return True
        return self._asked > self._done and not self._pause_s


class Line(ABC):
    """One worker and its exporter. One that was given up keeps them to itself until its call returns.

    The worker begins at once: a subclass has its own fields before it calls ``__init__``.
    """

    _exporter: Any = None

    def __init__(self, name: str, tally: Tally, interval_s: float) -> None:
        self._tally = tally
        self._lock = threading.Lock()
        self._in_flight = 0
        self._given_up = False
        self.worker = ExportWorker(name, interval_s, self._deliver, self._release)

    @abstractmethod
    def _deliver(self, last: bool) -> bool:
        """Deliver what there is. Returns whether that succeeded. The worker's thread."""

    def _unanswered(self) -> int:
        """How many are without an answer."""
        return self._in_flight

    def give_up(self) -> int:
        """How many were still waiting for an answer; they are not counted by the worker any more."""
        with self._lock:
            self._given_up = True
            return self._unanswered()

    def _settle(self, reason: str | None) -> bool:
        """Count what is in flight: delivered, or lost for a reason; an empty one says that there was nothing.

        On the thread that exported it.
        """
        rejected, why = rejections.take()
        with self._lock:
            count, self._in_flight = self._in_flight, 0
            if self._given_up:
                return False
        if reason is None:
            rejected = min(rejected, count)
            self._tally.delivered(count - rejected)
            self._tally.lost(rejected, why)
        elif reason:
            self._tally.lost(count, reason)
        return not reason

    def _release(self) -> None:
        with suppress(Exception):  # its time is over; every loss has been counted
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
            self._line.worker.wake()

    def begin_flush(self) -> Callable[[float], bool]:
        """Deliver at once; the function waits, so many seconds, and says whether that has ended."""
        line = self._line
        if line is None:
            return lambda _: True
        number = line.worker.ask()
        return lambda timeout_s: line.worker.wait(number, timeout_s)

    def say_unanswered(self) -> None:
        """The process may end now: say that something is without an answer."""
        line = self._line
        if line is not None and self._tally.reason is None:
            self._tally.pending(OVERHEARD.unanswered(line.worker.ident))

    def ask_to_close(self) -> None:
        """Begin the last delivery, without waiting for it."""
        if self._line is not None:
            self._line.worker.ask_to_close()

    def close(self, timeout_s: float) -> None:
        """Take no more, deliver what there is within ``timeout_s``, and count the rest as lost."""
        line, self._line = self._line, None
        if line is not None and not line.worker.close(timeout_s):
            self._tally.lost(line.give_up(), OVERHEARD.unanswered(line.worker.ident))

    def _flush(self, timeout_s: float) -> bool:
        """Whether a delivery that began now ended within ``timeout_s``. Blocks."""
        line = self._line
        return line is not None and line.worker.flush(timeout_s)


def suppress_instrumentation() -> AbstractContextManager[None]:
    """Within this block, on this thread, instrumented HTTP and gRPC clients make no spans.

    Where a client is instrumented the package that says so is loaded; elsewhere there is nothing to suppress.
    """
    package = sys.modules.get("opentelemetry.instrumentation.utils")
    found = getattr(package, "suppress_instrumentation", None)
    return nullcontext() if found is None else found()
