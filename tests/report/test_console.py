from __future__ import annotations

import io
import os
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_probe.model import (
    BUDGET_PARTS,
    ArrivalDelay,
    LoopSummary,
    Outstanding,
    Percentiles,
    ProbeSelf,
    RequestCounts,
    ServerInfo,
    Summary,
    WaitPercentiles,
    Window,
)
from mcp_probe.report.console import choose_ascii, choose_color, choose_depth, choose_width, render
from mcp_probe.report.theme import cells
from tests.report.generated import summaries
from tests.report.summaries import (
    SUMMARIES,
    blocking,
    make_budget,
    make_executor,
    make_operation,
    make_signals,
    make_summary,
)

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._terminal = terminal
        self._encoding = encoding

    def isatty(self) -> bool:
        return self._terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


TERMINAL = Stream(terminal=True)
PIPE = Stream(terminal=False)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(summary=summaries(), width=st.integers(60, 160), ascii_only=st.booleans())
def test_no_line_is_wider_than_asked_whatever_the_summary_holds(summary: Summary, width: int, ascii_only: bool) -> None:
    text = render(summary, width=width, color=False, ascii_only=ascii_only)
    assert max(map(cells, text.split("\n"))) <= width
    assert text.isascii() or not ascii_only
    assert all(character.isprintable() for character in text.replace("\n", ""))


@pytest.mark.parametrize("color", [False, True], ids=["bare", "coloured"])
@pytest.mark.parametrize("name", SUMMARIES)
def test_every_width_holds_a_whole_report(name: str, color: bool) -> None:
    for width in range(60, 161):
        lines = ESCAPES.sub("", render(SUMMARIES[name](), width=width, color=color, ascii_only=False)).split("\n")
        assert max(map(cells, lines)) <= width
        assert lines[-1] == ""
        assert not any(line != line.rstrip() for line in lines)


def test_headings_and_verdict_fill_the_width_exactly() -> None:
    lines = render(blocking(), width=100, color=False, ascii_only=False).split("\n")
    framed = [line for line in lines if line and (line[0] in "╭│╰" or line[-1] == "─")]
    assert len(framed) >= 10
    assert {cells(line) for line in framed} == {100}


def test_a_width_below_60_is_laid_out_at_60() -> None:
    assert render(blocking(), width=20, color=False) == render(blocking(), width=60, color=False)


@pytest.mark.parametrize(
    ("environ", "depth"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "truecolor"),
        ({"TERM": "xterm", "COLORTERM": "24bit"}, "truecolor"),
        ({"TERM": "xterm-direct"}, "truecolor"),
        ({"TERM": "screen-256color"}, "256"),
        ({"TERM": "xterm", "COLORTERM": "yes"}, "16"),
        ({"TERM": "linux"}, "16"),
        ({}, "16"),
    ],
)
def test_as_many_colours_as_the_terminal_says(environ: dict[str, str], depth: str) -> None:
    assert choose_depth(environ) == depth


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", SUMMARIES)
def test_the_text_is_the_same_in_any_number_of_colours(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for term, colorterm in (("xterm", ""), ("xterm-256color", ""), ("xterm-256color", "truecolor")):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("COLORTERM", colorterm)
        shown.append(render(SUMMARIES[name](), width=width, color=True, ascii_only=False))
    assert len(set(shown)) == 3
    assert len({ESCAPES.sub("", text) for text in shown}) == 1


@pytest.mark.parametrize("term", ["xterm", "xterm-256color", "xterm-direct"])
def test_a_bar_and_its_legend_wear_the_same_colours(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("COLORTERM", raising=False)
    text = render(blocking(), color=True, ascii_only=False)
    legend = re.findall(r"\x1b\[([\d;]+)m■", text)
    assert len(legend) == len(set(legend)) == 9
    assert set(re.findall(r"\x1b\[([\d;]+)m▆", text)) <= set(legend)


def test_colour_may_be_forced_where_the_environment_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b[" in render(blocking(), color=True)


def test_an_operation_name_cannot_move_the_cursor() -> None:
    operation = make_operation("\x1b[2Jevil\r\u202e", 40, 1.0, 1.0, 1.0, make_budget(busy=1.0))
    summary = make_summary(requests=RequestCounts(40, 0, 0, 0, 0), operations=(operation,))
    text = render(summary, color=False, ascii_only=False)
    assert "\\x1b[2Jevil \\u202e" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("environ", "stream", "colored"),
    [
        ({}, TERMINAL, True),
        ({}, PIPE, False),
        ({}, None, False),
        ({"NO_COLOR": "1"}, TERMINAL, False),
        ({"NO_COLOR": ""}, TERMINAL, True),
        ({"TERM": "dumb"}, TERMINAL, False),
        ({"CI": "true"}, TERMINAL, False),
        ({"CI": "false"}, TERMINAL, True),
        ({"FORCE_COLOR": "1"}, PIPE, True),
        ({"FORCE_COLOR": "0"}, PIPE, False),
        ({"CLICOLOR_FORCE": "1", "CI": "1"}, PIPE, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, TERMINAL, False),
    ],
)
def test_colour_follows_the_environment_and_then_the_stream(
    environ: dict[str, str], stream: Stream | None, colored: bool
) -> None:
    assert choose_color(stream, environ) is colored


@pytest.mark.parametrize(
    ("environ", "stream", "ascii_only"),
    [
        ({}, PIPE, False),
        ({}, None, True),
        ({}, Stream(terminal=True, encoding="ascii"), True),
        ({}, Stream(terminal=True, encoding="cp1252"), True),
        ({}, Stream(terminal=True, encoding="no-such-codec"), True),
        ({"TERM": "dumb"}, TERMINAL, True),
        ({"NO_COLOR": "1"}, TERMINAL, False),
        ({"CI": "true"}, PIPE, True),
        ({"CI": "true"}, TERMINAL, False),
    ],
)
def test_ascii_is_for_streams_that_cannot_take_more(
    environ: dict[str, str], stream: Stream | None, ascii_only: bool
) -> None:
    assert choose_ascii(stream, environ) is ascii_only


def test_a_closed_stream_gets_neither_colour_nor_a_guess_at_its_width() -> None:
    closed = io.StringIO()
    closed.close()
    assert choose_color(closed, {}) is False
    assert choose_width(closed) == 100


def test_width_is_that_of_the_terminal_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Stream(terminal=True)
    assert choose_width(terminal) == 100  # no file descriptor behind it
    monkeypatch.setattr(terminal, "fileno", lambda: 1)
    widths = []
    for columns in (0, 40, 72, 300):
        size = os.terminal_size((columns, 24))
        with monkeypatch.context() as patched:
            patched.setattr("os.get_terminal_size", lambda _, size=size: size)
            widths.append(choose_width(terminal))
    assert widths == [100, 60, 72, 120]
    assert choose_width(PIPE) == 100


def all_unknown() -> Summary:
    """Nothing that may be unknown is known, and nothing known is 0."""
    operation = make_operation(
        "search",
        40,
        None,
        None,
        None,
        make_budget(**dict.fromkeys(BUDGET_PARTS)),
        errors=1,
        cancelled=1,
        detached_ms=1.0,
    )
    operation = replace(operation, total_ms=Percentiles(None, None, None, None))
    pool = make_executor(
        "pool",
        pending_peak=1,
        wait_ms=WaitPercentiles(None, None),
        wait_max_ms=None,
        run_ms=None,
        return_ms=None,
        tokens_needed=None,
        max=None,
        at_limit_share=1.0,
        jobs=1,
    )
    return make_summary(
        probe_version="1.1.1",
        server=ServerInfo("s", "mcp", "2.3.1", "memory", "trio", "3.13.1"),
        window=Window(-1.0, 1.5),
        requests=RequestCounts(41, 1, 1, 1, 1),
        operations=(operation,),
        outstanding=Outstanding(1, None, 1, None),
        executors=(pool,),
        loop=LoopSummary(None, ArrivalDelay(None, None, None, None, None), "unavailable"),
        probe=ProbeSelf(None, 1, (), 42),
        signals=make_signals(),
        verdict=replace(blocking().verdict, sentence="nothing"),
    )


ZERO = re.compile(r"(?<![\w.,])<?0(?:\.0+)?(?![\d.,])")


@pytest.mark.parametrize("width", [60, 100, 160])
def test_what_is_unknown_is_never_printed_as_zero(width: int) -> None:
    text = render(all_unknown(), width=width, color=False, ascii_only=False)
    assert ZERO.findall(text) == []
    assert "None" not in text
    assert text.count("–") >= 6
    assert "– unavailable" in text
    assert ZERO.findall(render(blocking(), width=width, color=False)) != []  # the pattern does find zeros
