"""A server whose tools compute for as much CPU time as they are told to: on the event loop, or on a thread."""

from __future__ import annotations

import time

from mcp.server import MCPServer

from mcp_probe.workloads.servers import serving

server = MCPServer("cpu tools", log_level="WARNING")


def burn(cpu_ms: float) -> int:
    """Computes until this thread has used ``cpu_ms`` of CPU, however long that takes beside others."""
    until = time.thread_time_ns() + round(cpu_ms * 1e6)
    turns = 0
    while time.thread_time_ns() < until:
        for number in range(200):
            turns += number & 1
    return turns


@server.tool()
async def on_the_loop(cpu_ms: float) -> int:
    """Computes in an ``async def``: the event loop can do nothing else meanwhile."""
    return burn(cpu_ms)


@server.tool()
def in_a_thread(cpu_ms: float) -> int:
    """Computes in a plain ``def``, which the SDK runs on one of its worker threads."""
    return burn(cpu_ms)


@server.tool()
async def quick() -> str:
    """Answers at once."""
    return "done"


if __name__ == "__main__":
    serving.main(server, "Tools that compute, on the event loop and in threads.")
