"""The quick form of benchmarks/compare_truth.py; seeded, so it fails only where the code has changed."""

from __future__ import annotations

from benchmarks.compare_truth import Load, false_alarms, found


def test_equal_servers_hardly_ever_differ_in_any_row() -> None:
    assert false_alarms(Load(1000, 2, 0.5, 0.3), trials=8) == 0


def test_a_tenth_more_is_found_in_a_thousand_calls() -> None:
    assert found(Load(1000, 1, 0.5, 0.0, factor=1.1), trials=8)["any"] >= 7
