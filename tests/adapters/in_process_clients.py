# mypy: ignore-errors
"""A client in the process of its server, on whichever SDK runs this: what the client waited, beside what we say.

Usage: in_process_clients.py mcp2|mcp1|fastmcp. Prints one line of JSON. Three calls of ``quick`` are made before
``block`` holds the loop, and two while it does.
"""

from __future__ import annotations

import json
import sys
import time

import anyio

import mcp_probe

BLOCK_MS = 225


def of(which):
    """(the server, what makes a client of it)."""
    if which == "mcp2":
        from mcp.client import Client
        from mcp.server.mcpserver import MCPServer

        return MCPServer("in process"), Client
    if which == "mcp1":
        from mcp.server.fastmcp import FastMCP
        from mcp.shared.memory import create_connected_server_and_client_session

        return FastMCP("in process"), lambda server: create_connected_server_and_client_session(server._mcp_server)
    from fastmcp import Client, FastMCP

    return FastMCP("in process"), Client


def main(which):
    server, make = of(which)

    async def quick() -> str:
        return "quick"

    async def block() -> str:
        time.sleep(BLOCK_MS / 1e3)
        return "block"

    for tool in (quick, block):
        server.tool()(tool)
    took = []

    async def scene():
        async with make(server) as client:
            await client.list_tools()

            async def call(tool):
                began = time.monotonic_ns()
                await client.call_tool(tool, {})
                if tool == "quick":
                    took.append((time.monotonic_ns() - began) / 1e6)

            await call("block")  # the client imports jsonschema after its first answer
            for before, after in ((3, 0), (0, 2)):
                async with anyio.create_task_group() as group:
                    for _ in range(before):
                        group.start_soon(call, "quick")
                    await anyio.lowlevel.checkpoint()
                    group.start_soon(call, "block")
                    for _ in range(after):
                        group.start_soon(call, "quick")

    probe = mcp_probe.attach(server, telemetry="off")
    anyio.run(scene)
    summary = probe.snapshot().to_json()
    probe.detach()
    (row,) = [each for each in summary["operations"] if each["name"] == "quick"]
    blamed = [each for each in summary["blocked_by"] if (each["victim"], each["blocker"]) == ("quick", "block")]
    print(json.dumps({"took_ms": sorted(took), "row": row, "blamed": blamed}))


if __name__ == "__main__":
    main(sys.argv[1])
