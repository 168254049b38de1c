# mypy: ignore-errors
"""One MCP server as it is and as it would be after one change.

Usage: ``prediction_server.py WORKLOAD FORM NAME TRANSPORT PORT``. FORM is ``fault`` or
``mended``. The two differ by the change alone, so what the change gives is what they differ by.
"""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import anyio
import anyio.to_thread

WORKLOAD, FORM, NAME, TRANSPORT, PORT = sys.argv[1:6]
MENDED = FORM == "mended"


def burn(ms):
    """Computes for ``ms`` of this thread's CPU time."""
    until = time.thread_time() + ms / 1e3
    while time.thread_time() < until:
        pass


def semaphore():
    gate = asyncio.Semaphore(8 if MENDED else 2)

    async def work() -> str:
        async with gate:
            await asyncio.sleep(0.03)
        return "ok"

    return {"": work}


def executor():
    pool = ThreadPoolExecutor(8 if MENDED else 2, "own")

    async def work() -> str:
        await asyncio.get_running_loop().run_in_executor(pool, time.sleep, 0.03)
        return "ok"

    return {"": work}


def default_limiter():
    async def work() -> str:
        if MENDED:
            anyio.to_thread.current_default_thread_limiter().total_tokens = 80
        await anyio.to_thread.run_sync(time.sleep, 0.15)
        return "ok"

    return {"": work}


def row_of_sleeps():
    async def work() -> str:
        if MENDED:
            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(asyncio.sleep, 0.02)
        else:
            for _ in range(6):
                await asyncio.sleep(0.02)
        return "ok"

    return {"": work}


def computing():
    """A thread does not help what computes; it helps who waits beside it, up to the GIL."""

    async def heavy() -> str:
        if MENDED:
            await anyio.to_thread.run_sync(burn, 80)
        else:
            burn(80)
        return "ok"

    async def work() -> str:
        await asyncio.sleep(0.02)
        return "ok"

    return {"_heavy": heavy, "": work}


def half():
    async def work() -> str:
        time.sleep(0.01 if MENDED else 0.02)
        await asyncio.sleep(0.015 if MENDED else 0.03)
        return "ok"

    return {"": work}


def more_load():
    """The change is the load's."""

    async def work() -> str:
        time.sleep(0.02)
        return "ok"

    return {"": work}


def long_lock():
    """Two tools share a lock that one of them holds for longer than it needs."""
    lock = asyncio.Lock()

    async def update() -> str:
        if MENDED:
            await asyncio.sleep(0.05)
        async with lock:
            if not MENDED:
                await asyncio.sleep(0.05)
            burn(0.5)
        return "ok"

    async def read() -> str:
        async with lock:
            burn(0.5)
        await asyncio.sleep(0.01)
        return "ok"

    return {"_update": update, "": read}


def blocked_threads_too():
    """Two changes at once: off the loop, into a pool of four."""
    limiter = []

    async def work() -> str:
        if MENDED:
            if not limiter:
                limiter.append(anyio.CapacityLimiter(4))
            await anyio.to_thread.run_sync(time.sleep, 0.04, limiter=limiter[0])
        else:
            time.sleep(0.04)
        return "ok"

    return {"": work}


if __name__ == "__main__":
    from mcp.server import MCPServer

    server = MCPServer("predictions")
    for suffix, function in globals()[WORKLOAD]().items():
        server.tool(name=NAME + suffix)(function)
    if TRANSPORT == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(PORT))
