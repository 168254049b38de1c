"""The probe wraps and calls the originals: what runs without it runs with it, as often, and little is replaced."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from mcp_probe.adapters.waits.dns import LOOKUPS
from tests.harm.running import CORES, How, told

RUNS = 3
"""Two threads' reports may share a wake-up of the loop: how often a function is entered is a range of some runs."""
MORE_RUNS = 4
"""Taken once more, bare and probed, where the ranges of a busy machine do not meet."""

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
    # The socket is asked when the last bytes of a request came.
    "asyncio.transports:BaseTransport.get_extra_info",
    "asyncio.trsock:TransportSocket.fileno",
    "asyncio.trsock:TransportSocket.getsockopt",
    # The probe's own generators are closed by the loop, as everybody's.
    "asyncio.base_events:BaseEventLoop._asyncgen_firstiter_hook",
    # The probe is a middleware.
    "mcp.server.runner:_apply_middleware",
    # The server iterates over the probe's stream, which asks this one for each message.
    "mcp.shared._context_streams:ContextReceiveStream.__aiter__",
    # A new socket asks it of a dead transport that had the number of its descriptor; the probe has descriptors, too.
    "asyncio.selector_events:_SelectorTransport.is_closing",
}
"""Entered more or less often with the probe, and harmless."""

TURNS = {
    "asyncio.base_events:BaseEventLoop._add_callback",
    "asyncio.base_events:BaseEventLoop._run_once",
    "asyncio.base_events:BaseEventLoop.time",
    "asyncio.events:Handle._run",
    "asyncio.selector_events:BaseSelectorEventLoop._process_events",
    "asyncio.selector_events:BaseSelectorEventLoop._read_from_self",
    "asyncio.unix_events:_UnixSelectorEventLoop._process_self_data",
    "selectors:EpollSelector.select",
    "selectors:_BaseSelectorImpl._key_from_fd",
}
"""Entered once a turn of the loop, or for each file that is ready. How many turns there are the machine decides: how
many results of threads, or messages of another process, are there at once."""
TURNS_SHARE = 0.1

HELD = ("Lock", "Semaphore", "CapacityLimiter")

DECLARED = {
    *(f"asyncio.locks.{name}.__init__" for name in ("Event", "Condition", "Barrier") if hasattr(asyncio, name)),
    "asyncio.queues.Queue.__init__",
    "anyio.Condition.__init__",
    "anyio._core._synchronization.EventAdapter.__init__",
    "anyio._backends._asyncio.Event.__init__",
    "anyio.streams.memory._MemoryObjectStreamState.__init__",
    *(f"asyncio.locks.{name}.{method}" for name in HELD[:2] for method in ("__init__", "acquire", "release")),
    *(
        f"anyio._backends._asyncio.{name}.{method}"
        for name in HELD[:2]
        for method in ("__init__", "acquire", "acquire_nowait", "release")
    ),
    *(
        f"anyio._backends._asyncio.CapacityLimiter.{method}"
        for method in ("__init__", "acquire_on_behalf_of", "acquire_on_behalf_of_nowait", "release_on_behalf_of")
    ),
    "anyio._backends._asyncio.AsyncIOBackend.run_sync_in_worker_thread",
    "asyncio.base_events.BaseEventLoop._add_callback",
    *(f"asyncio.base_events.BaseEventLoop.subprocess_{how}" for how in ("exec", "shell")),
    "asyncio.streams.StreamReader._wait_for_data",
    *(f"asyncio.subprocess.Process.{method}" for method in ("communicate", "wait")),
    *(f"asyncio.subprocess.SubprocessStreamProtocol.{method}" for method in ("__init__", "connection_made")),
    "anyio._backends._asyncio.Process.wait",
    *(f"subprocess.Popen.{method}" for method in ("__init__", "communicate", "wait")),
    "asyncio.events.Handle",
    "asyncio.events.TimerHandle",
    *(["asyncio.events._ThreadSafeHandle"] if sys.version_info >= (3, 14) else []),
    "concurrent.futures.thread.ThreadPoolExecutor.submit",
    "anyio.streams.memory.MemoryObjectReceiveStream.receive",
    "anyio.streams.memory.MemoryObjectReceiveStream.receive_nowait",
    "anyio.streams.memory.MemoryObjectSendStream.send_nowait",
    *(f"asyncio.queues.Queue.{method}" for method in ("_get", "_put", "task_done")),
    *(f"queue.Queue.{method}" for method in ("_get", "_put", "get", "put", "task_done")),
    "queue.SimpleQueue",
    "logging.Logger.handle",
    "mcp.server._streamable_http_modern._mcp_param_rejection",
    "mcp.server._streamable_http_modern._tool_input_schema",
    "mcp.server.sse.SseServerTransport.connect_sse",
    "mcp.server.sse.SseServerTransport.handle_post_message",
    "mcp.server.stdio._UnownedTextWrapper.__init__",
    "mcp.server.stdio.create_context_streams",
    "mcp.server.streamable_http.StreamableHTTPServerTransport.connect",
    "mcp.server.streamable_http_manager.StreamableHTTPASGIApp.__call__",
    "mcp.server.streamable_http_manager.StreamableHTTPSessionManager.handle_request",
    "mcp.server.streamable_http_manager.StreamableHTTPSessionManager.run",
    "mcp.shared.direct_dispatcher.DirectDispatcher.send_raw_request",
    "mcp.shared.jsonrpc_dispatcher.JSONRPCDispatcher.__init__",
    "middleware ServerMiddleware",
    "selector.select",
    "signal.raise_signal",
    *(f"socket.{name}" for name in LOOKUPS),
    "threading.Thread.start",
    "uvicorn.protocols.http.h11_impl.H11Protocol.data_received",
}
"""All that is replaced around a server that is attached to and follows an asyncio loop."""


@CORES
def test_every_function_around_a_server_is_entered_as_often_as_without_the_probe(core: How) -> None:
    expected = list(bare_runs())
    found = [told("everything", core) for _ in range(RUNS)]
    if differing(expected, found):
        expected += [told("everything", "bare") for _ in range(MORE_RUNS)]
        found += [told("everything", core) for _ in range(MORE_RUNS)]
    assert all(run["answers"] == expected[0]["answers"] for run in [*expected, *found])
    assert differing(expected, found) == {}


@cache
def bare_runs() -> tuple[Any, ...]:
    return tuple(told("everything", "bare") for _ in range(RUNS))


def differing(expected: Sequence[Any], found: Sequence[Any]) -> dict[str, tuple[tuple[int, int], tuple[int, int]]]:
    """The functions of which the ranges do not meet: how often bare, and how often with the probe."""
    different = {}
    for part in ("session", "from_outside"):
        for name in sorted({name for run in [*expected, *found] for name in run["entered"][part]} - ASKED):
            both = entered(expected, part, name), entered(found, part, name)
            if not overlap(*both, TURNS_SHARE if name in TURNS else 0):
                different[f"{part} {name}"] = both
    return different


def entered(runs: Sequence[Any], part: str, name: str) -> tuple[int, int]:
    """How often at least and at most."""
    counts = [run["entered"][part].get(name, 0) for run in runs]
    return min(counts), max(counts)


def overlap(one: tuple[int, int], other: tuple[int, int], share: float) -> bool:
    """Whether these ranges meet, each widened by a share of itself."""
    return one[0] * (1 - share) <= other[1] and other[0] * (1 - share) <= one[1]


@CORES
def test_only_what_is_declared_is_replaced(core: How) -> None:
    assert set(told("everything", core)["replaced"]) == DECLARED


def test_nothing_is_replaced_without_the_probe() -> None:
    assert bare_runs()[0]["replaced"] == []
