"""What jobs on worker threads wait for, against threads that wait, compute and contend by construction."""

from __future__ import annotations

import contextvars
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from time import sleep as imported_by_name
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe.capture.await_kinds import callee_of, path_of_callee
from mcp_probe.capture.await_looks import StackNames
from mcp_probe.capture.awaits import Awaits
from mcp_probe.capture.executor import Pools
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.job_looks import JobLooks, running_jobs
from mcp_probe.clock import now_ns
from mcp_probe.record.awaits import LOOK_EDGE_NS, MOST_WORK, job_looks, job_work
from mcp_probe.record.raw import AwaitMark, Job, JobLook

MS = 1_000_000
needs_counts = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts how often a thread ran")
needs_positions = pytest.mark.skipif(sys.version_info < (3, 11), reason="CPython 3.10 does not say what is called")


class Thing:
    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name, self.tag = kind, name, "exact"


@contextmanager
def running(function: Callable[[], Any]) -> Iterator[Job]:
    """``function`` as a job on a thread of its own."""
    pools = Pools(Hub(1 << 62).fail)
    pool = pools.pool_of(pools, "test", None, lambda owner: (None, 0))
    job = pools.submit(pool, "tool")
    thread = threading.Thread(target=lambda: pools.run(job, function))
    thread.start()
    try:
        yield job
    finally:
        thread.join()


def looked(function: Callable[[], Any], pause_s: float) -> tuple[list[AwaitMark], Job]:
    """(what looks saw until its end, the job after its end); made again where a busy host let nobody look for long."""
    for _ in range(10):
        marks, job, at = looked_once(function, pause_s)
        assert job.start_ns is not None and job.finish_ns is not None
        if max(b - a for a, b in pairwise((job.start_ns, *at, job.finish_ns))) <= LOOK_EDGE_NS // 2:
            break
    return marks, job


def looked_once(
    function: Callable[[], Any], pause_s: float, over: threading.Event | None = None
) -> tuple[list[AwaitMark], Job, list[int]]:
    """The same, and when it was looked. ``over`` is set once a wait of 0.2 s was seen: the job ends only then."""
    looks, at = JobLooks(StackNames(Awaits())), []
    with running(function) as job:
        while not job.thread_id:
            time.sleep(0.001)
        give_up = time.monotonic() + 30
        while running_jobs([job]):
            looks.look(job)
            at.append(now_ns())
            if over is not None and (waited(job_looks([job])) >= 200 * MS or time.monotonic() > give_up):
                over.set()
            time.sleep(pause_s)
    return job_looks([job]), job, at


def waited(marks: list[AwaitMark]) -> int:
    return sum((mark.to_ns or mark.from_ns) - mark.from_ns for mark in marks)


def sleep_long() -> None:
    time.sleep(0.3)


def sleep_by_name() -> None:
    imported_by_name(0.3)


def compute() -> None:
    until = time.thread_time_ns() + 150 * MS
    while time.thread_time_ns() < until:
        pass


def wait_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=0.3)


GATE = threading.Lock()
AGAIN = threading.RLock()


class Gated:
    gate = threading.Lock()

    def wait(self) -> None:
        with self.gate:
            pass


def wait_at_with() -> None:
    with GATE:
        pass


def wait_again_at_with() -> None:
    with AGAIN:
        pass


@contextmanager
def held_until(lock: Any) -> Iterator[threading.Event]:
    """By another thread, until the event that this gives is set."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield over
    finally:
        over.set()
        thread.join()


def work_and_sleep() -> None:
    compute()
    time.sleep(0.3)


def two_lines() -> None:
    for _ in range(20):
        until = time.thread_time_ns() + 21 * MS
        while time.thread_time_ns() < until:
            pass
        until = time.thread_time_ns() + 9 * MS
        while time.thread_time_ns() < until:
            pass


@needs_counts
def test_what_a_job_computes_is_divided_among_its_lines() -> None:
    """420 ms of CPU at one line and 180 at the next, looked at some 100 times: 0.7 with an error of 0.05."""
    for _ in range(10):
        looks, at = JobLooks(StackNames(Awaits())), []
        with running(two_lines) as job:
            while running_jobs([job]) or not job.thread_id:
                looks.look(job)
                at.append(now_ns())
                time.sleep(random.uniform(0.0025, 0.0075))
        # Else one line was seen to have computed all of it, or few looks say how much.
        if max(b - a for a, b in pairwise(at)) <= 60 * MS and len(at) >= 60:
            break
    second = two_lines.__code__.co_firstlineno + 5
    found = [(int((where or "").rpartition(":")[2]), ns) for where, _, ns, _ in job_work([job])]
    whole = sum(ns for _, ns in found)
    assert whole == pytest.approx(job.cpu_ns, rel=0.1)
    assert sum(ns for line, ns in found if line < second) / whole == pytest.approx(0.7, abs=0.2)


@needs_counts
def test_a_job_that_waits_computed_nothing() -> None:
    _, job = looked(sleep_long, 0.01)
    assert job_work([job]) == ()


@needs_counts
@pytest.mark.parametrize("function", [sleep_long, pytest.param(sleep_by_name, marks=needs_positions)])
def test_a_job_that_sleeps_is_named_for_nearly_all_of_its_run(function: Callable[[], None]) -> None:
    marks, job = looked(function, 0.01)
    assert job.start_ns is not None and job.finish_ns is not None
    named = sum((mark.to_ns or 0) - mark.from_ns for mark in marks)
    assert named >= 0.8 * (job.finish_ns - job.start_ns)
    assert all(mark.in_job and mark.where == f"{__file__}:{function.__code__.co_firstlineno + 1}" for mark in marks)
    if function is sleep_by_name or sys.version_info >= (3, 11):
        assert {(mark.thing.kind, mark.thing.name) for mark in marks} == {("sleep", "sleep")}


@needs_counts
@needs_positions
def test_a_lock_that_is_acquired_is_named_as_it_is_written() -> None:
    marks, _ = looked(wait_for_a_lock, 0.01)
    assert {(mark.thing.kind, mark.thing.name) for mark in marks} == {("lock", "lock lock")}
    assert sum((mark.to_ns or 0) - mark.from_ns for mark in marks) >= 150 * MS


@needs_counts
@needs_positions
@pytest.mark.parametrize(
    ("function", "lock", "name"),
    [
        (Gated().wait, Gated.gate, "lock self.gate"),
        (wait_at_with, GATE, "threading.Lock test_job_looks.GATE"),
        (wait_again_at_with, AGAIN, "threading.RLock test_job_looks.AGAIN"),
    ],
)
def test_a_lock_that_a_with_takes_is_named_by_its_variable(function: Callable[[], None], lock: Any, name: str) -> None:
    with held_until(lock) as over:
        marks, _, _ = looked_once(function, 0.01, over)
    assert {(mark.thing.kind, mark.thing.name) for mark in marks} == {("lock", name)}
    assert sum((mark.to_ns or 0) - mark.from_ns for mark in marks) >= 150 * MS


def is_at(function: Callable[[], None], job: Job) -> bool:
    frame = sys._current_frames().get(job.thread_id)
    return frame is not None and frame.f_code.co_name == function.__name__


@needs_counts
@needs_positions
def test_a_lock_that_one_look_cannot_tell_from_the_gil_is_looked_at_again() -> None:
    """A module's lock that is held needs one look; of one that is an attribute it is not known whether it is held."""
    for function, lock, is_sure in ((wait_at_with, GATE, True), (Gated().wait, Gated.gate, False)):
        looks = JobLooks(StackNames(Awaits()))
        with held_until(lock) as over, running(function) as job:
            while not (job.thread_id and is_at(function, job)):
                time.sleep(0.001)
            time.sleep(0.05)  # it takes the lock in its first line
            looks.look(job)
            assert (job.looks is not None, looks.unsure([job]) == []) == (is_sure, is_sure)
            time.sleep(0.05)
            looks.look(job)
            over.set()
            assert job.looks and looks.unsure([job]) == []


@needs_positions
def test_what_a_call_made_is_no_lock_with_a_name() -> None:
    def enter() -> tuple[str, ...]:
        with Entered() as path:
            return path

    class Entered:
        def __enter__(self) -> tuple[str, ...]:
            return path_of_callee(sys._getframe(1))

        def __exit__(self, *exc: object) -> None: ...

    assert enter() == ()


def test_a_job_that_computes_waits_for_nothing() -> None:
    marks, _ = looked(compute, 0.005)
    assert marks == []


@needs_counts
def test_a_thread_that_contends_for_the_gil_is_not_taken_for_one_that_waits() -> None:
    """Its instruction is the same at many looks: the GIL changes hands at few places."""
    stop = threading.Event()
    hogs = [threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)]) for _ in range(3)]
    for hog in hogs:
        hog.start()
    try:
        marks, _ = looked(compute, 0.01)
    finally:
        stop.set()
        for hog in hogs:
            hog.join()
    assert marks == []


@needs_counts
def test_work_before_a_wait_is_not_part_of_it() -> None:
    marks, job = looked(work_and_sleep, 0.005)
    assert job.start_ns is not None and job.cpu_ns is not None
    named = sum((mark.to_ns or 0) - mark.from_ns for mark in marks)
    assert named <= job.finish_ns - job.start_ns - job.cpu_ns * 0.9  # type: ignore[operator]


def ended(look: JobLook, *, rest_ms: int, worked_ms: int) -> AwaitMark:
    job = Job(None, None, "tool", 0)
    job.start_ns, job.start_cpu_ns = 0, 0
    job.looks = [look]
    job.finish_ns = look.to_ns + rest_ms * MS
    job.cpu_ns = look.cpu_ns + worked_ms * MS
    return job_looks([job])[0]


def test_the_last_wait_goes_on_to_the_end_of_a_job_that_hardly_worked_after_it() -> None:
    look = JobLook(0, 50 * MS, 3 * MS, Thing("sleep", "sleep"), "n.py:3")
    assert ended(look, rest_ms=20, worked_ms=1).to_ns == 69 * MS
    assert ended(look, rest_ms=20, worked_ms=int(20 * MOST_WORK) + 1).to_ns == 50 * MS
    assert ended(look, rest_ms=LOOK_EDGE_NS // MS + 1, worked_ms=0).to_ns == 50 * MS


@needs_positions
def test_callees_are_named_by_what_they_are_and_never_by_values() -> None:
    def seen(*args: object) -> str | None:
        return callee_of(sys._getframe(1), path_of_callee(sys._getframe(1)))

    table = {"token": seen}
    holder = SimpleNamespace(method=seen, private="private")
    # Not within assertions: pytest writes those anew.
    function = callee_of_global("private")
    method = holder.method(holder.private, "private")
    item = table["token"]()
    assert function == f"{__name__}.callee_of_global"
    assert method == "holder.method"
    assert "token" not in str(item)


def callee_of_global(text: str) -> str | None:
    return callee_of(sys._getframe(1), path_of_callee(sys._getframe(1)))


@needs_counts
@pytest.mark.parametrize(
    "function",
    [partial(time.sleep, 0.2), partial(contextvars.copy_context().run, time.sleep, 0.2)],
    ids=["partial", "in a context"],
)
def test_a_job_that_is_a_function_of_c_has_its_name(function: Callable[[], Any]) -> None:
    marks, job = looked(function, 0.01)
    assert {(mark.thing.kind, mark.thing.name, mark.where) for mark in marks} == {("sleep", "sleep", None)}
    assert sum((mark.to_ns or 0) - mark.from_ns for mark in marks) >= 0.8 * 200 * MS
    assert job.called == "time.sleep"
