"""Drives every accelerated class hard, in a process of its own: ``python -m tests.native.endurance PART [ROUNDS]``.

Ends with 0 and a line of JSON, or dies: of an assertion, or of the interpreter's own checks where memory was misused.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from mcp_probe import native
from mcp_probe.adapters.asyncio_loop import AsyncioHooks
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.live_requests import LiveRequests
from mcp_probe.capture.messages import Channel
from mcp_probe.record.assemble import assemble
from mcp_probe.record.raw import RawRequest

core: Any = native.core

SINGLETONS: tuple[Any, ...] = (None, True, False, ())


def nothing(*_: Any, **__: Any) -> None:
    pass


def fails(*_: Any) -> None:
    raise ValueError("its own")


def requests(_: Any) -> None:
    """A request's whole life, and its record."""
    raw = RawRequest(1, "request", "tools/call", "t", "stdio")
    raw.channel = raw  # only the collector frees it
    for number in range(10):
        at = number * 10
        raw.add_mark((number % 3, at, at + 1, at + 1, at + 2, at + 3, 0))
        raw.set_unit(number % 7, number)
    raw.arrival_ns = raw.taken_ns = 0
    raw.result_ns = raw.write_taken_ns = 200
    raw.write_seen = True
    assemble(raw, 300)
    raw.units = {1: 2}
    raw.drop_unit(1)
    raw.clear_marks()


class Message:
    """A message, or an item with one, by its parts."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class Request(Message):
    """Asks."""


class Result(Message):
    """Answers."""


class Session:
    """Is told of what has finished."""

    def finish(self, raw: Any) -> None:
        assemble(raw, raw.end_ns)


def channels(_: Any) -> None:
    """Messages in and out: answered, flushed, cancelled, never answered."""
    requests = LiveRequests()
    channel = Channel(requests, "stdio", lambda: (1, 2, 3))
    channel.session, channel.writer_seen = Session(), True
    for number in range(4):
        asks = Message(message=Request(id=number, method="tools/call", params={"name": "t"}))
        channel.received(asks, copy_context())
    for number in range(3):
        answer = Message(message=Result(id=number, result={"isError": number == 1}))
        raw = channel.sending(answer)
        assert raw is not None
        if number == 2:
            channel.not_sent(answer, raw)
        else:
            channel.taken(answer)
            channel.flushed()
    assert len(requests.live) == 1


def callbacks(loop: Any) -> None:
    """What a loop is given: callbacks of all sorts, timers, tasks, sockets."""
    handles = [loop.call_soon(nothing, *range(count)) for count in range(4)]
    handles.append(loop.call_soon_threadsafe(nothing, context=None))
    handles[1].cancel()
    repr(handles[2])
    loop.call_soon(fails)
    with suppress(TypeError):
        loop.call_soon(nothing, unknown=1)
    loop.call_later(0, nothing)
    one, other = socket.socketpair()
    loop.add_reader(one, loop.remove_reader, one)
    other.send(b"x")
    raw = RawRequest(1, "request", "tools/call", "t", "stdio")

    async def handler() -> None:
        CURRENT.set(raw)
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        await asyncio.sleep(0)

    loop.run_until_complete(handler())
    one.close()
    other.close()


def readings(_: Any) -> None:
    """Readings, and a tick over them."""
    of = core.Readings(core.Steps(), None, -1)
    of.read(1)
    of.before(2)
    core.park((of,), 10**9, 1, 0, core.PipeLooker())


PARTS: dict[str, Callable[[Any], None]] = {
    "requests": requests,
    "channels": channels,
    "callbacks": callbacks,
    "readings": readings,
}


def endure(part: Callable[[Any], None], rounds: int) -> dict[str, int]:
    """Repeats ``part`` on a loop that is followed; how much more is allocated after ``rounds`` than before."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(nothing)
    hub = Hub()
    hooks = AsyncioHooks(hub)
    hooks.install()
    monitor = hooks.follow(loop)
    assert monitor is not None

    def run(times: int) -> tuple[int, int, list[int]]:
        for number in range(times):
            part(loop)
            if number % 256 == 0:  # as the collector does
                hub.slow.clear()
                monitor.take_polls()
        hub.slow.clear()
        monitor.take_polls()
        gc.collect()
        counts = [0] * 4 if sys.version_info >= (3, 12) else [sys.getrefcount(one) for one in SINGLETONS]
        return sys.getallocatedblocks(), resident_bytes(), counts

    run(max(rounds // 10, 50))
    blocks, resident, counts = run(max(rounds // 10, 50))
    later_blocks, later_resident, later_counts = run(rounds)
    assert monitor.alive, hub.hooks
    assert hooks.restore() == []
    loop.close()
    drift = max(abs(one - two) for one, two in zip(counts, later_counts, strict=True))
    return {"blocks": later_blocks - blocks, "bytes": later_resident - resident, "references": drift}


def resident_bytes() -> int:
    """Of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def threads(rounds: int) -> dict[str, int]:
    """Threads hand callbacks over while the hooks come and go; every callback runs, once."""
    loop = asyncio.new_event_loop()
    ran = 0
    given = [0, 0, 0]
    over = threading.Event()

    def count() -> None:
        nonlocal ran
        ran += 1

    def hand_over(number: int) -> None:
        while not over.is_set():
            loop.call_soon_threadsafe(count)
            given[number] += 1
            if given[number] - ran > 2_000:  # the loop is far behind
                over.wait(0.001)

    async def come_and_go() -> None:
        for _ in range(rounds):
            hooks = AsyncioHooks(Hub())
            hooks.install()
            assert hooks.follow(loop) is not None
            for _ in range(3):
                await asyncio.sleep(0)
            assert hooks.restore() == []
            await asyncio.sleep(0)

    workers = [threading.Thread(target=hand_over, args=(number,)) for number in range(len(given))]
    for worker in workers:
        worker.start()
    loop.run_until_complete(come_and_go())
    over.set()
    for worker in workers:
        worker.join()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert ran == sum(given), (ran, given)
    return {"callbacks": ran}


def main(part: str, rounds: int = 1_000) -> None:
    """See the module's text."""
    assert native.core is not None, native.absence
    if os.environ.get("ENDURANCE_GC"):
        gc.set_threshold(int(os.environ["ENDURANCE_GC"]))
    print(json.dumps(threads(rounds) if part == "threads" else endure(PARTS[part], rounds)))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
