"""Durations in bounded memory: exact while they are few, never too short and never too long by more than a bucket."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.workloads.load import times
from mcp_probe.workloads.load.times import ERROR, Times

NS = st.one_of(st.integers(0, 2000), st.integers(0, 10**14))


@settings(deadline=None)
@given(st.lists(NS, min_size=1), st.lists(NS), st.integers(1, 40))
def test_ranks_are_those_of_the_sorted_values(one: list[int], other: list[int], exact: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "EXACT", exact)
        both = Times(one).merged(Times(other))
    ordered = sorted(one + other)
    ranks = range(len(ordered))
    assert (both.count, both.total, both.longest) == (len(ordered), sum(ordered), ordered[-1])
    for true, found in zip(ordered, both.at(ranks), strict=True):
        assert true <= found <= true * (1 + ERROR)
        if len(ordered) <= exact:
            assert found == true
    assert both.at([len(ordered) - 1]) == [ordered[-1]]


def test_memory_does_not_grow_with_the_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fourth ten thousand durations take no more room than the third."""
    monkeypatch.setattr(times, "EXACT", 5_000)
    chance, many = random.Random(1), Times()
    held = []
    for _ in range(3):
        for _ in range(times.EXACT * 2):
            many.add(round(chance.lognormvariate(16, 1.5)))
        held.append(many.held())
    assert held[-1] == held[-2] < 40 * 1024
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times.EXACT * 2):
            many.add(round(chance.lognormvariate(16, 1.5)))
        assert tracemalloc.get_traced_memory()[0] - before < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("exact", [5, 10**6], ids=["in buckets", "exact"])
def test_other_programs_read_the_same_percentiles(exact: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "EXACT", exact)
    chance = random.Random(1)
    values = [round(chance.lognormvariate(16, 1.5)) for _ in range(2_000)]
    read = HdrHistogram.decode(Times(values).encoded())
    assert read.get_total_count() == len(values)
    for share in (50, 90, 99, 99.9):
        true = sorted(values)[round(share / 100 * len(values)) - 1]
        assert true <= read.get_value_at_percentile(share) <= true * (1 + ERROR)


def test_a_time_longer_than_a_day_counts_as_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "EXACT", 1)
    days = Times([1, 10**15, 2, 2])
    assert (days.count, days.longest, days.median()) == (4, 10**15, 2)


def test_nothing_has_no_median() -> None:
    assert Times().median() is None
    assert Times([3, 1, 2, 4]).median() == 2
