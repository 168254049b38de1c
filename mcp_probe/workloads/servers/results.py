"""A server whose results are as large as they are told to be, and that watches its own event loop meanwhile."""

from __future__ import annotations

import asyncio
import json
import time

from mcp.server import MCPServer

from mcp_probe.workloads.servers import serving
from mcp_probe.workloads.servers.resident import peak_bytes, restart_peak

server = MCPServer("results", log_level="WARNING")

TURN_S = 0.001


class LoopWatch:
    """A task that wants a turn every millisecond and keeps the longest that it was late: an independent count."""

    def __init__(self) -> None:
        self._longest_ns = 0
        self._task = asyncio.create_task(self._watch())

    def take_ns(self) -> int:
        """The longest since this was last asked."""
        longest, self._longest_ns = self._longest_ns, 0
        return longest

    async def _watch(self) -> None:
        while True:
            began = time.perf_counter_ns()
            await asyncio.sleep(TURN_S)
            self._longest_ns = max(self._longest_ns, time.perf_counter_ns() - began - round(TURN_S * 1e9))


_watches: list[LoopWatch] = []


@server.tool(structured_output=False)
async def text(size_bytes: int) -> str:
    """A text of this many bytes, as one block."""
    return "x" * size_bytes


@server.tool()
async def structured(size_bytes: int) -> str:
    """The same from a tool with an output schema, as every tool with a return type has if it does not refuse."""
    return "x" * size_bytes


@server.tool(structured_output=False)
async def quick() -> str:
    """Answers at once."""
    return "done"


@server.tool(structured_output=False)
async def watched() -> str:
    """How long the event loop was held at most since the last call of this, and by how much memory grew at most."""
    if not _watches:
        _watches.append(LoopWatch())
    await asyncio.sleep(0)
    held_ns, peak = _watches[0].take_ns(), peak_bytes()
    return json.dumps({"held_ms": held_ns / 1e6, "peak_bytes": peak, "resident_bytes": restart_peak()})


if __name__ == "__main__":
    serving.main(server, "Tools with results of any size.")
