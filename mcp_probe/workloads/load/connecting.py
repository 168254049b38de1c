"""Reaching a server by whichever transport it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp_probe.workloads.load.handshake import Say
from mcp_probe.workloads.load.peer import Peer, Target


@asynccontextmanager
async def connect(target: Target, *, connections: int = 0, say: Say | None = None) -> AsyncIterator[Peer]:
    """A server that has been started or reached, and has shaken hands; stopped or left at the end.

    ``connections`` limits those to an HTTP server, 0 = as many as there are requests in flight. ``say`` hears how long
    a slow server has been starting.

    Raises:
        LaunchError: it does not start, cannot be reached, or speaks no protocol that is known here.
        MissingExtraError: for HTTP, the ``aiohttp`` package is missing.
    """
    if target.url:
        from mcp_probe.workloads.load.http import http_peer  # aiohttp need not be there for the others

        async with http_peer(target, connections, say) as peer:
            yield peer
    else:
        from mcp_probe.workloads.load.stdio import stdio_peer

        async with stdio_peer(target, say) as peer:
            yield peer
