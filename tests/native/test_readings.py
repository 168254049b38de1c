"""Readings in C and in Python: the same ring, and ticks that see the same."""

from __future__ import annotations

import gc
import os
import selectors
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.capture.readings import KEPT, TICK_NS, PythonReadings
from mcp_probe.clock import now_ns
from tests.native.twins import NativeMonitor, needs_the_accelerator

core: Any = native.core
LOOKER: Any = None if core is None else core.PipeLooker()

pytestmark = needs_the_accelerator


def twins(monitor: Any, clock: int | None = None, schedstat: int = -1) -> tuple[Any, Any]:
    return PythonReadings(monitor, clock, schedstat), core.Readings(monitor, clock, schedstat)


calls = st.tuples(st.sampled_from(["read", "before"]), st.integers(0, 200))


@given(st.lists(calls, max_size=3 * KEPT))
@settings(max_examples=100, deadline=None)
def test_the_ring_answers_the_same(script: list[tuple[str, int]]) -> None:
    both = twins(NativeMonitor())
    for name, at in script:
        one, two = (getattr(readings, name)(at) for readings in both)
        assert (one is None) == (two is None)
        if one is not None:
            assert one[:4] == two[:4] == (one[0], None, None, None)
            assert one[4] <= two[4] or name == "before"


def test_the_clocks_read_are_those_of_the_thread() -> None:
    clock = time.pthread_getcpuclockid(threading.get_ident())
    for readings in twins(NativeMonitor(), clock):
        before = time.clock_gettime_ns(clock)
        _, cpu, _, _, process = readings.read(1)
        assert before <= cpu <= time.clock_gettime_ns(clock)
        assert 0 < process <= time.process_time_ns()


@pytest.mark.parametrize(
    ("text", "found"),
    [("123 456 789\n", (456, 789)), ("123 456\n", (None, None)), ("a b c", (None, None)), ("", (None, None))],
)
def test_a_run_queue_that_cannot_be_read_is_unavailable(
    text: str, found: tuple[int | None, int | None], tmp_path: Path
) -> None:
    (tmp_path / "schedstat").write_text(text)
    descriptor = os.open(tmp_path / "schedstat", os.O_RDONLY)
    try:
        assert [readings.read(1)[2:4] for readings in twins(NativeMonitor(), None, descriptor)] == [found, found]
    finally:
        os.close(descriptor)


def test_a_clock_that_is_gone_is_unavailable() -> None:
    clocks: list[int] = []
    thread = threading.Thread(target=lambda: clocks.append(time.pthread_getcpuclockid(threading.get_ident())))
    thread.start()
    thread.join()
    with pytest.raises(OSError):  # join() returns a little before the system's thread has ended
        for _ in range(5_000):
            time.clock_gettime(clocks[0])
            time.sleep(0.001)
    for readings in twins(NativeMonitor(), clocks[0], 1 << 20):
        assert readings.read(1)[1:4] == (None, None, None)


def test_a_step_over_the_limit_ends_the_parking() -> None:
    monitor = NativeMonitor()
    monitor.since = now_ns() - 10**9
    assert core.park((core.Readings(monitor, None, -1),), 10**8, 1, 200 * 10**9, core.PipeLooker()) is True


def test_without_one_it_ends_in_time_however_long_the_limit() -> None:
    busy, idle = NativeMonitor(), NativeMonitor()
    busy.since = now_ns()
    watched = tuple(core.Readings(monitor, None, -1) for monitor in (busy, idle))
    assert core.park(watched, 10**15, 10**15, 2_000_000, core.PipeLooker()) is False
    assert core.park((), 10**15, 10**15, 2_000_000, core.PipeLooker()) is False


def test_a_reading_is_taken_as_an_iteration_begins_unless_there_is_a_fresh_one() -> None:
    monitor = NativeMonitor()
    readings = core.Readings(monitor, None, -1)
    with selectors.DefaultSelector() as selector:
        poll = core.Poll(monitor, type(selector).select, selector)
        for _ in range(1000):
            poll(0)
            first = readings.before(2**62)
            poll(0)
            if now_ns() - first[0] < TICK_NS:  # it still was fresh at the second poll
                break
        assert readings.before(2**62) == first
        readings.close()
        readings.read(0)
        poll(0)
        assert readings.before(2**62)[0] == 0


def test_readings_and_their_loop_are_collected_and_their_file_is_closed(tmp_path: Path) -> None:
    (tmp_path / "schedstat").touch()
    descriptor = os.open(tmp_path / "schedstat", os.O_RDONLY)
    monitor = NativeMonitor()
    monitor.kept = core.Readings(monitor, None, descriptor)
    gone = weakref.ref(monitor)
    del monitor
    gc.collect()
    assert gone() is None
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_others_run_while_it_parks() -> None:
    monitor = NativeMonitor()
    core.park((core.Readings(monitor, None, -1),), 1, 1_000, 10**7, core.PipeLooker())  # an earlier watchdog was woken
    over: list[bool] = []
    thread = threading.Thread(
        target=lambda: over.append(
            core.park((core.Readings(monitor, None, -1),), 1, 1_000, 200 * 10**9, core.PipeLooker())
        )
    )
    thread.start()
    monitor.since = now_ns() - 10**9
    thread.join(100)
    assert over == [True]


@pytest.mark.parametrize(
    "given", [(1, 2), ([], 1, 1, 1, LOOKER), ((1,), 1, 1, 1, LOOKER), ((), "x", 1, 1, LOOKER), ((), 1, 1, 1, ())]
)
def test_a_wrong_argument_is_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        core.park(*given)
    with pytest.raises(TypeError):
        core.Readings(*given)
