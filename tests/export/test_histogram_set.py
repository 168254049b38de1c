"""Exponential histograms of integers: every value in the bucket the specification puts it in, whatever the scale."""

from __future__ import annotations

from decimal import Decimal, getcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.export.histogram_set import (
    MAX_BUCKETS,
    MAX_SCALE,
    BucketScheme,
    ExponentialHistogram,
    HistogramSet,
    scheme_of,
)
from mcp_probe.export.semantic_conventions import (
    BLOCKED,
    BLOCKER,
    BUSY,
    GEN_AI_TOOL_NAME,
    MAX_SERIES,
    OTHER,
    Series,
)
from tests.frames import MS, SECOND, US

SECONDS = scheme_of("s")
BYTES = scheme_of("By")
LENGTHS = st.integers(0, 10**6 * SECOND)

getcontext().prec = 60


def histogram(values: list[int], scheme: BucketScheme = SECONDS) -> ExponentialHistogram:
    found = ExponentialHistogram(scheme)
    for value in values:
        found.add(value)
    return found


def bound(index: int, scale: int, per_unit: int) -> Decimal:
    """Lower bound of a bucket by the specification's formula, in whole steps."""
    return Decimal(2) ** (Decimal(index) / Decimal(2) ** scale) * per_unit


@pytest.mark.parametrize("scheme", [SECONDS, BYTES], ids=["seconds", "bytes"])
@given(data=st.data())
def test_a_value_lies_within_the_bounds_that_the_specification_gives_its_bucket(
    scheme: BucketScheme, data: Any
) -> None:
    value = data.draw(st.integers(1, 2 ** data.draw(st.integers(1, 61))))
    index = scheme.index(value)

    assert bound(index, MAX_SCALE, scheme.per_unit) < value <= bound(index + 1, MAX_SCALE, scheme.per_unit)


@pytest.mark.parametrize("exponent", range(-9, 20))
def test_a_power_of_two_is_the_upper_bound_of_its_bucket_and_the_next_value_is_beyond(exponent: int) -> None:
    power = SECOND << exponent if exponent >= 0 else SECOND >> -exponent
    at = exponent << MAX_SCALE

    assert (SECONDS.index(power), SECONDS.index(power + 1)) == (at - 1, at)


def test_a_value_beyond_every_bound_falls_into_the_last_bucket() -> None:
    assert BYTES.index(2**80) == BYTES.index(2**70) >= BYTES.index(2**61)


@given(st.lists(LENGTHS, max_size=300))
def test_count_sum_minimum_and_maximum_are_exact_at_any_scale(values: list[int]) -> None:
    found = histogram(values)

    assert (found.count, found.total, found.max) == (len(values), sum(values), max(values, default=0))
    assert found.min == min(values, default=None)
    assert found.zeros + sum(found.counts.values()) == len(values)


@given(st.lists(LENGTHS, min_size=1, max_size=300))
def test_it_never_needs_more_buckets_than_it_may_and_no_value_leaves_its_own(values: list[int]) -> None:
    found = histogram(values)
    first, counts = found.dense()
    expected: dict[int, int] = {}
    for value in values:
        if value:
            index = SECONDS.index(value) >> (MAX_SCALE - found.scale)
            expected[index] = expected.get(index, 0) + 1

    assert len(counts) <= MAX_BUCKETS
    assert {first + at: count for at, count in enumerate(counts) if count} == expected


def test_resolution_is_given_up_only_where_the_range_asks_for_it() -> None:
    assert histogram([MS, 30 * MS]).scale == MAX_SCALE
    assert histogram([US, 300 * SECOND]).scale == 2


@given(st.lists(LENGTHS, max_size=100), st.lists(LENGTHS, max_size=100))
def test_merging_is_counting_both(left: list[int], right: list[int]) -> None:
    merged = histogram(left)
    merged.merge(histogram(right))
    both = histogram(left + right)

    assert merged.scale == both.scale
    assert merged.dense() == both.dense()
    assert (merged.count, merged.total, merged.min, merged.max) == (both.count, both.total, both.min, both.max)


@given(st.lists(st.integers(1, 3600 * SECOND), min_size=1, max_size=200), st.floats(0, 1))
def test_a_quantile_is_off_by_at_most_half_a_bucket(values: list[int], q: float) -> None:
    found = histogram(values)
    rank = max(1, min(len(values), -int(-q * len(values) // 1)))
    truth = sorted(values)[rank - 1] / SECOND
    half_a_bucket = 2.0 ** (0.5 * 2.0**-found.scale)

    quantile = found.quantile(q)
    assert quantile is not None
    assert truth / half_a_bucket * (1 - 1e-9) <= quantile <= truth * half_a_bucket * (1 + 1e-9)


def test_a_quantile_of_nothing_is_unknown_and_of_zeros_zero() -> None:
    assert ExponentialHistogram(SECONDS).quantile(0.5) is None
    assert histogram([0, 0, SECOND]).quantile(0.5) == 0.0


def test_equal_values_many_at_once_count_as_one_by_one() -> None:
    at_once = ExponentialHistogram(SECONDS)
    at_once.add(3 * MS, times=40)

    assert at_once.dense() == histogram([3 * MS] * 40).dense()
    assert (at_once.count, at_once.total) == (40, 120 * MS)


def test_a_negative_length_counts_as_zero() -> None:
    found = histogram([-5])
    assert (found.zeros, found.total, found.min, found.max) == (1, 0, 0, 0)


# --- the counted ---


def tool(name: str) -> Series:
    return ((GEN_AI_TOOL_NAME, name),)


def test_a_page_of_all_so_far_is_not_changed_by_what_follows() -> None:
    counted = HistogramSet()
    counted.add([(BUSY, tool("add"), MS, 1)])
    page = counted.snapshot()
    counted.add([(BUSY, tool("add"), 2 * MS, 1)])

    assert page.histograms[BUSY][tool("add")].total == MS
    assert counted.snapshot().histograms[BUSY][tool("add")].total == 3 * MS


def test_pages_that_are_turned_follow_each_other_without_gap_or_overlap() -> None:
    counted = HistogramSet()
    counted.add([(BUSY, tool("add"), MS, 1)])
    first = counted.restart()
    counted.add([(BUSY, tool("add"), 5 * MS, 1)])
    second = counted.restart()

    assert first.histograms[BUSY][tool("add")].total == MS
    assert second.histograms[BUSY][tool("add")].total == 5 * MS
    assert first.end_unix_ns == second.start_unix_ns
    assert not counted.restart().histograms


def test_a_book_that_counts_everything_keeps_its_start() -> None:
    counted = HistogramSet()
    assert counted.snapshot().start_unix_ns == counted.snapshot().start_unix_ns <= counted.snapshot().end_unix_ns


def test_series_beyond_the_limit_are_counted_under_other_and_nothing_is_lost() -> None:
    counted = HistogramSet()
    counted.add((BLOCKED, (*tool(f"t{n}"), (BLOCKER, f"b{n}")), MS, 1) for n in range(MAX_SERIES + 50))
    known = counted.snapshot().histograms[BLOCKED]
    other: Series = (*tool(OTHER), (BLOCKER, OTHER))

    assert len(known) == MAX_SERIES + 1
    assert known[other].count == 50


def test_series_beyond_a_given_limit_are_counted_under_other() -> None:
    counted = HistogramSet(max_series=3)
    counted.add((BUSY, tool(f"t{n}"), MS, 1) for n in range(10))

    assert {series: row.count for series, row in counted.of(BUSY).items()} == {
        **{tool(f"t{n}"): 1 for n in range(3)},
        tool(OTHER): 7,
    }


def test_sets_that_share_what_they_know_together_stay_below_the_limit() -> None:
    known: dict[Any, set[Series]] = {}
    first, second = HistogramSet(3, known), HistogramSet(3, known)
    first.add((BUSY, tool(f"a{n}"), MS, 1) for n in range(3))
    second.add((BUSY, tool(name), MS, 1) for name in ("a1", "b1", "b2"))

    assert {series: row.count for series, row in second.of(BUSY).items()} == {tool("a1"): 1, tool(OTHER): 2}
