"""Polls in C and in Python against the selector's own ``select``: same events, same faults, and their two instants."""

from __future__ import annotations

import ctypes
import gc
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.adapters.asyncio_handles import unfollow
from mcp_probe.adapters.asyncio_loop import _make_select, _without_self
from mcp_probe.capture.context_switches import GIL_NS, NOT_COUNTED, switches_so_far
from mcp_probe.capture.loop_steps import WAITED_NS, WORK_NS
from mcp_probe.record.raw import RING_NS
from tests.native.loops import twin
from tests.native.twins import NativeMonitor, PythonMonitor

core: Any = native.core

__all__ = ["twin"]  # a fixture
MS = 1_000_000
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


def python_poll(original: Any, selector: Any) -> tuple[Any, Any]:
    monitor = PythonMonitor()
    return _make_select(monitor, original, weakref.ref(selector)), monitor  # type: ignore[arg-type]


def native_poll(original: Any, selector: Any) -> tuple[Any, Any]:
    monitor = NativeMonitor()
    return core.Poll(monitor, original, selector), monitor


Make = Callable[[Any, Any], tuple[Any, Any]]


@pytest.fixture
def make(twin: str) -> Iterator[Make]:
    """Makes polls of one twin, and their monitors."""
    monitors = []

    def made(original: Any, selector: Any) -> tuple[Any, Any]:
        poll, monitor = (native_poll if twin == "native" else python_poll)(original, selector)
        monitors.append(monitor)
        return poll, monitor

    yield made
    for monitor in monitors:
        unfollow(monitor)


KINDS = [
    kind
    for name in ("EpollSelector", "PollSelector", "SelectSelector", "KqueueSelector")
    if (kind := getattr(selectors, name, None)) is not None
]


@pytest.fixture
def selector() -> Iterator[Any]:
    with selectors.DefaultSelector() as one:
        yield one


def poll_of(selector: Any, make: Make) -> tuple[Any, Any]:
    return make(type(selector).select, selector)


@pytest.mark.parametrize("kind", KINDS)
def test_events_are_those_of_the_selectors_own(kind: type[Any], make: Make) -> None:
    with ExitStack() as stack:
        selector = stack.enter_context(kind())
        poll, _ = poll_of(selector, make)
        pairs = [tuple(stack.enter_context(end) for end in socket.socketpair()) for _ in range(6)]
        asked = (READ, WRITE, READ | WRITE)
        for number, (one, other) in enumerate(pairs):
            selector.register(one, asked[number % 3], data=number)
            if number < 3:
                other.send(b"x")
        found = sorted(poll(0), key=lambda row: row[0].fd)  # levels, not edges: asking twice changes nothing
        assert found == sorted(selector.select(0), key=lambda row: row[0].fd)
        assert {key.data: mask for key, mask in found} == {0: READ, 1: WRITE, 2: READ | WRITE, 4: WRITE, 5: WRITE}


class Answering:
    """Stands in for a selector: notes what it is asked, and answers or raises as told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def select(self, *args: Any, **kwargs: Any) -> Any:
        self.asked.append((args, kwargs))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@given(timeout=st.none() | st.integers() | st.floats() | st.text(), named=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_selector_is_asked_the_same_and_its_answer_is_handed_on(make: Make, timeout: Any, named: bool) -> None:
    selector = Answering([object()])
    poll, _ = poll_of(selector, make)
    assert (poll(timeout=timeout) if named else poll(timeout)) is selector.answer
    _ = selector.select(timeout=timeout) if named else selector.select(timeout)
    assert repr(selector.asked[0]) == repr(selector.asked[1])


def test_a_select_that_somebody_wrapped_on_the_instance_is_called(make: Make) -> None:
    selector = Answering([])
    poll, _ = make(_without_self(selector.select), selector)
    assert poll() == poll(3) == []
    assert selector.asked == [((), {}), ((3,), {})]


@pytest.mark.parametrize("fault", [ValueError("closed"), OSError(9, "bad"), KeyboardInterrupt(), SystemExit(1)])
def test_a_fault_of_the_system_and_a_ctrl_c_come_out_and_the_poll_is_over(fault: BaseException, make: Make) -> None:
    selector = Answering(fault)
    poll, monitor = poll_of(selector, make)
    with pytest.raises(type(fault)) as caught:
        poll(1)
    assert caught.value is fault
    assert monitor.since == monitor.poll_end > 0
    assert monitor.take_poll_counts(None)[0] == 1 and not monitor.polling


@pytest.mark.parametrize("timeout", ["x", b"", [], object(), float("inf"), 1e300, float("nan"), 10**400])
def test_a_timeout_that_the_selector_refuses_is_refused(timeout: Any, make: Make, selector: Any) -> None:
    poll, monitor = poll_of(selector, make)
    told = []
    for select in (selector.select, poll):
        with pytest.raises((TypeError, OverflowError, ValueError)) as caught:
            select(timeout)
        told.append((type(caught.value), str(caught.value)))
    assert told[0] == told[1]
    monitor.take_poll_counts(None)
    assert not monitor.polling


def test_a_closed_selector_refuses_as_it_does_without(make: Make) -> None:
    selector = selectors.DefaultSelector()
    poll, _ = poll_of(selector, make)
    selector.close()
    told = []
    for select in (selector.select, poll):
        with pytest.raises(ValueError) as caught:
            select(0)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_a_wrong_call_is_refused(make: Make, selector: Any) -> None:
    poll, monitor = poll_of(selector, make)
    wrong: list[Any] = [
        ((0, 1), {}),
        ((), {"when": 0}),
        ((0, 1, 2, 3), {}),
        ((0,), {"timeout": 0}),
    ]
    for args, kwargs in wrong:
        with pytest.raises(TypeError):
            poll(*args, **kwargs)
    monitor.alive = False
    assert poll(0) == poll(timeout=0) == []


@pytest.mark.skipif(native.core is None, reason="the native twin's own")
@pytest.mark.parametrize("given", [(), (1, 2, 3), (None, None, None)])
def test_a_poll_is_made_of_steps(given: Any, selector: Any) -> None:
    with pytest.raises(TypeError):
        core.Poll(*given)
    with pytest.raises(TypeError):
        core.Poll(NativeMonitor(), type(selector).select, 1)  # of which there is no weak reference


def test_a_signal_interrupts_neither_and_its_handler_runs(make: Make, selector: Any) -> None:
    poll, _ = poll_of(selector, make)
    caught: list[int] = []
    previous = signal.signal(signal.SIGUSR1, lambda number, _: caught.append(number))
    reader, writer = os.pipe()
    selector.register(reader, READ)
    main = threading.get_ident()

    def send() -> None:
        signal.pthread_kill(main, signal.SIGUSR1)
        while not caught:
            time.sleep(0.001)
        os.write(writer, b"x")

    thread = threading.Thread(target=send)
    try:
        thread.start()
        found = poll(30)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)
        selector.unregister(reader)
        os.close(reader)
        os.close(writer)
    assert caught == [signal.SIGUSR1]
    assert [mask for _, mask in found] == [READ]


def test_what_it_had_to_wait_for_came_just_then(make: Make, selector: Any) -> None:
    poll, monitor = poll_of(selector, make)
    here, there = socket.socketpair()
    with here, there:
        selector.register(here, READ)
        poll(0)
        before, began = monitor.looked, time.monotonic_ns()
        timer = threading.Timer(0.2, there.send, (b"x",))
        timer.start()
        assert len(poll(30)) == 1
        timer.join()
        if monitor.event_earliest != before:  # else others have taken its CPU: then nothing is known of it
            assert began + 150 * MS < monitor.event_earliest <= monitor.event_ready == monitor.poll_end
        for _ in range(100):
            before, began = monitor.looked, time.monotonic_ns()
            assert len(poll(30)) == 1
            if time.monotonic_ns() - began < WAITED_NS:  # else it may have waited, for all that it knows
                break
        else:
            pytest.skip("every poll took 0.2 ms here")
        assert monitor.event_earliest == before < monitor.event_ready == monitor.poll_end, "it was there already"


class Slow:
    """Takes as long as one that waited, or whose thread was kept from the CPU."""

    def select(self, timeout: Any = None) -> list[Any]:
        time.sleep(WAITED_NS * 2 / 1e9)
        return []


class Hesitant:
    """Finds at once what lay there, and comes back late, as on a busy host."""

    def select(self, timeout: Any = None) -> list[Any]:
        time.sleep(2 * WAITED_NS / 1e9)
        return []


def test_after_long_work_a_poll_must_be_long_to_have_waited(make: Make) -> None:
    """On a machine that is too busy for that the poll takes too long, and is tried again."""
    for _ in range(100):
        selector = Hesitant()
        poll, monitor = poll_of(selector, make)
        poll(1)
        before = monitor.looked
        time.sleep(2 * WORK_NS / 1e9)
        began = time.monotonic_ns()
        poll(1)
        if time.monotonic_ns() - began < GIL_NS:
            assert monitor.event_earliest == before
            return
    pytest.skip("every poll took 6 ms here")


def spin(seconds: float) -> None:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        pass


@contextmanager
def computing(threads: int) -> Iterator[None]:
    """Others compute meanwhile, and the GIL comes back late."""
    over = False

    def compute() -> None:
        while not over:
            pass

    others = [threading.Thread(target=compute) for _ in range(threads)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        over = True
        for other in others:
            other.join()


def test_what_lay_there_after_long_work_did_not_just_come_beside_threads_that_compute(
    make: Make, selector: Any
) -> None:
    poll, monitor = poll_of(selector, make)
    one, other = socket.socketpair()
    with one, other, computing(2):
        selector.register(one, READ)
        for _ in range(30):
            poll(0)
            other.send(b"x")
            sent = time.monotonic_ns()
            spin(0.02)
            assert len(poll(1)) == 1
            one.recv(1)
            assert monitor.event_earliest < sent


TWO_WRITES = """
import os, time
for fd, wait in ((1, 0.3), (2, 0.15)):
    time.sleep(wait)
    os.write(fd, str(time.monotonic_ns()).encode())
"""


def hold_the_gil() -> None:
    """As a regular expression may, or a long sum in C."""
    time.sleep(0.1)
    ctypes.PyDLL(None).usleep(700_000)


@pytest.mark.skipif(switches_so_far() == NOT_COUNTED, reason="this system does not count context switches")
def test_what_came_while_another_thread_held_the_gil_did_not_come_as_it_let_go(make: Make, selector: Any) -> None:
    """The first bytes wake the thread, which then waits for the GIL. The others come meanwhile."""
    poll, monitor = poll_of(selector, make)
    command = [sys.executable, "-S", "-c", TWO_WRITES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as other:
        assert other.stdout is not None and other.stderr is not None
        selector.register(other.stdout, READ)
        selector.register(other.stderr, READ)
        holding = threading.Thread(target=hold_the_gil)
        holding.start()
        found = poll(30)
        first, late = monitor.event_earliest, monitor.event_ready
        holding.join()
        assert [key.fileobj for key, _ in found] == [other.stdout], "this machine stood still for 150 ms"
        came = int(other.stdout.read(64))
        selector.unregister(other.stdout)
        assert late - came > 200 * MS, "the other thread held the GIL"
        assert first <= came
        assert len(poll(30)) == 1
        assert monitor.event_earliest <= int(other.stderr.read(64)) < late


@pytest.mark.skipif(switches_so_far() == NOT_COUNTED, reason="this system does not count context switches")
def test_a_thread_that_slept_after_long_work_was_woken_by_what_came(make: Make, selector: Any) -> None:
    """In some round: where others take the CPU meanwhile, nobody knows."""
    poll, monitor = poll_of(selector, make)
    one, other = socket.socketpair()
    with one, other:
        selector.register(one, READ)
        for _ in range(20):
            spin(0.002)
            later = threading.Timer(0.05, other.send, [b"x"])
            later.start()
            began = time.monotonic_ns()
            assert len(poll(30)) == 1
            later.join()
            one.recv(1)
            if monitor.event_earliest >= began + 40 * MS:
                return
    pytest.fail("in none of 20 rounds")


@pytest.mark.parametrize(("timeout", "waited"), [(0, False), (0.0, False), (0.001, True), (1, True), (None, True)])
@pytest.mark.parametrize("named", [False, True])
def test_a_poll_that_was_told_not_to_wait_did_not_however_long_it_took(
    make: Make, timeout: Any, waited: bool, named: bool
) -> None:
    """One that was told to wait did so in some round: with work of 1 ms just before it, nobody knows."""
    for _ in range(20):
        selector = Slow()
        poll, monitor = poll_of(selector, make)
        before = monitor.looked
        _ = poll(timeout=timeout) if named else poll(timeout)
        assert monitor.event_ready == monitor.poll_end
        if waited and monitor.event_earliest == monitor.poll_end:
            return
        assert monitor.event_earliest == before
    assert not waited


def test_a_poll_notes_its_instants_and_the_stretch_before_it(make: Make, selector: Any) -> None:
    poll, monitor = poll_of(selector, make)
    monitor.now -= RING_NS
    before = monitor.now
    poll(0)
    assert [told[0] for told in monitor.told] == ["keep"]
    assert monitor.told[0][2:] == (before, monitor.told[0][3])
    assert before + RING_NS <= monitor.told[0][3] <= monitor.poll_end == monitor.now == monitor.since
    polls, poll_ns, _, _, _, _ = monitor.take_poll_counts(None)
    assert polls == 1 and poll_ns >= 0


def test_a_fault_of_ours_in_a_poll_leaves_the_poll_alone_and_no_step_behind(
    make: Make, selector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, monitor = poll_of(selector, make)

    def fails(*_: Any) -> None:
        raise LookupError("ours")

    def broken(exc: Exception) -> None:
        monitor.told.append(repr(exc))
        monitor.alive, monitor.since = False, 0

    monkeypatch.setattr(type(monitor), "_keep", fails)
    monitor.broken = broken
    monitor.now -= RING_NS
    assert poll(0) == []
    assert monitor.told == ["LookupError('ours')"]
    assert not monitor.alive
    assert monitor.since == 0


def test_a_poll_holds_on_to_no_selector(make: Make) -> None:
    selector = Answering([])
    poll, _ = poll_of(selector, make)
    gone = weakref.ref(selector)
    del selector
    assert gone() is None
    with pytest.raises((TypeError, AttributeError)):
        poll(0)


def test_a_poll_in_a_cycle_is_collected(make: Make) -> None:
    selector: Any = Answering([])
    selector.poll, monitor = poll_of(selector, make)
    monitor.poll = selector.poll
    gone = weakref.ref(selector)
    del selector, monitor
    gc.collect()
    assert gone() is None
