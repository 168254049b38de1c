"""Each kind of loop shows what its monitor declares, as exactly as it declares it, and nothing else.

Programs are built so that the truth is known: they spin by their own clock, note each instant themselves, and what
happens in the middle of a step is forced there by that step. Figures are compared with that. A machine that others use
takes the CPU away between an instant and its note, so figures may be off in some rounds, but not in all of them; what
is no matter of time holds in every round.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from mcp_probe.adapters.asyncio_loop import AsyncioHooks
from mcp_probe.adapters.hook import declared
from mcp_probe.adapters.unknown_loop import UnknownMonitor
from mcp_probe.aggregate.blocking import StepIndex, blame, victim_of
from mcp_probe.capture.loop_monitor import EVERYTHING, NOTHING, LoopMonitor, Sight
from mcp_probe.model import ALL_SEEN, LOOP_OPERATION, STEPS, WAKE_UPS, LoopSummary, RequestRecord, Summary
from mcp_probe.report.console import render
from mcp_probe.session import Probe
from tests.kept import Kept, keep, unavailable
from tests.native.loops import TWINS
from tests.running import Backend, run_on

T = TypeVar("T")
Span = tuple[int, int]
Async = Callable[[], Coroutine[Any, Any, None]]

MS = 1_000_000
TRIES = 6
ON_LOOP = {"busy", "gc", "ready_wait", "executor_return", "awaiting"}
UVLOOP: Backend = ("asyncio", {"use_uvloop": True})

DECLARED = {
    "asyncio": EVERYTHING,
    "uvloop": Sight(steps="exact", wake_ups="exact", sockets="bounded", polls="estimate"),
    "trio": EVERYTHING,
    "unknown": NOTHING,
}
"""What README and docs say of each kind: a monitor that declares less than before is noticed here."""


@dataclass(frozen=True)
class Kind:
    """One kind of loop, and how a test gets one."""

    name: str
    backend: Backend
    twin: str = ""  # of asyncio's handles

    @property
    def sees(self) -> Sight:
        return DECLARED[self.name]

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        return run_on(self.backend, main)

    @contextmanager
    def met(self) -> Iterator[None]:
        """Loops that run inside are met as of this kind by probes that are made inside."""
        with TWINS[self.twin]() if self.twin else pytest.MonkeyPatch.context(), pytest.MonkeyPatch.context() as patch:
            if self.name == "unknown":
                patch.setattr(AsyncioHooks, "fits", lambda hooks, loop: False)
            yield


KINDS = [
    *(pytest.param(Kind("asyncio", "asyncio", twin), id=f"asyncio, handles in {twin}") for twin in TWINS),
    pytest.param(Kind("uvloop", UVLOOP), id="uvloop"),
    pytest.param(Kind("trio", "trio"), id="trio"),
    pytest.param(Kind("unknown", "asyncio"), id="unknown"),
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    with request.param.met():
        yield request.param


@contextmanager
def probing() -> Iterator[tuple[Probe, Kept]]:
    """A probe; what it recorded is complete when the block has been left."""
    probe = Probe()
    kept = keep(probe)
    try:
        yield probe, kept
    finally:
        probe.detach()


def the_monitor(probe: Probe) -> LoopMonitor:
    monitor = probe._hooks.loops.follow()
    assert monitor is not None
    return monitor


def in_some_round(play: Callable[[], T], off: Callable[[T], dict[str, float]], check: Callable[[T], None]) -> None:
    """Every round passes ``check``. In one of them at least all that ``off`` says is at most 1: error over margin."""
    worst: dict[str, float] = {}
    for _ in range(TRIES):
        played = play()
        check(played)
        worst = {name: error for name, error in off(played).items() if error > 1}
        if not worst:
            return
    pytest.fail(f"in none of {TRIES} rounds, last: {worst}")


def error(found: float | None, true: float) -> float:
    """How far off, in ns, as a multiple of what is called exact: 5 ms or 5 %."""
    return float("inf") if found is None else abs(found - true) / max(5 * MS, 0.05 * true)


def outside(bounds: Span, true: float) -> float:
    """How far the truth lies outside of the bounds, as a multiple of 2 ms."""
    return max(0.0, bounds[0] - true, true - bounds[1]) / (2 * MS)


def spin(seconds: float) -> Span:
    """Stay on the loop. Returns from when until when."""
    began = time.monotonic_ns()
    while time.monotonic_ns() - began < seconds * 1e9:
        pass
    return began, time.monotonic_ns()


def length(span: Span) -> int:
    return span[1] - span[0]


def assert_nothing_is_made_up(record: RequestRecord) -> None:
    """What cannot be seen on this loop is no number."""
    assert not record.seen & (STEPS | WAKE_UPS)
    assert {part for part in ON_LOOP if getattr(record.budget, part) is None} == ON_LOOP
    assert unavailable(record) >= ON_LOOP
    assert (record.steps, record.waits, record.awaits) == (0, (), None)


# --- what is declared ------------------------------------------------------------------------------------------------


def test_a_monitor_declares_what_its_kind_shows_and_each_request_carries_it(kind: Kind) -> None:
    async def main(probe: Probe) -> Sight:
        await probe.profile(anyio.lowlevel.checkpoint)()
        monitor = the_monitor(probe)
        assert monitor.name == ("asyncio" if kind.name == "unknown" else kind.name)
        assert isinstance(monitor, UnknownMonitor) == (kind.name == "unknown")
        return monitor.sees

    with probing() as (probe, kept):
        assert kind.run(lambda: main(probe)) == kind.sees
    [record] = kept.requests(kind="function")
    assert record.seen == kind.sees.bits
    assert (record.seen == ALL_SEEN) == (kind.name != "unknown")


def test_following_a_loop_again_gives_the_same_monitor(kind: Kind) -> None:
    async def main(probe: Probe) -> None:
        first = the_monitor(probe)
        patches = len(declared())
        await anyio.sleep(0.001)
        assert the_monitor(probe) is first
        probe._hub.monitors = {}  # as where another loop has had its turn on this thread meanwhile
        assert the_monitor(probe) is first
        assert list(probe._hub.monitors.values()) == [first]
        assert len(probe._hub.watchdog.watches()) == 1
        assert len(declared()) == patches
        assert first.is_running() and not first.is_over()

    with probing() as (probe, _):
        kind.run(lambda: main(probe))


# --- steps -----------------------------------------------------------------------------------------------------------


@dataclass
class Steps:
    """Spins of a request's own task, of a child of it, and of a task that belongs to no request."""

    own: list[Span] = field(default_factory=list)
    children: list[Span] = field(default_factory=list)
    nobody: list[Span] = field(default_factory=list)
    kept: Kept = field(default_factory=Kept)

    @property
    def record(self) -> RequestRecord:
        [record] = self.kept.requests(kind="function")
        return record

    def long(self, request: int) -> list[Span]:
        """The probe's steps of it, those of the plan: each spins for 4 ms at least."""
        found = [step for step in self.kept.steps() if step.request == request]
        return [(step.start_ns, step.end_ns) for step in found if step.end_ns - step.start_ns >= 3 * MS]


def played_steps(kind: Kind) -> Steps:
    """The request spins in four steps of its own and in one of each of its two children, for which it waits."""
    steps = Steps()

    async def child() -> None:
        await anyio.lowlevel.checkpoint()
        steps.children.append(spin(0.012))

    async def work() -> None:
        for milliseconds in (4, 16, 8, 6):
            steps.own.append(spin(milliseconds / 1000))
            await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as group:
            group.start_soon(child)
            group.start_soon(child)

    async def main(probe: Probe) -> None:
        followed = the_monitor(probe)
        async with anyio.create_task_group() as group:
            go, gone = anyio.Event(), anyio.Event()

            async def nobody() -> None:
                await go.wait()
                steps.nobody.append(spin(0.02))
                gone.set()

            group.start_soon(nobody)
            await anyio.sleep(0.001)
            await probe.profile(work)()
            go.set()
            await gone.wait()
        assert the_monitor(probe) is followed

    with probing() as (probe, steps.kept):
        kind.run(lambda: main(probe))
    return steps


def test_steps_are_seen_one_by_one_with_their_length_and_owner(kind: Kind) -> None:
    def check(steps: Steps) -> None:
        record = steps.record
        if kind.sees.steps == "unavailable":
            assert_nothing_is_made_up(record)
            assert steps.kept.steps() == []
            assert record.step_max_ns == 0
            return
        # Four of its own, one that begins to wait for its children, one that ends it; two of each child.
        assert record.steps >= 10
        assert record.tasks_peak == 3
        assert len(steps.long(record.id)) >= len(steps.own) + len(steps.children)

    def off(steps: Steps) -> dict[str, float]:
        if kind.sees.steps == "unavailable":
            return {}
        record, spins = steps.record, sorted([*steps.own, *steps.children])
        longest = max(map(length, spins))
        errors = {
            "busy": error(record.budget.busy, sum(map(length, spins))),
            "longest": error(record.step_max_ns, longest),
            "count": float(record.steps > 12),
            "nobody's": nearest(steps.nobody[0], steps.long(0)),
        }
        return {
            **errors,
            **{f"step {number}": nearest(true, steps.long(record.id)) for number, true in enumerate(spins)},
        }

    in_some_round(lambda: played_steps(kind), off, check)


def nearest(true: Span, spans: list[Span]) -> float:
    """The error of the one of ``spans`` that is ``true``."""
    here = [span for span in spans if max(span[0], true[0]) < min(span[1], true[1])]
    return min((error(length(span), length(true)) for span in here), default=float("inf"))


def test_the_step_in_which_a_loop_came_to_be_followed_ends_where_it_ends(kind: Kind) -> None:
    """Nothing saw it begin, and some hooks do not see it end; what follows is a wait and no step."""

    def play() -> RequestRecord:
        async def work() -> None:
            spin(0.01)
            await anyio.sleep(0.1)

        with probing() as (probe, kept):
            kind.run(lambda: probe.profile(work)())
        [record] = kept.requests(kind="function")
        return record

    def check(record: RequestRecord) -> None:
        if kind.sees.steps == "unavailable":
            assert_nothing_is_made_up(record)

    def off(record: RequestRecord) -> dict[str, float]:
        if kind.sees.steps == "unavailable":
            return {}
        return {
            "longest": error(record.step_max_ns, 10 * MS),
            "awaiting": error(record.budget.awaiting, 100 * MS),
        }

    in_some_round(play, off, check)


# --- wake-ups, and who is blamed for what comes after them -----------------------------------------------------------


FIRST_S, SECOND_S = 0.06, 0.04
VICTIMS = {"event": "ready_wait", "thread": "executor_return", "timer": "ready_wait", "socket": "ready_wait"}
"""Who waits for what, and the part of the budget that it shows in."""


@dataclass
class Waits:
    """Two blockers follow each other in one step; all the victims become ready while the first one is on the loop."""

    ready_ns: dict[str, int] = field(default_factory=dict)
    resumed_ns: dict[str, int] = field(default_factory=dict)
    blocked: dict[str, Span] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)
    summary: Summary | None = None

    def record(self, victim: str) -> RequestRecord:
        [record] = self.kept.requests(victim, kind="function")
        return record

    def true_wait(self, victim: str) -> int:
        return self.resumed_ns[victim] - self.ready_ns[victim]

    def true_blame(self, victim: str, blocker: str) -> int:
        began, ended = self.blocked[blocker]
        return max(0, min(ended, self.resumed_ns[victim]) - max(began, self.ready_ns[victim]))

    def found_blame(self, victim: str, blocker: str) -> Span:
        one = victim_of(self.record(victim))
        return (0, 0) if one is None else blame(one, StepIndex(self.kept.steps())).rows.get(blocker, (0, 0))

    def found_wait(self, victim: str) -> Span:
        """(lo, hi) of the part of its budget that it waited in."""
        part, record = VICTIMS[victim], self.record(victim)
        for name, tag, lo, hi in record.quality:
            if name == part and tag == "bounded" and lo is not None and hi is not None:
                return lo, hi
        value = getattr(record.budget, part)
        return value, value


def played_waits(kind: Kind) -> Waits:
    waits = Waits()
    near, far = socket.socketpair()
    near.setblocking(False)
    go, done = threading.Event(), threading.Event()

    async def main(probe: Probe) -> None:
        event = anyio.Event()
        waiting = 0

        def named(name: str, function: Async) -> Async:
            function.__qualname__ = name
            return probe.profile(function)

        def victim(name: str, wait: Callable[[], Awaitable[Any]]) -> Async:
            async def suffer() -> None:
                nonlocal waiting
                waiting += 1
                await wait()
                waits.resumed_ns[name] = time.monotonic_ns()

            return named(name, suffer)

        def work() -> None:
            go.wait()
            waits.ready_ns["thread"] = time.monotonic_ns()
            done.set()

        async def for_thread() -> None:
            await anyio.to_thread.run_sync(work)

        async def for_timer() -> None:
            await anyio.sleep_until(deadline)

        async def first() -> None:
            began = time.monotonic_ns()
            waits.ready_ns["event"] = began
            event.set()
            go.set()
            done.wait()
            spin(0.01)  # what the thread tells the loop is on its way
            waits.ready_ns["socket"] = time.monotonic_ns()
            far.send(b"x")
            while time.monotonic_ns() < max(began + FIRST_S * 1e9, waits.ready_ns["timer"] + 20 * MS):
                pass
            waits.blocked["first"] = began, time.monotonic_ns()

        async def second() -> None:
            waits.blocked["second"] = spin(SECOND_S)

        async with anyio.create_task_group() as group:
            deadline = anyio.current_time() + 0.06
            waits.ready_ns["timer"] = time.monotonic_ns() + round((deadline - anyio.current_time()) * 1e9)
            ways: dict[str, Callable[[], Awaitable[Any]]] = {
                "event": event.wait,
                "thread": for_thread,
                "timer": for_timer,
                "socket": lambda: anyio.wait_readable(near),
                "sleeper": anyio.sleep_forever,
            }
            for name, wait in ways.items():
                group.start_soon(victim(name, wait))
            while waiting < len(ways):
                await anyio.sleep(0.001)
            await anyio.sleep(0.02)
            await named("first", first)()
            await named("second", second)()
            while len(waits.resumed_ns) < len(VICTIMS):
                await anyio.sleep(0.001)
            group.cancel_scope.cancel()
        waits.summary = probe.snapshot()

    with near, far, probing() as (probe, waits.kept):
        kind.run(lambda: main(probe))
    return waits


def test_a_wake_up_counts_from_the_instant_it_happened_and_blames_who_was_on_the_loop_then(kind: Kind) -> None:
    def check(waits: Waits) -> None:
        assert waits.summary is not None
        if kind.sees.wake_ups == "unavailable":
            for name in (*VICTIMS, "sleeper", "first", "second"):
                assert_nothing_is_made_up(waits.record(name))
            assert waits.summary.blocked_by == ()
            assert waits.summary.slow_steps == ()
            for row in waits.summary.operations:
                assert set(row.unseen) >= {"wake-ups", "steps"}
                assert {part for part in ON_LOOP if getattr(row.budget_ms, part) is None} == ON_LOOP
            return
        assert waits.found_blame("sleeper", "first") == waits.found_blame("sleeper", "second") == (0, 0)
        lo, hi = waits.found_wait("socket")
        assert lo <= hi
        assert "ready_wait" not in {name for name, *_ in waits.record("event").quality}

    def off(waits: Waits) -> dict[str, float]:
        if kind.sees.wake_ups == "unavailable":
            return {}
        bounded = {name for name, tag, _, _ in waits.record("socket").quality if tag == "bounded"}
        errors = {
            "socket": outside(waits.found_wait("socket"), waits.true_wait("socket")),
            "its exactness": 2.0 * (("ready_wait" in bounded) != (kind.sees.sockets == "bounded")),
        }
        for blocker in ("first", "second"):
            true = waits.true_blame("socket", blocker)
            errors[f"socket, {blocker}"] = outside(waits.found_blame("socket", blocker), true)
        for victim in ("event", "thread", "timer"):
            lo, hi = waits.found_wait(victim)
            errors[victim] = max(error(lo, waits.true_wait(victim)), error(hi, waits.true_wait(victim)))
            for blocker in ("first", "second"):
                true, (lo, hi) = waits.true_blame(victim, blocker), waits.found_blame(victim, blocker)
                errors[f"{victim}, {blocker}"] = max(error(lo, true), error(hi, true))
        return errors

    in_some_round(lambda: played_waits(kind), off, check)


# --- polls -----------------------------------------------------------------------------------------------------------


def test_how_long_the_loop_was_idle_is_known_as_exactly_as_declared(kind: Kind) -> None:
    def play() -> tuple[float, float, LoopSummary]:
        async def main(probe: Probe) -> tuple[float, float, LoopSummary]:
            await probe.profile(anyio.lowlevel.checkpoint)()
            began, held = time.monotonic_ns(), 0
            for _ in range(2):
                await anyio.sleep(0.1)
                held += length(spin(0.05))
            await anyio.sleep(0.05)
            summary = probe.snapshot().loop
            return held / (time.monotonic_ns() - began), held / 2 / MS, summary

        with probing() as (probe, _):
            return kind.run(lambda: main(probe))

    def check(played: tuple[float, float, LoopSummary]) -> None:
        assert played[2].quality == kind.sees.polls
        delay = played[2].arrival_delay_ms
        figures = (played[2].utilization, delay.mean, delay.p50, delay.p90, delay.p99, delay.max)
        assert [figure is None for figure in figures] == [kind.sees.polls == "unavailable"] * len(figures)

    def off(played: tuple[float, float, LoopSummary]) -> dict[str, float]:
        busy, held_ms, summary = played
        if summary.utilization is None or summary.arrival_delay_ms.max is None:
            return {}
        return {
            "utilization": abs(summary.utilization - busy) / 0.05,
            "longest": abs(summary.arrival_delay_ms.max - held_ms) / (0.2 * held_ms),
        }

    in_some_round(play, off, check)


# --- loops that come and go ------------------------------------------------------------------------------------------


def test_a_loop_that_ends_makes_room_for_the_next_one_on_its_thread(kind: Kind) -> None:
    async def main(probe: Probe) -> LoopMonitor:
        monitor = the_monitor(probe)
        await probe.profile(anyio.lowlevel.checkpoint)()
        assert list(probe._hub.monitors.values()) == [monitor]
        assert monitor.alive
        return monitor

    with probing() as (probe, kept):
        first = kind.run(lambda: main(probe))
        assert not first.is_running()
        second = kind.run(lambda: main(probe))
        assert second is not first
        assert not first.alive
        gc.collect()
        deadline = time.monotonic() + 5
        while (first.loop() or second.loop()) and time.monotonic() < deadline:
            time.sleep(0.001)  # another thread may just be asking it
        assert first.loop() is None and second.loop() is None, "the monitor, or who watches it, keeps the loop alive"
        assert len(probe._hub.watchdog.watches()) == 1
    records = kept.requests(kind="function")
    assert [record.seen for record in records] == [kind.sees.bits] * 2
    if kind.sees.steps != "unavailable":
        assert [record.loop for record in records] == [first.ordinal, second.ordinal]
        assert all(record.steps > 0 and not record.partial for record in records)


def test_a_loop_that_can_be_seen_is_seen_after_one_that_cannot(kind: Kind) -> None:
    async def main(probe: Probe) -> None:
        await probe.profile(anyio.lowlevel.checkpoint)()

    with probing() as (probe, kept):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AsyncioHooks, "fits", lambda hooks, loop: False)
            run_on("asyncio", lambda: main(probe))
        kind.run(lambda: main(probe))
    hidden, seen = kept.requests(kind="function")
    assert_nothing_is_made_up(hidden)
    assert seen.seen == kind.sees.bits
    assert (seen.budget.busy is None) == (kind.sees.steps == "unavailable")


def test_a_request_that_never_ran_on_a_loop_is_unseen_where_loops_are(kind: Kind) -> None:
    async def main(probe: Probe) -> int:
        the_monitor(probe)
        raw = probe._hub.begin("request", "tools/call", "never", "streams", probe)
        probe._hub.requests.end(raw, time.monotonic_ns(), "cancelled")
        return raw.seen

    with probing() as (probe, _):
        assert kind.run(lambda: main(probe)) == kind.sees.bits


@pytest.mark.parametrize("kind", [param for param in KINDS if param.id != "trio"], indirect=True)
def test_what_a_callback_was_given_lives_no_longer_than_bare_though_its_traceback_is_kept(kind: Kind) -> None:
    class Thing:
        pass

    def fails(thing: Thing) -> None:
        del thing
        raise LookupError

    async def main(probe: Probe | None) -> list[bool]:
        if probe is not None:
            the_monitor(probe)
        raised: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
        things = [Thing() for _ in range(3)]
        gone = [weakref.ref(thing) for thing in things]
        loop.call_soon(fails, things.pop())
        loop.call_later(0.001, fails, things.pop())
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(fails, things.pop()))
        thread.start()
        thread.join()
        del thread
        while len(raised) < 3:
            await asyncio.sleep(0.001)
        return [thing() is None for thing in gone]

    bare = kind.run(lambda: main(None))
    assert bare == [True] * 3 or kind.name != "uvloop", "nothing to compare with"
    with probing() as (probe, _):
        assert kind.run(lambda: main(probe)) == bare


def test_detaching_in_the_middle_of_a_request_leaves_the_program_alone_and_nothing_behind(kind: Kind) -> None:
    told: list[str] = []

    async def work(probe: Probe) -> str:
        spin(0.002)
        await anyio.sleep(0.001)
        monitor = the_monitor(probe)
        await anyio.to_thread.run_sync(probe.detach)
        assert not monitor.alive
        assert declared() == ()
        told.append("on the loop")
        await anyio.to_thread.run_sync(told.append, "on a thread")
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0.001)
        steps = monitor.steps
        await anyio.sleep(0.001)
        assert monitor.steps == steps
        if kind.name == "trio":
            assert monitor not in sys.modules["trio"]._core._run.GLOBAL_RUN_CONTEXT.runner.instruments.get(
                "before_task_step", {}
            )
        return "done"

    async def main(probe: Probe) -> str:
        return await probe.profile(work)(probe)

    with probing() as (probe, kept):
        assert kind.run(lambda: main(probe)) == "done"
    assert told == ["on the loop", "on a thread"]
    [record] = kept.requests(kind="function")
    assert record.outcome == "unfinished"
    assert record.seen == kind.sees.bits


# --- faults of ours --------------------------------------------------------------------------------------------------


def test_a_fault_of_ours_turns_the_monitor_off_and_the_program_runs_on(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise LookupError("ours")

    async def work(probe: Probe) -> str:
        monitor = the_monitor(probe)
        await anyio.sleep(0.001)
        if kind.sees.steps == "unavailable":
            monitor.broken(LookupError("ours"))  # it has no hooks that could fail, and is said to be off already
        else:
            monkeypatch.setattr(LoopMonitor, "_keep", fails)
            spin(0.005)
        await anyio.sleep(0.001)
        assert not monitor.alive
        assert monitor.since == 0
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0.001)
        return await anyio.to_thread.run_sync(lambda: "done")

    async def main(probe: Probe) -> str:
        done = await probe.profile(work)(probe)
        await probe.profile(anyio.lowlevel.checkpoint)()
        return done

    with probing() as (probe, kept):
        assert kind.run(lambda: main(probe)) == "done"
        states = [state for state in probe._hub.hooks.values() if state.startswith("disabled after LookupError")]
        assert len(states) == (kind.name != "unknown")
    broken, later = kept.requests(kind="function")[0], kept.requests(kind="function")[1:]
    assert broken.partial
    for record in (broken, *later):
        assert_nothing_is_made_up(record)


def test_who_held_a_lock_is_told_where_steps_are_seen_and_nothing_of_it_elsewhere(kind: Kind) -> None:
    async def main(probe: Probe) -> None:
        lock = anyio.Lock()

        async def locked() -> None:
            async with lock:
                await anyio.sleep(0.03)

        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(probe.profile(locked))

    with probing() as (probe, kept):
        kind.run(lambda: main(probe))
    summary = probe.snapshot()
    (row,) = summary.operations
    held = [one for one in summary.blocked_by if one.kind is not None]
    text = render(summary, width=100, color=False)
    if kind.sees.steps == "unavailable":
        assert {record.awaits for record in kept.requests(kind="function")} == {None}
        assert (row.awaits, row.awaits_unnamed_ms, held) == ((), None, [])
        assert "What they waited for" not in text
    else:
        assert [(one.kind, one.victims, one.blocker == row.name) for one in held] == [("lock", 1, True)]
        assert "What they waited for" in text


def test_what_nobody_is_blamed_for_is_not_said_to_be_the_loops(kind: Kind) -> None:
    """An idle loop is not a busy one, whatever hooks it has."""

    async def main(probe: Probe) -> Summary:
        await probe.profile(anyio.lowlevel.checkpoint)()
        await anyio.sleep(0.3)
        return probe.snapshot()

    def play() -> Summary:
        with probing() as (probe, _):
            return kind.run(lambda: main(probe))

    def off(summary: Summary) -> dict[str, float]:
        return {step.tool: step.ms / 100 for step in summary.slow_steps if step.tool == LOOP_OPERATION}

    in_some_round(play, off, lambda summary: None)


class PollsItsOwnWay:
    """Does what a selector does, and is none: nothing is known of how it polls."""

    def __init__(self, selector: Any) -> None:
        self._inner = selector

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_an_asyncio_loop_whose_polls_cannot_be_seen_counts_as_unknown() -> None:
    async def main(probe: Probe) -> Summary:
        await probe.profile(work)()
        return probe.snapshot()

    async def work() -> None:
        spin(0.02)
        await anyio.sleep(0.1)
        await anyio.to_thread.run_sync(lambda: None)

    loop: Any = asyncio.SelectorEventLoop()
    loop._selector = PollsItsOwnWay(loop._selector)
    try:
        with probing() as (probe, kept):
            summary = loop.run_until_complete(main(probe))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    [record] = kept.requests(kind="function")
    assert_nothing_is_made_up(record)
    assert (summary.slow_steps, summary.loop.utilization, summary.loop.quality) == ((), None, "unavailable")
