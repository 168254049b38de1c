# mypy: ignore-errors
"""A stdio server for whatever SDK its interpreter has: mcp 1.x, or fastmcp 2, 3 or 4. Usage: … [attach] [lowlevel]."""

from __future__ import annotations

import sys
from typing import Any

import anyio

try:
    from fastmcp import Context, FastMCP
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP


def high_level() -> Any:
    server = FastMCP("any sdk")

    @server.tool()
    async def add(a: int, b: int) -> int:
        await anyio.sleep(0.002)
        return a + b

    @server.tool()
    def sync_add(a: int, b: int) -> int:
        return sum(range(200_000)) * 0 + a + b

    @server.tool()
    async def in_thread(text: str) -> str:
        return await anyio.to_thread.run_sync(lambda: text[::-1])

    @server.tool()
    async def fail(text: str) -> str:
        raise ValueError("refused")

    @server.tool()
    async def hang(ctx: Context) -> str:
        await ctx.report_progress(0, 1)
        await anyio.sleep_forever()
        return "never"

    @server.prompt()
    def greet(name: str) -> str:
        return f"Greet {name}."

    return server


def low_level() -> Any:
    """The same ``add`` and ``fail``, on mcp 1.x's low-level server."""
    from mcp import types
    from mcp.server.lowlevel import Server

    server: Any = Server("any sdk")

    @server.list_tools()  # type: ignore[untyped-decorator]
    async def list_tools() -> Any:
        return [types.Tool(name=name, inputSchema={"type": "object"}) for name in ("add", "fail")]

    @server.call_tool()  # type: ignore[untyped-decorator]
    async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
        if name == "fail":
            raise ValueError("refused")
        await anyio.sleep(0.002)
        return [types.TextContent(type="text", text=str(arguments["a"] + arguments["b"]))]

    return server


async def serve_low_level(server: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())


if __name__ == "__main__":
    options = sys.argv[1:]
    server = low_level() if "lowlevel" in options else high_level()
    if "attach" in options:
        import mcp_probe

        mcp_probe.attach(server)
    if "lowlevel" in options:
        anyio.run(serve_low_level, server)
    elif hasattr(server, "run_stdio_async"):
        anyio.run(server.run_stdio_async)
