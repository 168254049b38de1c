"""The report's blocks as HTML: the same content as on the console, in the same words. Escapes all of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import isfinite

from mcp_probe.report.blocks import (
    Block,
    Box,
    Cell,
    Column,
    Flow,
    Gauge,
    Grid,
    Heading,
    Items,
    Paragraph,
    Role,
    Span,
    Spans,
    Stack,
    Words,
)
from mcp_probe.report.budget import PARTS
from mcp_probe.report.content import MARK_MEANINGS
from mcp_probe.report.figures import UNKNOWN, share
from mcp_probe.report.theme import glyphs

_GLYPHS = glyphs(color=True, ascii_only=False)
_MEANINGS = {text[0]: f"{text[2:]}, not exact" for _, text in MARK_MEANINGS if text[0] != "["}
_PART_NAMES = {part.role: part.name for part in PARTS}
_EXACT = "exact; percentiles are within 6.3 %"
_NUMBER = re.compile(r"\d")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:µs|ms|s|min|h|B|kB|MB|GB|TB)\b)")


def text_of(words: str) -> str:
    """``words`` as they may stand in a page: control characters shown as escapes, and nothing of it markup.

    A figure and its unit stay on one line.
    """
    return escape(_BEFORE_UNIT.sub("\u00a0", _GLYPHS.text(words)))


def plain(words: str) -> str:
    """The same for the page's data, which a script shows as text."""
    return _GLYPHS.text(words)


def markup(blocks: Iterable[Block]) -> str:
    """HTML of ``blocks``, one below the other."""
    return "\n".join(map(_block, blocks))


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        aside = f" <small>{text_of(block.aside)}</small>" if block.aside else ""
        return f"<h2>{text_of(block.title)}{aside}</h2>"
    if isinstance(block, Box):
        return (
            f'<div class="box {block.role}"><h2>{text_of(block.title)} <small>{text_of(block.aside)}</small></h2>'
            f"{markup(block.body)}</div>"
        )
    if isinstance(block, Grid):
        return _grid(block)
    return f"<p{_indent(block.indent)}>{_flowing(block)}</p>"


def _indent(columns: int) -> str:
    return f' style="padding-left:{min(columns, 4) * 0.45:g}em"' if columns else ""


def _flowing(block: Paragraph | Flow) -> str:
    if isinstance(block, Paragraph):
        return _spans(block.lead) + _spans(block.spans)
    return _spans(block.lead) + _items(block.items, "·" if block.separator.strip() else "") + _spans(block.right)


def _items(items: Sequence[Spans], separator: str = "") -> str:
    """A separator stays with what it follows, so that no line begins with one."""
    kind, after = ("item", f'<span class="dim sep">{separator}</span>') if separator else ("item gap", "")
    last = len(items) - 1
    return " ".join(
        f'<span class="{kind}">{_spans(item)}{after if at < last else ""}</span>' for at, item in enumerate(items)
    )


def _spans(spans: Spans) -> str:
    return "".join(map(_span, spans))


def _span(span: Span) -> str:
    if span.swatch:
        return f'<i class="swatch {span.role}"></i>'
    if span.role == "code":
        return f"<code>{text_of(span.text.strip('`'))}</code>"
    title = exactness(span.text)
    told = f' title="{title}"' if title else ""
    if span.role == "plain" and not title:
        return text_of(span.text)
    role = f"dot {span.role}" if span.role.startswith("part-") else span.role
    return f'<span class="{role}"{told}>{text_of(span.text)}</span>'


def exactness(text: str) -> str:
    """How exact the figure is that ``text`` begins with, by its mark; empty where it has none."""
    start = text.strip()[:1]
    if start == "[" and UNKNOWN in text and _NUMBER.search(text):
        return "lies between the two"
    return _MEANINGS.get(start, "")


# --- tables ---------------------------------------------------------------------------------------


def _grid(grid: Grid) -> str:
    head = ""
    if any(column.title for column in grid.columns):
        head = f"<thead><tr>{''.join(map(_head, grid.columns))}</tr></thead>"
    rows = "".join(_row(row, grid.columns) for row in grid.rows)
    return f'<div class="scroll" tabindex="0"><table>{head}<tbody>{rows}</tbody></table></div>'


def _head(column: Column) -> str:
    kind = ' class="right"' if column.right else ""
    return f'<th scope="col"{kind}>{text_of(column.title)}</th>' if column.title else f"<td{kind}></td>"


def _row(row: tuple[Cell, ...] | Paragraph | Flow, columns: tuple[Column, ...]) -> str:
    if isinstance(row, (Paragraph, Flow)):
        told = f'<td colspan="{len(columns)}"{_indent(row.indent)}><span>{_flowing(row)}</span></td>'
        return f'<tr class="under">{told}</tr>'
    cells = []
    for cell, column in zip(row, columns, strict=True):
        kind = ' class="right"' if column.right else ""
        cells.append(f"<td{kind}{_title(cell, column)}>{_cell(cell)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _title(cell: Cell, column: Column) -> str:
    """On hover: how exact a number is."""
    if not column.right or not isinstance(cell, Words):
        return ""
    text = "".join(span.text for span in cell.spans)
    if text == UNKNOWN:
        return ' title="could not be known; the notes say why"'
    if not _NUMBER.search(text):
        return ""
    return f' title="{exactness(text) or _EXACT}"'


def _cell(cell: Cell) -> str:
    if isinstance(cell, Words):
        return _spans(cell.spans)
    if isinstance(cell, Items):
        return text_of(cell.mark) + _items(cell.items)
    if isinstance(cell, Stack):
        told = ", ".join(f"{_PART_NAMES[role]} {share(ratio)}" for role, _, ratio in cell.parts if ratio > 0)
        return f'<div class="bar" role="img" aria-label="{text_of(told)}">{"".join(_bricks(cell))}</div>'
    return _gauge(cell)


def _bricks(stack: Stack) -> Iterator[str]:
    for role, _, ratio in stack.parts:
        if ratio > 0:
            title = f"{_PART_NAMES[role]} {share(ratio)}"
            yield f'<i class="{role}" style="width:{100 * min(ratio, 1):.2f}%" title="{text_of(title)}"></i>'


def _gauge(gauge: Gauge) -> str:
    if gauge.share is None or not isfinite(gauge.share):
        return ""
    return _bar(gauge.share, gauge.role, "bar" if gauge.track else "bar bare")


def _bar(ratio: float, role: Role, kind: str) -> str:
    return (
        f'<div class="{kind}" aria-hidden="true"><i class="{role}" style="width:{100 * min(ratio, 1):.1f}%"></i></div>'
    )
