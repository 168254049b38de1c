"""The leak hunt: which operation's calls keep memory that grows with them, where it was allocated, and what it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcp_probe.model import Growth, GrowthLine, GrowthType, LeakHunt, ProcessGrowth, Summary
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Cell, Column, Flow, Grid, Heading, Paragraph, Role, Span, Spans, Words
from mcp_probe.report.figures import UNKNOWN, Notation, plural, quantity
from mcp_probe.report.phrases import first, number, one, prose
from mcp_probe.report.places import place
from mcp_probe.report.sections.memory import source

LEAK_ROWS = 10
SITES = 4
WHOLE = 0.9  # of the calls: a look that had the time for all leaves out a sixteenth
SHOWN = 0.1  # of what the first line allocated: below, a line is left to the JSON summary
VERDICTS: dict[str, tuple[str, Role]] = {
    "grows": ("grows", "critical"),
    "steady": ("steady", "good"),
    "unknown": ("not known", "dim"),
}


def leaks(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    """Only with ``memory="leaks"``."""
    hunt = summary.leaks
    if hunt is None:
        return
    shown, hidden = first(hunt.operations, LEAK_ROWS)
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = []
    for row in shown:
        rows.append(_row(row, notation))
        if row.verdict == "grows":
            rows += _sites(row.lines, row.types, cwd, row)
    if hidden:
        rows.append(Paragraph(one(f"+{plural(len(hidden), 'more operation', 'more operations')}", "dim"), indent=1))
    yield Heading("Leaks", "what ended calls still hold, after a full collection")
    yield Grid(
        columns=(
            Column("operation", gap=1, most=36),
            Column("memory"),
            Column("growth per call", right=True, most=20),
            Column("held by all", right=True, most=16),
            Column("calls", right=True),
        ),
        rows=tuple(rows),
        squeeze=((0, 16), (3, 0), (0, 10)),
    )
    yield from _process(hunt, cwd)


def _row(row: Growth, notation: Notation) -> tuple[Cell, ...]:
    text, role = VERDICTS[row.verdict]
    grows = row.verdict == "grows"
    if row.verdict == "unknown":
        notation.missing("growth", "fewer than 50 calls, or too few looks at them", row.name)
    return (
        Words(one(row.name, "name"), "middle"),
        Words(one(text, role)),
        # What a healthy call keeps is the share of the latest ones in a cache, and no rate.
        number(notation.size(row.bytes_per_call, row.quality), "critical") if grows else number(_below(row), "dim"),
        number(figures.size(row.held_bytes) if row.held_bytes else UNKNOWN if row.verdict == "unknown" else "0 B"),
        number(quantity(row.calls)),
    )


def _below(row: Growth) -> str:
    return "" if row.floor_bytes is None else f"<{figures.size(row.floor_bytes)}"


def _sites(
    lines: Sequence[GrowthLine], types: Sequence[GrowthType], cwd: str, row: Growth | None = None
) -> Iterator[Paragraph | Flow]:
    for line in lines[:SITES]:
        if line.bytes < SHOWN * lines[0].bytes:
            break
        function = f"  {line.function}()" if line.function else ""
        blocks = f"{figures.size(line.bytes)} in {plural(line.blocks, 'block')}"
        spans: Spans = (
            Span(place(line.file, line.line, cwd) or UNKNOWN, "place"),
            Span(function, "dim"),
            Span(f"  {blocks}", "plain"),
        )
        yield Paragraph(spans, lead=one("allocated at ", "dim"), indent=3)
    told = [one(_type(found), "plain") for found in types[:SITES]]
    if told:
        yield Flow(tuple(told), lead=one("of type ", "dim"), indent=3)
    note = _of_look(row) if row is not None and (lines or told) else ""
    if note:
        yield Paragraph(one(note, "dim"), indent=3)


def _of_look(row: Growth) -> str:
    """How much the look for the lines has seen; empty if it has seen all calls but the first sixteenth."""
    calls, seen = row.looked_at_calls, row.seen_calls
    if calls is None:
        return ""
    notes = [f"lines and types as of {plural(calls, 'call')}, the latest look for them"] if calls < row.calls else []
    if seen is not None and seen < WHOLE * calls:
        few = f"{plural(seen, 'call')}, evenly chosen" if seen else "some blocks only"
        notes.append(f"lines of {few}: there was no time for more")
    return "; ".join(notes)


def _type(found: GrowthType) -> str:
    text = f"{quantity(found.objects)} {found.name}"
    if found.bytes is not None:
        text += f" {figures.size(found.bytes)}"
    if found.each_bytes is not None:
        text += f" ({figures.size(found.each_bytes)} each, with what it refers to)"
    return text


_FLOOR = (
    "<N: a leak of fewer bytes a call could not have been told from noise in this run; of small objects that Python "
    "reuses, one of up to three times as many."
)


def _slower(hunt: LeakHunt) -> str:
    times = "Do not judge the server's times by this run: "
    if not hunt.are_lines_known:
        return f"{times}the hunt's collections and looks slow it down."
    if hunt.tracing_factor is None:
        return f"{times}the hunt and its tracing slow it down."
    factor = f"{hunt.tracing_factor:.0f}" if hunt.tracing_factor >= 10 else f"{hunt.tracing_factor:.1f}"
    return f"{times}allocating an object took {factor} times as long when tracing began."


_PARTS = {"nobody": "owned by nobody", "native": "of native code"}


def _whole(process: ProcessGrowth) -> Iterator[Block]:
    """What the process grew by, part by part: they add up."""
    grew = f"{_signed(process.resident_bytes)} in {plural(process.calls, 'call')}"
    items = [one(f"{_signed(process.owned_bytes)} owned by calls", "plain")]
    for part in process.remainders:
        text, role = VERDICTS[part.verdict]
        each = ""
        if part.verdict == "grows" and part.bytes_per_call is not None:
            each = f" ~{figures.size(part.bytes_per_call)} a call"
        size = UNKNOWN if part.bytes is None else _signed(part.bytes)
        items.append((Span(f"{size} {_PARTS[part.kind]} ", "plain"), Span(f"({text}{each})", role)))
    yield Flow(tuple(items), lead=one(f"process, from the first look to the last: {grew} = ", "dim"), indent=1)


def _signed(size: int) -> str:
    return f"+{figures.size(size)}" if size >= 0 else f"-{figures.size(-size)}"


def _process(hunt: LeakHunt, cwd: str) -> Iterator[Block]:
    if hunt.lines or hunt.types:
        yield Paragraph(one("Grew in the process, operation not known:", "dim"), indent=1)
        yield from _sites(hunt.lines, hunt.types, cwd)
    if hunt.process is not None:
        yield from _whole(hunt.process)
    scopes = dict.fromkeys((row.how, row.scope) for row in hunt.operations)
    items = [one(source(how, scope), "dim") for how, scope in scopes]
    if hunt.collections:
        took = figures.duration(hunt.collect_ms)
        items.append(one(f"{plural(hunt.collections, 'full collection')} of the hunt took {took}", "dim"))
    yield Flow(tuple(items), indent=1)
    if any(_below(row) for row in hunt.operations if row.verdict == "steady"):
        yield Paragraph(one(_FLOOR, "dim"), indent=1)
    yield Paragraph(one(_slower(hunt), "dim"), indent=1)
    for note in hunt.notes:
        yield Paragraph(prose(note, "dim"), indent=1)
