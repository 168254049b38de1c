"""Detaching on any thread at any moment: complete, once, and nothing is left."""

from __future__ import annotations

import _thread
import asyncio
import gc
import logging
import os
import random
import selectors
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer

import mcp_probe
from mcp_probe import native
from mcp_probe.adapters.hook import declared
from tests.running import run_on
from tests.safety.scenario import make_server

CLASSES: tuple[Any, ...] = (
    asyncio.BaseEventLoop,
    asyncio.Handle,
    asyncio.TimerHandle,
    asyncio.SelectorEventLoop,
    selectors.DefaultSelector,
    threading.Thread,
    ThreadPoolExecutor,
    signal,
)
ROUNDS = 1000 if os.environ.get("MCP_PROBE_FUZZ") else 30
"""`make fuzz` sets it."""
BACKENDS: dict[str, Any] = {"asyncio": "asyncio", "uvloop": ("asyncio", {"use_uvloop": True}), "trio": "trio"}


def modules() -> list[Any]:
    names = ("mcp.server.stdio", "mcp.server.streamable_http", "mcp.server.streamable_http_manager")
    found = [sys.modules[name] for name in names if name in sys.modules]
    classes = [value for module in found for value in vars(module).values() if isinstance(value, type)]
    backends = [
        sys.modules[name] for name in ("anyio._backends._asyncio", "anyio._backends._trio") if name in sys.modules
    ]
    more = [value for module in backends for value in vars(module).values() if isinstance(value, type)]
    return [*found, *classes, *more]


def identities() -> dict[tuple[str, str], int]:
    """Of every attribute of what we may have replaced something on."""
    return {
        (f"{getattr(owner, '__module__', '')}.{owner.__name__}", name): id(value)
        for owner in (*CLASSES, *modules())
        for name, value in vars(owner).items()
        if not name.startswith("__abc") and name not in ("_abc_impl", "__annotations__", "__weakref__")
    }


def allocator() -> Any:
    return None if native.memory is None else native.memory.state()["mode"]


class Served:
    """A loop on a thread of its own with clients that call a server without pause."""

    def __init__(self, server: MCPServer, loop: Any) -> None:
        self.answered = 0
        self.faults: list[BaseException] = []
        self._server = server
        self._stop = threading.Event()
        self._serving = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(loop,))

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._serving.wait(100)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(100)
        assert not self._thread.is_alive()
        assert self.faults == []

    def _run(self, loop: Any) -> None:
        try:
            run_on(loop, self._serve)
        except BaseException as exc:  # noqa: BLE001 - told by the thread that waits for this one
            self.faults.append(exc)
        finally:
            self._serving.set()

    async def _serve(self) -> None:
        async with anyio.create_task_group() as group:
            for target in (self._server, InMemoryTransport(self._server)):
                group.start_soon(self._call, target)

    async def _call(self, target: Any) -> None:
        async with Client(target) as client:
            while not self._stop.is_set():
                added = await client.call_tool("add", {"a": self.answered, "b": 1})
                assert added.structured_content is not None
                echoed = await client.call_tool("in_thread", {"text": "ab"})
                assert not added.is_error and not echoed.is_error
                self.answered += 1
                self._serving.set()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, logger="mcp_probe"):
        yield caplog
    assert [record.getMessage() for record in caplog.records if record.name == "mcp_probe"] == []


def assert_nothing_left(server: MCPServer, before: dict[Any, int], chain: list[Any]) -> None:
    assert declared() == ()
    after = identities()
    assert {key for key, value in before.items() if after.get(key) != value} == set()
    lowlevel: Any = server._lowlevel_server
    assert lowlevel.middleware == chain
    assert "run" not in vars(lowlevel)
    assert mcp_probe.session.attached() == ()
    assert not any(getattr(callback, "__module__", "").startswith("mcp_probe") for callback in gc.callbacks)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_attaching_and_detaching_beside_a_busy_loop_leaves_nothing(loop: str, log: pytest.LogCaptureFixture) -> None:
    server = make_server()
    chance = random.Random(1)
    with Served(server, BACKENDS[loop]) as served:
        lowlevel: Any = server._lowlevel_server
        before, chain, at_first = identities(), list(lowlevel.middleware), allocator()
        threads = _thread._count()
        for _ in range(ROUNDS):  # some 40 ms each: the threads of ours are waited for
            probe = mcp_probe.attach(server)
            time.sleep(chance.choice((0, 0, 0.0005, 0.002, 0.01)))
            others = [threading.Thread(target=probe.detach) for _ in range(chance.randrange(3))]
            for other in others:
                other.start()
            probe.detach()
            assert not probe.attached
            assert_nothing_left(server, before, chain)
            assert allocator() == at_first
            for other in others:
                other.join(100)
        answered = served.answered
        while served.answered < answered + 3 and not served.faults:
            time.sleep(0.01)
        deadline = time.monotonic() + 20
        while _thread._count() > threads + 2 and time.monotonic() < deadline:  # anyio's own idle threads come and go
            time.sleep(0.05)
        assert _thread._count() <= threads + 2


def test_a_detach_while_requests_are_in_a_wrapped_function_is_complete(log: pytest.LogCaptureFixture) -> None:
    """Every function of ours that something is in as the detach comes."""
    server = make_server()
    before = identities()
    for seconds in (0.0, 0.001, 0.003, 0.01, 0.03):
        chain = list(server._lowlevel_server.middleware)
        probe = mcp_probe.attach(server)
        with Served(server, "asyncio"):
            time.sleep(seconds)
            probe.detach()
            assert_nothing_left(server, before, chain)


async def test_a_detach_on_the_loop_beside_one_on_a_thread_returns() -> None:
    for _ in range(15):
        server = make_server()
        probe = mcp_probe.attach(server)
        async with Client(server) as client, anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, probe.detach)
            await client.call_tool("add", {"a": 1, "b": 2})
            probe.detach()
        assert not probe.attached
        assert declared() == ()
