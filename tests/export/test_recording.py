"""The short way to a histogram gives what ``Histogram.record`` gives, and is taken only where that is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import (
    AlwaysOffExemplarFilter,
    AlwaysOnExemplarFilter,
    MeterProvider,
    TraceBasedExemplarFilter,
)
from opentelemetry.sdk.metrics import Histogram as SdkHistogram
from opentelemetry.sdk.metrics._internal.exemplar.exemplar_reservoir import AlignedHistogramBucketExemplarReservoir
from opentelemetry.sdk.metrics._internal.instrument import Histogram as Instrument
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from mcp_probe.export.recording import Recorder

BOUNDS = [0.01, 0.1, 1.0]
ADD: dict[str, Any] = {"gen_ai.tool.name": "add", "mcp.method.name": "tools/call", "n": 1}
SLOW: dict[str, Any] = {"gen_ai.tool.name": "slow", "mcp.method.name": "tools/call", "n": 2}


def in_span(number: int, *, sampled: bool = True) -> Context:
    span = SpanContext(number, number, is_remote=True, trace_flags=TraceFlags(1 if sampled else 0))
    return set_span_in_context(NonRecordingSpan(span), Context())


def values() -> Iterator[tuple[float, dict[str, Any], Context]]:
    for number in range(1, 40):
        yield number / 30, ADD if number % 3 else SLOW, in_span(number, sampled=number % 2 == 0)


class Counting:
    """A provider with a histogram, and how often its ``record`` was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *readers: InMemoryMetricReader, **options: Any) -> None:
        self.calls = 0
        self.readers = readers or (InMemoryMetricReader(),)
        self.provider = MeterProvider(metric_readers=self.readers, shutdown_on_exit=False, **options)
        self.histogram = self.provider.get_meter("m").create_histogram(
            "d", "s", explicit_bucket_boundaries_advisory=BOUNDS
        )
        original = Instrument.record

        def record(histogram: Any, *args: Any) -> None:
            self.calls += histogram is self.histogram
            original(histogram, *args)

        monkeypatch.setattr(Instrument, "record", record)

    def points(self, reader: int = 0) -> list[Any]:
        found = self.readers[reader].get_metrics_data()
        if found is None:
            return []
        return [shown(point) for point in found.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points]


def shown(point: Any) -> Any:
    exemplars: list[Any] = sorted(
        (each.value, each.trace_id, tuple(each.filtered_attributes or ())) for each in point.exemplars
    )
    if not hasattr(point, "bucket_counts"):
        exemplars = [len(exemplars)]  # which of them are kept is drawn by lot
    shape = getattr(point, "bucket_counts", None) or (point.scale, point.positive, point.negative)
    return dict(point.attributes), point.count, point.sum, point.min, point.max, shape, exemplars


VIEWS = [
    [],
    [View(instrument_name="d", attribute_keys={"gen_ai.tool.name"})],
    [View(instrument_name="d", aggregation=ExponentialBucketHistogramAggregation())],
    [View(instrument_name="d", name="a", attribute_keys=set()), View(instrument_name="d", name="b")],
]


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("exemplars", [AlwaysOnExemplarFilter, TraceBasedExemplarFilter])
def test_it_gives_the_same_points_and_exemplars(
    views: list[View], exemplars: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, quick = (
        Counting(monkeypatch, InMemoryMetricReader(), InMemoryMetricReader(), views=views, exemplar_filter=exemplars())
        for _ in range(2)
    )
    recorder = Recorder(quick.histogram)
    for turn in range(2):
        for value in values():
            plain.histogram.record(*value)
            recorder.record(*value)
        for reader in range(1 + turn):
            assert quick.points(reader) == plain.points(reader)
    assert quick.calls == 2  # once for each set of attributes
    assert plain.calls > 70


def lots() -> Iterator[tuple[list[float], dict[str, Any]]]:
    """Values in batches, in which some are in a bucket of their own and some in the same one; one of a single value."""
    yield from (([number / divisor for number in range(1, 40)], ADD) for divisor in (30, 7, 4000))
    yield [0.1, 1.0, 5.0, 0.01], SLOW
    yield [0.5], SLOW


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("exemplars", [AlwaysOnExemplarFilter, AlwaysOffExemplarFilter, TraceBasedExemplarFilter])
@pytest.mark.parametrize("temporality", [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA])
def test_many_at_once_give_what_each_alone_would(
    views: list[View], exemplars: Any, temporality: AggregationTemporality, monkeypatch: pytest.MonkeyPatch
) -> None:
    preferred: dict[type, AggregationTemporality] = {SdkHistogram: temporality}
    plain, quick = (
        Counting(
            monkeypatch,
            InMemoryMetricReader(preferred_temporality=preferred),
            InMemoryMetricReader(),
            views=views,
            exemplar_filter=exemplars(),
        )
        for _ in range(2)
    )
    recorder = Recorder(quick.histogram)
    offered: list[Any] = []
    offer = AlignedHistogramBucketExemplarReservoir.offer

    def counted(reservoir: Any, *args: Any) -> None:
        offered.append(reservoir)
        offer(reservoir, *args)

    for turn in range(2):
        for many, attributes in lots():
            contexts = [in_span(place + 1, sampled=place % 3 < 2) for place in range(len(many))]
            for value, context in zip(many, contexts, strict=True):
                plain.histogram.record(value, attributes, context)
            with monkeypatch.context() as patch:
                patch.setattr(AlignedHistogramBucketExemplarReservoir, "offer", counted)
                places = range(len(many))
                recorder.record_all(many, attributes, places, contexts.__getitem__, lambda place: place % 3 < 2)
        for reader in range(1 + turn):
            assert quick.points(reader) == plain.points(reader)
    if temporality is AggregationTemporality.CUMULATIVE:
        assert quick.calls == 2
        other = any(isinstance(view._aggregation, ExponentialBucketHistogramAggregation) for view in views)
        if exemplars is TraceBasedExemplarFilter and not other:
            assert len(offered) < 120  # of 720 and more


def test_a_reader_that_starts_anew_gets_each_value_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    delta: dict[type, AggregationTemporality] = {SdkHistogram: AggregationTemporality.DELTA}
    quick = Counting(monkeypatch, InMemoryMetricReader(preferred_temporality=delta))
    recorder = Recorder(quick.histogram)
    looked: list[Any] = []
    find = recorder._find

    def noted(*given: Any) -> Any:
        looked.append(given)
        return find(*given)

    monkeypatch.setattr(recorder, "_find", noted)
    for _ in range(3):
        recorder.record(0.5, ADD, Context())
        recorder.record(0.5, ADD, Context())
        assert [point[1] for point in quick.points()] == [2]
    assert (quick.calls, len(looked)) == (6, 1)


def test_attributes_beyond_the_limit_overflow_as_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View(instrument_name="d", aggregation_cardinality_limit=1)
    quick = Counting(monkeypatch, views=[view])
    recorder = Recorder(quick.histogram)
    for _ in range(3):
        recorder.record(0.5, ADD, Context())
        recorder.record(0.5, SLOW, Context())
    assert [(point[0], point[1]) for point in quick.points()] == [(ADD, 3), ({"otel.metric.overflow": True}, 3)]


def test_a_reader_that_comes_later_gets_what_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Counting(monkeypatch)
    recorder = Recorder(quick.histogram)
    for _ in range(2):
        recorder.record(0.5, ADD, Context())
    late = InMemoryMetricReader()
    quick.provider.add_metric_reader(late)
    quick.readers = (*quick.readers, late)
    for _ in range(3):
        recorder.record(0.5, ADD, Context())
    assert [point[1] for point in quick.points(0)] == [5]
    assert [point[1] for point in quick.points(1)] == [3]


def test_a_histogram_that_is_not_the_sdks_gets_each_value() -> None:
    told: list[Any] = []

    class Own:
        def record(self, *args: Any) -> None:
            told.append(args)

    for histogram in (Own(), NoOpMeterProvider().get_meter("m").create_histogram("d")):
        recorder = Recorder(histogram)  # type: ignore[arg-type]
        for _ in range(2):
            recorder.record(0.5, ADD, Context())
    assert told == [(0.5, ADD, Context())] * 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("measurement_consumer.SynchronousMeasurementConsumer", object),
        ("_view_instrument_match._hash_attributes", None),
    ],
)
def test_an_sdk_of_another_shape_gets_each_value(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Counting(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(f"opentelemetry.sdk.metrics._internal.{name}", value)
        recorder = Recorder(quick.histogram)
    for _ in range(3):
        recorder.record(0.5, ADD, Context())
    assert (quick.calls, [point[1] for point in quick.points()]) == (3, [3])


def test_parts_that_are_not_there_after_all_end_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Counting(monkeypatch)
    recorder = Recorder(quick.histogram)
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "_find", lambda *_: ADD["not there"])
        recorder.record(0.5, ADD, Context())
    for _ in range(2):
        recorder.record(0.5, ADD, Context())
    assert (quick.calls, [point[1] for point in quick.points()]) == (3, [3])
