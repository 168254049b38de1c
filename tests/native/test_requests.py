"""Request in C and in Python: the same calls leave the same to see, and the same record comes of it."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import RequestRecord
from mcp_probe.record.assemble import assemble
from mcp_probe.record.raw import (
    RING_NS,
    WAKE_LOOP,
    WAKE_SOCKET,
    WAKE_SPLIT,
    WAKE_THREAD,
    WAKE_UNKNOWN,
    Job,
    PythonRequest,
    RawRequest,
    StepMark,
)
from tests.frames import make_open
from tests.native.twins import REQUEST_FIELDS, NativeRaw, PythonRaw, needs_the_accelerator, plain, shown
from tests.record.lives import TICK_NS, Life, lives

pytestmark = needs_the_accelerator

FIRST: tuple[Any, ...] = (1, "request", "tools/call", "tool", "stdio")
numbers = st.integers(-(2**63), 2**63 - 1)
instants = st.integers(0, 2**62)
units = st.integers(0, 6) | st.integers(0, 2**47)
wakes = st.sampled_from([WAKE_LOOP, WAKE_THREAD, WAKE_SOCKET, WAKE_UNKNOWN, WAKE_SPLIT])
marks = st.tuples(units, numbers, numbers, numbers, instants, instants, wakes)
flags = {"settles", "ended", "transport_seen", "write_seen", "partial", "seen_open"}
whole = {"handler", "detached_ns", "blocked_others_ns"}
read_only = {"mark_count", "operation"}
SETTABLE = sorted(set(REQUEST_FIELDS) - read_only - {"spilled", "parent", "jobs"})


def a_value_of(name: str) -> st.SearchStrategy[Any]:
    if name in flags:
        return st.booleans()
    return numbers if name in whole else st.none() | instants | st.text(max_size=3)


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
    missing = {name for name in vars(PythonRequest) if not name.startswith("_")} - set(dir(native.core.Request))
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
        lambda raw: raw.fold_single(1),
        lambda raw: raw.fold_single("a", "b"),
    ],
)
def test_a_wrong_argument_is_refused_and_changes_nothing(call: Any) -> None:
    raw = NativeRaw(*FIRST)
    before = shown(raw)
    with pytest.raises((TypeError, ValueError)):
        call(raw)
    assert shown(raw) == before


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
    if running is None:
        is_counted(raw, end_ns, made)
    return made


def is_counted(raw: RawRequest, end_ns: int, record: RequestRecord) -> bool:
    """Whether it can be summed up without its record; if so, that says what its record would have said."""
    counted, folded = Fold(), Fold()
    folded.add(record)
    before, raw.end_ns = raw.end_ns, end_ns
    telling, unmeasured = counted.sum_up([raw])
    raw.end_ns = before
    taken = not telling
    assert bool(unmeasured) == taken
    if not taken:
        counted.add(record)
    assert counted.summary() == folded.summary()
    return taken


@given(lives())
@settings(max_examples=150, deadline=None)
def test_any_life_gives_the_same_record(life: Life) -> None:
    running = None if life.running is None else life.running.mark()
    same_record(life.raw(), life.end * TICK_NS, running)


@given(lives(max_units=1, threads=False, gc=False))
@settings(max_examples=150, deadline=None)
def test_the_life_of_one_unit_gives_the_same_record(life: Life) -> None:
    same_record(life.raw(), life.end * TICK_NS)


lengths = st.integers(0, 900_000)
earlier = st.none() | st.integers(-1_000, 1_200_000)
gap = st.tuples(lengths, lengths, lengths, wakes)


@given(st.lists(gap, min_size=1, max_size=20), lengths, lengths, st.integers(-400_000, 100_000), lengths, earlier)
@example([(0, 0, 5, WAKE_LOOP), (100, 10, 40, WAKE_THREAD)], 10, 20, 0, 30, None)
@example([(0, 0, 5, WAKE_LOOP), (2_000_000, 1_500_000, 40, WAKE_LOOP)], 10, 20, 0, 30, 0)
@example([(0, 0, 5, WAKE_LOOP), (100, 10, 40, WAKE_SOCKET)], 10, 20, 0, 30, 400)
@settings(max_examples=300, deadline=None)
def test_a_plain_request_gives_the_same_record_by_the_short_cut(
    gaps: list[tuple[int, int, int, int]], arrival: int, dispatch: int, after: int, write: int, earlier: int | None
) -> None:
    raw = plain(gaps, arrival, dispatch, after, write)
    raw.arrival_earliest_ns = None if earlier is None else raw.arrival_ns - earlier
    short = raw.record(raw.end_ns)
    event("short cut" if short is not None else "long way")
    record = same_record(raw, raw.end_ns)
    assert short is None or short == record


def test_the_plainest_request_takes_the_short_cut() -> None:
    raw = plain([(0, 0, 5, WAKE_LOOP), (100, 10, 40, WAKE_LOOP)], 10, 20, 0, 30)
    record = raw.record(raw.end_ns)
    assert type(record) is RequestRecord
    assert record == same_record(raw, raw.end_ns)
    assert (record.budget.busy, record.budget.ready_wait, record.budget.awaiting) == (45, 10, 100)
    assert is_counted(raw, raw.end_ns, record)


def test_requests_are_summed_up_where_nothing_else_of_the_probe_is_loaded() -> None:
    source = """
from mcp_probe import native
from mcp_probe.aggregate.fold import Fold
from mcp_probe.record.raw import RawRequest
raw = RawRequest(1, "request", "ping", None, "stdio")
raw.arrival_ns = raw.taken_ns = raw.first_step_ns = raw.result_ns = raw.write_taken_ns = 1
raw.end_ns, raw.ended = 2, True
fold = Fold()
telling, _ = fold.sum_up([raw])
print(len(telling), fold.summary().requests.count)
try:
    print(native.core.lots([raw], ("busy",), 10, None, 0, 0))
except ValueError as exc:
    print(exc)
"""
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout.splitlines()[:1]) == (0, ["0 1"]), ended.stderr


@pytest.mark.parametrize("wrong", [None, object(), ("a request",)])
def test_nothing_but_requests_is_summed_up(wrong: Any) -> None:
    fold = Fold()
    with pytest.raises(TypeError):
        fold.sum_up([wrong])
    with pytest.raises(TypeError):
        native.core.note_small_steps([wrong], {})
    assert fold.summary().operations == ()


def test_requests_of_many_operations_are_summed_up_each_in_its_place() -> None:
    batch, folded, counted = [], Fold(), Fold()
    for number, name in enumerate(["a", "b", "b", "a", None, "c", "a"]):
        raw = plain([(0, 0, 5, WAKE_LOOP), (100, 10, 40 + number, WAKE_LOOP)], 10, 20, 0, 30)
        raw.id, raw.name = number, name
        if name == "c":
            raw.outcome = "tool_error"
        batch.append(raw)
        folded.add(same_record(raw, raw.end_ns))
    telling, _ = counted.sum_up(batch)
    assert [raw.name for raw in telling] == ["c"]
    counted.add(same_record(telling[0], telling[0].end_ns or 0))
    assert counted.summary() == folded.summary()


def test_a_request_that_is_known_to_be_open_is_closed_and_counts_for_those_beside_it() -> None:
    raws = [plain([(0, 0, 5, WAKE_LOOP)], 10, 20, 0, 30) for _ in range(2)]
    folded, counted = Fold(), Fold()
    for number, raw in enumerate(raws):
        raw.id = number
        for fold in (folded, counted):
            fold.add(make_open(number, arrival_ns=raw.arrival_ns))
    for fold in (folded, counted):
        fold.add(make_open(99, arrival_ns=1))
    for raw in raws:
        folded.add(same_record(raw, raw.end_ns))
    assert counted.sum_up(raws)[0] == []
    assert counted.summary() == folded.summary()
    assert counted.summary().requests.unfinished == 1


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.lists(st.integers(1, 2 * RING_NS), max_size=4)), max_size=9))
def test_short_steps_add_up_to_the_same(steps: list[tuple[str, list[int]]]) -> None:
    batch, small = [], {"a": [1, 7]}
    expected = {"a": [1, 7]}
    for name, lengths in steps:
        raw = RawRequest(1, "request", "tools/call", name, "stdio")
        for length in lengths:
            raw.add_mark((7, 0, 0, 0, 100, 100 + length, WAKE_LOOP))
        batch.append(raw)
        count, total = raw.small_steps()
        if count:
            row = expected.setdefault(name, [0, 0])
            row[0] += count
            row[1] += total
    native.core.note_small_steps(batch, small)
    assert small == expected


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
        ("client_waits", [(1_050, 1_060)]),
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


def test_a_record_of_the_short_cut_can_be_copied_hashed_and_shown() -> None:
    import copy
    import pickle
    from dataclasses import replace

    raw = plain([(0, 0, 5, WAKE_LOOP)], 10, 20, 0, 30)
    record = raw.record(raw.end_ns)
    assert copy.copy(record) == record == pickle.loads(pickle.dumps(record))
    assert replace(record, name="other").name == "other"
    assert repr(record).startswith("RequestRecord(id=1,") and hash(record) == hash(copy.copy(record))
