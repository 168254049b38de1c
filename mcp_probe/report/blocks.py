"""What a report is made of before it has a width: spans of text with a role, cells, grids, boxes, sections.

``content`` builds these, ``layout`` turns them into lines, ``paint`` colours the lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal[
    "plain",
    "dim",
    "strong",
    "title",
    "name",
    "place",
    "code",
    "good",
    "info",
    "warn",
    "critical",
    "part-queue",
    "part-busy",
    "part-ready",
    "part-wait",
    "part-run",
    "part-return",
    "part-await",
    "part-write",
    "part-gc",
    "part-rest",
]
"""What a piece of text is; ``theme`` says how it looks."""


@dataclass(frozen=True, slots=True)
class Span:
    """Text of one role. A ``swatch`` is one letter that becomes a coloured square where there is colour."""

    text: str
    role: Role = "plain"
    swatch: bool = False


Spans = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """A cell of text; when the column is narrower than the text, an ellipsis stands where ``shorten`` says."""

    spans: Spans
    shorten: Literal["start", "middle", "end"] = "end"


def words(text: str, role: Role = "plain") -> Words:
    """A cell of one piece of text."""
    return Words((Span(text, role),))


@dataclass(frozen=True, slots=True)
class Items:
    """A cell of several texts, most important first: as many as fit, and the first one in any case.

    ``mark`` stands before the first and is never shortened away.
    """

    items: tuple[Spans, ...]
    shorten: Literal["start", "middle", "end"] = "end"
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Stack:
    """A cell with one bar, divided: (role, letter, share); shares sum to at most 1."""

    parts: tuple[tuple[Role, str, float], ...]


@dataclass(frozen=True, slots=True)
class Gauge:
    """A cell with one bar, filled to ``share`` of its length; ``None`` draws no bar at all."""

    share: float | None
    role: Role
    track: bool = True  # whether the unfilled rest is drawn


Cell = Words | Items | Stack | Gauge


@dataclass(frozen=True, slots=True)
class Column:
    """``most`` is the widest the column ever gets (bars have no other width)."""

    title: str = ""
    right: bool = False
    most: int = 1_000
    gap: int = 2  # blanks before it


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Wrapped text. ``lead`` stands before the first line; the others are indented by its width."""

    spans: Spans
    lead: Spans = ()
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Flow:
    """Short items in a row with a separator between; broken between items only."""

    items: tuple[Spans, ...]
    separator: str = " · "
    lead: Spans = ()
    indent: int = 0
    right: Spans = ()  # at the right edge of the first line, if there is room


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows in columns. ``squeeze`` is followed, in order, until the grid fits: (column, floor); floor 0 drops it."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...] | Paragraph | Flow, ...]
    squeeze: tuple[tuple[int, int], ...]
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Box:
    """A frame over the whole width, for the one thing that must be read."""

    title: str
    aside: str
    role: Role
    body: tuple[Paragraph | Flow, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """Starts a section."""

    title: str
    aside: str = ""


Block = Heading | Box | Grid | Paragraph | Flow
