"""A stdio server with a tool that holds one of 40 places for 0.1 s, for ``benchmarks/in_flight.py``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading

from mcp.server import MCPServer

PLACES = 40
HELD_S = 0.1

server = MCPServer("bench", log_level="WARNING")
gate = asyncio.Semaphore(PLACES)


@server.tool()
async def work() -> int:
    async with gate:
        await asyncio.sleep(HELD_S)
    return 1


@server.tool(structured_output=False)
async def describe() -> str:
    """This process, and its threads but for the probe's, which are not among those that ``threading`` knows."""
    known = [thread.native_id for thread in threading.enumerate()]
    return json.dumps({"pid": os.getpid(), "parent": os.getppid(), "threads": known})


if __name__ == "__main__":
    if "--attach" in sys.argv:
        import mcp_probe

        mcp_probe.attach(server)
    server.run()
