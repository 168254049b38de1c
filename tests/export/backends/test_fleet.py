"""The Collector configuration, the SQL and the dashboard of ``examples/fleet``, on what real servers sent through it.

Three servers send: over stdio, over HTTP, and one that has set up OpenTelemetry itself. The Collector's own ClickHouse
exporter makes the tables and fills them in an embedded ClickHouse. Traces go to Jaeger as well and metrics to
Prometheus; where those are not built, another Collector takes their place.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import StatusCode

from mcp_probe.export import semantic_conventions as names
from tests.export.backends.claims import NOT_ALL_OF_IT
from tests.export.backends.clickhouse import ClickHouse, clickhouse
from tests.export.backends.collector import Collector, collector_to_files, fleet_collector
from tests.export.backends.jaeger import Jaeger, jaeger
from tests.export.backends.loopback import ROOT, binary, eventually, is_built
from tests.export.backends.prometheus import Prometheus, prometheus
from tests.export.backends.received import Span
from tests.export.backends.shopping import CALLS, SECRET, SERVER, WAIT_MS, WAITED_MS, Visit, shop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUERIES = ROOT / "examples" / "fleet" / "sql"
DASHBOARD = ROOT / "examples" / "fleet" / "dashboard.json"
SERVICES = ("over-stdio", "over-http", "own-providers")
KEPT = ("hold", "nap", "wait", "fail")  # what each server did that is slow, failed, held up or blocking
LEAST_WAITED_S = NOT_ALL_OF_IT * WAITED_MS / 1000
CONTENT = "gen_ai.tool.call.arguments"
HELD_UP = (
    *("ready_wait", "queue_wait.transport", "queue_wait.dispatch"),
    *("executor.wait", "executor.return", "write_wait", "write_flush"),
)


@dataclass(frozen=True)
class Fleet:
    """The backends behind the Collector, and who visited."""

    clickhouse: ClickHouse
    traces: Jaeger | Collector
    metrics: Prometheus | Collector
    visits: dict[str, Visit]

    def answer(self, query: str) -> list[dict[str, Any]]:
        """Rows of ``examples/fleet/sql/<query>.sql``."""
        return self.clickhouse.rows((QUERIES / f"{query}.sql").read_text("utf-8"))

    def kept(self) -> list[dict[str, Any]]:
        """SERVER spans of tool calls that ClickHouse has."""
        return self.clickhouse.rows(
            "SELECT ServiceName AS service, SpanAttributes['gen_ai.tool.name'] AS tool, TraceId AS trace, "
            "SpanId AS span, Duration AS ns, StatusCode AS status, SpanAttributes AS attributes, "
            "Events.Attributes AS events FROM otel.otel_traces "
            "WHERE SpanKind = 'Server' AND SpanAttributes['mcp.method.name'] = 'tools/call'"
        )

    def spans_elsewhere(self) -> list[Span]:
        """Spans that the other trace backend has."""
        if isinstance(self.traces, Collector):
            return self.traces.spans()
        return [span for service in (*SERVICES, "other", "waits") for span in self.traces.spans(service)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, env_python: Callable[[str], Path]) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "stand-in").mkdir()
    with ExitStack() as running:
        stand_in = running.enter_context(collector_to_files(folder / "stand-in"))
        traces = running.enter_context(jaeger(folder)) if is_built("jaeger") else stand_in
        metrics = running.enter_context(prometheus(folder)) if is_built("prometheus") else stand_in
        database = running.enter_context(clickhouse(folder, env_python("chdb")))
        collector = running.enter_context(
            fleet_collector(
                folder,
                traces=f"127.0.0.1:{traces.grpc_port}",
                metrics=metrics.otlp if isinstance(metrics, Prometheus) else metrics.http,
                clickhouse=database.endpoint,
            )
        )
        send_content(collector)
        send_waits(collector)
        to = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.http}
        visits = {
            "over-stdio": shop(folder, "over-stdio", to),
            "over-http": shop(folder, "over-http", to, transport="http"),
            "own-providers": shop(folder, "own-providers", to, own=True),
        }
        found = Fleet(database, traces, metrics, visits)
        if not eventually(lambda: has_everything(found)):
            said = {visit.service: visit.log.read_text("utf-8") for visit in visits.values()}
            pytest.fail(f"not everything arrived; the servers said: {said}")
        yield found


def send_content(collector: Collector) -> None:
    """As another instrumentation in the same fleet might: arguments of a failed call on its span."""
    provider = TracerProvider(resource=Resource({"service.name": "other"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector.http}/v1/traces")))
    with provider.get_tracer("other").start_as_current_span("execute_tool pay") as span:
        span.set_attribute(CONTENT, '{"card": "4111"}')
        span.set_attribute("gen_ai.tool.name", "pay")
        span.set_status(StatusCode.ERROR)
    provider.shutdown()


WAITS: dict[str, tuple[dict[str, float], dict[str, str | float] | None]] = {
    "fast": ({"mcp_probe.ready_wait": 0.01, "mcp_probe.ready_wait_max": 0.02}, None),
    "briefly starved": ({}, {"mcp_probe.pool": "anyio_default_limiter", "mcp_probe.duration": 0.01}),
    **{f"bounded {wait}": ({f"mcp_probe.{wait}": 0.0, f"mcp_probe.{wait}_max": 0.4}, None) for wait in HELD_UP},
    **{f"exact {wait}": ({f"mcp_probe.{wait}": 0.4}, None) for wait in HELD_UP},
    "starved": ({}, {"mcp_probe.pool": "anyio_default_limiter", "mcp_probe.duration": 0.07}),
    "perhaps starved": ({}, {"mcp_probe.pool": "x", "mcp_probe.duration": 0.0, "mcp_probe.duration_max": 0.07}),
}
"""Attributes of a span, and of its event `starved`: what the Collector has to decide about, exactly as it is sent."""


def send_waits(collector: Collector) -> None:
    """Quick traces of one span each, which nothing but the waits in them makes worth keeping."""
    provider = TracerProvider(resource=Resource({"service.name": "waits"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector.http}/v1/traces")))
    tracer = provider.get_tracer("waits")
    for name, (attributes, starved) in WAITS.items():
        span = tracer.start_span(name, attributes=attributes)
        if starved is not None:
            span.add_event(names.EVENT_STARVED, starved)
        span.end()
    provider.shutdown()


def has_everything(fleet: Fleet) -> bool:
    """The sampler has decided about each trace that is worth keeping, and both backends have it."""
    worth = {trace for visit in fleet.visits.values() for tool in KEPT for trace in visit.traces[tool]}
    tables = {row["name"] for row in fleet.clickhouse.rows("SELECT name FROM system.tables WHERE database = 'otel'")}
    if not {"otel_traces", "otel_metrics_sum", "otel_metrics_exponential_histogram"} <= tables:
        return False
    phases = fleet.clickhouse.rows("SELECT count() AS n FROM otel.otel_traces WHERE SpanName = 'write'")
    return (
        int(phases[0]["n"]) >= len(SERVICES)
        and worth <= {row["trace"] for row in fleet.kept()}
        and worth <= {span.trace_id for span in fleet.spans_elsewhere()}
        and {(row["service"], row["tool"]): int(row["calls"]) for row in fleet.answer("latency")}
        == {(service, tool): calls for service in SERVICES for tool, calls in CALLS.items()}
    )


# --- the Collector ------------------------------------------------------------------------------------


def test_slow_failed_blocking_and_held_up_requests_are_kept(fleet: Fleet) -> None:
    kept = Counter((row["service"], row["tool"]) for row in fleet.kept() if row["tool"] in KEPT)
    assert kept == {(service, tool): CALLS[tool] for service in SERVICES for tool in KEPT}


def test_nothing_is_kept_without_a_reason(fleet: Fleet) -> None:
    rows = [row for row in fleet.kept() if row["service"] in SERVICES]
    assert [row for row in rows if not reason_to_keep(row)] == []
    assert sum(row["tool"] == "add" for row in rows) < len(SERVICES) * CALLS["add"]


def reason_to_keep(row: dict[str, Any]) -> bool:
    """The policies of the configuration, on the one span that a quick trace has."""
    attributes = row["attributes"]
    waits = [*HELD_UP, *(f"{wait}_max" for wait in HELD_UP), "step.max"]
    return (
        row["status"] == "Error"
        or int(row["ns"]) >= 0.9e9  # the trace may be longer than this span
        or any(float(attributes.get(f"mcp_probe.{wait}", 0)) > 0.1 for wait in waits)
        or float(attributes.get("mcp_probe.blocked_others", 0)) > 0.05
        or any(most_of(event) > (0.05 if "mcp_probe.pool" in event else 0.1) for event in row["events"])
    )


def most_of(event: dict[str, Any]) -> float:
    return float(event.get("mcp_probe.duration_max") or event.get("mcp_probe.duration", 0))


def test_bounded_and_starved_requests_are_kept_and_fast_ones_are_not(fleet: Fleet) -> None:
    rows = fleet.clickhouse.rows("SELECT SpanName AS name FROM otel.otel_traces WHERE ServiceName = 'waits'")
    assert sorted(row["name"] for row in rows) == sorted(WAITS.keys() - {"fast", "briefly starved"})


def test_both_trace_backends_have_the_same_spans(fleet: Fleet) -> None:
    assert eventually(lambda: not differing(fleet)), differing(fleet)


def differing(fleet: Fleet) -> set[tuple[str, str, str]]:
    """Spans that one backend has and the other has not; the exporters wait for different times."""
    rows = fleet.clickhouse.rows(
        "SELECT SpanId AS span, ParentSpanId AS parent, TraceId AS trace FROM otel.otel_traces"
    )
    elsewhere = {(span.trace_id, span.span_id, span.parent_id) for span in fleet.spans_elsewhere()}
    return {(row["trace"], row["span"], row["parent"]) for row in rows} ^ elsewhere


def test_a_kept_trace_is_whole(fleet: Fleet) -> None:
    for visit in fleet.visits.values():
        (trace,) = visit.traces["wait"]
        # Phase spans come up to two seconds after their SERVER span, and on a busy machine later still.
        whole = {"queue", "tools/call wait", "write"}
        assert eventually(partial(is_whole, fleet, trace, whole)), names_in(fleet, trace)


def is_whole(fleet: Fleet, trace: str, whole: set[str]) -> bool:
    return names_in(fleet, trace) - {"step"} == whole


def names_in(fleet: Fleet, trace: str) -> set[str]:
    rows = fleet.clickhouse.rows(f"SELECT SpanName AS name FROM otel.otel_traces WHERE TraceId = '{trace}'")
    return {row["name"] for row in rows}


def test_content_that_others_put_on_spans_stops_at_the_collector(fleet: Fleet) -> None:
    (row,) = fleet.clickhouse.rows("SELECT SpanAttributes AS a FROM otel.otel_traces WHERE ServiceName = 'other'")
    assert row["a"] == {"gen_ai.tool.name": "pay"}
    (span,) = [span for span in fleet.spans_elsewhere() if span.resource["service.name"] == "other"]
    assert span.attributes["gen_ai.tool.name"] == "pay"
    assert CONTENT not in span.attributes
    everything = json.dumps(fleet.clickhouse.rows("SELECT * FROM otel.otel_traces"))
    assert str(SECRET) not in everything


# --- the SQL ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", sorted(path.stem for path in QUERIES.glob("*.sql")))
def test_every_query_has_an_answer(query: str, fleet: Fleet) -> None:
    assert fleet.answer(query) != []


def test_sql_names_the_tool_that_blocked_most_in_the_whole_fleet(fleet: Fleet) -> None:
    first = fleet.answer("blocked-most")[0]
    assert (first["blocker"], first["victim"]) == ("hold", "nap")
    assert sorted(first["services"]) == sorted(SERVICES)
    assert int(first["processes"]) == len(SERVICES)
    assert first["blocked_seconds"] > LEAST_WAITED_S * CALLS["nap"] * len(SERVICES)


def test_sql_names_the_line_that_blocks(fleet: Fleet) -> None:
    first = fleet.answer("blocking-lines")[0]
    path, _, line = first["line"].rpartition(":")
    assert path == str(SERVER)
    assert "time.sleep" in SERVER.read_text("utf-8").splitlines()[int(line) - 1]
    assert (first["function"], int(first["victims"])) == ("hold", CALLS["nap"] * len(SERVICES))


def test_sql_joins_victims_with_their_blockers_across_traces(fleet: Fleet) -> None:
    blockers = {visit.service: visit.traces["hold"][0] for visit in fleet.visits.values()}
    rows = [row for row in fleet.answer("victims-and-blockers") if row["blocker_tool"] == "hold"]
    pairs = {(row["service"], row["victim_trace"]) for row in rows if row["victim_tool"] == "nap"}
    assert pairs == {(visit.service, trace) for visit in fleet.visits.values() for trace in visit.traces["nap"]}
    for row in rows:
        assert row["blocker_trace"] == blockers[row["service"]]
        assert row["victim_tool"] != "nap" or row["waited_seconds"] > LEAST_WAITED_S


def test_sql_says_where_the_time_of_slow_calls_went(fleet: Fleet) -> None:
    rows = {(row["service"], row["tool"]): row for row in fleet.answer("slow-where")}
    for service in SERVICES:
        row = rows[service, "wait"]
        # The loop may come late to the end of it, or be kept from a CPU: that is no awaiting, and the row has it.
        assert row["awaiting"] >= 0.99 * WAIT_MS / 1000
        assert row["awaiting"] + row["waiting_for_the_loop"] + row["on_the_loop"] > 0.9 * row["seconds"]
        assert row["slowest_trace"] == fleet.visits[service].traces["wait"][0]


def test_sql_counts_every_call_although_traces_are_sampled(fleet: Fleet) -> None:
    rows = {(row["service"], row["tool"]): row for row in fleet.answer("latency")}
    assert {key: int(row["calls"]) for key, row in rows.items()} == {
        (service, tool): count for service in SERVICES for tool, count in CALLS.items()
    }
    for service in SERVICES:
        row, slowest_s = rows[service, "wait"], fleet.visits[service].slowest_s
        bucket = 2.5  # none ends more than that many times above where it begins
        assert 1 < row["p50_seconds"] <= row["p90_seconds"] <= row["p99_seconds"] <= bucket * slowest_s["wait"]
        # Its client may have read the answer some time before the server knows that it is sent.
        assert 1.3 <= row["mean_seconds"] <= slowest_s["wait"] + 1
        assert rows[service, "add"]["p50_seconds"] <= max(0.1, bucket * slowest_s["add"])


def test_sql_tells_failures_and_how_they_failed(fleet: Fleet) -> None:
    rows = {(row["service"], row["operation"]): row for row in fleet.answer("failures")}
    assert rows.keys() == {(service, "tools/call fail") for service in SERVICES}
    for row in rows.values():
        assert (int(row["failed"]), row["failed_share"], row["errors"]) == (CALLS["fail"], 1, ["tool_error"])


def test_sql_compares_releases(fleet: Fleet) -> None:
    versions = {row["version"] for row in fleet.answer("releases")}
    assert versions == {"1.2.3"}


def test_sql_shows_how_full_executors_were(fleet: Fleet) -> None:
    rows = [row for row in fleet.answer("full-executors") if row["executor"] == "anyio_default_limiter"]
    assert {row["service"]: row["size"] for row in rows} == dict.fromkeys(SERVICES, 40)
    assert all(0 < row["fullness"] <= 1 for row in rows)


def test_sql_finds_the_loop_that_was_held(fleet: Fleet) -> None:
    rows = {row["service"]: row for row in fleet.answer("loops")}
    assert rows.keys() == set(SERVICES)
    assert all(row["arrival_delay_max_seconds"] > LEAST_WAITED_S for row in rows.values())


# --- the dashboard ------------------------------------------------------------------------------------


def expressions() -> Iterator[tuple[str, str]]:
    """Title and expression of each query of the dashboard, with what Grafana would put in for its variables."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression = str(target["expr"]).replace("$service", ".*")
            yield panel["title"], expression.replace("$__rate_interval", "5m").replace("$__range", "5m")


@pytest.fixture
def a_prometheus(fleet: Fleet) -> Prometheus:
    """The fleet's; skips where it is not built."""
    binary("prometheus")
    assert isinstance(fleet.metrics, Prometheus)
    return fleet.metrics


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_every_query_of_the_dashboard_has_an_answer(title: str, expression: str, a_prometheus: Prometheus) -> None:
    found = a_prometheus.query(expression)
    if title == "What it dropped":
        assert found == [], "this fleet loses nothing"
    elif title != "Calls timed in part":  # none where every arrival was known
        assert found


def test_the_dashboard_shows_who_blocks_whom(a_prometheus: Prometheus) -> None:
    (expression,) = [expression for title, expression in expressions() if title == "Blockers and victims"]
    first = a_prometheus.query(expression)[0]
    assert first["metric"] == {"mcp_probe_blocker": "hold", "gen_ai_tool_name": "nap"}
    assert float(first["value"][1]) > LEAST_WAITED_S * CALLS["nap"] * len(SERVICES)


def test_exemplars_in_prometheus_lead_to_traces_in_the_other_backends(fleet: Fleet, a_prometheus: Prometheus) -> None:
    found = a_prometheus.exemplars('mcp_server_operation_duration_seconds_bucket{gen_ai_tool_name="wait"}')
    traces = {(series["job"], exemplar["trace_id"]) for series, exemplar in found}
    assert traces == {(visit.service, trace) for visit in fleet.visits.values() for trace in visit.traces["wait"]}
    assert {trace for _, trace in traces} <= {row["trace"] for row in fleet.kept()}


def test_prometheus_has_no_metric_under_a_name_that_nobody_declared(a_prometheus: Prometheus) -> None:
    stems = tuple(metric.name.replace(".", "_") for metric in names.METRICS)
    assert [name for name in a_prometheus.names() if not name.startswith((*stems, "target_info"))] == []
