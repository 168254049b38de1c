"""Against the standard library, against tables, and against what must always hold."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations
from statistics import NormalDist, fmean, median, quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.workloads.bench.statistics import (
    describe,
    floor_of,
    halves_floor,
    line_fit,
    little,
    percentile,
    ratio_floor,
    t95,
    turn_order,
)

rounds = st.lists(st.floats(0.001, 1e6), min_size=3, max_size=60)


@given(rounds)
def test_the_first_round_stands_apart_and_in_nothing_else(values: list[float]) -> None:
    found = describe(values)
    rest = values[1:]
    assert (found.first, found.n) == (values[0], len(rest))
    assert (found.min, found.max) == (min(rest), max(rest))
    assert found.median == pytest.approx(median(rest))
    assert found.mean == pytest.approx(fmean(rest))


@given(rounds)
def test_figures_are_in_order_and_the_interval_holds_the_mean(values: list[float]) -> None:
    found = describe(values)
    assert found.min <= found.median <= found.p95 <= found.p99 <= found.max
    assert found.sd is not None and found.ci_low is not None and found.ci_high is not None
    assert found.ci_low <= found.mean <= found.ci_high


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_percentiles_are_those_of_the_standard_library(values: list[float]) -> None:
    cuts = quantiles(values, n=100, method="inclusive")
    for share in (0.5, 0.95, 0.99):
        assert percentile(sorted(values), share) == pytest.approx(cuts[round(share * 100) - 1], abs=1e-6)


def test_one_round_has_no_spread_and_is_not_set_apart() -> None:
    found = describe([7.0])
    assert (found.n, found.median, found.first, found.sd, found.ci_low) == (1, 7.0, None, None, None)


def test_every_other_round_is_held_against_the_rest() -> None:
    found = describe([99.0, 10.0, 12.0, 10.0, 12.0, 10.0])
    assert found.halves == pytest.approx(1.2)
    assert describe([99.0, 10.0]).halves is None
    assert halves_floor([10.0, 8.0]) == halves_floor([8.0, 10.0]) == 1.25
    assert halves_floor([0.0, 1.0]) is None


@given(rounds)
def test_a_drift_is_in_both_halves(values: list[float]) -> None:
    ordered = sorted(values)
    found = halves_floor(ordered)
    assert found is not None and found >= 1
    assert found <= max(after / before for before, after in pairwise(ordered)) * (1 + 1e-9)


def test_a_figure_made_of_others_repeats_as_its_worst_part_does() -> None:
    good, bad, once = describe([9.0, 10.0, 10.0]), describe([9.0, 10.0, 15.0]), describe([9.0])
    assert (good.halves, bad.halves, once.halves) == (1.0, 1.5, None)
    assert floor_of(good, bad, once, None, 1.1) == 1.5
    assert floor_of(once, None) is None


def test_nothing_cannot_be_described() -> None:
    with pytest.raises(ValueError, match="no value"):
        describe([])


def test_the_interval_of_a_known_sample() -> None:
    # mean 5, sd 2.138, n 8: 5 ± 2.365 x 2.138 / sqrt(8)
    found = describe([2, 4, 4, 4, 5, 5, 7, 9], first_apart=False)
    assert [found.ci_low, found.ci_high] == pytest.approx([3.2127, 6.7873], abs=1e-3)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (9, 2.262), (30, 2.042), (40, 2.0211), (120, 1.9799)])
def test_quantiles_of_student(freedom: int, quantile: float) -> None:
    assert t95(freedom) == pytest.approx(quantile, abs=5e-4)


def test_quantiles_of_student_fall_to_the_normal_one() -> None:
    found = [t95(freedom) for freedom in range(1, 500)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(NormalDist().inv_cdf(0.975), abs=0.01)


def test_the_floor_is_the_same_whichever_twin_was_slower() -> None:
    assert ratio_floor([10, 11, 12], [22, 22, 22]) == ratio_floor([22, 22, 22], [10, 11, 12]) == 2.0


def test_little_is_throughput_times_latency() -> None:
    found = little(calls=200, wall_s=2.0, mean_latency_s=0.1, asked=10)
    assert (found.mean_in_flight, found.fits) == (10.0, True)


@pytest.mark.parametrize(
    ("in_flight", "excused", "fits"), [(4.0, "", False), (12.0, "", False), (4.0, "a drain", True)]
)
def test_a_row_that_contradicts_itself_does_not_fit(in_flight: float, excused: str, fits: bool) -> None:
    assert little(100, 1.0, in_flight / 100, 10, excused).fits is fits


@given(st.floats(-100, 100), st.floats(-100, 100))
def test_a_line_is_found_again(intercept: float, slope: float) -> None:
    points = [(x, intercept + slope * x) for x in (100.0, 1000.0, 3000.0, 10000.0)]
    found = line_fit(points)
    assert found[0] == pytest.approx(intercept, abs=1e-4)
    assert found[1] == pytest.approx(slope, abs=1e-6)


def test_what_is_no_line_does_not_pass_for_one() -> None:
    assert line_fit([(1, 1), (2, 4), (3, 9), (4, 16), (20, 400)])[2] < 0.99


def test_a_line_needs_two_places() -> None:
    with pytest.raises(ValueError, match="two different places"):
        line_fit([(1, 1), (1, 2)])


@pytest.mark.parametrize("count", [2, 4, 6])
def test_in_a_square_of_rounds_each_follows_each_other_equally_often(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    rounds = [turn_order(names, turn) for turn in range(count)]
    followers = Counter(pair for order in rounds for pair in pairwise(order))
    assert followers == dict.fromkeys(permutations(names, 2), 1)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_an_odd_number_has_every_place_once(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    rounds = [turn_order(names, turn) for turn in range(count)]
    assert all(sorted(place) == names for place in zip(*rounds, strict=True))
    assert all(sorted(order) == names for order in rounds)


@pytest.mark.parametrize("count", [3, 5, 7])
def test_with_an_odd_number_each_follows_each_other_equally_often_in_two_squares(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    rounds = [turn_order(names, turn) for turn in range(2 * count)]
    followers = Counter(pair for order in rounds for pair in pairwise(order))
    assert followers == dict.fromkeys(permutations(names, 2), 2)
