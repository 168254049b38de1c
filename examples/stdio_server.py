# A stdio server with the probe attached: two lines are the probe's, the rest is any server's.
#
# An MCP client starts it:   python examples/stdio_server.py
# The report appears on stderr when the client closes the connection.
# Needs: pip install mcp-probe-profiler "mcp>=2"

from mcp.server import MCPServer

import mcp_probe

server = MCPServer("shop")
mcp_probe.attach(server, report="stderr")


@server.tool()
async def price(item: str) -> int:
    """Price of an item, in cents."""
    return {"tea": 320, "cake": 450}[item]


if __name__ == "__main__":
    server.run("stdio")
