"""The page of a run on a user's own server: headings by what they are, one recommendation, once."""

from __future__ import annotations

import re
from pathlib import Path

from mcp_probe.workloads.bench import console
from mcp_probe.workloads.bench.console import Look
from mcp_probe.workloads.bench.own.page import write_page
from mcp_probe.workloads.bench.results import read_results, write_results
from mcp_probe.workloads.bench.shapes import OWN, Check, Outcome, Result, Results, Row

ADVICE = "Keep at most 8 calls in flight: that gives 100% of the highest throughput (80/s)."


def made() -> Results:
    rows = [Row(table="tools", label="price", unit="ms", measured=12.0, note="Called. To call it: mcp-probe bench")]
    rows += [
        Row(
            table="concurrency sweep of tool price", label=f"{n} in flight, {metric}", unit=unit, metric=metric,
            measured=10.0 * n, x=n, series="tool price",
        )
        for n in (1, 2, 4, 8)
        for metric, unit in (("throughput", "1/s"), ("latency", "ms"))
    ]  # fmt: skip
    rows.append(Row(table="fan-out of tool price", label="1 at once", unit="ms", measured=12.0, x=1))
    check = Check(
        claim="004-3", sentence="more stop bringing more", documented="1,507/s", measured="80/s", tolerance="15 %",
        verdict="holds", value=8.0,
    )  # fmt: skip
    outcome = Outcome(tuple(rows), (check,), ("A note.",), advice=ADVICE)
    result = Result(OWN, ("004",), "calls to python server.py: how many at once", outcome, 12.0)
    return Results({"python": "3.11"}, "quick", (result,))


def test_headings_are_what_they_stand_over_and_the_recommendation_stands_there_once(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(made(), path)
    page = path.read_text("utf-8")
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        "Calls to python server.py: how many at once",
        "Concurrency sweep of tool price",
        "Tools",
        "Fan-out of tool price",
        "What published comparisons claim, on this server",
    ]
    assert page.count("Keep at most 8 calls in flight") == 1
    assert page.count("<figure") == 2
    assert "<summary>All 4 levels, and why</summary>" in page  # the charts come first
    assert "Throughput by calls in flight" in page and "Latency by calls in flight" in page
    assert "of doc." not in page  # no document has these tables


def test_the_terminal_and_the_saved_results_have_it_as_well(tmp_path: Path) -> None:
    shown = console.page(made(), look=Look(width=140, color=False))
    assert shown.count("Keep at most 8 calls in flight") == 1
    write_results(made(), tmp_path / "own.json")
    assert read_results(tmp_path / "own.json") == made()


def test_a_run_that_measured_nothing_has_a_page(tmp_path: Path) -> None:
    write_page(Results({}, "quick", ()), tmp_path / "page.html")
    assert "Nothing was measured." in (tmp_path / "page.html").read_text("utf-8")


def test_a_stranger_is_told_what_marks_and_numbers_mean(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(made(), path)
    page = path.read_text("utf-8")
    assert "marks what was measured while others used more than a quarter of a core" in page
    assert "begins with that of its document: 004 ContextForge" in page
    assert "calls in flight</text>" in page  # the name at the axis of the curve
