"""What else was measured of each request (:mod:`mcp_probe.measures`): one row a measure of an operation."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.measures import MEASURES, Measure
from mcp_probe.model import OperationSummary, Summary
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Cell, Column, Flow, Grid, Heading, Items, Paragraph, Words
from mcp_probe.report.figures import EXACT, Notation
from mcp_probe.report.phrases import first, number, one, prose, rank

MEASURED = 10
"""Operations that have rows."""


def measures(summary: Summary, notation: Notation) -> Iterator[Block]:
    """Measures that are 0 for every call have no rows, and operations without any have none."""
    shown = [measure for measure in MEASURES if any(_most(row, measure) for row in summary.operations)]
    rows = [row for row in summary.operations if any(_most(row, measure) for measure in shown)]
    if not rows:
        return
    rows.sort(key=lambda row: [-rank(_most(row, measure)) for measure in shown])
    kept, hidden = first(rows, MEASURED)
    lines: list[tuple[Cell, ...] | Paragraph | Flow] = [line for row in kept for line in _rows(row, shown, notation)]
    if hidden:
        lines.append(Paragraph(one(f"+{len(hidden)} more", "dim"), indent=1))
    lines += [Paragraph(prose(f"{measure.label}: {measure.meaning}", "dim"), indent=1) for measure in shown]
    yield Heading("Measures", "per call")
    yield Grid(
        columns=(
            Column("operation", gap=1, most=36),
            Column("what", most=24),
            Column("mean", right=True, most=24),
            Column("max", right=True, most=24),
        ),
        rows=tuple(lines),
        squeeze=((0, 16),),
    )


def _rows(operation: OperationSummary, shown: list[Measure], notation: Notation) -> Iterator[tuple[Cell, ...]]:
    """A row for each measure of ``operation`` that is more than 0, or unknown; its name is in the first."""
    name = one(operation.name or operation.method, "name")
    for measure in shown:
        found = operation.measures.get(measure.key)
        known = found is not None and found.mean is not None
        if not known:
            notation.missing(measure.label, "it could not be read of these calls", operation.name)
        if found is None or (known and not found.max):
            continue
        mark = notation.mark(operation.quality.get(measure.key, EXACT).tag)
        figured = (number(_written(value, measure, mark)) for value in (found.mean, found.max))
        yield (Items((name,), "middle"), Words(one(measure.label, "plain")), *figured)
        name = one("", "name")


def _written(value: float | None, measure: Measure, mark: str) -> str:
    if value is None:
        return figures.UNKNOWN
    write = {"ns": figures.duration, "bytes": figures.size, "count": figures.decimal}[measure.unit]
    return mark + write(value)


def _most(operation: OperationSummary, measure: Measure) -> float:
    found = operation.measures.get(measure.key)
    return 0.0 if found is None else found.max or 0.0
