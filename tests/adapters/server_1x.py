# mypy: ignore-errors
"""A server on mcp 1.x (FastMCP) or fastmcp 2 and 3. Usage: server_1x.py stdio|http|sse PORT [WAY].

WAY: ``attach``, ``lowlevel`` and ``trio`` (a low-level ``Server``, attached), ``uvloop`` (attached), ``decorator``
(no server is attached). Those write to ``$RECORDING``. Without one, whoever starts the server profiles it.
"""

from __future__ import annotations

import os
import sys
import time

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
    await anyio.sleep(60)
    return "never"


TOOLS = {"add": add, "block": block, "wait": wait}


def high_level(decorate=None):
    server = FastMCP("one x")
    for tool in TOOLS.values():
        server.tool()(decorate(tool) if decorate else tool)
    return server


def low_level():
    from mcp.server.lowlevel import Server
    from mcp.types import TextContent, Tool

    server = Server("one x")
    number = {"type": "number"}
    adding = {"type": "object", "properties": {"a": number, "b": number}}

    @server.list_tools()
    async def list_tools():
        return [Tool(name=name, inputSchema=adding if name == "add" else {"type": "object"}) for name in TOOLS]

    @server.call_tool()
    async def call_tool(name, arguments):
        return [TextContent(type="text", text=str(await TOOLS[name](**arguments)))]

    return server


def app(server, transport: str):
    if hasattr(server, "http_app"):
        return server.http_app(transport="sse" if transport == "sse" else "http")
    return server.sse_app() if transport == "sse" else server.streamable_http_app()


async def serve_stdio(server) -> None:
    if hasattr(server, "run_stdio_async"):
        return await server.run_stdio_async()
    from mcp.server.stdio import stdio_server

    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())


def main(transport: str, port: str, way: str = "") -> None:
    recording = os.environ.get("RECORDING")
    decorate = None
    if way == "decorator":
        from mcp_probe import Probe

        decorate = Probe(record=recording).profile
    server = low_level() if way in ("lowlevel", "trio") else high_level(decorate)
    if way and not decorate:
        from mcp_probe import attach

        attach(server, record=recording)
    if transport == "stdio":
        anyio.run(serve_stdio, server, backend="trio" if way == "trio" else "asyncio")
    else:
        import uvicorn

        loop = "uvloop" if way == "uvloop" else "asyncio"
        uvicorn.run(app(server, transport), host="127.0.0.1", port=int(port), log_level="error", loop=loop)


if __name__ == "__main__":
    main(*sys.argv[1:])
