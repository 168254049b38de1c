"""A difference is more than noise only where it exceeds what both rows know of their noise."""

from __future__ import annotations

import pytest

from mcp_probe.workloads.bench.compare import differences, setting_changes, turns
from tests.workloads.bench.made import check, full, result, results, row, stats


def judged(before: object, after: object) -> str:
    [found] = differences(
        results(result(before)),  # type: ignore[arg-type]
        results(result(after)),  # type: ignore[arg-type]
    )
    return found.judgement


@pytest.mark.parametrize(
    ("value", "judgement"),
    [(100.0, "within noise"), (109.0, "within noise"), (111.0, "more than noise"), (89.0, "more than noise")],
)
def test_the_floor_decides_both_ways(value: float, judgement: str) -> None:
    assert judged(row(measured=100.0, floor=1.05), row(measured=value, floor=1.10)) == judgement


def test_without_a_floor_the_intervals_decide() -> None:
    # 4 % each: sqrt(2) x 4 % = 5.7 %
    assert judged(row(measured=stats(100.0)), row(measured=stats(105.0))) == "within noise"
    assert judged(row(measured=stats(100.0)), row(measured=stats(107.0))) == "more than noise"


def test_numbers_without_either_are_not_judged() -> None:
    assert judged(row(measured=100.0), row(measured=300.0)) == "noise unknown"


def test_the_same_results_do_not_differ() -> None:
    found = differences(full(), full())
    assert {each.judgement for each in found} <= {"within noise", "noise unknown"}
    assert all(each.change == 1.0 for each in found)


def test_rows_of_one_side_only_are_kept() -> None:
    found = differences(results(result(row("old"))), results(result(row("new"))))
    assert [(each.label, each.judgement) for each in found] == [("new", "only in B"), ("old", "only in A")]


def test_rows_of_one_label_in_two_workloads_are_two() -> None:
    both = results(result(row(measured=1.0), name="a"), result(row(measured=2.0), name="b"))
    assert [(each.workload, each.before, each.after) for each in differences(both, both)] == [("a", 1, 1), ("b", 2, 2)]


def test_a_contended_side_marks_the_difference() -> None:
    [found] = differences(results(result(row())), results(result(row(contended=True))))
    assert found.contended


def test_claims_that_turned_are_told() -> None:
    before = results(result(checks=(check("001-1"), check("001-2"))))
    after = results(result(checks=(check("001-1"), check("001-2", verdict="does not hold"), check("001-9"))))
    told = [(turn.claim, turn.before, turn.after) for turn in turns(before, after)]
    assert told == [("001-2", "holds", "does not hold")]


def test_settings_that_changed_are_told_and_the_day_is_not() -> None:
    after = results(python="3.14.0", packages={"mcp": "2.3.0", "httpx": "0.28"}, date="2027-01-01", load_average_1min=9)
    assert setting_changes(results(), after) == ["python 3.13.0 → 3.14.0", "httpx none → 0.28"]
