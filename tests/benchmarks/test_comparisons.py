"""The page of comparisons has each of them, and is made of a run alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import comparisons
from mcp_probe.workloads.bench.registry import QUESTIONS
from mcp_probe.workloads.bench.shapes import Results
from tests.docs.test_docs import broken_links
from tests.workloads.bench.made import check, full, result, results, row


def made() -> Results:
    rows = [
        row(f"{x} MB", float(x), table="now results over stdio", documented=None, scale=1.0, x=x, why="It was sent.")
        for x in (1, 10)
    ]
    claim = check("now-1", documented="", sentence="bytes are counted", verdict="does not hold", contended=True)
    own = result(*rows, checks=(claim,), name="result-size", documents=("now",), about="results of many sizes")
    return results(*full().results, own)


def test_every_comparison_stands_on_the_page_with_its_command() -> None:
    text = comparisons.PAGE.read_text("utf-8")
    assert [each.name for each in QUESTIONS if f"`mcp-probe bench {each.name}`" not in text] == []
    assert broken_links(comparisons.PAGE) == []


def test_rows_claims_and_reasons_are_there_and_those_of_documents_are_not() -> None:
    text = comparisons.page(made())
    assert "| 10 MB | 10 ms |" in text
    assert "- **1 MB … 10 MB**: It was sent." in text or "- **1 MB; 10 MB**: It was sent." in text
    assert "bytes are counted<br>" in text
    assert "does not hold **!** |" in text
    assert "### Results over stdio" in text
    assert "![now results over stdio: time](comparisons/now-results-over-stdio-time.svg)" in text
    assert "1 claim" in text
    assert "20 calls" not in text


def test_a_reason_is_said_once_for_rows_whose_conditions_differ() -> None:
    shared: dict[str, Any] = {"table": "now results", "documented": None, "why": "It was sent."}
    rows = (row("time", 1.0, **shared), row("CPU", 2.0, note="by the kernel", **shared))
    own = result(*rows, name="result-size", documents=("now",), about="results")
    text = comparisons.page(results(own))
    assert text.count("It was sent.") == 1
    assert "- **time; CPU**: It was sent.\n- **CPU**: By the kernel." in text


def test_pictures_are_those_the_page_links_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(comparisons, "PICTURES", tmp_path / "comparisons")
    (tmp_path / "comparisons").mkdir()
    (tmp_path / "comparisons" / "old.svg").touch()
    (tmp_path / "bench.md").touch()
    comparisons.draw(made())
    page = tmp_path / "comparisons.md"
    page.write_text(comparisons.page(made()), "utf-8")
    assert broken_links(page) == []
    assert [path.name for path in (tmp_path / "comparisons").iterdir()] == ["now-results-over-stdio-time.svg"]
