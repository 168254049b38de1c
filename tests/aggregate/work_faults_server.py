# mypy: ignore-errors
"""A server on stdio whose calls do work that is not needed: for each finding a fault, its mended twin, a near miss.

Usage: ``work_faults_server.py FOLDER``, which has the slow modules ``slow_to_import`` and ``slow_at_start``.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from contextlib import asynccontextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import anyio
from mcp.server import MCPServer

FOLDER = Path(sys.argv[1])
sys.path.append(str(FOLDER))
STARTED = set()
LOCK = asyncio.Lock()
LOADED = asyncio.Event()


@asynccontextmanager
async def lifespan(_):
    import slow_at_start

    assert slow_at_start
    loading = asyncio.create_task(load())
    yield {}
    await loading


async def load():
    """Something that the server starts, and that its first calls meet."""
    await asyncio.sleep(1.0)
    LOADED.set()


class Slow(logging.Handler):
    """It takes its time for tracebacks of two tools, as a handler that renders them does."""

    def emit(self, record):
        if record.exc_info and ("log_fault" in record.getMessage() or "log_near" in record.getMessage()):
            time.sleep(0.03)


logging.getLogger().addHandler(Slow())
server = MCPServer("faults", lifespan=lifespan)


def tool(function):
    server.tool()(function)
    return function


# --- cold-start ---------------------------------------------------------------------------------------


@tool
async def cold_fault() -> str:
    import slow_to_import  # late

    return slow_to_import.__name__


@tool
async def cold_mended() -> str:
    import slow_at_start

    return slow_at_start.__name__


@tool
async def cold_near() -> str:
    """Its first call waits for what the server starts."""
    await LOADED.wait()
    return "ok"


# --- cold-start-stampede ------------------------------------------------------------------------------


async def start(name):
    if name not in STARTED:
        process = await asyncio.create_subprocess_exec("sleep", "1.5")  # started
        await process.wait()
        STARTED.add(name)


@tool
async def stampede_fault() -> str:
    await start("fault")
    return "ok"


@tool
async def stampede_mended() -> str:
    async with LOCK:
        await start("mended")
    return "ok"


@tool
async def stampede_near() -> str:
    """All its first calls are slow at once, for the machine is: one by one, each works as long."""
    process = await asyncio.create_subprocess_exec("sleep", "0.02")
    await process.wait()
    return "ok"


# --- abandoned-work -----------------------------------------------------------------------------------


def until_go(name):
    """A job that runs until the client says so."""
    (FOLDER / f"{name}.began").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.01)
    (FOLDER / f"{name}.ended").touch()


@tool
def abandoned_fault() -> str:
    until_go("fault")
    return "ok"


@tool
def abandoned_mended() -> str:
    """It looks whether it was cancelled."""
    (FOLDER / "mended.began").touch()
    try:
        while True:
            anyio.from_thread.check_cancelled()
            time.sleep(0.01)
    finally:
        (FOLDER / "mended.ended").touch()


@tool
async def abandoned_near() -> str:
    """It succeeds, and leaves a job running."""
    asyncio.get_running_loop().run_in_executor(None, until_go, "near")
    while not (FOLDER / "near.began").exists():
        await asyncio.sleep(0.01)
    return "ok"


# --- busy-spin ----------------------------------------------------------------------------------------

SPINS = 120_000


@tool
async def spin_fault() -> str:
    for _ in range(SPINS):
        await asyncio.sleep(0)
    return "ok"


@tool
async def spin_mended() -> str:
    arrived = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, arrived.set)
    await arrived.wait()
    return "ok"


@tool
async def spin_near() -> str:
    """It computes in chunks, with a checkpoint after each."""
    for _ in range(60):
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        await anyio.lowlevel.checkpoint()
    return "ok"


# --- slow-error-logging -------------------------------------------------------------------------------


@tool
async def log_fault() -> str:
    raise RuntimeError("fault")


@tool
async def log_mended() -> str:
    """It fails as often, and its traceback is logged as quickly as can be."""
    raise RuntimeError("mended")


@tool
async def log_near() -> str:
    """It fails twice."""
    raise RuntimeError("near")


# --- stdout-pollution ---------------------------------------------------------------------------------


@tool
async def say(text: str, how: str) -> str:
    if how == "fault":
        print(text)  # printed
    elif how == "mended":
        print(text, file=sys.stderr)
    else:
        with redirect_stdout(StringIO()):
            print(text)
    return "ok"


# --- dispatch-backlog ---------------------------------------------------------------------------------

TURNS = asyncio.Semaphore(0)


@tool
async def take() -> str:
    """It is answered when its client says so."""
    await TURNS.acquire()
    return "ok"


@tool
async def give(turns: int) -> str:
    for _ in range(turns):
        TURNS.release()
    return "ok"


if __name__ == "__main__":
    server.run("stdio")
