# mypy: ignore-errors
"""Sync work on threads that need the loop, and a loop that needs the threads. (stdio)

limiter: six `gather` at once fill the limiter of their own, and each asks the loop for a part that needs a thread too.
result:  `rebuild` (async) waits on the loop for a thread that waits for the loop.
"""

import asyncio
import threading
import time

import anyio
import anyio.from_thread
import anyio.to_thread

try:
    from mcp.server import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server

server = Server("index")
LIMIT = anyio.CapacityLimiter(4)


def part(name: str) -> int:
    return len(name)


async def in_thread(name: str) -> int:
    return await anyio.to_thread.run_sync(part, name, limiter=LIMIT)


def gather_parts(name: str) -> int:
    time.sleep(0.2)  # some work of its own
    return anyio.from_thread.run(in_thread, name)


@server.tool()
async def gather(name: str) -> int:
    return await anyio.to_thread.run_sync(gather_parts, name, limiter=LIMIT)


async def ready() -> str:
    await asyncio.sleep(0)
    return "ready"


@server.tool()
async def rebuild(name: str) -> str:
    loop = asyncio.get_running_loop()
    found: list[str] = []
    helper = threading.Thread(
        target=lambda: found.append(asyncio.run_coroutine_threadsafe(ready(), loop).result()),
        name="rebuild",
        daemon=True,
    )
    helper.start()
    helper.join()
    return found[0]


@server.tool()
async def price(item: str) -> int:
    return len(item)


if __name__ == "__main__":
    server.run("stdio")
