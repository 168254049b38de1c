"""A server that counts for itself what it did: an independent count beside what a probe in it says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from mcp.server import MCPServer

from mcp_probe.workloads.servers import serving
from mcp_probe.workloads.servers.cpu_tools import burn
from mcp_probe.workloads.servers.resident import resident_bytes

server = MCPServer("counting", log_level="WARNING")


class Inside:
    """How many calls of :func:`wait` are being served, and were at most."""

    now = most = 0


@server.tool(structured_output=False)
async def add(a: int, b: int) -> str:
    """The sum of two numbers."""
    return str(a + b)


@server.tool(structured_output=False)
async def wait(delay_ms: float) -> str:
    """Awaits, as a tool does that asks another service."""
    Inside.now += 1
    Inside.most = max(Inside.most, Inside.now)
    try:
        await asyncio.sleep(delay_ms / 1e3)
    finally:
        Inside.now -= 1
    return str(os.getpid())


@server.tool(structured_output=False)
async def compute(cpu_ms: float) -> str:
    """Computes on the event loop; says in which process."""
    burn(cpu_ms)
    return str(os.getpid())


@server.tool(structured_output=False)
async def counted() -> str:
    """What this process counted so far; the most calls at once begin anew."""
    most, Inside.most = Inside.most, Inside.now
    loop = type(asyncio.get_running_loop())
    return json.dumps(
        {
            "pid": os.getpid(),
            "cpu_ns": time.process_time_ns(),
            "loop": "uvloop" if loop.__module__.startswith("uvloop") else "asyncio",
            "most_inside": most,
            "resident_bytes": resident_bytes(),
            "python": ".".join(map(str, sys.version_info[:2])),
        }
    )


if __name__ == "__main__":
    serving.main(server, "Tools that count for themselves.")
