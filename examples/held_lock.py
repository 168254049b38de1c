# One lock around a slow call: `list_notes` is quick, and waits for `append_note` all the same.
#
# An MCP client starts it:   python examples/held_lock.py
# The report names the lock, who held it at which line, and what that one waited for (docs/awaits.md).
# Needs: pip install mcp-probe-profiler "mcp>=2"

import asyncio

from mcp.server import MCPServer

import mcp_probe

GATE = asyncio.Lock()
server = MCPServer("notes")
mcp_probe.attach(server, report="stderr")


@server.tool()
async def append_note() -> str:
    """Holds a lock while it waits for a backend."""
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
