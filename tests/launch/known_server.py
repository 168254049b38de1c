"""A server whose times are known: each handler writes down its own readings of the clock, beside the probe.

Line by line, in the file named by KNOWN_TIMES: [tool, what, from_ns, to_ns].
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from importlib import import_module
from typing import Any, TypeVar

F = TypeVar("F")
try:
    server: Any = import_module("mcp.server").MCPServer("known")
except AttributeError:  # mcp 1.x
    server = import_module("mcp.server.fastmcp").FastMCP("known")
LOCK = asyncio.Lock()
HELD, WAITS, ARMED, FIRE = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()


def tool(function: F) -> F:
    server.tool()(function)
    return function


def note(tool: str, what: str, since: int) -> None:
    with open(os.environ["KNOWN_TIMES"], "a") as stream:
        stream.write(json.dumps([tool, what, since, time.monotonic_ns()]) + "\n")


def work() -> None:
    since = time.monotonic_ns()
    time.sleep(0.400)
    note("mixed", "executor_run", since)


@tool
async def mixed() -> str:
    """Sleeps 500 ms, blocks 30 ms, and has a thread work for 400 ms."""
    since = time.monotonic_ns()
    await asyncio.sleep(0.500)
    note("mixed", "awaiting", since)
    since = time.monotonic_ns()
    time.sleep(0.030)
    note("mixed", "busy", since)
    await asyncio.to_thread(work)
    return "done"


@tool
async def hold() -> str:
    """Holds the lock for 600 ms from when somebody waits for it."""
    async with LOCK:
        HELD.set()
        await WAITS.wait()
        since = time.monotonic_ns()
        await asyncio.sleep(0.600)
        note("hold", "holds", since)
    return "done"


@tool
async def wait() -> str:
    """Waits for whoever holds the lock."""
    await HELD.wait()
    WAITS.set()
    since = time.monotonic_ns()
    async with LOCK:
        note("wait", "awaiting", since)
    return "done"


@tool
async def victim() -> str:
    """Sleeps 5 ms; the loop is blocked when it could go on."""
    await ARMED.wait()
    FIRE.set()
    await asyncio.sleep(0.005)
    return "done"


@tool
async def block() -> str:
    """Blocks the loop for 30 ms, as the victim goes to sleep."""
    ARMED.set()
    await FIRE.wait()
    since = time.monotonic_ns()
    time.sleep(0.030)
    note("block", "busy", since)
    return "done"


if __name__ == "__main__":
    server.run("stdio")
