"""A percentile over totals of which one is bounded lies between those of the bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate.bounded import Bounded
from mcp_probe.aggregate.buckets import MAX_RELATIVE_ERROR, Buckets
from mcp_probe.aggregate.fold import Fold
from mcp_probe.aggregate.phrasing import known, percentile
from mcp_probe.model import OperationSummary, Quality
from mcp_probe.report.console import render
from tests.frames import MS, make_end, make_header, make_request

values = st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.booleans(), st.floats(0, 1))


def rank(ordered: list[int], q: float) -> int:
    return ordered[max(0, min(len(ordered), -int(-q * len(ordered) // 1)) - 1)]


@given(st.lists(values, min_size=1, max_size=40), st.sampled_from([0.5, 0.95, 0.99]))
def test_the_true_quantile_lies_within_the_bounds(drawn: list[tuple[int, int, bool, float]], q: float) -> None:
    found, truth = Bounded(), []
    for least, more, is_open, at in drawn:
        found.add(least, least + more, is_open=is_open)
        truth.append(least + round(more * at) + (10**12 if is_open and at > 0.5 else 0))
    true = rank(sorted(truth), q)
    quality = found.quality(q)
    slack = 1 + MAX_RELATIVE_ERROR
    if quality is None:
        exact = found.least.quantile(q) or 0.0
        assert exact / slack - 1 <= true <= exact * slack + 1
        return
    assert quality.lo is not None
    assert true >= quality.lo * 1e6 / slack - 1
    assert (quality.hi is None) == (quality.tag == "lower")
    assert quality.hi is None or true <= quality.hi * 1e6 * slack + 1


@given(st.lists(values, max_size=30), st.lists(values, max_size=30), st.sampled_from([0.5, 0.99]))
def test_merging_is_counting_all(
    first: list[tuple[int, int, bool, float]], second: list[tuple[int, int, bool, float]], q: float
) -> None:
    parts, whole = (Bounded(), Bounded()), Bounded()
    for part, drawn in zip(parts, (first, second), strict=True):
        for least, more, is_open, _ in drawn:
            part.add(least, least + more, is_open=is_open)
            whole.add(least, least + more, is_open=is_open)
    parts[0].merge(parts[1])
    assert parts[0].quality(q) == whole.quality(q)
    assert parts[0].is_open == whole.is_open


@given(st.lists(values, max_size=30), st.sampled_from([0.5, 0.99]))
def test_a_group_counts_as_its_members(drawn: list[tuple[int, int, bool, float]], q: float) -> None:
    one_by_one, least, most = Bounded(), Buckets(), Buckets()
    for low, more, _, _ in drawn:
        one_by_one.add(low, low + more, is_open=False)
        least.add(low)
        most.add(low + more)
    group = Bounded()
    rows = [[(bucket, count, total) for bucket, (count, total) in each.rows.items()] for each in (least, most)]
    group.add_group(*rows, is_open=False)
    assert group.least.rows == one_by_one.least.rows
    mine, theirs = group.quality(q), one_by_one.quality(q)
    assert (mine is None) >= (theirs is None) or mine == theirs
    assert not group.is_open


def row_of(*bounds: tuple[int, int | None]) -> OperationSummary:
    """Calls of `add` that took at least, and at most, so many ms."""
    requests = [
        make_request(
            id=number,
            queue_transport=None if most is None else least * MS,
            busy=least * MS if most is None else 0,
            quality=(
                ("queue_transport", "unavailable", None, None)
                if most is None
                else ("queue_transport", "bounded", least * MS, most * MS),
            ),
        )
        for number, (least, most) in enumerate(bounds, 1)
    ]
    fold = Fold()
    fold.add_all([make_header(), *requests, make_end()])
    summary = fold.summary()
    assert render(summary, width=160, color=False)
    return summary.operations[0]


def test_exact_totals_have_no_bounds() -> None:
    row = row_of((427, 427))
    assert not any(key.startswith("total_ms") for key in row.quality)
    assert percentile(row, "p50") == "427 ms"


def test_bounded_totals_have_two() -> None:
    row = row_of((406, 443))
    assert row.quality["total_ms_p50"] == Quality("bounded", 406, 443)
    assert row.quality["total_ms_max"] == row.quality["total_ms"] == Quality("bounded", 406, 443)
    assert percentile(row, "p50") == "406-443 ms"


def test_totals_whose_beginning_nobody_saw_have_one() -> None:
    row = row_of((427, None))
    assert row.quality["total_ms_p50"] == Quality("lower", 427)
    assert percentile(row, "p50") == "at least 427 ms"


def test_one_bounded_total_among_many_leaves_a_median_that_it_cannot_move_exact() -> None:
    row = row_of(*[(10, 10)] * 20, *[(30, 30)] * 10, (40, None))
    assert "total_ms_p50" not in row.quality
    assert row.quality["total_ms_p99"].tag == "lower"
    assert row.quality["total_ms"].tag == "lower"


def test_the_report_prints_the_bounds() -> None:
    fold = Fold()
    fold.add_all(
        [
            make_header(),
            make_request(id=1, queue_transport=406 * MS, quality=(("queue_transport", "bounded", 406 * MS, 443 * MS),)),
            make_request(
                id=2,
                name="blind",
                queue_transport=None,
                busy=427 * MS,
                quality=(("queue_transport", "unavailable", None, None),),
            ),
            make_end(),
        ]
    )
    text = render(fold.summary(), width=140, color=False, ascii_only=False)
    assert "[406–443 ms]" in text
    assert text.count("≥427 ms") == 4
    assert "≥ at least" in text


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (4_760.0, "at least 4.7 s"),
        (4.79, "at least 4.7 ms"),
        (412.9, "at least 412 ms"),
        (3_100.0, "at least 3.1 s"),
        (0.31, "at least 0.3 ms"),
    ],
)
def test_a_lower_bound_is_never_rounded_up(ms: float, told: str) -> None:
    assert known(ms, "lower") == told
