"""A server on mcp 1.x, for an interpreter that does not hold OpenTelemetry; serves stdio."""

from __future__ import annotations

import importlib.util
import time

import anyio
from mcp.server.fastmcp import FastMCP  # type: ignore[attr-defined,import-not-found,unused-ignore]

server = FastMCP("foreign", log_level="CRITICAL")


async def add(a: int, b: int) -> int:
    return a + b


async def hold(ms: int) -> str:
    """Blocks the event loop."""
    time.sleep(ms / 1000)
    return "held"


async def nap(ms: int) -> str:
    """Waits as an async tool should."""
    await anyio.sleep(ms / 1000)
    return "rested"


async def wait(ms: int) -> str:
    """The same, called for longer."""
    await anyio.sleep(ms / 1000)
    return "waited"


async def fail() -> str:
    raise ValueError("refused")


if __name__ == "__main__":
    if importlib.util.find_spec("opentelemetry") is not None:
        raise SystemExit("OpenTelemetry is installed here: this is no foreign interpreter")
    for tool in (add, hold, nap, wait, fail):
        server.add_tool(tool)
    server.run("stdio")
