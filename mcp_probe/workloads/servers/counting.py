"""A server that counts for itself what it did: an independent count beside what a probe in it says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from mcp.server import MCPServer

from mcp_probe.workloads.servers import serving
from mcp_probe.workloads.servers.arithmetic import burn
from mcp_probe.workloads.servers.resident import resident_bytes

server = MCPServer("counting", log_level="WARNING")


@server.tool(structured_output=False)
async def add(a: int, b: int) -> str:
    """The sum of two numbers."""
    return str(a + b)


@server.tool(structured_output=False)
async def wait(delay_ms: float) -> str:
    """Awaits, as a tool does that asks another service; says in which process."""
    await asyncio.sleep(delay_ms / 1e3)
    return str(os.getpid())


class Meeting:
    """Calls that wait for each other: it ends for all when the last of them is here."""

    def __init__(self) -> None:
        self.here = 0
        self.over = asyncio.Event()


_meetings: dict[str, Meeting] = {}
MEETING_LIMIT_S = 30.0


@server.tool(structured_output=False)
async def meet(name: str, count: int) -> str:
    """Leaves when ``count`` calls are inside at once, and only then: says how many were."""
    meeting = _meetings.setdefault(name, Meeting())
    meeting.here += 1
    if meeting.here == count:
        meeting.over.set()
    await asyncio.wait_for(meeting.over.wait(), MEETING_LIMIT_S)
    return str(meeting.here)


@server.tool(structured_output=False)
async def compute(cpu_ms: float) -> str:
    """Computes on the event loop; says in which process."""
    burn(cpu_ms)
    return str(os.getpid())


@server.tool(structured_output=False)
async def counted() -> str:
    """What this process counted so far."""
    loop = type(asyncio.get_running_loop())
    return json.dumps(
        {
            "pid": os.getpid(),
            "cpu_ns": time.process_time_ns(),
            "loop": "uvloop" if loop.__module__.startswith("uvloop") else "asyncio",
            "resident_bytes": resident_bytes(),
            "python": ".".join(map(str, sys.version_info[:2])),
        }
    )


if __name__ == "__main__":
    serving.main(server, "Tools that count for themselves.")
