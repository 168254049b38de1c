"""A stdio server with tools that do what the client says, sensible or not."""

from __future__ import annotations

import asyncio

from mcp.server import MCPServer

from tests.harm.programs.probing import BARE

server = MCPServer("sleepy")


@server.tool()
async def sleep(seconds: str) -> str:
    await asyncio.sleep(float(seconds))
    return "slept"


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    if not BARE:
        import mcp_probe

        mcp_probe.attach(server)
    server.run("stdio")
