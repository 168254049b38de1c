"""How long the loop stands still while a session ends, with a recording that is slow to write."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import anyio
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer

from tests.harm.programs.probing import BARE, tell

BEAT_S = 0.005


class SlowSink:
    """A recording on a disk that takes a second for each write; ``fault`` raises instead."""

    def __init__(self, fault: bool) -> None:
        self._fault = fault

    def write(self, lines: list[bytes]) -> None:
        if self._fault:
            raise RuntimeError("the disk is gone")
        time.sleep(1)

    def close(self) -> None:
        if self._fault:
            raise RuntimeError("the disk is still gone")


def make_server() -> MCPServer:
    server = MCPServer("ends")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    return server


async def longest_gap(sessions: int, server: MCPServer) -> tuple[float, list[str]]:
    gaps = [0.0]
    said: list[str] = []

    async def beat() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(BEAT_S)
            now = time.perf_counter()
            gaps.append(now - last - BEAT_S)
            last = now

    async with Client(
        InMemoryTransport(server)
    ) as client:  # what is imported and compiled once is no gap of a session's end
        await client.call_tool("add", {"a": 1, "b": 2})
    beating = asyncio.create_task(beat())
    for _ in range(sessions):
        try:
            async with Client(InMemoryTransport(server)) as client:
                result: Any = await client.call_tool("add", {"a": 1, "b": 2})
                said.append(result.content[0].text)
            await asyncio.sleep(2 * BEAT_S)
        except BaseException as exc:
            said.append(f"raised {type(exc).__name__}: {exc}")
    beating.cancel()
    return max(gaps), said


def main() -> None:
    server, fault = make_server(), sys.argv[2] == "fault"
    probe: Any = None
    if not BARE:
        import mcp_probe

        probe = mcp_probe.attach(server)
        probe.add_sink(SlowSink(fault))
    gap, said = anyio.run(longest_gap, 3, server)
    if probe is not None:
        probe.detach()
    tell({"gap_s": gap, "said": said})


if __name__ == "__main__":
    main()
