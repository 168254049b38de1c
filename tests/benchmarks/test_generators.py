"""The comparison of load generators: its truth is computed right, and its server stalls when it is told to."""

from __future__ import annotations

import argparse
import sys

import pytest

from benchmarks.generators import Said, due_p99_ms, measured, probe, table

OPTIONS = argparse.Namespace(rate=100.0, seconds=10, stall_s=1.0)


def test_the_truth_is_how_long_requests_that_were_due_in_a_stall_waited() -> None:
    """Of 1,000 requests, 100 wait 10, 20, … 1,000 ms: the 990th of all is the 90th of these."""
    assert due_p99_ms([], OPTIONS) == 0
    assert due_p99_ms([(2.0, 1.0)], OPTIONS) == pytest.approx(900)
    assert due_p99_ms([(9.95, 1.0)], OPTIONS) == 0  # five of 1,000


def test_the_table_has_medians_and_a_dash_for_what_is_not_said() -> None:
    stall, rates = "1.00 s at 2.0", (90.0, 100.0, 400.0)
    said = [Said(None, rate, rate, 1.0, 900.0, "does not say", true_stalls=stall, cpu_us=30.0) for rate in rates]
    assert table({"one": said}).splitlines()[-1] == (
        "| one | – | 100 | 100 | 1.00 ms | 900.00 ms | – | does not say | 1.00 s at 2.0 | 30 µs |"
    )


@pytest.mark.workloads
def test_one_small_round_finds_the_stalls() -> None:
    options = argparse.Namespace(rate=50.0, seconds=8, stall_s=1.0)
    said = measured(probe, sys.executable, options, "2,5")
    assert " s at 2." in said.stalls or " s at 1.9" in said.stalls
    assert said.true_p99_ms is not None
    assert 700 <= said.true_p99_ms <= 1500
    assert 0 < said.cpu_us < 20_000
