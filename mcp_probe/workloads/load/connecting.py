"""Reaching a server by whichever transport it has: one client of it, or many of them as one peer.

Of many, each request goes to the next whose server is still there. Over stdio each session has a server process of its
own. Over HTTP each has connections of its own and, before protocol 2026-07-28, a session id of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from mcp_probe.clock import now_ns
from mcp_probe.errors import LaunchError
from mcp_probe.workloads.load.handshake import Say
from mcp_probe.workloads.load.peer import Peer, Target
from mcp_probe.workloads.load.wire import Order, Reply

MOST_SESSIONS = 10_000

_AT_ONCE = 8
"""Sessions that are opened side by side: more would time one another's start."""

Opened = tuple[Peer, int]  # and how long it took, ns


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


class Sessions(Peer):
    """Takes turns among its peers; what one peer states of its server is that of the first."""

    def __init__(self, opened: Sequence[Opened]) -> None:
        self.connect_ns = [took for _, took in opened]
        self._all = [peer for peer, _ in opened]
        self._living = list(self._all)
        self._next = 0
        first = self._all[0]
        self.modern, self.protocol, self.server, self.pid = first.modern, first.protocol, first.server, first.pid
        self.capabilities = first.capabilities

    def post(self, order: Order, *, stamped: bool = False) -> asyncio.Future[Reply]:
        return self._turn().post(order, stamped=stamped)

    def notify(self, order: Order) -> asyncio.Future[Reply]:
        return self._turn().notify(order)

    def gone(self) -> str:
        """Why the first cannot be reached any more, once none can."""
        while self._living and self._living[-1].gone():
            self._living.pop()
        return "" if self._living else self._all[0].gone()

    async def last_words(self) -> str:
        """Of the first whose server has gone, while others live."""
        for peer in self._all:
            if words := await peer.last_words():
                return words
        return ""

    def lost(self) -> int:
        """How many of their servers have gone."""
        return sum(bool(peer.gone()) for peer in self._all)

    def __len__(self) -> int:
        return len(self._all)

    def _turn(self) -> Peer:
        while self._living:
            self._next = (self._next + 1) % len(self._living)
            peer = self._living[self._next]
            if not peer.gone():
                return peer
            del self._living[self._next]
        return self._all[0]


@asynccontextmanager
async def connect_all(
    target: Target, count: int, *, connections: int = 0, show: Say | None = None
) -> AsyncIterator[Sessions]:
    """``count`` sessions, all of which have shaken hands; ``connections`` limits those of all together, 0 = not.

    Raises:
        LaunchError: one of them does not start, or cannot be reached; the others are stopped.
        MissingExtraError: for HTTP, the ``aiohttp`` package is missing.
    """
    gate = asyncio.Semaphore(_AT_ONCE)
    each = max(1, connections // count) if connections else 0
    stacks = [AsyncExitStack() for _ in range(count)]

    async def opened(number: int, stack: AsyncExitStack) -> Opened:
        async with gate:
            began = now_ns()
            connecting = connect(_numbered(target, number), connections=each, say=show if count == 1 else None)
            peer = await stack.enter_async_context(connecting)
        took = now_ns() - began
        if show is not None and count > 1:
            show(f"{1 + sum(task.done() for task in tasks)} of {count} sessions are open")
        return peer, took

    tasks = [asyncio.ensure_future(opened(number, stack)) for number, stack in enumerate(stacks)]
    try:
        yield Sessions(await _all_open(tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(stack.aclose() for stack in stacks), return_exceptions=True)


async def _all_open(futures: Sequence[asyncio.Future[Opened]]) -> list[Opened]:
    await asyncio.wait(futures, return_when=asyncio.FIRST_EXCEPTION)
    for number, ready in enumerate(futures, 1):
        if ready.done() and (failed := ready.exception()) is not None:
            if isinstance(failed, LaunchError) and len(futures) > 1:
                raise LaunchError(f"Session {number} of {len(futures)}: {failed}") from failed
            raise failed
    return [ready.result() for ready in futures]


def _numbered(target: Target, number: int) -> Target:
    """The target of one session; each writes what it keeps of stderr to a file of its own."""
    if target.stderr is None or not number:
        return target
    return replace(target, stderr=target.stderr.with_name(f"{target.stderr.stem}-{number + 1}{target.stderr.suffix}"))
