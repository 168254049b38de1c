"""What a backend has received, in the one shape that tests compare: spans and points of metrics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUSES = ("UNSET", "OK", "ERROR")

Value = str | bool | int | float


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a span."""

    name: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """One span, wherever it was read. Ids are hex; ``parent_id`` is empty for a root."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    status: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: tuple[Event, ...]
    links: tuple[tuple[str, str], ...]  # (trace id, span id)
    scope: str
    resource: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def tool(self) -> object:
        return self.attributes.get("gen_ai.tool.name")


@dataclass(frozen=True, slots=True)
class Point:
    """One data point of a metric, as OTLP/JSON has it."""

    metric: str
    unit: str
    kind: str  # gauge, sum, histogram, exponentialHistogram
    attributes: Mapping[str, Any]
    data: Mapping[str, Any]
    resource: Mapping[str, Any]


def spans_in(file: Path) -> list[Span]:
    """Spans of a file of OTLP/JSON lines, each once."""
    found = {span.span_id: span for line in _lines(file) for span in _spans_of(line)}
    return list(found.values())


def points_in(file: Path) -> list[Point]:
    """Points of a file of OTLP/JSON lines, in the order they arrived: later ones of a series stand later."""
    return [point for line in _lines(file) for point in _points_of(line)]


def last_points(points: Iterable[Point], metric: str) -> list[Point]:
    """The newest point of each series of ``metric``."""
    newest: dict[str, Point] = {}
    for point in points:
        if point.metric == metric:
            series = json.dumps([sorted(point.resource.items()), sorted(point.attributes.items())], default=str)
            newest[series] = point
    return list(newest.values())


def resources_of(spans: Iterable[Span], points: Iterable[Point]) -> set[tuple[str, ...]]:
    """The resources that anything came from, each as its sorted (key, value) pairs in words."""
    resources = [*(span.resource for span in spans), *(point.resource for point in points)]
    return {tuple(sorted(map(str, resource.items()))) for resource in resources}


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    if not file.exists():
        return
    for line in file.read_text("utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # the line that is being written
            return


def _spans_of(message: Mapping[str, Any]) -> Iterator[Span]:
    for group in message.get("resourceSpans", ()):
        resource = values_of(group["resource"].get("attributes", ()))
        for scoped in group["scopeSpans"]:
            for span in scoped["spans"]:
                yield Span(
                    trace_id=span["traceId"],
                    span_id=span["spanId"],
                    parent_id=span.get("parentSpanId", ""),
                    name=span["name"],
                    kind=KINDS[span.get("kind", 0)],
                    status=STATUSES[span.get("status", {}).get("code", 0)],
                    start_ns=int(span["startTimeUnixNano"]),
                    end_ns=int(span["endTimeUnixNano"]),
                    attributes=values_of(span.get("attributes", ())),
                    events=tuple(
                        Event(event["name"], values_of(event.get("attributes", ()))) for event in span.get("events", ())
                    ),
                    links=tuple((link["traceId"], link["spanId"]) for link in span.get("links", ())),
                    scope=scoped.get("scope", {}).get("name", ""),
                    resource=resource,
                )


def _points_of(message: Mapping[str, Any]) -> Iterator[Point]:
    for group in message.get("resourceMetrics", ()):
        resource = values_of(group["resource"].get("attributes", ()))
        for scoped in group["scopeMetrics"]:
            for metric in scoped["metrics"]:
                for kind in ("gauge", "sum", "histogram", "exponentialHistogram"):
                    for data in metric.get(kind, {}).get("dataPoints", ()):
                        attributes = values_of(data.get("attributes", ()))
                        yield Point(metric["name"], metric.get("unit", ""), kind, attributes, data, resource)


def values_of(attributes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Attributes of OTLP/JSON, where every value says its type."""
    return {attribute["key"]: _value_of(attribute["value"]) for attribute in attributes}


def _value_of(value: Mapping[str, Any]) -> Any:
    content: Any
    kind, content = next(iter(value.items()), ("stringValue", ""))
    if kind == "intValue":
        return int(content)
    if kind == "arrayValue":
        return [_value_of(each) for each in content.get("values", ())]
    return content
