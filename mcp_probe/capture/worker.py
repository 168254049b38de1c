"""Threads of ours. They may be started on an event loop's thread: starting one waits for nothing.

``threading.Thread.start`` waits until the new thread has begun, which holds the loop up for a switch of the GIL.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable

_alive: set[Worker] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alive.clear)


def workers_alive() -> int:
    """How many there are now."""
    return len(_alive)


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
        self.ident = _thread.get_ident()
        set_name = getattr(_thread, "set_name", None)  # CPython 3.14
        try:
            if set_name is not None:
                set_name(self._name[:15])
            self._target()
        finally:
            self._ended()

    def _ended(self) -> None:
        _alive.discard(self)
        self._running.release()
