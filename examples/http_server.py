# A streamable HTTP server with the probe attached; the app that the server makes is wrapped too.
#
# Start it:   python examples/http_server.py 8000     then point a client at http://127.0.0.1:8000/mcp
# The report appears on stderr when the server is stopped with Ctrl-C.
# Needs: pip install mcp-probe-profiler "mcp>=2" uvicorn

import sys

import uvicorn
from mcp.server import MCPServer

import mcp_probe

server = MCPServer("shop")
mcp_probe.attach(server, report="stderr")


@server.tool()
async def price(item: str) -> int:
    """Price of an item, in cents."""
    return {"tea": 320, "cake": 450}[item]


if __name__ == "__main__":
    uvicorn.run(server.streamable_http_app(), port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
