# A fastmcp server (2, 3 or 4) with the probe attached.
#
# An MCP client starts it:   python examples/fastmcp_server.py
# The report appears on stderr when the client closes the connection.
# Needs: pip install mcp-probe-profiler fastmcp

from fastmcp import FastMCP

import mcp_probe

server = FastMCP("shop")
mcp_probe.attach(server, report="stderr")


@server.tool
async def price(item: str) -> int:
    """Price of an item, in cents."""
    return {"tea": 320, "cake": 450}[item]


if __name__ == "__main__":
    server.run(show_banner=False)
