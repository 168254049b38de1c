"""What grew from quick calls to slow ones: the parts add up to the difference, and none is longer than its call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate.explain import Seen, what_differs, what_grew
from mcp_probe.aggregate.fold import Fold
from mcp_probe.aggregate.grown import Arm, grown, told
from mcp_probe.model import (
    BUDGET_PARTS,
    Await,
    AwaitKind,
    AwaitStage,
    BlockedBy,
    Frame,
    RequestRecord,
    SlowCalls,
)
from tests.frames import MS, SECOND, make_budget, make_header, make_request, make_step, make_wait


def awaited(ms: float, kind: AwaitKind = "lock", name: str = "notes.GATE", **given: Any) -> Await:
    return Await(kind, name, "notes.py:12", 0, round(ms * MS), round(ms * MS), "exact", **given)


def slow_calls_of(*frames: Frame) -> SlowCalls | None:
    fold = Fold()
    fold.add_all([make_header(), *frames])
    return next(each for each in fold.summary().operations if each.name == "add").slow_calls


def quick_ones(count: int = 60, **given: Any) -> list[RequestRecord]:
    return [make_request(number + 1, arrival_ns=number * SECOND, busy=12 * MS, **given) for number in range(count)]


def test_slow_calls_say_whom_they_waited_for() -> None:
    frames: list[Frame] = []
    for number in range(100, 108):
        at = number * SECOND
        wait = (make_wait(at + 6 * MS, at + 146 * MS),)
        frames.append(make_step(at, at + 146 * MS, request=1000 + number, operation="resize"))
        frames.append(make_request(number, arrival_ns=at, busy=12 * MS, ready_wait=140 * MS, waits=wait, loop=0))
    found = slow_calls_of(*quick_ones(), *frames)
    assert found is not None
    assert (round(found.quick_ms), round(found.slow_ms)) == (12, 152)
    assert told(found, "add") == "+140 ms waiting for `resize`"


def test_slow_calls_say_what_they_awaited() -> None:
    slow = [
        make_request(number, arrival_ns=number * SECOND, busy=12 * MS, awaiting=154 * MS, awaits=(awaited(140),))
        for number in range(100, 108)
    ]
    found = slow_calls_of(*quick_ones(awaits=()), *slow)
    assert found is not None
    assert told(found) == "+140 ms awaiting lock `notes.GATE`"
    assert ("awaiting", None, None) in {(part.part, part.kind, part.name) for part in found.parts}


def test_what_nothing_named_is_not_called_outside() -> None:
    slow = [make_request(number, arrival_ns=number * SECOND, awaiting=90 * MS, awaits=()) for number in range(100, 108)]
    found = slow_calls_of(*quick_ones(awaits=()), *slow)
    assert found is not None
    assert told(found) == "+90 ms awaiting what nothing named, −12 ms of its own on the event loop"


def test_calls_that_are_alike_have_no_slow_ones() -> None:
    assert slow_calls_of(*quick_ones()) is None


def test_a_wait_in_the_queue_of_which_nobody_knows_the_blocker_accuses_nobody() -> None:
    slow = [
        make_request(number, arrival_ns=number * SECOND, busy=12 * MS, queue_transport=90 * MS)
        for number in range(100, 108)
    ]
    found = slow_calls_of(*quick_ones(), *slow)
    assert found is not None
    assert told(found) == "+90 ms waiting to be taken up"


def test_jobs_that_nobody_looked_at_go_by_those_that_were() -> None:
    """One job in four is looked at; quick and slow jobs all sleep, so sleep is what grew."""
    frames = [
        make_request(
            number,
            arrival_ns=number * SECOND,
            executor_run=ms * MS,
            jobs_looked=1 if number % 4 == 0 else 0,
            awaits=(awaited(ms, "sleep", "sleep", stage="executor_run", looks=9),) if number % 4 == 0 else (),
        )
        for number, ms in enumerate([20] * 60 + [100] * 8, start=1)
    ]
    found = slow_calls_of(*frames)
    assert found is not None
    assert told(found) == "about +80 ms waiting for sleep in a worker thread"


def test_two_stretches_of_time_say_what_grew() -> None:
    alone = [make_request(number, arrival_ns=number * SECOND, busy=5 * MS) for number in range(1, 11)]
    crowd = [make_request(number, busy=5 * MS, queue_dispatch=40 * MS) for number in range(1, 11)]
    before, after = Seen.of([make_header(), *alone]), Seen.of([make_header(), *crowd])
    assert what_grew(before, after) == (
        "A request took 45 ms instead of 5.0 ms on average: +40 ms waiting to be taken up."
    )
    assert what_grew(after, before) == ""
    assert what_grew(Seen.of([make_header()]), after) == ""


def test_two_servers_that_did_the_same_say_what_the_slower_took_longer_for_however_little() -> None:
    some = [make_request(number, arrival_ns=number * SECOND, busy=900_000) for number in range(1, 11)]
    more = [
        make_request(number, arrival_ns=number * SECOND, busy=800_000, write_flush=350_000) for number in range(1, 11)
    ]
    quick, slow = Seen.of([make_header(), *some]), Seen.of([make_header(), *more])
    told_of_both = (
        "A request took 1.15 ms with old and 0.90 ms with new: +350 µs until its answer was written, "
        "−100 µs of its own on the event loop."
    )
    assert what_differs(quick, slow, ("new", "old")) == told_of_both
    assert what_differs(slow, quick, ("old", "new")) == told_of_both
    assert what_differs(quick, quick, ("a", "b")) == "A request took 0.90 ms with b and 0.90 ms with a."
    assert what_differs(Seen.of([make_header()]), slow, ("a", "b")) == ""


_NS = st.integers(0, 400 * MS)
_STAGES: tuple[AwaitStage, ...] = ("awaiting", "executor_run", "busy")


@st.composite
def arms(draw: st.DrawFn) -> Arm:
    """Calls whose waits and blockers, as sums of other hooks, may even be longer than the parts that hold them."""
    requests = [
        make_request(
            number,
            budget=make_budget(**{part: draw(_NS) for part in BUDGET_PARTS if draw(st.booleans())}),
            weight=draw(st.integers(1, 5)),
            awaits=tuple(
                awaited(draw(_NS) / MS, name=draw(st.sampled_from(("a", "b"))), stage=draw(st.sampled_from(_STAGES)))
                for _ in range(draw(st.integers(0, 3)))
            ),
        )
        for number in range(1, draw(st.integers(2, 5)))
    ]
    rows = [BlockedBy("add", name, 1, draw(_NS) / MS, 500.0, "lower") for name in ("block", "resize")]
    arm = Arm.of(requests, rows)
    arm.looks = {
        ("awaiting", "lock", "c"): draw(st.floats(0, 1)),
        ("executor_run", "sleep", "d"): draw(st.floats(0, 1)),
    }
    arm.run_unseen = draw(st.floats(0, 1))
    return arm


@given(arms(), arms())
def test_parts_add_up_to_the_difference_and_none_is_longer_than_its_call(quick: Arm, slow: Arm) -> None:
    for arm in (quick, slow):
        leaves = arm.leaves()
        assert sum(leaves.values()) == pytest.approx(arm.mean_ms, abs=1e-6)
        assert all(-1e-6 <= ms <= arm.mean_ms + 1e-6 for ms in leaves.values())
    found = grown(quick, slow)
    if found is not None:
        assert sum(part.ms for part in found.parts) == pytest.approx(found.slow_ms - found.quick_ms, abs=1e-6)
        assert all(-found.quick_ms - 1e-6 <= part.ms <= found.slow_ms + 1e-6 for part in found.parts)
