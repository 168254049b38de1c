"""The page that several runs write together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.compatibility import PAGE, SECTIONS, rows, table, write


def test_a_run_leaves_the_sections_of_the_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write("matrix", ["first"], page)
    write("canary", ["second"], page)
    write("matrix", ["third"], page)
    text = page.read_text("utf-8")
    assert "first" not in text
    assert text.index("third") < text.index("second")
    assert "Not run yet: `make wheels`." in text


def test_a_section_that_nobody_declared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="nobody"):
        write("nobody", ["x"], tmp_path / "page.md")


def test_a_cell_never_breaks_its_row() -> None:
    assert table(["a"], [["one|two\nthree"]]) == ["| a |", "| --- |", "| one\\|two three |"]


def test_the_page_has_each_section_once() -> None:
    text = PAGE.read_text("utf-8")
    for name, (heading, command) in SECTIONS.items():
        assert text.count(f"<!-- {name} -->") == text.count(f"\n## {heading}\n") == 1
        assert command.removeprefix("make ") in (PAGE.parent.parent / "Makefile").read_text("utf-8")


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert rows("suites", page) == []
    written = [["anyio", "2 passed", "a|b"], ["mcp", "", "3"]]
    write("suites", ["words", "", *table(["suite", "bare", "more"], written)], page)
    assert rows("suites", page) == written
