"""What a meter provider has collected, in a shape that tests can compare."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, MetricsData, Sum

Attributes = frozenset[tuple[str, Any]]


def labelled(**attributes: Any) -> Attributes:
    """Attributes as :func:`points` keys them; ``__`` stands for a dot."""
    return frozenset((key.replace("__", "."), value) for key, value in attributes.items())


TOOL = "gen_ai.tool.name"


def tool(name: str, **more: Any) -> Attributes:
    """Attributes of a tool's series; ``more``: ours, without their prefix."""
    return frozenset({(TOOL, name), *((f"mcp_probe.{key}", value) for key, value in more.items())})


class Backend:
    """A provider of the application's own, and what reaches it."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader(**options.pop("reader", {}))
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False, **options)

    def collect(self) -> dict[str, Metric]:
        """One collection, by name."""
        return by_name(self.reader.get_metrics_data())


def by_name(data: MetricsData | None) -> dict[str, Metric]:
    """Every metric of ``data``; names are unique in what we send."""
    found = [
        metric
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    assert len({metric.name for metric in found}) == len(found)
    return {metric.name: metric for metric in found}


def points(metric: Metric) -> dict[Attributes, Any]:
    """Data points by their attributes."""
    return {frozenset((point.attributes or {}).items()): point for point in metric.data.data_points}


def only_grows(metric: Metric) -> bool:
    """Whether it is a counter; ``False`` for an up-down counter."""
    assert isinstance(metric.data, Sum)
    return metric.data.is_monotonic


def values(metric: Metric) -> dict[Attributes, Any]:
    """Values of a sum or gauge by their attributes."""
    return {attributes: point.value for attributes, point in points(metric).items()}
