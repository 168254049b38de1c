# mypy: ignore-errors
"""A server whose tools hang in known ways. Usage: ``live_server.py stdio|http PORT asyncio|uvloop|trio``.

It runs on mcp 1.x and 2.x and attaches a live probe to itself. What hangs on the loop or in threads is let go by a file
``$WAITS.block`` or ``$WAITS.threads``, the rest by the tool ``untie``.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import contextmanager

import anyio
import anyio.to_thread

try:
    import httpx
except ImportError:
    import httpx2 as httpx

try:
    from mcp.server.fastmcp import FastMCP as Server
except ImportError:
    from mcp.server.mcpserver import MCPServer as Server

SCOPES = []
LET_GO = {"block": threading.Event(), "threads": threading.Event()}
SILENT = socket.create_server(("127.0.0.1", 0))
GATES = {}


def watch():
    """A blocked loop, and a transport without a thread, cannot be told otherwise."""
    while not all(event.is_set() for event in LET_GO.values()):
        for what, event in LET_GO.items():
            if os.path.exists(f"{os.environ['WAITS']}.{what}"):
                event.set()
        time.sleep(0.02)


@contextmanager
def tied():
    with anyio.CancelScope() as scope:
        SCOPES.append(scope)
        yield


def gate(name):
    if name not in GATES:
        GATES[name] = anyio.Lock() if name.isupper() else anyio.Event()
    return GATES[name]


async def first() -> str:
    with tied():
        async with gate("A"):  # first takes A
            gate("first has A").set()
            await gate("second has B").wait()
            async with gate("B"):  # first waits for B
                pass
    return "x"


async def second() -> str:
    with tied():
        async with gate("B"):  # second takes B
            gate("second has B").set()
            await gate("first has A").wait()  # over HTTP it may be read before the first
            async with gate("A"):  # second waits for A
                pass
    return "x"


async def asks() -> str:
    with tied():
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            await client.get(f"http://127.0.0.1:{SILENT.getsockname()[1]}/secret?q=1")  # asks
    return "x"


async def port() -> str:
    return str(SILENT.getsockname()[1])


async def untie() -> str:
    for scope in SCOPES:
        scope.cancel()
    return "x"


async def blocks() -> str:
    _ = [time.sleep(0.01) for _ in iter(LET_GO["block"].is_set, True)]  # blocks
    return "x"


async def threads() -> str:
    await anyio.to_thread.run_sync(in_thread)
    return "x"


def in_thread():
    LET_GO["threads"].wait()  # in a thread


def main(transport, port, loop):
    server = Server("hanging")
    for tool in (first, second, asks, globals()["port"], untie, blocks, threads):
        server.add_tool(tool)
    threading.Thread(target=watch, daemon=True).start()
    from mcp_probe import attach
    from mcp_probe.live import channel

    channel.STOP_S = 20.0  # a busy machine keeps the thread that says why it ends from its CPU for longer
    attach(server, live=True, record=os.environ["RECORDING"])
    if transport == "stdio":
        options = {"use_uvloop": True} if loop == "uvloop" else {}
        backend = "trio" if loop == "trio" else "asyncio"
        anyio.run(server.run_stdio_async, backend=backend, backend_options=options)
    else:
        import uvicorn

        uvicorn.run(
            server.streamable_http_app(), host="127.0.0.1", port=int(port), log_level="error", loop=loop, ws="none"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
