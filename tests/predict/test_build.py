"""Recordings whose truth is known: demands come out as they went in, whatever was waited for meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.errors import ProbeError
from mcp_probe.model import End, Frame, Header, Part, RequestGroup, RequestRecord, Timeline
from mcp_probe.predict.build import workload_of
from mcp_probe.predict.change import Change
from mcp_probe.predict.changes import changed
from mcp_probe.predict.check import check
from mcp_probe.predict.recorded import CannotPredictError, Recorded
from mcp_probe.predict.simulate import simulate
from mcp_probe.predict.workload import ANSWER, DELAY, HOLD, JOB, RELEASE, SUBMIT, Resource, Step, Workload
from tests.frames import make_group, make_open, make_process, make_step
from tests.predict.made import MS, call, durations, job, threads, workload
from tests.predict.replayed import recording_of, without_waits_written


def read(frames: list[Frame]) -> Workload:
    return workload_of(Recorded.of(frames))


def by_operation(made: Workload) -> list[int]:
    """Durations in the order of operations and lengths: of calls that came at once, any may be the first."""
    return [ns for _, ns in sorted(zip((one.operation for one in made.calls), durations(made), strict=True))]


def at_lock(hold_ns: int, resource: int = 1) -> tuple[Step, ...]:
    """Some work, then a lock held over a sleep, then some work."""
    return (
        Step(DELAY, 0, MS),
        Step(HOLD, resource, 0),
        Step(DELAY, hold_ns, MS, ends=((RELEASE, resource),)),
        Step(DELAY, 0, MS, ends=((ANSWER, 0),)),
    )


def on_thread() -> tuple[Step, ...]:
    return (Step(DELAY, 0, MS, ends=((SUBMIT, 0),)), Step(JOB, 0, MS, ends=((ANSWER, 0),)))


def sleeping(ns: int, run_ns: int = MS) -> tuple[Step, ...]:
    return (Step(DELAY, 0, MS), Step(DELAY, ns, run_ns, ends=((ANSWER, 0),)))


def mixed(bursts: int, of: int, pool: int, places: int, lock_ns: int = 10 * MS) -> Workload:
    """Bursts of calls of three tools; each burst comes once the one before is answered."""
    calls = []
    for burst in range(bursts):
        after = tuple(range((burst - 1) * of, burst * of)) if burst else ()
        for number in range(of):
            at = MS * (1 + number // 100)
            kind = number % 3
            if kind == 0:
                calls.append(call(at_lock(lock_ns), at=at, after=after, operation="locks", took_ns=1))
            elif kind == 1:
                calls.append(call(on_thread(), at=at, after=after, jobs=(job(20 * MS),), operation="threads"))
            else:
                calls.append(call(sleeping(7 * MS), at=at, after=after, operation="sleeps"))
    return workload(calls, threads(pool), Resource("the lock", "lock", places))


def test_an_unchanged_window_gives_back_what_was_recorded() -> None:
    made = mixed(bursts=8, of=9, pool=2, places=1)
    found = read(recording_of(made))
    assert [one.took_ns for one in found.calls] == pytest.approx(durations(made), abs=1)
    assert by_operation(found) == pytest.approx(by_operation(made), rel=0.05)
    check(found, simulate(found))


def test_blank_waits_change_nothing() -> None:
    frames = recording_of(mixed(bursts=6, of=9, pool=2, places=1))
    blank = without_waits_written(frames)
    assert blank != frames
    assert read(blank) == read(frames)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3), st.integers(4, 9), st.integers(3, 9))
def test_waits_in_the_recording_do_not_show_in_what_is_predicted(few: int, many: int, of: int) -> None:
    """Calls recorded at a small pool and at a large one give the same window once both have the same pool."""
    crowded = read(recording_of(mixed(bursts=6, of=of, pool=few, places=1)))
    roomy = read(recording_of(mixed(bursts=6, of=of, pool=many, places=1)))
    for size in (few, many):
        change = [Change("pool", "threads", size)]
        truth = by_operation(mixed(bursts=6, of=of, pool=size, places=1))
        assert by_operation(changed(crowded, change)) == pytest.approx(truth, rel=0.05)
        assert by_operation(changed(roomy, change)) == pytest.approx(truth, rel=0.05)


def test_a_lock_that_is_narrowed_is_held_for_its_last_step_only() -> None:
    made = mixed(bursts=6, of=9, pool=9, places=1, lock_ns=30 * MS)
    predicted = changed(read(recording_of(made)), [Change("narrow", "the lock")])
    narrow = (
        Step(DELAY, 0, MS),
        Step(DELAY, 30 * MS, 0),
        Step(HOLD, 1, MS, ends=((RELEASE, 1),)),
        Step(DELAY, 0, MS, ends=((ANSWER, 0),)),
    )
    calls = [replace(one, units=(narrow,)) if one.operation == "locks" else one for one in made.calls]
    truth = by_operation(replace(made, calls=tuple(calls)))
    assert by_operation(predicted) == pytest.approx(truth, rel=0.05)


def test_who_held_a_lock_while_nobody_waited_holds_it_all_the_same_under_more_load() -> None:
    """Alone, a call leaves no trace of the lock. Others of its tool do."""
    alone = [call(at_lock(10 * MS, 0), at=MS * 100 * n, operation="locks") for n in range(3)]
    pairs = [call(at_lock(10 * MS, 0), at=MS * (400 + 100 * (n // 2)), operation="locks") for n in range(8)]
    made = workload([*alone, *pairs], Resource("the lock", "lock", 1))
    found = read(recording_of(made))
    assert all(sum(step.after == HOLD for step in one.units[0]) == 1 for one in found.calls)
    assert all(sum((RELEASE, 0) in step.ends for step in one.units[0]) == 1 for one in found.calls)


def test_a_step_that_computed_without_the_gil_is_one_that_a_thread_helps() -> None:
    made = workload([call((Step(DELAY, 0, 60 * MS, ends=((ANSWER, 0),)),)) for _ in range(4)])
    frames = []
    for frame in recording_of(made):
        frames.append(replace(frame, cpus=2.0) if isinstance(frame, Header) else frame)
        if isinstance(frame, Timeline):
            [run] = frame.steps
            library = None if frame.request % 2 else "sqlite3.Cursor.execute without the GIL"
            at: dict[str, Any] = {"file": "server.py", "line": 7, "library": library}
            frames.append(make_step(run.start_ns, run.end_ns, frame.request, cpu_ns=60 * MS, **at))
    found = read(frames)
    assert [step.is_free for one in found.calls for step in one.units[0] if step.run_ns] == [True] * 4  # one line
    assert max(by_operation(changed(found, [Change("offload", "work")]))) < 125 * MS < max(by_operation(found))


@pytest.mark.parametrize(
    ("seen", "idle_ms", "stops"),
    [
        ({"cpu_ns": 20 * MS, "run_queue_ns": 10 * MS, "sleeps": 100}, 30, 100),
        ({"cpu_ns": 57 * MS, "sleeps": 40}, 0, 0),  # for the GIL, of threads that look at it
        ({"cpu_ns": 20 * MS, "run_queue_ns": 40 * MS, "sleeps": 100}, 0, 0),  # it never slept: the host had the CPU
        ({"cpu_ns": 20 * MS, "sleeps": 100, "cause": "gil"}, 0, 0),
        ({"cpu_ns": 20 * MS, "sleeps": None}, 40, 0),
        ({"cpu_ns": None, "sleeps": 100}, 0, 0),
    ],
)
def test_how_long_and_how_often_a_step_stopped_is_read(seen: dict[str, Any], idle_ms: int, stops: int) -> None:
    frames = recording_of(workload([call((Step(DELAY, 0, 60 * MS, ends=((ANSWER, 0),)),))]))
    [line] = [frame for frame in frames if isinstance(frame, Timeline)]
    [run] = line.steps
    [one] = read([*frames, make_step(run.start_ns, run.end_ns, line.request, **seen)]).calls
    [step] = [step for step in one.units[0] if step.run_ns]
    assert (step.idle_ns, step.stops) == (idle_ms * MS, stops)


@pytest.mark.parametrize("known", [0, 3])
def test_on_trio_a_timer_that_was_due_in_the_step_of_another_lasted_as_long_as_elsewhere(known: int) -> None:
    """Nothing tells it from a task that the step woke: where no other call of the tool says otherwise, that is told."""
    alone = [call(sleeping(10 * MS), at=100 * MS * (1 + n), operation="sleeps") for n in range(known)]
    beside = [call(sleeping(10 * MS), operation="sleeps"), call(sleeping(2 * MS, 20 * MS), operation="works")]
    frames = []
    for frame in recording_of(workload([*beside, *alone])):
        if isinstance(frame, Header):
            frame = replace(frame, loop="trio")
        if isinstance(frame, Timeline):
            steps = []
            for run in frame.steps:
                due = run.suspended_ns + 10 * MS
                steps.append(run._replace(earliest_ns=due, ready_ns=due) if due < run.start_ns else run)
            frame = replace(frame, steps=tuple(steps), awaits=())
        frames.append(frame)
    asleep = [one.units[0][-1].arg for one in read(frames).calls if one.operation == "sleeps"]
    assert asleep == pytest.approx([10 * MS] * (1 + known) if known else [2 * MS], abs=MS)


def test_clients_that_wait_are_told_from_those_that_do_not() -> None:
    closed = read(recording_of(mixed(bursts=8, of=3, pool=2, places=1)))
    assert closed.is_closed
    every = [call(sleeping(3 * MS), at=20 * MS * n, operation="sleeps") for n in range(30)]
    slow = [call(sleeping(55 * MS), at=20 * MS * n + MS, operation="slow") for n in range(0, 30, 3)]
    opened = read(recording_of(workload(sorted([*every, *slow], key=lambda one: one.sent_ns))))
    assert not opened.is_closed
    assert "open" in opened.arrivals
    assert "closed" in closed.arrivals


# --- refusals -----------------------------------------------------------------------------------------


def reason(frames: list[Frame]) -> str:
    with pytest.raises(CannotPredictError) as caught:
        read(frames)
    assert isinstance(caught.value, ProbeError)
    return str(caught.value)


def test_windows_that_are_not_whole_are_refused_by_name() -> None:
    whole = recording_of(mixed(bursts=2, of=3, pool=2, places=1))
    header = whole[0]
    assert isinstance(header, Header)
    assert "not a full one" in reason([replace(header, full=False), *whole[1:]])
    group = make_group([(100, 5, 500)])
    assert isinstance(group, RequestGroup)
    assert "is sampled: 5 requests" in reason([*whole, group])
    weighted = [replace(one, weight=4) if isinstance(one, RequestRecord) else one for one in whole]
    assert "is sampled" in reason(weighted)
    assert "lost frames: 7 (channel full)" in reason([*whole, make_process(dropped=(("channel full", 7),))])
    assert "truncated: 1 requests had not ended" in reason([*whole, make_open(id=99)])
    timelines = [one for one in whole if isinstance(one, Timeline)]
    assert "truncated: 1 requests have a record and no timeline" in reason(
        [one for one in whole if one is not timelines[-1]]
    )
    cut = [replace(one, left_out=(("steps", 3),)) if isinstance(one, Timeline) else one for one in whole]
    assert "only the first steps" in reason(cut)
    blind = [replace(one, seen=2) if isinstance(one, RequestRecord) else one for one in whole]
    assert "could not be seen" in reason(blind)
    assert "no requests" in reason([header])
    assert "oldest files were deleted" in reason([Part(2, 10, 30, 1_000_000), *whole])
    assert "frames of it are missing" in reason([*whole, End(0, "exit", missing=3)])


def test_a_simulation_that_does_not_give_what_was_measured_is_refused_with_its_figures() -> None:
    made = mixed(bursts=8, of=3, pool=2, places=1)
    frames = [
        replace(one, end_ns=one.end_ns + 40 * MS) if isinstance(one, RequestRecord) and one.name == "sleeps" else one
        for one in recording_of(made)
    ]
    found = read(frames)
    outcome = simulate(replace(found, calls=tuple(replace(one, way=replace(one.way, out_ns=0)) for one in found.calls)))
    with pytest.raises(CannotPredictError, match=r"`sleeps` p\d\d .* measured, .* simulated.* at most\.$"):
        check(found, outcome)


def test_a_percentile_that_a_few_calls_decide_says_so_where_only_such_are_off() -> None:
    made = workload([call(sleeping(10 * MS), at=100 * MS * n, operation="sleeps") for n in range(40)])
    slow = [one.id for one in recording_of(made) if isinstance(one, RequestRecord)][:5]
    found = read(
        [
            replace(one, end_ns=one.end_ns + 40 * MS) if isinstance(one, RequestRecord) and one.id in slow else one
            for one in recording_of(made)
        ]
    )
    quick = replace(found, calls=tuple(replace(one, way=replace(one.way, out_ns=0)) for one in found.calls))
    with pytest.raises(CannotPredictError, match=r"at most\. 2 of 40 calls decide a p95: record more of them\.$"):
        check(found, simulate(quick))
