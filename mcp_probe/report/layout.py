"""Blocks into lines no wider than asked. Knows widths and glyphs; knows nothing of profiling or colours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite

from mcp_probe.report.blocks import (
    Block,
    Box,
    Cell,
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
from mcp_probe.report.theme import Glyphs, cells, character_cells

NARROWEST = 60
"""Below this nothing is promised: narrower requests are laid out at this width."""

_ITEM_GAP = 2
_CODE = re.compile(r"`[^`]+`")
_UNIT = re.compile(r"(?<=[\d)\]]) (?=(?:ms|s|min|h|ns|B|kB|MB|GB|TB|calls?|requests?)\b)")


def lay_out(blocks: Iterable[Block], width: int, glyphs: Glyphs) -> tuple[Spans, ...]:
    """The whole report, line by line; every line at most ``width`` columns and without trailing blanks."""
    press = _Press(max(width, NARROWEST), glyphs)
    lines: list[Spans] = []
    for block in blocks:
        if lines and isinstance(block, (Heading, Box)):
            lines.append(())
        lines.extend(press.block(block))
    return tuple(_finished(line, press.width, glyphs) for line in lines)


@dataclass(frozen=True, slots=True)
class _Press:
    width: int
    glyphs: Glyphs

    def block(self, block: Block) -> Iterator[Spans]:
        if isinstance(block, Heading):
            yield self.heading(block)
        elif isinstance(block, Box):
            yield from self.box(block)
        elif isinstance(block, Grid):
            yield from self.grid(block)
        else:
            yield from self.text(block, self.width)

    def heading(self, block: Heading) -> Spans:
        title, aside = self.shown((Span(block.title, "title"),)), self.shown((Span(block.aside, "dim"),))
        rest = self.width - width_of(title) - 1
        if not block.aside or rest < width_of(aside) + 4:
            return (*title, Span(" " + self.glyphs.rule * max(rest, 0), "dim"))
        rule = self.glyphs.rule * (rest - width_of(aside) - 4)
        return (*title, Span(f" {rule} ", "dim"), *aside, Span(" " + self.glyphs.rule * 2, "dim"))

    def box(self, block: Box) -> Iterator[Spans]:
        side, corners, rule = self.glyphs.side, self.glyphs.corners, self.glyphs.rule
        inner = self.width - 4
        title = cut(self.shown((Span(block.title, block.role),)), inner - 4, "end", self.glyphs)
        aside = self.shown((Span(block.aside, block.role),)) if block.aside else ()
        left = inner + 2 - 1 - width_of(title) - 2
        if aside and left >= width_of(aside) + 4:
            tail = (Span(rule * (left - width_of(aside) - 3) + " ", block.role), *aside, Span(f" {rule}", block.role))
        else:
            tail = (Span(rule * left, block.role),)
        yield (
            Span(f"{corners[0]}{rule} ", block.role),
            *title,
            Span(" ", block.role),
            *tail,
            Span(corners[1], block.role),
        )
        for part in block.body:
            for line in self.text(part, inner):
                pad = Span(" " * (inner - width_of(line)))
                yield (Span(f"{side} ", block.role), *line, pad, Span(f" {side}", block.role))
        yield (Span(corners[2] + rule * (inner + 2) + corners[3], block.role),)

    def text(self, block: Paragraph | Flow, width: int) -> Iterator[Spans]:
        lead = self.shown(block.lead)
        indent = min(block.indent, width // 4)
        room = width - indent - width_of(lead)
        lines = list(self.flow(block, room)) if isinstance(block, Flow) else wrap(self.shown(block.spans), room)
        for number, line in enumerate(lines):
            before = lead if number == 0 else (Span(" " * width_of(lead)),)
            yield (Span(" " * indent), *before, *line)

    def flow(self, block: Flow, room: int) -> Iterator[Spans]:
        separator = (Span(self.glyphs.text(block.separator), "dim"),)
        right = self.shown(block.right)
        line: Spans = ()
        limit = room
        for item in filter(None, block.items):
            shown = self.shown(item)
            if line and width_of(line) + width_of(separator) + width_of(shown) > limit:
                yield self.with_right(line, right, room)
                line, right = (), ()
            if line:
                line = (*line, *separator, *shown)
            elif width_of(shown) > room:
                *whole, line = wrap(shown, room)
                yield from whole
            else:
                line = shown
        if line:
            yield self.with_right(line, right, room)

    def with_right(self, line: Spans, right: Spans, room: int) -> Spans:
        free = room - width_of(line) - width_of(right)
        return (*line, Span(" " * free), *right) if right and free >= 2 else line

    def grid(self, block: Grid) -> Iterator[Spans]:
        rows = [row for row in block.rows if isinstance(row, tuple)]
        widths = self.column_widths(block, rows)
        if any(column.title and width for column, width in zip(block.columns, widths, strict=True)):
            yield self.titles(block, widths)
        for row in block.rows:
            if isinstance(row, tuple):
                yield self.row(block, row, widths)
            else:
                yield from self.text(row, self.width)

    def titles(self, block: Grid, widths: Sequence[int]) -> Spans:
        """The row above the rows; a title may run on over columns to its right that have none."""
        line = " " * block.indent
        start = len(line)
        for column, width in zip(block.columns, widths, strict=True):
            if not width:
                continue
            title = self.glyphs.text(column.title)
            start += column.gap
            if title:
                line = line.ljust(start) + (title.rjust(width) if column.right else title)
            start += width
        return (Span(line, "dim"),)

    def column_widths(self, block: Grid, rows: Sequence[Sequence[Cell]]) -> list[int]:
        """Natural widths, then squeezed step by step until the row fits; a dropped column has width 0.

        Dropping a column may free more than was needed: that goes back to those squeezed last.
        """
        widths = []
        for index, column in enumerate(block.columns):
            bar = any(isinstance(row[index], (Stack, Gauge)) for row in rows)
            widest = max((self.natural(row[index], column.most) for row in rows), default=0)
            widths.append(column.most if bar else min(max(widest, cells(column.title)), column.most))

        def excess() -> int:
            taken = sum(width + column.gap for width, column in zip(widths, block.columns, strict=True) if width)
            return block.indent + taken - self.width

        whole = tuple(widths)
        for index, floor in block.squeeze:
            over = excess()
            if over <= 0:
                break
            if widths[index] > floor:
                widths[index] = 0 if floor == 0 else max(floor, widths[index] - over)
        for index, _ in reversed(block.squeeze):
            if widths[index] and excess() < 0:
                widths[index] = min(whole[index], widths[index] - excess())
        return widths

    def natural(self, cell: Cell, most: int) -> int:
        if isinstance(cell, Words):
            return width_of(self.shown(cell.spans))
        if isinstance(cell, Items):
            sizes = [width_of(self.shown(item)) for item in cell.items]
            return cells(self.glyphs.text(cell.mark)) + sum(sizes) + _ITEM_GAP * max(len(sizes) - 1, 0)
        return most

    def row(self, block: Grid, row: Sequence[Cell], widths: Sequence[int]) -> Spans:
        line: list[Span] = [Span(" " * block.indent)]
        for cell, column, width in zip(row, block.columns, widths, strict=True):
            if not width:
                continue
            content = self.cell(cell, width)
            pad = Span(" " * (width - width_of(content)))
            line.append(Span(" " * column.gap))
            line.extend((pad, *content) if column.right else (*content, pad))
        return tuple(line)

    def cell(self, cell: Cell, width: int) -> Spans:
        if isinstance(cell, Words):
            return cut(self.shown(cell.spans), width, cell.shorten, self.glyphs)
        if isinstance(cell, Items):
            return self.items(cell, width)
        if isinstance(cell, Stack):
            return self.stack(cell, width)
        return self.gauge(cell, width)

    def items(self, cell: Items, width: int) -> Spans:
        if not cell.items:
            return ()
        first = self.shown(cell.items[0])
        mark = self.shown((Span(cell.mark, first[0].role),)) if cell.mark and first else ()
        line = (*mark, *cut(first, max(width - width_of(mark), 1), cell.shorten, self.glyphs))
        for item in cell.items[1:]:
            shown = self.shown(item)
            if width_of(line) + _ITEM_GAP + width_of(shown) > width:
                break
            line = (*line, Span(" " * _ITEM_GAP), *shown)
        return line

    def stack(self, cell: Stack, width: int) -> Spans:
        room = width - 2 if self.glyphs.letters else width
        counts = apportion([share for _, _, share in cell.parts], room)
        bar = tuple(
            Span((letter if self.glyphs.letters else self.glyphs.brick) * count, role)
            for (role, letter, _), count in zip(cell.parts, counts, strict=True)
            if count
        )
        if not self.glyphs.letters:
            return bar
        rest = Span(" " * (room - sum(counts)))
        return (Span("|", "dim"), *bar, rest, Span("|", "dim"))

    def gauge(self, cell: Gauge, width: int) -> Spans:
        if cell.share is None or not isfinite(cell.share):
            return ()
        share = min(max(cell.share, 0.0), 1.0)
        room = width - 2 if self.glyphs.ascii_only and cell.track else width
        if not cell.track:
            little = self.glyphs.little if share > 0 else ""
            return (Span(self.glyphs.filled * round(share * room) or little, cell.role),)
        filled = max(round(share * room), 1 if share > 0 else 0)
        bar = Span(self.glyphs.filled * filled, cell.role)
        empty = Span(self.glyphs.empty * (room - filled), "dim")
        return (Span("[", "dim"), bar, empty, Span("]", "dim")) if self.glyphs.ascii_only else (bar, empty)

    def shown(self, spans: Spans) -> Spans:
        return tuple(
            Span(
                self.glyphs.square if span.swatch and not self.glyphs.letters else self.glyphs.text(span.text),
                span.role,
            )
            for span in spans
        )


def width_of(spans: Spans) -> int:
    return sum(cells(span.text) for span in spans)


def apportion(shares: Sequence[float], room: int) -> list[int]:
    """Whole cells per share; the counts sum to ``room`` when the shares sum to 1, and 3 % is never invisible."""
    exact = [share * room if isfinite(share) and share > 0 else 0.0 for share in shares]
    counts = [int(part) for part in exact]
    order = sorted(range(len(exact)), key=lambda index: counts[index] - exact[index])
    for index in order[: max(round(sum(exact)) - sum(counts), 0)]:
        counts[index] += 1
    for index, share in enumerate(shares):
        if share >= 0.03 and not counts[index]:
            largest = max(range(len(counts)), key=counts.__getitem__)
            if counts[largest] > 1:
                counts[largest] -= 1
                counts[index] = 1
    return counts


def cut(spans: Spans, width: int, where: str, glyphs: Glyphs) -> Spans:
    """At most ``width`` columns of ``spans``, with an ellipsis at the start, in the middle or at the end."""
    if width_of(spans) <= width:
        return spans
    letters = [(character, span.role) for span in spans for character in span.text]
    room = width - cells(glyphs.ellipsis)
    if room <= 0:
        return _joined(_taken(letters, width))
    head_room = {"start": 0, "middle": (room + 1) // 2, "end": room}[where]
    head = _taken(letters, head_room)
    tail = _taken(letters[::-1], room - sum(character_cells(character) for character, _ in head))[::-1]
    gap_role: Role = head[-1][1] if head else letters[0][1]
    return _joined([*head, (glyphs.ellipsis, gap_role), *(tail if where != "end" else [])])


def wrap(spans: Spans, width: int) -> list[Spans]:
    """Lines of at most ``width`` columns, broken at blanks, but not between a number and its unit or inside `code`.

    What is longer than a line is broken behind a dot or a slash, if there is one after its first third.
    """
    lines: list[Spans] = []
    line: Spans = ()
    for word in _words(spans, width):
        gap = 1 if line else 0
        if width_of(line) + gap + width_of(word) > width and line:
            lines.append(line)
            line, gap = (), 0
        while width_of(word) > width:
            letters = [(character, span.role) for span in word for character in span.text]
            head = _at_a_joint(_taken(letters, width))
            lines.append(_joined(head))
            word = _joined(letters[len(head) :])
        blank = Span(" ", line[-1].role if line[-1].role == word[0].role else "plain") if gap and word else None
        line = (*line, blank, *word) if blank else (*line, *word)
    return [*lines, line] if line or not lines else lines


def _words(spans: Spans, width: int) -> Iterator[Spans]:
    """Splits at blanks across spans: a word may change its role in the middle. Code that fits a line stays whole."""

    def whole(code: re.Match[str]) -> str:
        return code.group().replace(" ", "\u00a0") if cells(code.group()) <= width else code.group()

    text = _CODE.sub(whole, _UNIT.sub("\u00a0", "".join(span.text for span in spans)))
    roles = [span.role for span in spans for _ in span.text]
    for match in re.finditer(r"[^ ]+", text):
        yield _joined(list(zip(match.group(), roles[match.start() : match.end()], strict=True)))


def _taken(letters: Sequence[tuple[str, Role]], width: int) -> list[tuple[str, Role]]:
    taken: list[tuple[str, Role]] = []
    used = 0
    for character, role in letters:
        used += character_cells(character)
        if used > width:
            break
        taken.append((character, role))
    return taken


def _at_a_joint(letters: list[tuple[str, Role]]) -> list[tuple[str, Role]]:
    joints = [at for at, (character, _) in enumerate(letters, 1) if character in "./"]
    return letters[: joints[-1]] if joints and 3 * joints[-1] > len(letters) else letters


def _joined(letters: Sequence[tuple[str, Role]]) -> Spans:
    return tuple(
        Span("".join(character for character, _ in run), role)
        for role, run in groupby(letters, key=lambda each: each[1])
    )


def _finished(line: Spans, width: int, glyphs: Glyphs) -> Spans:
    """Without trailing blanks; what still is too wide (a row of absurd numbers) is cut."""
    spans = [Span(span.text.replace("\u00a0", " "), span.role) for span in cut(line, width, "end", glyphs)]
    while spans and not spans[-1].text.rstrip():
        spans.pop()
    if spans:
        spans[-1] = Span(spans[-1].text.rstrip(), spans[-1].role)
    return tuple(span for span in spans if span.text)
