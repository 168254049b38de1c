from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.model import Quality
from mcp_probe.report.figures import (
    Notation,
    brief,
    decimal,
    duration,
    duration_range,
    fine_share,
    instant,
    plural,
    quantity,
    share,
    size,
)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (0.0, "0 ms"),
        (0.001, "<0.01 ms"),
        (0.42, "0.42 ms"),
        (0.999, "1.0 ms"),
        (4.2, "4.2 ms"),
        (9.96, "10 ms"),
        (98.4, "98 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (1_284.0, "1.28 s"),
        (12_400.0, "12.4 s"),
        (99_960.0, "100 s"),
        (184_000.0, "184 s"),
        (900_000.0, "15 min"),
        (7_200_000.0, "2.0 h"),
    ],
)
def test_durations_keep_two_or_three_digits_in_the_unit_that_fits(ms: float | None, text: str) -> None:
    assert duration(ms) == text


@given(st.floats(0, 1e9))
def test_only_zero_reads_as_zero(ms: float) -> None:
    assert (duration(ms) == "0 ms") is (ms == 0)


def test_a_range_is_in_the_unit_of_its_upper_end_and_collapses_when_both_read_the_same() -> None:
    assert duration_range(2_800.0, 3_100.0) == "[2.80–3.10 s]"
    assert duration_range(820.0, 1_240.0) == "[0.82–1.24 s]"
    assert duration_range(0.0, 98.0) == "[0–98 ms]"
    assert duration_range(98.1, 98.3) == "98 ms"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(None, "–"), (0.0, "0%"), (0.001, "<1%"), (0.71, "71%"), (1.0, "100%"), (math.nan, "–"), (1e6, "1.0e+08%")],
)
def test_shares_are_percent_and_small_ones_are_not_zero(ratio: float | None, text: str) -> None:
    assert share(ratio) == text


def test_small_costs_keep_a_decimal() -> None:
    assert [fine_share(ratio) for ratio in (0.0, 0.0001, 0.013, 0.0996, 0.4)] == ["0%", "<0.1%", "1.3%", "10%", "40%"]


def test_counts_stay_exact_until_they_get_long() -> None:
    assert [quantity(number) for number in (0, 1_284, 999_999, 1_230_000, 5_000_000_000)] == [
        "0",
        "1,284",
        "999,999",
        "1.23M",
        "5G",
    ]
    assert plural(1, "error") == "1 error"
    assert plural(2_000, "error") == "2,000 errors"


def test_decimals_appear_only_where_they_say_something() -> None:
    assert [decimal(number) for number in (4.0, 0.6, 52.31, 140.2, None)] == ["4", "0.6", "52.3", "140", "–"]


def test_sizes_are_in_powers_of_a_thousand() -> None:
    assert [size(number) for number in (0, 512, 14_200, 3_500_000, None)] == ["0 B", "512 B", "14.2 kB", "3.5 MB", "–"]


def test_an_instant_is_utc_and_nothing_where_there_is_none() -> None:
    assert instant(1_763_712_000.0) == "2025-11-21 08:00:00 UTC"
    assert [instant(unix) for unix in (0.0, math.nan, 1e18)] == ["", "", ""]


def test_long_names_lose_their_middle() -> None:
    assert brief("search") == "search"
    assert len(brief("x" * 90)) == 28


@pytest.mark.parametrize(
    ("quality", "text"),
    [
        (Quality("exact"), "50 ms"),
        (Quality("lower"), "≥50 ms"),
        (Quality("upper"), "≤50 ms"),
        (Quality("estimate"), "~50 ms"),
        (Quality("bounded", 40.0, 60.0), "[40–60 ms]"),
        (Quality("bounded", 50.1, 50.2), "50 ms"),
        (Quality("bounded", 0.0, 60.0), "≤60 ms"),
        (Quality("bounded"), "~50 ms"),
        (Quality("unavailable"), "–"),
    ],
)
def test_every_tag_has_its_mark(quality: Quality, text: str) -> None:
    assert Notation().duration(50.0, quality) == text


def test_only_marks_that_were_written_are_remembered() -> None:
    notation = Notation()
    notation.duration(50.0, Quality("bounded", 50.1, 50.2))
    notation.duration(None, Quality("lower"))
    assert notation.used == set()
    notation.share(0.5, Quality("bounded", 0.4, 0.6))
    notation.mark("estimate")
    assert notation.used == {"bounded", "estimate"}


def test_what_is_missing_is_grouped_by_reason_and_owner() -> None:
    notation = Notation()
    notation.missing("queue", "no transport")
    for name in ("a", "b", "a"):
        notation.missing("p95", "too few", name)
        notation.missing("p99", "too few", name)
    for name in "vwxyz":
        notation.missing("gc", "no hook", name)
    assert list(notation.unavailable()) == [
        ("queue", "no transport"),
        ("p95, p99 of a, b", "too few"),
        ("gc of v, w, x and 2 more", "no hook"),
    ]
