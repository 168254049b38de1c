# mypy: ignore-errors
"""A server whose tools wait for known things. Usage: ``await_truth_server.py stdio|http PORT asyncio|uvloop|trio``.

It runs on mcp 1.x and 2.x, attaches a probe to itself, and records into ``$RECORDING``. Each call has a tool of its own
(``lock_3`` is call 3 of ``lock``), so that a record is one call's and no other's. A tool notes for itself what it
waits for: its answer has the instants at which it asked, got, and gave back, in ns of the monotonic clock.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from asyncio import sleep as imported_by_name
from contextlib import asynccontextmanager, closing
from contextvars import Context
from functools import partial

import anyio
import anyio.to_thread
import urllib3

from tests.adapters.waits.backend import serving

try:
    from mcp.server.fastmcp import FastMCP as Server
except ImportError:
    from mcp.server.mcpserver import MCPServer as Server

BEFORE = asyncio.Lock()  # made before the probe comes
GATES = {}
TASKS = []


def gate(name, make):
    """What all calls of one row share; made by the first of them."""
    if name not in GATES:
        GATES[name] = make()
    return GATES[name]


class Turn:
    """One call: when it asked, got what it asked for, and gave it back; several times if it asks again."""

    def __init__(self):
        self.asked, self.got, self.took, self.gave_back = [], [], [], []

    def __str__(self):
        return json.dumps(vars(self))


now = time.monotonic_ns


def everybody_of(row, calls, number):
    """An event: all calls of the row have come as far as this."""
    come, everybody = gate(f"{row} come", set), gate(f"{row} everybody", anyio.Event)
    come.add(number)
    if len(come) == calls:
        everybody.set()
    return everybody


async def hold(row, make, seconds, calls, number):
    """Holds it for some time; whoever gets it first waits until all have asked."""
    turn, held = Turn(), gate(row, make)
    everybody = everybody_of(row, calls, number)
    turn.asked.append(now())
    async with held:  # takes
        turn.got.append(now())
        await everybody.wait()
        gate(f"{row} is due", anyio.Event).set()
        await anyio.sleep(seconds)
        turn.gave_back.append(now())
    turn.released = now()  # a busy machine may have stopped the thread meanwhile
    return str(turn)


def made_lock():
    return asyncio.Lock()  # made: lock


def made_semaphore():
    return asyncio.Semaphore(2)  # made: semaphore


def made_blocked():
    return asyncio.Lock()  # made: blocked


def made_anyio_lock():
    return anyio.Lock()  # made: anyio_lock


def made_anyio_semaphore():
    return anyio.Semaphore(2)  # made: anyio_semaphore


def made_anyio_limiter():
    return anyio.CapacityLimiter(2)  # made: anyio_limiter


def made_cancelled():
    return anyio.Lock()  # made: cancelled


def before():
    return BEFORE


async def thread(row, number):
    """A worker thread of a limiter of one, beside the others: waiting for it is never an await."""
    turn, threads = Turn(), gate(row, partial(anyio.CapacityLimiter, 1))
    turn.began = []

    def work():
        turn.began.append(now())
        time.sleep(0.1)

    await everybody_of(row, 3, number).wait()
    turn.asked.append(now())
    await anyio.to_thread.run_sync(work, limiter=threads)
    turn.got.append(now())
    return str(turn)


# --- held by no request -------------------------------------------------------------------------------


async def hold_in_background(begin, held, noted):
    """Holds it for 300 ms each time it is told to."""
    while True:
        await begin.wait()
        async with held:  # takes: background
            noted.append(now())
            await anyio.sleep(0.3)
            noted.append(now())
        begin = GATES["begin"] = anyio.Event()


@asynccontextmanager
async def lifespan(server):
    """Its task belongs to no request."""
    async with anyio.create_task_group() as tasks:
        GATES["begin"], GATES["background"], GATES["noted"] = anyio.Event(), anyio.Lock(), []
        tasks.start_soon(hold_in_background, GATES["begin"], GATES["background"], GATES["noted"])
        yield
        tasks.cancel_scope.cancel()


async def background(row, number):
    turn = Turn()
    GATES["begin"].set()
    while not GATES["background"].statistics().locked:
        await anyio.sleep(0.001)
    turn.asked.append(now())
    async with GATES["background"]:
        turn.got.append(now())
    turn.gave_back.append(GATES["noted"][-1])
    return str(turn)


async def left_behind(row, number):
    """The first call leaves a task behind that holds the lock; the second one, after its answer, waits for it."""
    turn, held, ready = Turn(), gate(row, asyncio.Lock), gate(f"{row} ready", asyncio.Event)

    async def hold_on():
        async with held:  # takes: left_behind
            ready.set()
            await asyncio.sleep(0.3)
            GATES["left"] = now()

    if number == 0:
        TASKS.append(asyncio.ensure_future(hold_on()))
        await ready.wait()
    else:
        turn.asked.append(now())
        async with held:
            turn.got.append(now())
        turn.gave_back.append(GATES["left"])
    return str(turn)


# --- queues -------------------------------------------------------------------------------------------

ITEMS = 4
"""Taken by each consumer."""


async def produce(put, consumers):
    for _ in range(ITEMS * consumers):
        await anyio.sleep(0.04)
        await put(now())


async def queue(row, number):
    """Call 0 puts an item each 40 ms, the others take them."""
    items, turn = gate(row, asyncio.Queue), Turn()
    if number == 0:
        await produce(items.put, 3)
        return str(turn)
    for _ in range(ITEMS):
        turn.asked.append(now())
        turn.got.append(await items.get())  # takes: queue
        turn.took.append(now())
    return str(turn)


async def stream(row, number):
    """The same with a memory object stream of anyio."""
    send, receive = gate(row, partial(anyio.create_memory_object_stream, 100))
    turn = Turn()
    if number == 0:
        await produce(send.send, 3)
        return str(turn)
    for _ in range(ITEMS):
        turn.asked.append(now())
        turn.got.append(await receive.receive())  # takes: stream
        turn.took.append(now())
    return str(turn)


# --- futures ------------------------------------------------------------------------------------------

FUTURE_S = 0.12


async def resolved(turn):
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def resolve():
        turn.got.append(now())
        future.set_result(None)

    loop.call_later(FUTURE_S, resolve)
    turn.asked.append(now())
    await future  # takes: future


@asynccontextmanager
async def opened(turn):
    await resolved(turn)
    yield


async def items(turn):
    await resolved(turn)
    yield 1


async def directly(turn):
    await resolved(turn)


async def in_async_for(turn):
    async for _ in items(turn):
        pass


async def in_context_manager(turn):
    async with opened(turn):
        pass


async def gathered(turn):
    await asyncio.gather(resolved(turn), resolved(Turn()))


async def shielded(turn):
    await asyncio.shield(resolved(turn))  # takes: shield


async def waited_for(turn):
    await asyncio.wait_for(resolved(turn), 60)


async def future(how, row, number):
    turn = Turn()
    await how(turn)
    return str(turn)


async def slept(row, number):
    turn = Turn()
    turn.asked.append(now())
    await (imported_by_name if LOOP != "trio" else anyio.sleep)(FUTURE_S)  # takes: slept
    turn.got.append(now())
    return str(turn)


# --- jobs on worker threads ---------------------------------------------------------------------------

JOB_S = 0.5


def asks_a_backend(turn):
    with serving(first_byte=JOB_S) as backend, urllib3.PoolManager() as pools:
        turn.object = backend.address
        turn.asked.append(now())
        pools.request("GET", backend.address)  # waits: http
        turn.got.append(now())


def starts_a_program(turn):
    turn.object = "sleep"
    turn.asked.append(now())
    subprocess.run(["sleep", str(JOB_S)], check=True)  # waits: subprocess
    turn.got.append(now())


def asks_a_locked_database(turn):
    """Another connection writes to it."""
    turn.object = "mine.execute" if sys.version_info >= (3, 11) else asks_a_locked_database.__name__
    with tempfile.TemporaryDirectory() as folder:
        name, options = os.path.join(folder, "notes"), {"check_same_thread": False, "isolation_level": None}
        with closing(sqlite3.connect(name, **options)) as other, closing(sqlite3.connect(name, timeout=60)) as mine:
            other.execute("BEGIN EXCLUSIVE")
            after(JOB_S, other.rollback)
            turn.asked.append(now())
            mine.execute("BEGIN EXCLUSIVE")  # waits: sqlite
            turn.got.append(now())


def takes_a_held_lock(turn):
    turn.object = "lock held" if sys.version_info >= (3, 11) else takes_a_held_lock.__name__
    held = threading.Lock()
    held.acquire()
    after(JOB_S, held.release)
    turn.asked.append(now())
    held.acquire()  # waits: lock
    turn.got.append(now())


def after(seconds, call):
    """On a thread of nobody's: one that the call starts is part of the call, and waits, too."""
    Context().run(threading.Timer(seconds, call).start)


JOBS = (asks_a_backend, starts_a_program, takes_a_held_lock, asks_a_locked_database)


async def job(row, number):
    """Each call hands another job over to a worker thread."""
    turn = Turn()
    await anyio.to_thread.run_sync(JOBS[number], turn)
    return str(turn)


# --- oddities -----------------------------------------------------------------------------------------


async def block(row, number):
    """Blocks the loop as soon as the first holder of ``blocked`` has begun to sleep and all others wait for it."""
    turn = Turn()
    await gate("blocked is due", anyio.Event).wait()
    turn.got.append(now())
    time.sleep(0.3)  # blocks
    turn.gave_back.append(now())
    return str(turn)


async def cancelled(row, number):
    """Call 0 is cancelled by its client while it holds the lock that call 1 waits for."""
    turn, held = Turn(), gate(row, made_cancelled)
    turn.asked.append(now())
    async with held:
        turn.got.append(now())
        if number == 0:
            open(os.environ["WAITS"], "w").close()
            try:
                await anyio.sleep(60)
            finally:
                GATES["cancelled at"] = now()
        turn.gave_back.append(GATES["cancelled at"])
    return str(turn)


async def given_by_others(row, number):
    """Calls 0 and 1 take both places and keep them. Call 2 gives one back that is not its own, and takes it again.

    Whom call 3 then waits for cannot be known: call 4 frees a place.
    """
    turn, places = Turn(), gate(row, partial(asyncio.Semaphore, 2))
    if number == 4:
        await anyio.sleep(0.15)
        places.release()
        return str(turn)
    if number == 2:
        places.release()
    turn.asked.append(now())
    await places.acquire()
    turn.got.append(now())
    return str(turn)


async def collected(row, number):
    """A lock is dropped while it is held."""
    turn = Turn()
    held = asyncio.Lock()
    await held.acquire()
    del held
    gc.collect()
    others = asyncio.Lock()  # may get the same address
    turn.asked.append(now())
    async with others:
        turn.got.append(now())
    return str(turn)


ASYNCIO = {
    "lock": (10, partial(hold, "lock", made_lock, 0.05, 10)),
    "semaphore": (8, partial(hold, "semaphore", made_semaphore, 0.1, 8)),
    "blocked": (10, partial(hold, "blocked", made_blocked, 0.02, 10)),
    "block": (1, partial(block, "block")),
    "before": (3, partial(hold, "before", before, 0.05, 3)),
    "left_behind": (2, partial(left_behind, "left_behind")),
    "queue": (4, partial(queue, "queue")),
    "given_by_others": (5, partial(given_by_others, "given_by_others")),
    "collected": (3, partial(collected, "collected")),
    **{
        how.__name__: (3, partial(future, how, how.__name__))
        for how in (directly, in_async_for, in_context_manager, gathered, shielded, waited_for)
    },
}
EVERYWHERE = {
    "anyio_lock": (5, partial(hold, "anyio_lock", made_anyio_lock, 0.05, 5)),
    "anyio_semaphore": (6, partial(hold, "anyio_semaphore", made_anyio_semaphore, 0.05, 6)),
    "anyio_limiter": (6, partial(hold, "anyio_limiter", made_anyio_limiter, 0.05, 6)),
    "thread": (3, partial(thread, "thread")),
    "background": (1, partial(background, "background")),
    "stream": (4, partial(stream, "stream")),
    "job": (len(JOBS), partial(job, "job")),
    "slept": (3, partial(slept, "slept")),
    "cancelled": (2, partial(cancelled, "cancelled")),
}
LOOP = "asyncio"


def tool_of(body, number):
    async def tool() -> str:
        return await body(number)

    return tool


def build(loop):
    server = Server("awaits", lifespan=lifespan)
    rows = EVERYWHERE if loop == "trio" else {**ASYNCIO, **EVERYWHERE}
    for row, (calls, body) in rows.items():
        for number in range(calls):
            server.add_tool(tool_of(body, number), name=f"{row}_{number}")
    return server


def main(transport, port, loop):
    global LOOP
    LOOP = loop
    server = build(loop)
    from mcp_probe import attach

    attach(server, record=os.environ["RECORDING"])
    if transport == "stdio":
        options = {"use_uvloop": True} if loop == "uvloop" else {}
        backend = "trio" if loop == "trio" else "asyncio"
        anyio.run(server.run_stdio_async, backend=backend, backend_options=options)
    else:
        import uvicorn

        uvicorn.run(
            server.streamable_http_app(), host="127.0.0.1", port=int(port), log_level="error", loop=loop, ws="none"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
