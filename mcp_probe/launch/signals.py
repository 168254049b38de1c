"""Waiting for the command while passing on the signals that are meant for it.

The command stays in our process group, as if we were not there. So what the terminal sends (^C, ^\\, a resized
window) reaches it without us and is not passed on; what a process sends us is. A sender that signals the whole
group reaches the command twice, as with sudo: whoever sent it cannot be told from one who knows only our pid.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
# An SDK client that wants a server gone sends SIGKILL 2 s after SIGTERM; INT and HUP come from other supervisors.
_GOODBYES = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_OVERDUE_S = 1.5
# If everything to report has come already, most of these 2 s are left for the report: a busy machine takes long for it.
_SETTLED_S = 0.3
_LOOK_S = 0.1
_KEYBOARD = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A signal that came in; ``pass_on`` if the command has not received it itself."""

    number: int
    pass_on: bool


class SignalSource(Protocol):
    """Collects :data:`FORWARDED` and SIGCHLD from entering to leaving. Main thread only."""

    @property
    def mask_before(self) -> set[int] | None:
        """The signal mask the command must start with; ``None`` = the current one."""

    def __enter__(self) -> SignalSource: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def wait(self, seconds: float | None) -> Arrived | None:
        """The next signal, or ``None`` after ``seconds`` (and now and then before)."""


def signal_source() -> SignalSource:
    """The exact source where the system has one (it says who sent a signal), else the next best."""
    return BlockedSignals() if hasattr(signal, "sigtimedwait") else HandledSignals()


def heeded() -> list[signal.Signals]:
    """Those of :data:`FORWARDED` that were not set to be ignored (nohup, a background job)."""
    return [number for number in FORWARDED if signal.getsignal(number) != signal.SIG_IGN]


class BlockedSignals:
    """Blocks the signals and takes them one by one, sender included. Threads must be started while it is entered.

    Ignored ones, too: the command inherits that they are ignored, but it may have a handler of its own by now.
    """

    def __init__(self) -> None:
        self._numbers = {signal.SIGCHLD, *FORWARDED}
        self._mask_before: Iterable[int] = ()
        self._child_before: Any = None

    @property
    def mask_before(self) -> set[int]:
        return set(self._mask_before)

    def __enter__(self) -> BlockedSignals:
        self._child_before = signal.signal(signal.SIGCHLD, _ignore)  # an inherited SIG_IGN would lose the exit code
        self._mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        return self

    def __exit__(self, *exc_info: object) -> None:
        while self.wait(0) is not None:
            pass  # what came while the report was written has been answered by our ending
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)
        signal.signal(signal.SIGCHLD, self._child_before or signal.SIG_DFL)

    def wait(self, seconds: float | None) -> Arrived | None:
        info = signal.sigtimedwait(self._numbers, 3600.0 if seconds is None else max(0.0, seconds))
        if info is None:
            return None
        return Arrived(info.si_signo, pass_on=info.si_code <= 0)  # above 0: the kernel's own, sent to the whole group


class HandledSignals:
    """For systems that do not say who sent a signal: ^C in the terminal's foreground is taken for the terminal's.

    What was ignored is not passed on: with a handler here, the command would not inherit that it is ignored.
    """

    mask_before = None

    def __init__(self) -> None:
        self._numbers = (signal.SIGCHLD, *heeded())
        self._arrived: deque[Arrived] = deque()
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1

    def __enter__(self) -> HandledSignals:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._keep) for number in self._numbers}
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(self._wakeup_before)
        self._reader.close()
        self._writer.close()

    def wait(self, seconds: float | None) -> Arrived | None:
        if not self._arrived and select.select([self._reader], [], [], seconds)[0]:
            self._reader.recv(4096)
        return self._arrived.popleft() if self._arrived else None

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append(Arrived(number, pass_on=not (number in _KEYBOARD and _in_terminal_foreground())))


def _ignore(number: int, frame: FrameType | None) -> None:
    """SIGCHLD must have a handler: some systems throw away a signal that would be ignored, blocked or not."""


def _in_terminal_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def await_command(
    pid: int,
    source: SignalSource,
    on_overdue: Callable[[], object],
    has_all: Callable[[], bool] = lambda: False,
) -> int:
    """Exit code of the child ``pid``, negative for the signal that ended it; passes signals on meanwhile.

    Calls ``on_overdue`` once if the command still runs 1.5 s after it was told to end: what follows is often
    a SIGKILL that takes us too. 0.3 s are enough if it ``has_all`` that there is to report.
    """
    overdue_at: float | None = None
    told = False
    goodbyes = set(_GOODBYES).intersection(heeded())
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        left = None if overdue_at is None else overdue_at - time.monotonic()
        if left is not None and (left <= 0 or (left <= _OVERDUE_S - _SETTLED_S and has_all())):
            overdue_at = None
            on_overdue()
            continue
        arrived = source.wait(None if left is None else min(left, _LOOK_S))
        if arrived is None or arrived.number == signal.SIGCHLD:
            continue
        if arrived.pass_on:
            os.kill(pid, arrived.number)  # not reaped yet, so the number is still its own
        if arrived.number in goodbyes and (arrived.pass_on or arrived.number == signal.SIGHUP) and not told:
            told = True
            overdue_at = time.monotonic() + _OVERDUE_S
