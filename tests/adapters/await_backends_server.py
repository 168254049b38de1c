# mypy: ignore-errors
"""A server whose tools wait for backends. Usage: ``await_backends_server.py stdio|http PORT LOOP PLAIN TLS FOLDER``.

It runs on mcp 1.x and 2.x, attaches a probe to itself, and records into ``$RECORDING``. PLAIN and TLS are addresses of
backends that note themselves what came when. Each call has a tool of its own, so that a record is one call's; a tool
answers with the instants at which it asked, got, and gave back, in ns of the monotonic clock.
"""

from __future__ import annotations

import json
import os
import sys
import time
from asyncio import create_subprocess_exec
from subprocess import run

import anyio
import httpx
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

try:
    from mcp.server.fastmcp import FastMCP as Server
except ImportError:
    from mcp.server.mcpserver import MCPServer as Server

MADE = {}
now = time.monotonic_ns


def made(name, make):
    """What all calls of one row share; made by the first of them."""
    if name not in MADE:
        MADE[name] = make()
    return MADE[name]


def answer(asked, got=None, gave_back=None):
    return json.dumps({"asked": [asked], "got": [got or now()], "gave_back": [gave_back or now()]})


def client_of_five():
    return httpx.AsyncClient(limits=httpx.Limits(max_connections=5), timeout=60)  # made: httpx


async def pooled(number):
    client = made("client", client_of_five)
    asked = now()
    await client.get(f"{PLAIN}/httpx_{number}")  # asks: httpx
    return answer(asked)


async def secured(number):
    asked = now()
    async with httpx.AsyncClient(verify=False, timeout=60) as client:
        await client.get(f"{TLS}/tls_{number}")  # asks: tls
    return answer(asked)


def engine_of_two():
    url = f"sqlite+aiosqlite:///{FOLDER}/rows.db"
    return create_async_engine(url, poolclass=AsyncAdaptedQueuePool, pool_size=2, max_overflow=0)  # made: sqlalchemy


async def rows(number):
    engine = made("engine", engine_of_two)
    asked = now()
    async with engine.connect() as connection:  # asks: sqlalchemy
        got = now()
        await connection.execute(text("select 1"))
        await anyio.sleep(0.1)
        gave_back = now()
    return answer(asked, got, gave_back)


async def started(number):
    asked = now()
    process = await create_subprocess_exec("sleep", "0.2")
    await process.wait()  # asks: started
    return answer(asked)


def ran() -> str:
    """A plain function: mcp 1.x runs it on the event loop, mcp 2.x in a worker thread."""
    asked = now()
    run(["sleep", "0.2"], check=True)  # asks: ran
    return answer(asked)


CALLS = {"httpx": (20, pooled), "tls": (4, secured), "sqlalchemy": (6, rows), "started": (2, started)}


def tool_of(body, number):
    async def tool() -> str:
        return await body(number)

    return tool


def main(transport, port, loop):
    server = Server("backends")
    for row, (calls, body) in CALLS.items():
        for number in range(calls):
            server.add_tool(tool_of(body, number), name=f"{row}_{number}")
    server.add_tool(ran, name="ran_0")
    from mcp_probe import attach

    attach(server, record=os.environ["RECORDING"])
    if transport == "stdio":
        anyio.run(server.run_stdio_async)
    else:
        import uvicorn

        app = server.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error", loop=loop, ws="none")


if __name__ == "__main__":
    PLAIN, TLS, FOLDER = sys.argv[4:]
    main(*sys.argv[1:4])
