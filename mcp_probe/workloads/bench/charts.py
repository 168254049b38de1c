"""Which charts a run's rows make: one per table and metric that a document has figures for, or that is of none.

Draws nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mcp_probe.report.page.plots import Place, Plot, Series
from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.registry import TODAY
from mcp_probe.workloads.bench.shapes import Results, Row, Stats
from mcp_probe.workloads.bench.statistics import measured

X_NAMES = {
    "000": "messages",
    "001": "calls",
    "001 S1": "sleep of a call, ms",
    "001 §2.2": "scenario",
    "002": "operation",
    "002 §": "statistic",
    "003": "way of working",
    "004": "protocol",
    "004 sweep": "workers / connections",
    "004 tuning": "load",
    "now results": "size of a result, MB",
    "now event loops": "transport and event loop",
    "now sessions or none": "sessions",
    "now clients": "clients at once",
    "now notifications": "notifications of a call",
    "now questions": "questions of a call",
    "now workers": "workers",
    "now SDKs": "SDK of the server",
    "now CPython": "version of CPython",
    "now resumption": "what becomes of a call's events",
    "now TLS": "calls at once",
    "concurrency sweep": "calls in flight",
    "fan-out": "calls at once",
    "operations": "operation",
}
"""What stands along the axis, by the beginning of a table's name; the longest counts."""

_LOG_SPAN = 30.0
"""Values that differ by more than this factor are drawn on a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Measured beside documented, series by series; measured alone where no document has the figure."""

    name: str  # for files: "001-4-time"
    table: str
    metric: str
    unit: str
    plot: Plot

    @property
    def document(self) -> str:
        """What its table's name begins with."""
        return self.table.partition(" ")[0]


def charts_of(results: Results) -> list[Chart]:
    """Every chart that ``results`` have the figures for, document by document."""
    groups = _groups(row for result in results.results for row in result.outcome.rows)
    made = [_chart(rows) for rows in groups if _worth_drawing(rows)]
    return sorted(_named_apart(made), key=lambda chart: chart.document)


def measured_charts(rows: list[Row]) -> list[Chart]:
    """Charts of one table that no document has: each metric of which three places or more were measured."""
    groups = _groups(row for row in rows if row.figure is not None)
    return [_chart(group) for group in groups if len({row.x for row in group}) >= 3]


def _groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows with a place in a chart, those of one chart together."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.x is not None and (row.figure is not None or row.documented is not None):
            groups.setdefault((row.table, row.metric, row.unit), []).append(row)
    return list(groups.values())


def _worth_drawing(rows: list[Row]) -> bool:
    """At least two places, of which the document has two or more; any two where there is no document."""
    if not rows[0].unit:
        return False  # bare counts: how many cores, how many threads
    is_free = rows[0].table.startswith(TODAY)
    shown = (row for row in rows if row.figure is not None and (is_free or row.documented is not None))
    return len({(row.series, row.x) for row in shown}) >= 2


def _chart(rows: list[Row]) -> Chart:
    table, metric, unit = rows[0].table, rows[0].metric, rows[0].unit
    series: dict[str, dict[float | str, Place]] = {}
    for row in rows:
        place = _place(row)
        series.setdefault(row.series, {})[place.x] = place
    if len(series) > 1 and len({x for places in series.values() for x in places}) == len(series) == len(rows):
        series = {"": {x: place for places in series.values() for x, place in places.items()}}  # a name for each place
    every = [place for places in series.values() for place in places.values()]
    lines = all(len(places) >= 3 and not any(isinstance(x, str) for x in places) for places in series.values())
    values = [value for place in every for value in (place.beside, place.value) if value is not None]
    plot = Plot(
        f"{table}: {metric}",
        "lines" if lines else "dots" if _spans(values) else "bars",  # a bar's length means nothing on a log axis
        tuple(Series(name, _ordered(places.values(), lines)) for name, places in series.items()),
        lambda value: figures.with_unit(value, unit),
        log_x=lines and _spans([float(place.x) for place in every]),
        log_y=_spans(values),
        words=("measured", "documented") if any(place.beside is not None for place in every) else ("", ""),
        remark=_remark(rows, every),
        x_name=X_NAMES.get(max((name for name in X_NAMES if table.startswith(name)), key=len, default=""), ""),
        y_name=f"{metric}, {unit.replace('×', 'times (×)')}",
    )
    return Chart(_file_name(f"{table} {metric}"), table, metric, unit, plot)


def _place(row: Row) -> Place:
    low = high = None
    if isinstance(row.measured, Stats):
        found = measured(row.measured)
        low, high = found.low, found.high
        if low is not None and row.measured.min >= 0:
            low = max(0.0, low)  # no round was below, so the figure is not
    documented = None if row.documented is None else row.documented * row.scale
    assert row.x is not None
    return Place(row.x, row.figure, low, high, documented)


def _ordered(places: Iterable[Place], by_x: bool) -> tuple[Place, ...]:
    return tuple(sorted(places, key=lambda place: float(place.x)) if by_x else places)


def _remark(rows: list[Row], places: list[Place]) -> str:
    """What stands below it."""
    told = {
        "whiskers: 95 % of the median": any(place.low is not None for place in places),
        "documented figures brought to the size that ran": any(
            row.scale != 1.0 for row in rows if row.documented is not None
        ),
        "contended: others used the machine": any(row.is_contended for row in rows),
    }
    return " · ".join(text for text, is_so in told.items() if is_so)


def _spans(values: list[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) > _LOG_SPAN * min(values)


def _named_apart(charts: list[Chart]) -> list[Chart]:
    """Two of one table and metric differ in their unit."""
    names = [chart.name for chart in charts]
    return [
        chart if names.count(chart.name) == 1 else replace(chart, name=f"{chart.name}-{_file_name(chart.unit) or 'x'}")
        for chart in charts
    ]


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("×", "ratio").replace("%", "percent")).strip("-")
