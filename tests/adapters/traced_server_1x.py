"""Runs in an environment with mcp 1.x: serves in memory, calls its tools, prints the spans as JSON. No test module."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mcp.shared.memory
import mcp.types
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import mcp_probe
from mcp_probe.export.server_spans import ServerSpans
from tests.adapters.asgi_client import Handshake, message, started

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "the-secret-1x"

seen: dict[str, str] = {}
types: Any = mcp.types  # of mcp 1.x; whoever checks these types has 2.x
memory: Any = mcp.shared.memory


def here() -> str:
    return f"{trace.get_current_span().get_span_context().span_id:016x}"


async def add(a: int, b: int) -> int:
    loop = asyncio.get_running_loop()
    seen["handler"] = here()
    seen["to_thread"] = await asyncio.to_thread(here)
    with ThreadPoolExecutor(1) as pool:
        seen["run_in_executor"] = await loop.run_in_executor(pool, here)
    thread = threading.Thread(target=lambda: seen.update(thread=here()))
    thread.start()
    await asyncio.to_thread(thread.join)
    return a + b


async def fail() -> str:
    raise ValueError(SECRET)


def make_server(kind: str) -> Any:
    if kind == "mcp":
        from mcp.server.fastmcp import FastMCP  # type: ignore[attr-defined]
    else:
        from fastmcp import FastMCP
    server = FastMCP("old")
    server.tool()(add)
    server.tool()(fail)
    return server


async def call(session: Any, tool: str, meta: dict[str, Any], **arguments: Any) -> None:
    params = types.CallToolRequestParams(name=tool, arguments=arguments, _meta=meta)
    request = types.ClientRequest(types.CallToolRequest(method="tools/call", params=params))
    await session.send_request(request, types.CallToolResult)


async def talk_over_http(server: Any, tracer: Any) -> None:
    """Within an HTTP instrumentation that opens a span for each exchange; the last names a caller in its headers."""
    app = server.streamable_http_app()

    async def instrumented(scope: Any, receive: Any, send: Any) -> None:
        with tracer.start_as_current_span("POST", kind=trace.SpanKind.SERVER):
            await app(scope, receive, send)

    async with started(app):
        http = Handshake(instrumented)
        await http.open()
        await http.call(1, "add", a=1, b=2)
        headers = [(b"traceparent", TRACEPARENT.encode())]
        body = message(2, "tools/call", name="fail", arguments={})
        await http.post(body, "tools/call", "fail", headers)


async def main(kind: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    server = make_server("mcp" if kind == "http" else kind)
    probe = mcp_probe.attach(server, telemetry="off")
    probe.trace_with(ServerSpans())
    if kind == "http":
        await talk_over_http(server, provider.get_tracer("http instrumentation"))
    else:
        await talk(server)
    disabled = probe.snapshot().probe.disabled_hooks
    probe.detach()
    print(
        json.dumps(
            {"spans": [row_of(span) for span in exporter.get_finished_spans()], "seen": seen} | {"disabled": disabled}
        )
    )


async def talk(server: Any) -> None:
    async with memory.create_connected_server_and_client_session(server._mcp_server) as session:
        await call(session, "add", {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}, a=1, b=2)
        await call(session, "fail", {})
        await session.send_ping()


def row_of(span: Any) -> dict[str, Any]:
    return {
        "name": span.name,
        "kind": span.kind.name,
        "scope": span.instrumentation_scope.name if span.instrumentation_scope else None,
        "trace": f"{span.context.trace_id:032x}",
        "id": f"{span.context.span_id:016x}",
        "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        "links": [f"{link.context.span_id:016x}" for link in span.links],
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes or {}),
        "text": span.to_json(),
    }


asyncio.run(main(sys.argv[1]))
