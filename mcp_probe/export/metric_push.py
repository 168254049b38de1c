"""Metrics on their way to a backend: collected and sent by a worker thread, our own histograms beside the SDK's.

The Python SDK takes values one by one (5.6 µs each) and has no producer of finished histograms; its exporters do take
finished exponential histograms, so ours join the SDK's own metrics on the way to the exporter.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogramDataPoint,
    Histogram,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import ExponentialHistogram as ExponentialHistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from mcp_probe.export.delivery import OVERHEARD, Tally
from mcp_probe.export.export_worker import Line, Sender, suppress_instrumentation
from mcp_probe.export.exporters import number_from_environment
from mcp_probe.export.histogram_set import ExponentialHistogram, HistogramSet, Snapshot
from mcp_probe.export.rejections import hear_grpc
from mcp_probe.export.semantic_conventions import SCHEMA_URL, SCOPE, Instrument, Series
from mcp_probe.model import Delivery


class MetricPush(Sender, PeriodicExportingMetricReader):
    """Sends everything every ``OTEL_METRIC_EXPORT_INTERVAL``, from a thread of its own.

    The SDK's reader would do, but for its shutdown, which waits for as long as an exporter retries, for its silence on
    what it could not send, and for ``histograms``, which are aggregated already. It asks the exporter what temporality
    and aggregation it prefers, which has no public name; without an interval it starts no thread.

    Args:
        make_exporter: called at once, and again after a fork.
        exit_s: what ``shutdown`` may take.
    """

    def __init__(
        self, make_exporter: Callable[[], MetricExporter], tally: Tally, resource: Resource, exit_s: float
    ) -> None:
        self._make_exporter = make_exporter
        exporter = make_exporter()
        PeriodicExportingMetricReader.__init__(self, exporter, export_interval_millis=math.inf)
        self._unused: MetricExporter | None = exporter
        self._tally = tally
        self._resource = resource
        self._exit_s = exit_s
        self._interval_s = number_from_environment("OTEL_METRIC_EXPORT_INTERVAL", 60_000, 1) / 1e3
        self._timeout_ms = number_from_environment("OTEL_METRIC_EXPORT_TIMEOUT", 30_000, 1)
        self.histograms = HistogramSet()
        self._temporality: AggregationTemporality | None = None  # of the SDK's own histograms, once it was seen
        self._received = threading.local()  # collecting answers on the thread that asked
        self._line: _Line | None = None

    def open(self) -> None:
        """Push from now on."""
        if self._line is None:
            exporter, self._unused = self._unused or self._make_exporter(), None
            self._line = _Line(exporter, self._tally, self._collected, self._interval_s, self._timeout_ms)

    # --- what the SDK calls ---

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **unused: Any) -> None:
        """The method that every reader must have: what was collected, on the thread that asked for it."""
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
        self._line = self._unused = None
        self._tally.forget()

    # --- the worker's thread ---

    def _collected(self) -> MetricsData | None:
        """The SDK's metrics and ours. Ours go out in the temporality of its histograms, and wait until it has one."""
        self._received.data = None
        self.collect(timeout_millis=self._timeout_ms)
        data: MetricsData | None = self._received.data
        for metric in _metrics_of(data):
            if isinstance(metric.data, (Histogram, ExponentialHistogramData)):
                self._temporality = metric.data.aggregation_temporality
        ours = None if self._temporality is None else scope_of(self.histograms, self._temporality)
        return data if ours is None else _with_scope(data, ours, self._resource)


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
        self._in_flight = 1
        return self._settle(self._push())

    def _push(self) -> str | None:
        """Why the push was not taken; empty where there was nothing to push."""
        with suppress_instrumentation():
            try:
                OVERHEARD.listen()
                data = self._collect()
                if data is None:
                    return ""
                hear_grpc(self._exporter)
                result = self._exporter.export(data, timeout_millis=self._timeout_ms)
            except Exception as exc:  # noqa: BLE001 - an exporter's fault is counted; it must not end the thread
                return f"{type(exc).__name__}: {exc}"
        reason = OVERHEARD.take_reason()
        return None if result is MetricExportResult.SUCCESS else reason or "the exporter did not say why"


def _metrics_of(data: MetricsData | None) -> Iterator[Metric]:
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            yield from scope.metrics


def _with_scope(data: MetricsData | None, ours: ScopeMetrics, resource: Resource) -> MetricsData:
    """``data`` with our scope under its resource; two scopes of one name become one."""
    known = list(data.resource_metrics) if data is not None else []
    first = known[0] if known else ResourceMetrics(resource=resource, scope_metrics=[], schema_url=resource.schema_url)
    scopes = list(first.scope_metrics)
    at = next((i for i, scope in enumerate(scopes) if scope.scope.name == ours.scope.name), None)
    if at is None:
        scopes.append(ours)
    else:
        scopes[at] = replace(scopes[at], metrics=[*scopes[at].metrics, *ours.metrics])
    return MetricsData(resource_metrics=[replace(first, scope_metrics=scopes), *known[1:]])


def scope_of(histograms: HistogramSet, temporality: AggregationTemporality) -> ScopeMetrics | None:
    """What ``histograms`` holds, under the scope of ours; ``None`` where that is nothing.

    In delta temporality each call starts them anew, so that a set belongs to one exporter.
    """
    snapshot = histograms.restart() if temporality is AggregationTemporality.DELTA else histograms.snapshot()
    metrics = [
        _metric(instrument, series, snapshot, temporality)
        for instrument, series in snapshot.histograms.items()
        if series
    ]
    if not metrics:
        return None
    url = SCHEMA_URL or ""
    return ScopeMetrics(scope=InstrumentationScope(SCOPE, None, url), metrics=metrics, schema_url=url)


def _metric(
    instrument: Instrument,
    histograms: Mapping[Series, ExponentialHistogram],
    snapshot: Snapshot,
    temporality: AggregationTemporality,
) -> Metric:
    points = [_point(series, histogram, snapshot) for series, histogram in histograms.items()]
    return Metric(
        name=instrument.name,
        description=instrument.description,
        unit=instrument.unit,
        data=ExponentialHistogramData(data_points=points, aggregation_temporality=temporality),
    )


def _point(series: Series, histogram: ExponentialHistogram, snapshot: Snapshot) -> ExponentialHistogramDataPoint:
    per_unit = histogram.scheme.per_unit
    offset, counts = histogram.dense()
    return ExponentialHistogramDataPoint(
        attributes=dict(series),
        start_time_unix_nano=snapshot.start_unix_ns,
        time_unix_nano=snapshot.end_unix_ns,
        count=histogram.count,
        sum=histogram.total / per_unit,
        scale=histogram.scale,
        zero_count=histogram.zeros,
        positive=Buckets(offset, counts),
        negative=Buckets(0, []),
        flags=0,
        min=(histogram.min or 0) / per_unit,
        max=histogram.max / per_unit,
    )
