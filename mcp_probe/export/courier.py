"""A thread that delivers telemetry, so that no other thread ever waits for a backend.

Invariants: nobody but the courier's own thread calls ``deliver`` and ``release``; ``wake`` never blocks; ``flush`` and
``close`` block for no longer than they are told, whatever the backend does. The thread is a daemon: one that hangs in
a call to a dead backend is left behind, at a detach as at the process's exit.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""After a delivery that failed, and after many: a TLS handshake that fails costs the server's GIL tens of ms."""


class Courier:
    """Calls ``deliver(last)`` every ``interval_s``, whenever woken, and once more when closed; then ``release()``.

    ``deliver`` says whether it went well; after failures the next one waits ever longer, unless somebody flushes or
    closes. Neither may raise. It starts at once; where the interpreter is ending and starts no thread any more,
    nothing is delivered.
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
