"""A server whose tools compute for as much CPU time as they are told to: on the event loop, or on a thread."""

from __future__ import annotations

from mcp.server import MCPServer

from mcp_probe.workloads.servers import serving
from mcp_probe.workloads.servers.arithmetic import burn

server = MCPServer("cpu tools", log_level="WARNING")


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
