"""The wait before the arrival: known only where the client said when it wrote, and outside the budget."""

from __future__ import annotations

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import OperationSummary
from tests.frames import MS, make_budget, make_header, make_request


def add_row(fold: Fold) -> OperationSummary:
    return next(row for row in fold.summary().operations if row.name == "add")


def folded(*waits_ms: float | None, arrival_seen: bool = True) -> Fold:
    """Calls of 5 ms that arrived at 1000 ms and had been written so long before."""
    fold = Fold()
    fold.add(make_header())
    budget = make_budget(busy=5 * MS, queue_transport=0 if arrival_seen else None)
    for number, wait in enumerate(waits_ms, 1):
        sent = None if wait is None else round((1000 - wait) * MS)
        fold.add(make_request(id=number, arrival_ns=1000 * MS, budget=budget, sent_ns=sent))
    return fold


def near(value: float | None, true: float) -> bool:
    """As exact as the histogram's buckets are."""
    return value is not None and abs(value - true) <= 0.1 * true


def test_it_lies_between_the_writing_and_the_arrival() -> None:
    row = add_row(folded(*[10.0] * 98, 400.0, 400.0))
    assert near(row.pipe_wait_ms.p50, 10)
    assert near(row.pipe_wait_ms.p99, 400)
    assert row.pipe_wait_ms.max == 400
    assert "pipe_wait_ms" not in row.quality


def test_it_is_no_part_of_the_total() -> None:
    assert add_row(folded(900.0)).total_ms.max == 5


def test_it_is_unknown_where_nobody_said() -> None:
    row = add_row(folded(None, None))
    assert (row.pipe_wait_ms.p50, row.pipe_wait_ms.max) == (None, None)


def test_calls_that_said_nothing_do_not_count_as_none() -> None:
    assert near(add_row(folded(None, 50.0, None)).pipe_wait_ms.p50, 50)


def test_where_the_arrival_was_not_seen_it_is_an_upper_bound() -> None:
    row = add_row(folded(50.0, arrival_seen=False))
    assert row.quality["pipe_wait_ms"].tag == "upper"


def test_parts_of_a_recording_merge_to_the_whole() -> None:
    one, other = folded(10.0, 20.0), folded(30.0)
    one.merge(other)
    whole = add_row(one).pipe_wait_ms
    assert whole == add_row(folded(10.0, 20.0, 30.0)).pipe_wait_ms
