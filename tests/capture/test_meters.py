"""Steps and jobs that are measured in Python, on counters that the tests set."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mcp_probe.capture import meters
from mcp_probe.capture.executor import Pools
from mcp_probe.capture.loop_steps import PythonSteps
from mcp_probe.capture.meters import OTHERS_CPU_NS, TracemallocMeter
from mcp_probe.record.raw import RawRequest
from tests.native.twins import PythonRaw

WAKE = 0


class World:
    """What tracemalloc and the clocks say."""

    def __init__(self) -> None:
        self.held = self.peak = 1_000
        self.process_ns = self.thread_ns = self.now = 0

    def get_traced_memory(self) -> tuple[int, int]:
        return self.held, self.peak

    def reset_peak(self) -> None:
        self.peak = self.held

    def process_time_ns(self) -> int:
        return self.process_ns

    def thread_time_ns(self) -> int:
        return self.thread_ns

    def allocate(self, size: int) -> None:
        self.held += size
        self.peak = max(self.peak, self.held)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(meters, "tracemalloc", made)
    monkeypatch.setattr(meters, "time", made)
    monkeypatch.setattr(meters, "now_ns", lambda: made.now)
    return made


@pytest.fixture
def meter(world: World) -> TracemallocMeter:
    return TracemallocMeter()


def request(parent: RawRequest | None = None) -> RawRequest:
    raw: Any = PythonRaw(1, "request", "tools/call", "t", "stdio")
    raw.parent = parent
    return raw  # type: ignore[no-any-return]


class Loop(PythonSteps):
    """Steps of requests, with nothing beside them."""

    def __init__(self, meter: TracemallocMeter) -> None:
        super().__init__()
        self.meter = meter
        self.slow: deque[object] = deque()

    def _charge(self, owner: RawRequest | None, since: int, now: int, done: bool) -> None:
        """Who waits is no matter here."""

    def step(self, owner: RawRequest | None, world: World, *sizes: int) -> None:
        """A step of ``owner`` that allocates and frees ``sizes`` in turn."""
        self.begin(owner, 1, 0, 0, WAKE, self.now)
        for size in sizes:
            world.allocate(size)
        self.close(self.now, False)


def test_a_request_is_charged_what_its_own_steps_do(meter: TracemallocMeter, world: World) -> None:
    loop, first, second = Loop(meter), request(), request()
    loop.step(first, world, 500)
    loop.step(second, world, 9_000, -8_000)
    loop.step(None, world, 70_000, -30_000)
    loop.step(first, world, 300, -800)
    uses = [meter.use_of(raw) for raw in (first, second)]
    assert [(use.requested, use.peak, use.retained) for use in uses if use] == [(800, 800, 0), (9_000, 9_000, 1_000)]


def test_what_a_step_frees_of_others_takes_nothing_off_what_it_holds_later(
    meter: TracemallocMeter, world: World
) -> None:
    loop, raw = Loop(meter), request()
    loop.step(raw, world, -900)
    loop.step(raw, world, 400)
    use = meter.use_of(raw)
    assert use is not None and (use.peak, use.retained) == (400, 400)


def test_a_part_of_a_request_is_the_requests_too(meter: TracemallocMeter, world: World) -> None:
    whole = request()
    part = request(whole)
    Loop(meter).step(part, world, 500)
    assert [use.peak for raw in (whole, part) if (use := meter.use_of(raw))] == [500, 500]


def test_work_after_the_end_is_nobodys(meter: TracemallocMeter, world: World) -> None:
    loop, raw = Loop(meter), request()
    loop.step(raw, world, 500)
    raw.ended = True
    loop.step(raw, world, 500)
    use = meter.use_of(raw)
    assert use is not None and use.peak == 500


def test_a_step_beside_another_threads_work_makes_its_request_unavailable(
    meter: TracemallocMeter, world: World
) -> None:
    loop, beside, alone = Loop(meter), request(), request()
    for raw, others_ns in ((beside, OTHERS_CPU_NS + 1), (alone, OTHERS_CPU_NS)):
        loop.begin(raw, 1, 0, 0, WAKE, loop.now)
        world.allocate(100)
        world.thread_ns += 1_000_000
        world.process_ns += 1_000_000 + others_ns
        loop.close(loop.now, False)
    loop.step(beside, world, 100)
    assert meter.use_of(alone) is not None
    use = meter.use_of(beside)
    assert use is not None
    assert (use.requested, use.allocations, use.peak, use.retained) == (None,) * 4
    assert {row[1] for row in use.quality} == {"unavailable"} and len(use.quality) == 4


@pytest.mark.parametrize(
    ("length_ns", "others_ns", "alone"),
    [(5_000_000, 55_000, True), (5_000_000, 56_000, False), (10**9, 130_000, True), (10**9, 131_000, False)],
)
def test_waiting_for_the_gil_is_no_work(
    length_ns: int, others_ns: int, alone: bool, meter: TracemallocMeter, world: World
) -> None:
    raw = request()
    reading = meter.begin()
    world.now += length_ns
    world.process_ns += others_ns
    meter.end(reading, raw)
    use = meter.use_of(raw)
    assert use is not None and (use.peak is not None) == alone


@pytest.mark.parametrize("ended", [False, True], ids=["while it runs", "that ended within the step"])
def test_a_step_beside_a_requests_job_on_a_thread_is_not_its_own(
    ended: bool, meter: TracemallocMeter, world: World
) -> None:
    loop, works, other, later = Loop(meter), request(), request(), request()
    if not ended:
        meter.enter(works)
    loop.begin(other, 1, 0, 0, WAKE, loop.now)
    if ended:
        meter.enter(works)
        meter.leave(None)
    loop.close(loop.now, False)
    if not ended:
        meter.leave(None)
    loop.step(later, world, 10)
    found = [meter.use_of(raw) for raw in (works, other, later)]
    assert [use.peak for use in found if use] == [None, None, 10]


def test_threads_of_ours_are_not_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        own = SimpleNamespace(ns=0)
        monkeypatch.setattr(world, "pthread_getcpuclockid", lambda ident: 7, raising=False)
        monkeypatch.setattr(world, "clock_gettime_ns", lambda clock: own.ns, raising=False)
        meter = TracemallocMeter(cast("Any", lambda: thread))
        raw = request()
        reading = meter.begin()
        own.ns = world.process_ns = 5_000_000
        meter.end(reading, raw)
        use = meter.use_of(raw)
        assert use is not None and use.peak == 0
    finally:
        done.set()
        thread.join()


def test_a_job_on_a_thread_is_lent_its_request_and_gives_it_back(meter: TracemallocMeter) -> None:
    told: list[object] = []

    class Lender:
        def enter(self, raw: RawRequest | None) -> str:
            told.append(raw)
            return "before"

        def leave(self, token: object) -> None:
            told.append(token)

    pools = Pools()
    pools.lender = Lender()
    pool = pools.pool_of(pools, "pool", None, lambda owner: (None, 0))
    job = pools.submit(pool)
    job.raw = raw = request()

    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        pools.run(job, fail)
    assert told == [raw, "before"]


def test_what_we_keep_of_a_job_is_not_charged_to_its_request() -> None:
    told: list[object] = []

    def charge(whom: object) -> str:
        told.append(whom)
        return "the request"

    pools = Pools()
    pools.charge = charge
    pool = pools.pool_of(pools, "pool", None, lambda owner: (None, 0))
    job = pools.submit(pool)
    pools.resumed(job)
    assert told == [None, "the request"] * 2


def test_a_fault_of_ours_never_reaches_the_job() -> None:
    faults: list[Exception] = []

    class Broken:
        def enter(self, raw: RawRequest | None) -> None:
            raise ZeroDivisionError

        leave = enter

    pools = Pools(lambda hook, exc: faults.append(exc))
    pools.lender = Broken()
    pool = pools.pool_of(pools, "pool", None, lambda owner: (None, 0))
    assert [pools.run(pools.submit(pool), lambda: 5) for _ in range(2)] == [5, 5]
    assert pools.lender is None and {type(fault) for fault in faults} == {ZeroDivisionError}


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 10, 13), False),
        ((3, 11, 99), False),
        ((3, 12, 8), False),
        ((3, 12, 9), True),
        ((3, 13, 0), False),
        ((3, 13, 1), False),
        ((3, 13, 2), True),
        ((3, 14, 0), True),
    ],
)
def test_tracemalloc_is_switched_beside_threads_only_where_that_is_safe(
    version: tuple[int, int, int], safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracing = SimpleNamespace(is_tracing=lambda: False)
    monkeypatch.setattr(meters, "tracemalloc", tracing)
    monkeypatch.setattr(meters, "sys", SimpleNamespace(version_info=(*version, "final", 0)))
    monkeypatch.setattr(meters, "threads_here", lambda: 50)
    assert meters.switchable() == safe
    assert (meters.why_not_tracemalloc() == "") == safe
    monkeypatch.setattr(meters, "threads_here", lambda: 1)
    assert meters.why_not_tracemalloc() == ""
    monkeypatch.setattr(meters, "threads_here", lambda: 50)
    tracing.is_tracing = lambda: True
    assert meters.why_not_tracemalloc() == ""


def test_every_thread_of_the_process_is_counted() -> None:
    done, before = threading.Event(), meters.threads_here()
    threads = [threading.Thread(target=done.wait) for _ in range(20)]
    try:
        for thread in threads:
            thread.start()
        assert meters.threads_here() >= 20 + 1
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert before >= 1
