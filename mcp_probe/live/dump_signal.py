"""SIGUSR1 has the flight recording written: where nobody else handles that signal, and while the probe is attached.

Python runs handlers of signals on the main thread, which is a loop's most often: ours puts one item into a queue.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

HOOK = "dump signal"


class DumpSignal:
    """The handler. ``install`` and ``restore`` do nothing but on the main thread, and say so."""

    def __init__(self, ask: Callable[[str], None]) -> None:
        self._ask: Callable[[str], None] | None = ask
        self._handler: Any = self._asked  # one object: a bound method is another one each time

    def install(self) -> str | None:
        """Returns why it could not be installed; ``None``: it is."""
        number = getattr(signal, "SIGUSR1", None)
        if number is None:
            return "this system has no SIGUSR1"
        if threading.current_thread() is not threading.main_thread():
            return "a handler can be set on the main thread only; call attach() there"
        if signal.getsignal(number) is not signal.SIG_DFL:
            return "the program handles SIGUSR1 itself; its handler stays"
        signal.signal(number, self._handler)
        return None

    def restore(self) -> list[str]:
        """Put the default back, if the handler is still ours."""
        self._ask = None
        number = getattr(signal, "SIGUSR1", None)
        if number is None or signal.getsignal(number) is not self._handler:
            return []
        if threading.current_thread() is not threading.main_thread():
            return ["SIGUSR1 keeps a handler that does nothing: detach() was not called on the main thread."]
        signal.signal(number, signal.SIG_DFL)
        return []

    def _asked(self, number: int, frame: object) -> None:
        if self._ask is not None:
            self._ask("SIGUSR1 was sent.")
