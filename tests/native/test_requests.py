"""Request in C and in Python: the same calls leave the same to see, and the same record comes of it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.model import ALL_SEEN, RequestRecord
from mcp_probe.record.assemble import assemble
from mcp_probe.record.raw import (
    WAKE_LOOP,
    WAKE_SOCKET,
    WAKE_SPLIT,
    WAKE_THREAD,
    WAKE_UNKNOWN,
    ClientWait,
    Job,
    PythonRequest,
    RawRequest,
    StepMark,
)
from tests.native.twins import REQUEST_FIELDS, NativeRaw, PythonRaw, needs_the_accelerator, shown
from tests.record.lives import TICK_NS, Life, lives

core: Any = native.core

pytestmark = needs_the_accelerator

FIRST: tuple[Any, ...] = (1, "request", "tools/call", "tool", "stdio")
numbers = st.integers(-(2**63), 2**63 - 1)
instants = st.integers(0, 2**56)  # two years of nanoseconds; sums of sixty fit the 64 bits of C
units = st.integers(0, 6) | st.integers(0, 2**47)
wakes = st.sampled_from([WAKE_LOOP, WAKE_THREAD, WAKE_SOCKET, WAKE_UNKNOWN, WAKE_SPLIT])
marks = st.tuples(units, numbers, numbers, numbers, instants, instants, wakes)
flags = {"settles", "ended", "transport_seen", "write_seen", "partial", "seen_open"}
whole = {"handler", "detached_ns", "blocked_others_ns"}
timed = {name for name in REQUEST_FIELDS if name.endswith(("_ns", "_bytes"))} | {"loop"}
read_only = {"mark_count", "operation"}
SETTABLE = sorted(set(REQUEST_FIELDS) - read_only - {"spilled", "parent", "jobs"})


def a_value_of(name: str) -> st.SearchStrategy[Any]:
    if name in flags:
        return st.booleans()
    if name in whole:
        return numbers
    if name == "seen":
        return st.integers(0, ALL_SEEN)
    return st.none() | instants if name in timed else st.none() | instants | st.text(max_size=3)


calls = st.one_of(
    st.tuples(st.just("add_mark"), st.tuples(marks)),
    st.tuples(st.just("set_unit"), st.tuples(units, instants)),
    st.tuples(st.just("drop_unit"), st.tuples(units)),
    st.tuples(st.just("clear_marks"), st.just(())),
    st.sampled_from(SETTABLE).flatmap(lambda name: st.tuples(st.just("="), st.tuples(st.just(name), a_value_of(name)))),
    st.tuples(st.just("="), st.tuples(st.just("units"), st.dictionaries(units, instants, max_size=12))),
)


@given(st.lists(calls, max_size=60))
@settings(max_examples=200, deadline=None)
def test_the_same_calls_leave_the_same_to_see(script: list[tuple[str, tuple[Any, ...]]]) -> None:
    twins = [PythonRaw(*FIRST), NativeRaw(*FIRST)]
    for name, arguments in script:
        for twin in twins:
            if name == "=":
                setattr(twin, *arguments)
            else:
                getattr(twin, name)(*arguments)
        assert shown(twins[0]) == shown(twins[1])


def test_a_request_without_a_name_goes_by_its_method() -> None:
    for twin in (PythonRaw, NativeRaw):
        assert twin(1, "request", "ping", None, "stdio").operation == "ping"
        assert twin(1, "request", "ping", "", "stdio").operation == "ping"


def test_every_field_of_a_new_request_is_that_of_the_python_twin() -> None:
    assert shown(NativeRaw(*FIRST)) == shown(PythonRaw(*FIRST))
    missing = {name for name in vars(PythonRequest) if not name.startswith("_")} - set(dir(core.Request))
    assert missing == set()


@pytest.mark.parametrize(
    "call",
    [
        lambda raw: raw.add_mark((1, 2, 3)),
        lambda raw: raw.set_unit(1),
        lambda raw: raw.drop_unit("x"),
        lambda raw: setattr(raw, "units", [1]),
        lambda raw: type(raw)(1, 2),
        lambda raw: type(raw)(1, 2, 3, 4, 5, name="x"),
        lambda raw: raw.add_mark(1),
        lambda raw: raw.add_mark(("x", *[0] * 6)),
        lambda raw: setattr(raw, "unit_peak", 1),
        lambda raw: setattr(raw, "mark_count", 1),
    ],
)
def test_a_wrong_argument_is_refused_and_changes_nothing(call: Any) -> None:
    raw = NativeRaw(*FIRST)
    before = shown(raw)
    with pytest.raises((TypeError, ValueError, AttributeError)):
        call(raw)
    assert shown(raw) == before


@pytest.mark.parametrize("name", sorted(timed - whole))
def test_an_instant_is_a_number_of_64_bits_or_none(name: str) -> None:
    raw = NativeRaw(*FIRST)
    for value in (0, -1, 2**63 - 1, -(2**63) + 1, None):
        setattr(raw, name, value)
        assert getattr(raw, name) == value
    setattr(raw, name, 5)
    for wrong, fault in (("x", TypeError), (1.5, TypeError), ([], TypeError), (2**63, OverflowError)):
        with pytest.raises(fault):
            setattr(raw, name, wrong)
    assert getattr(raw, name) == 5
    delattr(raw, name)
    assert getattr(raw, name) is None


def test_requests_in_a_cycle_are_collected() -> None:
    gc.collect()
    raw, other = NativeRaw(*FIRST), NativeRaw(*FIRST)
    raw.parent, other.parent = other, raw
    raw.channel = [raw]
    for number in range(40):
        raw.add_mark((number, *[0] * 6))
        raw.set_unit(number, 0)
    gone = weakref.ref(raw)
    del raw, other
    gc.collect()
    assert gone() is None


# --- records ---


def as_python(raw: RawRequest) -> PythonRaw:
    """The same request on the Python twin."""
    twin = PythonRaw(*(getattr(raw, name) for name in ("id", "kind", "method", "name", "transport")))
    for name in set(REQUEST_FIELDS) - read_only:
        setattr(twin, name, getattr(raw, name))
    twin.marks, twin.units, twin.unit_peak = list(raw.marks), dict(raw.units), raw.unit_peak
    return twin


def same_record(raw: RawRequest, end_ns: int, running: StepMark | None = None) -> RequestRecord:
    made: RequestRecord = assemble(raw, end_ns, running)
    assert made == assemble(as_python(raw), end_ns, running)
    return made


@given(lives())
@settings(max_examples=150, deadline=None)
def test_any_life_gives_the_same_record(life: Life) -> None:
    running = None if life.running is None else life.running.mark()
    same_record(life.raw(), life.end * TICK_NS, running)


@given(lives(max_units=1, threads=False, gc=False))
@settings(max_examples=150, deadline=None)
def test_the_life_of_one_unit_gives_the_same_record(life: Life) -> None:
    same_record(life.raw(), life.end * TICK_NS)


def plain(gaps: list[tuple[int, int, int, int]], arrival: int, dispatch: int, after: int, write: int) -> Any:
    """An answered stdio request of one unit: (suspended for, waits, runs, wake) per step, in nanoseconds."""
    raw = RawRequest(1, "request", "tools/call", "tool", "stdio")
    raw.arrival_ns, raw.taken_ns, raw.write_seen = 1_000, 1_000 + arrival, True
    now = raw.first_step_ns = 1_000 + arrival + dispatch
    suspended = now
    for number, (away, waits, runs, wake) in enumerate(gaps):
        ready = suspended + (away if number else 0)
        start = ready + (waits if number else 0)
        raw.add_mark(
            (7, suspended, ready if wake != WAKE_SOCKET else ready - away // 2, ready, start, start + runs, wake)
        )
        suspended = start + runs
        raw.set_unit(7, suspended)
    raw.handler, raw.settles, raw.loop = 7, True, 1
    raw.result_ns = max(raw.first_step_ns, suspended + after)
    raw.write_taken_ns = raw.result_ns + write // 2
    raw.flushed_ns = raw.end_ns = raw.result_ns + write
    raw.ended = True
    return raw


lengths = st.integers(0, 900_000)
earlier = st.none() | st.integers(-1_000, 1_200_000)
gap = st.tuples(lengths, lengths, lengths, wakes)


@given(st.lists(gap, min_size=1, max_size=20), lengths, lengths, st.integers(-400_000, 100_000), lengths, earlier)
@example([(0, 0, 5, WAKE_LOOP), (100, 10, 40, WAKE_THREAD)], 10, 20, 0, 30, None)
@example([(0, 0, 5, WAKE_LOOP), (2_000_000, 1_500_000, 40, WAKE_LOOP)], 10, 20, 0, 30, 0)
@example([(0, 0, 5, WAKE_LOOP), (100, 10, 40, WAKE_SOCKET)], 10, 20, 0, 30, 400)
@settings(max_examples=300, deadline=None)
def test_a_plain_request_gives_the_same_record(
    gaps: list[tuple[int, int, int, int]], arrival: int, dispatch: int, after: int, write: int, earlier: int | None
) -> None:
    raw = plain(gaps, arrival, dispatch, after, write)
    raw.arrival_earliest_ns = None if earlier is None else raw.arrival_ns - earlier
    same_record(raw, raw.end_ns)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partial", True),
        ("transport_seen", False),
        ("write_seen", False),
        ("arrival_ns", None),
        ("taken_ns", None),
        ("first_step_ns", None),
        ("result_ns", None),
        ("write_taken_ns", None),
        ("detached_ns", 77),
        ("loop", None),
        ("outcome", "tool_error"),
        ("error", "tool_error"),
        ("protocol_version", "2025-06-18"),
        ("pauses", [(1_050, 1_060)]),
        ("client_waits", [ClientWait(1_045, 1_050, 1_050, 1_060)]),
        ("jobs", [Job(None, None, "tool", 1_040)]),
        ("trace_id", 5),
        ("session_id", "s"),
        ("server_span", "probe"),
        ("resource_uri", "file:///x"),
        ("error_code", "-32603"),
    ],
)
def test_whatever_else_there_is_to_say_of_a_request_is_in_its_record(name: str, value: Any) -> None:
    raw = plain([(0, 0, 5, WAKE_LOOP), (100, 10, 40, WAKE_LOOP)], 10, 20, 0, 30)
    without = same_record(raw, raw.end_ns)
    setattr(raw, name, value)
    assert same_record(raw, raw.end_ns) != without
