# mypy: ignore-errors
"""A server on mcp 1.x or on fastmcp 2 and 3. Usage: server_1x.py stdio|http|sse PORT [WAY,…].

WAYS: ``low`` (a low-level ``Server`` of the SDK instead of a ``FastMCP``), ``trio``, ``uvloop``, ``json`` and
``stateless`` (of streamable HTTP). And who profiles it: ``attach``, ``asgi`` (attached, and its app wrapped),
``streams`` (attached, and its streams wrapped), ``decorator`` (no server is attached). These four write to
``$RECORDING``. Without one of them, whoever starts the server profiles it. The tool ``wait`` makes the file ``$WAITS``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import anyio

try:
    from fastmcp import FastMCP
except ImportError:
    from mcp.server.fastmcp import FastMCP


async def add(a: int, b: int) -> int:
    return a + b


async def block(seconds: float) -> str:
    time.sleep(seconds)  # the line
    return "done"


async def wait() -> str:
    Path(os.environ["WAITS"]).touch()
    await anyio.sleep(60)
    return "never"


TOOLS = {"add": add, "block": block, "wait": wait}


def high_level(decorate):
    server = FastMCP("one x")
    for tool in TOOLS.values():
        server.tool()(decorate(tool) if decorate else tool)
    return server


def low_level(decorate):
    from mcp.server.lowlevel import Server
    from mcp.types import TextContent, Tool

    server = Server("one x")
    number = {"type": "number"}
    adding = {"type": "object", "properties": {"a": number, "b": number}}
    tools = {name: decorate(tool) if decorate else tool for name, tool in TOOLS.items()}

    @server.list_tools()
    async def list_tools():
        schemas = {name: adding if name == "add" else {"type": "object"} for name in tools}
        return [Tool(name=name, inputSchema=schema) for name, schema in schemas.items()]

    @server.call_tool()
    async def call_tool(name, arguments):
        return [TextContent(type="text", text=str(await tools[name](**arguments)))]

    return server


def app_of(server, transport: str, way: set[str]):
    answers = {"json_response": "json" in way, "stateless_http": "stateless" in way} if transport == "http" else {}
    if not hasattr(server, "tool"):
        return low_level_app(server, transport, *answers.values())
    if hasattr(server, "http_app"):
        return server.http_app(transport=transport, **answers)
    for name, value in answers.items():
        setattr(server.settings, name, value)
    return server.sse_app() if transport == "sse" else server.streamable_http_app()


def low_level_app(server, transport: str, *answers: bool):
    """As the SDK's documentation says for a low-level server."""
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Mount, Route

    if transport == "sse":
        from mcp.server.sse import SseServerTransport

        sse = SseServerTransport("/messages/")

        async def connected(request):
            async with sse.connect_sse(request.scope, request.receive, request._send) as streams:
                await server.run(*streams, server.create_initialization_options())
            return Response()

        return Starlette(routes=[Route("/sse", connected), Mount("/messages/", app=sse.handle_post_message)])
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    manager = StreamableHTTPSessionManager(server, None, *answers)

    class Endpoint:
        async def __call__(self, scope, receive, send):
            await manager.handle_request(scope, receive, send)

    return Starlette(routes=[Route("/mcp", Endpoint())], lifespan=lambda _: manager.run())


async def serve_stdio(server, probe=None) -> None:
    if hasattr(server, "run_stdio_async"):
        return await server.run_stdio_async()
    from mcp.server.stdio import stdio_server

    async with stdio_server() as streams:
        await server.run(*(probe.streams(*streams) if probe else streams), server.create_initialization_options())


def main(transport: str, port: str, ways: str = "") -> None:
    way = set(filter(None, ways.split(",")))
    recording = os.environ.get("RECORDING")
    probe = decorate = None
    if "decorator" in way:
        from mcp_probe import Probe

        decorate = Probe(record=recording).profile
    server = (low_level if "low" in way else high_level)(decorate)
    if way & {"attach", "asgi", "streams"}:
        from mcp_probe import attach

        probe = attach(server, record=recording)
    if transport == "stdio":
        backend = "trio" if "trio" in way else "asyncio"
        options = {"use_uvloop": True} if "uvloop" in way else {}
        anyio.run(serve_stdio, server, probe if "streams" in way else None, backend=backend, backend_options=options)
    else:
        import uvicorn

        app = app_of(server, transport, way)
        loop = "uvloop" if "uvloop" in way else "asyncio"
        if "asgi" in way:
            app = probe.asgi(app)
        uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error", loop=loop)


if __name__ == "__main__":
    main(*sys.argv[1:])
