"""Loops that are not run the usual way: debug mode, task factories, subclasses, many loops in turn, forks."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
import trio
from mcp import Client
from mcp.client._memory import InMemoryTransport

import mcp_probe
from tests.kept import Kept, Log, keep, probed
from tests.safety.scenario import call_in_process, call_over_http, make_server

Run = Callable[[Coroutine[Any, Any, Any]], Any]


async def everything(server: Any) -> list[Any]:
    with anyio.fail_after(200):
        return [
            await call_in_process(server, over_streams=True, after=lambda: None),
            await call_in_process(server, over_streams=False, after=lambda: None),
            await call_over_http(server, modern=True, json_response=False),
            await call_over_http(server, modern=False, json_response=False),
        ]


def on(loop: asyncio.AbstractEventLoop) -> Run:
    def run(main: Coroutine[Any, Any, Any]) -> Any:
        try:
            return loop.run_until_complete(main)
        finally:
            for task in asyncio.all_tasks(loop):  # sse_starlette leaves a watcher behind
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    return run


def in_debug_mode() -> Run:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0  # so that asyncio describes every callback it runs
    return on(loop)


def with_eager_tasks() -> Run:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore]
    return on(loop)


def with_own_task_factory() -> Run:
    loop = asyncio.new_event_loop()

    class OwnTask(asyncio.Task):  # type: ignore[type-arg]
        pass

    def factory(loop: Any, coro: Any, **options: Any) -> Any:
        return OwnTask(coro, loop=loop, **options)

    loop.set_task_factory(factory)
    return on(loop)


def with_tasks_in_python() -> Run:
    loop = asyncio.new_event_loop()
    python_task = asyncio.tasks._PyTask  # type: ignore[attr-defined]
    loop.set_task_factory(lambda loop, coro, **options: python_task(coro, loop=loop, **options))
    return on(loop)


class OwnLoop(asyncio.SelectorEventLoop):
    """Overrides what the probe hooks, as loops of test tools and GUI bridges do."""

    def __init__(self, selector: Any = None) -> None:
        super().__init__(selector)
        self.seen: dict[str, int] = {}

    def _note(self, name: str) -> None:
        self.seen[name] = self.seen.get(name, 0) + 1

    def _call_soon(self, callback: Any, args: Any, context: Any) -> Any:
        self._note("_call_soon")
        return super()._call_soon(callback, args, context)  # type: ignore[misc]

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        self._note("call_soon_threadsafe")
        return super().call_soon_threadsafe(callback, *args, context=context)

    def call_at(self, when: Any, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        self._note("call_at")
        return super().call_at(when, callback, *args, context=context)

    def _run_once(self) -> None:
        self._note("_run_once")
        super()._run_once()  # type: ignore[misc]


class OwnSelector(selectors.DefaultSelector):
    polls = 0

    def select(self, timeout: Any = None) -> Any:
        OwnSelector.polls += 1
        return super().select(timeout)


LOOPS: dict[str, Callable[[], Run]] = {
    "debug mode": in_debug_mode,
    "own task factory": with_own_task_factory,
    "tasks in Python": with_tasks_in_python,
    "subclass": lambda: on(OwnLoop()),
    "own selector": lambda: on(asyncio.SelectorEventLoop(OwnSelector())),
    "poll": lambda: on(asyncio.SelectorEventLoop(selectors.PollSelector())),
    "select": lambda: on(asyncio.SelectorEventLoop(selectors.SelectSelector())),
}
if sys.version_info >= (3, 12):
    LOOPS["eager tasks"] = with_eager_tasks


@pytest.mark.parametrize("kind", LOOPS)
def test_server_answers_the_same_and_is_followed(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="asyncio")  # debug mode writes a line per callback
    bare = LOOPS[kind]()(everything(make_server()))
    server = make_server()
    with probed(server) as kept:
        answers = LOOPS[kind]()(everything(server))
    assert answers == bare
    assert [record.levelname for record in caplog.records if record.name == "asyncio"] == []
    hooks = dict(kept.header().hooks)
    assert hooks["steps (asyncio)"] == hooks["loop polls"] == "active"
    for record in kept.requests("add"):
        assert not record.partial
        assert record.steps > 0 or kind == "tasks in Python"  # a step of theirs is a callback like any other


def test_overrides_of_a_loop_subclass_are_all_called() -> None:
    def seen(attached: bool) -> dict[str, int]:
        server = make_server()
        probe = mcp_probe.attach(server) if attached else None
        loop = OwnLoop()
        on(loop)(call_over_http(server, modern=True, json_response=True))
        if probe is not None:
            probe.detach()
        return loop.seen

    bare, with_probe = seen(False), seen(True)
    assert with_probe.keys() == bare.keys()
    assert with_probe["_call_soon"] >= bare["_call_soon"] * 0.8


def test_select_of_a_selector_subclass_is_called() -> None:
    OwnSelector.polls = 0
    with probed(server := make_server()):
        on(asyncio.SelectorEventLoop(OwnSelector()))(call_over_http(server, modern=True, json_response=True))
    assert OwnSelector.polls > 10


@pytest.mark.parametrize("duration", [0.0, 3600.0], ids=["every callback is slow", "none is"])
def test_debug_mode_can_describe_a_socket_callback_of_ours(duration: float, caplog: pytest.LogCaptureFixture) -> None:
    """asyncio's debug mode reads more of a handle than the loop itself does, and an exception there ends the loop."""
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = duration
    messages: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda loop, context: messages.append(context))
    server = make_server()

    @server.tool()
    async def broken_reader() -> str:
        ours, theirs = socket.socketpair()
        done = asyncio.Event()

        def read() -> None:
            loop.remove_reader(ours)
            done.set()
            raise LookupError("in a reader")

        loop.add_reader(ours, read)
        theirs.send(b"x")
        await done.wait()
        ours.close()
        theirs.close()
        return "read"

    async def main() -> Any:
        async with Client(InMemoryTransport(server)) as client:
            return await client.call_tool("broken_reader", {})

    with probed(server):
        answer = on(loop)(main())
    assert answer.structured_content == {"result": "read"}
    assert [type(message["exception"]) for message in messages] == [LookupError]
    assert "handle" in messages[0]


def test_many_loops_in_turn_leave_nothing_behind() -> None:
    server = make_server()
    loops: list[weakref.ref[Any]] = []

    async def one() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        async with Client(server) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    with probed(server) as kept:
        [probe] = mcp_probe.session.attached()
        hub = probe._hub
        for _ in range(200):
            asyncio.run(one())
        probe.snapshot()
        assert len(hub.monitors) <= 1
        assert len(hub.watchdog.watches()) <= 1
        assert len(hub.retired) <= 1
        # The watchdog's thread looks around ten times a second, and holds what it watches until then.
        deadline = time.monotonic() + 10
        while sum(loop() is not None for loop in loops) > 1 and time.monotonic() < deadline:
            gc.collect()
        assert sum(loop() is not None for loop in loops) <= 1
    assert len(kept.requests("add")) == 200
    assert all(record.steps > 0 for record in kept.requests("add"))


def test_many_trio_runs_in_turn_leave_nothing_behind() -> None:
    server = make_server()

    async def one() -> None:
        async with Client(server) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    with probed(server) as kept:
        [probe] = mcp_probe.session.attached()
        for _ in range(50):
            trio.run(one)
        probe.snapshot()
        assert len(probe._hub.monitors) <= 1
        assert len(probe._hub.watchdog.watches()) <= 1
        assert sum(len(kind._monitors) for kind in probe._hooks.loops.kinds) <= 1
    assert len(kept.requests("add")) == 50


def test_loops_on_several_threads_are_followed_side_by_side() -> None:
    server = make_server()
    barrier = threading.Barrier(4)

    async def one() -> None:
        async with Client(InMemoryTransport(server)) as client:
            await asyncio.get_running_loop().run_in_executor(None, barrier.wait)
            for _ in range(5):
                await client.call_tool("add", {"a": 1, "b": 2})
            await asyncio.get_running_loop().run_in_executor(None, barrier.wait)

    with probed(server) as kept:
        threads = [threading.Thread(target=asyncio.run, args=(one(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(200)
    records = kept.requests("add")
    assert len(records) == 20
    assert len({record.loop for record in records}) == 4
    assert all(record.steps > 0 and not record.partial for record in records)


async def call_add(server: Any) -> None:
    async with Client(InMemoryTransport(server)) as client:
        await client.call_tool("add", {"a": 1, "b": 2})


def test_loops_that_take_turns_on_one_thread_are_both_followed() -> None:
    server = make_server()
    loops = [asyncio.new_event_loop() for _ in range(2)]
    with probed(server) as kept:
        for _ in range(3):
            for loop in loops:
                loop.run_until_complete(call_add(server))
    for loop in loops:
        loop.close()
    records = kept.requests("add")
    assert [record.loop for record in records] == [1, 2] * 3
    assert all(record.steps > 0 and not record.partial for record in records)


# --- forks ---


def in_child(work: Callable[[], None]) -> int:
    """Exit status of a forked child that runs ``work``; killed where it hangs."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


pytestmark_fork = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytestmark_fork
def test_forked_child_is_left_alone_and_its_parent_goes_on() -> None:
    server = make_server()
    with probed(server) as kept:
        asyncio.run(call_add(server))

        def child() -> None:
            assert not any(thread.name.startswith("mcp-probe") for thread in threading.enumerate())
            asyncio.run(call_add(server))
            assert mcp_probe.session.attached() == ()
            probe = mcp_probe.attach(server)
            mine = keep(probe)
            asyncio.run(call_add(server))
            probe.detach()
            assert len(mine.requests("add")) == 1

        lines = len(kept.lines)
        assert in_child(child) == 0
        assert len(kept.lines) >= lines
        asyncio.run(call_add(server))
    assert len(kept.requests("add")) == 2


@pytestmark_fork
def test_fork_inside_a_tool_while_the_collector_holds_its_lock_does_not_hang_the_child() -> None:
    server = make_server()
    statuses: list[int] = []

    with probed(server) as kept:
        [probe] = mcp_probe.session.attached()

        @server.tool()
        async def fork() -> str:
            with probe._collector._lock:
                statuses.append(in_child(probe.detach))
            return "forked"

        async def main() -> Any:
            async with Client(InMemoryTransport(server)) as client:
                return await client.call_tool("fork", {})

        answer = asyncio.run(main())
    assert answer.structured_content == {"result": "forked"}
    assert statuses == [0]
    assert kept.only("fork").outcome == "ok"


def test_kept_frames_are_whole() -> None:
    assert Kept().requests() == [] and Log().messages == []
