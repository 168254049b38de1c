"""Generated schedules of locks, semaphores, tasks and cancellations in virtual time, against a model of who holds what.

The loop's clock goes on only while every task sleeps, and the probe's hooks read it. So each instant is known: tasks
note when they asked, got and gave back, and awaits must say exactly the same.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import anyio
import pytest
import trio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mcp_probe.capture.current import CURRENT
from mcp_probe.model import BACKGROUND_OPERATION, UNKNOWN_HOLDER, Await
from mcp_probe.record.assemble import PRIORITY
from mcp_probe.record.awaits import name_awaits
from mcp_probe.record.raw import RawRequest
from mcp_probe.session import Probe

TICK_S = 0.01
TICK_NS = 10_000_000
AWAITING = PRIORITY.index("awaiting")


@dataclass(frozen=True)
class Hold:
    """Take object ``what``, stay so long, take ``inside`` meanwhile, and give it back."""

    what: int
    ticks: int
    inside: Hold | None = None


@dataclass(frozen=True)
class Sleep:
    ticks: int


@dataclass(frozen=True)
class Stray:
    """Give object ``what`` back, whoever has it, if somebody has."""

    what: int


@dataclass(frozen=True)
class Plan:
    """One task: of which request (0: of none), when it begins, what it does, and when it is cancelled."""

    request: int
    begins: int
    acts: tuple[Hold | Sleep | Stray, ...]
    cancelled: int | None


@dataclass
class Took:
    """What one task did with one object; ``None``: it did not get so far."""

    what: int
    request: int
    asked: int
    got: int | None = None
    gave_back: int | None = None
    gave_up: int | None = None


@dataclass
class Scene:
    """The objects, what tasks noted, and the requests."""

    objects: list[Any]
    now_ns: Callable[[], int]
    took: list[Took] = field(default_factory=list)
    strays: list[int] = field(default_factory=list)
    raws: dict[int, RawRequest] = field(default_factory=dict)

    @asynccontextmanager
    async def holding(self, what: int, request: int) -> Any:
        noted = Took(what, request, self.now_ns())
        self.took.append(noted)
        try:
            await self.objects[what].acquire()
        except BaseException:
            noted.gave_up = self.now_ns()
            raise
        noted.got = self.now_ns()
        try:
            yield
        finally:
            noted.gave_back = self.now_ns()
            try:
                self.objects[what].release()
            except (RuntimeError, ValueError):
                assert what in self.strays  # somebody else has given it back

    async def perform(self, act: Hold | Sleep | Stray, request: int) -> None:
        if isinstance(act, Sleep):
            await anyio.sleep(act.ticks * TICK_S)
        elif isinstance(act, Hold):
            async with self.holding(act.what, request):
                await anyio.sleep(act.ticks * TICK_S)
                if act.inside is not None:
                    await self.perform(act.inside, request)
        elif any(one.got is not None and one.gave_back is None for one in self.took if one.what == act.what):
            self.strays.append(act.what)
            with suppress(RuntimeError, ValueError):  # it was given back before by another one like this
                self.objects[act.what].release()

    async def run(self, plan: Plan) -> None:
        CURRENT.set(self.raws.get(plan.request))
        await anyio.sleep(plan.begins * TICK_S)
        with anyio.move_on_after(float("inf") if plan.cancelled is None else plan.cancelled * TICK_S):
            for act in plan.acts:
                await self.perform(act, plan.request)


# Failures are not made smaller: that takes minutes.
OBJECTS = 2
"""A lock, and a semaphore of two: the fewer there are, the more have to wait."""


def holds(least: int) -> st.SearchStrategy[Hold]:
    """Objects are taken in one order, so that nobody waits for ever."""
    inside = st.none() if least + 1 >= OBJECTS else st.none() | st.deferred(lambda: holds(least + 1))
    return st.integers(least, OBJECTS - 1).flatmap(
        lambda what: st.builds(Hold, st.just(what), st.integers(1, 8), inside if what == least else st.none())
    )


def plans(strays: bool) -> st.SearchStrategy[list[Plan]]:
    acts = [holds(0), holds(1), st.builds(Sleep, st.integers(0, 4))]
    if strays:
        acts.append(st.builds(Stray, st.integers(0, OBJECTS - 1)))
    plan = st.builds(
        Plan,
        st.sampled_from([1, 2, 3, 4, 0]),
        st.integers(0, 3),
        st.lists(st.one_of(acts), min_size=2, max_size=4).map(tuple),
        st.sampled_from([None, None, *range(2, 12)]),
    )
    return st.lists(plan, min_size=5, max_size=9)


class Jumping(selectors.DefaultSelector):
    """Does not wait: its clock jumps to when the wait would end."""

    now_s = 1.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everybody waits, and nobody sleeps"
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now_s


def on_asyncio(play: Callable[[Callable[[], int]], Awaitable[None]]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(play(lambda: round(loop.time() / TICK_S) * TICK_NS))
    finally:
        loop.close()


def on_trio(play: Callable[[Callable[[], int]], Awaitable[None]]) -> None:
    async def main() -> None:
        await play(lambda: round(trio.current_time() / TICK_S) * TICK_NS)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.0))


LIBRARIES: dict[str, tuple[Callable[..., None], list[Callable[[], Any]]]] = {
    "asyncio": (on_asyncio, [asyncio.Lock, lambda: asyncio.Semaphore(2)]),
    "anyio on asyncio": (on_asyncio, [anyio.Lock, lambda: anyio.Semaphore(2)]),
    "anyio on trio": (on_trio, [anyio.Lock, lambda: anyio.Semaphore(2)]),
    "trio": (on_trio, [trio.Lock, lambda: trio.Semaphore(2)]),
}


@contextmanager
def hooks() -> Iterator[None]:
    """They are there, of a probe that follows no loop and records nothing."""
    probe = Probe()
    try:
        yield
        assert [state for state in probe._hub.hooks.values() if state.startswith("disabled")] == []
    finally:
        probe.detach()


def played(library: str, tasks: list[Plan]) -> Scene:
    run, makers = LIBRARIES[library]
    found: list[Scene] = []

    async def play(now_ns: Callable[[], int]) -> None:
        scene = Scene([make() for make in makers], now_ns)
        found.append(scene)
        scene.raws = {
            number: RawRequest(number, "request", "tools/call", f"call {number}", "stdio")
            for number in {plan.request for plan in tasks} - {0}
        }
        with patch("mcp_probe.capture.awaits.now_ns", now_ns):
            async with anyio.create_task_group() as group:
                for plan in tasks:
                    group.start_soon(scene.run, plan)

    run(play)
    return found[0]


def awaits_of(scene: Scene, raw: RawRequest) -> tuple[Await, ...]:
    """With all its time awaiting: in virtual time no step takes any."""
    end = 1_000_000 * TICK_NS
    marks = [mark._replace(in_job=False) for mark in raw.awaits]
    return name_awaits([(0, end, AWAITING)], [], marks, [], end)


def inside(scene: Scene, what: int, a: int, b: int) -> list[Took]:
    """Those that have it all the time from ``a`` to ``b``."""
    return [
        one
        for one in scene.took
        if one.what == what and one.got is not None and one.got <= a and (one.gave_back or one.got) >= b
    ]


def check_marks(scene: Scene, raw: RawRequest) -> None:
    """Each wait is there, once, with those who had the object at each instant of it."""
    mine = [one for one in scene.took if one.request == raw.id]
    waits: Counter[tuple[int, int, int]] = Counter()
    for one in mine:
        until = one.got if one.got is not None else one.gave_up
        if until is not None and until > one.asked:
            waits[one.asked, until, one.what] += 1
    marks = Counter((mark.from_ns, mark.to_ns, scene_index(scene, mark.thing)) for mark in raw.awaits)
    assert marks == waits
    for mark in raw.awaits:
        what = scene_index(scene, mark.thing)
        if what in scene.strays:
            check_never_wrong(scene, what, mark.holders)
        else:
            check_exact(scene, what, mark)


def scene_index(scene: Scene, held: Any) -> int:
    thing = held.thing()
    return next(
        number for number, one in enumerate(scene.objects) if thing in (one, getattr(one, "_internal_lock", one))
    )


def check_never_wrong(scene: Scene, what: int, holders: Any) -> None:
    """Where somebody gave it back that did not have it, a holder is one that was inside, or unknown."""
    for part in holders:
        if part.operation != UNKNOWN_HOLDER:
            there = {one.request for one in inside(scene, what, part.from_ns, part.to_ns)}
            assert part.request in there, (part, there)


def check_exact(scene: Scene, what: int, mark: Any) -> None:
    assert sum((part.to_ns - part.from_ns) / part.among for part in mark.holders) == pytest.approx(
        mark.to_ns - mark.from_ns
    )
    cuts = sorted({mark.from_ns, mark.to_ns, *(at for part in mark.holders for at in (part.from_ns, part.to_ns))})
    for a, b in pairwise(cuts):
        said = Counter(part.request for part in mark.holders if part.from_ns <= a and b <= part.to_ns)
        there = Counter(one.request for one in inside(scene, what, a, b))
        assert said == there, (mark, a, b)
        for part in mark.holders:
            assert part.operation == (f"call {part.request}" if part.request else BACKGROUND_OPERATION)


def check_sums(scene: Scene, raw: RawRequest) -> None:
    """No instant twice: awaits together are the instants at which a task of it waited, holders no more."""
    awaits = awaits_of(scene, raw)
    ticks = {tick for mark in raw.awaits for tick in range(mark.from_ns // TICK_NS, (mark.to_ns or 0) // TICK_NS)}
    assert sum(one.ns for one in awaits) == len(ticks) * TICK_NS
    for one in awaits:
        assert sum((part.to_ns - part.from_ns) / part.among for part in one.holders) <= one.ns + 1


def check(scene: Scene) -> None:
    for raw in scene.raws.values():
        check_marks(scene, raw)
        check_sums(scene, raw)


@pytest.mark.parametrize("library", LIBRARIES)
def test_awaits_and_holders_are_as_the_schedule_says(library: str) -> None:
    @given(tasks=plans(strays=False))
    @settings(max_examples=50, phases=[Phase.generate])
    def each(tasks: list[Plan]) -> None:
        check(played(library, tasks))

    with hooks():
        each()


@pytest.mark.parametrize("library", ["asyncio", "anyio on asyncio", "trio"])
def test_no_holder_is_wrong_whoever_gives_it_back(library: str) -> None:
    @given(tasks=plans(strays=True))
    @settings(max_examples=50, phases=[Phase.generate])
    def each(tasks: list[Plan]) -> None:
        check(played(library, tasks))

    with hooks():
        each()
