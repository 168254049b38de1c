# mypy: ignore-errors
"""A server on mcp 1.x or 2.x whose calls wait for a constructed time. Usage: server.py stdio|HTTP PORT."""

from __future__ import annotations

import sys
import time

import anyio
import anyio.to_thread

try:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as Server

TRANSPORT, PORT = sys.argv[1], int(sys.argv[2])
server = Server("waiting")


@server.tool()
async def in_thread(seconds: float) -> str:
    await anyio.to_thread.run_sync(time.sleep, seconds)
    return "slept"


@server.tool()
async def in_steps(seconds: float) -> str:
    for _ in range(5):
        await anyio.sleep(seconds / 5)
    return "slept"


@server.tool()
async def on_the_loop(seconds: float) -> str:
    time.sleep(seconds)
    return "blocked"


@server.tool()
async def telling(seconds: float, ctx: Context) -> str:
    await ctx.report_progress(1, 2)
    time.sleep(seconds)
    await ctx.report_progress(2, 2)
    return "told"


@server.tool()
async def large(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "x" * 2_000_000


@server.tool()
async def quick() -> str:
    return "at once"


if hasattr(server, "custom_route"):
    from starlette.responses import PlainTextResponse

    @server.custom_route("/healthz", methods=["GET"])
    async def healthz(request):
        return PlainTextResponse("well")


def serve() -> None:
    if TRANSPORT == "stdio":
        server.run("stdio")
        return
    import uvicorn

    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=PORT, log_level="error")


if __name__ == "__main__":
    serve()
