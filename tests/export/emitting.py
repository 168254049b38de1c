"""A server that shows all that telemetry can say of it, and then writes down what it said: ``emitting.py stdio FILE``.

``stdio`` serves whoever has started it, ``http`` serves itself. Three pipelines listen at once: the application's own
providers, a pipeline as ours with exponential histograms, and one with replayed histograms.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from mcp.server.mcpserver import MCPServer
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader, Metric
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import mcp_probe
from mcp_probe.export.histogram_set import HistogramSet
from mcp_probe.export.metric_push import scope_of
from mcp_probe.export.metrics import MetricExport
from mcp_probe.model import AwaitKind, AwaitPhase
from mcp_probe.session import attached

Emitted = dict[str, Any]
ATTACHED = {
    "slow_request_ms": 0,
    "detail": 1.0,
    "capture_content": ("arguments", "result", "prompt", "resource"),
    "await_hosts": True,
}
BACKENDS: tuple[tuple[AwaitKind, str, AwaitPhase | None], ...] = (
    ("http", "https://api.example.com:443", "first-byte"),
    ("db", "postgresql://db.example.com:5432", None),
    ("subprocess", "sleep", None),
)
"""What hooks tell of calls; no backend is there."""


def make_server() -> MCPServer:
    """Tools that block, wait, compute on threads, fail, make garbage; a prompt and a resource."""
    server = MCPServer("emitting", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        await anyio.sleep(0.001)
        return a + b

    @server.tool()
    async def block(ms: int) -> str:
        time.sleep(ms / 1e3)
        return "blocked"

    @server.tool()
    async def crumbs(count: int) -> str:
        for _ in range(count):
            await anyio.sleep(0)
        return "crumbs"

    @server.tool()
    def in_thread() -> str:
        time.sleep(0.005)
        return "threaded"

    @server.tool()
    async def garbage(objects: int) -> str:
        rings: list[Any] = []
        for _ in range(objects):
            ring: list[Any] = []
            ring.append(ring)
            rings.append(ring)
        gc.collect()
        return "collected"

    lock = asyncio.Lock()

    @server.tool()
    async def guarded(ms: int) -> str:
        async with lock:
            await anyio.sleep(ms / 1e3)
        return "guarded"

    @server.tool()
    async def backends() -> str:
        (probe,) = attached()
        for kind, name, phase in BACKENDS:
            call = probe._hub.outbound.begin(kind, name, phase)
            await anyio.sleep(0.02)
            probe._hub.outbound.end(call)
        return "called"

    @server.tool()
    async def fail() -> str:
        raise ValueError("on purpose")

    @server.prompt()
    def greet(name: str) -> str:
        return f"Greet {name}."

    @server.resource("note://one")
    def note() -> str:
        return "a note"

    return server


def emitted_metric(metric: Metric) -> Emitted:
    """Name, kind, unit and attribute keys."""
    data = metric.data
    kind = type(data).__name__
    if hasattr(data, "is_monotonic"):
        kind = "counter" if data.is_monotonic else "updowncounter"
    return {
        "name": metric.name,
        "kind": {"ExponentialHistogram": "exponential histogram"}.get(kind, kind.lower()),
        "unit": metric.unit,
        "attributes": sorted({key for point in data.data_points for key in point.attributes or {}}),
        "exemplars": sum(len(getattr(point, "exemplars", ())) for point in data.data_points),
    }


def emitted_span(span: ReadableSpan) -> Emitted:
    """Name, kind and the keys of everything that hangs on it."""
    return {
        "name": span.name,
        "kind": span.kind.name,
        "scope": span.instrumentation_scope.name if span.instrumentation_scope is not None else "",
        "attributes": sorted(span.attributes or {}),
        "events": {event.name: sorted(event.attributes or {}) for event in span.events},
        "links": sorted({key for link in span.links for key in link.attributes or {}}),
    }


def collected(reader: InMemoryMetricReader) -> list[Emitted]:
    data = reader.get_metrics_data()
    scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
    return [emitted_metric(metric) for scope in scopes if scope.scope.name == "mcp_probe" for metric in scope.metrics]


class Pipelines:
    """What listens."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.readers = {way: InMemoryMetricReader() for way in ("application", "ours", "replay")}
        self.providers = {way: MeterProvider([reader]) for way, reader in self.readers.items()}
        self.histograms = HistogramSet()
        tracing = TracerProvider()
        tracing.add_span_processor(SimpleSpanProcessor(self.spans))
        trace.set_tracer_provider(tracing)
        metrics.set_meter_provider(self.providers["application"])

    def listen(self, probe: mcp_probe.Probe) -> None:
        probe.add_listener(MetricExport(self.providers["ours"], histograms=[self.histograms], await_hosts=True))
        probe.add_listener(MetricExport(self.providers["replay"], replay=True, await_hosts=True))

    def emitted(self) -> Emitted:
        """Call it after the end."""
        found = {way: collected(reader) for way, reader in self.readers.items()}
        scope = scope_of(self.histograms, AggregationTemporality.CUMULATIVE)
        found["ours"] += [emitted_metric(metric) for metric in (scope.metrics if scope is not None else ())]
        return {"metrics": found, "spans": [emitted_span(span) for span in self.spans.get_finished_spans()]}


async def over_http(server: MCPServer) -> None:
    """Serve, and be one's own client: a session of the 2025 protocol, on a port of one's own."""
    app = server.streamable_http_app()
    serving = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serving.serve)
        while not serving.started:
            await anyio.sleep(0.01)
        port = serving.servers[0].sockets[0].getsockname()[1]
        await anyio.to_thread.run_sync(converse, f"http://127.0.0.1:{port}/mcp")
        serving.should_exit = True


def converse(url: str) -> None:
    """The client's side. Blocks: for a thread."""
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2025-06-18",
    }

    def post(message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            answer.read()
            headers.setdefault("mcp-session-id", answer.headers["mcp-session-id"])

    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "self", "version": "1"}}
    post({"id": 1, "method": "initialize", "params": about})
    post({"method": "notifications/initialized"})
    for number in range(2, 6):
        post({"id": number, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}})


def main(transport: str, path: str) -> None:
    pipelines = Pipelines()
    server = make_server()
    probe = mcp_probe.attach(server, **ATTACHED)
    pipelines.listen(probe)
    if transport == "http":
        anyio.run(over_http, server)
    else:
        server.run("stdio")
    probe.detach()
    Path(path).write_text(json.dumps(pipelines.emitted()))


if __name__ == "__main__":
    main(*sys.argv[1:])
