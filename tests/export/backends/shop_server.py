"""The server whose telemetry the backends get: ``shop_server.py [--own] [--http PORT]``.

Where its telemetry goes is in the environment, as with any server. With ``--own`` the application has set up
OpenTelemetry itself; otherwise the probe does.
"""

from __future__ import annotations

import argparse
import time
import urllib.request

import anyio
import httpx2
import uvicorn
from mcp.server import MCPServer
from opentelemetry import metrics, propagate, trace

import mcp_probe

server = MCPServer("shop", version="1.2.3", log_level="CRITICAL")
tracer = trace.get_tracer("shop")


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def hold(ms: int) -> str:
    """Blocks the event loop."""
    time.sleep(ms / 1000)
    return "held"


@server.tool()
async def nap(ms: int) -> str:
    """Waits as an async tool should."""
    await anyio.sleep(ms / 1000)
    return "rested"


@server.tool()
async def wait(ms: int) -> str:
    """The same, called for longer."""
    await anyio.sleep(ms / 1000)
    return "waited"


@server.tool()
def render(ms: int) -> str:
    """Runs in a worker thread."""
    time.sleep(ms / 1000)
    return "rendered"


@server.tool()
async def fail() -> str:
    raise ValueError("refused")


@server.tool()
async def forward(url: str) -> str:
    """Calls somebody else over HTTP, as an instrumented client library would."""
    with tracer.start_as_current_span("GET", kind=trace.SpanKind.CLIENT):
        async with httpx2.AsyncClient(trust_env=False) as client:
            return str((await client.get(url, headers=injected())).text)


@server.tool()
def forward_from_thread(url: str) -> str:
    """The same, from a worker thread."""
    with tracer.start_as_current_span("GET", kind=trace.SpanKind.CLIENT):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(url, headers=injected())) as response:
            return str(response.read().decode())


def injected() -> dict[str, str]:
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


def set_up_opentelemetry() -> None:
    """As an application's own start-up code does."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--http", type=int)
    options = parser.parse_args()
    if options.own:
        set_up_opentelemetry()
        mcp_probe.attach(server)
    else:
        mcp_probe.attach(server, otlp=True, otlp_exit_ms=10_000)
    if options.http is None:
        server.run("stdio")
    else:
        uvicorn.run(server.streamable_http_app(), port=options.http, log_level="critical")


if __name__ == "__main__":
    main()
