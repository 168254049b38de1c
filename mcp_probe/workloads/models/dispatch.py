"""Document 000's micro benchmark: messages handled one by one, or each in a task of its own.

A process of its own, so that the first round of the first case is the first of its process, as it was there. Reads
orders, one JSON object a line, from stdin; answers each with one line. ``timer`` of an order says what is timed:

- ``work``: only the messages, on a loop that runs already, with nothing traced;
- ``document``: what the document's own timer had inside: ``gc.collect``, ``tracemalloc``, making a loop, the
  messages, closing the loop. Its memory figure is the peak of the traced memory.

The source never suspends and neither does the handler, unless the form says so.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Literal

import anyio
import anyio.lowlevel

from mcp_probe.workloads.servers.arithmetic import computed

Form = Literal["one by one", "anyio tasks", "asyncio tasks", "eager tasks", "suspending source", "limit", "yielding"]
Timer = Literal["work", "document"]
Handler = Callable[[int], Awaitable[int]]

LIMIT = 32


@dataclass(frozen=True, slots=True)
class Order:
    """What to run once. ``wait_ms`` above 0: the handler awaits this long instead of computing."""

    form: Form
    timer: Timer
    messages: int
    wait_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One round. ``cpu_ns`` is of the whole process; ``peak_bytes`` only with the document's timer."""

    wall_ns: int
    cpu_ns: int
    peak_bytes: int | None = None


def unavailable(form: Form) -> str | None:
    """Why this interpreter cannot run ``form``, or ``None``."""
    if form == "asyncio tasks" and sys.version_info < (3, 11):
        return "asyncio.TaskGroup came with Python 3.11"
    if form == "eager tasks" and sys.version_info < (3, 12):
        return "eager tasks came with Python 3.12"
    return None


async def source(count: int) -> AsyncIterator[int]:
    """The messages, none of which has to be waited for."""
    for item in range(count):
        yield item


async def suspending_source(count: int) -> AsyncIterator[int]:
    """The same, each of which lets others run first, as a pipe does that has to be read."""
    for item in range(count):
        await anyio.sleep(0)
        yield item


async def computing_handler(item: int) -> int:
    """Computes, and never suspends."""
    return computed(item)


async def yielding_handler(item: int) -> int:
    """Lets others run once, then computes."""
    await anyio.sleep(0)
    return computed(item)


async def run_form(order: Order, handler: Handler | None = None) -> None:
    """All messages of ``order``; ``handler`` in place of the one it names."""
    inner = handler or handler_of(order)

    async def handle(item: int) -> int:
        return await inner(item)

    if order.form == "one by one":
        async for item in source(order.messages):
            await handle(item)
    elif order.form in ("asyncio tasks", "eager tasks"):
        await _asyncio_tasks(handle, order)
    elif order.form == "limit":
        await _limited(handle, order.messages)
    else:
        messages = suspending_source if order.form == "suspending source" else source
        async with anyio.create_task_group() as group:
            async for item in messages(order.messages):
                group.start_soon(handle, item)


def handler_of(order: Order) -> Handler:
    """What handles its messages."""
    if order.wait_ms > 0:

        async def waiting(item: int) -> int:
            await anyio.sleep(order.wait_ms / 1e3)
            return item

        waiting.__qualname__ = "waiting_handler"  # what reports call it
        return waiting
    return yielding_handler if order.form == "yielding" else computing_handler


async def _asyncio_tasks(handle: Callable[[int], Awaitable[int]], order: Order) -> None:
    if sys.version_info < (3, 11):
        raise RuntimeError("asyncio.TaskGroup came with Python 3.11.")

    async def one(item: int) -> int:
        return await handle(item)

    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    if order.form == "eager tasks" and sys.version_info >= (3, 12):
        loop.set_task_factory(asyncio.eager_task_factory)
    try:
        async with asyncio.TaskGroup() as group:
            async for item in source(order.messages):
                group.create_task(one(item))
    finally:
        loop.set_task_factory(before)


async def _limited(handle: Handler, count: int) -> None:
    limit = anyio.Semaphore(LIMIT)

    async def one(item: int) -> None:
        try:
            await handle(item)
        finally:
            limit.release()

    async with anyio.create_task_group() as group:
        async for item in source(count):
            await limit.acquire()
            group.start_soon(one, item)


def timed_work(order: Order) -> Measured:
    """Only the messages."""

    async def measured() -> Measured:
        await anyio.lowlevel.checkpoint()
        gc.collect()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        await run_form(order)
        return Measured(time.perf_counter_ns() - wall, time.process_time_ns() - cpu)

    return anyio.run(measured)


def timed_as_documented(order: Order) -> Measured:
    """What the document's figures contain."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    gc.collect()
    tracemalloc.start()
    anyio.run(run_form, order)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Measured(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, peak)


def around_the_work(tracing: bool) -> Measured:
    """The document's timer around no message at all: what each of its figures contains besides them."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    gc.collect()
    if tracing:
        tracemalloc.start()
    anyio.run(anyio.lowlevel.checkpoint)
    peak = tracemalloc.get_traced_memory()[1] if tracing else None
    if tracing:
        tracemalloc.stop()
    return Measured(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, peak)


def answer(order: Order) -> Measured:
    """One round of ``order``."""
    if order.messages == 0:
        return around_the_work(order.timer == "document")
    return timed_work(order) if order.timer == "work" else timed_as_documented(order)


def profiled(order: Order, recording: str) -> None:
    """One round with every call followed by a probe that records it; not timed."""
    from mcp_probe.session import Probe

    probe = Probe(telemetry="off", record=recording)
    try:
        anyio.run(run_form, order, probe.profile(handler_of(order)))
    finally:
        probe.detach()


def main() -> None:
    """Answers the orders on stdin until it is closed."""
    for line in sys.stdin:
        told = json.loads(line)
        recording = told.pop("record", None)
        order = Order(**told)
        if recording is None:
            result = asdict(answer(order))
        else:
            profiled(order, recording)
            result = {}
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
