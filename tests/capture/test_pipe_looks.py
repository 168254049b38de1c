"""Looks at a pipe between its reads, in both twins."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.capture.pipe_looks import KEPT, PythonPipeLooker, PythonPipeLooks
from mcp_probe.capture.readings import LOOK_NS, _park
from mcp_probe.clock import now_ns
from tests.native.twins import needs_the_accelerator
from tests.rounds import until_right


def _native() -> Any:
    assert native.core is not None
    return native.core.PipeLooks()


@pytest.fixture(params=[PythonPipeLooks, pytest.param(_native, id="native", marks=needs_the_accelerator)])
def looks(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
def pipe(looks: Any) -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    looks.descriptor = reading
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_a_look_sees_how_many_bytes_have_come(looks: Any, pipe: tuple[int, int]) -> None:
    _, writing = pipe
    os.write(writing, b"12345")
    before = now_ns()
    looks.look()
    between = now_ns()
    looks.look()
    os.write(writing, b"678")
    looks.look()
    after = now_ns()
    first, second = looks.take()
    assert (first[0], second[0]) == (5, 8)
    assert before <= first[1] <= between <= first[2] <= second[2] <= second[1] <= after
    assert looks.take() == []


def test_bytes_that_were_read_count_too(looks: Any, pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b"12345")
    ready, before, after = looks.begin()
    assert ready == 5 and before <= after
    assert looks.end(len(os.read(reading, 4)))[0] == 0
    looks.look()
    assert [row[0] for row in looks.take()] == [5]


def test_a_look_during_a_read_does_not_count(looks: Any, pipe: tuple[int, int]) -> None:
    looks.begin()
    looks.look()
    assert looks.take() == []
    looks.begin()  # the read before had raised
    looks.look()
    assert looks.take() == []
    looks.end(0)
    looks.look()
    assert [row[0] for row in looks.take()] == [0]


def test_a_read_that_waited_slept_once(looks: Any, pipe: tuple[int, int]) -> None:
    """Or a few times: a thread that waits for the GIL of one without a CPU wakes up each 5 ms."""
    assert until_right(lambda: sleeps_of_a_read(looks, pipe), lambda sleeps: sleeps <= 3) <= 3


def sleeps_of_a_read(looks: Any, pipe: tuple[int, int]) -> int:
    reading, writing = pipe
    slept: list[int] = []

    def read() -> None:
        assert looks.begin()[0] == 0
        begun.set()
        slept.append(looks.end(len(os.read(reading, 10)))[0])

    begun = threading.Event()
    thread = threading.Thread(target=read)
    thread.start()
    begun.wait()
    threading.Event().wait(0.05)
    os.write(writing, b"x")
    thread.join()
    assert slept[0] >= 1
    return slept[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says so")
def test_a_read_says_how_long_its_thread_waited_for_a_cpu(looks: Any, pipe: tuple[int, int]) -> None:
    """Against the thread's own counter, on a CPU that it shares with a process that spins."""
    found: list[tuple[int, int, int]] = []

    def waited_ns() -> int:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1])

    def read() -> None:
        os.sched_setaffinity(0, {cpu})
        before = waited_ns()
        looks.begin()
        after = waited_ns()
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        until_then = waited_ns()
        queued = looks.end(0)[1]
        found.append((until_then - after, queued, waited_ns() - before))

    cpu = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin]) as spinner:
        try:
            for _ in range(10):
                thread = threading.Thread(target=read)
                thread.start()
                thread.join()
        finally:
            spinner.kill()
    assert all(least <= queued <= most for least, queued, most in found), found
    assert max(least for least, _, _ in found) > 1_000_000


@pytest.mark.parametrize("descriptor", [-1, 1 << 20])
def test_without_a_pipe_nothing_is_seen(looks: Any, descriptor: int) -> None:
    looks.descriptor = descriptor
    assert looks.ready() is None
    assert looks.begin()[0] is None
    looks.end(3)
    looks.look()
    assert looks.take() == []


def test_the_watchdog_looks_at_a_pipe_whose_reader_has_no_thread(looks: Any, pipe: tuple[int, int]) -> None:
    parking: Any = _park
    looker: Any = PythonPipeLooker()
    if not isinstance(looks, PythonPipeLooks):
        assert native.core is not None
        parking, looker = native.core.park, native.core.PipeLooker()
    looker.look_at((looks,))
    looks.unattended = True
    os.write(pipe[1], b"x")
    lasted = 0
    for _ in range(20):  # on a busy machine one wait may be as long as all five
        began = now_ns()
        assert not parking((), LOOK_NS, LOOK_NS, 5 * LOOK_NS, looker)
        rows = looks.take()
        assert all(size == 1 for size, _, _ in rows)
        lasted = max(lasted, rows[-1][2] - began if rows else 0)
        if lasted >= 2 * LOOK_NS:
            return
    raise AssertionError(f"it stops at the looks that it makes before it parks: {lasted} ns")


@needs_the_accelerator
def test_the_looker_looks_while_a_call_keeps_the_gil(pipe: tuple[int, int], looks: Any) -> None:
    if isinstance(looks, PythonPipeLooks):
        pytest.skip("only a thread without the GIL can")
    assert native.core is not None
    looker = native.core.PipeLooker()
    looker.look_at((looks,))
    thread = threading.Thread(target=looker.run)
    os.write(pipe[1], b"x")
    thread.start()
    try:
        while not looks.take():
            time.sleep(0.001)
        began = now_ns()
        ctypes.PyDLL(None).usleep(20 * LOOK_NS // 1000)
        ended = now_ns()
    finally:
        looker.close()
        thread.join()
    ((size, first, last),) = looks.take()
    assert size == 1
    assert min(last, ended) - max(first, began) >= (ended - began) // 2


def test_looks_that_nobody_takes_are_bounded_and_stay_true(looks: Any, pipe: tuple[int, int]) -> None:
    for _ in range(KEPT + 10):
        os.write(pipe[1], b"x")
        looks.look()
    assert [row[0] for row in looks.take()] == list(range(1, KEPT + 1))
    looks.look()
    assert [row[0] for row in looks.take()] == [KEPT + 10]


def test_a_look_never_misses_bytes_that_a_read_takes_away(looks: Any, pipe: tuple[int, int]) -> None:
    """Nothing is written: whoever looks must always find the same number of bytes, read or not."""
    reading, writing = pipe
    os.write(writing, b"x" * 5000)
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            looks.look()

    watchdog = threading.Thread(target=watch)
    watchdog.start()
    found: set[int] = set()
    try:
        for _ in range(5000):
            looks.begin()
            looks.end(len(os.read(reading, 1)))
            found.update(row[0] for row in looks.take())
    finally:
        done.set()
        watchdog.join()
    found.update(row[0] for row in looks.take())
    assert found <= {5000}
