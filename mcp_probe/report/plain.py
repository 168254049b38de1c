"""Paints lines with nothing but the standard library: bare text, or the sixteen colours every terminal has."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_probe.report.blocks import Spans
from mcp_probe.report.theme import STYLES


def paint(lines: Iterable[Spans], *, color: bool) -> str:
    """One string, a newline after every line."""
    return "".join(f"{_line(spans, color)}\n" for spans in lines)


def _line(spans: Spans, color: bool) -> str:
    if not color:
        return "".join(span.text for span in spans)
    return "".join(
        f"\x1b[{code}m{span.text}\x1b[0m" if (code := STYLES[span.role][1]) and span.text.strip() else span.text
        for span in spans
    )
