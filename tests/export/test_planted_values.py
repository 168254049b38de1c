"""One request with a value of its own for each number: every output has each under its documented name and unit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import AggregationTemporality

from mcp_probe.aggregate.fold import Fold
from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.histogram_set import HistogramSet
from mcp_probe.export.metric_push import scope_of
from mcp_probe.export.metrics import MetricExport
from mcp_probe.export.phase_spans import SpanExport
from mcp_probe.measures import MEASURES
from mcp_probe.model import Await, Frame, HolderPart, JobTimes, MemoryUse, RequestRecord
from mcp_probe.record.file import encode, read_recording
from mcp_probe.record.parts import RecordingWriter
from mcp_probe.report.console import render
from tests.docs.test_telemetry import rows_of
from tests.export.collected import Backend
from tests.frames import (
    MS,
    SECOND,
    make_end,
    make_header,
    make_histogram,
    make_loop_sample,
    make_pool,
    make_process,
    make_request,
    make_step,
    make_wait,
)
from tests.tracing import Spans, attributes_of

ENDS = {
    "queue_transport": (101, 419),
    "queue_dispatch": (103, 421),
    "ready_wait": (107, 431),
    "executor_wait": (109, 433),
    "executor_return": (113, 439),
    "awaiting": (127, 443),
    "write_wait": (131, 449),
    "write_flush": (137, 457),
}
"""Part of the budget -> the least and the most that it can have been, in ms."""

EXACT = {"busy": 139, "executor_run": 151, "gc": 11, "unaccounted": 13}
TOTAL = sum(lo for lo, _ in ENDS.values()) + sum(EXACT.values())
MEASURED = {one.name: 17 * MS + at * MS if one.unit == "ns" else 17 + at for at, one in enumerate(MEASURES)}
USE = MemoryUse(
    "native-hybrid",
    "all Python allocations, owners > 512 B",
    requested=7_100_003,
    allocations=70,
    peak=3_200_017,
    retained=1_300_021,
    quality=(("peak", "bounded", 3_200_017, 3_900_023), ("retained", "bounded", 1_300_021, 1_700_027)),
)
AWAITS = (
    Await(
        *("lock", "asyncio.Lock notes.GATE", "c.py:79", 600 * MS, 683 * MS, 83 * MS, "exact"),
        holders=(HolderPart(8, "holder", "d.py:89", 600 * MS, 683 * MS, 1, f"{8:032x}", f"{8:016x}"),),
        limit=1,
        pending=2,
    ),
    Await(*("http", "https://api.example.com:8443", "e.py:97", 690 * MS, 727 * MS, 37 * MS, "exact"), phase="tls"),
    Await(*("db", "postgresql+asyncpg://db.example.com:5432", "e.py:98", 727 * MS, 732 * MS, 5 * MS, "exact")),
    Await(*("subprocess", "sleep", "e.py:99", 732 * MS, 734 * MS, 2 * MS, "exact")),
    Await(*("sleep", "sleep", "f.py:101", 740 * MS, 760 * MS, 12 * MS, "exact")),
)
SAMPLED = {"trace_flags": 1, "server_span": None}


def planted() -> RequestRecord:
    return make_request(
        1,
        "planted",
        **{part: lo * MS for part, (lo, _) in ENDS.items()},
        **{part: value * MS for part, value in EXACT.items()},
        quality=tuple((part, "bounded", lo * MS, hi * MS) for part, (lo, hi) in ENDS.items()),
        steps=19,
        step_max_ns=67 * MS,
        request_bytes=1_009,
        response_bytes=2_003,
        memory=USE,
        measures=tuple((name, value, "exact") for name, value in MEASURED.items()),
        waits=(make_wait(40 * MS, 100 * MS, "queue", earliest_ns=10 * MS),),
        loop=0,
        jobs=(JobTimes("pool a", 450 * MS, 473 * MS, 502 * MS, 533 * MS),),
        starved=(("read", -50 * MS, 62 * MS, "pool a", "holder"),),
        awaits=AWAITS,
        protocol_version="2025-06-18",
        trace_id=f"{1:032x}",
        span_id=f"{1:016x}",
        **SAMPLED,
    )


@cache
def frames() -> tuple[Frame, ...]:
    blocker = make_step(0, 70 * MS, 7, "blocker", file="b.py", line=71, function="f", cause="cpu", cpu_ns=61 * MS)
    own = make_step(300 * MS, 367 * MS, 1, "planted", file="a.py", line=73, function="g", cause="gil", cpu_ns=5 * MS)
    # Waits for the own step of the planted request; it has a span, so that phase spans look for whom a step held up.
    victim = make_request(2, "victim", arrival_ns=310 * MS, ready_wait=57 * MS, loop=0)
    victim = replace(victim, waits=(make_wait(314 * MS, 367 * MS),))
    return (
        make_header(),
        replace(blocker, where="exact", trace_id=f"{7:032x}", span_id=f"{7:016x}"),
        replace(own, where="exact", gc_ns=3 * MS),
        victim,
        planted(),
        make_loop_sample([30 * MS, 50 * MS, 200 * MS]),
        make_pool(
            [23 * MS],
            name="pool a",
            max=5,
            borrowed_peak=4,
            active_peak=3,
            pending_peak=2,
            run_ns=29 * MS,
            return_ns=31 * MS,
            transport_jobs=1,
            transport_wait_ns=53 * MS,
            transport_wait_max_ns=53 * MS,
            transport_waits=make_histogram([53 * MS]),
        ),
        make_process(
            cpu_ns=800 * MS,
            probe_cpu_ns=16 * MS,
            outstanding_peak=37,
            backlog_bytes_peak=40_961,
            gc_pauses=((0, 43 * MS, 2),),
            gc_ns=43 * MS,
            gc_count=1,
            dropped=(("a mark", 47),),
            active=(("tools/call", 6),),
        ),
        make_end(61 * SECOND),
    )


# --- spans ---

SERVER = {
    "mcp_probe.steps": 19,
    "mcp_probe.step.max": 0.067,
    "mcp_probe.busy": 0.139,
    "mcp_probe.executor.run": 0.151,
    "mcp_probe.gc": 0.011,
    "mcp_probe.unaccounted": 0.013,
    "mcp_probe.queue_wait.transport": 0.101,
    "mcp_probe.queue_wait.transport_max": 0.419,
    "mcp_probe.queue_wait.dispatch": 0.103,
    "mcp_probe.queue_wait.dispatch_max": 0.421,
    "mcp_probe.ready_wait": 0.107,
    "mcp_probe.ready_wait_max": 0.431,
    "mcp_probe.executor.wait": 0.109,
    "mcp_probe.executor.wait_max": 0.433,
    "mcp_probe.executor.return": 0.113,
    "mcp_probe.executor.return_max": 0.439,
    "mcp_probe.awaiting": 0.127,
    "mcp_probe.awaiting_max": 0.443,
    "mcp_probe.write_wait": 0.131,
    "mcp_probe.write_wait_max": 0.449,
    "mcp_probe.write_flush": 0.137,
    "mcp_probe.write_flush_max": 0.457,
    "mcp_probe.request.bytes": 1_009,
    "mcp_probe.response.bytes": 2_003,
    "mcp_probe.memory.requested": 7_100_003,
    "mcp_probe.memory.peak": 3_200_017,
    "mcp_probe.memory.peak_max": 3_900_023,
    "mcp_probe.memory.retained": 1_300_021,
    "mcp_probe.memory.retained_max": 1_700_027,
    "mcp_probe.dns_wait": 0.017,
    "mcp_probe.schema_lookup": 0.018,
    "mcp_probe.schema_lookup_busy": 0.019,
    "mcp_probe.error_logging": 0.020,
    "mcp_probe.errors_logged": 21,
    "mcp_probe.notifications": 22,
    "mcp_probe.notification_write": 0.023,
    "mcp_probe.context_switches_voluntary": 24,
    "mcp_probe.context_switches_involuntary": 25,
    "mcp_probe.blocked_by": "blocker",
    "mcp_probe.blocked_others": 0.053,
    "mcp_probe.quality": "awaiting=bounded,queue_wait.transport=bounded,queue_wait.dispatch=bounded,"
    "executor.wait=bounded,executor.return=bounded,ready_wait=bounded,write_wait=bounded,write_flush=bounded,"
    "memory.peak=bounded,memory.retained=bounded",
}
PHASES: dict[str, dict[str, Any]] = {
    "queue": {
        "mcp_probe.queue_wait.transport": 0.101,
        "mcp_probe.queue_wait.transport_max": 0.419,
        "mcp_probe.queue_wait.dispatch": 0.103,
        "mcp_probe.queue_wait.dispatch_max": 0.421,
        "mcp_probe.quality": "queue_wait.transport=bounded,queue_wait.dispatch=bounded",
    },
    "executor": {
        "mcp_probe.executor.name": "pool_a",
        "mcp_probe.executor.wait": 0.023,
        "mcp_probe.executor.run": 0.029,
        "mcp_probe.executor.return": 0.031,
    },
    "step": {
        "mcp_probe.step.cause": "gil",
        "mcp_probe.cpu": 0.005,
        "mcp_probe.gc": 0.003,
        "mcp_probe.blocked_others": 0.053,
    },
    "await": {"mcp_probe.kind": "http", "mcp_probe.phase": "tls"},
    "write": {
        "mcp_probe.write_wait": 0.131,
        "mcp_probe.write_wait_max": 0.449,
        "mcp_probe.write_flush": 0.137,
        "mcp_probe.write_flush_max": 0.457,
        "mcp_probe.response.bytes": 2_003,
        "mcp_probe.memory.retained": 1_300_021,
        "mcp_probe.memory.retained_max": 1_700_027,
        "mcp_probe.blocked_others": 0.053,
        "mcp_probe.quality": "write_wait=bounded,write_flush=bounded,memory.retained=bounded",
    },
}
EVENTS = {
    "mcp_probe.blocked_by": {
        "mcp_probe.blocker": "blocker",
        "mcp_probe.duration": 0.03,
        "mcp_probe.duration_max": 0.06,
        "mcp_probe.quality": "bounded",
    },
    "mcp_probe.waited_for": {
        "mcp_probe.kind": "lock",
        "mcp_probe.object": "asyncio.Lock notes.GATE",
        "mcp_probe.holder": "holder",
        "mcp_probe.held_at": "d.py:89",
        "mcp_probe.duration": 0.083,
        "mcp_probe.quality": "exact",
    },
    "mcp_probe.starved": {
        "mcp_probe.pool": "pool_a",
        "mcp_probe.holder": "holder",
        "mcp_probe.duration": 0.062,
        "mcp_probe.duration_max": 0.112,
        "mcp_probe.quality": "bounded",
    },
}


@cache
def spans() -> Spans:
    found = Spans()
    export = SpanExport(found.provider, give_ids=found.ids.give, anchor=lambda: (0.0, 0), detail=1.0)
    export.take(frames())
    export.close(1.0)
    return found


def ours(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name.startswith("mcp_probe.")}


def test_the_server_span_has_each_value() -> None:
    assert ours(attributes_of(spans().only("tools/call planted"))) == SERVER


@pytest.mark.parametrize("phase", names.PHASE_SPANS)
def test_each_phase_span_has_its_values(phase: str) -> None:
    span = spans().all(phase)[0]
    assert ours(attributes_of(span)) == {"mcp_probe.operation": "planted", **PHASES[phase]}


def test_events_and_links_have_each_value() -> None:
    server = spans().only("tools/call planted")
    assert {event.name: ours(event.attributes or {}) for event in server.events} == EVENTS
    blocked = next(event.attributes or {} for event in server.events if event.name == names.EVENT_BLOCKED_BY)
    assert [blocked[f"code.{part}"] for part in ("file.path", "line.number", "function.name")] == ["b.py", 71, "f"]
    waited = next(event.attributes or {} for event in server.events if event.name == names.EVENT_WAITED_FOR)
    assert [waited[f"code.{part}"] for part in ("file.path", "line.number")] == ["c.py", 79]
    assert [(link.context.trace_id, link.context.span_id, attributes_of(link)) for link in server.links] == [
        (7, 7, {"mcp_probe.link": "blocked_by"}),
        (8, 8, {"mcp_probe.link": "waited_for"}),
    ]


def test_outbound_waits_have_spans_with_their_times_and_the_names_of_the_conventions() -> None:
    http, db, program = spans().all(names.SPAN_AWAIT)
    of: dict[str, Any] = {"mcp.method.name": "tools/call", "mcp_probe.operation": "planted", "code.file.path": "e.py"}
    assert attributes_of(http) == of | {
        "mcp_probe.kind": "http",
        "mcp_probe.phase": "tls",
        "server.address": "api.example.com",
        "server.port": 8443,
        "code.line.number": 97,
    }
    assert attributes_of(db) == of | {
        "mcp_probe.kind": "db",
        "server.address": "db.example.com",
        "server.port": 5432,
        "db.system.name": "postgresql",
        "code.line.number": 98,
    }
    assert attributes_of(program) == of | {
        "mcp_probe.kind": "subprocess",
        "process.executable.name": "sleep",
        "code.line.number": 99,
    }
    assert [(span.start_time, span.end_time) for span in (http, db, program)] == [
        (690 * MS, 727 * MS),
        (727 * MS, 732 * MS),
        (732 * MS, 734 * MS),
    ]


def test_no_attribute_of_ours_is_without_a_planted_value() -> None:
    documented = {name for name, cells in rows_of("Spans").items() if cells[-1] == "ours" and "opt-in" not in cells[0]}
    upper = set(map(names.upper_end, names.BOUNDED))
    measures = {f"mcp_probe.{one.name}" for one in MEASURES}
    found = {name for group in (PHASES, EVENTS) for values in group.values() for name in values} | SERVER.keys()
    assert found | {names.OPERATION} == (documented | upper | measures) - {names.LINK_KIND}


def test_numbers_of_a_span_have_the_unit_of_their_row() -> None:
    """Planted times are below 1, in seconds; bytes and counts are whole."""
    units = {name: cells[1].split(",")[0] for name, cells in rows_of("Spans").items()}
    for values in (SERVER, *PHASES.values(), *EVENTS.values()):
        for name, value in values.items():
            unit = units.get(name.removesuffix("_max"), "s" if isinstance(value, float) else "count")
            if isinstance(value, (int, float)):
                assert isinstance(value, float) == (unit == "s"), name
                assert unit in ("s", "By", "count"), name


# --- metrics ---

HISTOGRAMS: dict[str, Any] = {
    "mcp_probe.request.queue_wait": {("planted", "dispatch"): 0.103, ("planted", "transport"): 0.101},
    "mcp_probe.request.queue_wait_max": {("planted", "dispatch"): 0.421, ("planted", "transport"): 0.419},
    "mcp_probe.request.ready_wait": 0.107,
    "mcp_probe.request.ready_wait_max": 0.431,
    "mcp_probe.request.blocked": {("blocker", "planted"): 0.03},
    "mcp_probe.request.blocked_max": {("blocker", "planted"): 0.06},
    "mcp_probe.request.await": {
        ("lock", "planted"): 0.083,
        ("http", "planted", "api.example.com"): 0.037,
        ("db", "planted", "db.example.com"): 0.005,
        ("subprocess", "planted"): 0.002,
        ("sleep", "planted"): 0.012,
    },
    "mcp_probe.request.busy": 0.139,
    "mcp_probe.request.awaiting": 0.127,
    "mcp_probe.request.awaiting_max": 0.443,
    "mcp_probe.request.write_wait": 0.131,
    "mcp_probe.request.write_wait_max": 0.449,
    "mcp_probe.request.write_flush": 0.137,
    "mcp_probe.request.write_flush_max": 0.457,
    "mcp_probe.step.duration": 0.067,
    "mcp_probe.executor.wait": {("planted", "pool_a"): 0.023},
    "mcp_probe.executor.run": {("planted", "pool_a"): 0.029},
    "mcp_probe.executor.return": {("planted", "pool_a"): 0.031},
    "mcp_probe.request.memory.requested": {("planted", "python_allocator"): 7_100_003},
    "mcp_probe.request.memory.peak": {("planted", "python_allocator"): 3_200_017},
    "mcp_probe.request.memory.peak_max": {("planted", "python_allocator"): 3_900_023},
    "mcp_probe.request.memory.retained": {("planted", "python_allocator"): 1_300_021},
    "mcp_probe.request.memory.retained_max": {("planted", "python_allocator"): 1_700_027},
    "mcp_probe.request.dns_wait": 0.017,
    "mcp_probe.request.schema_lookup": 0.018,
    "mcp_probe.request.schema_lookup_busy": 0.019,
    "mcp_probe.request.error_logging": 0.020,
    "mcp_probe.request.errors_logged": 21,
    "mcp_probe.request.notifications": 22,
    "mcp_probe.request.notification_write": 0.023,
    "mcp_probe.request.context_switches_voluntary": 24,
    "mcp_probe.request.context_switches_involuntary": 25,
    "mcp_probe.transport.thread_wait": {(): 0.053},
    "mcp_probe.gc.pause": {("2",): 0.043},
}
"""Name -> sum of the series with these values of attributes, sorted; a number stands for that of the tool."""

OTHERS: dict[str, Any] = {
    "mcp.server.operation.duration": {("execute_tool", "pipe", "planted", "tools/call", "2025-06-18", True): 1.242},
    "mcp.server.session.duration": {("2025-06-18",): 61.0},
    "mcp_probe.request.active": {("tools/call",): 6},
    "mcp_probe.request.outstanding": {(): 37},
    "mcp_probe.transport.backlog": {(): 40_961},
    "mcp_probe.loop.utilization": {(): 0.28},
    "mcp_probe.loop.arrival_delay.mean": {(): 0.0217},
    "mcp_probe.loop.arrival_delay.p50": {(): 0.0},
    "mcp_probe.loop.arrival_delay.p90": {(): 0.1},
    "mcp_probe.loop.arrival_delay.p99": {(): 0.19},
    "mcp_probe.loop.arrival_delay.max": {(): 0.2},
    "mcp_probe.executor.max": {("pool_a",): 5},
    "mcp_probe.executor.borrowed": {("pool_a",): 4},
    "mcp_probe.executor.active": {("pool_a",): 3},
    "mcp_probe.executor.pending": {("pool_a",): 2},
    "mcp_probe.probe.overhead": {(): 0.02},
    "mcp_probe.probe.dropped": {("a_mark",): 47},
}


def series(point: Any) -> tuple[Any, ...]:
    return tuple(sorted((point.attributes or {}).values(), key=lambda value: (str(type(value)), value)))


def wanted(values: Any) -> dict[tuple[Any, ...], Any]:
    found = values if isinstance(values, dict) else {("planted",): values}
    return {tuple(sorted(key, key=lambda value: (str(type(value)), value))): value for key, value in found.items()}


@cache
def sent(way: str) -> dict[str, Any]:
    """Metrics by name, as they leave that way."""
    backend, own = Backend(), HistogramSet()
    histograms = [own] if way == "ours" else ()
    export = MetricExport(backend.provider, histograms=histograms, replay=way == "replay", await_hosts=True)
    export.take(frames())
    export.close(1.0)
    found: dict[str, Any] = dict(backend.collect())
    scope = scope_of(own, AggregationTemporality.CUMULATIVE)
    return found if scope is None else found | {metric.name: metric for metric in scope.metrics}


def assert_has(metric: Any, name: str, values: Any, read: str, rel: float = 1e-9) -> None:
    assert metric.unit == units()[name], name
    found = {series(point): getattr(point, read) for point in metric.data.data_points}
    for key, value in wanted(values).items():
        assert found[key] == pytest.approx(value, rel=rel), (metric.name, key)


@cache
def units() -> dict[str, str]:
    documented = {name: cells[1] for name, cells in rows_of("Metrics").items()}
    return documented | {f"mcp_probe.request.{one.name}": "s" if one.unit == "ns" else "1" for one in MEASURES}


@pytest.mark.parametrize("way", ["ours", "replay"])
@pytest.mark.parametrize("name", HISTOGRAMS)
def test_each_histogram_has_its_value(name: str, way: str) -> None:
    metric = sent(way)[name]
    assert_has(metric, name, HISTOGRAMS[name], "sum")
    assert {point.count for point in metric.data.data_points if "planted" in series(point)} <= {1}


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_each_histogram_has_its_value_where_the_provider_is_the_applications(name: str) -> None:
    found = sent("application")
    assert_has(found[f"{name}_sum"], name, HISTOGRAMS[name], "value")
    for statistic in ("p50", "p99", "largest"):  # a value is known by its bucket there
        assert_has(found[f"{name}_{statistic}"], name, HISTOGRAMS[name], "value", rel=0.12)
    counts = found[f"{name}_count"].data.data_points
    assert {point.value for point in counts if series(point) in wanted(HISTOGRAMS[name])} == {1}


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_metric_has_its_value(name: str) -> None:
    read = "sum" if name.startswith("mcp.") else "value"
    assert_has(sent("ours")[name], name, OTHERS[name], read)


def test_no_metric_is_without_a_planted_value() -> None:
    assert HISTOGRAMS.keys() | OTHERS.keys() == {metric.name for metric in names.METRICS}


# --- recording, JSON, console ---


def test_a_recording_has_each_value_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    writer = RecordingWriter(path)
    writer.write([encode(frame) for frame in frames()])
    writer.close()
    assert tuple(read_recording(path)) == frames()


def test_the_json_has_each_value_in_the_unit_of_its_key() -> None:
    found = json.loads(json.dumps(summary().to_json()))
    (operation,) = (one for one in found["operations"] if one["name"] == "planted")
    budget = {part: float(lo) for part, (lo, _) in ENDS.items()} | {part: float(ms) for part, ms in EXACT.items()}
    assert operation["budget_ms"] == budget
    quality = operation["quality"]
    for part, (lo, hi) in ENDS.items():
        assert quality[part] == {"tag": "bounded", "lo": lo, "hi": hi}
    assert operation["total_ms"] == dict.fromkeys(("p50", "p95", "p99", "max"), float(TOTAL))
    assert operation["steps"] == {"mean": 19.0, "max_ms": 67.0, "immediate": 0.0}
    memory = operation["memory"]
    planted_sizes = {"requested": 7_100_003, "peak": 3_200_017, "retained": 1_300_021}
    assert {part: memory[part] for part in planted_sizes} == {
        part: {"p50": size, "max": size} for part, size in planted_sizes.items()
    }
    assert (quality["peak"]["hi"], quality["retained"]["hi"]) == (3_900_023, 1_700_027)
    assert (operation["request_bytes_max"], operation["response_bytes_max"]) == (1_009, 2_003)
    assert {key: one["mean"] for key, one in operation["measures"].items()} == {
        one.key: MEASURED[one.name] / 1e6 if one.unit == "ns" else MEASURED[one.name] for one in MEASURES
    }
    blocked = next(row for row in found["blocked_by"] if row["blocker"] == "blocker")
    assert (blocked["victim"], blocked["lo_ms"], blocked["hi_ms"]) == ("planted", 30.0, 60.0)
    steps = {row["tool"]: (row["ms"], row["file"], row["line"], row["function"]) for row in found["slow_steps"]}
    assert steps == {"blocker": (70.0, "b.py", 71, "f"), "planted": (67.0, "a.py", 73, "g")}
    (pool,) = found["executors"]
    assert [pool[key] for key in ("max", "borrowed_peak", "active_peak", "pending_peak")] == [5, 4, 3, 2]
    assert (pool["wait_ms"], pool["run_ms"], pool["return_ms"]) == ({"p50": 23.0, "p99": 23.0}, 29.0, 31.0)
    assert (pool["transport_wait_ms"], pool["transport_wait_max_ms"]) == (53.0, 53.0)
    assert (found["outstanding"]["peak"], found["outstanding"]["backlog_bytes_peak"]) == (37, 40_961)
    assert found["loop"]["utilization"] == pytest.approx(0.28)
    delay = {"mean": 21.7, "p50": 0.0, "p90": 100.0, "p99": 190.0, "max": 200.0}
    assert found["loop"]["arrival_delay_ms"] == pytest.approx(delay)
    waited = [row["count"] * sum(ms or 0.0 for ms in row["budget_ms"].values()) for row in found["operations"]]
    assert found["clients_waited_ms"] == pytest.approx(sum(waited))
    assert all(finding["cost_ms"] <= found["clients_waited_ms"] for finding in found["findings"])
    assert found["probe"]["overhead_share"] == pytest.approx(0.02)
    assert found["probe"]["cpu_ms"] >= found["probe"]["hook_ms"] >= 0
    assert found["probe"]["dropped_marks"] == 47
    assert (found["signals"]["gc_pause_ms"], found["signals"]["gc_max_generation"]) == (43.0, 2)


def summary() -> Any:
    fold = Fold()
    fold.add_all(frames())
    return fold.summary()


SHOWN = (
    r"planted +1 +≥1\.24 s +(\[1\.24–1\.56 s\] *){3}",  # in all, p50, p95, p99
    # Of 1242 ms, or of 318 more with an earlier arrival, which are in the queue then.
    r"write \[17–73%\]  queue \[16–54%\]  exec run \[10–12%\]  busy \[9–11%\]",
    r"planted ×1 +waited \[30–60 ms\].* for blocker +b\.py:71",
    r"blocker +61 ms +61 ms +1 +computing  70 ms with its waits for a CPU +b\.py:71  f\(\)",
    r"planted +67 ms +67 ms +1 .* a\.py:73  g\(\)",
    r"pool a .* 4/5 +3 +2 +23 ms +23 ms",
    r"waited up to 53 ms for a thread · 1 job of 29 ms on average · 31 ms from a job's end until its call went on",
    r"planted +7\.1 MB +7\.1 MB +(\[3\.2–3\.9 MB\] *){2}(\[1\.3–1\.7 MB\] *){2}1\.01 kB +2 kB",
    r"planted +DNS +17 ms +17 ms +schema look-up +18 ms +18 ms +look-up on loop +19 ms +19 ms",
    r"error logging +20 ms +20 ms +errors logged +21 +21 +notified +22 +22 +notifying +23 ms +23 ms",
    r"voluntary switches +24 +24 +involuntary switches +25 +25",
    r"busy .* 28%",
    r"22 ms on average: half not at all, one in ten 100 ms or more, one in a hundred 190 ms or more",
    r"at most 37 requests in the server at once, up to 41 kB of requests not yet read",
    r"47 measurements lost",
)


@pytest.mark.parametrize("shown", SHOWN)
def test_the_console_shows_each_value_with_both_ends(shown: str) -> None:
    text = " ".join(render(summary(), color=False, ascii_only=False, width=200, whole=True).split("\n"))
    assert re.search(shown, text), text
