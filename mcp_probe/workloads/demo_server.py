"""The server of ``mcp-probe demo``: five tools as a user might have written them, two of them with a fault.

It knows nothing of mcp_probe and needs only the ``mcp`` package. ``--loop uvloop`` and ``--loop trio``
serve the same tools on another event loop (each needs its package installed).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import anyio
from mcp.server import MCPServer

PRICES = {f"item-{number}": 100 + 7 * number for number in range(50)}

server = MCPServer("demo shop", log_level="WARNING")


@server.tool()
async def lookup(item: str) -> int:
    """Price of an item, in cents; answers at once."""
    return PRICES[item]


@server.tool()
async def resize(image: str, width: int) -> str:
    """A smaller copy of an image; its library is synchronous, and nobody moved the call off the event loop."""
    time.sleep(0.12 + width / 10_000)
    return f"{image} at {width} px"


@server.tool()
def render(page: int, dpi: int) -> str:
    """A page as a picture. A plain ``def``: the SDK runs it in one of its worker threads."""
    time.sleep(dpi / 1000)
    return f"page {page} at {dpi} dpi"


@server.tool()
async def score(words: int) -> int:
    """How well a text of this many words fits; pure computation, on the event loop."""
    total = 0
    for word in range(words):
        total = (total * 31 + word) % 1_000_003
    return total


@server.tool()
async def fetch(url: str) -> str:
    """A document from a slow place elsewhere; awaits it as an async tool should."""
    await anyio.sleep(0.3)
    return f"contents of {url}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves on stdin and stdout until the client closes stdin."""
    parser = argparse.ArgumentParser(description="The demo MCP server, over stdio.")
    parser.add_argument("--loop", choices=("asyncio", "uvloop", "trio"), default="asyncio")
    loop = parser.parse_args(arguments).loop
    anyio.run(
        server.run_stdio_async,
        backend="trio" if loop == "trio" else "asyncio",
        backend_options={"use_uvloop": True} if loop == "uvloop" else {},
    )


if __name__ == "__main__":
    main()
