"""Which charts a run's rows make: one per table and metric that a document has figures for, or that is of none.

Draws nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from mcp_probe.workloads.bench.registry import TODAY
from mcp_probe.workloads.bench.shapes import Results, Row, Stats
from mcp_probe.workloads.bench.statistics import measured

Kind = Literal["bars", "dots", "lines"]
"""A bar's length means nothing on a logarithmic axis, so there its end alone is drawn."""

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
class Point:
    """One place in a chart. ``low`` and ``high`` bound the measured median at 95 %."""

    x: float | str
    documented: float | None
    measured: float | None
    low: float | None = None
    high: float | None = None
    contended: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Documented and measured side by side, series by series; measured alone where no document has the figure."""

    name: str  # for files: "001-4-time"
    document: str
    table: str
    metric: str
    title: str
    unit: str
    x_name: str
    kind: Kind
    series: tuple[tuple[str, tuple[Point, ...]], ...]
    log_x: bool
    log_y: bool
    scaled: bool  # documented figures were brought to the size that ran
    contended: bool

    @property
    def has_documented(self) -> bool:
        """Whether there is anything to hold a figure against."""
        return any(point.documented is not None for _, points in self.series for point in points)

    @property
    def y_name(self) -> str:
        """What stands at the other axis: "time, ms"."""
        return f"{self.metric}, {self.unit.replace('×', 'times (×)')}"


def charts_of(results: Results) -> list[Chart]:
    """Every chart that ``results`` have the figures for, document by document."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for result in results.results:
        for row in result.outcome.rows:
            if row.x is not None and (row.figure is not None or row.documented is not None):
                groups.setdefault((row.table, row.metric, row.unit), []).append(row)
    made = [_chart(key, rows) for key, rows in groups.items() if _worth_drawing(rows)]
    return sorted(_named_apart(made), key=lambda chart: chart.document)


def measured_charts(rows: list[Row]) -> list[Chart]:
    """Charts of one table that no document has: each metric of which three places or more were measured."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.x is not None and row.figure is not None:
            groups.setdefault((row.table, row.metric, row.unit), []).append(row)
    return [_chart(key, group) for key, group in groups.items() if len({row.x for row in group}) >= 3]


def remark(chart: Chart) -> str:
    """What stands below it."""
    told = (
        ["whiskers: 95 % of the median"]
        if any(point.low is not None for _, points in chart.series for point in points)
        else []
    )
    if chart.scaled:
        told.append("documented figures brought to the size that ran")
    if chart.contended:
        told.append("contended: others used the machine")
    return " · ".join(told)


def _worth_drawing(rows: list[Row]) -> bool:
    """At least two places, of which the document has two or more; any two where there is no document."""
    if not rows[0].unit:
        return False  # bare counts: how many cores, how many threads
    is_free = rows[0].table.startswith(TODAY)
    shown = (row for row in rows if row.figure is not None and (is_free or row.documented is not None))
    return len({(row.series, row.x) for row in shown}) >= 2


def _chart(key: tuple[str, str, str], rows: list[Row]) -> Chart:
    table, metric, unit = key
    document = table.partition(" ")[0]
    series: dict[str, dict[float | str, Point]] = {}
    for row in rows:
        assert row.x is not None
        series.setdefault(row.series, {})[row.x] = _point(row)
    if len(series) > 1 and len({x for points in series.values() for x in points}) == len(series) == len(rows):
        series = {"": {x: point for points in series.values() for x, point in points.items()}}  # a name for each place
    lines = all(_is_a_line(points) for points in series.values())
    values = [value for points in series.values() for point in points.values() for value in _values(point)]
    places = [float(x) for points in series.values() for x in points if isinstance(x, (int, float))]
    return Chart(
        name=_file_name(f"{table} {metric}"),
        document=document,
        table=table,
        metric=metric,
        title=f"{table}: {metric}",
        unit=unit,
        x_name=X_NAMES.get(max((name for name in X_NAMES if table.startswith(name)), key=len, default=""), ""),
        kind="lines" if lines else "dots" if _spans(values) else "bars",
        series=tuple((name, _ordered(points, lines)) for name, points in series.items()),
        log_x=lines and _spans(places),
        log_y=_spans(values),
        scaled=any(row.scale != 1.0 for row in rows if row.documented is not None),
        contended=any(row.is_contended for row in rows),
    )


def _point(row: Row) -> Point:
    low = high = None
    if isinstance(row.measured, Stats):
        found = measured(row.measured)
        low, high = found.low, found.high
        if low is not None and row.measured.min >= 0:
            low = max(0.0, low)  # no round was below, so the figure is not
    documented = None if row.documented is None else row.documented * row.scale
    assert row.x is not None
    return Point(row.x, documented, row.figure, low, high, row.is_contended)


def _is_a_line(points: dict[float | str, Point]) -> bool:
    return len(points) >= 3 and all(isinstance(x, (int, float)) for x in points)


def _ordered(points: dict[float | str, Point], by_x: bool) -> tuple[Point, ...]:
    found = list(points.values())
    return tuple(sorted(found, key=lambda point: float(point.x)) if by_x else found)


def _values(point: Point) -> list[float]:
    return [value for value in (point.documented, point.measured) if value is not None]


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
