"""Similar awaits of one call, one after the other, from literal records."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.aggregate.serial_awaits import MAX_ROWS
from mcp_probe.model import Await, RequestRecord, SerialAwaits
from tests.frames import MS, make_end, make_header, make_request

HOST = "http://127.0.0.1:1"


def awaited(at_ms: int, ms: int, kind: Any = "http", name: str = HOST, **given: Any) -> Await:
    values: dict[str, Any] = {"calls": 1 if kind == "http" else 0, **given}
    return Await(kind, name, "a.py:3", at_ms * MS, (at_ms + ms) * MS, ms * MS, "exact", **values)


def call(*awaits: Await, alone: int = 99, **given: Any) -> RequestRecord:
    length = sum(one.ns for one in awaits)
    return make_request(1, "ask", **{"awaiting": length, "awaits": awaits, "sequential_awaits": alone, **given})


def rows(*records: RequestRecord) -> tuple[SerialAwaits, ...]:
    fold = Fold()
    fold.add_all([make_header(), *records, make_end()])
    (operation,) = fold.summary().operations
    return operation.serial_awaits


FIVE = tuple(awaited(100 * n, 10 * (n + 1)) for n in range(5))


def test_five_requests_in_a_row_are_counted_with_the_longest() -> None:
    (row,) = rows(call(*FIVE), call(*FIVE))
    assert (row.kind, row.object, row.where, row.calls, row.awaits) == ("http", HOST, "a.py:3", 2, 10)
    assert row.waited_ms == pytest.approx(2 * 150)
    assert row.longest_ms == pytest.approx(2 * 50)


def test_bodies_belong_to_their_requests() -> None:
    bodies = [awaited(100 * n + 50, 10, phase="body", calls=0) for n in range(5)]
    (row,) = rows(call(*(awaited(100 * n, 10, phase="first-byte") for n in range(5)), *bodies))
    assert (row.awaits, round(row.waited_ms), round(row.longest_ms)) == (5, 100, 20)


def test_short_ones_are_known_as_a_sum() -> None:
    (row,) = rows(call(awaited(0, 12, "db", count=6), alone=6))
    assert (row.awaits, round(row.waited_ms), round(row.longest_ms)) == (6, 12, 2)


def test_awaits_beside_other_tasks_of_the_call_are_not_counted() -> None:
    assert rows(call(*FIVE, alone=4)) == ()
    assert len(rows(call(*FIVE, alone=5))) == 1


def test_in_a_worker_thread_jobs_must_not_overlap() -> None:
    jobs = tuple(awaited(100 * n, 10, stage="executor_run") for n in range(5))
    one_by_one: dict[str, Any] = {"awaiting": 0, "executor_run": 100 * MS, "alone": 1}
    assert len(rows(call(*jobs, executor_run_sum_ns=100 * MS, **one_by_one))) == 1
    assert rows(call(*jobs, executor_run_sum_ns=200 * MS, **one_by_one)) == ()


@pytest.mark.parametrize("kind", ["lock", "semaphore", "queue", "event", "connection-pool", "client", "connect"])
def test_awaits_that_must_take_turns_are_left_out(kind: str) -> None:
    assert rows(call(*(awaited(100 * n, 10, kind) for n in range(5)))) == ()


def test_one_http_request_of_several_suspensions_is_not_several() -> None:
    """A client that only looks have named: nobody counted what it sent."""
    assert rows(call(*(awaited(100 * n, 10, calls=0) for n in range(5)))) == ()


def test_different_lines_and_hosts_are_not_similar() -> None:
    two = [awaited(100 * n, 10, name=f"http://127.0.0.1:{n}") for n in range(5)]
    assert rows(call(*two)) == ()


def test_a_record_that_stands_for_others_counts_as_many_and_is_an_estimate() -> None:
    (row,) = rows(call(*FIVE, weight=3))
    assert (row.calls, row.awaits, row.quality) == (3, 15, "estimate")


def test_processes_add_up_and_rows_are_bounded() -> None:
    many = [call(*(awaited(0, 10, "db", name=f"db {n}", count=2),)) for n in range(2 * MAX_ROWS)]
    folds = [Fold(), Fold()]
    for fold in folds:
        fold.add_all([make_header(), *many, make_end()])
    folds[0].merge(folds[1])
    (operation,) = folds[0].summary().operations
    assert len(operation.serial_awaits) == MAX_ROWS
    assert {row.calls for row in operation.serial_awaits} == {2}
