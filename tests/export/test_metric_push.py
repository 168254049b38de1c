"""Metrics on their way out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality
from opentelemetry.sdk.resources import Resource

from mcp_probe.export.delivery import Once, Tally
from mcp_probe.export.histogram_set import HistogramSet, Snapshot
from mcp_probe.export.metric_push import MetricPush
from mcp_probe.export.semantic_conventions import BUSY, SCOPE
from mcp_probe.model import Delivery
from tests.export.gated import LONG_S, Gate, GatedMetrics

CUMULATIVE, DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA
OURS = f"{SCOPE}: {BUSY.name}"


class Sending:
    """A counter whose provider pushes to a gated exporter."""

    def __init__(self, gate: Gate, **preferences: object) -> None:
        self.exporter = GatedMetrics(gate, **preferences)
        resource = Resource({"service.name": "shop"})
        self.push = MetricPush(lambda: self.exporter, Tally("metric exports", "http://there", Once()), resource, LONG_S)
        self.provider = MeterProvider([self.push], resource=resource, shutdown_on_exit=False)
        self.counter = self.provider.get_meter("test").create_counter("sold")
        self.push.open()

    def count_ours(self) -> None:
        """A value of a histogram that we aggregate."""
        self.push.histograms.add([(BUSY, (), 1_000_000, 1)])

    def temporalities(self) -> list[AggregationTemporality]:
        """Of our histograms, push by push."""
        return [
            metric.data.aggregation_temporality
            for data in self.exporter.taken
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == BUSY.name and hasattr(metric.data, "aggregation_temporality")
        ]

    def names(self) -> list[list[str]]:
        """Metric names of each push, by scope."""
        return [
            [f"{scope.scope.name}: {metric.name}" for scope in resource.scope_metrics for metric in scope.metrics]
            for data in self.exporter.taken
            for resource in data.resource_metrics
        ]


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


def test_a_push_closed_before_its_interval_has_sent_everything(gate: Gate) -> None:
    sending = Sending(gate)
    sending.counter.add(1)
    sending.provider.shutdown()
    assert sending.names() == [["test: sold"]]
    assert sending.push.delivery() == Delivery("metric exports", "http://there", 1, 0, None)
    assert gate.shut.is_set()
    assert gate.suppressed == [True]


def test_every_interval_of_the_environment_is_a_push(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1")
    sending = Sending(gate)
    sending.counter.add(1)
    assert gate.entered.acquire(timeout=LONG_S) and gate.entered.acquire(timeout=LONG_S)
    sending.push.close(LONG_S)


@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
def test_our_histograms_travel_with_the_sdks_own_in_the_exporters_temporality(
    gate: Gate, temporality: AggregationTemporality
) -> None:
    sending = Sending(gate, preferred_temporality={Counter: temporality, Histogram: temporality})
    durations = sending.provider.get_meter(SCOPE).create_histogram("durations")
    durations.record(1.0)
    sending.count_ours()
    assert sending.push.force_flush(60_000)
    sending.count_ours()
    sending.counter.add(1)
    sending.push.close(LONG_S)
    first, second = sending.names()
    assert first == [f"{SCOPE}: durations", OURS], "one scope, under one name"
    assert OURS in second and "test: sold" in second
    assert sending.temporalities() == [temporality] * 2


def test_our_histograms_wait_until_the_exporters_temporality_is_known(gate: Gate) -> None:
    sending = Sending(gate, preferred_temporality={Histogram: DELTA})
    sending.count_ours()
    sending.counter.add(1)
    assert sending.push.force_flush(60_000)
    sending.provider.get_meter("test").create_histogram("durations").record(1.0)
    sending.push.close(LONG_S)
    assert sending.names() == [["test: sold"], ["test: sold", "test: durations", OURS]]
    assert sending.temporalities() == [DELTA]


def test_our_histograms_go_out_where_the_sdk_has_nothing_new_under_the_same_resource(gate: Gate) -> None:
    sending = Sending(gate, preferred_temporality={Histogram: DELTA})
    sending.provider.get_meter("test").create_histogram("durations").record(1.0)
    assert sending.push.force_flush(60_000)
    sending.count_ours()
    sending.push.close(LONG_S)
    assert sending.names() == [["test: durations"], [OURS]]
    assert sending.exporter.taken[1].resource_metrics[0].resource.attributes["service.name"] == "shop"


def test_nothing_to_say_is_no_push_and_no_loss(gate: Gate) -> None:
    sending = Sending(gate)
    sending.push.close(LONG_S)
    assert sending.exporter.taken == []
    assert sending.push.delivery() == Delivery("metric exports", "http://there", 0, 0, None)


def test_histograms_that_raise_cost_their_push_and_not_the_thread(gate: Gate) -> None:
    broken = [True]

    class Broken(HistogramSet):
        def snapshot(self) -> Snapshot:
            if broken:
                raise LookupError(broken.pop())
            return super().snapshot()

    sending = Sending(gate)
    sending.push.histograms = Broken()
    sending.provider.get_meter("test").create_histogram("durations").record(1.0)
    sending.push.force_flush(60_000)
    sending.push.close(LONG_S)
    assert sending.push.delivery() == Delivery("metric exports", "http://there", 1, 1, "LookupError: True")


def test_a_backend_that_hangs_or_refuses_costs_no_more_than_closing_may_take(gate: Gate) -> None:
    sending = Sending(gate)
    sending.counter.add(1)
    gate.answer = "503: told to refuse"
    sending.push.force_flush(60_000)
    gate.open.clear()
    sending.push.ask_to_close()
    assert gate.entered.acquire(timeout=LONG_S) and gate.entered.acquire(timeout=LONG_S)
    sending.push.close(0.0)
    assert sending.push.delivery() == Delivery("metric exports", "http://there", 0, 2, "503: told to refuse")
    gate.open.set()
    assert gate.shut.wait(LONG_S)
    assert sending.push.delivery().undelivered == 2


def test_after_a_fork_a_new_exporter_is_made(gate: Gate) -> None:
    sending = Sending(gate)
    parents = sending.exporter
    sending.push.forget()
    sending.exporter = GatedMetrics(gate)
    sending.push.open()
    sending.counter.add(1)
    sending.push.close(LONG_S)
    assert (len(parents.taken), len(sending.exporter.taken)) == (0, 1)
