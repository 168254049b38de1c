"""Frames in, metrics out: what a backend sees of one stream, under the application's provider and under ours."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, Histogram
from opentelemetry.sdk.metrics.export import AggregationTemporality
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.trace import TracerProvider

from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.histogram_set import HistogramSet
from mcp_probe.export.metric_push import scope_of
from mcp_probe.export.metrics import MetricExport
from mcp_probe.histogram import bucket_of
from mcp_probe.model import ALL_SEEN, QUEUE, WRITES, Frame, JobTimes, MemoryUse
from tests.export.collected import Attributes, Backend, only_grows, points, tool, values
from tests.frames import (
    MS,
    SECOND,
    make_end,
    make_group,
    make_header,
    make_loop_sample,
    make_pool,
    make_process,
    make_request,
    make_step,
    make_wait,
)

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"


class Ours:
    """A pipeline of ours: a provider and the histograms that is sent beside it."""

    def __init__(self, **options: Any) -> None:
        self.backend = Backend(**options)
        self.set = HistogramSet()
        self.export = MetricExport(self.backend.provider, histograms=[self.set])

    def take(self, *frames: Frame) -> Ours:
        self.export.take(frames)
        return self

    def close(self) -> Ours:
        self.export.close(0.5)
        return self

    def histogram(self, instrument: names.Instrument) -> dict[Attributes, Any]:
        scope = scope_of(self.set, AggregationTemporality.CUMULATIVE)
        found = {} if scope is None else {metric.name: metric for metric in scope.metrics}
        return points(found[instrument.name]) if instrument.name in found else {}

    def sums(self, instrument: names.Instrument) -> dict[Attributes, tuple[int, Any]]:
        """(count, sum) by attributes."""
        return {key: (point.count, pytest.approx(point.sum)) for key, point in self.histogram(instrument).items()}

    def durations(self) -> dict[Attributes, Any]:
        return points(self.backend.collect()[names.OPERATION_DURATION.name])


@pytest.fixture
def ours() -> Ours:
    return Ours()


# --- mcp.server.operation.duration ---


def test_an_operation_lasts_from_received_to_sent_in_the_conventions_buckets(ours: Ours) -> None:
    ours.take(make_request(queue_transport=2 * MS, busy=3 * MS, write_flush=25 * MS))
    (point,) = ours.durations().values()

    assert point.sum == pytest.approx(0.030)
    assert tuple(point.explicit_bounds) == names.OPERATION_BOUNDARIES_S
    assert point.bucket_counts[names.OPERATION_BOUNDARIES_S.index(0.05)] == 1


def test_it_has_the_unit_and_the_attributes_of_the_conventions(ours: Ours) -> None:
    ours.take(
        make_request(1, name="fail", outcome="tool_error", error="tool_error", protocol_version="2025-06-18"),
        make_request(2, name=None, method="resources/read", outcome="error", error="-32002", error_code="-32002"),
        make_request(3, name=None, method="notifications/initialized", kind="notification"),
        make_request(4, outcome="cancelled"),
    )
    metric = ours.backend.collect()[names.OPERATION_DURATION.name]

    assert metric.unit == "s"
    call = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "network.transport": "pipe"}
    assert set(points(metric)) == {
        frozenset(
            {
                **call,
                "gen_ai.tool.name": "fail",
                "error.type": "tool_error",
                "mcp.protocol.version": "2025-06-18",
            }.items()
        ),
        frozenset(
            {
                "mcp.method.name": "resources/read",
                "rpc.response.status_code": "-32002",
                "network.transport": "pipe",
            }.items()
        ),
        frozenset({"mcp.method.name": "notifications/initialized", "network.transport": "pipe"}.items()),
        frozenset({**call, "gen_ai.tool.name": "add", "error.type": "cancelled"}.items()),
    }


def test_the_applications_views_apply_to_it() -> None:
    aggregation = ExponentialBucketHistogramAggregation()
    ours = Ours(views=[View(instrument_type=Histogram, aggregation=aggregation)])
    (point,) = ours.take(make_request(busy=3 * MS)).durations().values()
    assert point.positive.bucket_counts == [1]


def test_what_is_no_operation_or_not_over_is_not_counted(ours: Ours) -> None:
    ours.take(
        make_request(1, kind="function", method="function", name="helper", busy=MS, awaiting=MS),
        make_request(2, outcome="unfinished", busy=MS),
    )
    assert names.OPERATION_DURATION.name not in ours.backend.collect()
    assert ours.histogram(names.BUSY) == {}


def test_a_slow_bucket_has_an_exemplar_that_leads_to_its_trace(ours: Ours) -> None:
    traced = make_request(awaiting=700 * MS, trace_id=TRACE_ID, span_id=SPAN_ID, trace_flags=1)
    (point,) = ours.take(make_request(1, busy=MS), traced).durations().values()
    (exemplar,) = point.exemplars

    assert (exemplar.trace_id, exemplar.span_id) == (int(TRACE_ID, 16), int(SPAN_ID, 16))
    assert exemplar.value == pytest.approx(0.7)


def test_a_trace_that_is_not_sampled_is_no_exemplar(ours: Ours) -> None:
    (point,) = ours.take(make_request(trace_id=TRACE_ID, span_id=SPAN_ID, trace_flags=0)).durations().values()
    assert list(point.exemplars) == []


def test_a_request_without_a_span_of_its_own_never_borrows_another() -> None:
    ours = Ours(exemplar_filter=AlwaysOnExemplarFilter())
    with TracerProvider(shutdown_on_exit=False).get_tracer("ambient").start_as_current_span("ambient"):
        ours.take(make_request(busy=MS))
    (exemplar,) = next(iter(ours.durations().values())).exemplars
    assert exemplar.trace_id is None


# --- requests without a record ---


def test_a_group_counts_every_request_of_it_with_its_sum(ours: Ours) -> None:
    lengths = [3 * MS, 3 * MS + 1, 40 * MS, 700 * MS]
    buckets: dict[int, tuple[int, int]] = {}
    for length in lengths:
        count, total = buckets.get(bucket_of(length), (0, 0))
        buckets[bucket_of(length)] = count + 1, total + length
    group = [(bucket, count, total) for bucket, (count, total) in buckets.items()]
    assert len(group) == 3
    ours.take(make_request(busy=3 * MS, protocol_version="2025-06-18"))
    ours.take(make_group(group, protocol_version="2025-06-18"))
    (point,) = ours.durations().values()

    assert point.count == 1 + len(lengths)
    assert point.sum == pytest.approx((3 * MS + sum(lengths)) / 1e9)
    assert point.bucket_counts[names.OPERATION_BOUNDARIES_S.index(0.01)] == 3
    assert point.bucket_counts[names.OPERATION_BOUNDARIES_S.index(0.05)] == 1
    assert point.bucket_counts[names.OPERATION_BOUNDARIES_S.index(1.0)] == 1


def test_a_group_that_failed_says_how_and_borrows_no_trace() -> None:
    ours = Ours(exemplar_filter=AlwaysOnExemplarFilter())
    group = [(bucket_of(5 * MS), 2, 10 * MS)]
    with TracerProvider(shutdown_on_exit=False).get_tracer("ambient").start_as_current_span("ambient"):
        ours.take(make_group(group, name="pay", transport="http", outcome="error", error="-32603"))
    ((attributes, point),) = ours.durations().items()

    assert dict(attributes) == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "pay",
        "rpc.response.status_code": "-32603",
        "error.type": "-32603",
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }
    assert point.count == 2
    assert {exemplar.trace_id for exemplar in point.exemplars} == {None}


def test_the_method_of_a_group_is_active_from_zero_on(ours: Ours) -> None:
    ours.take(make_group([(bucket_of(MS), 1, MS)]))
    assert values(ours.backend.collect()[names.ACTIVE.name]) == {frozenset({("mcp.method.name", "tools/call")}): 0}


# --- durations of which only the least is known ---

PARTIAL = "mcp_probe.partial"
NOT_SEEN = ("queue_transport", "unavailable", None, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, False),
        ({"seen": ALL_SEEN & ~QUEUE, "quality": (NOT_SEEN,)}, True),
        ({"seen": ALL_SEEN & ~WRITES}, True),
        ({"seen": ALL_SEEN & ~WRITES, "transport": "memory"}, False),  # there is no write
        ({"seen": ALL_SEEN & ~WRITES, "kind": "notification"}, False),
        ({"partial": True}, True),
        ({"quality": (("queue_transport", "bounded", 0, 400 * MS),)}, True),
        ({"quality": (("queue_transport", "bounded", 0, 9 * MS),)}, False),  # less than a tenth of 100 ms
        ({"quality": (("queue_transport", "upper", None, 11 * MS),)}, True),
        ({"quality": (("ready_wait", "bounded", 0, 90 * MS),)}, False),  # which part, not how long
        ({"busy": MS, "quality": (("queue_transport", "bounded", 0, 900_000),)}, False),  # less than 1 ms
        ({"busy": MS, "quality": (("queue_transport", "bounded", 0, 2 * MS),)}, True),
    ],
)
def test_a_duration_that_may_be_far_longer_is_partial(ours: Ours, given: dict[str, Any], expected: bool) -> None:
    ours.take(make_request(**{"busy": 100 * MS, **given}))
    ((attributes, point),) = ours.durations().items()
    assert dict(attributes).get(PARTIAL, False) is expected
    assert point.sum == pytest.approx(dict(given).get("busy", 100 * MS) / 1e9)  # the least of it


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, False),
        ({"seen": ALL_SEEN & ~QUEUE}, True),
        ({"longest": ((bucket_of(6 * MS), 2, 12 * MS),)}, False),
        ({"longest": ((bucket_of(900 * MS), 2, 1800 * MS),)}, True),
    ],
)
def test_a_group_is_partial_as_its_requests_are(ours: Ours, given: dict[str, Any], expected: bool) -> None:
    ours.take(make_group([(bucket_of(5 * MS), 2, 10 * MS)], **given))
    ((attributes, point),) = ours.durations().items()
    assert dict(attributes).get(PARTIAL, False) is expected
    assert point.sum == pytest.approx(0.01)


# --- mcp.server.session.duration ---


def test_a_stdio_session_is_recorded_when_its_transport_closes(ours: Ours) -> None:
    ours.take(make_request(arrival_ns=SECOND, busy=MS, protocol_version="2025-06-18"), make_end(91 * SECOND))
    found = points(ours.backend.collect()[names.SESSION_DURATION.name])
    (point,) = found.values()

    assert set(found) == {frozenset({("mcp.protocol.version", "2025-06-18")})}
    assert point.sum == pytest.approx(90.0)
    assert tuple(point.explicit_bounds) == names.OPERATION_BOUNDARIES_S


def test_an_http_session_names_its_protocol(ours: Ours) -> None:
    ours.take(make_request(transport="http", session_id="a", awaiting=2 * SECOND)).close()
    assert set(points(ours.backend.collect()[names.SESSION_DURATION.name])) == {
        frozenset({("network.protocol.name", "http")})
    }


# --- ours ---


def test_every_part_of_the_budget_that_was_seen_is_in_its_histogram(ours: Ours) -> None:
    ours.take(
        make_request(
            queue_transport=1 * MS,
            queue_dispatch=2 * MS,
            busy=3 * MS,
            ready_wait=4 * MS,
            awaiting=5 * MS,
            write_wait=6 * MS,
            write_flush=7 * MS,
        )
    )
    assert ours.sums(names.QUEUE_WAIT) == {
        tool("add", stage="transport"): (1, 0.001),
        tool("add", stage="dispatch"): (1, 0.002),
    }
    found = {
        instrument: ours.sums(instrument)[tool("add")]
        for instrument in (names.BUSY, names.READY_WAIT, names.AWAITING, names.WRITE_WAIT, names.WRITE_FLUSH)
    }
    assert found == {
        names.BUSY: (1, 0.003),
        names.READY_WAIT: (1, 0.004),
        names.AWAITING: (1, 0.005),
        names.WRITE_WAIT: (1, 0.006),
        names.WRITE_FLUSH: (1, 0.007),
    }


def test_upper_ends_are_sent_from_the_first_bounded_value_on(ours: Ours) -> None:
    ours.take(make_request(1, queue_transport=MS, awaiting=MS))
    ours.take(make_request(2, queue_transport=2 * MS, quality=(("queue_transport", "bounded", 2 * MS, 500 * MS),)))
    ours.take(make_request(3, queue_transport=3 * MS, queue_dispatch=MS))
    most = names.MAXIMA[names.QUEUE_WAIT]
    assert most.name == "mcp_probe.request.queue_wait_max"
    assert ours.sums(names.QUEUE_WAIT)[tool("add", stage="transport")] == (3, 0.006)
    assert ours.sums(most)[tool("add", stage="transport")] == (2, 0.503)
    assert ours.histogram(names.MAXIMA[names.AWAITING]) == {}


def test_awaiting_that_is_bounded_counts_with_its_least(ours: Ours) -> None:
    ours.take(make_request(awaiting=50 * MS, quality=(("awaiting", "bounded", 10 * MS, 50 * MS),)))
    assert ours.sums(names.AWAITING) == {tool("add"): (1, 0.01)}
    assert ours.sums(names.MAXIMA[names.AWAITING]) == {tool("add"): (1, 0.05)}


def test_memory_is_told_by_a_token_and_with_both_ends(ours: Ours) -> None:
    use = MemoryUse(
        "native-hybrid",
        "all Python allocations, owners > 512 B",
        requested=9_000,
        allocations=70,
        peak=4_000,
        retained=None,
        quality=(("peak", "bounded", 4_000, 5_000),),
    )
    ours.take(replace(make_request(), memory=use))
    series = tool("add", scope="python_allocator")
    assert ours.sums(names.MEMORY_REQUESTED) == {series: (1, 9_000)}
    assert ours.sums(names.MEMORY_PEAK) == {series: (1, 4_000)}
    assert ours.sums(names.MAXIMA[names.MEMORY_PEAK]) == {series: (1, 5_000)}


def test_a_part_that_could_not_be_seen_is_no_zero(ours: Ours) -> None:
    ours.take(make_request(queue_transport=None, write_wait=None, busy=MS))
    assert set(ours.histogram(names.QUEUE_WAIT)) == {tool("add", stage="dispatch")}
    assert ours.histogram(names.WRITE_WAIT) == {}


def test_what_a_request_waited_for_others_is_told_by_blocker(ours: Ours) -> None:
    ours.take(
        make_step(0, 120 * MS, request=9, operation="block"),
        make_step(120 * MS, 200 * MS, request=0, operation="(loop)"),
        make_request(9, name="block", busy=120 * MS),
        make_request(1, waits=(make_wait(20 * MS, 200 * MS),), end_ns=201 * MS),
    ).close()
    assert ours.sums(names.BLOCKED) == {
        tool("add", blocker="block"): (1, 0.1),
        tool("add", blocker="(loop)"): (1, 0.08),
    }


def test_blame_does_not_wait_for_the_end(ours: Ours) -> None:
    ours.take(make_request(1, waits=(make_wait(0, 120 * MS),), end_ns=121 * MS))
    ours.take(make_step(0, 120 * MS, request=9, operation="block"))
    ours.take(make_loop_sample(at_ns=5 * SECOND))
    assert ours.sums(names.BLOCKED) == {tool("add", blocker="block"): (1, 0.12)}


def test_steps_are_their_tools_and_small_ones_count_with_their_mean(ours: Ours) -> None:
    ours.take(make_step(0, 30 * MS, request=1), make_step(31 * MS, 32 * MS, request=0))
    ours.take(make_request(1, busy=31 * MS))
    ours.take(make_loop_sample(small_steps=(("add", 4, MS), ("(loop)", 2, MS))))

    assert ours.sums(names.STEP_DURATION) == {tool("add"): (5, 0.031), frozenset(): (3, 0.002)}


def test_small_steps_of_a_profiled_function_count_once_as_its_requests(ours: Ours) -> None:
    ours.take(make_request(2, kind="function", method="helper", name=None), make_request(1))
    ours.take(make_loop_sample(small_steps=(("add", 4, MS), ("helper", 3, MS))))
    assert ours.sums(names.STEP_DURATION) == {tool("add"): (4, 0.001)}


def test_a_step_that_still_runs_is_not_counted_yet_and_then_once(ours: Ours) -> None:
    ours.take(make_step(0, 30 * MS, request=0, running=True))
    assert ours.sums(names.STEP_DURATION) == {}
    ours.take(make_step(0, 50 * MS, request=0), make_step(0, 50 * MS, request=0))
    assert ours.sums(names.STEP_DURATION) == {frozenset(): (1, 0.05)}


def test_jobs_are_told_by_executor_and_tool_as_far_as_they_came(ours: Ours) -> None:
    ours.take(
        make_request(
            jobs=(
                JobTimes("anyio default", 0, 10 * MS, 30 * MS, 35 * MS),
                JobTimes("anyio default", 0, 50 * MS, None, None),
                JobTimes("anyio default", 0, None, None, None),
            )
        )
    )
    series = tool("add", **{"executor.name": "anyio_default"})
    assert ours.sums(names.EXECUTOR_WAIT) == {series: (2, 0.06)}
    assert ours.sums(names.EXECUTOR_RUN) == {series: (1, 0.02)}
    assert ours.sums(names.EXECUTOR_RETURN) == {series: (1, 0.005)}


def test_waits_of_the_transport_for_a_thread_are_counted_with_the_mean_of_their_bucket(ours: Ours) -> None:
    ours.take(make_pool(transport_waits=((bucket_of(MS), 3, 3 * MS), (bucket_of(SECOND), 1, SECOND))))
    assert ours.sums(names.THREAD_WAIT) == {frozenset(): (4, 1.003)}


def test_collector_pauses_are_told_by_generation_and_short_ones_with_their_mean(ours: Ours) -> None:
    pauses = ((0, 40 * MS, 2), (50 * MS, 52 * MS, 1))
    ours.take(make_process(gc_pauses=pauses, gc_count=12, gc_ns=47 * MS))

    assert ours.sums(names.GC_PAUSE) == {
        frozenset({("mcp_probe.generation", "2")}): (1, 0.04),
        frozenset({("mcp_probe.generation", "1")}): (1, 0.002),
        frozenset(): (10, 0.005),
    }


def test_gauges_and_counters_follow_the_samples(ours: Ours) -> None:
    ours.take(
        make_header(),
        make_loop_sample([500 * MS]),
        make_pool(active_peak=2),
        make_process(outstanding_peak=7, cpu_ns=SECOND, probe_cpu_ns=10 * MS, active=(("tools/call", 3),)),
    )
    ours.export.note_dropped("spans", 4)
    found = ours.backend.collect()

    assert values(found[names.LOOP_UTILIZATION.name]) == {frozenset(): 0.5}
    assert values(found[names.OUTSTANDING.name]) == {frozenset(): 7}
    assert values(found[names.PROBE_OVERHEAD.name]) == {frozenset(): 0.01}
    assert values(found[names.EXECUTOR_ACTIVE.name]) == {frozenset({("mcp_probe.executor.name", "anyio_default")}): 2}
    assert values(found[names.ACTIVE.name]) == {frozenset({("mcp.method.name", "tools/call")}): 3}
    assert values(found[names.PROBE_DROPPED.name]) == {frozenset({("mcp_probe.reason", "spans")}): 4}
    assert not only_grows(found[names.ACTIVE.name])
    assert only_grows(found[names.PROBE_DROPPED.name])


# --- the ways out ---


def test_under_the_applications_provider_histograms_are_statistics() -> None:
    backend = Backend()
    MetricExport(backend.provider).take([make_request(busy=3 * MS)])
    found = backend.collect()

    assert names.BUSY.name not in found
    assert values(found[f"{names.BUSY.name}_sum"]) == {tool("add"): pytest.approx(0.003)}
    assert values(found[f"{names.BUSY.name}_count"]) == {tool("add"): 1}


def test_a_replay_is_asked_for_and_gives_real_histograms() -> None:
    backend = Backend()
    export = MetricExport(backend.provider, replay=True)
    export.take([make_request(busy=3 * MS), make_loop_sample(small_steps=(("add", 5000, MS),))])
    found = backend.collect()

    assert points(found[names.BUSY.name])[tool("add")].count == 1
    assert f"{names.BUSY.name}_sum" not in found
    assert values(found[names.PROBE_DROPPED.name]) == {frozenset({("mcp_probe.reason", "not_replayed")}): 4900}


def test_two_exporters_each_get_everything_also_as_deltas() -> None:
    books = [HistogramSet(), HistogramSet()]
    MetricExport(Backend().provider, histograms=books).take([make_request(busy=3 * MS)])
    pages = [counted.restart() for counted in books]
    assert [page.histograms[names.BUSY][(("gen_ai.tool.name", "add"),)].count for page in pages] == [1, 1]


def test_closing_twice_counts_once(ours: Ours) -> None:
    ours.take(make_step(0, 3 * MS, request=1)).close().close()
    assert ours.sums(names.STEP_DURATION) == {frozenset(): (1, 0.003)}


def test_after_the_end_the_last_values_can_be_collected_once(ours: Ours) -> None:
    ours.take(make_process(outstanding_peak=7)).close()
    assert names.OUTSTANDING.name in ours.backend.collect()
    assert names.OUTSTANDING.name not in ours.backend.collect()


def test_a_probe_that_is_attached_later_answers_through_the_same_instruments_and_counts_on() -> None:
    backend = Backend()
    for busy in (1, 2, 4):
        export = MetricExport(backend.provider)
        export.take([make_request(busy=busy * MS), make_process(outstanding_peak=busy)])
        found = backend.collect()
        export.close(0.5)
    assert values(found[f"{names.BUSY.name}_sum"]) == {tool("add"): pytest.approx(0.007)}
    assert values(found[names.OUTSTANDING.name]) == {frozenset(): 4}
    assert points(found[names.OPERATION_DURATION.name]).popitem()[1].count == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_reports_nothing_and_cannot_hang_on_a_lock_of_its_parent(ours: Ours) -> None:
    ours.take(make_process(outstanding_peak=7))
    with ours.export._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from CPython 3.12 on, where other tests left threads
        child = os.fork()
        if child == 0:
            os._exit(len(ours.backend.collect()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- cardinality ---


@pytest.mark.parametrize("way", ["exponential", "observed", "replay"])
def test_ten_thousand_tool_names_make_no_more_than_two_hundred_series_and_other(way: str) -> None:
    backend, counted = Backend(), HistogramSet()
    export = MetricExport(
        backend.provider, histograms=[counted] if way == "exponential" else [], replay=way == "replay"
    )
    for n in range(10_000):
        name = f"made-up-{n}"
        at = n * 10 * MS
        export.take(
            [
                make_step(at, at + 2 * MS, request=n + 2, operation=f"made-up-{n + 1}"),
                make_request(
                    n + 1,
                    name=name,
                    busy=MS,
                    arrival_ns=at,
                    waits=(make_wait(at, at + 2 * MS),),
                    jobs=(JobTimes(f"pool-{n}", 0, 1, 2, 3),),
                ),
                make_loop_sample(at_ns=at + MS, small_steps=((name, 1, 1000),)),
            ]
        )
    export.close(0.5)
    found = backend.collect()
    scope = scope_of(counted, AggregationTemporality.CUMULATIVE)
    found |= {metric.name: metric for metric in (scope.metrics if scope is not None else ())}

    for metric in found.values():
        for key in {key for series in points(metric) for key, _ in series}:
            labels = {value for series in points(metric) for name, value in series if name == key}
            assert len(labels) <= names.MAX_NAMES + 1, (metric.name, key)
    operations = points(found[names.OPERATION_DURATION.name])
    assert len(operations) == names.MAX_NAMES + 1
    other = next(point for series, point in operations.items() if ("gen_ai.tool.name", names.OTHER) in series)
    assert other.count == 10_000 - names.MAX_NAMES


def test_measures_are_counted_per_tool_where_they_are_not_0(ours: Ours) -> None:
    ours.take(
        make_request(
            1, name="look", measures=(("dns_wait", 20 * MS, "exact"), ("context_switches_voluntary", 3, "exact"))
        ),
        make_request(2, name="look", measures=(("dns_wait", 0, "exact"), ("context_switches_voluntary", 4, "exact"))),
        make_request(3, measures=(("dns_wait", None, "unavailable"), ("of_tomorrow", 4, "exact"))),
    )
    ((_, waits),) = ours.sums(names.MEASURED["dns_wait"]).items()
    ((_, switches),) = ours.sums(names.MEASURED["context_switches_voluntary"]).items()
    assert waits == (1, pytest.approx(0.02)) and switches == (2, 7)
