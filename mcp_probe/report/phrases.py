"""Small texts as spans, and the order and number of rows: what every section needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mcp_probe.report.blocks import Role, Span, Spans, Words
from mcp_probe.report.figures import UNKNOWN

NO_BREAK = "\u00a0"
_LONGEST_UNBROKEN = 40  # longer code may be broken at its blanks

Row = TypeVar("Row")


def one(text: str, role: Role) -> Spans:
    return (Span(text, role),) if text else ()


def prose(text: str, role: Role = "plain") -> Spans:
    """A sentence in which `backticks` mark code; they stay, since not every output has colour."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return one(text, role)
    spans = [Span(_unbroken(piece), "code") if odd % 2 else Span(piece, role) for odd, piece in enumerate(pieces)]
    return tuple(span for span in spans if span.text)


def _unbroken(code: str) -> str:
    return f"`{code.replace(' ', NO_BREAK) if len(code) <= _LONGEST_UNBROKEN else code}`"


def number(text: str, role: Role = "plain") -> Words:
    return Words(one(text, "dim" if text == UNKNOWN else role))


def rank(value: float) -> float:
    """A sort key that no NaN can spoil."""
    return value if value == value else 0.0


def first(rows: Sequence[Row], most: int) -> tuple[Sequence[Row], Sequence[Row]]:
    """The rows to show and the rest; a single leftover is shown, since saying so takes as much room."""
    return (rows, ()) if len(rows) <= most + 1 else (rows[:most], rows[most:])
