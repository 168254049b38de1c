"""HTTP client libraries behind one small face, so that a model can be run with whichever is installed.

Proxies of the environment are the caller's to remove: what is measured is a server on this machine.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

Get = Callable[[str], bytes]
AsyncGet = Callable[[str], Awaitable[bytes]]

ASYNC_LIBRARIES = ("aiohttp", "httpx2", "httpx")
SYNC_LIBRARIES = ("requests", "httpx2", "httpx")
"""In order of preference: the document's own first."""

OK_BELOW = 400


class BadStatus(Exception):
    """The server answered with 400 or above: a failure by the document's count."""


def installed(libraries: Sequence[str]) -> list[str]:
    """Those that can be imported; imports none of them."""
    return [name for name in libraries if importlib.util.find_spec(name) is not None]


@contextmanager
def sync_client(library: str) -> Iterator[Get]:
    """One session with the library's own defaults: requests keeps at most 10 connections, httpx 20 of 100.

    Without a bound on threads' connections for httpx, whose default would queue them at 100.
    """
    if library == "requests":
        requests: Any = importlib.import_module("requests")
        with requests.Session() as session:

            def get(url: str) -> bytes:
                response = session.get(url)
                return _checked(response.status_code, response.content)

            yield get
        return
    httpx: Any = importlib.import_module(library)
    with httpx.Client(limits=httpx.Limits(max_connections=None, max_keepalive_connections=10), timeout=60.0) as client:

        def get_httpx(url: str) -> bytes:
            response = client.get(url)
            return _checked(response.status_code, response.content)

        yield get_httpx


@asynccontextmanager
async def async_client(library: str, limit: int) -> AsyncIterator[AsyncGet]:
    """One session with at most ``limit`` connections, of which it may keep all."""
    if library == "aiohttp":
        aiohttp: Any = importlib.import_module("aiohttp")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=limit)) as session:

            async def get(url: str) -> bytes:
                async with session.get(url) as response:
                    return _checked(response.status, await response.read())

            yield get
        return
    httpx: Any = importlib.import_module(library)
    limits = httpx.Limits(max_connections=limit, max_keepalive_connections=limit)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:

        async def get_httpx(url: str) -> bytes:
            response = await client.get(url)
            return _checked(response.status_code, response.content)

        yield get_httpx


def _checked(status: int, body: bytes) -> bytes:
    if status >= OK_BELOW:
        raise BadStatus(f"status {status}")
    return body
