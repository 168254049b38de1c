"""Tools with and without ``readOnlyHint``; every call is written to the file named on the command line.

Beside it, ``.starts`` has a line for each start: whether the probe is there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("annotated", log_level="ERROR")
log = Path(sys.argv[1])
with log.with_suffix(".starts").open("a") as starts:
    starts.write("probed\n" if "mcp_probe" in sys.modules else "bare\n")


def note(name: str) -> None:
    with log.open("a") as stream:
        stream.write(f"{name}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def look() -> str:
    """Read-only, no argument."""
    note("look")
    return "seen"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def find(what: str) -> str:
    """Read-only, but it needs an argument."""
    note("find")
    return what


@server.tool(annotations=ToolAnnotations(read_only_hint=False))
async def erase() -> str:
    """Says that it is not read-only."""
    note("erase")
    return "gone"


@server.tool()
async def nap() -> str:
    """Says nothing of itself; waits 150 ms."""
    note("nap")
    await anyio.sleep(0.15)
    return "rested"


@server.prompt()
def greet() -> str:
    """A prompt without arguments."""
    return "Greet the user."


@server.resource("note://today")
def today() -> str:
    """A resource."""
    return "tea"


if __name__ == "__main__":
    server.run("stdio")
