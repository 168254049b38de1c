"""Our histograms under somebody else's provider: observable statistics, or a replay of every value."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import Histogram
from opentelemetry.sdk.metrics.export import HistogramDataPoint
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View

from mcp_probe.export.histogram_set import MAX_REPLAYED, RECENT_S, Observed, Replay
from mcp_probe.export.observables import Observables
from mcp_probe.export.semantic_conventions import (
    BUSY,
    EXPONENTIAL,
    GEN_AI_TOOL_NAME,
    MAX_SERIES,
    STATISTICS,
    STEP_DURATION,
    WAIT_BOUNDARIES_S,
    Series,
)
from tests.export.collected import Backend, only_grows, points, tool, values
from tests.frames import MS

ADD: Series = ((GEN_AI_TOOL_NAME, "add"),)


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def observables(backend: Backend) -> Observables:
    return Observables(backend.provider, backend.provider.get_meter("ours"))


def test_every_histogram_has_its_five_statistics(backend: Backend, observables: Observables) -> None:
    observed = Observed(observables)
    observed.add((instrument, (), MS, 1) for instrument in EXPONENTIAL)

    expected = {f"{instrument.name}_{suffix}" for instrument in EXPONENTIAL for suffix in STATISTICS}
    assert set(backend.collect()) == expected


def test_statistics_are_those_of_the_values(backend: Backend, observables: Observables) -> None:
    observed = Observed(observables)
    observed.add([*((BUSY, ADD, n * MS, 1) for n in range(1, 101)), (BUSY, ADD, 0, 100)])
    found = backend.collect()
    said = {suffix: values(found[f"{BUSY.name}_{suffix}"])[tool("add")] for suffix in STATISTICS}

    assert (said["count"], said["sum"], said["largest"]) == (200, pytest.approx(5.05), 0.1)
    assert said["p50"] == 0.0
    assert said["p99"] == pytest.approx(0.098, rel=0.02)
    assert only_grows(found[f"{BUSY.name}_count"])
    assert {found[f"{BUSY.name}_{suffix}"].unit for suffix in ("sum", "p50", "p99", "largest")} == {"s"}


def test_quantiles_are_of_the_last_minutes_and_counts_of_all_time(backend: Backend, observables: Observables) -> None:
    clock = Clock()
    observed = Observed(observables, clock)
    observed.add([(BUSY, ADD, 900 * MS, 1)])
    clock.now = RECENT_S
    observed.add([(BUSY, ADD, 10 * MS, 1)])
    assert values(backend.collect()[f"{BUSY.name}_largest"])[tool("add")] == 0.9

    clock.now = 2 * RECENT_S
    found = backend.collect()
    assert values(found[f"{BUSY.name}_largest"])[tool("add")] == 0.01
    assert values(found[f"{BUSY.name}_count"])[tool("add")] == 2

    clock.now = 10 * RECENT_S
    found = backend.collect()
    assert f"{BUSY.name}_largest" not in found
    assert values(found[f"{BUSY.name}_sum"])[tool("add")] == pytest.approx(0.91)


def test_a_counter_never_falls_however_many_series_come_and_go(backend: Backend, observables: Observables) -> None:
    clock = Clock()
    observed = Observed(observables, clock)
    before: dict[Any, Any] = {}
    for minute in range(6):
        clock.now = minute * RECENT_S
        named = [
            ((GEN_AI_TOOL_NAME, f"t{n}"),) for n in range(minute * MAX_SERIES // 3, (minute + 2) * MAX_SERIES // 3)
        ]
        observed.add((BUSY, series, MS, 1) for series in named)
        counted = values(backend.collect()[f"{BUSY.name}_count"])
        assert all(counted[series] >= count for series, count in before.items())
        assert sum(counted.values()) == sum(before.values()) + len(named)
        before = counted
    assert len(before) == MAX_SERIES + 1


def test_series_stay_below_the_limit_at_which_the_sdk_overflows(backend: Backend, observables: Observables) -> None:
    observed = Observed(observables)
    observed.add((BUSY, ((GEN_AI_TOOL_NAME, f"t{n}"),), MS, 1) for n in range(2 * MAX_SERIES))
    counted = values(backend.collect()[f"{BUSY.name}_count"])

    assert len(counted) == MAX_SERIES + 1
    assert counted[tool("other")] == MAX_SERIES
    assert not [labels for labels in counted if ("otel.metric.overflow", True) in labels]


# --- replay ---


def no_loss(count: int) -> None:
    raise AssertionError(f"{count} values were lost")


def test_a_replay_fills_histograms_with_boundaries_that_show_a_stdio_call(backend: Backend) -> None:
    Replay(backend.provider.get_meter("ours"), no_loss).add([(BUSY, ADD, 300_000, 1), (BUSY, ADD, 40 * MS, 2)])
    point = points(backend.collect()[BUSY.name])[tool("add")]

    assert isinstance(point, HistogramDataPoint)
    assert tuple(point.explicit_bounds) == WAIT_BOUNDARIES_S
    assert point.count == 3
    assert point.sum == pytest.approx(0.0803)
    assert point.bucket_counts[WAIT_BOUNDARIES_S.index(0.0005)] == 1
    assert point.bucket_counts[WAIT_BOUNDARIES_S.index(0.05)] == 2


def test_a_replay_follows_the_views_of_the_application() -> None:
    aggregation = ExponentialBucketHistogramAggregation()
    backend = Backend(views=[View(instrument_type=Histogram, aggregation=aggregation)])
    Replay(backend.provider.get_meter("ours"), no_loss).add([(BUSY, ADD, MS, 1)])
    assert points(backend.collect()[BUSY.name])[tool("add")].positive.bucket_counts == [1]


def test_many_equal_values_are_replayed_up_to_a_bound_and_the_rest_is_told(backend: Backend) -> None:
    lost: list[int] = []
    Replay(backend.provider.get_meter("ours"), lost.append).add([(STEP_DURATION, ADD, 40_000, MAX_REPLAYED + 900)])

    assert points(backend.collect()[STEP_DURATION.name])[tool("add")].count == MAX_REPLAYED
    assert lost == [900]
