"""Why a step was slow, and where, on a real loop: each fault is built, and must be named by cause, file and line."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import inspect
import re
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any

import anyio
import pytest

from mcp_probe.capture import watchdog
from mcp_probe.capture.loop_monitor import EVERYTHING, LoopMonitor, StepSink
from mcp_probe.capture.places import Place
from mcp_probe.capture.readings import Reading
from mcp_probe.clock import now_ns
from mcp_probe.model import StepRecord
from mcp_probe.session import Probe
from tests.kept import Kept, keep
from tests.loops import LOOPS
from tests.running import Backend, run_on

MS = 1_000_000
ROUNDS = 3
HASHED_S, BRIEFLY_HASHED_S = 0.06, 0.017
TRIES = 10
"""How many times as many rounds are played where the machine disturbs them."""
PATIENCE_S = 20


def marked_line(function: Callable[..., Any]) -> int:
    """Number of the line of ``function`` that says ``# here``."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [offset for offset, line in enumerate(lines) if line.rstrip().endswith("# here")]
    return first + offset


def lines_of(function: Callable[..., Any]) -> range:
    lines, first = inspect.getsourcelines(function)
    return range(first, first + len(lines))


def slow_steps(backend: Backend, function: Callable[[], Awaitable[None]], rounds: int = ROUNDS) -> list[StepRecord]:
    """The longest step of each of ``rounds`` calls."""

    async def run() -> Kept:
        probe = Probe()
        kept = keep(probe)
        try:
            profiled = probe.profile(function)
            for _ in range(rounds):
                await anyio.sleep(0.02)
                await profiled()
        finally:
            probe.detach()
        return kept

    kept = run_on(backend, run)
    name = function.__qualname__
    longest: dict[int, StepRecord] = {}
    for step in kept.steps():
        if step.operation == name:
            known = longest.get(step.request)
            if known is None or step.end_ns - step.start_ns > known.end_ns - known.start_ns:
                longest[step.request] = step
    assert len(longest) == rounds
    return list(longest.values())


def most_common(values: list[Any]) -> Any:
    """What most rounds agree on: one that the machine disturbed does not count."""
    return Counter(values).most_common(1)[0][0]


def is_disturbed(step: StepRecord) -> bool:
    """The host kept the loop from the CPU for at least half of the step."""
    return (step.run_queue_ns or 0) * 2 >= step.end_ns - step.start_ns


def undisturbed(play: Callable[[], list[StepRecord]], rounds: int = ROUNDS) -> list[StepRecord]:
    """At least ``rounds`` steps of ``play()`` that the host let run; it is played again for those it did not."""
    found: list[StepRecord] = []
    until = time.monotonic() + PATIENCE_S
    for _ in range(TRIES):
        played = play()
        found += [step for step in played if not is_disturbed(step)]
        if len(found) >= rounds or time.monotonic() > until:
            break
    if not found:
        pytest.skip("the host gave this process too little CPU to tell")
    return found


def seen_steps(
    backend: Backend, function: Callable[[], Awaitable[None]], rounds: int = ROUNDS, *, known: bool = True
) -> list[StepRecord]:
    """At least ``rounds`` steps whose place the watchdog saw, undisturbed where that is ``known``.

    It is a sampler that needs a CPU, and the GIL, while the step runs: where it gets them too late it sees nothing.
    """
    found: list[StepRecord] = []

    def play() -> list[StepRecord]:
        return slow_steps(backend, function, rounds)

    until = time.monotonic() + PATIENCE_S
    for _ in range(TRIES):
        played = undisturbed(play, rounds) if known else play()
        found += [step for step in played if step.where != "unavailable"]
        if len(found) >= rounds or time.monotonic() > until:
            break
    assert found, "the watchdog saw none of them"
    return found


def causes(steps: list[StepRecord]) -> str:
    """The cause that most of these agree on."""
    found: str = most_common([step.cause for step in steps])
    return found


# --- faults ---------------------------------------------------------------------------------------------------


async def sleeps() -> None:
    time.sleep(0.04)  # here


async def spins() -> None:
    until = time.thread_time() + 0.04
    while time.thread_time() < until:
        pass


class Ring:
    """Garbage that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


def calls_deeper() -> None:
    sleeps_deeper()


def sleeps_deeper() -> None:
    time.sleep(0.04)  # here


async def has_a_helper_that_sleeps() -> None:
    calls_deeper()


async def has_a_library_that_sleeps() -> None:
    threading.Event().wait(0.04)  # here


# --- cause and place --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", LOOPS)
def test_a_blocking_call_is_named_with_its_line(backend: Backend) -> None:
    steps = seen_steps(backend, sleeps)
    assert causes(steps) == "blocking-call"
    assert most_common([(step.file, step.line) for step in steps]) == (__file__, marked_line(sleeps))
    assert most_common([step.function for step in steps]) == "sleeps"
    # What C function an instruction calls is known from CPython 3.11 on.
    assert most_common([step.library for step in steps]) == ("time.sleep" if sys.version_info >= (3, 11) else None)
    for step in steps:
        assert step.cpu_ns is not None
        assert step.cpu_ns - step.gc_ns < (step.end_ns - step.start_ns - step.gc_ns) / 2


def test_the_place_of_a_step_that_the_watchdog_saw_in_time_is_exact() -> None:
    """One that was itself kept from the CPU takes that for the GIL, and says no more than "estimate"."""
    assert any(step.where == "exact" for _ in range(TRIES) for step in slow_steps("asyncio", sleeps))


def test_the_line_of_a_blocking_call_is_that_of_the_innermost_own_function() -> None:
    steps = seen_steps("asyncio", has_a_helper_that_sleeps)
    assert most_common([(step.function, step.line) for step in steps]) == ("sleeps_deeper", marked_line(sleeps_deeper))


def test_a_library_that_blocks_is_named_by_the_line_that_calls_it() -> None:
    steps = seen_steps("asyncio", has_a_library_that_sleeps)
    assert causes(steps) == "blocking-call"
    assert most_common([(step.file, step.line) for step in steps]) == (__file__, marked_line(has_a_library_that_sleeps))


def test_python_code_that_computes_is_named_as_such() -> None:
    steps = seen_steps("asyncio", spins)
    assert causes(steps) == "cpu"
    assert most_common([step.function for step in steps]) == "spins"
    assert most_common([step.file for step in steps]) == __file__
    assert all(step.line in lines_of(spins) for step in steps if step.function == "spins")
    assert all(step.library is None for step in steps)  # it stands behind a call whenever others may run


@cache
def hash_rounds(cpu_s: float = HASHED_S) -> int:
    """That take so much CPU: some processors have instructions for them, and are three times as fast."""
    began = time.thread_time()
    hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 20_000)
    return int(20_000 * cpu_s / (time.thread_time() - began))


async def hashes_briefly() -> None:
    hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", hash_rounds(BRIEFLY_HASHED_S))


async def hashes() -> None:
    rounds = hash_rounds()
    hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", rounds)  # here


@pytest.mark.skipif(sys.version_info < (3, 11), reason="what C function an instruction calls is not known")
@pytest.mark.parametrize("function", [hashes, hashes_briefly])
def test_c_code_that_computes_without_the_gil_is_named_as_such(function: Callable[[], Awaitable[None]]) -> None:
    """On a host without a free CPU ticks come late, and nothing is said of the GIL."""
    named = "_hashlib.pbkdf2_hmac without the GIL"
    hash_rounds(), hash_rounds(BRIEFLY_HASHED_S)
    assert any(step.library == named for _ in range(TRIES) for step in slow_steps("asyncio", function))


HELD_S = 0.15
PATTERN = re.compile(r"(a|a)*$")


@pytest.fixture(scope="module")
def hard() -> str:
    """What :data:`PATTERN` takes at least HELD_S of CPU to refuse, and nobody else gets the GIL meanwhile."""
    for length in range(16, 40):
        hard = "a" * length + "b"
        began = time.thread_time()
        PATTERN.match(hard)
        if time.thread_time() - began >= HELD_S:
            return hard
    raise AssertionError("no machine is that fast")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """When the watchdog began to look at a step; noted once it has looked."""
    began: list[int] = []
    look = watchdog.Watch.look

    def noted(watch: watchdog.Watch, limit_ns: int, late_ns: int | None) -> None:
        at = now_ns()
        look(watch, limit_ns, late_ns)
        began.append(at)

    monkeypatch.setattr(watchdog.Watch, "look", noted)
    return began


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this interpreter has no GIL")
def test_a_step_that_waited_for_a_collection_on_another_thread_blames_the_collector() -> None:
    """That thread has the GIL meanwhile. A call that sleeps as long is to blame itself."""
    rings: list[Ring] = []
    begin, over = threading.Event(), threading.Event()

    def collect() -> None:
        begin.wait(PATIENCE_S)
        rings.clear()
        gc.collect()
        over.set()

    async def spins_until_it_is_over() -> None:
        begin.set()
        while not over.is_set():
            pass

    async def sleeps_meanwhile() -> None:
        begin.set()
        time.sleep(0.5)

    def collected(function: Callable[[], Awaitable[None]]) -> list[StepRecord]:
        rings.extend(Ring() for _ in range(400_000))
        begin.clear()
        over.clear()
        collector = threading.Thread(target=collect)
        collector.start()
        try:
            return slow_steps("asyncio", function, rounds=1)
        finally:
            collector.join()

    gc.collect()
    gc.disable()
    try:
        assert causes(undisturbed(lambda: collected(spins_until_it_is_over))) == "gc"
        assert causes(undisturbed(lambda: collected(sleeps_meanwhile))) == "blocking-call"
    finally:
        gc.enable()


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this interpreter has no GIL")
def test_a_call_that_holds_the_gil_computes_and_its_place_is_no_more_than_an_estimate(
    hard: str, looks: list[int]
) -> None:
    """No sample arrives while it runs: what is seen is where the next bytecode stood."""
    waits: list[int] = []

    async def holds_the_gil() -> None:
        looks.clear()
        began = now_ns()
        PATTERN.match(hard)
        ended = now_ns()
        while (not looks or looks[-1] < ended) and now_ns() < ended + 20_000 * MS:
            pass  # bytecode, between which the GIL is given to whoever waits for it
        waits.append(looks[0] - began)

    def play() -> list[StepRecord]:
        steps = slow_steps("asyncio", holds_the_gil)
        for step in steps:
            assert step.where == "estimate"
            assert step.file == __file__
            assert step.line in lines_of(holds_the_gil)
        # A machine that was slow as the pattern was tried out may be twice as fast now.
        assert most_common([wait * 3 > HELD_S * 1e9 for wait in waits])
        return steps

    assert causes(undisturbed(play)) == "cpu"


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Three threads that compute and want the GIL all the time."""
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(500))

    threads = [threading.Thread(target=burn) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this interpreter has no GIL")
@pytest.mark.usefixtures("busy_threads")
def test_a_step_that_waits_for_the_gil_blames_the_gil() -> None:
    cpu, wall = time.process_time(), time.perf_counter()
    steps = undisturbed(lambda: slow_steps("asyncio", spins, rounds=5), rounds=5)
    share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    found = causes(steps)
    # Where the threads that hold the GIL have to wait for a CPU themselves, their turns take longer than they should.
    # Where they hardly run at all nothing tells that they are waited for.
    doubtful = {"unknown"} if share > 0.5 else {"unknown", "blocking-call"}
    assert found == "gil" or (share < 0.9 and found in doubtful), (share, steps)


@pytest.mark.usefixtures("busy_threads")
def test_a_blocking_call_beside_busy_threads_is_still_a_blocking_call() -> None:
    async def sleeps_long() -> None:
        time.sleep(0.1)  # here

    steps = seen_steps("asyncio", sleeps_long, rounds=5)
    assert causes(steps) == "blocking-call", steps
    assert most_common([step.line for step in steps]) == marked_line(sleeps_long)


def test_a_step_that_was_mostly_a_collection_blames_the_collector() -> None:
    rings: list[Ring] = []

    async def makes_garbage_and_collects() -> None:
        rings.clear()
        await asyncio.sleep(0)
        gc.collect()

    def collected() -> list[StepRecord]:
        rings.extend(Ring() for _ in range(150_000))
        return slow_steps("asyncio", makes_garbage_and_collects, rounds=1)

    gc.collect()
    gc.disable()
    try:
        steps = undisturbed(collected)
    finally:
        gc.enable()
    assert causes(steps) == "gc"
    assert all(step.gc_ns * 2 >= step.end_ns - step.start_ns for step in steps if step.cause == "gc")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_the_wait_for_a_cpu_is_known_on_linux() -> None:
    for step in slow_steps("asyncio", spins):
        assert step.run_queue_ns is not None
        assert step.cpu_ns is not None
        assert step.run_queue_ns + step.cpu_ns <= step.end_ns - step.start_ns


async def stops_often() -> None:
    for _ in range(20):
        time.sleep(0.003)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_how_often_a_step_stopped_is_counted() -> None:
    counts = [step.sleeps or 0 for step in undisturbed(lambda: slow_steps("asyncio", stops_often))]
    assert 20 <= min(counts) <= 30  # a host that takes the CPU away adds to some


def test_where_the_thread_clock_is_missing_the_cause_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_thread_clock", lambda thread_id: None)
    monkeypatch.setattr(watchdog, "open_task", lambda native_id, name: None)
    steps = seen_steps("asyncio", sleeps, known=False)
    assert {step.cause for step in steps} == {"unknown"}
    assert {(step.cpu_ns, step.run_queue_ns, step.sleeps) for step in steps} == {(None, None, None)}
    assert most_common([step.line for step in steps]) == marked_line(sleeps)


def test_a_step_that_still_runs_is_recorded_as_running_with_its_place() -> None:
    """What a hung server leaves behind if it is killed now."""
    release = threading.Event()
    kept = Kept()

    async def hangs() -> None:
        release.wait(200)  # here

    async def run() -> None:
        probe = Probe()
        probe.add_sink(kept)
        try:
            await probe.profile(hangs)()
        finally:
            probe.detach()

    def let_go_once_seen() -> None:
        until = time.monotonic() + 100
        while time.monotonic() < until and not any(step.line for step in running()):
            time.sleep(0.02)
        release.set()

    def running() -> list[StepRecord]:
        return [
            frame
            for frame in list(kept.frames)
            if isinstance(frame, StepRecord) and frame.running and frame.operation == hangs.__qualname__
        ]

    watcher = threading.Thread(target=let_go_once_seen)
    watcher.start()
    run_on("asyncio", run)
    watcher.join()
    # The collector may have come before the watchdog's first look.
    (first, *_) = [step for step in running() if step.line]
    assert (first.file, first.line) == (__file__, marked_line(hangs))
    (ended,) = [step for step in kept.steps() if step.operation == hangs.__qualname__]
    assert ended.start_ns == first.start_ns
    assert ended.end_ns >= first.end_ns


def test_steps_below_the_limit_are_not_looked_into() -> None:
    async def short() -> None:
        time.sleep(0.004)

    steps = [step for _ in range(TRIES) for step in slow_steps("asyncio", short)]
    quick = [step for step in steps if step.end_ns - step.start_ns < 10 * MS]
    assert quick
    assert {(step.cause, step.file, step.where) for step in quick} == {(None, None, "unavailable")}


# --- causes, from literal readings ----------------------------------------------------------------------------------


def cause_of(*, wall: int, cpu: int, sleeps: int, burned: int, asleep: int) -> str:
    """Of a step of the loop's thread that began at 0, in ms; ``burned`` is the CPU time of all other threads."""
    watch = watchdog.Watch(LoopMonitor(StepSink(1, deque(), 10 * MS, lambda raw, now: None), "test", EVERYTHING))
    try:
        start = Reading(at_ns=0, cpu_ns=0, run_queue_ns=0, slices=0, process_ns=0)
        end = Reading(wall * MS, cpu * MS, 0, sleeps, (cpu + burned) * MS)
        found: str = watch._cause(wall * MS, cpu * MS, 0, 0, asleep * MS, start, end)
    finally:
        watch.close()
    return found


@pytest.mark.parametrize(
    ("sleeps", "burned", "asleep", "cause"),
    [
        (60, 160, 0, "gil"),  # 2.7 ms each: half a switch interval, and the others had the CPU
        (60, 60, 0, "unknown"),  # the others hold the GIL and wait for a CPU themselves
        (60, 10, 0, "blocking-call"),  # nobody else ran
        (30, 160, 0, "unknown"),  # 5.3 ms each: five blocking calls of 20 ms look so, too
        (60, 160, 100, "blocking-call"),  # in one sleep of 100 ms, seen from outside
        (8, 160, 0, "blocking-call"),  # 20 ms each: no wait for the GIL lasts that long
    ],
)
def test_sleeps_of_a_step_are_told_apart(sleeps: int, burned: int, asleep: int, cause: str) -> None:
    assert cause_of(wall=200, cpu=40, sleeps=sleeps, burned=burned, asleep=asleep) == cause


def test_what_the_host_left_of_a_step_is_judged_by_itself() -> None:
    watch = watchdog.Watch(LoopMonitor(StepSink(1, deque(), 10 * MS, lambda raw, now: None), "test", EVERYTHING))
    start, end = Reading(0, 0, 0, 0, 0), Reading(500 * MS, 30 * MS, 0, 2, 30 * MS)
    try:
        assert watch._cause(500 * MS, 30 * MS, 300 * MS, 0, 0, start, end) == "blocking-call"
        assert watch._cause(500 * MS, 180 * MS, 300 * MS, 0, 0, start, end) == "cpu"
        assert watch._cause(500 * MS, 5 * MS, 491 * MS, 0, 0, start, end) == "run-queue"
    finally:
        watch.close()


@pytest.mark.skipif(watchdog._FUTEX is None, reason="which system call waits for a lock is known on Linux only")
@pytest.mark.parametrize(
    ("seen", "sleeps", "host"),
    [
        (None, 1, False),  # 200 ms at a stretch: a call that waits, and our own thread may be who had no CPU
        (None, 2, False),
        (None, None, False),
        (None, 10, False),  # 20 ms each
        (None, 60, True),  # 3.3 ms each, as one waits for the GIL
        ("lock", 1, True),
        ("call", 60, False),
    ],
)
def test_a_thread_without_a_cpu_explains_only_waits_for_a_lock(
    seen: str | None, sleeps: int | None, host: bool
) -> None:
    class Starved(watchdog.Starvation):
        def longest_ns(self, since: int, beside: int) -> int:
            return 150 * MS

    monitor = LoopMonitor(StepSink(1, deque(), 10 * MS, lambda raw, now: None), "test", EVERYTHING)
    watch = watchdog.Watch(monitor, Starved())
    case = None if seen is None else watchdog._Case(1, Counter(), False, in_call=seen == "call")
    try:
        assert watch._is_host(case, 1, 200 * MS, sleeps) == host
    finally:
        watch.close()


def test_a_long_sleep_is_seen_while_the_thread_is_not_put_on_a_cpu() -> None:
    case = watchdog._Case(1, Counter(), False)
    for slices, at in ((5, 0), (5, 5), (6, 10), (6, 20), (6, 40), (7, 45), (7, 50), (8, 55), (8, 75)):
        case.note_slices(slices, at * MS)
    assert case.asleep_ns == (30 + 20) * MS, "30 ms from 10 on and 20 from 55 on; the others are no longer than 15"


async def first_step_is_slow() -> None:
    time.sleep(0.04)  # here


def test_a_step_under_way_as_the_loop_comes_to_be_known_has_a_cause_and_a_place() -> None:
    """There was no tick before it: a server's start-up."""
    kept = Kept()

    async def run() -> None:
        probe = Probe()
        probe.add_sink(kept)
        try:
            await probe.profile(anyio.lowlevel.checkpoint)()
            await first_step_is_slow()
            await anyio.sleep(0)
        finally:
            probe.detach()

    def play() -> list[StepRecord]:
        kept.frames.clear()
        run_on("asyncio", run)
        return [max(kept.steps(), key=lambda step: step.end_ns - step.start_ns)]

    steps = [step for _ in range(TRIES) for step in undisturbed(play, 1)]
    assert causes(steps) == "blocking-call"
    assert most_common([step.line for step in steps if step.line is not None]) == marked_line(first_step_is_slow)


def test_a_place_is_told_while_others_are_still_being_seen() -> None:
    """The loop's thread asks as its step ends; the watchdog may be in the middle of a look."""
    case = watchdog._Case(since=1, places=Counter(), gil_gap=False)
    told = threading.Event()

    def see() -> None:
        for line in range(30_000):
            case.places[Place("server.py", line, "tool")] += 1
            if line > 100 and told.is_set():
                return

    watching = threading.Thread(target=see)
    watching.start()
    try:
        for _ in range(60):
            place = case.place()
            assert place is None or place.function == "tool"
    finally:
        told.set()
        watching.join()
