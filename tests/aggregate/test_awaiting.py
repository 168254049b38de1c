"""What operations awaited, from literal records; who held it, and what held the holders up."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate.awaiting import MAX_ROWS, share_of
from mcp_probe.aggregate.blocking import OTHER
from mcp_probe.aggregate.checks.evidence import named_rows, victims_of
from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import (
    BACKGROUND_OPERATION,
    UNKNOWN_HOLDER,
    Await,
    Frame,
    HolderPart,
    OperationSummary,
    RequestRecord,
    Summary,
    Wait,
)
from mcp_probe.report.console import render
from tests.frames import MS, SECOND, make_end, make_header, make_request, make_step

GATE = "asyncio.Lock notes.GATE"


def await_of(
    ns: int,
    *holders: HolderPart,
    at: int = 0,
    kind: Any = "lock",
    name: str = GATE,
    count: int = 1,
    where: str = "n.py:3",
) -> Await:
    return Await(kind, name, where, at, at + ns, ns, "exact", count, holders)


def summary_of(*frames: Frame) -> Summary:
    fold = Fold()
    fold.add_all([make_header(), *frames, make_end()])
    return fold.summary()


def operation(summary: Summary, name: str) -> OperationSummary:
    return next(one for one in summary.operations if one.name == name)


def test_waits_of_one_thing_at_one_line_are_one_row() -> None:
    calls = [
        make_request(number, "append", awaiting=100 * MS, awaits=(await_of(number * 10 * MS),))
        for number in range(1, 6)
    ]
    (row,) = operation(summary_of(*calls), "append").awaits
    assert (row.kind, row.object, row.where, row.count) == ("lock", GATE, "n.py:3", 5)
    assert row.total_ms == pytest.approx(150)
    assert row.p95_ms == pytest.approx(50, rel=1 / 16)


def test_what_nothing_named_is_said() -> None:
    named = make_request(1, "append", awaiting=100 * MS, awaits=(await_of(60 * MS),))
    nobody = make_request(2, "nothing", awaiting=100 * MS)
    found = summary_of(named, nobody)
    assert operation(found, "append").awaits_unnamed_ms == pytest.approx(40)
    assert operation(found, "nothing").awaits_unnamed_ms is None


def test_a_record_that_stands_for_others_counts_as_many_times() -> None:
    held = HolderPart(9, "other", "n.py:8", 0, 20 * MS, 1)
    call = make_request(1, "append", awaiting=100 * MS, weight=3, awaits=(await_of(20 * MS, held),))
    (row,) = operation(summary_of(call), "append").awaits
    assert (row.count, round(row.total_ms), row.quality) == (3, 60, "estimate")
    assert [(one.operation, round(one.ms), one.calls) for one in row.holders] == [("other", 60, 3)]


def test_holders_share_a_wait_and_add_up_to_it() -> None:
    parts = (
        HolderPart(2, "slow", "n.py:8", 0, 30 * MS, 2),
        HolderPart(3, "fast", "n.py:9", 0, 30 * MS, 2),
        HolderPart(0, BACKGROUND_OPERATION, "n.py:20", 30 * MS, 50 * MS, 1),
    )
    call = make_request(1, "append", awaiting=50 * MS, awaits=(await_of(50 * MS, *parts),))
    (row,) = operation(summary_of(call), "append").awaits
    assert {(one.operation, one.where, round(one.ms)) for one in row.holders} == {
        ("slow", "n.py:8", 15),
        ("fast", "n.py:9", 15),
        (BACKGROUND_OPERATION, "n.py:20", 20),
    }
    assert sum(one.ms for one in row.holders) == pytest.approx(row.total_ms)


def test_holders_make_rows_of_who_waited_for_whom() -> None:
    parts = (
        HolderPart(2, "append", "n.py:8", 0, 30 * MS, 1),
        HolderPart(0, UNKNOWN_HOLDER, None, 30 * MS, 40 * MS, 1),
        HolderPart(0, BACKGROUND_OPERATION, "n.py:20", 40 * MS, 50 * MS, 1),
    )
    calls = [
        make_request(number, "list", awaiting=50 * MS, awaits=(await_of(50 * MS, *parts, where=f"n.py:{number}"),))
        for number in (3, 4)
    ]
    found = summary_of(*calls)
    assert [
        (row.victim, row.blocker, row.victims, row.lo_ms, row.hi_ms, row.kind, row.object, row.where, row.quality)
        for row in found.blocked_by
    ] == [
        ("list", "append", 2, 60.0, 60.0, "lock", GATE, "n.py:8", "exact"),
        ("list", BACKGROUND_OPERATION, 2, 20.0, 20.0, "lock", GATE, "n.py:20", "exact"),
    ]


def test_who_held_the_loop_is_told_apart_from_who_held_a_lock() -> None:
    found = summary_of(*blocked_holder())
    assert {(row.victim, row.blocker, row.kind) for row in found.blocked_by} >= {
        ("append", "resize", None),
        ("list", "append", "lock"),
    }
    assert victims_of(found, "append").lo_ms == 0
    assert [row.blocker for row in named_rows(found, "append")] == ["resize"]
    assert named_rows(found, "list") == []


def blocked_holder() -> list[Frame]:
    """``append`` holds the lock for 400 ms; for 300 of them ``resize`` holds the loop, for 60 it sleeps."""
    resize = replace(make_step(100 * MS, 400 * MS, request=7, operation="resize"), file="n.py", line=40)
    waits = (Wait(100 * MS, 100 * MS, 400 * MS, "ready"),)
    sleep = await_of(60 * MS, at=40 * MS, kind="sleep", name="sleep", where="n.py:9")
    holder = make_request(
        2, "append", end_ns=400 * MS, awaiting=60 * MS, ready_wait=300 * MS, waits=waits, awaits=(sleep,)
    )
    part = HolderPart(2, "append", "n.py:8", 0, 400 * MS, 1)
    victim = make_request(3, "list", end_ns=400 * MS, awaiting=400 * MS, awaits=(await_of(400 * MS, part),))
    return [resize, holder, victim]


def test_what_held_the_holder_up_is_the_root() -> None:
    (row,) = operation(summary_of(*blocked_holder()), "list").awaits
    assert [(root.kind, root.name, root.where, round(root.ms)) for root in row.root] == [
        ("blocked", "resize", "n.py:40", 300),
        ("sleep", "sleep", "n.py:9", 60),
    ]


def test_the_root_is_found_whether_the_holder_or_the_waiter_ends_first() -> None:
    step, holder, victim = blocked_holder()
    later = make_request(4, "later", arrival_ns=20 * SECOND)
    for frames in ([step, holder, victim], [victim, step, holder], [step, victim, holder, later]):
        (row,) = operation(summary_of(*frames), "list").awaits
        assert ("blocked", "resize") in {(root.kind, root.name) for root in row.root}


def test_a_root_is_found_though_no_other_call_waited_for_long() -> None:
    """Other calls, later: the holder is forgotten after some seconds, the waiter not before its root is known."""
    later = [
        make_request(100 + n, "later", arrival_ns=n * SECOND, awaiting=MS, awaits=(await_of(MS),)) for n in range(30)
    ]
    (row,) = operation(summary_of(*blocked_holder(), *later), "list").awaits
    assert ("blocked", "resize") in {(root.kind, root.name) for root in row.root}


def test_folds_of_two_processes_add_up() -> None:
    one, other = Fold(), Fold()
    for fold in (one, other):
        fold.add_all([make_header(), *blocked_holder(), make_end()])
    one.merge(other)
    (row,) = operation(one.summary(), "list").awaits
    assert row.total_ms == pytest.approx(800)
    assert [(found.operation, round(found.ms)) for found in row.holders] == [("append", 800)]
    assert round(row.root[0].ms) == 600


def test_rows_are_bounded() -> None:
    def calls() -> Iterable[Frame]:
        for number in range(2 * MAX_ROWS):
            yield make_request(number + 1, "append", awaiting=MS, awaits=(await_of(MS, name=f"lock {number}"),))

    rows = operation(summary_of(*calls()), "append").awaits
    assert len(rows) == MAX_ROWS + 1
    assert sum(row.total_ms for row in rows) == pytest.approx(2 * MAX_ROWS)
    assert max(rows, key=lambda row: row.total_ms).object == OTHER


def test_the_report_says_what_for_who_held_it_and_why_so_long() -> None:
    text = render(summary_of(*blocked_holder()), width=110, color=False, ascii_only=False)
    section = text.split("What they waited for", 1)[1]
    assert " asyncio.Lock notes.GATE" in section and "n.py:3" in section
    assert "held by append 400 ms since n.py:8" in section
    assert "meanwhile its holder was held up by resize 300 ms" in section
    operations = text.split("Where the time goes", 1)[1].split("Who waited", 1)[0]
    assert "lock 100%" in operations and "sleep" in operations and "await 1" not in operations


def test_a_report_without_awaits_has_no_such_section() -> None:
    text = render(summary_of(make_request(1, "add", busy=MS)), width=110, color=False, ascii_only=False)
    assert "What they waited for" not in text


def test_shares_near_p95_are_of_the_slow_calls_alone() -> None:
    """90 quick calls compute; ten slow ones wait for a lock, and for something that nothing names."""
    quick = [make_request(number, "append", awaiting=MS, awaits=()) for number in range(1, 91)]
    slow = [
        make_request(100 + number, "append", busy=20 * MS, awaiting=80 * MS, awaits=(await_of(50 * MS),))
        for number in range(10)
    ]
    found = operation(summary_of(*quick, *slow), "append")
    (row,) = found.awaits
    # The bucket of p90 is that of the quick ones: 1 ms more in the whole.
    whole = 10 * 100 + 90 * 1
    assert row.p95_share == pytest.approx(500 / whole)
    assert found.awaits_unnamed_p95_share == pytest.approx((300 + 90) / whole)


def test_shares_near_p95_are_unknown_where_nobody_looked_and_without_unfinished_calls() -> None:
    found = operation(summary_of(make_request(1, "append", awaiting=10 * MS)), "append")
    assert found.awaits_unnamed_p95_share is None
    hung = make_request(1, "append", awaiting=10 * MS, awaits=(await_of(8 * MS),), outcome="unfinished")
    (row,) = operation(summary_of(hung), "append").awaits
    assert row.p95_share is None


def test_the_limit_of_a_semaphore_is_how_many_held_it_while_somebody_waited() -> None:
    parts = tuple(HolderPart(number, "append", "n.py:8", 0, 20 * MS, 3) for number in (2, 3, 4))
    unseen = HolderPart(0, UNKNOWN_HOLDER, None, 20 * MS, 30 * MS, 9)
    call = make_request(1, "append", awaiting=30 * MS, awaits=(await_of(30 * MS, *parts, unseen, kind="semaphore"),))
    (row,) = operation(summary_of(call), "append").awaits
    assert (row.limit, row.held_peak) == (3, 3)
    alone = make_request(1, "append", awaiting=30 * MS, awaits=(await_of(30 * MS, unseen, kind="semaphore"),))
    assert operation(summary_of(alone), "append").awaits[0].limit is None


def looked_await(ns: int, where: str, looks: int) -> Await:
    return replace(await_of(ns, kind="db", name="sqlite", where=where, count=looks), looks=looks)


def test_what_nobody_looked_at_is_divided_by_share_of_looks_with_an_interval() -> None:
    calls = [
        make_request(number, "query", awaiting=10 * MS, awaits=(looked_await(MS, where, 1),))
        for number, where in enumerate(["n.py:3"] * 30 + ["n.py:9"] * 10, 1)
    ]
    found = operation(summary_of(*calls), "query")
    rows = {row.where: row for row in found.awaits}
    assert found.awaits_unnamed_ms == 0
    assert rows["n.py:3"].total_ms == pytest.approx(30 + 270)
    assert rows["n.py:3"].estimated_ms == pytest.approx(270)
    assert rows["n.py:9"].total_ms == pytest.approx(10 + 90)
    for row in rows.values():
        assert row.quality == "estimate"
        assert row.lo_ms is not None and row.hi_ms is not None
        assert row.lo_ms < row.total_ms < row.hi_ms


def test_fewer_than_ten_looks_stand_for_nothing() -> None:
    calls = [
        make_request(number, "query", awaiting=10 * MS, awaits=(looked_await(MS, "n.py:3", 1),)) for number in range(9)
    ]
    found = operation(summary_of(*calls), "query")
    assert found.awaits_unnamed_ms == pytest.approx(81)
    (row,) = found.awaits
    assert row.total_ms == pytest.approx(9)
    assert (row.estimated_ms, row.lo_ms) == (0, None)


@given(st.integers(1, 400).flatmap(lambda whole: st.tuples(st.integers(0, whole), st.just(whole))))
def test_an_interval_of_a_share_holds_the_share(drawn: tuple[int, int]) -> None:
    share, lo, hi = share_of(*drawn)
    assert 0 <= lo <= share <= hi <= 1


def test_intervals_of_shares_hold_the_truth_as_often_as_they_say() -> None:
    draws = random.Random(7)
    for truth in (0.05, 0.3, 0.9):
        held = 0
        for _ in range(400):
            count = sum(draws.random() < truth for _ in range(40))
            _, lo, hi = share_of(count, 40)
            held += lo <= truth <= hi
        assert held >= 0.92 * 400


def job_call(number: int, sleep_ms: int | None, run_ms: int = 100) -> RequestRecord:
    """A call of a sync tool; ``sleep_ms``: so much of its job looks saw it sleep, ``None``: nobody looked at it."""
    slept = () if not sleep_ms else (replace(await_of(sleep_ms * MS, kind="sleep", name="sleep"), looks=1),)
    awaits = tuple(replace(one, stage="executor_run") for one in slept)
    return make_request(number, "render", executor_run=run_ms * MS, awaits=awaits, jobs_looked=sleep_ms is not None)


def test_jobs_that_nobody_looked_at_are_divided_as_those_that_somebody_did() -> None:
    looked = [job_call(number, 60) for number in range(1, 21)]
    others = [job_call(number, None) for number in range(21, 61)]
    (row,) = operation(summary_of(*looked, *others), "render").awaits
    assert (row.stage, row.quality) == ("executor_run", "estimate")
    assert row.total_ms == pytest.approx(20 * 60 + 0.6 * 40 * 100)
    assert row.lo_ms is not None and row.hi_ms is not None
    assert row.lo_ms < row.total_ms < row.hi_ms


def test_looked_at_jobs_that_worked_make_the_share_smaller_and_few_looks_none() -> None:
    looked = [job_call(number, 60 if number % 2 else 0) for number in range(1, 21)]
    others = [job_call(number, None) for number in range(21, 41)]
    (row,) = operation(summary_of(*looked, *others), "render").awaits
    assert row.total_ms == pytest.approx(10 * 60 + 0.3 * 20 * 100)
    (row,) = operation(summary_of(*looked[:9], *others), "render").awaits
    assert row.total_ms == pytest.approx(5 * 60)
