"""A server on a loop that no hook fits, by force; prints its summary as JSON. Started by test_unknown_loop."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import anyio
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer

import mcp_probe
from mcp_probe.adapters.asyncio_loop import AsyncioHooks
from mcp_probe.report.console import render


def force() -> None:
    """asyncio is not what the hooks expect: nothing is patched, and nothing but handlers is followed."""
    AsyncioHooks.install = lambda self: self._hub.missing("steps (asyncio)", "forced by a test")  # type: ignore[method-assign]


async def main(over_streams: bool) -> None:
    server = MCPServer("unknown", log_level="ERROR")

    @server.tool()
    async def block() -> str:
        time.sleep(0.5)
        return "12345"

    @server.tool()
    async def nap() -> str:
        await asyncio.sleep(0.1)
        return "12345"

    probe = mcp_probe.attach(server)
    async with Client(InMemoryTransport(server) if over_streams else server) as client:
        for _ in range(2):
            async with anyio.create_task_group() as calls:
                for name in ("nap", "block", "nap"):
                    calls.start_soon(client.call_tool, name, {})
        await asyncio.sleep(0.8)  # idle: its thread stands in select
    summary = probe.snapshot()
    probe.detach()
    print(json.dumps({"summary": summary.to_json(), "text": render(summary, width=160, color=False)}))


if __name__ == "__main__":
    force()
    asyncio.run(main(sys.argv[1] == "streams"))
