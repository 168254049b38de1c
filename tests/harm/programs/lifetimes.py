"""What is still alive after the work that made it: exceptions, futures, loops, servers."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import weakref
from typing import Any

import anyio

from tests.harm.programs.probing import BARE, Watched, tell

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup


class Done(Exception):
    """Raised by the work."""


def referrers(thing: Any) -> list[str]:
    """What refers to ``thing``, by type; the frame that asks is left out."""
    frame = sys._getframe(1)
    return sorted(type(one).__name__ for one in gc.get_referrers(thing) if one is not frame)


async def parent_task() -> list[str]:
    """Source: anyio 4.16.0, tests/test_taskgroups.py, TestRefcycles.test_exception_refcycles_parent_task."""
    group = anyio.create_task_group()

    async def child() -> None:
        async with group:
            raise Done

    exc: Any = None
    try:
        async with anyio.create_task_group() as outer:
            outer.start_soon(child)
    except BaseExceptionGroup as found:
        exc = found.exceptions[0].exceptions[0]
    return referrers(exc)


async def happy_eyeballs() -> list[str]:
    """Source: anyio 4.16.0, tests/test_sockets.py, test_happy_eyeballs_refcycles."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        exc: Any = None
        try:
            async with await anyio.connect_tcp("127.0.0.1", port):
                pass
        except OSError as found:
            exc = found.__cause__
    assert isinstance(exc, OSError)
    return referrers(exc)


async def finished_futures() -> list[bool]:
    """Futures and tasks with the exceptions they ended with, after a turn or two."""
    loop = asyncio.get_running_loop()
    alive: list[Any] = []
    future = loop.create_future()
    loop.call_soon(future.set_exception, Done())
    try:
        await future
    except Done as exc:
        alive.append(weakref.ref(exc))
    alive.append(weakref.ref(future))
    task = asyncio.ensure_future(asyncio.to_thread(object))
    result = await task
    alive += [weakref.ref(task)]
    del future, task, result
    for _ in range(3):
        await asyncio.sleep(0)
    return [one() is not None for one in alive]


async def callbacks() -> list[bool]:
    """What callbacks and timers that are over were called with."""
    loop = asyncio.get_running_loop()

    class Argument:
        def call(self, *_: Any) -> None:
            pass

    alive = []
    for put in (loop.call_soon, lambda *a: loop.call_later(0, *a), loop.call_soon_threadsafe):
        argument = Argument()
        alive.append(weakref.ref(argument))
        put(argument.call, argument)
    argument = Argument()
    alive.append(weakref.ref(argument))
    loop.call_later(60, argument.call, argument).cancel()
    del argument
    await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    return [one() is not None for one in alive]


def loops(watched: Watched) -> list[bool]:
    """Source: anyio 4.16.0, tests/test_to_thread.py, test_asyncio_run_does_not_leak_event_loop."""
    alive = []

    async def main() -> Any:
        await anyio.to_thread.run_sync(int)
        return weakref.ref(asyncio.get_running_loop())

    alive.append(watched.run(main))
    gc.collect()
    return [one() is not None for one in alive]


def servers() -> list[bool]:
    """A server that nobody holds, with every server attached as ``mcp-probe run`` does."""
    try:
        from mcp.server.lowlevel.server import Server
    except ImportError:
        return []
    probe: Any = None
    if not BARE:
        from mcp_probe.session import AutomaticProbe

        probe = AutomaticProbe()
    server: Any = Server("short-lived")
    alive = [weakref.ref(server)]
    del server
    gc.collect()
    found = [one() is not None for one in alive]
    if probe is not None:
        probe.detach()
    return found


def main() -> None:
    found: dict[str, Any] = {}
    with Watched() as watched:
        for eager in (False, True) if sys.version_info >= (3, 12) else (False,):

            async def scenario(work: Any, eager: bool = eager) -> Any:
                if eager:
                    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
                return await work()

            for work in (parent_task, happy_eyeballs, finished_futures, callbacks):
                gc.collect()
                gc.disable()
                found[f"{work.__name__}{', eager' if eager else ''}"] = watched.run(lambda w=work, s=scenario: s(w))  # type: ignore[misc]
                gc.enable()
        found["loops"] = loops(watched)
    found["servers"] = servers()
    tell(found)


if __name__ == "__main__":
    main()
