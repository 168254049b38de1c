"""A real server with a tool that holds the event loop until its client lets it go."""

from __future__ import annotations

import time
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("gate", log_level="ERROR")


@server.tool()
async def hold(folder: str) -> str:
    """Blocks until there is a file called ``go``; says that it has begun by one called ``held``."""
    Path(folder, "held").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.005)
    return "let go"


@server.tool()
async def quick() -> str:
    """Answers at once."""
    return "quick"


if __name__ == "__main__":
    server.run("stdio")
