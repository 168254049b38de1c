"""Metrics on their way to a backend: collected and sent by a courier thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics import Histogram
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExporter,
    MetricExportResult,
    MetricReader,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource

from mcp_probe.export.delivery import OVERHEARD, Tally
from mcp_probe.export.exponential import Source
from mcp_probe.export.outbox import number_from_environment
from mcp_probe.export.quiet import not_instrumented
from mcp_probe.export.sender import Line, Sender
from mcp_probe.model import Delivery


class MetricPush(Sender, MetricReader):
    """Sends everything every ``OTEL_METRIC_EXPORT_INTERVAL``, from a thread of its own.

    The SDK's periodic reader would do, but for its shutdown, which waits for as long as an exporter retries, and for
    its silence on what it could not send, and for metrics that are aggregated already (:meth:`add_source`).

    Args:
        make_exporter: called at once, and again after a fork.
        exit_s: what ``shutdown`` may take.
    """

    def __init__(
        self, make_exporter: Callable[[], MetricExporter], tally: Tally, resource: Resource, exit_s: float
    ) -> None:
        self._make_exporter = make_exporter
        self._exporter: MetricExporter | None = make_exporter()
        temporality: dict[type, AggregationTemporality] = getattr(self._exporter, "_preferred_temporality", None) or {}
        super().__init__(
            preferred_temporality=temporality,
            preferred_aggregation=getattr(self._exporter, "_preferred_aggregation", None),
        )
        self._histograms = temporality.get(Histogram, AggregationTemporality.CUMULATIVE)
        self._resource = resource
        self._tally = tally
        self._exit_s = exit_s
        self._interval_s = number_from_environment("OTEL_METRIC_EXPORT_INTERVAL", 60_000, 1) / 1e3
        self._timeout_ms = number_from_environment("OTEL_METRIC_EXPORT_TIMEOUT", 30_000, 1)
        self._sources: tuple[Source, ...] = ()
        self._received = threading.local()  # collecting answers on the thread that asked
        self._line: _Line | None = None

    def open(self) -> None:
        """Push from now on."""
        if self._line is None:
            exporter, self._exporter = self._exporter or self._make_exporter(), None
            self._line = _Line(exporter, self._tally, self._collected, self._interval_s, self._timeout_ms)

    def add_source(self, source: Source) -> None:
        """Send what ``source`` gives with every push, in the temporality that the exporter prefers for histograms.

        It is called on the courier's thread, and costs the push where it raises.
        """
        self._sources = (*self._sources, source)

    # --- what the SDK calls ---

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **unused: Any) -> None:
        self._received.data = metrics_data

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Whether a push that began now ended within ``timeout_millis``. Blocks."""
        return self._flush(timeout_millis / 1e3)

    def shutdown(self, timeout_millis: float = 30_000, **unused: Any) -> None:
        """Push once more, within ``exit_s``."""
        self.close(min(self._exit_s, timeout_millis / 1e3))

    # --- what the pipeline calls, besides what every sender has ---

    def delivery(self) -> Delivery:
        """Pushes that were taken and that were not, so far."""
        return self._tally.value("")

    def forget(self) -> None:
        """This is a forked child: the thread does not exist, and the connection is the parent's."""
        self._line = self._exporter = None
        self._tally.forget()

    # --- the courier's thread ---

    def _collected(self) -> MetricsData | None:
        self._received.data = None
        self.collect(timeout_millis=self._timeout_ms)
        extra = [found for source in self._sources if (found := source(self._histograms)) is not None]
        return _with_extra(self._received.data, extra, self._resource)


class _Line(Line):
    """One push at a time, of everything there is."""

    def __init__(
        self,
        exporter: MetricExporter,
        tally: Tally,
        collect: Callable[[], MetricsData | None],
        interval_s: float,
        timeout_ms: float,
    ) -> None:
        self._exporter: MetricExporter = exporter
        self._collect = collect
        self._timeout_ms = timeout_ms
        super().__init__("mcp-probe-metrics", tally, interval_s)

    def _deliver(self, last: bool) -> bool:
        if self._given_up:
            return False
        OVERHEARD.listen()
        self._in_flight = 1
        return self._settle(self._push())

    def _push(self) -> str | None:
        """Why the push was not taken; empty where there was nothing to push."""
        with not_instrumented():
            try:
                data = self._collect()
                if data is None:
                    return ""
                result = self._exporter.export(data, timeout_millis=self._timeout_ms)
            except Exception as exc:  # noqa: BLE001 - an exporter's fault is counted; it must not end the thread
                return f"{type(exc).__name__}: {exc}"
        reason = OVERHEARD.take_reason()
        return None if result is MetricExportResult.SUCCESS else reason or "the exporter did not say why"


def _with_extra(data: MetricsData | None, extra: Sequence[ScopeMetrics], resource: Resource) -> MetricsData | None:
    """``data`` with ``extra`` scopes under its resource; scopes of one name become one."""
    if not extra:
        return data
    known = list(data.resource_metrics) if data is not None else []
    first = known[0] if known else ResourceMetrics(resource=resource, scope_metrics=[], schema_url=resource.schema_url)
    scopes = list(first.scope_metrics)
    for more in extra:
        at = next((i for i, scope in enumerate(scopes) if scope.scope.name == more.scope.name), None)
        if at is None:
            scopes.append(more)
        else:
            scopes[at] = replace(scopes[at], metrics=[*scopes[at].metrics, *more.metrics])
    return MetricsData(resource_metrics=[replace(first, scope_metrics=scopes), *known[1:]])
