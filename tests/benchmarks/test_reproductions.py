"""The page of reproductions says what the committed results say, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import reproductions
from mcp_probe.workloads.bench.grader import UNTOLD, grade
from mcp_probe.workloads.bench.results import read_results, write_results
from mcp_probe.workloads.scenarios.documents import doc000, doc001, doc002, doc003, doc004
from tests.docs.test_docs import broken_links
from tests.workloads.bench.made import check, full, result, results, row


def test_the_page_is_that_of_the_committed_results() -> None:
    path = reproductions.committed()
    found = None if path is None else read_results(path)
    assert reproductions.PAGE.read_text("utf-8") == reproductions.page(found)


def test_every_row_claim_and_reason_is_on_the_page() -> None:
    text = reproductions.page(full())
    assert "| 20 calls | 521 ms | 265 ms | ±4.0% | 292 | 1.02× | 1.02× | 18.40 of 20 |" in text
    assert "| 001-4 | a pool of 4 works in ceil(N/4) waves" in text
    assert "**does not hold** **!**" in text
    assert "- **39 calls**: `nap` held all threads." in text
    assert "![001 §4: time](reproductions/001-4-time.svg)" in text
    assert "2 claims: 1 holds, 1 does not hold." in text
    assert "waves: Delays are halved." in text


def test_a_reason_that_rows_share_is_said_once_for_all() -> None:
    rows = [row(f"{count} calls", why="Nothing waited.", documented=None) for count in range(5)]
    text = reproductions.page(results(result(*rows)))
    assert text.count("Nothing waited.") == 1
    assert "- **0 calls … 4 calls**: Nothing waited." in text


def test_signs_of_markdown_in_texts_stay_signs() -> None:
    text = reproductions.page(results(result(row("a|b *c* <d> e_f"))))
    assert r"| a\|b \*c\* &lt;d> e\_f |" in text


def test_pictures_are_those_the_page_links_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(reproductions, "PICTURES", tmp_path / "reproductions")
    monkeypatch.setattr(reproductions, "PAGE", tmp_path / "reproductions.md")
    (tmp_path / "bench.md").touch()
    (tmp_path / "reproductions").mkdir()
    (tmp_path / "reproductions" / "old.svg").touch()
    reproductions.draw(full())
    page = tmp_path / "reproductions.md"
    page.write_text(reproductions.page(full()))
    assert broken_links(page) == ["../benchmarks/results"]
    assert [path.name for path in (tmp_path / "reproductions").iterdir()] == ["001-4-time.svg"]


def test_committed_verdicts_are_what_the_grader_says_of_the_figures_beside_them() -> None:
    path = reproductions.committed()
    assert path is not None
    checks = [check for found in read_results(path).results for check in found.outcome.checks]
    assert {check.claim.partition(" (")[0] for check in checks} == {
        claim for document in (doc000, doc001, doc002, doc003, doc004) for claim in document.CLAIMS
    }
    assert [check.claim for check in checks if grade(check.parts).verdict != check.verdict] == []
    assert [check.claim for check in checks if check.verdict == UNTOLD and not check.why] == []


def test_twins_of_a_claim_count_once() -> None:
    twins = (check("004-1"), check("004-1 (httpx2)", verdict="does not hold"), check("004-1m (stdio)"))
    assert "2 claims: 2 hold." in reproductions.page(results(result(checks=twins)))


def test_what_is_committed_has_all_that_the_page_needs_and_little_else(tmp_path: Path) -> None:
    short, whole = tmp_path / "short.json", tmp_path / "whole.json"
    short.write_text(reproductions.summary(full()), "utf-8")
    write_results(full(), whole)
    assert reproductions.page(read_results(short)) == reproductions.page(full())
    assert short.stat().st_size < 0.6 * whole.stat().st_size
    path = reproductions.committed()
    assert path is not None
    assert path.read_text("utf-8") == reproductions.summary(read_results(path))
