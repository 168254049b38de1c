# A semaphore of two before a backend of 5 ms: each call is quick, and a burst of them queues all the same.
#
# An MCP client starts it:   python examples/narrow_semaphore.py
# The report names the semaphore, its limit, who held it, and the limit that such bursts need (docs/awaits.md).
# Needs: pip install mcp-probe-profiler "mcp>=2"

import asyncio

from mcp.server import MCPServer

import mcp_probe

TWO = asyncio.Semaphore(2)
server = MCPServer("quotes")
mcp_probe.attach(server, report="stderr")


@server.tool()
async def quote(symbol: str) -> int:
    """Asks a backend that takes 5 ms, two at a time."""
    async with TWO:
        await asyncio.sleep(0.005)
    return len(symbol)


if __name__ == "__main__":
    server.run("stdio")
