# mypy: ignore-errors
"""Attaches to a server, has it called, reports and detaches; needs nothing but mcp and mcp_probe, on any system.

Usage: attached_calls.py memory|stdio FOLDER. What became of it is the last line of FOLDER/rows.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
import traceback

import anyio
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer

EVERYTHING = {"live": True, "memory": "detailed", "measures": "detailed", "full": True, "telemetry": "off"}
"""Options that make the probe use as much of the system as it can."""


def make_server():
    server = MCPServer("attached", log_level="CRITICAL")

    @server.tool()
    async def block(ms: float) -> int:
        time.sleep(ms / 1e3)
        return 1

    @server.tool()
    async def wait() -> int:
        await anyio.sleep(0.001)
        return 2

    @server.tool()
    def in_thread() -> int:
        return 3

    return server


async def in_memory(server, block_ms):
    async with Client(InMemoryTransport(server)) as client:
        calls = (("block", {"ms": block_ms}), ("wait", {}), ("in_thread", {}))
        return [(await client.call_tool(tool, given)).structured_content["result"] for tool, given in calls]


class Told(logging.Handler):
    """What the probe logs."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage() + (f" {record.exc_info[1]!r}" if record.exc_info else ""))


def tried(platform, transport, folder, block_ms, **options):
    """Write down what became of a server that the probe was attached to."""
    told, row = Told(), {"platform": platform, "raised": ""}
    logging.getLogger("mcp_probe").addHandler(told)
    logging.getLogger("mcp_probe").propagate = False
    server = make_server()
    try:
        import mcp_probe
        from mcp_probe.report.console import render

        files = {"record": os.path.join(folder, f"{os.getpid()}.jsonl"), "flight": os.path.join(folder, "flights")}
        probe = mcp_probe.attach(server, **(EVERYTHING | files | options))
        row["attached"] = probe.attached
        if transport == "memory":
            row["answers"] = asyncio.run(in_memory(server, block_ms))
        else:
            server.run("stdio")
        summary = probe.snapshot()
        row["calls"] = {one.name: one.count for one in summary.operations if one.method == "tools/call"}
        row["longest_ms"] = {one.name: one.total_ms.max for one in summary.operations}
        row["slow_steps"] = [[step.tool, step.cause, step.ms] for step in summary.slow_steps]
        row["disabled"] = list(summary.probe.disabled_hooks)
        row["report"] = render(summary, color=False)
        probe.detach()
        row["stuck"] = list(probe.stuck)
    except BaseException as exc:  # noqa: BLE001 - told
        row["raised"] = f"{exc!r} {traceback.format_exc()[-900:]}"
    row["told"] = told.lines
    with open(os.path.join(folder, "rows"), "a", encoding="utf-8") as rows:
        rows.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    tried(sys.platform, sys.argv[1], sys.argv[2], 500.0, report=os.path.join(sys.argv[2], "report"))
