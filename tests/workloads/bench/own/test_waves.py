"""What a burst says of how many calls are handled at once, on figures whose truth is made."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.workloads.bench.own.waves import waves_of


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
        assert found.width is None and not found.too_short
        assert ceil(40 / width) >= 2


@pytest.mark.parametrize("width", [2, 4, 5, 8, 10, 20, 39])
def test_usual_pools_are_recognised(width: int) -> None:
    found = waves_of(100, in_waves(40, width, 100, 8))
    assert found.width == width


def test_no_limit_and_a_limit_of_one_are_told() -> None:
    assert waves_of(32, [32 + 0.6 * number for number in range(40)]).sentence.startswith("All 40 were handled at once")
    assert waves_of(30, [30.0 * number for number in range(1, 41)]).width == 1


def test_calls_too_short_to_show_anything_are_not_judged() -> None:
    found = waves_of(2.0, [2.0, 4.0, 6.0])
    assert found.too_short and found.width is None


def test_unequal_waves_are_none() -> None:
    assert waves_of(100, [100.0] * 3 + [200.0] * 20 + [300.0] * 17).width is None
