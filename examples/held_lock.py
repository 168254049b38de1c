"""One lock around a slow call: `list_notes` is quick, and waits for `append_note` all the same.

mcp-probe run -- python examples/held_lock.py
"""

from __future__ import annotations

import asyncio

from mcp.server.mcpserver import MCPServer

GATE = asyncio.Lock()
server = MCPServer("notes", log_level="WARNING")


@server.tool()
async def append_note() -> str:
    """Stands for a tool that holds a lock while it waits for a backend."""
    async with GATE:
        await asyncio.sleep(0.2)
    return "appended"


@server.tool()
async def list_notes() -> str:
    """Needs the same lock for a moment."""
    async with GATE:
        return "notes"


if __name__ == "__main__":
    server.run("stdio")
