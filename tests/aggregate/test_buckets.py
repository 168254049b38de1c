from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate.buckets import MAX_RELATIVE_ERROR, Buckets


def buckets(values: list[int]) -> Buckets:
    found = Buckets()
    for value in values:
        found.add(value)
    return found


@given(st.lists(st.integers(0, 10**13), min_size=1), st.floats(0, 1))
def test_a_quantile_is_off_by_less_than_the_stated_error(values: list[int], q: float) -> None:
    rank = max(1, min(len(values), -int(-q * len(values) // 1)))
    truth = sorted(values)[rank - 1]

    assert buckets(values).quantile(q) == pytest.approx(truth, rel=MAX_RELATIVE_ERROR)


def test_equal_values_come_back_as_they_went_in() -> None:
    assert buckets([123_456_789] * 50).quantile(0.95) == 123_456_789


def test_nothing_counted_has_no_quantile() -> None:
    assert Buckets().quantile(0.5) is None
    assert Buckets().largest() is None


@given(st.lists(st.integers(0, 10**13)), st.lists(st.integers(0, 10**13)))
def test_merging_is_counting_both(left: list[int], right: list[int]) -> None:
    merged = buckets(left)
    merged.merge(buckets(right))

    assert merged.rows == buckets(left + right).rows
    assert merged.count == len(left + right)
    assert merged.total == sum(left + right)
