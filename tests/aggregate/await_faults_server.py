# mypy: ignore-errors
"""A server on stdio whose tools wait for known things: for each finding a fault, its mended twin, and a near miss.

Usage: ``await_faults_server.py QUICK SLOW SERIAL TLS`` (addresses of backends).
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager

import anyio
import httpx
from mcp.server import MCPServer
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

QUICK, SLOW, SERIAL, TLS = sys.argv[1:]
LOCKS = {name: asyncio.Lock() for name in ("fault", "mended", "near")}
TODO = asyncio.Queue(1)
CLIENTS = {}
ENGINES = {}


@asynccontextmanager
async def lifespan(_):
    limits = httpx.Limits(max_connections=2)
    CLIENTS.update(
        small=httpx.AsyncClient(limits=limits, timeout=60),
        enough=httpx.AsyncClient(timeout=60),
        spare=httpx.AsyncClient(limits=limits, timeout=60),
        shared=httpx.AsyncClient(timeout=60),
        trusting=httpx.AsyncClient(verify=False, timeout=60),
    )
    for name, size in (("small", 2), ("enough", 8), ("spare", 2)):
        url = "sqlite+aiosqlite:///file:rows?mode=memory&uri=true"
        ENGINES[name] = create_async_engine(url, poolclass=AsyncAdaptedQueuePool, pool_size=size, max_overflow=0)
    feeder = asyncio.create_task(feed())
    yield {}
    feeder.cancel()


async def feed():
    """One piece of work each 40 ms."""
    while True:
        await asyncio.sleep(0.04)
        await TODO.put(None)


server = MCPServer("faults", lifespan=lifespan)


def tool(function):
    server.tool()(function)
    return function


async def ask(client, backend=QUICK):
    (await client.get(backend + "/")).raise_for_status()


# --- serial-handler -----------------------------------------------------------------------------------


@tool
async def lock_fault() -> str:
    async with LOCKS["fault"]:
        await ask(CLIENTS["shared"])
    return "ok"


@tool
async def lock_mended() -> str:
    await ask(CLIENTS["shared"])
    async with LOCKS["mended"]:
        return "ok"


@tool
async def lock_near() -> str:
    """Waits for a lock, for less than 10 ms, in a call of 60."""
    await asyncio.sleep(0.06)
    async with LOCKS["near"]:
        await asyncio.sleep(0.0005)
    return "ok"


# --- pool-exhausted -----------------------------------------------------------------------------------


@tool
async def pool_fault() -> str:
    await ask(CLIENTS["small"])
    return "ok"


@tool
async def pool_mended() -> str:
    await ask(CLIENTS["enough"])
    return "ok"


@tool
async def pool_near() -> str:
    """Called two at a time: the pool of two is full, and nobody waits for it."""
    await ask(CLIENTS["spare"])
    return "ok"


async def hold(engine):
    """A connection of a database, over a request."""
    async with engine.connect() as connection:
        await connection.execute(text("select 1"))
        await ask(CLIENTS["shared"])


@tool
async def engine_fault() -> str:
    await hold(ENGINES["small"])
    return "ok"


@tool
async def engine_mended() -> str:
    await hold(ENGINES["enough"])
    return "ok"


@tool
async def engine_near() -> str:
    await hold(ENGINES["spare"])
    return "ok"


# --- client-per-request -------------------------------------------------------------------------------


@tool
async def client_fault() -> str:
    async with httpx.AsyncClient(verify=False, timeout=60) as client:
        await ask(client, TLS)  # a connection each
    return "ok"


@tool
async def client_mended() -> str:
    await ask(CLIENTS["trusting"], TLS)
    return "ok"


@tool
async def client_near() -> str:
    """A client of its own, for three requests."""
    async with httpx.AsyncClient(verify=False, timeout=60) as client:
        for _ in range(3):
            await ask(client, TLS)
    return "ok"


# --- serial-awaits ------------------------------------------------------------------------------------


@tool
async def serial_fault() -> str:
    for _ in range(6):
        await ask(CLIENTS["shared"])  # in a row
    return "ok"


@tool
async def serial_mended() -> str:
    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(ask, CLIENTS["shared"])
    return "ok"


@tool
async def serial_near() -> str:
    for _ in range(4):
        await ask(CLIENTS["shared"])
    return "ok"


COUNT = text("with recursive n(x) as (select 1 union all select x + 1 from n where x < :most) select count(*) from n")


@tool
async def rows_fault() -> str:
    async with ENGINES["spare"].connect() as connection:
        for _ in range(6):
            await connection.execute(COUNT, {"most": 30_000})
    return "ok"


@tool
async def rows_mended() -> str:
    async with ENGINES["spare"].connect() as connection:
        await connection.execute(COUNT, {"most": 180_000})
    return "ok"


@tool
async def rows_near() -> str:
    async with ENGINES["spare"].connect() as connection:
        for _ in range(4):
            await connection.execute(COUNT, {"most": 30_000})
    return "ok"


# --- slow-backend -------------------------------------------------------------------------------------

CACHE = {}


@tool
async def slow_fault() -> str:
    await ask(CLIENTS["shared"], SLOW)  # slow
    return "ok"


@tool
async def slow_mended() -> str:
    """Its one slow call is the first."""
    if "slow" not in CACHE:
        CACHE["slow"] = await ask(CLIENTS["shared"], SLOW)
    return "ok"


@tool
async def slow_near() -> str:
    """Slow by itself: the backend is a fifth of it."""
    await asyncio.sleep(0.15)
    await ask(CLIENTS["shared"])
    return "ok"


@tool
async def growing() -> str:
    await ask(CLIENTS["shared"], SERIAL)
    return "ok"


@tool
async def growing_near() -> str:
    """Its backend serves all of them at once."""
    await ask(CLIENTS["shared"])
    return "ok"


# --- long-wait ----------------------------------------------------------------------------------------


@tool
async def queue_fault() -> str:
    await TODO.get()  # fed
    return "ok"


@tool
async def queue_near() -> str:
    await asyncio.sleep(0.04)
    return "ok"


if __name__ == "__main__":
    server.run("stdio")
