"""A real server, over stdio and HTTP, sends to a real Collector; what the Collector wrote down is what was done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.export.backends import claims
from tests.export.backends.collector import Collector
from tests.export.backends.loopback import eventually
from tests.export.backends.received import Point, Span, last_points, resources_of
from tests.export.backends.shopping import CALLS, HOLD_MS, SECRET, WAIT_MS, WAITED_MS, Transport, Visit, shop

pytestmark = pytest.mark.slow

BOUNDARIES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]


@dataclass(frozen=True)
class Run:
    """One visit, and what arrived of it."""

    transport: Transport
    own: bool
    visit: Visit
    seconds: float
    spans: list[Span]
    points: list[Point]

    def last(self, metric: str, **labels: str) -> list[Point]:
        """The newest point of each series of a metric whose attributes have these values (``tool`` is the tool's)."""
        wanted = {{"tool": "gen_ai.tool.name"}.get(name, name): value for name, value in labels.items()}
        points = last_points(self.points, metric)
        return [point for point in points if all(point.attributes.get(key) == wanted[key] for key in wanted)]


@pytest.fixture(
    scope="module",
    params=[("stdio", False, "http/protobuf"), ("http", False, "grpc"), ("stdio", True, "http/protobuf")],
    ids=["stdio-otlp-http", "http-grpc", "own-providers"],
)
def run(request: pytest.FixtureRequest, a_collector: Collector) -> Iterator[Run]:
    transport, own, protocol = request.param
    service = f"shop-{transport}-{'own' if own else 'ours'}"
    variables = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": a_collector.grpc if protocol == "grpc" else a_collector.http,
    }
    started = time.monotonic()
    visit = shop(a_collector.folder, service, variables, transport=transport, own=own)
    seconds = time.monotonic() - started

    def spans() -> list[Span]:
        return [span for span in a_collector.spans() if span.resource["service.name"] == service]

    def is_complete() -> bool:
        counts = claims.counts_of(_points(a_collector, service), CALLS)
        return claims.are_complete(spans(), CALLS) and all(counts[tool] >= CALLS[tool] for tool in CALLS)

    if not eventually(is_complete):
        pytest.fail(f"not everything arrived; the server said: {visit.log.read_text('utf-8')}")
    yield Run(transport, own, visit, seconds, spans(), _points(a_collector, service))


def _points(collector: Collector, service: str) -> list[Point]:
    return [point for point in collector.points() if point.resource["service.name"] == service]


def test_the_server_says_nothing(run: Run) -> None:
    assert run.visit.log.read_text("utf-8") == ""


def test_every_request_has_one_server_span_in_its_clients_trace(run: Run) -> None:
    claims.check_one_server_span_per_request(run.visit, run.spans)


def test_spans_are_children_of_whom_they_worked_for(run: Run) -> None:
    claims.check_parents(run.visit, run.spans)


def test_server_spans_follow_the_conventions(run: Run) -> None:
    claims.check_conventions(run.spans, run.transport)


def test_only_the_failing_tool_is_an_error(run: Run) -> None:
    claims.check_failures(run.spans)


def test_a_victim_names_its_blocker_with_file_and_line_and_links_to_it(run: Run) -> None:
    claims.check_victims_name_their_blocker(run.spans)


def test_the_budget_on_a_span_accounts_for_its_time(run: Run) -> None:
    claims.check_budget(run.spans)


def test_slow_requests_have_phase_spans_and_fast_ones_none(run: Run) -> None:
    claims.check_phases(run.spans)


def test_the_clients_trace_goes_on_into_the_handlers_http_call(run: Run) -> None:
    claims.check_traces_go_on(run.visit, run.spans)


def test_the_resource_says_which_process_of_which_service(run: Run) -> None:
    (resource,) = resources_of(run.spans, run.points)
    assert "('service.version', '1.2.3')" in resource
    assert any(pair.startswith("('service.instance.id', ") for pair in resource)


def test_durations_are_a_histogram_of_every_request_with_the_recommended_boundaries(run: Run) -> None:
    points = run.last("mcp.server.operation.duration")
    assert claims.counts_of(run.points, CALLS) == CALLS
    for point in points:
        assert (point.kind, point.unit) == ("histogram", "s")
        assert point.data["explicitBounds"] == BOUNDARIES
    tools = {str(point.attributes.get("gen_ai.tool.name")): point for point in points}
    for tool, ms in (("hold", HOLD_MS), ("wait", WAIT_MS)):
        assert ms / 1000 < tools[tool].data["sum"] < run.seconds
    assert tools["fail"].attributes["error.type"] == "tool_error"


def test_exemplars_lead_from_a_slow_bucket_to_its_trace(run: Run) -> None:
    points = [point for point in run.points if point.metric == "mcp.server.operation.duration"]
    shown = {
        (str(point.attributes.get("gen_ai.tool.name")), str(exemplar["traceId"]))
        for point in points
        for exemplar in point.data.get("exemplars", ())
    }
    assert ("wait", run.visit.traces["wait"][0]) in shown
    assert ("hold", run.visit.traces["hold"][0]) in shown


def test_blocked_time_is_counted_by_who_waited_and_for_whom(run: Run) -> None:
    name, labels = "mcp_probe.request.blocked", {"tool": "nap", "mcp_probe.blocker": "hold"}
    if run.own:  # the SDK has no way to hand a histogram to somebody else's provider
        (count,) = [point.data["asInt"] for point in run.last(f"{name}_count", **labels)]
        (total,) = [point.data["asDouble"] for point in run.last(f"{name}_sum", **labels)]
    else:
        (point,) = run.last(name, **labels)
        assert (point.kind, point.unit) == ("exponentialHistogram", "s")
        count, total = point.data["count"], point.data["sum"]
        assert sum(map(int, point.data["positive"]["bucketCounts"])) == int(count)
        assert point.data["max"] * 1000 > claims.NOT_ALL_OF_IT * WAITED_MS
    assert int(count) == CALLS["nap"]
    assert float(total) * 1000 > claims.NOT_ALL_OF_IT * WAITED_MS * CALLS["nap"]


def test_steps_of_all_together_took_no_longer_than_the_server_lived(run: Run) -> None:
    name, value = ("mcp_probe.step.duration_sum", "asDouble") if run.own else ("mcp_probe.step.duration", "sum")
    assert 0 < sum(float(point.data[value]) for point in run.last(name)) < run.seconds


def test_loop_and_executor_are_measured(run: Run) -> None:
    (utilization,) = run.last("mcp_probe.loop.utilization")
    assert 0 < utilization.data["asDouble"] < 1
    (delay,) = run.last("mcp_probe.loop.arrival_delay.max")
    assert delay.data["asDouble"] > 0.9 * HOLD_MS / 1000
    limits = run.last("mcp_probe.executor.max", **{"mcp_probe.executor.name": "anyio_default_limiter"})
    assert [int(point.data["asInt"]) for point in limits] == [40]


def test_no_argument_leaves_the_server(run: Run, a_collector: Collector) -> None:
    written = [(a_collector.folder / f"{kind}.jsonl").read_text("utf-8") for kind in ("traces", "metrics")]
    assert all(run.visit.service in text for text in written)
    assert [text for text in written if str(SECRET) in text or "downstream" in text] == []
