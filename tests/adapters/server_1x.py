# mypy: ignore-errors
"""A server on mcp 1.x (FastMCP) or fastmcp 2 and 3. Usage: server_1x.py stdio|http|sse PORT."""

from __future__ import annotations

import asyncio
import sys
import time

try:
    from fastmcp import FastMCP
except ImportError:
    from mcp.server.fastmcp import FastMCP

server = FastMCP("one x")


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def block(seconds: float) -> str:
    time.sleep(seconds)  # the line
    return "done"


@server.tool()
async def wait() -> str:
    await asyncio.sleep(60)
    return "never"


def app(transport: str):
    if hasattr(server, "http_app"):
        return server.http_app(transport="sse" if transport == "sse" else "http")
    return server.sse_app() if transport == "sse" else server.streamable_http_app()


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        asyncio.run(server.run_stdio_async())
    else:
        import uvicorn

        uvicorn.run(app(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
