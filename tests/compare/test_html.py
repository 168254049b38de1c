"""A comparison's page has every row of the terminal's, and its charts show the same intervals."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_probe import cli
from mcp_probe.compare.html import html
from mcp_probe.compare.judge import compared
from mcp_probe.compare.page import page
from mcp_probe.compare.reading import reading_of
from mcp_probe.compare.samples import recorded
from tests.compare.recordings import calls, write
from tests.report.page_reader import Reader, missing


def test_everything_the_terminal_says_of_every_row_is_on_the_page() -> None:
    sides = [reading_of(recorded(calls(awaiting_ms=ms, seed=seed)), "a") for ms, seed in ((20.0, 1), (30.0, 2))]
    comparison = compared(sides[:1], sides[1:])
    found = Reader(html(comparison))
    assert missing(page(comparison), found.text) == []
    assert missing(page(comparison, every_row=True), found.text) == []
    pictures = [attributes["aria-label"] or "" for tag, attributes in found.elements if tag == "svg"]
    assert any("p50: +" in told and "more than noise" in told for told in pictures)
    assert any("awaiting: +" in told for told in pictures)


def test_the_command_writes_it_and_spares_what_it_reads(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before, after, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "page.html"
    write(before, calls())
    write(after, calls(seed=2))
    assert cli.main(["compare", str(before), str(after), "--html", str(out)]) == 0
    assert "search" in Reader(out.read_text("utf-8")).text
    assert out.stat().st_mode & 0o777 == 0o600
    kept = before.read_bytes()
    assert cli.main(["compare", str(before), str(after), "--html", str(before)]) == cli.BAD_USE
    assert before.read_bytes() == kept
    assert "Name another file" in capfd.readouterr().err
