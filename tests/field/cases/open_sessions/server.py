# mypy: ignore-errors
"""Stateful streamable HTTP, nothing special: sessions live until a client deletes them. Usage: server.py PORT."""

import sys

try:
    from mcp.server import MCPServer
except ImportError:
    MCPServer = None
    from mcp.server.fastmcp import FastMCP

port = int(sys.argv[1]) if len(sys.argv) > 1 else 8701
server = MCPServer("stock") if MCPServer else FastMCP("stock", port=port)


@server.tool()
async def price(item: str) -> int:
    """Price of an item."""
    return len(item)


if __name__ == "__main__":
    if MCPServer:
        server.run("streamable-http", port=port)
    else:
        server.run("streamable-http")
