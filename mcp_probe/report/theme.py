"""How roles look and which characters draw; the only place that knows a colour."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from mcp_probe.report.blocks import Role


@dataclass(frozen=True, slots=True)
class Style:
    """``sixteen``: the SGR code of one of the 16 colours of the user's own palette. ``rgb``: where there are more."""

    sixteen: str = ""
    rgb: tuple[int, int, int] | None = None
    bold: bool = False


# Cool colours are work, warm ones are waiting inside the server, grey is the outside; mid-tones, so that
# they hold on dark and on light backgrounds.
STYLES: dict[Role, Style] = {
    "plain": Style(),
    "dim": Style("90", (0x80, 0x88, 0x92)),
    "strong": Style(bold=True),
    "title": Style(bold=True),
    "name": Style(bold=True),
    "place": Style("36", (0x3B, 0x9B, 0xB3)),
    "code": Style("36", (0x3B, 0x9B, 0xB3)),
    "good": Style("32", (0x3F, 0xA3, 0x5B), bold=True),
    "info": Style("34", (0x4F, 0x8F, 0xD9), bold=True),
    "warn": Style("33", (0xCF, 0x9A, 0x1B), bold=True),
    "critical": Style("31", (0xE5, 0x48, 0x4D), bold=True),
    "part-queue": Style("33", (0xD7, 0xA0, 0x21)),
    "part-busy": Style("34", (0x3D, 0x84, 0xE0)),
    "part-ready": Style("31", (0xE5, 0x48, 0x4D)),
    "part-wait": Style("35", (0xEE, 0x84, 0x34)),
    "part-run": Style("36", (0x2B, 0xA5, 0x97)),
    "part-return": Style("95", (0xD6, 0x58, 0x9F)),
    "part-await": Style("37", (0x8B, 0x94, 0x9E)),
    "part-write": Style("32", (0x9A, 0x6B, 0xEA)),
    "part-gc": Style("93", (0x7C, 0x9A, 0x35)),
    "part-rest": Style("90", (0x57, 0x60, 0x6A)),
}

ASCII_FOR = {
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "·": "|",
    "×": "x",
    "→": "->",
    "●": "**",
    "≥": ">=",
    "≤": "<=",
    "µ": "u",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "\u00a0": " ",
}


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters for one kind of output. ``letters``: bars are told apart by letters, not by colour."""

    ascii_only: bool
    letters: bool
    corners: str
    rule: str
    side: str
    ellipsis: str
    brick: str  # one cell of a stacked bar, where there is colour
    square: str  # a swatch of the legend, where there is colour
    filled: str
    empty: str
    little: str  # less than half a cell of ``filled``

    def text(self, words: str) -> str:
        """``words`` as they may be shown: control characters escaped, ASCII where nothing else is possible."""
        if words.isascii() and words.isprintable():
            return words
        shown = "".join(map(_printable, words))
        if not self.ascii_only:
            return shown
        replaced = "".join(ASCII_FOR.get(character, character) for character in shown)
        return replaced.encode("ascii", "backslashreplace").decode("ascii")


def glyphs(*, color: bool, ascii_only: bool) -> Glyphs:
    if ascii_only:
        return Glyphs(True, True, "++++", "-", "|", "...", "", "", "#", ".", ":")
    if not color:
        return Glyphs(False, True, "╭╮╰╯", "─", "│", "…", "", "", "█", "░", "▏")
    return Glyphs(False, False, "╭╮╰╯", "─", "│", "…", "▆", "■", "━", "─", "╸")


def cells(text: str) -> int:
    """Columns that ``text`` takes on a terminal."""
    return len(text) if text.isascii() else sum(map(character_cells, text))


def character_cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _printable(character: str) -> str:
    """Tool names come from strangers: nothing of theirs may move the cursor or turn the text around."""
    if character == "\u00a0" or character.isprintable():
        return character
    if character in "\t\n\r":
        return " "
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
