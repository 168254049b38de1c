"""Who works for whom where a queue lies between: what stays of it is the request's that put the item."""

from __future__ import annotations

import asyncio
import gc
import pickle
import queue
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from mcp.server.mcpserver import MCPServer

from mcp_probe import native
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.peak_lines import held_by
from mcp_probe.capture.queued import MAX_ERRANDS, NEAR, TICKET, Errand, Line, Queued, Ticket
from mcp_probe.model import ProcessSample
from mcp_probe.process import PROCESS
from mcp_probe.record.raw import RawRequest
from mcp_probe.session import Probe, attach
from tests.adapters.serving import over_memory_streams
from tests.kept import keep
from tests.loops import ASYNCIO, LOOPS, UVLOOP
from tests.running import Backend, kind_of, run_on

needs_the_accelerator = pytest.mark.skipif(native.memory is None, reason=f"no accelerator: {native.memory_absence}")
on_each_loop = pytest.mark.parametrize("backend", LOOPS)
KEPT_BYTES = 92_000
CALLS = 12
END = object()

Put = Callable[[object], Awaitable[None]]
kept: list[bytes] = []


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    kept.clear()


def work() -> None:
    """What a consumer does for each item."""
    kept.append(bytes(KEPT_BYTES))


# --- one pair of a queue and its consumer each ---


@asynccontextmanager
async def thread_fed_by(make: Callable[[], Any]) -> AsyncIterator[Put]:
    jobs = make()

    def consume() -> None:
        while jobs.get() is not END:
            work()

    async def put(item: object) -> None:
        jobs.put(item)

    thread = threading.Thread(target=consume)
    thread.start()
    yield put
    jobs.put(END)
    await anyio.to_thread.run_sync(thread.join)


@asynccontextmanager
async def task_fed_by_asyncio() -> AsyncIterator[Put]:
    jobs: asyncio.Queue[object] = asyncio.Queue()

    async def consume() -> None:
        while await jobs.get() is not END:
            await checkpoint()  # a step of its own, as after a look into a database
            work()

    task = asyncio.create_task(consume())
    yield jobs.put
    await jobs.put(END)
    await task


@asynccontextmanager
async def task_fed_by_a_stream(room: float) -> AsyncIterator[Put]:
    send, receive = anyio.create_memory_object_stream[object](room)

    async def consume() -> None:
        async with receive:
            async for _ in receive:
                await checkpoint()
                work()

    async with anyio.create_task_group() as group:
        group.start_soon(consume)
        yield send.send
        send.close()


KINDS: dict[str, Callable[[], Any]] = {
    "queue.Queue": lambda: thread_fed_by(lambda: queue.Queue()),
    "queue.SimpleQueue": lambda: thread_fed_by(lambda: queue.SimpleQueue()),
    "asyncio.Queue": task_fed_by_asyncio,
    "stream": lambda: task_fed_by_a_stream(100),
    "full stream": lambda: task_fed_by_a_stream(0),
}


def run(backend: Backend, body: Callable[[Probe], Awaitable[None]], **options: Any) -> list[Any]:
    """Frames of ``body`` under a probe whose loop is followed."""

    async def attached() -> list[Any]:
        probe = Probe(**options)
        frames = keep(probe)
        try:
            await probe.profile(checkpoint)()
            await body(probe)
        finally:
            probe.detach()
        return list(frames.frames)

    return run_on(backend, attached)


def hunting() -> Queued:
    """The queues of this process, as in a hunt."""
    assert PROCESS.hub is not None and native.memory is not None
    PROCESS.hub.queued.use(native.memory.charge, owns=True)
    return PROCESS.hub.queued


@needs_the_accelerator
@pytest.mark.parametrize("kind", KINDS)
@on_each_loop
def test_what_a_consumer_keeps_of_each_item_is_owned_by_the_call_that_put_it(backend: Backend, kind: str) -> None:
    if kind == "asyncio.Queue" and kind_of(backend) == "trio":
        pytest.skip("asyncio's")
    owned: list[int] = []

    async def body(probe: Probe) -> None:
        queued = hunting()
        async with KINDS[kind]() as put:

            async def feed(number: int) -> None:
                await put(number)

            await probe.profile(feed)(-1)  # what goes to a stream's receiver that waited already is nobody's
            while not kept:
                await anyio.sleep(0.001)
            queued._errands.clear()
            for number in range(CALLS):
                await probe.profile(feed)(number)
        owned.extend(held_by(errand.owner()) for errand in queued._errands.values())

    run(backend, body, memory="detailed")
    assert len(kept) == CALLS + 1
    assert len(owned) == CALLS
    # The list of what is kept grows with some of them.
    assert all(KEPT_BYTES <= each <= KEPT_BYTES * 1.02 for each in owned), owned


@pytest.mark.parametrize("kind", ["asyncio.Queue", "stream"])
@pytest.mark.parametrize("backend", [ASYNCIO, UVLOOP])
def test_the_time_that_a_background_task_is_on_the_loop_for_an_item_is_told_with_its_tool(
    backend: Backend, kind: str
) -> None:
    async def body(probe: Probe) -> None:
        async with KINDS[kind]() as put:

            async def feed() -> None:
                await put(1)

            feed.__qualname__ = "feed"
            for _ in range(3):
                await probe.profile(feed)()
                await checkpoint()

    frames = run(backend, body)
    detached = dict(row for frame in frames if isinstance(frame, ProcessSample) for row in frame.detached)
    assert detached["feed"] > 0


def test_of_a_queue_in_another_order_nothing_is_said() -> None:
    taken: list[object] = []

    async def body(probe: Probe) -> None:
        for jobs in (queue.LifoQueue(), queue.PriorityQueue(), asyncio.LifoQueue(), asyncio.PriorityQueue()):  # type: ignore[var-annotated]

            async def feed(jobs: Any = jobs) -> None:
                jobs.put_nowait(1)
                jobs.put_nowait(2)

            await probe.profile(feed)()
            for _ in range(2):
                jobs.get_nowait()
                taken.append(TICKET.get())
        assert PROCESS.hub is not None and not PROCESS.hub.queued.lines

    run("asyncio", body)
    assert taken == [None] * 8


def test_a_request_that_takes_items_works_for_itself() -> None:
    seen: list[Any] = []

    async def body(probe: Probe) -> None:
        jobs: asyncio.Queue[int] = asyncio.Queue()

        async def feed() -> None:
            jobs.put_nowait(1)

        async def eat() -> None:
            before = CURRENT.get()
            await jobs.get()
            seen.append(before is not None and CURRENT.get() is before)

        await probe.profile(feed)()
        await probe.profile(eat)()

    run("asyncio", body)
    assert seen == [True]


def test_an_item_of_nobody_ends_the_work_for_the_one_before() -> None:
    names: list[str | None] = []

    async def body(probe: Probe) -> None:
        jobs: asyncio.Queue[int] = asyncio.Queue()

        async def feed() -> None:
            jobs.put_nowait(1)

        feed.__qualname__ = "feed"

        def take() -> None:
            jobs.get_nowait()
            raw = CURRENT.get()
            names.append(None if raw is None else raw.operation)

        jobs.put_nowait(0)
        await probe.profile(feed)()
        jobs.put_nowait(2)
        await probe.profile(feed)()
        for _ in range(4):
            take()
        jobs.task_done()
        raw = CURRENT.get()
        names.append(None if raw is None else raw.operation)

    run("asyncio", body)
    assert names == [None, "feed", None, "feed", None]


def test_an_item_that_is_handed_on_is_still_of_the_same_request() -> None:
    names: list[str] = []

    async def body(probe: Probe) -> None:
        first, second = queue.SimpleQueue[int](), queue.Queue[int]()

        async def feed() -> None:
            first.put(1)

        feed.__qualname__ = "feed"

        def pass_on() -> None:
            second.put(first.get())

        def take() -> None:
            second.get()
            raw = CURRENT.get()
            names.append("" if raw is None else raw.operation)

        await probe.profile(feed)()
        for stage in (pass_on, take):
            thread = threading.Thread(target=stage)
            thread.start()
            thread.join()

    run("asyncio", body)
    assert names == ["feed"]


def test_no_collection_begins_in_our_code_while_a_queue_holds_its_lock() -> None:
    """A destructor may log, and a handler of logging put the record into the same queue: it would wait for ever.

    ``queue`` itself makes a tuple as it lets go of the lock. That is its own.
    """
    held: list[bool] = []
    holder = threading.get_ident()

    def is_ours(frame: Any) -> bool:
        while frame is not None and frame.f_code.co_filename != queue.__file__:
            if "mcp_probe" in frame.f_globals.get("__name__", ""):
                return True
            frame = frame.f_back
        return False

    async def body(probe: Probe) -> None:
        jobs: queue.Queue[object] = queue.Queue()

        async def feed() -> None:
            for _ in range(100):
                jobs.put([])

        def look(phase: str, info: dict[str, int]) -> None:
            if threading.get_ident() == holder:  # on another thread, a destructor only waits for this one
                held.append(jobs.mutex.locked() and is_ours(sys._getframe(1)))

        await probe.profile(feed)()  # what is made once is made
        thresholds = gc.get_threshold()
        gc.callbacks.append(look)
        gc.set_threshold(1, 1_000_000, 1_000_000)
        try:
            await probe.profile(feed)()
            for _ in range(200):
                jobs.get()
                jobs.task_done()
        finally:
            gc.set_threshold(*thresholds)
            gc.callbacks.remove(look)
        assert TICKET.get() is None

    run("asyncio", body)
    assert len(held) > 100 and not any(held)


def test_an_item_that_a_full_queue_did_not_take_is_forgotten() -> None:
    names: list[str | None] = []

    async def body(probe: Probe) -> None:
        jobs: queue.Queue[object] = queue.Queue(1)
        item = object()  # so the one that is taken later is at the same address

        async def first() -> None:
            jobs.put("before")
            with pytest.raises(queue.Full):
                jobs.put_nowait(item)

        async def second() -> None:
            jobs.put(item)

        first.__qualname__, second.__qualname__ = "first", "second"

        def take() -> None:
            jobs.get()
            raw = CURRENT.get()
            names.append(None if raw is None else raw.operation)

        for stage in (first, second):
            await probe.profile(stage)()
            thread = threading.Thread(target=take)
            thread.start()
            thread.join()

    run("asyncio", body)
    assert names == ["first", "second"]


def test_neither_an_item_nor_a_queue_nor_a_request_is_kept_alive() -> None:
    class Item:
        pass

    async def body(probe: Probe) -> None:
        jobs: list[Any] = [queue.Queue(), queue.SimpleQueue(), asyncio.Queue()]
        gone: list[Any] = []

        async def feed() -> None:
            for each in jobs:
                item = Item()
                gone.extend((weakref.ref(item), weakref.ref(each)))
                each.put_nowait(item)
                each.put_nowait(None)

        await probe.profile(feed)()
        assert PROCESS.hub is not None
        queued = PROCESS.hub.queued
        assert len(queued.lines) == 3
        for each in jobs:
            each.get_nowait()
        del each
        jobs.clear()
        gc.collect()
        assert [one() for one in gone] == [None] * 6
        assert not queued.lines

    run("asyncio", body)


def test_what_python_and_the_sdk_hand_over_among_themselves_is_not_looked_at() -> None:
    async def body(probe: Probe) -> None:
        async def use_threads() -> None:
            await anyio.to_thread.run_sync(int)
            with ThreadPoolExecutor(1) as pool:
                assert type(pool._work_queue) is plain
                pool.submit(int).result()

        await probe.profile(use_threads)()
        assert PROCESS.hub is not None and not PROCESS.hub.queued.lines

    plain = queue.SimpleQueue
    run("asyncio", body)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_streams_that_answers_go_through_are_not_looked_at(backend: Backend) -> None:
    """The writer waits for the next answer already: this cost each later one a dozen calls of ours."""
    server = MCPServer("notes", log_level="WARNING")
    server.add_tool(lambda: 1, name="write", description="Writes.")

    async def body() -> None:
        async with over_memory_streams(server) as session:
            for _ in range(3):
                await session.call_tool("write", {})
            assert PROCESS.hub is not None and not PROCESS.hub.queued.lines

    probe = attach(server, telemetry="off")
    try:
        run_on(backend, body)
    finally:
        probe.detach()


def test_after_detach_the_queues_are_as_they_were() -> None:
    names = ("_put", "_get", "put", "get", "task_done")
    before = [vars(each)[name] for each in (queue.Queue, asyncio.Queue) for name in names]
    plain = queue.SimpleQueue
    made: list[Any] = []

    async def body(probe: Probe) -> None:
        assert queue.SimpleQueue is not plain
        made.append(queue.SimpleQueue())
        old = plain()  # type: ignore[var-annotated]
        assert isinstance(old, queue.SimpleQueue) and issubclass(plain, queue.SimpleQueue)
        assert repr(type(made[0])) == repr(plain)
        assert not isinstance(1, queue.SimpleQueue)

    run("asyncio", body)
    assert queue.SimpleQueue is plain
    assert [vars(each)[name] for each in (queue.Queue, asyncio.Queue) for name in names] == before
    (left,) = made
    assert isinstance(left, plain)
    left.put(1)
    assert left.get() == 1
    for each in (left, plain()):
        with pytest.raises(TypeError):
            pickle.dumps(each)


def test_a_class_of_the_servers_own_below_simple_queue_is_itself() -> None:
    async def body(probe: Probe) -> None:
        class Own(queue.SimpleQueue):  # type: ignore[type-arg]
            pass

        assert isinstance(Own(), Own) and isinstance(Own(), queue.SimpleQueue)
        assert not isinstance(queue.SimpleQueue(), Own)

    run("asyncio", body)


# --- the order of one queue ---


def ticket() -> Ticket:
    return Ticket(Errand(RawRequest(1, "request", "tools/call", "feed", "memory"), owns=False))


def test_items_that_were_there_before_are_nobodys() -> None:
    line, ours = Line(lambda: None, 2, races=False), ticket()
    line.add(30, ours)
    assert [line.take(10), line.take(20), line.take(30)] == [None, None, ours]


def test_where_another_item_comes_than_was_expected_the_order_is_lost() -> None:
    line = Line(lambda: None, 0, races=False)
    line.add(10, ticket())
    with pytest.raises(LookupError):
        line.take(11)
    with pytest.raises(LookupError):
        line.take(10)


def test_threads_may_overtake_each_other_by_a_few_items() -> None:
    line, first, second = Line(lambda: None, 0, races=True), ticket(), ticket()
    line.add(10, first)
    line.add(20, second)
    assert [line.take(20), line.take(10)] == [second, first]
    for number in range(NEAR + 1):
        line.add(number, first)
    assert line.take(NEAR) is None


def test_a_queue_that_somebody_empties_by_himself_begins_anew() -> None:
    async def body(probe: Probe) -> None:
        jobs: queue.Queue[object] = queue.Queue()

        async def feed(*items: object) -> None:
            for item in items:
                jobs.put(item)

        await probe.profile(feed)(1, 2)
        jobs.queue.clear()
        await probe.profile(feed)(3)
        jobs.get()
        assert TICKET.get() is not None
        TICKET.set(None)

    run("asyncio", body)


def test_an_errand_is_due_until_the_last_of_its_items_is_done() -> None:
    errand = Errand(RawRequest(1, "request", "tools/call", "feed", "memory"), owns=True)
    items = [Ticket(errand), Ticket(errand)]
    assert errand.is_due and not errand.raw.ended
    items.pop()
    assert errand.is_due
    items.pop()
    assert not errand.is_due
    assert errand.owner() is errand.owner()


def test_errands_of_requests_that_no_hunt_takes_are_forgotten() -> None:
    queued, jobs = Queued(), queue.Queue[int]()
    queued.use(lambda raw: None, owns=True)
    for number in range(MAX_ERRANDS + 10):
        token = CURRENT.set(RawRequest(number, "request", "tools/call", "feed", "memory"))
        queued.put(jobs, number, number + 1, ())
        CURRENT.reset(token)
    assert len(queued._errands) == MAX_ERRANDS
    last = queued.errand_of(RawRequest(MAX_ERRANDS + 9, "request", "tools/call", "feed", "memory"))
    assert last is not None and not last.raw.ended
    first = next(iter(queued._errands.values()))
    queued.clear()
    assert first.raw.ended and not queued._errands and not queued.lines
