"""Threads of ours. They may be started on an event loop's thread: starting one waits for nothing.

``threading.Thread.start`` waits until the new thread has begun, which holds the loop up for a switch of the GIL.
"""

from __future__ import annotations

import _thread
import atexit
import os
import time
from collections.abc import Callable

BEGIN_S = 5.0
"""The exit waits so long at most for threads that have been started and have not begun: they are about to."""

_alive: set[Worker] = set()
_beginning: set[Worker] = set()


def workers_alive() -> int:
    """How many there are now."""
    return len(_alive)


def _forget_all() -> None:
    _alive.clear()
    _beginning.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


@atexit.register
def _wait_for_beginnings() -> None:
    """CPython frees the state of a thread that has not begun when the interpreter ends, and 3.11.2 then crashes."""
    until = time.monotonic() + BEGIN_S
    while _beginning and time.monotonic() < until:
        time.sleep(0.0005)


class Worker:
    """A thread that ends with the process. ``target`` must catch its own exceptions.

    ``target`` must not ask for :func:`threading.current_thread`: that would register the thread for good.
    """

    def __init__(self, name: str, target: Callable[[], None]) -> None:
        self._name = name
        self._target = target
        self._running = _thread.allocate_lock()
        self.ident: int | None = None

    def start(self) -> None:
        """Begin. Call it once. Raises: RuntimeError where the system allows no thread."""
        self._running.acquire(False)
        _alive.add(self)
        _beginning.add(self)
        try:
            self.ident = _thread.start_new_thread(self._run, ())
        except BaseException:
            self._ended()
            raise

    def is_alive(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._running.locked()

    def is_current(self) -> bool:
        """Whether it is the calling thread."""
        return self.ident == _thread.get_ident()

    def join(self, timeout_s: float) -> None:
        """Wait for its end, for at most ``timeout_s``."""
        if not self.is_current() and self._running.acquire(timeout=timeout_s):
            self._running.release()

    def _run(self) -> None:
        _beginning.discard(self)
        self.ident = _thread.get_ident()
        set_name = getattr(_thread, "set_name", None)  # CPython 3.14
        try:
            if set_name is not None:
                set_name(self._name[:15])
            self._target()
        finally:
            self._ended()

    def _ended(self) -> None:
        _beginning.discard(self)
        _alive.discard(self)
        self._running.release()
