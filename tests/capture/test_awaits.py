"""What requests await on real loops, against what the tests note themselves inside the critical sections."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import types
import weakref
from asyncio import sleep as imported_by_name
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.capture import await_looks, awaits, in_flight
from mcp_probe.capture.await_kinds import kind_of as kind_of_function
from mcp_probe.capture.awaits import Held, holders_of, variable_of
from mcp_probe.model import BACKGROUND_OPERATION, UNKNOWN_HOLDER, Await, HolderPart, RequestRecord
from mcp_probe.record.raw import RawRequest
from mcp_probe.session import Probe
from tests.kept import Kept, keep
from tests.loops import LOOPS
from tests.rounds import until_right
from tests.running import Backend, kind_of, run_on
from tests.turns import MS, Turn, held_for, held_in

HELD_S = 0.03
CLOSE_MS = 5.0
"""Our stamps and the test's are made in the same step; a busy machine may stop the thread between them."""

on_each_loop = pytest.mark.parametrize("backend", LOOPS)
AT_MODULE_LEVEL = asyncio.Lock()
WITHOUT_A_LOOP = anyio.Lock()


@dataclass
class Scene:
    """One run of some calls, each an operation of its own."""

    probe: Probe
    turns: dict[str, Turn] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)

    def call(self, name: str, body: Callable[[], Awaitable[Any]]) -> Callable[[], Coroutine[Any, Any, Any]]:
        async def called() -> Any:
            return await body()

        called.__qualname__ = name
        return self.probe.profile(called)

    def record(self, name: str) -> RequestRecord:
        (record,) = self.kept.requests(name, kind="function")
        return record

    def awaits(self, name: str, *kinds: str) -> list[Await]:
        return [one for one in self.record(name).awaits or () if one.kind in kinds or not kinds]


def play(backend: Backend, scenario: Callable[[Scene], Awaitable[None]]) -> Scene:
    probe = Probe()
    scene = Scene(probe)
    scene.kept = keep(probe)
    try:
        run_on(backend, lambda: scenario(scene))
    finally:
        probe.detach()
    assert [state for state in probe._hub.hooks.values() if state.startswith("disabled")] == []
    return scene


def holding(
    scene: Scene, name: str, gate: Any, seconds: float = HELD_S, once: anyio.Event | None = None
) -> Callable[[], Coroutine[Any, Any, Any]]:
    """A call that holds ``gate`` for some time, from ``once`` on if that is given, and notes when."""
    turn = scene.turns[name] = Turn(name)

    async def hold() -> None:
        turn.asked = time.monotonic_ns()
        async with gate:
            turn.got = time.monotonic_ns()
            if once is not None:
                await once.wait()
            await anyio.sleep(seconds)
            turn.gave_back = time.monotonic_ns()
        turn.left = time.monotonic_ns()

    return scene.call(name, hold)


def check_holders(scene: Scene, kind: str, places: int) -> None:
    """Each wait and each holder of it are as the turns say; nobody else held anything."""
    truth = held_for(list(scene.turns.values()), places)
    close_ms = CLOSE_MS + max(turn.unsure_ms for turn in scene.turns.values())
    waited = 0
    for name in scene.turns:
        found = held_in(scene.awaits(name, kind))
        total = sum(one.ns for one in scene.awaits(name, kind)) / MS
        if not truth.get(name):
            assert not found
            continue
        assert sum(found.values()) == pytest.approx(total, abs=0.01)
        expected = {holder: ms for holder, ms in truth.get(name, {}).items() if ms > close_ms}
        assert set(expected) <= set(found)
        for holder, ms in found.items():
            assert ms == pytest.approx(truth[name].get(holder, 0.0), abs=max(close_ms, 0.05 * ms)), (name, holder)
        waited += 1
    assert waited == len(scene.turns) - places


@contextmanager
def without_collections() -> Iterator[None]:
    """One that runs in a wait is no part of it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


MAKERS: dict[str, tuple[Callable[[], Any], str, int]] = {
    "asyncio.Lock": (asyncio.Lock, "lock", 1),
    "asyncio.Semaphore": (lambda: asyncio.Semaphore(2), "semaphore", 2),
    "asyncio.BoundedSemaphore": (lambda: asyncio.BoundedSemaphore(2), "semaphore", 2),
    "anyio.Lock": (anyio.Lock, "lock", 1),
    "anyio.Semaphore": (lambda: anyio.Semaphore(2), "semaphore", 2),
    "anyio.CapacityLimiter": (lambda: anyio.CapacityLimiter(2), "limiter", 2),
    "trio.Lock": (trio.Lock, "lock", 1),
    "trio.Semaphore": (lambda: trio.Semaphore(2), "semaphore", 2),
    "trio.CapacityLimiter": (lambda: trio.CapacityLimiter(2), "limiter", 2),
}


@on_each_loop
@pytest.mark.parametrize("made", MAKERS)
def test_each_wait_is_charged_to_those_who_held_it(backend: Backend, made: str) -> None:
    library, other = made.partition(".")[0], {"trio": "asyncio"}.get(kind_of(backend), "trio")
    if library == other:
        pytest.skip(f"{library} does not run on {kind_of(backend)}")
    make, kind, places = MAKERS[made]

    async def scenario(scene: Scene) -> None:
        gate, all_asked = make(), anyio.Event()
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(holding(scene, f"call {number}", gate, once=all_asked))
                while not scene.turns[f"call {number}"].asked:
                    await anyio.sleep(0)
                scene.turns[f"call {number}"].waits = time.monotonic_ns()
                await anyio.sleep(0.002)
            all_asked.set()

    with without_collections():
        scene = play(backend, scenario)
    check_holders(scene, kind, places)
    for one in scene.awaits("call 4", kind):
        name = made.replace("Bounded", "")
        if (made, kind_of(backend)) == ("anyio.CapacityLimiter", "trio"):
            name = "trio.CapacityLimiter"  # anyio's hands the call on without a method of its own
        assert one.object.startswith(f"{name} made at test_awaits.py:")
        assert (one.where or "").startswith(__file__)
        assert {part.where for part in one.holders} == {one.where}  # all take it at the same line


def test_an_event_that_anyio_makes_does_not_hide_where_its_limiters_are_made() -> None:
    async def scenario(scene: Scene) -> None:
        anyio.Event()  # trio's, made by a file of anyio's that makes its limiters, too
        gate = anyio.CapacityLimiter(1)
        async with anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(holding(scene, f"call {number}", gate))

    scene = play("trio", scenario)
    (wait,) = scene.awaits("call 0", "limiter") or scene.awaits("call 1", "limiter")
    assert wait.object.startswith("trio.CapacityLimiter made at test_awaits.py:")


@pytest.mark.parametrize(("backend", "library"), [("asyncio", anyio), ("trio", trio)])
def test_a_limiters_borrower_may_be_given_by_name(backend: Backend, library: Any) -> None:
    async def scenario(scene: Scene) -> None:
        limiter, borrower = library.CapacityLimiter(1), object()
        held = scene.probe._hub.awaits.known(limiter)
        assert held is not None
        await limiter.acquire_on_behalf_of(borrower=borrower)
        assert len(held.holds) == 1
        limiter.release_on_behalf_of(borrower=borrower)
        limiter.acquire_on_behalf_of_nowait(borrower=borrower)
        assert len(held.holds) == 1
        limiter.release_on_behalf_of(borrower=borrower)
        assert not held.holds

    play(backend, scenario)


def test_what_is_borrowed_for_a_task_of_a_transport_is_not_looked_at_until_that_is_gone() -> None:
    async def scenario(scene: Scene) -> None:
        awaits, limiter = scene.probe._hub.awaits, anyio.CapacityLimiter(2)
        held, other = awaits.known(limiter), object()
        assert held is not None

        async def transport() -> None:
            async with limiter:
                assert not held.holds

        task = asyncio.ensure_future(transport())
        awaits.pass_over(task, limiter)
        await task
        await limiter.acquire_on_behalf_of(other)
        assert len(held.holds) == 1
        (part,) = holders_of(held, 0, 1)
        assert part.operation == UNKNOWN_HOLDER  # the transport may have the other token
        limiter.release_on_behalf_of(other)
        assert len(awaits.passed) == 1
        del task
        gc.collect()
        assert not awaits.passed

    play("asyncio", scenario)


@on_each_loop
def test_a_holder_that_is_no_request_is_named_by_its_line(backend: Backend) -> None:
    async def scenario(scene: Scene) -> None:
        gate = anyio.Lock()

        async def background() -> None:
            async with gate:
                while not gate.statistics().tasks_waiting:
                    await anyio.sleep(0.001)
                await anyio.sleep(2 * HELD_S)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(background)
            await anyio.sleep(0.002)
            tasks.start_soon(holding(scene, "call", gate))

    scene = play(backend, scenario)
    (wait,) = scene.awaits("call", "lock")
    assert wait.ns / MS > HELD_S
    for part in wait.holders:
        assert (part.request, part.operation) == (0, BACKGROUND_OPERATION)
        assert (part.where or "").startswith(f"{__file__}:")
        assert part.where != wait.where


@on_each_loop
def test_who_finds_it_free_holds_it_from_when_he_asks(backend: Backend) -> None:
    """He has it before his ``acquire`` returns, which takes another turn on the loop: who asks meanwhile waits."""

    async def scenario(scene: Scene) -> None:
        gate, asks = anyio.Lock(), anyio.Event()

        async def background() -> None:
            asks.set()
            async with gate:
                await anyio.sleep(HELD_S)

        async def wait() -> None:
            await asks.wait()
            async with gate:
                pass

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.call("call", wait))
            await anyio.sleep(0.002)
            tasks.start_soon(background)

    (wait,) = play(backend, scenario).awaits("call", "lock")
    assert [part.operation for part in wait.holders] == [BACKGROUND_OPERATION]


@on_each_loop
def test_a_librarys_own_task_that_holds_it_is_not_at_the_line_that_runs_the_loop(backend: Backend) -> None:
    """The outermost line of the user's own code is the one that runs the loop, in every task."""

    async def scenario(scene: Scene) -> None:
        limiter, over = anyio.CapacityLimiter(1), threading.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(anyio.to_thread.run_sync, over.wait, limiter=limiter))
            while not limiter.borrowed_tokens:
                await anyio.sleep(0.001)
            tasks.start_soon(holding(scene, "call", limiter))
            while not limiter.statistics().tasks_waiting:
                await anyio.sleep(0.001)
            await anyio.sleep(HELD_S)
            over.set()

    (wait,) = play(backend, scenario).awaits("call", "limiter")
    assert [(part.operation, part.where) for part in wait.holders] == [(BACKGROUND_OPERATION, None)]


@on_each_loop
def test_what_a_call_leaves_behind_holds_as_a_task_and_not_as_that_call(backend: Backend) -> None:
    async def scenario(scene: Scene) -> None:
        gate, taken, over = anyio.Lock(), anyio.Event(), anyio.Event()

        async def hold_on() -> None:
            async with gate:
                taken.set()
                await over.wait()
                await anyio.sleep(HELD_S)

        async with anyio.create_task_group() as tasks:

            async def leave_behind() -> None:
                tasks.start_soon(hold_on)
                await taken.wait()
                await anyio.sleep(HELD_S)

            tasks.start_soon(scene.call("leaver", leave_behind))
            await taken.wait()
            tasks.start_soon(holding(scene, "victim", gate))
            await anyio.sleep(3 * HELD_S)
            over.set()

    scene = play(backend, scenario)
    (wait,) = scene.awaits("victim", "lock")
    leaver = scene.record("leaver")
    before, after = wait.holders
    assert (before.request, before.operation) == (leaver.id, leaver.method)
    assert before.to_ns == after.from_ns == leaver.end_ns
    assert (after.request, after.operation) == (0, BACKGROUND_OPERATION)
    assert before.where == after.where != wait.where


def test_objects_made_before_the_probe_are_named_by_their_variable() -> None:
    async def scenario(scene: Scene) -> None:
        async with anyio.create_task_group() as tasks:
            for gate, name in ((AT_MODULE_LEVEL, "module"), (WITHOUT_A_LOOP, "adapter")):
                for number in range(2):
                    tasks.start_soon(holding(scene, f"{name} {number}", gate))

    scene = play("asyncio", scenario)
    (lock,) = scene.awaits("module 1", "lock")
    (adapter,) = scene.awaits("adapter 1", "lock")
    assert lock.object == "asyncio.Lock test_awaits.AT_MODULE_LEVEL"
    assert adapter.object == "anyio.Lock test_awaits.WITHOUT_A_LOOP"


@on_each_loop
def test_a_call_that_gives_up_waiting_holds_nothing(backend: Backend) -> None:
    async def scenario(scene: Scene) -> None:
        gate, gave_up = anyio.Lock(), anyio.Event()

        async def impatient() -> None:
            with anyio.move_on_after(HELD_S / 3):
                async with gate:
                    raise AssertionError("it was held all the time")
            gave_up.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(holding(scene, "first", gate, once=gave_up))
            await anyio.sleep(0.002)
            tasks.start_soon(scene.call("impatient", impatient))
            await anyio.sleep(0.002)
            tasks.start_soon(holding(scene, "last", gate))

    scene = play(backend, scenario)
    assert set(held_in(scene.awaits("last", "lock"))) == {"first"}
    (given_up,) = scene.awaits("impatient", "lock")
    assert {part.operation for part in given_up.holders} == {"first"}


def test_a_cancelled_holder_holds_until_it_has_given_it_back() -> None:
    async def scenario(scene: Scene) -> None:
        gate = asyncio.Lock()
        first = asyncio.ensure_future(holding(scene, "first", gate, 10.0)())
        await asyncio.sleep(0.002)
        last = asyncio.ensure_future(holding(scene, "last", gate)())
        await asyncio.sleep(HELD_S)
        first.cancel()
        await last

    scene = play("asyncio", scenario)
    (wait,) = scene.awaits("last", "lock")
    assert set(held_in([wait])) == {"first"}


def test_what_somebody_else_gave_back_has_no_known_holder() -> None:
    async def scenario(scene: Scene) -> None:
        gate = asyncio.Semaphore(2)

        async def take() -> None:
            await gate.acquire()

        async def give() -> None:
            gate.release()

        await scene.call("one", take)()
        await scene.call("two", take)()
        await scene.call("other", give)()  # one of them is free now, and nobody knows which
        await scene.call("three", take)()
        waiting = asyncio.ensure_future(holding(scene, "victim", gate)())
        await asyncio.sleep(HELD_S)
        gate.release()
        await waiting

    scene = play("asyncio", scenario)
    (wait,) = scene.awaits("victim", "semaphore")
    assert set(held_in([wait])) == {UNKNOWN_HOLDER}


def test_nothing_is_kept_alive_and_what_is_gone_is_forgotten() -> None:
    probe = Probe()
    try:

        async def scenario() -> None:
            gate: Any = asyncio.Lock()
            gone = weakref.ref(gate)
            async with gate:
                pass
            assert probe._hub.awaits.known(gate) is not None
            number = id(gate)
            del gate
            gc.collect()
            assert gone() is None
            assert number not in probe._hub.awaits._objects

        asyncio.run(scenario())
    finally:
        probe.detach()


def test_the_probe_leaves_nothing_behind() -> None:
    before = {name: vars(asyncio.Lock)[name] for name in ("__init__", "acquire", "release")}
    probe = Probe()
    asyncio.run(holding(Scene(probe), "call", asyncio.Lock())())
    assert vars(asyncio.Lock)["acquire"] is not before["acquire"]
    probe.detach()
    assert {name: vars(asyncio.Lock)[name] for name in before} == before


# --- what nobody holds: named by a look -----------------------------------------------------------------

LONG_S = 0.4  # a busy machine may let nobody look for a tenth of a second


@asynccontextmanager
async def opened(wait: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    await wait()
    yield


async def items(wait: Callable[[], Awaitable[Any]]) -> AsyncIterator[int]:
    await wait()
    yield 1


async def resolved_later() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(LONG_S, future.set_result, None)
    await future


async def in_async_for() -> None:
    async for _ in items(resolved_later):
        pass


async def in_context_manager() -> None:
    async with opened(resolved_later):
        pass


async def gathered() -> None:
    await asyncio.gather(resolved_later(), resolved_later())


async def shielded() -> None:
    await asyncio.shield(resolved_later())


async def waited_for() -> None:
    await asyncio.wait_for(resolved_later(), 60)


async def in_a_task() -> None:
    await asyncio.ensure_future(resolved_later())


async def slept_by_name() -> None:
    await imported_by_name(LONG_S)


async def from_a_queue() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    asyncio.get_running_loop().call_later(LONG_S, queue.put_nowait, 1)
    await queue.get()


async def for_an_event() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(LONG_S, event.set)
    await event.wait()


def looked_at(backend: Backend, scenario: Callable[[Scene], Awaitable[None]], *names: str) -> Scene:
    """Looks are samples: where a busy host let nobody look at one of these calls, they are made again."""
    return until_right(
        lambda: play(backend, scenario),
        lambda scene: all(scene.record(name).awaits for name in names),
        tries=5,
    )


LOOKED_AT: dict[str, tuple[Callable[[], Awaitable[None]], str, str]] = {
    "directly": (resolved_later, "other", "resolved_later"),
    "async for": (in_async_for, "other", "resolved_later"),
    "asynccontextmanager": (in_context_manager, "other", "resolved_later"),
    "gather": (gathered, "other", "resolved_later"),
    "shield": (shielded, "other", "resolved_later"),
    "wait_for": (waited_for, "other", "resolved_later"),
    "task": (in_a_task, "other", "resolved_later"),
    "sleep": (slept_by_name, "sleep", "slept_by_name"),
    "queue": (from_a_queue, "queue", "from_a_queue"),
    "event": (for_an_event, "event", "for_an_event"),
}


@pytest.mark.parametrize("how", LOOKED_AT)
def test_a_look_names_the_line_that_waits_and_the_whole_wait(how: str) -> None:
    wait, kind, function = LOOKED_AT[how]

    async def scenario(scene: Scene) -> None:
        await scene.call("call", wait)()

    scene = looked_at("asyncio", scenario, "call")
    record = scene.record("call")
    named = [one for one in record.awaits or () if one.kind == kind]
    assert record.budget.awaiting is not None
    assert sum(one.ns for one in named) >= 0.95 * record.budget.awaiting
    code = globals()[function].__code__
    last = max(line for _, _, line in code.co_lines() if line is not None)
    for one in named:
        file, _, line = (one.where or "").rpartition(":")
        assert file == __file__
        assert code.co_firstlineno < int(line) <= last


def test_a_look_names_sleeps_and_channels_of_trio() -> None:
    async def scenario(scene: Scene) -> None:
        async def sleeps() -> None:
            await trio.sleep(LONG_S)

        async def receives() -> None:
            send, receive = trio.open_memory_channel[int](0)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(later, send)
                await receive.receive()

        async def later(send: Any) -> None:
            await trio.sleep(LONG_S)
            await send.send(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.call("sleeps", sleeps))
            nursery.start_soon(scene.call("receives", receives))

    scene = looked_at("trio", scenario, "sleeps", "receives")
    for name, kind in (("sleeps", "sleep"), ("receives", "queue")):
        record = scene.record(name)
        assert kind in {one.kind for one in record.awaits or ()}
        assert record.budget.awaiting is not None
        assert sum(one.ns for one in record.awaits or ()) >= 0.95 * record.budget.awaiting


@on_each_loop
def test_a_look_names_what_anyio_waits_for_by_what_its_user_calls(backend: Backend) -> None:
    async def scenario(scene: Scene) -> None:
        async def sleeps() -> None:
            await anyio.sleep(LONG_S)

        async def receives() -> None:
            send, receive = anyio.create_memory_object_stream[int](0)
            with send, receive:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(later, send)
                    await receive.receive()

        async def later(send: Any) -> None:
            await anyio.sleep(LONG_S)
            await send.send(1)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.call("sleeps", sleeps))
            tasks.start_soon(scene.call("receives", receives))

    scene = looked_at(backend, scenario, "sleeps", "receives")
    assert {(one.kind, one.object) for one in scene.awaits("sleeps")} == {("sleep", "sleep")}
    assert {one.kind for one in scene.awaits("receives") if one.ns > MS} <= {"queue", "sleep"}
    assert "queue" in {one.kind for one in scene.awaits("receives")}


@pytest.mark.parametrize(
    ("module", "function", "kind"),
    [
        ("anyio._backends._asyncio", "SocketStream.receive", None),
        ("anyio._backends._trio", "TrioBackend.checkpoint", None),
        ("anyio._core._synchronization", "LockAdapter.acquire", "lock"),
        ("anyio._backends._asyncio", "Event.wait", "event"),
        ("asyncio.locks", "acquire", "event"),  # before CPython 3.11: the object tells its kind
        ("trio._sync", "_LockImpl.acquire", "event"),  # the same
        ("asyncio.locks", "Semaphore.acquire", "semaphore"),
    ],
)
def test_only_what_synchronises_is_called_so(module: str, function: str, kind: str | None) -> None:
    assert kind_of_function(module, function) == kind


def test_an_idle_process_is_not_looked_at() -> None:
    probe = Probe()
    try:

        async def scenario() -> None:
            await Scene(probe).call("call", lambda: asyncio.sleep(0.01))()
            looks = probe._hub.looks
            until = time.monotonic() + 30
            while not looks.asleep and time.monotonic() < until:
                await asyncio.sleep(0.01)
            assert looks.asleep
            cpu_ns = looks.cpu_ns
            await asyncio.sleep(0.05)
            assert looks.asleep and looks.cpu_ns == cpu_ns

        asyncio.run(scenario())
    finally:
        probe.detach()


class Divided(NamedTuple):
    """Short waits: what one line was given, what the test itself measured of it, half the interval, and the whole."""

    long_ms: float
    truth_ms: float
    half_ms: float
    whole_ms: float

    def is_near(self) -> bool:
        return abs(self.long_ms - self.truth_ms) <= 2 * self.half_ms


def test_short_waits_that_few_looks_saw_are_divided_as_the_test_itself_measured_them() -> None:
    """All are named, as an estimate: each line's share, and the truth is in twice its interval."""
    found = until_right(divided, Divided.is_near)
    assert found.is_near(), found
    assert found.half_ms < 0.4 * found.whole_ms


def divided() -> Divided:
    truth: Counter[str] = Counter()
    probe = Probe()

    async def short() -> None:
        for _ in range(6):
            await asyncio.sleep(0.002)

    async def call() -> None:
        # No look sees what a host takes from all threads at once.
        began = time.monotonic_ns()
        await short()
        truth["short"] += min(time.monotonic_ns() - began, 60 * MS)
        began = time.monotonic_ns()
        await asyncio.sleep(0.006)
        truth["long"] += min(time.monotonic_ns() - began, 30 * MS)

    def seen() -> Any:
        return next(one for one in probe.snapshot().operations if one.name.endswith("call"))

    async def scenario() -> None:
        profiled, until = probe.profile(call), time.monotonic() + 60
        while time.monotonic() < until:
            for _ in range(60):
                await profiled()
            if sum(row.looks for row in seen().awaits) >= 60:
                break

    try:
        asyncio.run(scenario())
        found = seen()
    finally:
        probe.detach()
    assert found.awaits_unnamed_ms == 0
    whole = sum(row.total_ms for row in found.awaits)
    assert found.budget_ms.awaiting is not None
    assert whole == pytest.approx(found.budget_ms.awaiting * found.count, rel=1e-6)
    long_ms = sum(row.total_ms for row in found.awaits if row.where and _line_in(call, row.where))
    row = next(row for row in found.awaits if row.where and _line_in(call, row.where))
    assert row.quality == "estimate" and row.lo_ms is not None and row.hi_ms is not None
    half = max(row.hi_ms - row.total_ms, row.total_ms - row.lo_ms)
    share = truth["long"] / (truth["long"] + truth["short"])
    return Divided(long_ms, share * whole, half, whole)


def _line_in(function: Callable[..., Any], where: str) -> bool:
    return int(where.rpartition(":")[2]) in {line for _, _, line in function.__code__.co_lines()}


async def _event(library: Any) -> str:
    event = library.Event()
    line = _line()
    async with anyio.create_task_group() as group:
        group.start_soon(_after_a_while, event.set)
        await event.wait()
    return f"{library.__name__}.Event made at {line}"


async def _condition(library: Any) -> str:
    condition = library.Condition()
    line = _line()

    async def notify() -> None:
        await anyio.sleep(LONG_S)
        async with condition:
            condition.notify()

    async with anyio.create_task_group() as group:
        group.start_soon(notify)
        async with condition:
            await condition.wait()
    return f"{library.__name__}.Condition made at {line}"


async def _queue(library: Any) -> str:
    queue = library.Queue()
    line = _line()
    async with anyio.create_task_group() as group:
        group.start_soon(_after_a_while, lambda: queue.put_nowait(1))
        await queue.get()
    return f"{library.__name__}.Queue made at {line}"


async def _stream(library: Any) -> str:
    send, receive = library.create_memory_object_stream(1)
    line = _line()
    with send, receive:
        async with anyio.create_task_group() as group:
            group.start_soon(_after_a_while, lambda: send.send_nowait(1))
            await receive.receive()
    return f"{library.__name__}.memory object stream made at {line}"


async def _channel(library: Any) -> str:
    send, receive = library.open_memory_channel(1)
    line = _line()
    async with anyio.create_task_group() as group:
        group.start_soon(_after_a_while, lambda: send.send_nowait(1))
        await receive.receive()
    return f"{library.__name__}.memory channel made at {line}"


async def _after_a_while(act: Callable[[], object]) -> None:
    await anyio.sleep(LONG_S)
    act()


def _line() -> str:
    """The line before the caller's."""
    frame = sys._getframe(1)
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno - 1}"


@pytest.mark.parametrize(
    ("backend", "make", "library", "kind"),
    [
        ("asyncio", _event, asyncio, "event"),
        ("asyncio", _event, anyio, "event"),
        ("asyncio", _condition, asyncio, "condition"),
        ("asyncio", _condition, anyio, "condition"),
        ("asyncio", _queue, asyncio, "queue"),
        ("asyncio", _stream, anyio, "queue"),
        ("trio", _event, trio, "event"),
        ("trio", _event, anyio, "event"),
        ("trio", _condition, trio, "condition"),
        ("trio", _stream, anyio, "queue"),
        ("trio", _channel, trio, "queue"),
    ],
)
def test_what_nobody_holds_is_named_by_where_it_was_made(
    backend: Backend, make: Callable[[Any], Awaitable[str]], library: Any, kind: str
) -> None:
    names: list[str] = []

    async def scenario(scene: Scene) -> None:
        async def call() -> None:
            names.append(await make(library))

        names.clear()
        await scene.call("call", call)()

    scene = looked_at(backend, scenario, "call")
    found = {(one.kind, one.object) for one in scene.awaits("call") if one.kind != "sleep"}
    assert found == {(kind, names[0])}


def test_a_round_of_looks_that_took_long_is_followed_by_a_pause_and_not_by_blindness() -> None:
    """A collection of 0.2 s that ran on the looking thread once stopped the looks for 40 s."""
    assert await_looks.pause_after(0.0) == await_looks.PAUSE_S
    assert await_looks.pause_after(0.001) == pytest.approx(0.2)
    assert await_looks.pause_after(0.2) == await_looks.LONGEST_PAUSE_S


def test_a_variable_of_a_script_is_found_after_the_script_has_run() -> None:
    """CPython has taken its ``__file__`` away by then."""
    script = types.ModuleType("__main__")
    script.__loader__ = SourceFileLoader("__main__", "/srv/notes.py")
    script.GATE = gate = asyncio.Lock()  # type: ignore[attr-defined]
    assert variable_of(gate, [script]) == "notes.GATE"


def test_a_long_wait_for_one_of_many_places_has_one_part_for_each_holder() -> None:
    """One for each holder and hand-over were 12 ms of the event loop for a call that 88 others waited beside."""
    places, turns = 40, 200
    held = Held("semaphore", "semaphore", None, asyncio.Semaphore(1))
    held.past = [((None, None, turn, turn - places), turn) for turn in range(1, turns)]
    held.holds = [(None, None, turn, turn - places, None) for turn in range(turns, turns + places)]
    parts = holders_of(held, 0, turns)
    assert len(parts) == len(held.past) + places
    assert {part.among for part in parts} == {places}
    assert sum(part.to_ns - part.from_ns for part in parts) == places * turns
    assert [part.from_ns for part in parts] == sorted(part.from_ns for part in parts)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), max_size=12), st.integers(0, 10), st.integers(11, 20)
)
def test_each_instant_of_a_wait_is_divided_equally_among_those_who_held_it(
    spans: list[tuple[int, int]], began: int, now: int
) -> None:
    held = Held("semaphore", "semaphore", None, asyncio.Semaphore(1))
    held.past = sorted([((None, None, 0, a), a + ns) for a, ns in spans if a + ns < now], key=lambda one: one[1])
    held.holds = [(None, None, 0, a, None) for a, ns in spans if a + ns >= now]
    parts = holders_of(held, began, now)
    held.past, held.holds = [], []  # what comes later changes nothing
    for instant in range(began, now):
        among = sum(a <= instant < a + ns or (a + ns >= now and a <= instant) for a, ns in spans)
        here = [part for part in parts if part.from_ns <= instant < part.to_ns]
        assert [part.among for part in here] == [among or 1] * (among or 1)
        assert {part.operation for part in here} == {BACKGROUND_OPERATION if among else UNKNOWN_HOLDER}


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), max_size=12),
    st.integers(0, 10),
    st.integers(11, 20),
    st.integers(1, 12),
)
def test_a_pool_that_had_a_place_all_the_time_kept_nobody_waiting(
    spans: list[tuple[int, int]], began: int, now: int, limit: int
) -> None:
    held = Held("connection-pool", "pool", None, asyncio.Semaphore(1))
    held.past = sorted([((None, None, 0, a), a + ns) for a, ns in spans if a + ns < now], key=lambda one: one[1])
    held.holds = [(None, None, 0, a, None) for a, ns in spans if a + ns >= now]
    those_who_had_it = list(holders_of(held, began, now))
    held.limit = limit
    found = list(holders_of(held, began, now))
    at_once = max(sum(a <= at < a + ns or (a + ns >= now and a <= at) for a, ns in spans) for at in range(began, now))
    met = sum(a + ns > began for a, ns in spans)
    assert found == ([] if met < limit else those_who_had_it)
    assert found or at_once < limit


def test_nobody_holds_up_who_waits_now_for_a_pool_with_a_place() -> None:
    pool = asyncio.Semaphore(1)
    held = Held("connection-pool", "pool", None, pool)
    held.holds = [(None, None, 0, 1, None)]
    assert [holder.operation for holder in in_flight.holders_of_now(held, 5)] == [BACKGROUND_OPERATION]
    held.limit = 2
    assert in_flight.holders_of_now(held, 5) == ()
    held.unseen = True
    assert [holder.operation for holder in in_flight.holders_of_now(held, 5)] == [UNKNOWN_HOLDER]
    held.unseen, held.limit = False, 1
    assert [holder.operation for holder in in_flight.holders_of_now(held, 5)] == [BACKGROUND_OPERATION]


def test_a_wait_for_a_pool_whose_past_is_cut_short_is_still_of_its_holders() -> None:
    held = Held("connection-pool", "pool", None, asyncio.Semaphore(1))
    held.limit = 10 * awaits.MAX_PAST
    held.past = [((None, None, 0, at), at + held.limit) for at in range(awaits.LEFT_OF_PAST)]
    assert list(holders_of(held, 0, 20 * awaits.MAX_PAST))


def test_a_wait_keeps_no_request_alive_that_held_it() -> None:
    """Each of them may have waited for others before: a busy semaphore would keep every request there ever was."""
    held = Held("semaphore", "semaphore", None, asyncio.Semaphore(1))
    part = object()
    held.holds = [(RawRequest(1, "request", "tools/call", "work", "stdio"), None, 0, 5, part)]
    parts = holders_of(held, 0, 9)
    found: list[Any] = [parts]
    for one in found:
        found += [other for other in gc.get_referents(one) if not isinstance(other, type) and other not in found]
        assert one is not part and not isinstance(one, RawRequest)
    assert [(part.request, part.operation, part.from_ns) for part in parts] == [(0, UNKNOWN_HOLDER, 0), (1, "work", 5)]


def test_the_event_loop_does_not_work_out_who_held_what_a_call_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    worked_out: list[int] = []

    def parts_of(*_: object) -> tuple[HolderPart, ...]:
        worked_out.append(threading.get_ident())
        return ()

    monkeypatch.setattr(awaits, "_parts_of", parts_of)

    async def scenario(scene: Scene) -> None:
        gate = asyncio.Semaphore(2)

        async def call() -> None:
            async with gate:
                await asyncio.sleep(HELD_S)

        async with anyio.create_task_group() as group:
            for name in ("first", "second", "third"):
                group.start_soon(scene.call(name, call))
        assert threading.get_ident() not in worked_out

    play("asyncio", scenario)
    assert worked_out
