"""Runs a function when a process ends, even if it is a child of :mod:`multiprocessing` or sends itself a signal.

Until CPython 3.13 such a child leaves through ``os._exit`` and runs no ``atexit``. It runs
multiprocessing's own finalizers, and forgets those of its parent when it begins.

uvicorn shuts down at a signal, restores the handler that was there before, and sends itself the signal again: with
the default handler the process is gone, and no ``atexit`` has run.

Source: uvicorn/server.py ``capture_signals``, 0.29-0.38; multiprocessing/process.py ``BaseProcess._bootstrap`` and
multiprocessing/util.py, CPython 3.10-3.13.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet, ref

from mcp_probe.adapters.hook import Hook
from mcp_probe.capture.hub import Hub

EXIT_BUDGET_S = 0.5
"""What we may add to the end of a process."""
_FATAL = {getattr(signal, name, None) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")}

_forgotten: WeakSet[Any] = WeakSet()
"""Owners of methods that are not to be called any more."""


def is_made_by_multiprocessing() -> bool:
    """Whether this process is a child of :mod:`multiprocessing`, or its fork server.

    Both import the main module of the process that uses them, under the name ``__mp_main__``. The fork server counts
    while it does.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    main = sys.modules.get("__mp_main__")
    return process.parent_process() is not None or (main is not None and main is not sys.modules.get("__main__"))


def call_at_exit(finish: Callable[[], None]) -> None:
    """Call the bound method ``finish`` once at the end of this process; a process forked from it does not."""
    owner = finish.__self__  # type: ignore[attr-defined]
    _forgotten.discard(owner)
    atexit.register(finish)
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is None or process is None:
        return  # neither a child of multiprocessing nor about to become one
    # Not a WeakMethod: in a child of CPython 3.14's forkserver that one may be told of a death after its own.
    here, known, function = os.getpid(), ref(owner), finish.__func__  # type: ignore[attr-defined]

    def arm(_: object) -> None:
        living = known()
        if living is not None and os.getpid() == here:
            method = function.__get__(living)
            atexit.unregister(method)  # CPython 3.13 and children that were spawned would call it as well
            util.Finalize(None, _finish, args=(method,), exitpriority=0)

    if process.parent_process() is not None:
        arm(None)
    else:
        util.register_after_fork(owner, arm)


def forget_exit(finish: Callable[[], None]) -> None:
    """Do not call ``finish`` after all."""
    _forgotten.add(finish.__self__)  # type: ignore[attr-defined]
    atexit.unregister(finish)


def call_before_threads_end(function: Callable[[], None]) -> None:
    """Call ``function`` as the process ends, before executors let their threads go; not where CPython cannot do so.

    That cannot be undone. Source: ``threading._register_atexit``, CPython 3.9-3.15.
    """
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with suppress(RuntimeError):  # the process ends already
            register(function)


class HeldSignal:
    """SIGTERM, while this is entered: if it comes and nobody handles it, it ends the process on leaving.

    An MCP client sends it 2 s after it has closed the pipe, and SIGKILL 2 s later. Only on the main thread; nothing is
    held elsewhere, or where the server has a handler of its own.
    """

    def __init__(self) -> None:
        self.came = False  # whether the process has been told to end
        self._holds = False

    def __enter__(self) -> HeldSignal:
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._note)
            self._holds = True
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._holds:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if self.came:
                os.kill(os.getpid(), signal.SIGTERM)

    def _note(self, *_: object) -> None:
        self.came = True  # no lock: a second signal may interrupt this


def _finish(finish: Callable[[], None]) -> None:
    if finish.__self__ not in _forgotten:  # type: ignore[attr-defined]
        finish()


class SignalHook:
    """``signal.raise_signal``, where it is about to end the process: what was seen is handed on first."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._hook = Hook(hub, "end by a signal")

    def install(self) -> None:
        """Wrap it."""
        self._hook.wrap(signal, "raise_signal", before=self._before)

    def restore(self) -> list[str]:
        """Undo it."""
        return self._hook.restore()

    def _before(self, number: int) -> None:
        if number in _FATAL and signal.getsignal(number) == signal.SIG_DFL:
            self._hub.process_ends(EXIT_BUDGET_S)
