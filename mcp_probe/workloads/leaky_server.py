"""A server with known memory: one tool leaks, and three others look as if they did and do not.

``--leak-bytes N`` is what a call of ``remember`` keeps for ever; ``--cache N`` how many results ``recall`` keeps. It
knows nothing of mcp_probe and needs only the ``mcp`` package.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import anyio
from mcp.server import MCPServer

server = MCPServer("leaky shop", log_level="WARNING")

LEAK_BYTES = 500
_history: list[bytes] = []


@server.tool()
async def clean(number: int) -> int:
    """Uses 100 kB and gives it all back: nothing stays."""
    scratch = bytearray(100_000)
    scratch[number % 100_000] = 1
    return len(scratch)


def _render(number: int) -> bytes:
    return bytes(1000 + number % 7)


_rendered = lru_cache(maxsize=128)(_render)


@server.tool()
async def recall(number: int) -> int:
    """Keeps its latest results in a cache of bounded size: it grows until the cache is full, which is healthy."""
    return len(_rendered(number))


@server.tool()
async def tangle(number: int) -> int:
    """Leaves 5 kB of objects that refer to each other: garbage, until the collector comes."""
    first: dict[str, Any] = {"payload": bytes(2500)}
    second: dict[str, Any] = {"payload": bytes(2500), "other": first}
    first["other"] = second
    return number


@server.tool()
async def remember(number: int) -> int:
    """The leak: a history that nobody ever clears."""
    entry = bytes(LEAK_BYTES - 33)  # an empty bytes object takes 33
    _history.append(entry)
    return len(_history)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves on stdin and stdout until the client closes stdin."""
    global LEAK_BYTES, _rendered
    parser = argparse.ArgumentParser(description="A leaking MCP server, over stdio.")
    parser.add_argument("--leak-bytes", type=int, default=LEAK_BYTES)
    parser.add_argument("--cache", type=int, default=128)
    parser.add_argument("--loop", choices=("asyncio", "uvloop", "trio"), default="asyncio")
    given = parser.parse_args(arguments)
    LEAK_BYTES, _rendered = given.leak_bytes, lru_cache(maxsize=given.cache)(_render)
    anyio.run(
        server.run_stdio_async,
        backend="trio" if given.loop == "trio" else "asyncio",
        backend_options={"use_uvloop": True} if given.loop == "uvloop" else {},
    )


if __name__ == "__main__":
    main()
