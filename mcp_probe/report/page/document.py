"""One file of HTML around any page of ours: head, style, header, and the one script that its policy lets run.

Nothing else is loaded, and nothing of the content can end the element that it stands in.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any

from mcp_probe.report.blocks import Block, Heading
from mcp_probe.report.page.markup import markup, text_of
from mcp_probe.report.theme import STYLES

_UNSAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page that its header leads to. ``title`` is for the header only; empty: it is not there."""

    name: str
    title: str
    html: str


def document(title: str, body: str, sections: Iterable[Section], *, parts: Sequence[str] = ()) -> str:
    """The whole file. ``parts`` names what the page uses beside ``look``: NAME.css and NAME.js beside this module."""
    wanted = ("look", *parts)
    script = "".join(read(f"{name}.js") for name in wanted if _is_there(f"{name}.js"))
    links = "".join(
        f'<a href="#{text_of(section.name)}">{text_of(section.title)}</a>' for section in sections if section.title
    )
    return Template(read("page.html")).substitute(
        title=text_of(f"{title} · mcp-probe"),
        hash=b64encode(sha256(script.encode()).digest()).decode(),
        style="".join(read(f"{name}.css") for name in wanted if _is_there(f"{name}.css")) + _colours(),
        links=links,
        body=body,
        script=script,
    )


def markup_of(sections: Iterable[Section], prefix: str = "") -> str:
    """The sections below each other; those without content are left out."""
    return "\n".join(
        f'<section id="{prefix}{section.name}" class="{section.name}" data-title="{text_of(section.title)}">'
        f"{section.html}</section>"
        for section in sections
        if section.html
    )


def headed(blocks: Iterable[Block], charts: Mapping[str, str] | None = None) -> list[Section]:
    """``blocks`` as sections, each with its heading. ``charts`` are put below the first one of that title.

    What stands before the first heading is a section of its own, which the header does not lead to.
    """
    charts = dict(charts or {})
    groups: list[tuple[str, list[Block]]] = [("", [])]
    for block in blocks:
        if isinstance(block, Heading):
            groups.append((block.title, []))
        groups[-1][1].append(block)
    return [
        Section(f"s{at}", title, markup(found) + charts.pop(title, ""))
        for at, (title, found) in enumerate(groups)
        if found
    ]


def page_of(title: str, sections: Sequence[Section]) -> str:
    """A whole file of nothing but ``sections``."""
    return document(title, f'<h1 class="hidden">{text_of(title)}</h1>\n{markup_of(sections)}', sections)


def read(name: str) -> str:
    """A file of the page beside this module."""
    return files("mcp_probe.report.page").joinpath(name).read_text("utf-8")


def _is_there(name: str) -> bool:
    return files("mcp_probe.report.page").joinpath(name).is_file()


def as_json(data: Any) -> str:
    """JSON that may stand in a ``script`` element: it holds no character that markup is made of."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).translate(_UNSAFE)


def _colours() -> str:
    """Fills of the budget's parts, as on the console."""
    parts = {role: style.rgb for role, style in STYLES.items() if role.startswith("part-") and style.rgb}
    return "".join(
        f"i.{role},.{role}::before{{background:{colour}}}.{role}{{fill:{colour}}}"
        for role, rgb in parts.items()
        for colour in ("#{:02x}{:02x}{:02x}".format(*rgb),)
    )
