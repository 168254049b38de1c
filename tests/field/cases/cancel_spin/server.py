# mypy: ignore-errors
"""A gateway: `connect` opens an upstream MCP session under a time-out, in a task of its own up to Python 3.11.

`disconnect` closes it likewise. Usage: server.py [upstream]. With `upstream` it is the upstream.
"""

import asyncio
import sys
from contextlib import AsyncExitStack

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server.fastmcp import FastMCP

server = FastMCP("gateway")
stacks: list[AsyncExitStack] = []


async def bounded(work, seconds: float):
    """As asyncio.wait_for did up to Python 3.11: the work is a task of its own."""
    return await asyncio.wait_for(asyncio.ensure_future(work), seconds)


async def open_upstream() -> None:
    stack = AsyncExitStack()
    read, write = await stack.enter_async_context(
        stdio_client(StdioServerParameters(command=sys.executable, args=[__file__, "upstream"]))
    )
    session = await stack.enter_async_context(ClientSession(read, write))
    await session.initialize()
    stacks.append(stack)


@server.tool()
async def connect() -> str:
    await bounded(open_upstream(), 30)
    return "connected"


@server.tool()
async def disconnect() -> str:
    try:
        await bounded(stacks.pop().aclose(), 10)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - as gateways do: log it and go on
        return f"closed with {type(error).__name__}: {error}"
    return "closed"


@server.tool()
async def price(item: str) -> int:
    return len(item)


if __name__ == "__main__":
    server.run("stdio")
