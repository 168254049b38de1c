"""What a sweep and a burst say, on figures whose truth is made."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.workloads.bench.own.knee import Level, knee_of, waves_of


def level(in_flight: int, per_s: float, p99_ms: float | None = None) -> Level:
    """A second of calls that each took ``p99_ms``, by default what Little's law makes of it."""
    each = 1000 * in_flight / per_s if p99_ms is None else p99_ms
    return Level(in_flight, 1.0, (each,) * round(per_s))


def test_the_knee_is_the_fewest_that_give_95_percent_of_the_most() -> None:
    found = knee_of([level(1, 100), level(2, 200), level(4, 390), level(8, 400), level(16, 405), level(32, 380)])
    assert (found.recommended, found.verdict) == (4, "holds")
    assert "Recommended limit: 4 calls in flight" in found.sentence
    assert "8 in flight change the throughput by +3 % and the P99 by +95 %" in found.reason


def test_a_collapse_is_past_the_knee() -> None:
    found = knee_of([level(10, 360), level(50, 870), level(100, 965), level(200, 176)])
    assert found.recommended == 100
    assert "200 in flight change the throughput by -82 %" in found.reason


def test_a_throughput_that_still_grows_has_no_knee_yet() -> None:
    found = knee_of([level(1, 30), level(2, 60), level(4, 120)])
    assert found.verdict == "cannot be tested here"
    assert "No knee up to 4" in found.sentence


def test_a_server_that_handles_one_at_a_time_is_told_one() -> None:
    assert knee_of([level(n, 33) for n in (1, 2, 4, 8)]).recommended == 1


def test_nothing_answered_recommends_nothing() -> None:
    assert knee_of([Level(1, 1.0, ())]).verdict == "cannot be tested here"


@settings(deadline=None)
@given(st.lists(st.floats(1, 5000), min_size=1, max_size=9))
def test_the_recommended_level_was_tried_and_gives_enough(rates: list[float]) -> None:
    levels = [level(2**step, rate) for step, rate in enumerate(rates)]
    found = knee_of(levels)
    tried = {each.in_flight: each for each in levels}
    assert tried[found.recommended].per_s >= 0.95 * max(each.per_s for each in levels)
    assert all(each.per_s < tried[found.recommended].per_s / 0.95 for each in levels)


def in_waves(count: int, width: int, single_ms: float, spread_ms: float) -> list[float]:
    """Ends of calls of which ``width`` are handled at once; within a wave they end ``spread_ms`` apart in all."""
    return [
        single_ms * (number // width + 1) + spread_ms * (number % width) / max(width - 1, 1) for number in range(count)
    ]


@settings(deadline=None)
@given(st.integers(2, 39), st.floats(12, 500), st.floats(0, 0.3))
def test_waves_are_counted(width: int, single_ms: float, spread: float) -> None:
    found = waves_of(single_ms, in_waves(40, width, single_ms, spread * single_ms))
    if found.width == width:
        assert f"{ceil(40 / width)} waves of {width}" in found.sentence
    else:  # the last wave is too small to be told from noise, or too large
        assert found.verdict == "does not hold"
        assert ceil(40 / width) >= 2


@pytest.mark.parametrize("width", [2, 4, 5, 8, 10, 20, 39])
def test_usual_pools_are_recognised(width: int) -> None:
    found = waves_of(100, in_waves(40, width, 100, 8))
    assert (found.width, found.verdict) == (width, "holds in shape")


def test_no_limit_and_a_limit_of_one_are_told() -> None:
    assert waves_of(32, [32 + 0.6 * number for number in range(40)]).sentence.startswith("All 40 were handled at once")
    assert waves_of(30, [30.0 * number for number in range(1, 41)]).width == 1


def test_calls_too_short_to_show_anything_are_not_judged() -> None:
    assert waves_of(2.0, [2.0, 4.0, 6.0]).verdict == "cannot be tested here"


def test_unequal_waves_are_none() -> None:
    assert waves_of(100, [100.0] * 3 + [200.0] * 20 + [300.0] * 17).width is None
