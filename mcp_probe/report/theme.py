"""How roles look and which characters draw; the only place that knows a colour."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from mcp_probe.report.blocks import Role

# Cool colours are work, warm ones are waiting inside the server, grey is the outside; mid-tones, so that
# they hold on dark and on light backgrounds. The second value serves terminals of 16 colours.
STYLES: dict[Role, tuple[str, str]] = {
    "plain": ("", ""),
    "dim": ("bright_black", "90"),
    "strong": ("bold", "1"),
    "title": ("bold", "1"),
    "name": ("bold", "1"),
    "place": ("#3b9bb3", "36"),
    "code": ("#3b9bb3", "36"),
    "good": ("bold #3fa35b", "1;32"),
    "info": ("bold #4f8fd9", "1;34"),
    "warn": ("bold #cf9a1b", "1;33"),
    "critical": ("bold #e5484d", "1;31"),
    "part-queue": ("#d7a021", "33"),
    "part-busy": ("#3d84e0", "34"),
    "part-ready": ("#e5484d", "31"),
    "part-wait": ("#ee8434", "35"),
    "part-run": ("#2ba597", "36"),
    "part-return": ("#d6589f", "95"),
    "part-await": ("#8b949e", "37"),
    "part-write": ("#9a6bea", "32"),
    "part-gc": ("#7c9a35", "93"),
    "part-rest": ("#57606a", "90"),
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
        return Glyphs(True, True, "++++", "-", "|", "...", "", "", "#", ".")
    if not color:
        return Glyphs(False, True, "╭╮╰╯", "─", "│", "…", "", "", "█", "░")
    return Glyphs(False, False, "╭╮╰╯", "─", "│", "…", "▆", "■", "━", "─")


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
