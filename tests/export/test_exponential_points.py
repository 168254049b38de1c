"""Our histograms as exporters take them: the SDK's own aggregation of the same values says the same."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ExponentialHistogramDataPoint,
    InMemoryMetricReader,
    MetricsData,
    ResourceMetrics,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from opentelemetry.sdk.resources import Resource

from mcp_probe.export.histogram_set import HistogramSet
from mcp_probe.export.metric_push import scope_of
from mcp_probe.export.semantic_conventions import BUSY, GEN_AI_TOOL_NAME, QUEUE_WAIT, SCOPE, Series
from tests.export.collected import points, tool
from tests.frames import MS, SECOND

ADD: Series = ((GEN_AI_TOOL_NAME, "add"),)
CUMULATIVE, DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA


def counting(*lengths_ns: int) -> HistogramSet:
    filled = HistogramSet()
    filled.add((BUSY, ADD, length, 1) for length in lengths_ns)
    return filled


def point(of: HistogramSet, temporality: AggregationTemporality = CUMULATIVE) -> ExponentialHistogramDataPoint:
    scope = scope_of(of, temporality)
    assert scope is not None
    (metric,) = scope.metrics
    assert (scope.scope.name, metric.name, metric.unit) == (SCOPE, BUSY.name, "s")
    found: ExponentialHistogramDataPoint = points(metric)[tool("add")]
    return found


def aggregated_by_the_sdk(lengths_ns: list[int]) -> ExponentialHistogramDataPoint:
    aggregation = ExponentialBucketHistogramAggregation(max_size=160, max_scale=5)
    reader = InMemoryMetricReader(preferred_aggregation={Histogram: aggregation})
    provider = MeterProvider([reader], shutdown_on_exit=False)
    histogram = provider.get_meter("reference").create_histogram("reference", "s")
    for length in lengths_ns:
        histogram.record(length / SECOND, {GEN_AI_TOOL_NAME: "add"})
    data = reader.get_metrics_data()
    assert data is not None
    found = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points[0]
    assert isinstance(found, ExponentialHistogramDataPoint)
    return found


def buckets(of: ExponentialHistogramDataPoint) -> dict[int, int]:
    counts = of.positive.bucket_counts
    return {of.positive.offset + at: count for at, count in enumerate(counts) if count}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 1000 * SECOND), min_size=1, max_size=60))
def test_it_says_what_the_sdk_would_have_said_of_the_same_values(lengths_ns: list[int]) -> None:
    ours, theirs = point(counting(*lengths_ns)), aggregated_by_the_sdk(lengths_ns)
    shift = max(ours.scale, theirs.scale) - min(ours.scale, theirs.scale)
    coarse, fine = sorted((ours, theirs), key=lambda found: found.scale)
    refolded: dict[int, int] = {}
    for index, count in buckets(fine).items():
        refolded[index >> shift] = refolded.get(index >> shift, 0) + count

    assert refolded == buckets(coarse)
    assert (ours.count, ours.zero_count) == (theirs.count, theirs.zero_count)
    assert ours.sum == pytest.approx(theirs.sum)
    assert (ours.min, ours.max) == (theirs.min, theirs.max)


def test_a_value_lies_between_the_bounds_that_a_backend_computes() -> None:
    found = point(counting(123_456_789))
    base = 2.0 ** (2.0**-found.scale)
    (index,) = buckets(found)
    assert base**index < 0.123456789 <= base ** (index + 1)


def test_nothing_counted_is_not_sent() -> None:
    assert scope_of(HistogramSet(), CUMULATIVE) is None


def test_cumulative_pushes_grow_and_keep_their_start() -> None:
    filled = counting(MS)
    first = point(filled)
    filled.add([(BUSY, ADD, 2 * MS, 1)])
    second = point(filled)

    assert (first.count, second.count) == (1, 2)
    assert first.start_time_unix_nano == second.start_time_unix_nano
    assert first.time_unix_nano <= second.time_unix_nano


def test_delta_pushes_say_each_value_once_and_follow_each_other() -> None:
    filled = counting(MS)
    first = point(filled, DELTA)
    assert scope_of(filled, DELTA) is None
    filled.add([(BUSY, ADD, 2 * MS, 1)])
    second = point(filled, DELTA)

    assert (first.count, second.count) == (1, 1)
    assert (first.sum, second.sum) == (0.001, 0.002)
    assert first.time_unix_nano <= second.start_time_unix_nano


def test_the_wire_format_takes_it_as_it_is() -> None:
    filled = counting(0, MS, 250 * MS)
    filled.add([(QUEUE_WAIT, (("mcp_probe.stage", "transport"), *ADD), 3 * MS, 1)])
    scope = scope_of(filled, DELTA)
    assert scope is not None
    encoded = encode_metrics(MetricsData([ResourceMetrics(Resource({}), [scope], "")]))
    sent = {metric.name: metric for metric in encoded.resource_metrics[0].scope_metrics[0].metrics}
    (busy,) = sent[BUSY.name].exponential_histogram.data_points

    assert set(sent) == {BUSY.name, QUEUE_WAIT.name}
    assert (busy.count, busy.zero_count, busy.sum, busy.max) == (3, 1, 0.251, 0.25)
    assert sum(busy.positive.bucket_counts) == 2
    assert math.isclose(sent[QUEUE_WAIT.name].exponential_histogram.data_points[0].sum, 0.003)
