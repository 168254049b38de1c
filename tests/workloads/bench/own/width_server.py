"""A server with one read-only tool, ``work``, of which so many are handled at once as its command line says.

``8 50``: eight at a time, 50 ms each; ``none 50``: no limit; ``pool 50``: a synchronous tool, in the SDK's thread pool;
``blocking 50``: it sleeps on the event loop.
"""

from __future__ import annotations

import asyncio
import sys
import time

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("width", log_level="ERROR")
kind, seconds = sys.argv[1], float(sys.argv[2]) / 1000

places = asyncio.Semaphore(int(kind) if kind.isdigit() else 1)


def on_a_thread() -> str:
    """Waits on a thread."""
    time.sleep(seconds)
    return "done"


async def on_the_loop() -> str:
    """Waits on the event loop."""
    time.sleep(seconds)
    return "done"


async def beside_any_number() -> str:
    """Waits beside any number of others."""
    await asyncio.sleep(seconds)
    return "done"


async def in_a_place() -> str:
    """Waits for a place, then in it."""
    async with places:
        await asyncio.sleep(seconds)
    return "done"


kinds = {"pool": on_a_thread, "blocking": on_the_loop, "none": beside_any_number}
server.tool("work", annotations=ToolAnnotations(read_only_hint=True))(kinds.get(kind, in_a_place))


if __name__ == "__main__":
    server.run("stdio")
