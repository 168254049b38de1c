"""A server whose calls take as long as they are told to, in each of the ways in which a tool can wait.

What a call costs beyond its delay is the client's, the protocol's and the server's own time. The provider of
document 001 did the same with asyncio and hand-written JSON; this one is a server of the SDK. Needs only ``mcp``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
from mcp.server import MCPServer

server = MCPServer("delays", log_level="WARNING")

_pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="app")


@server.tool(structured_output=False)
async def wait(delay_ms: float, payload_bytes: int = 256, busy_us: float = 0) -> str:
    """Awaits, as a tool does that asks another service; 0 answers at once. Computes for ``busy_us`` before."""
    if busy_us > 0:
        until = time.perf_counter_ns() + round(busy_us * 1e3)
        while time.perf_counter_ns() < until:
            pass
    if delay_ms > 0:
        await anyio.sleep(delay_ms / 1e3)
    return "." * payload_bytes


@server.tool(structured_output=False)
async def pooled(delay_ms: float, payload_bytes: int = 256) -> str:
    """Sleeps on one of the application's own threads."""
    await asyncio.get_running_loop().run_in_executor(_pool, time.sleep, delay_ms / 1e3)
    return "." * payload_bytes


@server.tool(structured_output=False)
async def to_thread(delay_ms: float, payload_bytes: int = 256) -> str:
    """Sleeps on a thread of asyncio's default executor."""
    await asyncio.to_thread(time.sleep, delay_ms / 1e3)
    return "." * payload_bytes


@server.tool(structured_output=False)
def threaded(delay_ms: float, payload_bytes: int = 256) -> str:
    """Sleeps in a plain ``def``, which the SDK runs on one of anyio's worker threads."""
    time.sleep(delay_ms / 1e3)
    return "." * payload_bytes


@server.tool(structured_output=False)
async def blocking(delay_ms: float, payload_bytes: int = 256) -> str:
    """Sleeps on the event loop itself: nothing else of the server runs meanwhile."""
    time.sleep(delay_ms / 1e3)
    return "." * payload_bytes


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves on stdin and stdout until the client closes stdin."""
    parser = argparse.ArgumentParser(description="An MCP server with controlled delays, over stdio.")
    parser.add_argument("--startup-ms", type=float, default=0.0, help="sleep before the first read of stdin")
    parser.add_argument("--pool", type=int, default=4, help="threads of the application's own pool")
    parser.add_argument("--starts", type=Path, help="append a line with the process id here: an independent count")
    options = parser.parse_args(arguments)
    if options.starts is not None:
        note_start(options.starts)
    if options.startup_ms > 0:
        time.sleep(options.startup_ms / 1e3)
    global _pool
    _pool = ThreadPoolExecutor(max_workers=options.pool, thread_name_prefix="app")
    anyio.run(server.run_stdio_async)


def note_start(path: Path) -> None:
    """One line a process, whole even where several start at once."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{os.getpid()}\n".encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
