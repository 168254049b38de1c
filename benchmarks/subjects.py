"""The processes under measurement: one MCP server with one trivial tool, bare or instrumented, on one transport.

Run as ``python benchmarks/subjects.py TRANSPORT --variant NAME``. What a variant pays for is the difference to
``bare``, so everything that is not the variant itself is the same line of code for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyio
from mcp.client.session import ClientSession
from mcp.server import MCPServer, Server
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.shared.memory import MessageStream, create_client_server_memory_streams

VARIANTS = (
    "bare",
    "bare again",
    "probe",
    "probe, pure Python",
    "sdk-otel",
    "sdk-otel and probe",
)
ARGUMENTS = {"a": 1, "b": 2}


def make_server(variant: str) -> MCPServer:
    """A server with ``add`` (the measured call) and ``describe`` (what the process says of itself), instrumented.

    ``bare`` has not even the SDK's own middleware, which without an OpenTelemetry provider still costs a little.
    """
    server = MCPServer("bench", log_level="WARNING")
    if variant.startswith("sdk-otel"):
        install_span_provider()
    else:
        without_spans(server._lowlevel_server)
    describe: Callable[[], dict[str, Any]] = dict
    if variant == "sdk-otel and probe":
        install_meter_provider()
    if variant == "probe, pure Python":
        os.environ["MCP_PROBE_NATIVE"] = "0"
    if "probe" in variant:
        import mcp_probe

        describe = describer(mcp_probe.attach(server))

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool(name="describe", structured_output=False)
    async def describe_tool() -> str:
        return json.dumps({"pid": os.getpid(), **describe()})

    return server


def without_spans(server: Server[Any]) -> None:
    """Takes the SDK's own middleware out of it."""
    server.middleware[:] = [item for item in server.middleware if not isinstance(item, OpenTelemetryMiddleware)]


def describer(probe: Any) -> Callable[[], dict[str, Any]]:
    """What the probe says of itself: its cost, and the hooks that are off, since a broken probe is cheap."""

    def describe() -> dict[str, Any]:
        summary = probe.snapshot()
        return {
            "overhead_share": summary.probe.overhead_share,
            "disabled_hooks": list(summary.probe.disabled_hooks),
            "requests": summary.requests.count,
            "dropped": summary.requests.dropped + summary.probe.dropped_marks,
        }

    return describe


def install_span_provider() -> None:
    """A real tracer provider whose spans are batched and then thrown away.

    The batch goes out every 100 ms rather than every 5 s, so that the exporter's thread works inside the block
    that made the spans and not in somebody else's.
    """
    from collections.abc import Sequence

    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class NullExporter(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(NullExporter(), schedule_delay_millis=100))
    trace.set_tracer_provider(provider)


def install_meter_provider() -> None:
    """A real meter provider, read every 5 s, whose metrics are thrown away."""
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        MetricExporter,
        MetricExportResult,
        MetricsData,
        PeriodicExportingMetricReader,
    )

    class NullExporter(MetricExporter):
        def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: Any) -> MetricExportResult:
            return MetricExportResult.SUCCESS

        def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
            pass

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(NullExporter(), 5_000)]))


def keep_client_out_of_telemetry() -> None:
    """In memory the client lives in the server's process; its spans would be charged to the server's middleware."""
    from contextlib import AbstractContextManager

    import mcp.shared.jsonrpc_dispatcher as dispatcher
    from opentelemetry.trace import NoOpTracer, Span

    tracer = NoOpTracer()

    def otel_span(name: str, **options: Any) -> AbstractContextManager[Span]:
        return tracer.start_as_current_span(name, **options)

    vars(dispatcher)["otel_span"] = otel_span


@asynccontextmanager
async def served(server: Server[Any]) -> AsyncIterator[MessageStream]:
    """The client's end of memory streams while ``server`` runs at the other."""
    async with create_client_server_memory_streams() as (near, far), anyio.create_task_group() as group:
        group.start_soon(lambda: server.run(*far, server.create_initialization_options()))
        yield near
        group.cancel_scope.cancel()


@asynccontextmanager
async def client_of(server: MCPServer) -> AsyncIterator[ClientSession]:
    """A client in this process, after the handshake."""
    async with served(server._lowlevel_server) as near, ClientSession(*near) as session:
        await session.initialize()
        yield session


async def serve_memory(variant: str) -> None:
    """Client and server in this process; blocks are asked for on stdin, one JSON line each, and answered on stdout."""
    keep_client_out_of_telemetry()
    async with client_of(make_server(variant)) as session:
        print(json.dumps({"pid": os.getpid()}), flush=True)
        while order := await next_order():
            if "describe" in order:
                result: Any = await session.call_tool("describe", {})
                print(result.content[0].text, flush=True)
            else:
                print(json.dumps(await memory_block(session, **order)), flush=True)


async def next_order() -> dict[str, Any]:
    """The next line of stdin, empty at its end. Waits in the loop's poll: a blocking read would be a slow step."""
    line = b""
    while not line.endswith(b"\n"):
        await anyio.wait_readable(0)
        more = os.read(0, 65_536)
        if not more:
            return {}
        line += more
    order: dict[str, Any] = json.loads(line)
    return order


async def memory_block(session: ClientSession, calls: int, lead_in: int) -> dict[str, Any]:
    """Wall nanoseconds of each call, after ``lead_in`` calls that are not kept."""
    for _ in range(lead_in):
        await session.call_tool("add", ARGUMENTS)
    clock = time.perf_counter_ns
    taken = []
    for _ in range(calls):
        began = clock()
        await session.call_tool("add", ARGUMENTS)
        taken.append(clock() - began)
    return {"taken_ns": taken}


def serve_http(variant: str, descriptor: int, **options: Any) -> None:
    """Serve on the listening socket that the parent passed down. ``options`` are the SDK's own."""
    run_http(make_server(variant), descriptor, **options)


def run_http(server: MCPServer, descriptor: int, **options: Any) -> None:
    """Serve ``server`` on a listening socket; no access log."""
    import uvicorn

    app = server.streamable_http_app(**options)
    # uvicorn would take uvloop and httptools where they happen to be installed.
    # Its keep-alive limit of 5 s would end the connection while the other variants have their turn.
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, loop="asyncio", http="h11", timeout_keep_alive=3600
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("transport", choices=["memory", "stdio", "http", "http-lean"])
    parser.add_argument("--variant", choices=VARIANTS, default="bare")
    parser.add_argument("--descriptor", type=int, help="over HTTP: a listening socket inherited from the parent")
    arguments = parser.parse_args()
    if arguments.transport == "memory":
        anyio.run(serve_memory, arguments.variant)
    elif arguments.transport == "stdio":
        make_server(arguments.variant).run("stdio")
    elif arguments.transport == "http":
        serve_http(arguments.variant, arguments.descriptor)
    else:
        serve_http(arguments.variant, arguments.descriptor, json_response=True, stateless_http=True)


if __name__ == "__main__":
    main()
