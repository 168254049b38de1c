"""A server whose requests wait: ``waiting_server.py`` over stdio, ``waiting_server.py SOCKET`` over HTTP."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import uvicorn
from mcp.server import MCPServer

import mcp_probe

server = MCPServer("waiting", log_level="CRITICAL")


@server.tool()
def occupy(ms: int) -> str:
    """Takes a thread of the pool from which stdio's reader and writer take theirs."""
    time.sleep(ms / 1000)
    return "occupied"


@server.tool()
async def hold(ms: int, sign: str) -> str:
    """Blocks the event loop, from when there is a file ``sign``."""
    Path(sign).touch()
    time.sleep(ms / 1000)
    return "held"


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    mcp_probe.attach(server, otlp=True, otlp_exit_ms=10_000, slow_request_ms=0)
    if len(sys.argv) == 1:
        server.run("stdio")
    else:
        uvicorn.run(server.streamable_http_app(json_response=True), uds=sys.argv[1], log_level="critical")
