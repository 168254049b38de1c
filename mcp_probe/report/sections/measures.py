"""What else was measured of each request (:mod:`mcp_probe.measures`): one column a measure, one row an operation."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.measures import MEASURES, Measure
from mcp_probe.model import OperationSummary, Summary
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Cell, Column, Flow, Grid, Heading, Items, Paragraph
from mcp_probe.report.figures import EXACT, Notation
from mcp_probe.report.phrases import first, number, one, prose, rank

MEASURE_ROWS = 10


def measures(summary: Summary, notation: Notation) -> Iterator[Block]:
    """Measures that are 0 for every call have no column, and operations without any have no row."""
    shown = [measure for measure in MEASURES if any(_most(row, measure) for row in summary.operations)]
    rows = [row for row in summary.operations if any(_most(row, measure) for measure in shown)]
    if not rows:
        return
    kept, hidden = first(sorted(rows, key=lambda row: -rank(_most(row, shown[0]))), MEASURE_ROWS)
    lines: list[tuple[Cell, ...] | Paragraph | Flow] = [_row(row, shown, notation) for row in kept]
    if hidden:
        lines.append(Paragraph(one(f"+{len(hidden)} more", "dim"), indent=1))
    lines += [Paragraph(prose(f"{measure.label}: {measure.meaning}", "dim"), indent=1) for measure in shown]
    yield Heading("Measures", "per call")
    yield Grid(
        columns=(
            Column("operation", gap=1, most=36),
            *(Column(title, right=True, most=24) for measure in shown for title in (f"{measure.label} mean", "max")),
        ),
        rows=tuple(lines),
        squeeze=((0, 16),),
    )


def _row(operation: OperationSummary, shown: list[Measure], notation: Notation) -> tuple[Cell, ...]:
    cells: list[Cell] = [Items((one(operation.name or operation.method, "name"),), "middle")]
    for measure in shown:
        found = operation.measures.get(measure.key)
        quality = operation.quality.get(measure.key, EXACT)
        if found is None or found.mean is None:
            notation.missing(measure.label, "it could not be read of these calls", operation.name)
        for value in (None, None) if found is None else (found.mean, found.max):
            cells.append(number(_written(value, measure, notation.mark(quality.tag))))
    return tuple(cells)


def _written(value: float | None, measure: Measure, mark: str) -> str:
    if value is None:
        return figures.UNKNOWN
    write = {"ns": figures.duration, "bytes": figures.size, "count": figures.decimal}[measure.unit]
    return mark + write(value)


def _most(operation: OperationSummary, measure: Measure) -> float:
    found = operation.measures.get(measure.key)
    return 0.0 if found is None else found.max or 0.0
