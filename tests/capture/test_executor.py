from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.capture import executor
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.executor import (
    ABANDON,
    CANCEL,
    FINISH,
    MAX_HOLDERS,
    RAN_ON_NS,
    RESUME,
    START,
    SUBMIT,
    TRANSPORT_FINISH,
    TRANSPORT_START,
    Pool,
    Pools,
)
from mcp_probe.clock import now_ns
from mcp_probe.histogram import bucket_of
from mcp_probe.model import PoolSample
from mcp_probe.record.raw import Job, RawRequest, give_up


class Limiter:
    """An executor with room for ``max``; can be referred to weakly, as real ones."""

    def __init__(self, max: float | None = 2) -> None:
        self.max = max


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(executor, "now_ns", clock)
    return clock


def limit(owner: Limiter) -> tuple[float | None, int]:
    return owner.max, 0


def make_pool(owner: Limiter) -> Pool:
    return Pool(1, owner, "limiter", None, limit)


@dataclass
class Made:
    """A job's stamps; ``None`` = did not happen."""

    submit: int
    start: int | None = None
    finish: int | None = None
    resumed: int | None = None
    operation: str = "render"
    cpu: int = 0

    def job(self) -> Job:
        job = Job(None, None, self.operation, self.submit)
        job.start_ns, job.finish_ns, job.resumed_ns, job.cpu_ns = self.start, self.finish, self.resumed, self.cpu
        return job

    def transitions(self) -> list[tuple[int, int, Job]]:
        job = self.job()
        noted = [(self.submit, SUBMIT, job)]
        if self.start is not None:
            noted.append((self.start, START, job))
        if self.finish is not None:
            noted.append((self.finish, FINISH, job))
        if self.resumed is not None:
            if self.start is None:
                job.cancelled = True
                noted.append((self.resumed, CANCEL, job))
            elif self.finish is None or self.resumed < self.finish:
                noted.append((self.resumed, ABANDON, job))
            else:
                noted.append((self.resumed, RESUME, job))
        return noted


def integrate(pool: Pool, jobs: Iterable[Made], until: int) -> PoolSample:
    for at, kind, job in sorted((t for made in jobs for t in made.transitions()), key=lambda t: t[0]):
        pool.apply(at, kind, job)
    return pool.sample(until)


def test_executors_that_are_made_for_each_call_are_all_counted() -> None:
    """The next one often has the address of the one before."""
    pools, addresses = Pools(), set()
    for _ in range(50):
        owner = Limiter()
        addresses.add(id(owner))
        pool = pools.pool_of(owner, "limiter", None, limit)
        job = pools.submit(pool)
        pools.run(job, lambda: None)
        pools.resumed(job)
        del owner
    assert len(addresses) < 50
    samples = list(pools.samples(now_ns()))
    assert sum(sample.submitted for sample in samples) == sum(sample.finished for sample in samples) == 50
    assert pools.rows() == []


# --- literal transitions ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("clock")
def test_six_jobs_on_two_threads_wait_nothing_one_and_two_rounds() -> None:
    owner = Limiter(2)
    jobs = [Made(0, start, start + 100, start + 100) for start in (0, 0, 100, 100, 200, 200)]
    sample = integrate(make_pool(owner), jobs, 400)
    assert {bucket: (count, total) for bucket, count, total in sample.wait} == {
        bucket_of(0): (2, 0),
        bucket_of(100): (2, 200),
        bucket_of(200): (2, 400),
    }
    assert (sample.submitted, sample.finished, sample.returned, sample.abandoned) == (6, 6, 6, 0)
    assert (sample.active_peak, sample.borrowed_peak, sample.pending_peak, sample.queued_peak) == (2, 2, 4, 4)
    assert (sample.active_ns, sample.pending_ns, sample.run_ns) == (600, 600, 600)
    assert sample.at_limit_ns == 300
    assert (sample.span_ns, sample.max) == (400, 2)


@pytest.mark.usefixtures("clock")
def test_jobs_that_could_have_a_thread_and_wait_for_the_loop_are_not_queued() -> None:
    owner = Limiter(2)
    pool = make_pool(owner)
    sample = integrate(pool, [Made(at, 36, 66, 70) for at in (0, 1)], 100)
    assert (sample.pending_peak, sample.queued_peak) == (2, 0)
    later = integrate(pool, [Made(100, 101), Made(110, 140), Made(120, 141), Made(130)], 145)
    assert (later.pending_peak, later.queued_peak) == (3, 2)
    assert pool.sample(200).queued_peak == 1, "two run by now, and it waits for one of them"
    pool.apply(210, TRANSPORT_START, 5)
    assert pool.sample(220).queued_peak == 1, "no more than wait"


@pytest.mark.usefixtures("clock")
def test_a_loop_that_is_blocked_delays_the_return_of_a_job_and_not_its_run() -> None:
    owner = Limiter()
    sample = integrate(make_pool(owner), [Made(0, 1, 101, 200)], 300)
    assert (sample.run_ns, sample.return_ns, sample.active_ns) == (100, 99, 100)


@pytest.mark.usefixtures("clock")
def test_integrals_go_on_over_samples() -> None:
    owner = Limiter(1)
    pool = make_pool(owner)
    for at, kind, job in [*Made(10, 20, 120).transitions()[:2], *Made(20, 120, 150).transitions()]:
        if at <= 50:
            pool.apply(at, kind, job)
    first = pool.sample(50)
    assert (first.pending_ns, first.active_ns, first.at_limit_ns, first.submitted) == (10 + 30, 30, 30, 2)
    assert (first.pending_peak, first.active_peak) == (1, 1)
    second = pool.sample(100)
    assert (second.pending_ns, second.active_ns, second.at_limit_ns, second.submitted) == (50, 50, 50, 0)
    assert (second.pending_peak, second.active_peak, second.span_ns) == (1, 1, 50)


@pytest.mark.usefixtures("clock")
def test_a_job_cancelled_while_it_waited_leaves_the_queue_and_never_ran() -> None:
    owner = Limiter()
    sample = integrate(make_pool(owner), [Made(0, None, None, 30)], 100)
    assert (sample.pending_ns, sample.active_ns, sample.submitted, sample.finished) == (30, 0, 1, 0)
    assert (sample.abandoned, sample.wait) == (0, ())


@pytest.mark.usefixtures("clock")
def test_an_abandoned_job_is_counted_and_holds_its_thread_until_it_ends() -> None:
    owner = Limiter()
    sample = integrate(make_pool(owner), [Made(0, 0, 90, 30)], 100)
    assert (sample.abandoned, sample.returned, sample.finished) == (1, 0, 1)
    assert (sample.active_ns, sample.run_ns, sample.return_ns) == (90, 90, 0)


@pytest.mark.usefixtures("clock")
def test_a_job_that_starts_after_it_was_given_up_does_not_leave_the_queue_twice() -> None:
    """On trio the thread may get going after the waiter has gone."""
    owner = Limiter()
    pool = make_pool(owner)
    job = Made(0, 40, 60, 30).job()
    job.cancelled = True
    for at, kind in ((0, SUBMIT), (30, CANCEL), (40, START), (60, FINISH)):
        pool.apply(at, kind, job)
    integrate(pool, [Made(70)], 80)
    sample = pool.sample(100)
    assert sample.pending_ns == 20
    assert sample.active_ns == 0


@pytest.mark.usefixtures("clock")
def test_the_transports_own_jobs_hold_tokens_and_are_no_work_of_the_pool() -> None:
    owner = Limiter(2)
    pool = make_pool(owner)
    pool.apply(0, TRANSPORT_START, 5)  # the reader, for ever
    pool.apply(10, TRANSPORT_START, 70)
    pool.apply(20, TRANSPORT_FINISH, 0)
    sample = integrate(pool, [Made(30, 30, 60, 60)], 100)
    assert (sample.transport_jobs, sample.transport_wait_ns, sample.transport_wait_max_ns) == (2, 75, 70)
    assert (sample.submitted, sample.finished, sample.run_ns, sample.active_ns) == (1, 1, 30, 30)
    assert (sample.borrowed_peak, sample.active_peak) == (2, 1)
    assert sample.at_limit_ns == 10 + 30
    following = pool.sample(200)
    assert (following.transport_jobs, following.transport_wait_max_ns, following.borrowed_peak) == (0, 0, 1)


@pytest.mark.usefixtures("clock")
def test_who_held_the_threads_is_told_by_operation_and_bounded() -> None:
    owner = Limiter(None)
    jobs = [Made(0, 0, 10, operation="a", cpu=4), Made(0, 0, 30, operation="b"), Made(0, 0, 5, operation="a")]
    sample = integrate(make_pool(owner), jobs, 100)
    assert dict((name, (count, ns)) for name, count, ns in sample.holders) == {"a": (2, 15), "b": (1, 30)}
    assert (sample.cpu_ns, sample.max, sample.at_limit_ns) == (4, None, 0)
    many = [Made(0, 0, 1, operation=f"tool {number}") for number in range(MAX_HOLDERS + 10)]
    assert len(integrate(make_pool(owner), many, 100).holders) == MAX_HOLDERS


@pytest.mark.usefixtures("clock")
def test_a_transition_that_comes_after_its_sample_counts_from_that_sample_on() -> None:
    owner = Limiter()
    pool = make_pool(owner)
    job = Made(10, 90, 150, 151).job()
    pool.apply(10, SUBMIT, job)
    assert pool.sample(100).pending_ns == 90
    pool.apply(90, START, job)  # its thread was slower to tell than the collector to ask
    pool.apply(150, FINISH, job)
    sample = pool.sample(200)
    assert (sample.pending_ns, sample.active_ns, sample.run_ns) == (0, 50, 60)
    assert sample.wait == ((bucket_of(80), 1, 80),)


@pytest.mark.usefixtures("clock")
def test_a_limit_that_is_changed_while_it_is_in_use_shows_from_the_next_sample_on() -> None:
    owner = Limiter(1)
    pool = make_pool(owner)
    owner.max = 5
    assert pool.sample(10).max == 5


# --- generated jobs -----------------------------------------------------------------------------------------


@st.composite
def made(draw: st.DrawFn) -> Made:
    submit = draw(st.integers(0, 60))
    start = submit + draw(st.integers(0, 30))
    finish = start + draw(st.integers(0, 30))
    kind = draw(st.sampled_from(["whole", "whole", "waiting", "running", "cancelled", "abandoned"]))
    if kind == "waiting":
        return Made(submit)
    if kind == "running":
        return Made(submit, start)
    if kind == "cancelled":
        return Made(submit, resumed=start)
    if kind == "abandoned":
        return Made(submit, start, finish + 1, draw(st.integers(start, finish)))
    return Made(submit, start, finish, finish + draw(st.integers(0, 20)))


@given(st.lists(made(), max_size=12), st.sets(st.integers(0, 150)), st.integers(1, 4))
@settings(deadline=None)
def test_integrals_equal_the_levels_summed_instant_by_instant(
    jobs: list[Made], cuts: set[int], max_tokens: int
) -> None:
    end = 160
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "now_ns", lambda: 0)
        owner = Limiter(max_tokens)
        pool = make_pool(owner)
    noted = sorted((t for job in jobs for t in job.transitions()), key=lambda t: t[0])
    samples = []
    for cut in [*sorted(cuts), end]:
        while noted and noted[0][0] <= cut:
            pool.apply(*noted.pop(0))
        samples.append(pool.sample(cut))

    def level(states: Callable[[Made], tuple[int | None, int | None]]) -> list[int]:
        spans = [states(job) for job in jobs]
        return [sum(a is not None and a <= t and (b is None or t < b) for a, b in spans) for t in range(end)]

    pending = level(lambda job: (job.submit, job.start if job.start is not None else job.resumed))
    active = level(lambda job: (job.start, job.finish))
    assert sum(sample.pending_ns for sample in samples) == sum(pending)
    assert sum(sample.active_ns for sample in samples) == sum(active)
    assert sum(sample.at_limit_ns for sample in samples) == sum(level >= max_tokens for level in active)
    assert sum(sample.span_ns for sample in samples) == end
    assert all(sample.pending_ns >= 0 and sample.active_ns >= 0 for sample in samples)
    assert max(sample.active_peak for sample in samples) >= max(active, default=0)
    started = [job for job in jobs if job.start is not None]
    assert sum(total for sample in samples for _, _, total in sample.wait) == sum(
        (job.start or 0) - job.submit for job in started
    )
    assert sum(sample.submitted for sample in samples) == len(jobs)


# --- jobs that really run ------------------------------------------------------------------------------------


def request(name: str = "render") -> RawRequest:
    return RawRequest(1, "request", "tools/call", name, "stdio")


def test_a_job_belongs_to_the_request_that_submits_it_and_to_those_around_it() -> None:
    pools, owner = Pools(), Limiter()
    outer, inner = request("outer"), request("inner")
    inner.parent = outer
    token = CURRENT.set(inner)
    try:
        job = pools.submit(pools.pool_of(owner, "limiter", None, limit))
    finally:
        CURRENT.reset(token)
    assert inner.jobs == [job]
    assert outer.jobs == [job]
    assert job.operation == "inner"


def test_a_request_that_has_ended_gets_no_more_jobs() -> None:
    pools, owner = Pools(), Limiter()
    raw = request()
    raw.ended = True
    token = CURRENT.set(raw)
    try:
        pools.submit(pools.pool_of(owner, "limiter", None, limit))
    finally:
        CURRENT.reset(token)
    assert not raw.jobs


def test_the_request_is_lent_to_the_thread_for_the_call_only() -> None:
    pools, owner, raw = Pools(), Limiter(), request()
    token = CURRENT.set(raw)
    try:
        job = pools.submit(pools.pool_of(owner, "limiter", None, limit))
    finally:
        CURRENT.reset(token)
    seen: list[RawRequest | None] = []

    def work() -> None:
        seen.append(CURRENT.get())
        pools.run_for(job, lambda: seen.append(CURRENT.get()))
        seen.append(CURRENT.get())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, raw, None]
    assert job.start_ns is not None
    assert job.finish_ns is not None
    assert job.submit_ns <= job.start_ns <= job.finish_ns


def test_a_job_that_raises_ends_like_any_other() -> None:
    pools, owner = Pools(), Limiter()
    pool = pools.pool_of(owner, "limiter", None, limit)
    job = pools.submit(pool)
    with pytest.raises(ZeroDivisionError):
        pools.run(job, lambda: 1 // 0)
    pools.resumed(job)
    (sample,) = pools.samples(job.resumed_ns or 0)
    assert (sample.finished, sample.returned, sample.abandoned) == (1, 1, 0)
    assert pool.idle


def test_each_executor_has_one_row_and_loses_it_when_it_is_gone() -> None:
    pools = Pools()
    first, second = Limiter(), Limiter()
    pool = pools.pool_of(first, "first", None, limit)
    assert pools.pool_of(first, "other name", None, limit) is pool
    assert pools.pool_of(second, "second", None, limit) is not pool
    assert {sample.name for sample in pools.samples(1)} == {"first", "second"}
    del first
    gc.collect()
    list(pools.samples(2))
    assert {sample.name for sample in pools.samples(3)} == {"second"}


def test_transitions_nobody_collects_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "MAX_TRANSITIONS", 3)
    pools, owner = Pools(), Limiter()
    pool = pools.pool_of(owner, "limiter", None, limit)
    for _ in range(5):
        pools.submit(pool)
    assert pools.dropped == 2
    assert len(pools.transitions) == 3


# --- work for nobody --------------------------------------------------------------------------------

SECOND = 1_000_000_000


def ran_on(pool: Pool, pools: Pools, now: int) -> list[tuple[str, int, int, int]]:
    return [row for sample in pools.samples(now) for row in sample.ran_on]


def a_job_of_a_request(pools: Pools, pool: Pool) -> Job:
    raw = RawRequest(1, "request", "tools/call", "t1", "stdio")
    token = CURRENT.set(raw)
    try:
        return pools.submit(pool)
    finally:
        CURRENT.reset(token)


def test_a_job_that_runs_on_is_told_in_each_sample_and_counted_once(clock: Clock) -> None:
    pools, owner = Pools(), Limiter()
    pool = pools.pool_of(owner, "limiter", None, limit)
    job = a_job_of_a_request(pools, pool)

    def run() -> None:
        clock.now = SECOND
        give_up([job], clock.now)
        assert ran_on(pool, pools, SECOND) == []
        assert ran_on(pool, pools, 3 * SECOND) == [("t1", 1, 2 * SECOND, 2 * SECOND)]
        assert ran_on(pool, pools, 4 * SECOND) == [("t1", 0, SECOND, 3 * SECOND)]
        clock.now = 6 * SECOND

    pools.run(job, run)
    assert ran_on(pool, pools, 9 * SECOND) == [("t1", 0, 2 * SECOND, 5 * SECOND)]
    assert ran_on(pool, pools, 9 * SECOND) == []


def test_a_job_whose_waiter_gives_up_runs_for_nobody(clock: Clock) -> None:
    pools, owner = Pools(), Limiter()
    pool = pools.pool_of(owner, "limiter", None, limit)
    jobs = [a_job_of_a_request(pools, pool), pools.submit(pool)]  # the second one is no request's

    for job in jobs:
        clock.now = 0

        def run(job: Job = job) -> None:
            clock.now = SECOND
            pools.resumed(job)
            clock.now = 3 * SECOND

        pools.run(job, run)
    assert ran_on(pool, pools, 3 * SECOND) == [("t1", 1, 2 * SECOND, 2 * SECOND)]


def test_a_job_that_ends_soon_or_never_began_is_not_told(clock: Clock) -> None:
    pools, owner = Pools(), Limiter()
    pool = pools.pool_of(owner, "limiter", None, limit)
    soon, never = (a_job_of_a_request(pools, pool) for _ in range(2))

    def run() -> None:
        give_up([soon], 0)
        clock.now = RAN_ON_NS - 1

    pools.run(soon, run)
    give_up([never], 0)
    assert ran_on(pool, pools, 9 * SECOND) == []


def test_a_job_is_given_up_once_and_not_after_its_end(clock: Clock) -> None:
    pools, owner = Pools(), Limiter()
    pool = pools.pool_of(owner, "limiter", None, limit)
    job = a_job_of_a_request(pools, pool)
    pools.run(job, lambda: None)
    give_up([job], 5)
    assert job.unwanted_ns is None
    other = a_job_of_a_request(pools, pool)
    give_up([other], 5)
    give_up([other], 9)
    assert other.unwanted_ns == 5
