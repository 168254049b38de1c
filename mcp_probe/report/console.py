"""The report on a terminal, in a log or in a pipe: chooses width, colour and characters, then paints."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from mcp_probe.model import Summary
from mcp_probe.report.blocks import Block
from mcp_probe.report.content import build
from mcp_probe.report.layout import NARROWEST, lay_out
from mcp_probe.report.paint import Depth, paint
from mcp_probe.report.places import working_directory
from mcp_probe.report.theme import glyphs

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
    whole: bool = False,
) -> str:
    """The report as text, every line at most ``width`` columns and ended by a newline.

    Args:
        width: columns, at least 60; ``None`` takes those of ``stream``, 100 where it has none.
        color: ``None`` decides by ``stream`` and the environment.
        ascii_only: ``None`` decides by ``stream`` and the environment.
        stream: where the text will be written; by default stderr. Nothing is written here.
        whole: also the tables in which nothing is wrong and nobody waited.
    """
    target = sys.stderr if stream is None else stream
    blocks = build(summary, cwd=working_directory(), whole=whole)
    return draw(blocks, target, width=width, color=color, ascii_only=ascii_only)


def draw(
    blocks: Iterable[Block],
    stream: TextIO,
    *,
    width: int | None = None,
    color: bool | None = None,
    ascii_only: bool | None = None,
) -> str:
    """``blocks`` as text for ``stream``; the options are those of :func:`render`. Nothing is written here."""
    colored = choose_color(stream, os.environ) if color is None else color
    bare = choose_ascii(stream, os.environ) if ascii_only is None else ascii_only
    columns = choose_width(stream) if width is None else width
    lines = lay_out(blocks, columns, glyphs(color=colored, ascii_only=bare))
    return paint(lines, choose_depth(os.environ) if colored else "none")


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


def choose_depth(environ: Mapping[str, str]) -> Depth:
    """How many colours a terminal that gets some can show, by COLORTERM and TERM; 16 where they do not say."""
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    term = environ.get("TERM", "")
    if term.endswith("-direct"):
        return "truecolor"
    return "256" if "256color" in term else "16"


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() not in ("", "0", "false", "no")


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
