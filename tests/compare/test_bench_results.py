"""Results of bench: a difference is more than noise only where it exceeds what both rows know of their noise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mcp_probe.compare.judge import compared
from mcp_probe.compare.page import page
from mcp_probe.compare.reading import read
from mcp_probe.compare.shapes import Comparison
from mcp_probe.report.console import draw
from mcp_probe.workloads.bench.results import write_results
from mcp_probe.workloads.bench.shapes import Results, Row
from tests.workloads.bench.made import check, full, result, results, row, stats


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def comparison(folder: Path, before: Results, after: Results) -> Comparison:
    for name, found in (("a.json", before), ("b.json", after)):
        write_results(found, folder / name)
    return compared([read(folder / "a.json")], [read(folder / "b.json")])


def judged(folder: Path, before: Row, after: Row) -> str:
    [found] = comparison(folder, results(result(before)), results(result(after))).rows
    return found.judgement


def text_of(found: Comparison, *, every_row: bool = False, width: int = 100) -> str:
    return draw(page(found, every_row=every_row), sys.stdout, width=width, color=False, ascii_only=False)


@pytest.mark.parametrize(
    ("value", "judgement"),
    [(100.0, "within noise"), (109.0, "within noise"), (111.0, "more than noise"), (89.0, "more than noise")],
)
def test_the_floor_decides_both_ways(folder: Path, value: float, judgement: str) -> None:
    assert judged(folder, row(measured=100.0, floor=1.05), row(measured=value, floor=1.10)) == judgement


def test_without_a_floor_the_spread_of_the_rounds_decides(folder: Path) -> None:
    # Ten rounds with a deviation of 5 %: the difference of two means has an error of 2.2 %.
    assert judged(folder, row(measured=stats(100.0)), row(measured=stats(104.0))) == "within noise"
    assert judged(folder, row(measured=stats(100.0)), row(measured=stats(107.0))) == "more than noise"


def test_numbers_without_either_are_not_judged(folder: Path) -> None:
    assert judged(folder, row(measured=100.0), row(measured=300.0)) == "noise unknown"


def test_the_same_results_do_not_differ(folder: Path) -> None:
    found = comparison(folder, full(), full()).rows
    assert {each.judgement for each in found} <= {"within noise", "noise unknown", "contended"}
    assert all(each.change == 1.0 for each in found if each.change is not None)


def test_rows_of_one_side_only_are_kept(folder: Path) -> None:
    found = comparison(folder, results(result(row("old"))), results(result(row("new")))).rows
    assert [(each.measure, each.judgement) for each in found] == [
        ("001 §4 new", "only after"),
        ("001 §4 old", "only before"),
    ]


def test_rows_of_one_label_in_two_workloads_are_two(folder: Path) -> None:
    both = results(result(row(measured=1.0), name="a"), result(row(measured=2.0), name="b"))
    found = comparison(folder, both, both).rows
    assert [(each.operation, each.before, each.after) for each in found] == [("a", 1, 1), ("b", 2, 2)]


def test_a_contended_side_shows_nothing(folder: Path) -> None:
    assert judged(folder, row(measured=stats(100.0)), row(measured=stats(300.0), contended=True)) == "contended"


def test_claims_that_turned_are_told(folder: Path) -> None:
    before = results(result(checks=(check("001-1"), check("001-2"))))
    after = results(result(checks=(check("001-1"), check("001-2", verdict="does not hold"), check("001-9"))))
    told = [(turn.claim, turn.before, turn.after) for turn in comparison(folder, before, after).turns]
    assert told == [("001-2", "holds", "does not hold")]


def test_settings_that_changed_are_told_and_the_day_is_not(folder: Path) -> None:
    after = results(python="3.14.0", packages={"mcp": "2.3.0", "httpx": "0.28"}, date="2027-01-01", load_average_1min=9)
    assert comparison(folder, results(), after).not_the_same == ("python 3.13.0 → 3.14.0", "httpx none → 0.28")


def test_the_page_shows_what_is_more_than_noise(folder: Path) -> None:
    before = results(result(row("same", 100.0, floor=1.1), row("slower", 100.0, floor=1.1), checks=(check(),)))
    after = results(
        result(
            row("same", 101.0, floor=1.1), row("slower", 150.0, floor=1.1), checks=(check(verdict="does not hold"),)
        ),
        python="3.14.0",
    )
    text = text_of(comparison(folder, before, after))
    [line] = [
        line for line in text.splitlines() if "001 §4 slower" in line and "before" not in line and "●" not in line
    ]
    assert "+50%" in line and "more than noise" in line
    assert "001 §4 same" not in text
    assert "python 3.13.0 → 3.14.0" in text
    assert "holds → does not hold" in text
    assert "001 §4 same" in text_of(comparison(folder, before, after), every_row=True)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_page_is_no_wider_than_asked(folder: Path, width: int) -> None:
    text = text_of(comparison(folder, full(), full()), every_row=True, width=width)
    assert max(map(len, text.splitlines())) <= width
