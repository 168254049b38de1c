"""A server and loops to try hooks on: `mcp-probe doctor` attaches to them, and nothing is ever served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

LOOPS = ("asyncio", "uvloop", "trio")
SDK = ("mcp.server.lowlevel", "mcp.server.stdio", "mcp.server.streamable_http_manager")
WEB_SERVERS = ("uvicorn.protocols.http.h11_impl", "uvicorn.protocols.http.httptools_impl", "hypercorn.protocol")


def make_server() -> Any:
    """A low-level server of the SDK that is installed. Raises whatever importing it raises."""
    return import_module("mcp.server.lowlevel").Server("doctor")


def run_on(name: str, main: Callable[[], Awaitable[None]]) -> None:
    """Runs ``main`` on a new loop of this name. No loop may run on the calling thread."""
    if name == "trio":
        import_module("trio").run(main)
        return
    loop = import_module("uvloop").new_event_loop() if name == "uvloop" else asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
