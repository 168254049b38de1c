"""The probe wraps and calls the originals: what runs without it runs with it, as often, and little is replaced."""

from __future__ import annotations

import sys

from tests.harm.running import CORES, How, bare, told

RUNS = 3
"""Two threads' reports may share a wake-up: a difference is one that is there each time."""

ASKED = {
    # Which limiter lends the thread is asked of anyio once for each job.
    "anyio._backends._asyncio:AsyncIOBackend.current_default_thread_limiter",
    "anyio._backends._asyncio:AsyncIOBackend.current_token",
    "anyio._core._eventloop:current_async_library",
    "anyio._core._eventloop:get_async_backend",
    "anyio.lowlevel:RunVar._current_vars",
    "anyio.lowlevel:RunVar.get",
    "anyio.lowlevel:__create_fn__.<locals>.__init__",
    "anyio.lowlevel:_TokenWrapper.__init__",
    "anyio.lowlevel:current_token",
    # Which task runs, and whether the loop does, is asked of asyncio.
    "asyncio.tasks:current_task",
    "asyncio.futures:_get_loop",
    "asyncio.base_events:BaseEventLoop.is_running",
    # The probe's own generators are closed by the loop, as everybody's.
    "asyncio.base_events:BaseEventLoop._asyncgen_firstiter_hook",
    # The probe is a middleware.
    "mcp.server.runner:_apply_middleware",
    # The server iterates over the probe's stream, which asks this one for each message.
    "mcp.shared._context_streams:ContextReceiveStream.__aiter__",
}
"""Entered more or less often with the probe, and harmless."""

DECLARED = {
    "anyio._backends._asyncio.AsyncIOBackend.run_sync_in_worker_thread",
    "asyncio.base_events.BaseEventLoop._add_callback",
    "asyncio.events.Handle",
    "asyncio.events.TimerHandle",
    *(["asyncio.events._ThreadSafeHandle"] if sys.version_info >= (3, 14) else []),
    "concurrent.futures.thread.ThreadPoolExecutor.submit",
    "mcp.server.stdio._UnownedTextWrapper.__init__",
    "mcp.server.stdio.create_context_streams",
    "mcp.server.streamable_http.StreamableHTTPServerTransport.connect",
    "mcp.server.streamable_http_manager.StreamableHTTPASGIApp.__call__",
    "mcp.server.streamable_http_manager.StreamableHTTPSessionManager.handle_request",
    "mcp.server.streamable_http_manager.StreamableHTTPSessionManager.run",
    "middleware ServerMiddleware",
    "selector.select",
    "signal.raise_signal",
    "threading.Thread.start",
}
"""All that is replaced around a server that is attached to and follows an asyncio loop."""


@CORES
def test_every_function_around_a_server_is_entered_as_often_as_without_the_probe(core: How) -> None:
    expected = bare("everything")
    differing: dict[str, tuple[int, int]] | None = None
    for _ in range(RUNS):
        found = told("everything", core)
        assert found["answers"] == expected["answers"]
        names = {*expected["entered"], *found["entered"]} - ASKED if differing is None else set(differing)
        pairs = {name: (expected["entered"].get(name, 0), found["entered"].get(name, 0)) for name in sorted(names)}
        differing = {name: (was, now) for name, (was, now) in pairs.items() if was != now}
    assert differing == {}


@CORES
def test_only_what_is_declared_is_replaced(core: How) -> None:
    assert set(told("everything", core)["replaced"]) == DECLARED


def test_nothing_is_replaced_without_the_probe() -> None:
    assert bare("everything")["replaced"] == []
