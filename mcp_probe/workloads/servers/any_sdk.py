"""The same tools with whichever SDK the interpreter has: ``any_sdk.py mcp|fastmcp``, over stdio.

Runs as a file, in interpreters that have no mcp_probe; needs nothing but that SDK.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from importlib.metadata import version
from typing import Any

CLASSES = {
    "mcp": (("mcp.server", "MCPServer"), ("mcp.server.fastmcp", "FastMCP")),  # 2.x, 1.x
    "fastmcp": (("fastmcp", "FastMCP"),),
}


def made(sdk: str) -> Any:
    """A server. Raises: LookupError where this interpreter has no such SDK."""
    for module, name in CLASSES[sdk]:
        try:
            return getattr(import_module(module), name)("any sdk")
        except (ImportError, AttributeError):
            continue
    raise LookupError(f"{sys.executable} has no {sdk}.")


async def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


async def counted() -> str:
    """What this process is, and what CPU time it has used."""
    sdk = sys.argv[1]
    return json.dumps({"cpu_ns": time.process_time_ns(), "sdk": sdk, "version": version(sdk)})


def main() -> None:
    """Serves until stdin ends."""
    sdk = sys.argv[1]
    server = made(sdk)
    for tool in (add, counted):
        server.tool()(tool)
    server.run(transport="stdio", **({"show_banner": False} if sdk == "fastmcp" else {}))


if __name__ == "__main__":
    main()
