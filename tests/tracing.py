"""Spans in memory: a tracer provider that looks like the application's own for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from mcp_probe.export.pipeline import GivenIds
from mcp_probe.export.server_spans import ServerSpans
from mcp_probe.session import attach
from tests.kept import Kept, keep

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
CALLER_ID = 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE_ID:032x}-{CALLER_ID:016x}-01"


class Spans:
    """A tracer provider and what it has exported."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.ids = GivenIds()
        self.provider = TracerProvider(sampler=sampler, id_generator=self.ids)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self, name: str | None = None, kind: trace.SpanKind | None = None) -> list[ReadableSpan]:
        """Finished spans, oldest first."""
        spans = self._exporter.get_finished_spans()
        return [span for span in spans if name in (None, span.name) and kind in (None, span.kind)]

    def server(self, name: str | None = None) -> list[ReadableSpan]:
        """Finished SERVER spans."""
        return self.all(name, trace.SpanKind.SERVER)

    def only(self, name: str) -> ReadableSpan:
        """The one SERVER span called ``name``."""
        [span] = self.server(name)
        return span

    def text(self) -> str:
        """Everything that was exported, for a search."""
        return "\n".join(span.to_json() for span in self._exporter.get_finished_spans())


def make_global(spans: Spans, patch: pytest.MonkeyPatch) -> None:
    """The application has set ``spans.provider``, which the API allows for once and the SDK's tracer never forgets."""
    import mcp.shared._otel as sdk
    import mcp.shared.jsonrpc_dispatcher as dispatcher

    patch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
    patch.setattr(sdk, "_tracer", spans.provider.get_tracer("mcp-python-sdk"))
    # The client of the same process stays out of it, so that ``_meta`` is what the test says.
    patch.setattr(dispatcher, "otel_span", _no_span)


def _no_span(name: str, **options: Any) -> AbstractContextManager[trace.Span]:
    return trace.NoOpTracer().start_as_current_span(name, **options)


@contextmanager
def traced(server: Any, tracing: Any = None, **options: Any) -> Iterator[Kept]:
    """``server`` attached and traced, by default with the global provider; records are complete afterwards."""
    probe = attach(server, telemetry="off", **options)
    probe.trace_with(ServerSpans() if tracing is None else tracing)
    kept = keep(probe)
    try:
        yield kept
    finally:
        probe.detach()


def attributes_of(span: Any) -> dict[str, Any]:
    """Attributes of a span, an event or a link."""
    return dict(span.attributes or {})
