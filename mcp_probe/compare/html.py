"""A comparison as a page: what the terminal says, every row of it, and each change with its interval as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from mcp_probe.compare.page import change_of, page, ratio, signed
from mcp_probe.compare.shapes import Comparison, Difference
from mcp_probe.report.page.document import headed, page_of
from mcp_probe.report.page.plots import Interval, Text, intervals


def html(comparison: Comparison) -> str:
    """The whole file."""
    rows = sorted((row for row in comparison.rows if not row.is_nothing), key=lambda row: row.operation)
    charts = {
        operation: f'<div class="charts">{drawn}</div>'
        for operation, found in groupby(rows, key=lambda row: row.operation)
        if (drawn := "".join(_charts(list(found))))
    }
    sections = headed(page(comparison, every_row=True), charts)
    return page_of(f"{', '.join(comparison.before)} → {', '.join(comparison.after)}", sections)


def _charts(rows: Sequence[Difference]) -> Iterator[str]:
    """Ratios together; differences by their unit, since they add up only within it."""
    ratios = [row for row in rows if not row.is_part]
    if found := list(_intervals(ratios)):
        yield intervals("Change, 95 %", found, nothing=1.0, log=True, text=ratio)
    for unit in dict.fromkeys(row.unit for row in rows if row.is_part):
        parts = [row for row in rows if row.is_part and row.unit == unit]
        if found := list(_intervals(parts)):
            yield intervals("Change of the mean, 95 %", found, nothing=0.0, log=False, text=_in(unit))


def _in(unit: str) -> Text:
    return lambda value: signed(value, unit)


def _intervals(rows: Sequence[Difference]) -> Iterator[Interval]:
    for row in rows:
        if row.change is None or row.low is None or row.high is None:
            continue
        if not row.is_part and min(row.change, row.low, row.high) <= 0:
            continue  # a ratio has no place for it
        told = f"{row.measure}: {change_of(row)}, {row.judgement}"
        yield Interval(row.measure, row.change, row.low, row.high, told, _role(row))


def _role(row: Difference) -> str:
    if row.judgement == "contended":
        return "warn"
    if row.judgement != "more than noise":
        return "dim"
    return "critical" if (row.change or 0.0) > (0.0 if row.is_part else 1.0) else "good"
