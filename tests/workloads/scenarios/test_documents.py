"""The documents' figures as they are kept here: their own arithmetic holds, and where it does not it is known."""

from __future__ import annotations

from statistics import fmean

import pytest

from mcp_probe.workloads.scenarios.documents import doc000, doc001


@pytest.mark.parametrize("messages", doc000.MESSAGES)
def test_000_ratios_and_rates_follow_from_its_means(messages: int) -> None:
    one, tasks = ("sequential", messages), ("concurrent", messages)
    ratio = doc000.MEAN_MS[tasks] / doc000.MEAN_MS[one]
    assert ratio == pytest.approx(doc000.TIME_RATIO[messages], abs=0.006)
    for place in (one, tasks):
        assert 1000 / doc000.MEAN_MS[place] == pytest.approx(doc000.OPS[place], rel=0.003)


def test_000_scaling_follows_from_its_means_and_its_first_row_is_an_outlier() -> None:
    for name, ratios in doc000.SCALING.items():
        for messages, ratio in ratios.items():
            found = doc000.MEAN_MS[name, messages] / doc000.MEAN_MS[name, 100]
            assert found == pytest.approx(ratio, abs=0.06)
    assert doc000.MEDIAN_RATIO_100 == 1.31


def test_000_memory_ratios_mix_denominators() -> None:
    for messages in (100, 1000, 3000):
        peaks_mb = [doc000.MEMORY_MB[name, messages][0] for name in ("concurrent", "sequential")]
        assert peaks_mb[0] / peaks_mb[1] == pytest.approx(doc000.MEMORY_RATIO[messages])
    large_mb, one_mb = (doc000.MEMORY_MB[name, doc000.LARGE][0] for name in ("concurrent", "sequential"))
    assert large_mb / one_mb == pytest.approx(1833)
    direct = pytest.approx(doc000.DIRECT_TASKS_MB / doc000.ONE_MB, abs=1)
    assert doc000.MEMORY_RATIO[doc000.LARGE] == doc000.DIRECT_RATIO == direct
    peak_mb, mean_mb = doc000.MEMORY_MB["concurrent", 100]
    assert (5 * mean_mb - peak_mb) / 4 == pytest.approx(doc000.OTHER_ROUNDS_MB, abs=0.005)
    assert large_mb * 1000 / doc000.LARGE == pytest.approx(doc000.KB_PER_MESSAGE, abs=0.01)


def test_000_a_line_through_its_sequential_means_does_not_start_at_zero() -> None:
    start_ms, slope_us = doc000.FITS["sequential"]
    assert start_ms is not None
    for messages in doc000.MESSAGES:
        mean_ms = doc000.MEAN_MS["sequential", messages]
        assert start_ms + messages * slope_us / 1000 == pytest.approx(mean_ms, abs=0.25)


def test_001_overheads_follow_from_their_columns_and_their_mean_does_not() -> None:
    for known in doc001.OVERHEAD.values():
        assert 100 * (known.hangar_ms / known.direct_ms - 1) == pytest.approx(known.percent, abs=0.06)
    assert fmean(known.percent for known in doc001.OVERHEAD.values()) == pytest.approx(-0.357, abs=0.001)


def test_001_cold_starts_are_quicker_than_the_start_they_are_said_to_contain() -> None:
    for known in doc001.COLD_START.values():
        assert known.one_by_one_ms / known.single_flight_ms == pytest.approx(known.speed_up, abs=0.11)
        assert known.single_flight_ms < doc001.START_MS
    assert doc001.COLD_START[20].single_flight_ms == pytest.approx(doc001.COLD_CALL_MS, rel=0.2)


def test_001_the_second_table_of_section_4_is_section_2_2_again() -> None:
    for count, percent in doc001.POOL_OF_20_PERCENT.items():
        known = doc001.OVERHEAD[f"S2 N={count}"]
        assert known.percent == percent
        assert known.direct_ms == doc001.DIRECT[count]
        assert round(known.hangar_ms) == doc001.POOL_OF_20[count]
