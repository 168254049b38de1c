"""Taking signals and passing them on, in this process and with a scripted source: run alone by test_signals.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from mcp_probe.launch.signals import FORWARDED, Arrived, BlockedSignals, HandledSignals, SignalSource, await_command

SOURCES = [HandledSignals, *([BlockedSignals] if hasattr(signal, "sigtimedwait") else [])]


@pytest.mark.parametrize("make", SOURCES)
def test_a_signal_from_a_process_is_to_be_passed_on(make: Callable[[], SignalSource]) -> None:
    with make() as source:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert source.wait(100) == Arrived(signal.SIGUSR1, pass_on=True)
        assert source.wait(0) is None


@pytest.mark.parametrize("make", SOURCES)
def test_the_end_of_a_child_wakes_it(make: Callable[[], SignalSource]) -> None:
    with make() as source, subprocess.Popen([sys.executable, "-c", ""]):
        arrived = source.wait(100)
        assert arrived is not None
        assert arrived.number == signal.SIGCHLD


@pytest.mark.parametrize("make", SOURCES)
def test_handlers_and_mask_are_restored(make: Callable[[], SignalSource]) -> None:
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1]
    before = [signal.getsignal(number) for number in numbers], signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with make():
        pass
    assert ([signal.getsignal(number) for number in numbers], signal.pthread_sigmask(signal.SIG_BLOCK, [])) == before


@pytest.mark.parametrize("make", SOURCES)
def test_an_ignored_signal_is_passed_on_where_the_command_inherits_that_it_is(
    make: Callable[[], SignalSource],
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with make() as source:
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
            passed_on = Arrived(signal.SIGHUP, pass_on=True)
            assert source.wait(0) == (passed_on if make is not HandledSignals else None)
    finally:
        signal.signal(signal.SIGHUP, before)


class Scripted:
    """A source that says what it is told to, then waits for the child itself."""

    mask_before = None

    def __init__(self, *arrivals: Arrived) -> None:
        self._arrivals = list(arrivals)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def wait(self, seconds: float | None) -> Arrived | None:
        if self._arrivals:
            return self._arrivals.pop(0)
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        return Arrived(signal.SIGCHLD, pass_on=True)


def sleeper() -> int:
    """A child that ends only by a signal, and is ready for one."""
    source = "import signal; print(flush=True); signal.pause()"
    child = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    child.returncode = 0  # waited for by await_command, not by Popen
    return child.pid


def test_the_exit_code_of_a_signalled_child_is_negative() -> None:
    told: list[None] = []
    code = await_command(sleeper(), Scripted(Arrived(signal.SIGTERM, pass_on=True)), lambda: told.append(None))
    assert (code, told) == (-signal.SIGTERM, [])


def test_what_the_terminal_sent_to_all_is_not_sent_again() -> None:
    typed = [Arrived(number, pass_on=False) for number in (signal.SIGINT, signal.SIGQUIT)]
    script = Scripted(*typed, Arrived(signal.SIGKILL, pass_on=True))
    assert await_command(sleeper(), script, lambda: None) == -signal.SIGKILL


def lingering() -> subprocess.Popen[bytes]:
    """A child that ignores SIGHUP. Others wait for it."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(1, signal.SIG_IGN); print(flush=True); signal.pause()"],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    child.returncode = 0
    return child


def test_a_child_that_lingers_after_a_goodbye_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 1))  # every look at the clock is a second later
    monkeypatch.setattr("mcp_probe.launch.signals.time.monotonic", lambda: float(next(now)))
    monkeypatch.setattr("mcp_probe.launch.signals.heeded", lambda: list(FORWARDED))  # under nohup, too
    told: list[None] = []
    hup, winch, kill = (Arrived(number, pass_on=True) for number in (signal.SIGHUP, signal.SIGWINCH, signal.SIGKILL))
    child = lingering()
    code = await_command(child.pid, Scripted(hup, winch, winch, hup, winch, winch, kill), lambda: told.append(None))
    assert (code, len(told)) == (-signal.SIGKILL, 1)


@pytest.mark.parametrize(("ready", "reported_at"), [((True, True), 2), ((False, True), 3), ((False, False), 6)])
def test_a_child_that_lingers_is_reported_as_soon_as_everything_to_report_has_come(
    ready: tuple[bool, bool], reported_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 0.3 s, since most that have sent their end leave at once; what follows may be a SIGKILL for all of us."""
    clock = iter(0.3 * tick for tick in range(1000))  # every look at the clock is so much later
    at: list[float] = []

    def monotonic() -> float:
        at.append(next(clock))
        return at[-1]

    monkeypatch.setattr("mcp_probe.launch.signals.time.monotonic", monotonic)
    monkeypatch.setattr("mcp_probe.launch.signals.heeded", lambda: list(FORWARDED))
    told: list[int] = []
    answers = iter(ready)
    hup, kill = (Arrived(number, pass_on=True) for number in (signal.SIGHUP, signal.SIGKILL))
    winches = [Arrived(signal.SIGWINCH, pass_on=True)] * 8
    child = lingering()
    script = Scripted(hup, *winches, kill)
    code = await_command(child.pid, script, lambda: told.append(len(at)), lambda: next(answers, ready[-1]))
    assert (code, len(told)) == (-signal.SIGKILL, 1)
    assert told == [reported_at]  # looks at the clock by then


def test_an_ignored_goodbye_is_no_reason_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 1))
    monkeypatch.setattr("mcp_probe.launch.signals.time.monotonic", lambda: float(next(now)))
    told: list[None] = []
    closed, winch = Arrived(signal.SIGHUP, pass_on=False), Arrived(signal.SIGWINCH, pass_on=True)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        script = Scripted(closed, winch, winch, winch, Arrived(signal.SIGKILL, pass_on=True))
        assert await_command(sleeper(), script, lambda: told.append(None)) == -signal.SIGKILL
    finally:
        signal.signal(signal.SIGHUP, before)
    assert told == []
