"""Our histograms as the SDK's exporters take them, where the pipeline is ours.

The Python SDK takes values one by one (5.6 µs each) and has no producer of finished histograms; its exporters do take
finished exponential histograms, so they join the SDK's own metrics on the way to the exporter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogramDataPoint,
    Metric,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import ExponentialHistogram as ExponentialHistogramData
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from mcp_probe.export.conventions import SCHEMA_URL, SCOPE, Instrument
from mcp_probe.export.histograms import Book, ExponentialHistogram, Page, Series

Source = Callable[[AggregationTemporality], "ScopeMetrics | None"]


def source_of(book: Book) -> Source:
    """Gives what ``book`` holds whenever a push asks for it; ``None`` where that is nothing.

    In delta temporality each call starts the book anew, so that a book belongs to one exporter.
    """

    def source(temporality: AggregationTemporality) -> ScopeMetrics | None:
        page = book.turn() if temporality is AggregationTemporality.DELTA else book.so_far()
        return scope_of(page, temporality)

    return source


def scope_of(page: Page, temporality: AggregationTemporality) -> ScopeMetrics | None:
    """The histograms of ``page`` under the scope of ours; ``None`` where it has none."""
    metrics = [
        _metric(instrument, histograms, page, temporality)
        for instrument, histograms in page.histograms.items()
        if histograms
    ]
    if not metrics:
        return None
    url = SCHEMA_URL or ""
    return ScopeMetrics(scope=InstrumentationScope(SCOPE, None, url), metrics=metrics, schema_url=url)


def _metric(
    instrument: Instrument,
    histograms: Mapping[Series, ExponentialHistogram],
    page: Page,
    temporality: AggregationTemporality,
) -> Metric:
    points = [_point(series, histogram, page) for series, histogram in histograms.items()]
    return Metric(
        name=instrument.name,
        description=instrument.description,
        unit=instrument.unit,
        data=ExponentialHistogramData(data_points=points, aggregation_temporality=temporality),
    )


def _point(series: Series, histogram: ExponentialHistogram, page: Page) -> ExponentialHistogramDataPoint:
    per_unit = histogram.ladder.per_unit
    offset, counts = histogram.dense()
    return ExponentialHistogramDataPoint(
        attributes=dict(series),
        start_time_unix_nano=page.start_unix_ns,
        time_unix_nano=page.end_unix_ns,
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
