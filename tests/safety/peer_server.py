# mypy: ignore-errors
"""A server on mcp 1.x or 2.x that others instrument, too. Runs in the environments of requirements/peers*.txt.

Usage: peer_server.py stdio|PORT PEER ORDER [attach]. ORDER: ``before`` (the peer, then the server, then ours),
``after`` (the server, ours, the peer), ``first`` (the peer, then the server; ours comes from `mcp-probe run`).
What the peer has sent stands in the file $PEER_TOLD, a JSON list a line.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
import warnings

import anyio

BLOCKED_S = 0.6


def tell(*row) -> None:
    with open(os.environ["PEER_TOLD"], "a") as told:
        told.write(json.dumps(row) + "\n")


def keeping():
    """A processor that tells of each span."""
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    class Telling(SpanExporter):
        def export(self, spans):
            for span in spans:
                attributes = span.attributes or {}
                ours = sorted({name.split(".")[0] for name in attributes} & {"mcp_probe"})
                scope = span.instrumentation_scope.name
                tell(
                    scope,
                    span.name,
                    span.kind.name,
                    f"{span.context.trace_id:032x}",
                    span.status.status_code.name,
                    ours,
                )
            return SpanExportResult.SUCCESS

    return SimpleSpanProcessor(Telling())


def opentelemetry() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider()
    provider.add_span_processor(keeping())
    trace.set_tracer_provider(provider)


def openinference() -> None:
    from openinference.instrumentation.mcp import MCPInstrumentor

    opentelemetry()
    MCPInstrumentor().instrument()


def logfire() -> None:
    import logfire

    logfire.configure(
        send_to_logfire=False,
        console=False,
        inspect_arguments=False,
        additional_span_processors=[keeping()],
    )
    # It also logs this as a span, which is compared; the place that the warning names is not the server's alone.
    warnings.filterwarnings("ignore", "Found propagated trace context")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that mcp 2.x needs none
        logfire.instrument_mcp()
    logfire.log_slow_async_callbacks(BLOCKED_S / 2)  # it wraps asyncio.events.Handle._run


def sentry() -> None:
    import sentry_sdk
    from sentry_sdk.integrations.mcp import MCPIntegration
    from sentry_sdk.transport import Transport

    class Telling(Transport):
        def capture_envelope(self, envelope) -> None:
            for item in envelope.items:
                kind, body = item.headers.get("type"), item.payload.json or {}
                values = [one.get("type") for one in (body.get("exception") or {}).get("values", [])]
                operation = (body.get("contexts") or {}).get("trace", {}).get("op")
                spans = sorted(str(span.get("op")) for span in body.get("spans") or [])
                tell("sentry", kind, body.get("transaction"), operation, spans, values)

    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=Telling,
        traces_sample_rate=1.0,
        integrations=[MCPIntegration()],
        auto_session_tracking=False,
        send_client_reports=False,
    )


def on_the_loop(peer: str) -> None:
    """What a peer does once the loop runs."""
    if peer == "sentry":
        from sentry_sdk.integrations import asyncio as theirs

        enable = getattr(theirs, "enable_asyncio_integration", None)
        (enable or theirs.patch_asyncio)()  # a task factory


def make_server():
    try:  # no sooner: some peers only see what is imported after they were set up
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        from mcp.server.fastmcp import FastMCP as MCPServer

    server = MCPServer("peers", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        await anyio.lowlevel.checkpoint()
        return a + b

    @server.tool()
    def in_thread(text: str) -> str:
        found = []
        thread = threading.Thread(target=lambda: found.append(text[::-1]))
        thread.start()
        thread.join()
        return found[0]

    @server.tool()
    async def fail() -> str:
        raise ValueError("refused")

    waiting = []

    @server.tool()
    async def meet() -> str:
        waiting.append(asyncio.get_running_loop().create_future())
        return await waiting[-1]

    @server.tool()
    async def block() -> str:
        """Lets `meet` go on, then holds the loop up."""
        while not waiting:
            await asyncio.sleep(0.001)
        waiting.pop().set_result("met")
        time.sleep(BLOCKED_S)
        return "blocked"

    @server.tool()
    async def children(number: int) -> str:
        tasks = [asyncio.create_task(asyncio.sleep(0.001, one)) for one in range(number)]
        return f"{[await task for task in tasks]}"

    return server


async def serve(server, where: str, peer: str) -> None:
    on_the_loop(peer)
    if where == "stdio":
        await server.run_stdio_async()
        return
    import uvicorn

    await uvicorn.Server(
        uvicorn.Config(server.streamable_http_app(), host="127.0.0.1", port=int(where), log_level="critical")
    ).serve()


def main(where: str, peer: str, order: str, attach: str = "") -> None:
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    set_up = {"opentelemetry": opentelemetry, "openinference": openinference, "logfire": logfire, "sentry": sentry}[
        peer
    ]
    if order != "after":
        set_up()
    server = make_server()
    if attach:
        import mcp_probe

        mcp_probe.attach(server)
    if order == "after":
        set_up()
    asyncio.run(serve(server, where, peer))
    os.write(2, b"served\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
