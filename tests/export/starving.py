"""A stdio server whose tools take all threads of the default limiter, and what its spans say: ``starving.py FILE``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import mcp_probe

server = MCPServer("starving", log_level="CRITICAL")


@server.tool()
def slow(ms: int) -> str:
    time.sleep(ms / 1e3)
    return "done"


def main(path: str) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    probe = mcp_probe.attach(server, slow_request_ms=0)
    server.run("stdio")
    probe.detach()
    found = [
        {
            "name": span.name,
            "attributes": dict(span.attributes or {}),
            "events": [{"name": event.name, **(event.attributes or {})} for event in span.events],
        }
        for span in spans.get_finished_spans()
    ]
    Path(path).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
