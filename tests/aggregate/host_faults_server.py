"""A server on one CPU that is short of it: by threads of its own, by other processes, or not at all.

One process attaches to a new server for each phase, and prints the phases' summaries as JSON. Threads hash without the
GIL, so that what the loop waits for is the CPU.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from mcp import Client
from mcp.server import MCPServer

import mcp_probe
from tests.hogs import hogs

CALLS = 30
THREADS, PROCESSES = 6, 2
USED_NS: list[int] = []  # CPU time of each thread that hashed all the time


def compute(ms: float) -> None:
    """Uses the CPU for ``ms`` of this thread's own time, however long that takes."""
    until = time.thread_time_ns() + ms * 1e6
    while time.thread_time_ns() < until:
        pass


def make_server() -> MCPServer:
    server = MCPServer("short of a CPU")

    @server.tool()
    async def short() -> str:
        compute(4)
        return "ok"

    @server.tool()
    async def sleepy() -> str:
        time.sleep(0.03)  # blocks
        return "ok"

    return server


@contextmanager
def threads(hash_forever: Callable[[threading.Event], None]) -> Iterator[None]:
    over = threading.Event()
    running = [threading.Thread(target=hash_forever, args=(over,)) for _ in range(THREADS)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in running:
            thread.join()


def hash_always(over: threading.Event) -> None:
    while not over.is_set():
        hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000)
    USED_NS.append(time.thread_time_ns())


def hash_seldom(over: threading.Event) -> None:
    while not over.wait(0.1):
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000)


async def phase(tool: str, calls: int) -> dict[str, object]:
    server = make_server()
    probe = mcp_probe.attach(server)
    async with Client(server) as client:
        began = time.monotonic()
        for _ in range(calls):
            await client.call_tool(tool, {})
        left_s = 0.0 if calls == 1 else 1.1 - (time.monotonic() - began)
        await asyncio.sleep(max(0.0, left_s))  # less than a second is not judged
    found = (await asyncio.to_thread(probe.snapshot)).to_json()
    probe.detach()
    return found


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    asyncio.run(phase("short", 1))  # what only a first call imports
    found = {}
    for name, others, tool, calls in (
        ("fault", threads(hash_always), "short", CALLS),
        ("mended", nullcontext(), "short", CALLS),
        ("near", threads(hash_seldom), "short", CALLS),
        ("host", hogs(PROCESSES), "short", 4 * CALLS),  # judged by a share of its slow steps
        ("host and blocking", hogs(PROCESSES), "sleepy", CALLS),
    ):
        began = time.monotonic()
        with others:
            found[name] = asyncio.run(phase(tool, calls))
        if USED_NS:
            found[name]["used_cpus"] = sum(USED_NS) / 1e9 / (time.monotonic() - began)
            USED_NS.clear()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
