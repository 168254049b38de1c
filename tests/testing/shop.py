# mypy: ignore-errors
"""A server with one tool for each thing that a test can limit, and beside each its mended twin (``…_well``)."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import anyio

try:
    import httpx
except ModuleNotFoundError:  # fastmcp 4 brings its successor only
    import httpx2 as httpx

WHICH = os.environ.get("SHOP_SDK", "mcp2")
if WHICH == "mcp2":
    from mcp.server.mcpserver import MCPServer as Make
elif WHICH == "mcp1":
    from mcp.server.fastmcp import FastMCP as Make
else:
    from fastmcp import FastMCP as Make

server = Make("shop")
KEPT = []
LOCKS = {}
BACKEND = os.environ.get("SHOP_BACKEND", "")
SHARED = None


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def lock() -> asyncio.Lock:
    return LOCKS.setdefault(asyncio.get_running_loop(), asyncio.Lock())


@server.tool()
async def retained() -> str:
    KEPT.append(bytearray(10_000))
    return "kept"


@server.tool()
async def retained_well() -> str:
    return str(len(bytearray(10_000)))


@server.tool()
async def step_cpu() -> str:
    burn(0.3)  # so long that a watchdog which is kept from its CPU for a while still sees the line
    return "computed"


@server.tool()
async def step_cpu_well() -> str:
    await anyio.to_thread.run_sync(burn, 0.06)
    return "computed"


@server.tool()
async def max_connections() -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(BACKEND)).text


@server.tool()
async def max_connections_well() -> str:
    global SHARED
    SHARED = SHARED or httpx.AsyncClient(trust_env=False)
    return (await SHARED.get(BACKEND)).text


@server.tool()
async def max_tasks() -> str:
    async with anyio.create_task_group() as group:
        for _ in range(30):
            group.start_soon(anyio.sleep, 0.001)
    return "done"


@server.tool()
async def max_tasks_well() -> str:
    for _ in range(30):
        await anyio.sleep(0.0001)
    return "done"


@server.tool()
async def max_awaits_under_lock() -> str:
    async with lock():
        await asyncio.sleep(0)  # no call ever waits for the lock
    return "done"


@server.tool()
async def max_awaits_under_lock_well() -> str:
    async with lock():
        KEPT[:0] = []
    await asyncio.sleep(0.001)
    return "done"


@server.tool()
async def findings() -> str:
    time.sleep(0.08)
    return "slept"


@server.tool()
async def findings_well() -> str:
    await anyio.to_thread.run_sync(time.sleep, 0.08)
    return "slept"


if __name__ == "__main__":
    sys.exit(server.run())
