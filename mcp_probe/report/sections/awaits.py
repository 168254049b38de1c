"""What requests waited for, suspended or in a worker thread: which lock, which backend, and who held it."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate.phrasing import file_and_line
from mcp_probe.model import (
    BACKGROUND_OPERATION,
    UNKNOWN_HOLDER,
    AwaitHolder,
    AwaitPhase,
    AwaitRoot,
    AwaitSummary,
    OperationSummary,
    Quality,
    Summary,
)
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Cell, Column, Flow, Grid, Heading, Items, Paragraph, Span, Spans, Words
from mcp_probe.report.figures import EXACT, Notation, quantity
from mcp_probe.report.phrases import first, number, one, rank
from mcp_probe.report.places import place
from mcp_probe.report.sections.waits import PSEUDO_BLOCKERS

AWAIT_ROWS = 8
VISIBLE_MS = 1.0
VISIBLE_SHARE = 0.01  # of all awaiting, from which a row is shown
WORTH_SAYING = 0.05  # share of an operation's awaiting that is said to have no name

LABELS = {"connection-pool": "pool", "client": "its client"}
PHASES: dict[AwaitPhase, str] = {
    "dns": "looking up",
    "tcp": "connecting to",
    "tls": "TLS with",
    "first-byte": "first byte of",
    "body": "body of",
}
NOBODY = {BACKGROUND_OPERATION: "a background task", UNKNOWN_HOLDER: "somebody unknown"}

Row = tuple[OperationSummary, AwaitSummary]


def awaits(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    """One row for each thing that calls of an operation awaited at one line; under it, who held it and why so long."""
    rows = [(operation, found) for operation in summary.operations for found in operation.awaits]
    whole = sum(found.total_ms for _, found in rows)
    rows = [row for row in rows if row[1].total_ms >= max(VISIBLE_MS, VISIBLE_SHARE * whole)]
    if not rows:
        return
    rows.sort(key=lambda row: -rank(row[1].total_ms))
    shown, hidden = first(rows, AWAIT_ROWS)
    lines: list[tuple[Cell, ...] | Paragraph | Flow] = []
    for row in shown:
        lines.append(_row(row, notation, cwd))
        lines.extend(_holders(row[1], cwd))
    if hidden:
        rest = figures.duration(sum(found.total_ms for _, found in hidden))
        lines.append(Paragraph(one(f"+{len(hidden)} more: {rest} in all", "dim"), indent=1))
    nameless = [text for operation in summary.operations if (text := _nameless(operation))]
    if nameless:
        lines.append(
            Flow(tuple(one(text, "plain") for text in nameless), lead=one("without a name: ", "dim"), indent=1)
        )
    where = "suspended or in a thread"
    if any(found.stage == "busy" for _, found in shown):
        where = "suspended, in a thread, or blocking the loop"
    yield Heading("What they waited for", f"all calls together; {where}")
    yield Grid(
        columns=(
            Column("operation", gap=1, most=32),
            Column("times", right=True),
            Column("waited", right=True),
            Column("p95", right=True),
            Column("for", most=56),
            Column("at", most=60),
        ),
        rows=tuple(lines),
        squeeze=((5, 32), (4, 36), (0, 18), (5, 20), (4, 24), (0, 12), (5, 14), (4, 16), (3, 0), (0, 8)),
    )


def _row(row: Row, notation: Notation, cwd: str) -> tuple[Cell, ...]:
    operation, found = row
    mark = notation.mark(found.quality)
    where = one(_place(found.where, cwd), "place")
    return (
        Words(one(operation.name or operation.method, "name"), "middle"),
        number(f"{'≥' if found.estimated_ms else ''}×{quantity(found.count)}", "dim"),
        number(_waited(found, notation), "strong"),
        number("" if found.p95_ms is None else figures.duration(found.p95_ms)),
        Items((one(described(found), "plain"),), "end", mark),
        Items((where,) if where else (), "start"),
    )


def _waited(found: AwaitSummary, notation: Notation) -> str:
    is_range = found.lo_ms is not None and found.quality == "estimate"
    return notation.duration(found.total_ms, Quality("bounded", found.lo_ms, found.hi_ms) if is_range else EXACT)


def described(found: AwaitSummary) -> str:
    """What was awaited, in words: which one, and its kind where that does not say it already."""
    if found.stage == "busy":
        return f"blocking: {_described(found)}"
    return _described(found)


def _described(found: AwaitSummary) -> str:
    label = LABELS.get(found.kind, found.kind)
    if found.phase is not None:
        return f"{PHASES[found.phase]} {found.object}"
    return label if found.object == "the client" else _named(found.kind, found.object)


def _named(kind: str, name: str) -> str:
    label = LABELS.get(kind, kind)
    return name if kind == "other" or label in name.lower() else f"{label} {name}"


def _holders(found: AwaitSummary, cwd: str) -> Iterator[Flow]:
    shown, hidden = first(found.holders, 2)
    if shown:
        items = [_holder(one_of, cwd) for one_of in shown]
        if hidden:
            items.append(one(f"+{len(hidden)} more", "dim"))
        yield Flow(tuple(items), lead=one("held by ", "dim"), indent=3)
    roots = [root for root in found.root if root.ms >= max(VISIBLE_MS, 0.1 * found.total_ms)][:3]
    if roots:
        yield Flow(tuple(_root(root, cwd) for root in roots), lead=one("meanwhile its holder ", "dim"), indent=3)


def _holder(holder: AwaitHolder, cwd: str) -> Spans:
    where = _place(holder.where, cwd)
    return (
        Span(NOBODY.get(holder.operation, holder.operation), "name"),
        Span(f" {figures.duration(holder.ms)}", "strong"),
        *((Span(" since ", "dim"), Span(where, "place")) if where else ()),
    )


def _root(root: AwaitRoot, cwd: str) -> Spans:
    time = Span(f" {figures.duration(root.ms)}", "strong")
    where = _place(root.where, cwd)
    place = (Span(" at ", "dim"), Span(where, "place")) if where else ()
    if root.kind == "blocked":
        return (Span("was held up by ", "dim"), Span(PSEUDO_BLOCKERS.get(root.name, root.name), "name"), time, *place)
    return (
        Span("waited for ", "dim"),
        Span(_named(root.kind, root.name)),
        time,
        *place,
    )


def _nameless(operation: OperationSummary) -> str:
    awaiting = operation.budget_ms.awaiting
    lost = operation.awaits_unnamed_ms
    if awaiting is None or lost is None or lost < VISIBLE_MS:
        return ""
    share = lost / (awaiting * operation.count) if awaiting * operation.count else 0.0
    return f"{figures.brief(operation.name)} {figures.share(min(1.0, share))}" if share >= WORTH_SAYING else ""


def _place(where: str | None, cwd: str) -> str:
    found = file_and_line(where)
    return "" if found is None else place(*found, cwd) or ""
