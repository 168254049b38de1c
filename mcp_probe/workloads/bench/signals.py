"""SIGTERM and a closed terminal end a run as Ctrl-C does: what has been measured is written first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """While it is entered; must be entered on the main thread, elsewhere it does nothing.

    The first of these signals counts: a terminal that closes sends several, and the second must not cut the writing.
    A signal that is ignored (``nohup``) stays so.
    """
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        if came:
            return
        came.append(number)
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)  # an event loop has its own way to end in good order

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (getattr(signal, name) for name in _NAMES if hasattr(signal, name)):
            if signal.getsignal(number) == signal.SIG_DFL:
                with suppress(OSError, ValueError):
                    before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
