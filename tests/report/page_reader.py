"""Pages of ours, read as a browser would: elements, text and scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

from mcp_probe.report.blocks import Block
from mcp_probe.report.layout import lay_out
from mcp_probe.report.theme import glyphs

NO_BREAK = "\u00a0"


class Reader(HTMLParser):
    """A page's elements, its text outside script and style, and its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.source = page
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value and value.replace(NO_BREAK, " ") for key, value in attrs}))
        if tag in ("script", "style"):
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif not self._inside:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def data(self) -> dict[str, Any]:
        """Of the first process."""
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


def squeezed(text: str) -> str:
    """Without blanks and what only one of the outputs has."""
    return re.sub(r"[\s·`│╭╮╰╯─━▆■]", "", text)


def missing(blocks: Iterable[Block], text: str) -> list[str]:
    """What a terminal shows of ``blocks`` and ``text`` has not."""
    shown = squeezed(text)
    found = []
    for line in lay_out(blocks, 2000, glyphs(color=True, ascii_only=False)):
        for piece in re.split(r"\s{2,}|\s·\s", "".join(span.text for span in line)):
            if re.search(r"\w", piece) and squeezed(piece) not in shown:
                found.append(piece)
    return found
