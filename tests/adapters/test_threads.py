"""Executors on real loops: what every job waited, ran and waited for its return, and whose it was."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from mcp_probe.model import PoolSample, RequestRecord
from mcp_probe.session import Probe, current_operation
from tests.kept import Kept, keep
from tests.loops import ASYNCIO, LOOPS, UVLOOP
from tests.rounds import least_disturbed
from tests.running import Backend, run_on

ROUNDS = 3
MS = 1_000_000
NEAR_MS = 15
JOB_S = 0.1
THREE_ROUNDS_MS = (0, 0, 100, 100, 200, 200)

on_each_loop = pytest.mark.parametrize("backend", LOOPS)
on_asyncio_loops = pytest.mark.parametrize("backend", [ASYNCIO, UVLOOP])

Body = Callable[[Probe], Awaitable[None]]
Async = Callable[[], Coroutine[Any, Any, Any]]


def recorded(backend: Backend, body: Body) -> Kept:
    """Frames of one run of ``body`` under a probe of its own."""

    async def run() -> Kept:
        probe = Probe()
        kept = keep(probe)
        try:
            await probe.profile(anyio.lowlevel.checkpoint)()  # the loop is followed from the first request on
            await body(probe)
        finally:
            probe.detach()
        return kept

    return run_on(backend, run)


def tool(probe: Probe, name: str, function: Callable[[], Awaitable[Any]]) -> Async:
    function.__qualname__ = name
    return probe.profile(function)


def records(kept: Kept, name: str) -> list[RequestRecord]:
    return kept.requests(name, kind="function")


def record(kept: Kept, name: str) -> RequestRecord:
    (only,) = records(kept, name)
    return only


def pool_names(kept: Kept) -> set[str]:
    return {frame.name for frame in kept.frames if isinstance(frame, PoolSample)}


def pool(kept: Kept, name: str) -> list[PoolSample]:
    """Samples of the executor with this name; there must be exactly one such executor."""
    samples = [frame for frame in kept.frames if isinstance(frame, PoolSample) and frame.name == name]
    assert len({sample.pool for sample in samples}) == 1, f"{name} among {pool_names(kept)}"
    return samples


def parts(record: RequestRecord, *names: str) -> tuple[float, ...]:
    return tuple((getattr(record.budget, name) or 0) / MS for name in names)


# --- six jobs, two threads ----------------------------------------------------------------------------------


@dataclass
class Jobs:
    """Six jobs as they say themselves, and as the probe says."""

    waited_ms: list[float] = field(default_factory=list)
    kept: Kept = field(default_factory=Kept)

    @property
    def off_ms(self) -> float:
        """How far off the plan they truly were: 100 ms take longer on a busy machine, and so does starting a thread."""
        return max(abs(true - plan) for true, plan in zip(self.waited_ms, THREE_ROUNDS_MS, strict=True))

    def told_ms(self, part: str) -> list[float]:
        return sorted(parts(one, part)[0] for one in records(self.kept, "job"))


Run = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function on a thread."""


def six_jobs(backend: Backend, runner: Callable[[], Run]) -> Jobs:
    """Six jobs of 100 ms at once through what ``runner`` makes."""
    jobs = Jobs()

    async def body(probe: Probe) -> None:
        run = runner()

        async def job() -> None:
            submitted = time.monotonic_ns()

            def work() -> None:
                jobs.waited_ms.append((time.monotonic_ns() - submitted) / MS)
                time.sleep(JOB_S)

            await run(work)

        profiled = tool(probe, "job", job)
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(profiled)

    jobs.kept = recorded(backend, body)
    jobs.waited_ms.sort()
    return jobs


def through_a_limiter() -> Run:
    limiter = anyio.CapacityLimiter(2)

    async def run(work: Callable[[], None]) -> None:
        await anyio.to_thread.run_sync(work, limiter=limiter)

    return run


def assert_three_rounds(rounds: list[Jobs], pool_name: str) -> None:
    true = [median(found) for found in zip(*(jobs.waited_ms for jobs in rounds), strict=True)]
    told = [median(found) for found in zip(*(jobs.told_ms("executor_wait") for jobs in rounds), strict=True)]
    near = NEAR_MS + max(jobs.off_ms for jobs in rounds)
    assert true[-1] >= 100, "the scene went wrong: nobody had to wait for two rounds"
    assert told[2:] == pytest.approx(true[2:], abs=near)
    # Starting a thread takes its time on a busy machine; the loop is held up by it, so that time counts as busy.
    assert all(found <= most + near for found, most in zip(told[:2], true[:2], strict=True))
    assert median(run for jobs in rounds for run in jobs.told_ms("executor_run")) == pytest.approx(100, abs=2 * near)
    for jobs in rounds:
        samples = pool(jobs.kept, pool_name)
        assert {sample.max for sample in samples} == {2}
        assert sum(sample.submitted for sample in samples) == sum(sample.finished for sample in samples) == 6
        assert max(sample.active_peak for sample in samples) == 2
        assert max(sample.pending_peak for sample in samples) in ((4, 5, 6) if jobs.off_ms < 60 else range(1, 7))
    waits = [sum(jobs.waited_ms) for jobs in rounds]
    runs = [sum(jobs.told_ms("executor_run")) for jobs in rounds]
    for name, sums in (("pending_ns", waits), ("active_ns", runs), ("run_ns", runs)):
        found = [sum(getattr(sample, name) for sample in pool(jobs.kept, pool_name)) / MS for jobs in rounds]
        assert median(abs(a - b) for a, b in zip(found, sums, strict=True)) <= 2 * near, name
    full = [sum(sample.at_limit_ns for sample in pool(jobs.kept, pool_name)) / MS for jobs in rounds]
    assert median(full) == pytest.approx(300, abs=6 * near)
    waited = [
        sum(total for sample in pool(jobs.kept, pool_name) for _, _, total in sample.wait) / MS for jobs in rounds
    ]
    assert median(abs(a - b) for a, b in zip(waited, waits, strict=True)) <= 2 * near


@on_each_loop
def test_six_jobs_through_a_limiter_of_two_wait_nothing_one_and_two_rounds(backend: Backend) -> None:
    rounds = least_disturbed(lambda: six_jobs(backend, through_a_limiter), lambda jobs: jobs.off_ms, fine_ms=NEAR_MS)
    assert_three_rounds(rounds, "CapacityLimiter(2)")
    (made_at,) = {sample.made_at for sample in pool(rounds[0].kept, "CapacityLimiter(2)")}
    assert made_at is not None
    assert made_at.rsplit(":", 1)[0] == __file__


@on_asyncio_loops
def test_six_jobs_through_an_executor_of_two_wait_nothing_one_and_two_rounds(backend: Backend) -> None:
    def play() -> Jobs:
        with ThreadPoolExecutor(2, thread_name_prefix="pair") as executor:

            async def run(work: Callable[[], None]) -> None:
                await asyncio.get_running_loop().run_in_executor(executor, work)

            return six_jobs(backend, lambda: run)

    rounds = least_disturbed(play, lambda jobs: jobs.off_ms, fine_ms=NEAR_MS)
    assert_three_rounds(rounds, "ThreadPoolExecutor pair")


# --- the way back -------------------------------------------------------------------------------------------


@on_each_loop
def test_a_job_that_is_done_while_the_loop_is_blocked_waits_for_its_return(backend: Backend) -> None:
    """The job is done 1 ms after the block began; the loop comes round 99 ms later."""

    def play() -> tuple[float, float, float]:
        stamps: dict[str, int] = {}

        async def body(probe: Probe) -> None:
            blocked = threading.Event()

            def work() -> None:
                blocked.wait()
                time.sleep(0.001)
                stamps["done"] = time.monotonic_ns()

            async def job() -> None:
                await anyio.to_thread.run_sync(work)
                stamps["resumed"] = time.monotonic_ns()

            async with anyio.create_task_group() as group:
                group.start_soon(tool(probe, "job", job))
                await anyio.sleep(0.03)
                blocked.set()
                time.sleep(0.1)

        kept = recorded(backend, body)
        (told,) = parts(record(kept, "job"), "executor_return")
        summed = sum(sample.return_ns for sample in pool(kept, "anyio default limiter")) / MS
        return (stamps["resumed"] - stamps["done"]) / MS, told, summed

    def off_ms(round: tuple[float, float, float]) -> float:
        return abs(round[0] - 99)

    rounds = least_disturbed(play, off_ms, fine_ms=NEAR_MS)
    near = 5 + max(map(off_ms, rounds))
    assert median(delay for delay, _, _ in rounds) >= 50, "the scene went wrong: the loop was not blocked"
    assert median(abs(told - delay) for delay, told, _ in rounds) <= near
    assert median(abs(summed - delay) for delay, _, summed in rounds) <= near


# --- names --------------------------------------------------------------------------------------------------


@on_asyncio_loops
def test_the_loops_default_executor_and_an_own_one_have_rows_of_their_own(backend: Backend) -> None:
    with ThreadPoolExecutor(3) as own:

        async def body(probe: Probe) -> None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, time.sleep, 0.001)
            await asyncio.to_thread(time.sleep, 0.001)
            await loop.run_in_executor(own, time.sleep, 0.001)

        kept = recorded(backend, body)
    assert sum(sample.finished for sample in pool(kept, "asyncio default executor")) == 2
    (own_name,) = pool_names(kept) - {"asyncio default executor"}
    assert own_name.startswith("ThreadPoolExecutor")
    samples = pool(kept, own_name)
    assert sum(sample.finished for sample in samples) == 1
    assert {sample.max for sample in samples} == {3}
    assert all(sample.made_at is not None and sample.made_at.startswith(__file__) for sample in samples)


@on_each_loop
def test_the_default_limiter_is_called_so(backend: Backend) -> None:
    async def body(probe: Probe) -> None:
        await anyio.to_thread.run_sync(time.sleep, 0.001)

    samples = pool(recorded(backend, body), "anyio default limiter")
    assert {sample.max for sample in samples} == {40}
    assert sum(sample.submitted for sample in samples) == 1


# --- given up -----------------------------------------------------------------------------------------------


@on_each_loop
def test_a_job_whose_waiter_was_cancelled_is_counted_as_abandoned_and_still_holds_its_thread(backend: Backend) -> None:
    go_on = threading.Event()
    stamps: dict[str, int] = {}

    def work() -> None:
        stamps["began"] = time.monotonic_ns()
        go_on.wait()
        stamps["ended"] = time.monotonic_ns()

    async def body(probe: Probe) -> None:
        kept = keep(probe)

        async def job() -> None:
            async with anyio.create_task_group() as group:

                async def give_up() -> None:
                    while "began" not in stamps:
                        await anyio.sleep(0.001)
                    await anyio.sleep(0.03)
                    group.cancel_scope.cancel()

                group.start_soon(give_up)
                await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
            stamps["left"] = time.monotonic_ns()

        await tool(probe, "job", job)()
        await anyio.sleep(0.3)
        go_on.set()
        with anyio.fail_after(100):
            while not sum(sample.finished for sample in kept.frames if isinstance(sample, PoolSample)):
                await anyio.sleep(0.01)
                probe.snapshot()

    kept = recorded(backend, body)
    samples = pool(kept, "CapacityLimiter(1)")
    assert sum(sample.abandoned for sample in samples) == 1
    assert sum(sample.finished for sample in samples) == 1
    assert sum(sample.run_ns for sample in samples) / MS == pytest.approx(
        (stamps["ended"] - stamps["began"]) / MS, abs=100
    )
    # Of the request it is only as long as the request lived; the rest was nobody's wait.
    run_ms, return_ms = parts(record(kept, "job"), "executor_run", "executor_return")
    assert run_ms <= (stamps["left"] - stamps["began"]) / MS + 100
    assert run_ms > 0
    assert return_ms == 0


@on_each_loop
def test_a_job_cancelled_while_it_waited_for_a_thread_never_ran(backend: Backend) -> None:
    found, true, pending = [], [], []
    for _ in range(ROUNDS):
        let_go = threading.Event()
        stamps: dict[str, int] = {}

        async def body(probe: Probe, let_go: threading.Event = let_go, stamps: dict[str, int] = stamps) -> None:
            limiter = anyio.CapacityLimiter(1)

            async def hog() -> None:
                await anyio.to_thread.run_sync(let_go.wait, limiter=limiter)

            async def job() -> None:
                stamps["asked"] = time.monotonic_ns()
                with anyio.move_on_after(0.2):
                    await anyio.to_thread.run_sync(time.sleep, 9, limiter=limiter)
                stamps["left"] = time.monotonic_ns()

            async with anyio.create_task_group() as group:
                group.start_soon(hog)
                while not limiter.borrowed_tokens:
                    await anyio.sleep(0.001)
                await tool(probe, "job", job)()
                let_go.set()

        kept = recorded(backend, body)
        samples = pool(kept, "CapacityLimiter(1)")
        assert sum(sample.submitted for sample in samples) == 2
        assert sum(sample.finished for sample in samples) == 1
        assert sum(sample.abandoned for sample in samples) == 0
        waited, ran = parts(record(kept, "job"), "executor_wait", "executor_run")
        assert ran == 0
        found.append(waited)
        true.append((stamps["left"] - stamps["asked"]) / MS)
        pending.append(sum(sample.pending_ns for sample in samples) / MS)
    assert median(abs(a - b) for a, b in zip(found, true, strict=True)) <= 4 * NEAR_MS
    assert median(abs(a - b) for a, b in zip(pending, true, strict=True)) <= 4 * NEAR_MS


# --- whose job ----------------------------------------------------------------------------------------------


async def in_anyio(executor: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    await anyio.to_thread.run_sync(work)


async def in_to_thread(executor: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    await asyncio.to_thread(work)


async def in_run_in_executor(executor: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(executor, work)


async def in_submit(executor: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    await asyncio.wrap_future(executor.submit(work))


async def in_a_thread(executor: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def run() -> None:
        work()
        loop.call_soon_threadsafe(done.set)

    thread = threading.Thread(target=run)
    thread.start()
    await done.wait()
    thread.join()


WAYS = [in_anyio, in_to_thread, in_run_in_executor, in_submit, in_a_thread]


@on_asyncio_loops
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_thread_job_belongs_to_the_request_that_started_it(
    backend: Backend, way: Callable[[ThreadPoolExecutor, Callable[[], None]], Awaitable[None]]
) -> None:
    seen: list[str | None] = []
    lasted: list[float] = []

    def work() -> None:
        seen.append(current_operation())
        began = time.monotonic_ns()
        time.sleep(0.1)
        lasted.append((time.monotonic_ns() - began) / MS)

    with ThreadPoolExecutor(2, thread_name_prefix="mine") as executor:
        rounds = []
        for _ in range(ROUNDS):

            async def body(probe: Probe) -> None:
                async def other() -> None:
                    await anyio.sleep(0.05)

                async with anyio.create_task_group() as group:
                    group.start_soon(tool(probe, "other", other))
                    group.start_soon(tool(probe, "mine", lambda: way(executor, work)))
                assert current_operation() is None

            rounds.append(recorded(backend, body))
    assert seen == ["mine"] * ROUNDS
    mine = [parts(record(kept, "mine"), "executor_run", "awaiting") for kept in rounds]
    assert median(abs(run - true) for (run, _), true in zip(mine, lasted, strict=True)) <= 3 * NEAR_MS
    assert median(awaiting for _, awaiting in mine) <= 3 * NEAR_MS
    assert all(parts(record(kept, "other"), "executor_run") == (0,) for kept in rounds)
    for kept in rounds:
        holders = {name for frame in kept.frames if isinstance(frame, PoolSample) for name, _, _ in frame.holders}
        assert holders == {"mine"}


def test_a_job_on_a_trio_thread_belongs_to_the_request_that_started_it() -> None:
    async def body(probe: Probe) -> None:
        async def mine() -> None:
            await anyio.to_thread.run_sync(time.sleep, 0.05)

        await tool(probe, "mine", mine)()

    kept = recorded("trio", body)
    assert 45 <= parts(record(kept, "mine"), "executor_run")[0] <= 1000


@on_asyncio_loops
def test_a_job_that_outlives_its_request_leaves_the_pools_row_right(backend: Backend) -> None:
    go_on = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="late") as executor:

        async def body(probe: Probe) -> None:
            async def fire_and_forget() -> None:
                executor.submit(go_on.wait)

            await tool(probe, "mine", fire_and_forget)()
            await anyio.sleep(0.2)
            go_on.set()
            await asyncio.get_running_loop().run_in_executor(executor, time.sleep, 0)

        kept = recorded(backend, body)
    assert parts(record(kept, "mine"), "executor_run")[0] <= 100
    samples = pool(kept, "ThreadPoolExecutor late")
    assert sum(sample.finished for sample in samples) == 2
    assert dict((name, jobs) for sample in samples for name, jobs, _ in sample.holders)["mine"] == 1


def test_a_pool_that_refuses_its_jobs_has_none_waiting() -> None:
    """An initializer that fails breaks the executor: nothing that was submitted will ever run."""

    def initialize() -> None:
        raise RuntimeError("no such library")

    async def body(probe: Probe) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="broken", initializer=initialize) as executor:
            for _ in range(3):
                try:
                    await asyncio.wrap_future(executor.submit(time.sleep, 0))
                except Exception:  # noqa: BLE001 - BrokenThreadPool, from submit or from the future
                    continue
            probe.snapshot()

    samples = pool(recorded("asyncio", body), "ThreadPoolExecutor broken")
    assert samples[0].submitted > 0
    assert samples[-1].pending_peak == 0
