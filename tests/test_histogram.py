from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_probe.histogram import (
    LAST_BUCKET,
    MAX_RELATIVE_ERROR,
    SUB_BUCKETS,
    add,
    bucket_bounds,
    bucket_of,
    merge,
    midpoint,
    quantile,
)

values = st.integers(0, 2**63)
histograms = st.lists(values, max_size=30)


def of(given_values: list[int]) -> dict[int, int]:
    histogram: dict[int, int] = {}
    for value in given_values:
        add(histogram, value)
    return histogram


@given(values)
@example(0)
@example(SUB_BUCKETS - 1)
@example(SUB_BUCKETS)
@example(2 * SUB_BUCKETS - 1)
@example(2 * SUB_BUCKETS)
def test_a_value_lies_within_its_bucket(value: int) -> None:
    low, high = bucket_bounds(bucket_of(value))
    assert low <= value < high


@given(values)
def test_a_buckets_midpoint_is_off_by_no_more_than_the_stated_error(value: int) -> None:
    assert abs(midpoint(bucket_of(value)) - value) <= value * MAX_RELATIVE_ERROR


@given(st.integers(0, 1200))
def test_buckets_follow_each_other_without_gap_or_overlap(bucket: int) -> None:
    low, high = bucket_bounds(bucket)
    assert bucket_of(low) == bucket_of(high - 1) == bucket
    assert bucket_bounds(bucket + 1)[0] == high


def test_small_values_are_exact_and_negative_ones_count_as_nothing() -> None:
    assert [midpoint(bucket_of(value)) for value in range(2 * SUB_BUCKETS)] == list(range(2 * SUB_BUCKETS))
    assert bucket_of(-5) == 0


@given(histograms, histograms)
def test_merging_is_as_good_as_counting_together(a: list[int], b: list[int]) -> None:
    merged = of(a)
    merge(merged, of(b))
    assert merged == of(a + b)
    rows = of(a)
    merge(rows, list(of(b).items()))
    assert rows == merged


@given(st.lists(values, min_size=1, max_size=30), st.floats(0, 1))
def test_a_quantile_is_the_nearest_ranks_value_within_the_stated_error(counted: list[int], q: float) -> None:
    rank = max(1, -(-q * len(counted) // 1))
    exact = sorted(counted)[int(rank) - 1]
    found = quantile(of(counted), q)
    assert found is not None
    assert abs(found - exact) <= exact * MAX_RELATIVE_ERROR


def test_an_empty_histogram_has_no_quantile() -> None:
    assert quantile({}, 0.5) is None


def test_a_bucket_beyond_any_value_of_ours_is_refused_before_its_edges_take_gigabytes() -> None:
    bucket_bounds(LAST_BUCKET)
    for bucket in (LAST_BUCKET + 1, 10**12):
        with pytest.raises(ValueError, match="there is no bucket"):
            bucket_bounds(bucket)
