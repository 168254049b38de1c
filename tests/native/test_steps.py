"""Steps in C and in Python: the same calls leave the same to see, charge the same and tell the same."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.model import ALL_SEEN
from mcp_probe.record.raw import MAX_MARKS, RING_NS, WAKE_LOOP
from tests.native.twins import (
    NativeMonitor,
    NativeRaw,
    PythonMonitor,
    PythonRaw,
    needs_the_accelerator,
    shown,
    shown_steps,
)

pytestmark = needs_the_accelerator

PEOPLE = 3
later = st.integers(0, 3_000) | st.sampled_from([RING_NS - 1, RING_NS, 4 * RING_NS, 2**40])
ago = st.integers(-2_000, 2_000_000)
instants = st.integers(0, 2**62)
who = st.none() | st.integers(0, PEOPLE - 1)
someone = st.integers(0, PEOPLE - 1)
calls = st.one_of(
    st.tuples(st.just("begin"), who, st.integers(0, 4), ago, ago, st.integers(0, 4), later),
    st.tuples(st.just("close"), later, st.booleans()),
    st.tuples(st.just("stretch"), later),
    st.tuples(st.just("poll"), later, later),
    st.tuples(st.just("stretches"), st.booleans()),
    st.tuples(st.just("may_wait"), st.booleans()),
    st.tuples(st.just("shows"), st.sampled_from([ALL_SEEN, 0])),
    st.tuples(
        st.just("inherit"), st.none() | st.tuples(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 4))
    ),
    st.tuples(st.just("number"), st.sampled_from(["ordinal", "now", "since", "unit"]), st.integers(0, 2**62)),
    st.tuples(st.just("person"), someone, st.sampled_from(["ended", "settles"]), st.booleans()),
    st.tuples(st.just("person"), someone, st.just("result_ns"), st.none() | instants),
    st.tuples(st.just("parent"), someone, who),
    st.tuples(st.just("marks"), someone, st.sampled_from([MAX_MARKS - 1, MAX_MARKS])),
)


class World:
    """One loop and its requests, on one of the twins."""

    def __init__(self, steps: Any, raw: Any) -> None:
        self.steps = steps
        self.people = [raw(number, "request", "tools/call", "t", "stdio") for number in range(PEOPLE)]
        for name in ("now", "poll_end", "looked", "event_earliest", "event_ready", "suspended", "earliest", "ready"):
            setattr(steps, name, 1_000_000)
        if isinstance(steps, PythonMonitor):
            steps._counted_ns = 1_000_000
        self.clock = 1_000_000

    def do(self, name: str, *given: Any) -> None:
        getattr(self, f"_{name}")(*given)

    def _person_of(self, number: int | None) -> Any:
        return None if number is None else self.people[number]

    def _at(self, delta: int) -> int:
        self.clock += delta
        return self.clock

    def _begin(self, who: int | None, unit: int, earliest: int, ready: int, wake: int, delta: int) -> None:
        now = self._at(delta)
        self.steps.begin(self._person_of(who), unit, now - earliest, now - ready, wake, now)

    def _close(self, delta: int, done: bool) -> None:
        self.steps.close(self._at(delta), done)

    def _stretch(self, delta: int) -> None:
        self.steps.stretch(self._at(delta))

    def _poll(self, until: int, length: int) -> None:
        self.steps.begin_poll(self._at(until))
        self.steps.end_poll(self._at(length))

    def _stretches(self, value: bool) -> None:
        self.steps.stretches = value

    def _may_wait(self, value: bool) -> None:
        self.steps.may_wait = value

    def _shows(self, value: int) -> None:
        self.steps.shows = value

    def _inherit(self, value: Any) -> None:
        self.steps.inherit = value

    def _number(self, name: str, value: int) -> None:
        setattr(self.steps, name, value)
        if name in ("now", "since"):
            self.clock = max(self.clock, value)

    def _person(self, number: int, name: str, value: Any) -> None:
        setattr(self.people[number], name, value)

    def _parent(self, number: int, parent: int | None) -> None:
        if parent is None or parent > number:  # a chain has an end
            self.people[number].parent = self._person_of(parent)

    def _marks(self, number: int, count: int) -> None:
        person = self.people[number]
        while person.mark_count < count:
            person.add_mark((9, self.clock, self.clock, self.clock, self.clock, self.clock, WAKE_LOOP))

    def seen(self) -> Any:
        return shown_steps(self.steps), [shown(person) for person in self.people], self.steps.detached


def twins() -> tuple[World, World]:
    return World(PythonMonitor(), PythonRaw), World(NativeMonitor(), NativeRaw)


@given(st.lists(calls, max_size=60))
@settings(max_examples=300, deadline=None)
def test_the_same_calls_leave_the_same_to_see(script: list[tuple[Any, ...]]) -> None:
    python, accelerated = twins()
    for call in script:
        python.do(*call)
        accelerated.do(*call)
        assert python.seen() == accelerated.seen(), call
    assert polls(python.steps, None) == polls(accelerated.steps, None)


def polls(steps: Any, until: int | None) -> tuple[Any, ...]:
    taken = steps.take_poll_counts(until)
    return (*taken[:2], sorted(taken[2]), *taken[3:])


poll_calls = st.one_of(
    st.tuples(st.just("begin_poll"), later),
    st.tuples(st.just("end_poll"), later),
    st.tuples(st.just("take"), st.none() | later),
)


@given(st.lists(poll_calls, max_size=80))
@settings(max_examples=300, deadline=None)
def test_polls_are_counted_alike_however_often_the_counts_are_taken(script: list[tuple[str, Any]]) -> None:
    python, accelerated = twins()
    polling = False
    for name, delta in script:
        if name == "take":
            until = None if delta is None else python.clock + delta
            assert polls(python.steps, until) == polls(accelerated.steps, until)
            assert python.steps.polling == accelerated.steps.polling == polling
            for world in (python, accelerated):
                world.clock = max(world.clock, until or 0)
        elif polling == (name == "end_poll"):
            polling = not polling
            for world in (python, accelerated):
                getattr(world.steps, name)(world._at(delta))
            assert shown_steps(python.steps) == shown_steps(accelerated.steps)
    assert polls(python.steps, None) == polls(accelerated.steps, None)


def test_the_fields_of_a_new_loop_are_those_of_the_python_twin() -> None:
    fresh = [shown_steps(kind()) for kind in (PythonMonitor, NativeMonitor)]
    instants = ("suspended", "earliest", "ready", "now", "poll_end", "looked", "event_earliest", "event_ready")
    for seen in fresh:
        assert len({seen.pop(name) for name in instants}) == 1
    assert fresh[0] == fresh[1]


@pytest.mark.parametrize("part", ["_keep", "_charge", "settle"])
def test_an_exception_of_what_is_called_back_comes_out(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise LookupError(part)

    for world in twins():
        monkeypatch.setattr(type(world.steps), part, fails)
        world.do("person", 0, "settles", True)
        if part == "_charge":
            world.do("parent", 0, 1)
        world.do("begin", 0, 1, 0, 0, WAKE_LOOP, 0)
        with pytest.raises(LookupError, match=part):
            world.do("close", RING_NS, True)


@pytest.mark.parametrize(
    "call",
    [
        lambda steps: steps.begin(None, 1),
        lambda steps: steps.begin(None, "x", 0, 0, 0, 0),
        lambda steps: steps.close(1),
        lambda steps: steps.close("x", False),
        lambda steps: steps.stretch("x"),
        lambda steps: steps.begin_poll("x"),
        lambda steps: steps.end_poll("x"),
        lambda steps: setattr(steps, "inherit", (1, 2)),
    ],
)
def test_a_wrong_argument_is_refused_and_changes_nothing(call: Any) -> None:
    steps = NativeMonitor()
    before = shown_steps(steps)
    with pytest.raises(TypeError):
        call(steps)
    assert shown_steps(steps) == before


def test_a_loop_and_its_request_in_a_cycle_are_collected() -> None:
    gc.collect()
    world = World(NativeMonitor(), NativeRaw)
    world.do("begin", 0, 1, 0, 0, WAKE_LOOP, 0)
    world.people[0].channel = world.steps
    gone = weakref.ref(world.steps)
    del world
    gc.collect()
    assert gone() is None
