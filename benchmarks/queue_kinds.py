# mypy: ignore-errors
"""A server whose tools put items into queues; who takes them keeps something for each. For mcp 1.x and 2.x.

``python benchmarks/queue_kinds.py stdio|PORT asyncio|uvloop``. Each call of a tool in :data:`OWNED` makes its consumer
keep :data:`ITEM_BYTES`, in a thread or a task that lives in no call's context. ``last_in_first_out`` feeds a queue that
hands its items out in another order, so they are nobody's. The consumer of ``kept_nothing`` keeps nothing. It knows
nothing of mcp_probe.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

try:
    from mcp.server import MCPServer as Server
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[import-not-found,no-redef]

ITEM_BYTES = 100_000
OWNED = ("thread_queue", "thread_simple_queue", "task_queue", "task_stream")
NOBODYS = "last_in_first_out"
INNOCENT = "kept_nothing"

kept: list[bytes] = []


def keep() -> None:
    """What a consumer does for an item."""
    kept.append(bytes(ITEM_BYTES - 33))


def _thread_fed_by(make: Callable[[], Any], work: Callable[[], None] = keep) -> Callable[[int], None]:
    """A function that puts an item; the thread that takes them starts with the first one."""
    items = make()

    def consume() -> None:
        while True:
            items.get()
            work()

    thread = threading.Thread(target=consume, daemon=True)

    def put(number: int) -> None:
        if thread.ident is None:
            contextvars.Context().run(thread.start)
        items.put(number)

    return put


_in_thread = {
    "thread_queue": _thread_fed_by(queue.Queue),
    "thread_simple_queue": _thread_fed_by(lambda: queue.SimpleQueue()),
    NOBODYS: _thread_fed_by(queue.LifoQueue),
    INNOCENT: _thread_fed_by(queue.Queue, lambda: None),
}


def thread_queue(number: int) -> int:
    """A thread that a ``queue.Queue`` feeds."""
    _in_thread["thread_queue"](number)
    return number


def thread_simple_queue(number: int) -> int:
    """A thread that a ``queue.SimpleQueue`` feeds."""
    _in_thread["thread_simple_queue"](number)
    return number


async def last_in_first_out(number: int) -> int:
    """A thread that a stack feeds."""
    _in_thread[NOBODYS](number)
    return number


async def kept_nothing(number: int) -> int:
    """A thread that forgets each item."""
    _in_thread[INNOCENT](number)
    return number


class _Background:
    """Tasks that a server starts once, outside its calls."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[int] = asyncio.Queue()
        self.sender, self.receiver = anyio.create_memory_object_stream[int](1_000)
        start = asyncio.get_running_loop().create_task
        self.tasks = [contextvars.Context().run(start, work) for work in (self._of_queue(), self._of_stream())]

    async def _of_queue(self) -> None:
        while True:
            await self.queue.get()
            keep()

    async def _of_stream(self) -> None:
        async for _ in self.receiver:
            keep()


_background: _Background | None = None


def background() -> _Background:
    """The one of this process."""
    global _background
    _background = _background or _Background()
    return _background


async def task_queue(number: int) -> int:
    """A task that an ``asyncio.Queue`` feeds."""
    await background().queue.put(number)
    return number


async def task_stream(number: int) -> int:
    """A task that a memory object stream feeds."""
    await background().sender.send(number)
    return number


TOOLS: tuple[Callable[[int], int] | Callable[[int], Awaitable[int]], ...] = (
    thread_queue,
    thread_simple_queue,
    task_queue,
    task_stream,
    last_in_first_out,
    kept_nothing,
)


def main(place: str, loop: str) -> None:
    """Serve until the client leaves, or a signal comes."""
    is_old = Server.__name__ == "FastMCP"
    server = Server("queues", **({"port": int(place)} if is_old and place != "stdio" else {}))
    for tool in TOOLS:
        server.tool()(tool)

    async def serve() -> None:
        if place == "stdio":
            await server.run_stdio_async()
        else:
            await server.run_streamable_http_async(**({} if is_old else {"port": int(place)}))

    anyio.run(serve, backend_options={"use_uvloop": loop == "uvloop"})


if __name__ == "__main__":
    main(*sys.argv[1:])
