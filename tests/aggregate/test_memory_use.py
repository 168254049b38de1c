from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate.fold import Fold
from mcp_probe.aggregate.memory_use import FIGURES, MemoryTally
from mcp_probe.model import MemoryStats, MemoryUse, OperationSummary, Quality
from tests.frames import make_end, make_header, make_request

KB = 1000
SHADOW, HYBRID = "all Python allocations", "all Python allocations, owners > 512 B"


def exact(requested: int, peak: int, retained: int) -> MemoryUse:
    return MemoryUse("native-shadow", SHADOW, requested, 1, peak, retained)


def bounded(requested: int, peak: int, retained: int, loose: int) -> MemoryUse:
    rows = (("peak", "bounded", peak, peak + loose), ("retained", "bounded", retained, retained + loose))
    return MemoryUse("native-hybrid", HYBRID, requested, 1, peak, retained, rows)  # type: ignore[arg-type]


def unknown() -> MemoryUse:
    rows = tuple((name, "unavailable", None, None) for name in (*FIGURES, "allocations"))
    return MemoryUse("tracemalloc", SHADOW, None, None, None, None, rows)  # type: ignore[arg-type]


def row_of(*uses: MemoryUse | None) -> OperationSummary:
    fold = Fold()
    fold.add(make_header())
    fold.add_all([make_request(number, "tool", memory=use) for number, use in enumerate(uses, 1)])
    fold.add(make_end())
    (row,) = fold.summary().operations
    return row


def test_the_median_and_the_largest_of_each_figure_are_reported() -> None:
    row = row_of(exact(5 * KB, 3 * KB, 0), exact(7 * KB, 4 * KB, 0), exact(9 * KB, 8 * KB, 2 * KB))
    assert row.memory.requested == MemoryStats(7 * KB, 9 * KB)
    assert row.memory.peak == MemoryStats(4 * KB, 8 * KB)
    assert row.memory.retained == MemoryStats(0, 2 * KB)
    assert (row.memory.method, row.memory.scope, row.memory.measured) == ("native-shadow", SHADOW, 3)
    assert row.quality.keys().isdisjoint(FIGURES)


def test_bounds_are_of_the_median_and_of_the_largest_each() -> None:
    row = row_of(bounded(9 * KB, 1 * KB, 0, 500), bounded(9 * KB, 2 * KB, 0, 100), bounded(9 * KB, 3 * KB, 0, 4000))
    assert row.quality["peak"] == Quality("bounded", 2 * KB, 2 * KB + 100)
    assert row.quality["peak_max"] == Quality("bounded", 3 * KB, 7 * KB)
    assert "requested" not in row.quality


def test_a_lower_bound_is_open_above() -> None:
    use = MemoryUse("native-shadow", SHADOW, 9, 1, 9, 5, (("retained", "lower", 5, None),))
    row = row_of(use, exact(9, 9, 7))
    assert row.quality["retained"] == Quality("lower", 5, None)
    assert row.quality["retained_max"] == Quality("lower", 7, None)


def test_what_no_call_knows_is_unavailable_and_never_0() -> None:
    row = row_of(unknown())
    assert row.memory.peak == MemoryStats(None, None)
    assert {row.quality[name] for name in FIGURES} == {Quality("unavailable")}
    assert (row.memory.measured, row.memory.method) == (0, "tracemalloc")


def test_calls_that_know_nothing_leave_the_others_figures_alone() -> None:
    row = row_of(unknown(), exact(5, 4, 3), unknown())
    assert (row.memory.peak, row.memory.measured) == (MemoryStats(4, 4), 1)


def test_where_nothing_was_measured_nothing_is_said() -> None:
    row = row_of(None, None)
    assert row.memory.method is None
    assert row.quality.keys().isdisjoint(FIGURES)


def test_sizes_are_of_the_calls_that_were_sampled() -> None:
    sized = MemoryUse("native-shadow", SHADOW, 1, 1, 1, 1, (), arguments=100, result=None)
    row = row_of(sized, exact(1, 1, 1), exact(1, 1, 1))
    assert (row.memory.arguments, row.memory.result) == (MemoryStats(100, 100), MemoryStats(None, None))


def test_the_header_says_the_tier_and_the_back_end() -> None:
    fold = Fold()
    fold.add(make_header(memory="light: native-hybrid, …"))
    assert fold.summary().probe.memory == "light: native-hybrid, …"
    assert Fold().summary().probe.memory is None


sizes = st.integers(0, 10**9)
uses = st.one_of(
    st.builds(exact, sizes, sizes, sizes),
    st.builds(bounded, sizes, sizes, sizes, sizes),
    st.builds(unknown),
)


@given(st.lists(uses), st.lists(uses))
def test_merging_is_adding(first: list[MemoryUse], second: list[MemoryUse]) -> None:
    def tally(found: list[MemoryUse]) -> MemoryTally:
        made = MemoryTally()
        for use in found:
            made.add(use)
        return made

    merged = tally(first)
    merged.merge(tally(second))
    together = tally(first + second)
    assert (merged.summary(), merged.quality()) == (together.summary(), together.quality())


@given(st.lists(uses, min_size=1))
def test_bounds_hold_what_they_bound(found: list[MemoryUse]) -> None:
    made = MemoryTally()
    for use in found:
        made.add(use)
    stats, quality = made.summary(), made.quality()
    for name in FIGURES:
        for key, value in ((name, getattr(stats, name).p50), (f"{name}_max", getattr(stats, name).max)):
            bounds = quality.get(key)
            if bounds is None or value is None:
                continue
            room = 1 + value / 16  # the median's bucket
            assert bounds.lo is None or bounds.lo <= value + room
            assert bounds.hi is None or bounds.hi >= value - room
