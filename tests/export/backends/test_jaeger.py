"""A real server sends to a real Jaeger; what its query API tells is what was done."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.export.backends import claims
from tests.export.backends.jaeger import Jaeger
from tests.export.backends.loopback import eventually
from tests.export.backends.received import Span
from tests.export.backends.shopping import Transport, Visit, shop

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Run:
    """One visit, and what Jaeger has of it."""

    transport: Transport
    visit: Visit
    spans: list[Span]


@pytest.fixture(scope="module", params=["stdio", "http"])
def run(request: pytest.FixtureRequest, a_jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Run:
    transport: Transport = request.param
    service = f"shop-{transport}"
    protocol, endpoint = {"stdio": ("grpc", a_jaeger.grpc), "http": ("http/protobuf", a_jaeger.http)}[transport]
    variables = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_METRICS_EXPORTER": "none",
    }
    visit = shop(tmp_path_factory.mktemp(service), service, variables, transport=transport)
    if not eventually(lambda: any(span.name == "write" for span in a_jaeger.spans(service))):
        pytest.fail(f"not everything arrived; the server said: {visit.log.read_text('utf-8')}")
    return Run(transport, visit, a_jaeger.spans(service))


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
