"""Writes docs/compatibility.md, the one page of what was run where. Each `make` target has one section of it.

A target calls `write("matrix", lines)`; the other sections stay as their last runs left them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"

INTRODUCTION = """# Where it was run

This page is written by the runs that it tells of (`tools/compatibility.py`). No line of it is typed by hand.
A cell that could not be run is listed with the reason.
"""

SECTIONS = {
    "matrix": ("Interpreters, processors, loops and SDKs", "make matrix"),
    "looks": ("Recordings, the live view and the flight recorder", "make looks"),
    "wheels": ("Wheels", "make wheels"),
    "field": ("Real servers beside their client", "make field"),
    "waiting": ("What clients waited, by their clocks and by the report", "make waiting"),
    "suites": ("Suites of other projects", "make suites"),
    "canary": ("Upstream of tomorrow", "make canary"),
}
"""By target: the heading, and the command that fills the section. Their order is the page's."""


def write(section: str, lines: Iterable[str], page: Path = PAGE) -> None:
    """Put ``lines`` of Markdown into ``section`` of the page, in the place of what an earlier run wrote there.

    Raises:
        KeyError: No such section is declared in SECTIONS.
    """
    SECTIONS[section]
    kept = _sections_of(page.read_text("utf-8") if page.exists() else "")
    kept[section] = "\n".join(lines).strip()
    parts = [INTRODUCTION]
    for name, (heading, command) in SECTIONS.items():
        body = kept.get(name) or f"Not run yet: `{command}`."
        parts.append(f"## {heading}\n\n<!-- {name} -->\n{body}\n<!-- /{name} -->\n")
    page.write_text("\n".join(parts), "utf-8")


def rows(section: str, page: Path = PAGE) -> list[list[str]]:
    """The cells of the table that stands in ``section``, without its heads; nothing where no run has written it."""
    text = _sections_of(page.read_text("utf-8") if page.exists() else "").get(section, "")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:])
    return [[cell.replace("\\|", "|") for cell in row] for row in cells]


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table; a bar inside a cell is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in lines]


def _escaped(cell: object) -> str:
    return str(cell).replace("|", "\\|").replace("\n", " ")


def _sections_of(text: str) -> dict[str, str]:
    found = re.findall(r"<!-- (\w+) -->\n(.*?)\n<!-- /\1 -->", text, flags=re.DOTALL)
    return {name: body for name, body in found if name in SECTIONS}
