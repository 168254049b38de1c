"""Paints lines with ANSI codes: in no colour, in the 16 colours that every terminal has, in 256, or in all of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import Literal

from mcp_probe.report.blocks import Role, Spans
from mcp_probe.report.theme import STYLES

Depth = Literal["none", "16", "256", "truecolor"]
"""How many colours the reader can see."""

_CUBE = (0, 95, 135, 175, 215, 255)
"""The levels of red, green and blue among the 256 colours, numbers 16 to 231. Source: xterm's 256colres.pl."""
_GREYS = tuple(range(8, 239, 10))
"""Numbers 232 to 255."""


def paint(lines: Iterable[Spans], depth: Depth) -> str:
    """One string, a newline after every line. Every line closes what it opens."""
    return "".join(f"{_line(spans, depth)}\n" for spans in lines)


def _line(spans: Spans, depth: Depth) -> str:
    painted = []
    for role, run in groupby(spans, key=lambda span: span.role):
        text = "".join(span.text for span in run)
        code = code_of(role, depth) if text.strip() else ""
        painted.append(f"\x1b[{code}m{text}\x1b[0m" if code else text)
    return "".join(painted)


@cache
def code_of(role: Role, depth: Depth) -> str:
    """The parameters of the SGR sequence that starts ``role``; empty where it looks like plain text."""
    style = STYLES[role]
    if depth == "none":
        return ""
    color = style.sixteen
    if style.rgb and depth != "16":
        red, green, blue = style.rgb
        color = f"38;2;{red};{green};{blue}" if depth == "truecolor" else f"38;5;{_nearest(style.rgb)}"
    return ";".join(part for part in ("1" if style.bold else "", color) if part)


def _nearest(rgb: tuple[int, int, int]) -> int:
    """The number of the colour that comes nearest, of the cube's and the greys."""

    def distance(level: tuple[int, int, int]) -> int:
        return sum((ours - theirs) ** 2 for ours, theirs in zip(rgb, level, strict=True))

    red, green, blue = (min(range(6), key=lambda step: abs(_CUBE[step] - value)) for value in rgb)
    grey = min(range(len(_GREYS)), key=lambda step: distance((_GREYS[step],) * 3))
    if distance((_GREYS[grey],) * 3) < distance((_CUBE[red], _CUBE[green], _CUBE[blue])):
        return 232 + grey
    return 16 + 36 * red + 6 * green + blue
