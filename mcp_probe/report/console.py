"""The report on a terminal, in a log or in a pipe: chooses width, colour and characters, then paints."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from io import StringIO
from typing import Literal, TextIO

from mcp_probe.model import Summary
from mcp_probe.report import plain
from mcp_probe.report.blocks import Spans
from mcp_probe.report.content import build
from mcp_probe.report.layout import NARROWEST, lay_out
from mcp_probe.report.theme import STYLES, glyphs

DEFAULT_WIDTH = 100
WIDEST = 120  # of a terminal: beyond this, rows get too long for the eye to follow
_DRAWN_WITH = "╭─│█░▆━■●…–≥≤×→"


def render(
    summary: Summary,
    *,
    width: int | None = DEFAULT_WIDTH,
    color: bool | None = None,
    ascii_only: bool | None = None,
    stream: TextIO | None = None,
) -> str:
    """The report as text, every line at most ``width`` columns and ended by a newline.

    Args:
        width: columns, at least 60; ``None`` takes those of ``stream``, 100 where it has none.
        color: ``None`` decides by ``stream`` and the environment.
        ascii_only: ``None`` decides by ``stream`` and the environment.
        stream: where the text will be written; by default stderr. Nothing is written here.
    """
    target = sys.stderr if stream is None else stream
    colored = choose_color(target, os.environ) if color is None else color
    bare = choose_ascii(target, os.environ) if ascii_only is None else ascii_only
    columns = choose_width(target) if width is None else width
    lines = lay_out(build(summary, cwd=_working_directory()), columns, glyphs(color=colored, ascii_only=bare))
    return _paint(lines) if colored else plain.paint(lines, color=False)


def choose_color(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Whether ``stream`` should get colours; NO_COLOR wins over FORCE_COLOR, either over what the stream is."""
    if environ.get("NO_COLOR"):
        return False
    if _is_set(environ, "FORCE_COLOR") or _is_set(environ, "CLICOLOR_FORCE"):
        return True
    if environ.get("TERM") == "dumb" or _is_set(environ, "CI"):
        return False
    return _is_terminal(stream)


def choose_ascii(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Whether ``stream`` may get ASCII only: its encoding has no box characters, a CI log, a dumb terminal."""
    try:
        _DRAWN_WITH.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    if environ.get("TERM") == "dumb":
        return True
    return _is_set(environ, "CI") and not _is_terminal(stream)


def choose_width(stream: TextIO | None) -> int:
    """Columns of the terminal behind ``stream``, between 60 and 120; 100 where there is no terminal."""
    if stream is None or not _is_terminal(stream):
        return DEFAULT_WIDTH
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return DEFAULT_WIDTH
    return min(max(columns, NARROWEST), WIDEST) if columns else DEFAULT_WIDTH


def _paint(lines: tuple[Spans, ...]) -> str:
    """In the finest colours the terminal has; with sixteen, or without rich, ours are told apart better."""
    system = _color_system(os.environ)
    if system is None:
        return plain.paint(lines, color=True)
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return plain.paint(lines, color=True)
    paper = StringIO()
    console = Console(
        file=paper, force_terminal=True, color_system=system, no_color=False, legacy_windows=False, highlight=False
    )
    for spans in lines:
        console.print(Text.assemble(*((span.text, STYLES[span.role][0]) for span in spans)), soft_wrap=True)
    return paper.getvalue()


def _color_system(environ: Mapping[str, str]) -> Literal["truecolor", "256"] | None:
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256color" in environ.get("TERM", "") else None


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() not in ("", "0", "false", "no")


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # deleted under us
        return "/"
