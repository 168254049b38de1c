"""The server of ``truth_server`` as an ASGI app, for whoever serves and profiles it: ``uvicorn …http_truth_app:app``.

With ``$RECORDING`` it attaches a probe itself. With ``$TRACES_TO`` the application has a tracer provider of its own,
which sends spans there.
"""

from __future__ import annotations

import os

from tests.adapters.truth_server import build


def trace_to(url: str) -> None:
    """Make a provider that sends each span as it ends."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
    trace.set_tracer_provider(provider)


if url := os.environ.get("TRACES_TO"):
    trace_to(url)
server = build()


@server.tool()
async def process() -> str:
    """Says which one it is."""
    return str(os.getpid())


@server.tool()
async def victim() -> str:
    """Does nothing."""
    return "nothing"


if recording := os.environ.get("RECORDING"):
    import mcp_probe

    mcp_probe.attach(server, record=recording)
app = server.streamable_http_app(json_response=True)
