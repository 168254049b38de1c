"""A real Jaeger, and its query API."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.export.backends.loopback import accepts, ask_json, binary, running
from tests.export.backends.received import Event, Span
from tests.ports import free_port

CONFIGURATION = Path(__file__).with_name("jaeger.yaml")


@dataclass(frozen=True, slots=True)
class Jaeger:
    """Where it listens."""

    grpc_port: int
    http_port: int
    query_port: int

    @property
    def grpc(self) -> str:
        return f"http://127.0.0.1:{self.grpc_port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def spans(self, service: str) -> list[Span]:
        """Every span of every trace that ``service`` took part in, as ``/api/traces`` tells it."""
        parameters = urlencode({"service": service, "limit": 1000, "lookback": "1h"})
        answer = ask_json(f"http://127.0.0.1:{self.query_port}/api/traces?{parameters}")
        return [_span(span, trace) for trace in (answer or {}).get("data") or () for span in trace["spans"]]


@contextmanager
def jaeger(folder: Path) -> Iterator[Jaeger]:
    """One with its traces in memory."""
    backend = Jaeger(free_port(), free_port(), free_port())
    variables = {
        "OTLP_GRPC": f"127.0.0.1:{backend.grpc_port}",
        "OTLP_HTTP": f"127.0.0.1:{backend.http_port}",
        "QUERY_HTTP": f"127.0.0.1:{backend.query_port}",
        "QUERY_GRPC": f"127.0.0.1:{free_port()}",
    }
    command = [str(binary("jaeger")), "--config", str(CONFIGURATION)]

    def is_ready() -> bool:
        return accepts(backend.http_port) and accepts(backend.query_port)

    # It takes more than 10 s over its shutdown, and has nothing to save.
    with running(
        command, log=folder / "jaeger.log", is_ready=is_ready, environment=variables, ends_with=signal.SIGKILL
    ):
        yield backend


def _span(span: Mapping[str, Any], trace: Mapping[str, Any]) -> Span:
    """Jaeger keeps kind, status and scope among the tags, parent and links among the references.

    A parent that is linked as well, it has once, as a link: that its trace is the span's own makes it the parent.
    """
    tags = _values(span["tags"])
    process = trace["processes"][span["processID"]]
    references = [(each["refType"], each["traceID"], each["spanID"]) for each in span["references"]]
    within = [(kind, span_id) for kind, trace_id, span_id in references if trace_id == span["traceID"]]
    parent = next((span_id for _, span_id in sorted(within)), "")
    links = [(trace_id, span_id) for kind, trace_id, span_id in references if kind == "FOLLOWS_FROM"]
    events = [_values(log["fields"]) for log in span["logs"]]
    return Span(
        trace_id=span["traceID"],
        span_id=span["spanID"],
        parent_id=parent,
        name=span["operationName"],
        kind=str(tags.pop("span.kind", "unspecified")).upper(),
        status=str(tags.pop("otel.status_code", "UNSET")),
        start_ns=span["startTime"] * 1000,
        end_ns=(span["startTime"] + span["duration"]) * 1000,
        attributes=tags,
        events=tuple(Event(str(event.pop("event", "")), event) for event in events),
        links=tuple(links),
        scope=str(tags.get("otel.scope.name", "")),
        resource={"service.name": process["serviceName"], **_values(process["tags"])},
    )


def _values(tags: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in tags}
