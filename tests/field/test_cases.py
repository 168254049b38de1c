"""Each public bug report that was rebuilt has its fault, without the probe; and the page says what the runs said."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.field.cases.case import FOLDER, Row, Source
from tests.field.cases.playing import Start
from tests.field.cases.rows import ROWS
from tests.field.right_screens import right_screen
from tools.field.cases import BETWEEN, PAGE, Column, page_text, read_columns, with_column
from tools.field.first_screen import OUTCOMES, judge
from tools.interpreters import ROOT

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def parameters() -> list[object]:
    return [
        pytest.param(row, id=row.name.replace(" ", "-"), marks=[pytest.mark.endurance] if row.is_slow else [])
        for row in ROWS
    ]


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("row", parameters())
def test_the_fault_is_there_without_the_probe(row: Row, tmp_path: Path, env_python: Callable[[str], Path]) -> None:
    if row.bare_environment == "case-fastmcp" and not (ROOT / ".envs" / row.bare_environment).exists():
        pytest.skip("`make field-cases` makes .envs/case-fastmcp")
    python = env_python(row.bare_environment) if row.bare_environment else Path(sys.executable)
    seen = row.play(Start(python, FOLDER / row.case / "server.py", tmp_path, is_brief=True))
    assert row.shows_fault(seen), seen


def test_a_truth_finds_its_lines_by_their_text() -> None:
    source = Source("orphan")
    number = source.line("work.get()")
    assert "work.get()" in source.text.splitlines()[number - 1]
    for place in (f"server.py:{number}", f"…/orphan/server.py:{number}", f"server.py:9, {number}", f"line {number}"):
        assert re.search(source.at("work.get()"), place)
    for place in (f"server.py:{number}1", f"server.py:{number + 1}", f"my_server.py:{number}", f"line {number}0"):
        assert not re.search(source.at("work.get()"), place)
    assert re.search(source.inside("indexer"), f"server.py:{number}")
    assert not re.search(source.inside("watch"), f"server.py:{number}")
    with pytest.raises(LookupError, match="2 lines"):
        source.line("as Server")
    with pytest.raises(LookupError, match="nothing is called"):
        source.inside("nobody")


def test_every_truth_is_found_in_a_report_that_names_it_and_in_no_other() -> None:
    for row in ROWS:
        others = [other for other in ROWS if other.case != row.case]
        assert judge(right_screen(row), row.truth).outcome == "found", row.name
        for other in others:
            assert judge(right_screen(row), other.truth).outcome != "found", (row.name, other.name)


def test_the_page_has_what_the_runs_said() -> None:
    columns = read_columns()
    assert columns, "run `make field-cases`"
    names = {row.name for row in ROWS}
    for column in columns:
        assert set(column.rows) <= names
        assert {one["outcome"] for one in column.rows.values()} <= set(OUTCOMES)
    assert set(columns[-1].rows) == names
    found = BETWEEN.search(PAGE.read_text("utf-8"))
    assert found is not None
    assert found[0] == page_text(columns)


def test_a_run_takes_the_place_of_its_own_commit_and_no_other() -> None:
    rows = {ROWS[0].name: {"outcome": "false", "why": "", "said": "`healthy`: Healthy."}}
    first, second = Column("aaa", "1 Jan 2026", 0.1, 0.2, rows), Column("bbb", "2 Jan 2026", 3.0, 3.0, {})
    again = Column("aaa", "3 Jan 2026", 0.1, 0.2, {})
    assert with_column([first, second], again) == [again, second]
    text = page_text(with_column([first], second), ROWS[:1]).splitlines()
    assert (
        text[0]
        == "- 1 Jan 2026, aaa: 0 found, 0 partly, 0 not found, 1 false, of 1; load average 0.1 before and 0.2 after."
    )
    assert text[1].endswith("3.0 after: not a quiet machine.")
    assert text[3].endswith("| 1 Jan 2026, aaa | 2 Jan 2026, bbb |")
    assert text[5].endswith("| **false** `healthy`: Healthy. | not run |")
