"""A server that computes what the handler of document 000 computed, on the event loop or on a worker thread.

It can trace its own memory, in runs that nobody times: tracing makes this handler six times as slow.
Needs only ``mcp``.
"""

from __future__ import annotations

import gc
import json
import tracemalloc

import anyio
from mcp.server import MCPServer

from mcp_probe.workloads.servers.arithmetic import computed
from mcp_probe.workloads.servers.resident import peak_bytes

server = MCPServer("compute", log_level="WARNING")


@server.tool(structured_output=False)
async def compute(item: int) -> str:
    """Computes on the event loop."""
    return str(computed(item))


@server.tool(structured_output=False)
def compute_in_thread(item: int) -> str:
    """Computes on one of the SDK's worker threads."""
    return str(computed(item))


@server.tool(structured_output=False)
async def trace_memory() -> str:
    """Starts tracing every allocation, from a collected heap on."""
    gc.collect()
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    tracemalloc.reset_peak()
    return json.dumps({"base_bytes": tracemalloc.get_traced_memory()[0]})


@server.tool(structured_output=False)
async def traced_memory() -> str:
    """Stops tracing; the most bytes held since ``trace_memory``."""
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return json.dumps({"peak_bytes": peak})


@server.tool(structured_output=False)
async def resident_memory() -> str:
    """The most bytes of RAM that this process ever had."""
    return json.dumps({"peak_bytes": peak_bytes()})


def main() -> None:
    """Serves on stdin and stdout until the client closes stdin."""
    anyio.run(server.run_stdio_async)


if __name__ == "__main__":
    main()
