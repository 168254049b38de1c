"""`mcp-probe run --otlp` around a server whose interpreter has no OpenTelemetry: the parent sends what it records."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.export.backends import claims
from tests.export.backends.collector import Collector
from tests.export.backends.loopback import eventually
from tests.export.backends.received import Point, Span, resources_of
from tests.export.backends.shopping import CALLS, Visit, shop

pytestmark = pytest.mark.slow

SERVER = Path(__file__).with_name("foreign_server.py")
SERVICE = "foreign-shop"
PATIENT = {"MCP_PROBE_OTLP_EXIT_MS": "60000"}
TOOLS = ("nap", "hold", "add", "wait", "fail")
EXPECTED = {tool: CALLS[tool] for tool in TOOLS}


@dataclass(frozen=True)
class Run:
    """One visit, and what arrived of it."""

    visit: Visit
    spans: list[Span]
    points: list[Point]


@pytest.fixture(scope="module")
def run(a_collector: Collector, env_python: Callable[[str], Path]) -> Run:
    probe = [sys.executable, "-m", "mcp_probe", "run", "--otlp", a_collector.http, "--"]
    visit = shop(a_collector.folder, SERVICE, PATIENT, command=[*probe, str(env_python("mcp1")), str(SERVER)])

    def spans() -> list[Span]:
        return [span for span in a_collector.spans() if span.resource["service.name"] == SERVICE]

    def points() -> list[Point]:
        return [point for point in a_collector.points() if point.resource["service.name"] == SERVICE]

    def is_complete() -> bool:
        """Spans and metrics leave by requests of their own, and the Collector writes two files."""
        return claims.are_complete(spans(), TOOLS) and claims.counts_of(points(), TOOLS) == EXPECTED

    if not eventually(is_complete):
        pytest.fail(f"not everything arrived; the server said: {visit.log.read_text('utf-8')}")
    return Run(visit, spans(), points())


def test_every_request_has_one_server_span_in_its_clients_trace(run: Run) -> None:
    claims.check_one_server_span_per_request(run.visit, run.spans, ["initialize", "server/discover", "tools/list"])
    assert run.visit.traces.keys() == set(TOOLS)


def test_spans_are_children_of_whom_they_worked_for(run: Run) -> None:
    claims.check_parents(run.visit, run.spans)


def test_server_spans_follow_the_conventions(run: Run) -> None:
    claims.check_conventions(run.spans, "stdio", "2025-11-25")


def test_only_the_failing_tool_is_an_error(run: Run) -> None:
    claims.check_failures(run.spans)


def test_a_victim_names_its_blocker_with_file_and_line_and_links_to_it(run: Run) -> None:
    claims.check_victims_name_their_blocker(run.spans, SERVER)


def test_the_budget_on_a_span_accounts_for_its_time(run: Run) -> None:
    claims.check_budget(run.spans)


def test_the_resource_is_the_servers_process(run: Run) -> None:
    (resource,) = resources_of(run.spans, run.points)
    assert any(pair.startswith("('service.instance.id', ") for pair in resource)


def test_every_call_is_in_the_duration_histogram(run: Run) -> None:
    assert claims.counts_of(run.points, TOOLS) == EXPECTED
