# mypy: ignore-errors
"""A server whose tools tell their client about their work: too often, seldom enough, or beside large answers.

Usage: ``chatty_server.py stdio|streamable-http PORT``; for mcp 1.x and 2.x.
"""

from __future__ import annotations

import sys

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context

    server = MCPServer("chatty")
    OPTIONS = {"port": int(sys.argv[2])}
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP

    server = FastMCP("chatty", port=int(sys.argv[2]))
    OPTIONS = {}

LARGE = "x" * 20_000_000


@server.tool()
async def fault(ctx: Context) -> str:
    for number in range(60):
        await ctx.report_progress(number, 60)  # progress
    return "ok"


@server.tool()
async def mended(ctx: Context) -> str:
    for number in range(0, 60, 12):
        await ctx.report_progress(number, 60)
    return "ok"


@server.tool()
async def few(ctx: Context) -> str:
    """15 for each answer, which are most of what is written."""
    for number in range(15):
        await ctx.report_progress(number, 15)
    return "ok"


@server.tool(structured_output=False)
async def large(ctx: Context) -> str:
    """30 for each answer, beside which they are nothing."""
    for number in range(30):
        await ctx.report_progress(number, 30)
    return LARGE


if __name__ == "__main__":
    if sys.argv[1] == "streamable-http":
        server.run("streamable-http", **OPTIONS)
    else:
        server.run("stdio")
