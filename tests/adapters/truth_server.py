"""A server whose tools take known times. Over stdio: ``python -m tests.adapters.truth_server LOOP RECORDING``."""

from __future__ import annotations

import gc
import sys
import time

import anyio
import anyio.to_thread
from mcp.server.mcpserver import MCPServer

import mcp_probe

AWAIT_S, THREAD_S, SPIN_S, CHILD_S = 0.05, 0.05, 0.03, 0.04
MIXED_MS = {"awaiting": 90, "executor_run": 50, "busy": 30}
"""What one call of ``mixed`` is made of."""


def spin(seconds: float) -> None:
    """Stay on the loop, doing nothing useful."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def build() -> MCPServer:
    """The server, without a probe."""
    server = MCPServer("truth")

    @server.tool()
    async def mixed() -> str:
        """Awaits, works in a thread, works on the loop, and awaits three children at once."""
        await anyio.sleep(AWAIT_S)
        await anyio.to_thread.run_sync(time.sleep, THREAD_S)
        spin(SPIN_S)
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(anyio.sleep, CHILD_S)
        return "done"

    @server.tool()
    def hold(ms: int) -> str:
        """Holds a thread: a plain function, which the SDK runs in the default limiter."""
        time.sleep(ms / 1000)
        return "held"

    @server.tool()
    async def quick() -> str:
        """Does nothing."""
        return "quick"

    @server.tool()
    async def block(ms: int) -> str:
        """Blocks the loop. Says until when, in ns of the monotonic clock."""
        time.sleep(ms / 1000)
        return str(time.monotonic_ns())

    @server.tool()
    async def keep(ms: int) -> str:
        """Blocks the loop in one C call, for at least so long, and keeps the GIL."""
        count, took_ns = 500_000, 0
        while took_ns < ms * 1_000_000:
            count *= 2
            began_ns = time.perf_counter_ns()
            sum(range(count))
            took_ns = time.perf_counter_ns() - began_ns
        return "kept"

    answers, waits = anyio.Event(), anyio.Event()

    @server.tool()
    async def answered_first() -> str:
        """Is answered in the turn of the loop in which ``block_the_answer`` blocks it."""
        waits.set()
        await answers.wait()
        return "answered"

    @server.tool()
    async def block_the_answer(ms: int) -> str:
        """Blocks the loop before the other answer's writer gets its turn. Says for how long, in ns."""
        await waits.wait()
        answers.set()
        await anyio.sleep(0)
        began = time.monotonic_ns()
        time.sleep(ms / 1000)
        return str(time.monotonic_ns() - began)

    return server


def main() -> None:
    """Serve over stdio under a probe that records."""
    loop, recording = sys.argv[1:]
    server = build()
    probe = mcp_probe.attach(server, record=recording)

    @server.tool()
    async def holders() -> str:
        """How many holders of the default limiter's tokens the probe knows, while the transport reads."""
        known = probe._hub.awaits.known(anyio.to_thread.current_default_thread_limiter())
        return str(0 if known is None else len(known.holds))

    backend = "trio" if loop == "trio" else "asyncio"
    options = {"use_uvloop": True} if loop == "uvloop" else {}
    # A full collection of all that is imported keeps the GIL for 50 ms, from the watchdog, too, and comes by chance.
    gc.collect()
    gc.freeze()
    anyio.run(server.run_stdio_async, backend=backend, backend_options=options)


if __name__ == "__main__":
    main()
