"""A page is written beside whoever asked for it, who waits for a moment only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.errors import OptionError
from mcp_probe.model import Summary
from mcp_probe.report.page import written
from mcp_probe.report.page.window import Window
from mcp_probe.report.page.written import PageWriter, write_page

LONG_S = 60.0
NOTHING: list[tuple[Summary, Window]] = [(Fold().summary(), Window())]


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Drawing waits until something is written to this pipe, and takes that as the page."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    monkeypatch.setattr(written, "render", lambda *_, **__: path.read_text())
    yield path


def test_a_page_that_is_drawn_in_time_is_there_when_start_returns(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert PageWriter(path).start(NOTHING, LONG_S) is None
    assert path.read_text("utf-8").startswith("<!doctype html>")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_page_that_takes_longer_is_said_to_and_comes_later(tmp_path: Path, gate: Path) -> None:
    page = tmp_path / "page.html"
    os.mkfifo(page)
    told = PageWriter(page).start(NOTHING, 0.0)
    assert told is not None and "still being written" in told and str(page) in told
    gate.write_text("drawn")  # blocks until it is read
    assert page.read_text() == "drawn"  # and until that is written


def test_who_draws_holds_none_of_our_files(tmp_path: Path, gate: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    drawing = PageWriter(tmp_path / "page.html")
    assert drawing.start(NOTHING, 0.0) is not None
    os.close(writer)
    with gate.open("w"):  # it reads there by now, so it has let go of everything
        assert os.read(reader, 1) == b""  # nobody else can write
    os.close(reader)
    drawing.give_up()


def test_who_draws_is_not_in_our_process_group(tmp_path: Path, gate: Path) -> None:
    drawing = PageWriter(tmp_path / "page.html")
    told = drawing.start(NOTHING, 0.0)
    assert told is not None
    process = int(told.partition("process ")[2].partition(":")[0])
    with gate.open("w"):
        assert os.getpgid(process) == process != os.getpgrp()
    drawing.give_up()


def test_a_later_page_takes_the_place_of_one_that_is_not_ready(
    tmp_path: Path, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    drawing = PageWriter(page)
    assert drawing.start(NOTHING, 0.0) is not None
    monkeypatch.setattr(written, "render", lambda *_, **__: "the later one")
    assert drawing.start(NOTHING, LONG_S) is None
    assert page.read_text() == "the later one"


def test_what_goes_wrong_in_the_drawing_is_told_as_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = PageWriter(tmp_path / "no" / "page.html").start(NOTHING, LONG_S)
    assert told is not None and told.startswith("Cannot write")

    def fail(*_: Any, **__: Any) -> str:
        raise ValueError("odd")

    monkeypatch.setattr(written, "render", fail)
    told = PageWriter(tmp_path / "page.html").start(NOTHING, LONG_S)
    assert told == "The page could not be made (ValueError: odd); please report this."


def test_a_path_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="Cannot write"):
        write_page(NOTHING, tmp_path / "no" / "page.html")
