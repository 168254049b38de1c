"""Exponential histograms of integers: every value in the bucket the specification puts it in, whatever the scale."""

from __future__ import annotations

from decimal import Decimal, getcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe import native
from mcp_probe.export.conventions import (
    BLOCKED,
    BLOCKER,
    BUSY,
    GEN_AI_TOOL_NAME,
    MEMORY_PEAK,
    OTHER,
    QUEUE_WAIT,
)
from mcp_probe.export.histograms import (
    MAX_BUCKETS,
    MAX_SCALE,
    MAX_SERIES,
    Amounts,
    Book,
    Bundle,
    ExponentialHistogram,
    Ladder,
    PythonRow,
    Series,
    ladder_of,
)
from tests.frames import MS, SECOND, US
from tests.native.twins import needs_the_accelerator

SECONDS = ladder_of("s")
BYTES = ladder_of("By")
LENGTHS = st.integers(0, 10**6 * SECOND)

getcontext().prec = 60


def histogram(values: list[int], ladder: Ladder = SECONDS) -> ExponentialHistogram:
    found = ExponentialHistogram(ladder)
    for value in values:
        found.add(value)
    return found


def bound(index: int, scale: int, per_unit: int) -> Decimal:
    """Lower bound of a bucket by the specification's formula, in whole steps."""
    return Decimal(2) ** (Decimal(index) / Decimal(2) ** scale) * per_unit


@pytest.mark.parametrize("ladder", [SECONDS, BYTES], ids=["seconds", "bytes"])
@given(data=st.data())
def test_a_value_lies_within_the_bounds_that_the_specification_gives_its_bucket(ladder: Ladder, data: Any) -> None:
    value = data.draw(st.integers(1, 2 ** data.draw(st.integers(1, 61))))
    index = ladder.index(value)

    assert bound(index, MAX_SCALE, ladder.per_unit) < value <= bound(index + 1, MAX_SCALE, ladder.per_unit)


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


# --- the book ---


def tool(name: str) -> Series:
    return ((GEN_AI_TOOL_NAME, name),)


def test_a_page_of_all_so_far_is_not_changed_by_what_follows() -> None:
    book = Book()
    book.add([(BUSY, tool("add"), MS, 1)])
    page = book.so_far()
    book.add([(BUSY, tool("add"), 2 * MS, 1)])

    assert page.histograms[BUSY][tool("add")].total == MS
    assert book.so_far().histograms[BUSY][tool("add")].total == 3 * MS


def test_pages_that_are_turned_follow_each_other_without_gap_or_overlap() -> None:
    book = Book()
    book.add([(BUSY, tool("add"), MS, 1)])
    first = book.turn()
    book.add([(BUSY, tool("add"), 5 * MS, 1)])
    second = book.turn()

    assert first.histograms[BUSY][tool("add")].total == MS
    assert second.histograms[BUSY][tool("add")].total == 5 * MS
    assert first.end_unix_ns == second.start_unix_ns
    assert not book.turn().histograms


def test_a_book_that_counts_everything_keeps_its_start() -> None:
    book = Book()
    assert book.so_far().start_unix_ns == book.so_far().start_unix_ns <= book.so_far().end_unix_ns


def test_series_beyond_the_limit_are_counted_under_other_and_nothing_is_lost() -> None:
    book = Book()
    book.add((BLOCKED, (*tool(f"t{n}"), (BLOCKER, f"b{n}")), MS, 1) for n in range(MAX_SERIES + 50))
    known = book.so_far().histograms[BLOCKED]
    other: Series = (*tool(OTHER), (BLOCKER, OTHER))

    assert len(known) == MAX_SERIES + 1
    assert known[other].count == 50


# --- rows: one value each of every request ---

AMOUNT = st.none() | st.integers(-5, 40) | st.integers(0, 2**56)
REQUESTS = st.lists(st.tuples(AMOUNT, AMOUNT, AMOUNT), max_size=60)


@needs_the_accelerator
@given(batches=st.lists(REQUESTS, max_size=3))
def test_both_rows_count_alike_whatever_comes_and_begin_anew_when_taken(batches: list[list[Amounts]]) -> None:
    ladders = [SECONDS, BYTES, SECONDS]
    python, accelerated = PythonRow(ladders), native.core.Row([ladder.packed() for ladder in ladders])
    for batch in batches:
        for amounts in batch:
            python.add(amounts)
            accelerated.add(amounts)
        assert accelerated.take() == python.take()


@needs_the_accelerator
def test_a_row_says_what_it_cannot_take() -> None:
    row = native.core.Row([SECONDS.packed()])
    for wrong in ((1, 2), [1], ("one",)):
        with pytest.raises(TypeError):
            row.add(wrong)
    with pytest.raises(TypeError):
        native.core.Row([("first", b"")])


@given(batches=st.lists(REQUESTS, max_size=3))
def test_requests_are_counted_as_their_values_one_by_one(batches: list[list[Amounts]]) -> None:
    keys = ((BUSY, tool("add")), (MEMORY_PEAK, tool("add")), (QUEUE_WAIT, tool("add")))
    bundle = Bundle(keys)
    together, apart = Book(), Book()
    for batch in batches:
        together.add_requests([(bundle, amounts) for amounts in batch])
        for amounts in batch:
            apart.add((*key, amount, 1) for key, amount in zip(keys, amounts, strict=True) if amount is not None)
        assert described(together) == described(apart)
        assert {series: row.count for series, row in together.of(BUSY).items()} == {
            series: row.count for series, row in apart.of(BUSY).items()
        }


def described(book: Book) -> dict[str, Any]:
    fields = ("scale", "zeros", "count", "total", "min", "max", "counts")
    return {
        instrument.name: {series: [getattr(row, name) for name in fields] for series, row in rows.items()}
        for instrument, rows in book.so_far().histograms.items()
    }


def test_bundles_beyond_the_limit_are_counted_under_other_and_nothing_is_lost() -> None:
    book = Book(max_series=3)
    book.add_requests([(Bundle(((BUSY, tool(f"t{n}")),)), (MS,)) for n in range(10)])

    assert {series: row.count for series, row in book.of(BUSY).items()} == {
        **{tool(f"t{n}"): 1 for n in range(3)},
        tool(OTHER): 7,
    }


def test_books_that_share_what_they_know_together_stay_below_the_limit() -> None:
    known: dict[Any, set[Series]] = {}
    first, second = Book(3, known), Book(3, known)
    first.add((BUSY, tool(f"a{n}"), MS, 1) for n in range(3))
    second.add((BUSY, tool(name), MS, 1) for name in ("a1", "b1", "b2"))

    assert {series: row.count for series, row in second.of(BUSY).items()} == {tool("a1"): 1, tool(OTHER): 2}
