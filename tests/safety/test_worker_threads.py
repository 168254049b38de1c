"""What is handed to threads runs as it would without the probe: same call, same result, same object left behind."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import MethodType
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer

from mcp_probe.model import PoolSample
from tests.kept import Kept, probed
from tests.loops import LOOPS

on_each_loop = pytest.mark.parametrize("anyio_backend", LOOPS)


async def in_a_tool(work: Callable[[], Any]) -> tuple[Any, Kept]:
    """What ``work``, a coroutine function, gives when a tool of a profiled server runs it."""
    server = MCPServer("threads", log_level="CRITICAL")
    results: list[Any] = []

    @server.tool()
    async def tool() -> str:
        results.append(await work())
        return "done"

    with probed(server) as kept:
        async with Client(server) as client:
            assert not (await client.call_tool("tool", {})).is_error
    return results[0], kept


class AnswersToAnything:
    """A remote proxy: every attribute is another proxy, and calling one is a remote call."""

    def __init__(self, path: str, calls: list[str]) -> None:
        self._path, self._calls = path, calls

    def __getattr__(self, name: str) -> AnswersToAnything:
        self._calls.append(f"{self._path}.{name}")
        return AnswersToAnything(f"{self._path}.{name}", self._calls)

    def __call__(self, *args: Any) -> str:
        self._calls.append(f"{self._path}{args}")
        return "called"

    def method(self) -> str:
        return "method"


class Unbound:
    """A proxy with nothing behind it yet: it can be called, and raises at any attribute."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"working outside of a context: {name}")

    def __call__(self) -> str:
        return "bound"


@on_each_loop
async def test_proxy_handed_to_a_thread_is_asked_for_nothing_else() -> None:
    calls: list[str] = []
    proxy = AnswersToAnything("remote", calls)

    async def work() -> Any:
        return [
            await anyio.to_thread.run_sync(proxy.method),
            await anyio.to_thread.run_sync(proxy, 1),
            await anyio.to_thread.run_sync(Unbound()),
        ]

    results, kept = await in_a_tool(work)
    assert results == ["method", "called", "bound"]
    assert calls == ["remote(1,)"]
    assert not [state for _, state in kept.header().hooks if "disabled" in state]


async def test_submit_passes_every_argument_and_every_error() -> None:
    def describe(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    fault = LookupError("its own")

    def fail() -> None:
        raise fault

    def submit_all() -> list[Any]:
        with ThreadPoolExecutor(1) as pool:
            futures = [
                pool.submit(describe, 1, fn=2, job=3, function=4, self=5),
                pool.submit(fail),
                pool.submit(None, a=1),  # type: ignore[arg-type]
            ]
            errors = [future.exception() for future in futures[1:]]
            pool.shutdown()
            with pytest.raises(RuntimeError) as refused:
                pool.submit(describe)
            return [futures[0].result(), errors[0] is fault, type(errors[1]), str(refused.value)]

    async def work() -> Any:
        return submit_all()

    results, kept = await in_a_tool(work)
    assert results == submit_all()
    [row] = [frame for frame in kept.frames if isinstance(frame, PoolSample) and frame.name.startswith("ThreadPool")][
        -1:
    ]
    assert row.pending_peak <= 3


async def test_contextvars_and_exceptions_of_thread_jobs_are_their_own() -> None:
    from contextvars import ContextVar

    mine: ContextVar[str] = ContextVar("mine", default="unset")
    fault = StopAsyncIteration("odd")

    def raise_it() -> None:
        raise fault

    async def work() -> Any:
        mine.set("by the tool")
        loop = asyncio.get_running_loop()
        caught = []
        for call in (lambda: asyncio.to_thread(raise_it), lambda: anyio.to_thread.run_sync(raise_it)):
            try:
                await call()  # type: ignore[no-untyped-call]
            except StopAsyncIteration as exc:
                caught.append(exc is fault)
        return [
            await asyncio.to_thread(mine.get),
            await anyio.to_thread.run_sync(mine.get),
            await loop.run_in_executor(None, mine.get),
            caught,
        ]

    results, _ = await in_a_tool(work)
    assert results == ["by the tool", "by the tool", "unset", [True, True]]


class OwnThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__()
        self.result: Any = None

    def run(self) -> None:
        self.result = "ran"


async def test_thread_started_in_a_tool_is_left_as_it_was() -> None:
    async def work() -> Any:
        plain, own, patched = threading.Thread(target=list), OwnThread(), threading.Thread(target=list)
        ran: list[str] = []
        run = patched.run = lambda: ran.append("patched")  # type: ignore[method-assign]
        before = [set(vars(thread)) for thread in (plain, own, patched)]
        for thread in (plain, own, patched):
            thread.start()
            thread.join()
            with pytest.raises(RuntimeError):
                thread.start()
        after = ["run" in vars(thread) for thread in (plain, own, patched)]
        assert ["run" in names for names in before] == after == [False, False, True]
        assert patched.run is run
        gone = weakref.ref(plain)
        gc.disable()
        try:
            del plain, thread
            return own.result, ran, gone() is None
        finally:
            gc.enable()

    results, kept = await in_a_tool(work)
    assert results == ("ran", ["patched"], True)
    rows = [frame for frame in kept.frames if isinstance(frame, PoolSample) and "threads started" in frame.name]
    assert sum(row.finished for row in rows) == 3
    assert not [state for _, state in kept.header().hooks if "disabled" in state]


@pytest.mark.parametrize("own", [False, True], ids=["of its class", "its own"])
async def test_run_that_is_wrapped_as_the_thread_starts_runs_once_and_stays_wrapped(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Sentry does, set up before us: it calls the function of the method ``run`` with the thread."""
    start = threading.Thread.start

    def wrapping(thread: threading.Thread) -> None:
        run: Any = getattr(thread.run, "__func__", thread.run)

        @functools.wraps(run)
        def wrapped() -> None:
            run(threading.current_thread())

        thread.run = wrapped  # type: ignore[method-assign]
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", wrapping)
    ran: list[str] = []

    async def work() -> Any:
        thread = threading.Thread(target=lambda: ran.append("ran"))
        if own:
            thread.run = MethodType(lambda _: ran.append("own"), thread)  # type: ignore[method-assign]
        thread.start()
        thread.join()
        assert vars(thread)["run"].__name__ == "wrapped"
        if own:
            thread.run()  # a second time nobody is asked
        gone = weakref.ref(thread)
        gc.disable()
        try:
            del thread
            return gone() is None
        finally:
            gc.enable()

    collected, kept = await in_a_tool(work)
    assert ran == (["own", "own"] if own else ["ran"])
    assert collected or own  # a method of its own in its __dict__ is a cycle without us, too
    rows = [frame for frame in kept.frames if isinstance(frame, PoolSample) and "threads started" in frame.name]
    assert sum(row.finished for row in rows) == 1
    assert not [state for _, state in kept.header().hooks if "disabled" in state]


async def test_thread_that_cannot_be_started_fails_as_without_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("can't start new thread")

    async def work() -> Any:
        thread = threading.Thread(target=list)
        name = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"
        with monkeypatch.context() as patch:
            patch.setattr(threading, name, refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                thread.start()
        return "run" in vars(thread)

    results, kept = await in_a_tool(work)
    assert results is False
    rows = [frame for frame in kept.frames if isinstance(frame, PoolSample) and "threads started" in frame.name]
    assert rows[-1].active_ns == 0


@on_each_loop
async def test_tool_that_is_cancelled_while_its_thread_runs_is_so_without_waiting_for_us() -> None:
    release = threading.Event()

    async def work() -> Any:
        with anyio.move_on_after(0.01) as scope:
            await anyio.to_thread.run_sync(release.wait, 30, abandon_on_cancel=True)
        release.set()
        return scope.cancelled_caught

    results, _ = await in_a_tool(work)
    assert results is True
