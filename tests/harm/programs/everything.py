"""One program of everything that a server does: tasks, timers, threads, sockets, HTTP, spans, a session.

It does the same each time, so that what it enters can be counted.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections import Counter
from typing import Any

import anyio
import anyio.to_thread
import mcp.server.stdio
import mcp.server.streamable_http_manager  # noqa: F401
import uvicorn  # noqa: F401
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.adapters.asgi_client import Modern, started
from tests.harm.programs.identities import changed, instance, walk
from tests.harm.programs.probing import BARE, tell

PACKAGES = ("asyncio", "selectors", "anyio", "mcp", "uvicorn", "opentelemetry")
CALLS = 5
_code_names: dict[Any, str | None] = {}


class Entered:
    """Counts each entry into a Python function of the packages, on every thread, while it is on."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.on = False

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event != "call" or not self.on:
            return
        name = _code_names.get(frame.f_code, "")
        if name == "":
            module = frame.f_globals.get("__name__", "")
            inside = module.partition(".")[0] in PACKAGES
            qualname = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
            name = _code_names[frame.f_code] = f"{module}:{qualname}" if inside else None
        if name is not None:
            self.counts[name] += 1


def make_server() -> MCPServer:
    server = MCPServer("everything")

    @server.tool()
    async def work(number: int) -> str:
        loop = asyncio.get_running_loop()
        with trace.get_tracer("work").start_as_current_span("inside"):
            done = loop.create_future()
            loop.call_soon(done.set_result, number)
            task = asyncio.ensure_future(child(done))
            timer = loop.call_later(60, print)
            in_thread = await anyio.to_thread.run_sync(int, str(number))
            assert await loop.run_in_executor(None, int, "7") == 7
            timer.cancel()
            return str(in_thread + await task)

    return server


async def child(done: asyncio.Future[int]) -> int:
    return await done


async def echo_over_sockets() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(4))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"echo")
    assert await reader.readexactly(4) == b"echo"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def session(server: MCPServer) -> list[Any]:
    answers: list[Any] = []
    async with Client(InMemoryTransport(server)) as client:
        for number in range(CALLS):
            result: Any = await client.call_tool("work", {"number": number})
            answers.append(result.content[0].text)
    async with started(server.streamable_http_app(json_response=True)) as app:
        http = Modern(app)
        await http.open()
        for number in range(CALLS):
            answers.append((await http.call(number, "work", token=None, number=number)).status)
    await echo_over_sockets()
    return answers


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    trace.set_tracer_provider(provider)
    server = make_server()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(session(server))  # whatever is imported, cached or started once
    for name in dir(anyio):
        getattr(anyio, name)
    gc.disable()
    names, middleware = walk(), list(server._lowlevel_server.middleware)
    on_loop, on_selector = instance("loop", loop), instance("selector", loop._selector)  # type: ignore[attr-defined]
    probe: Any = None
    if not BARE:
        import mcp_probe

        probe = mcp_probe.attach(server, telemetry="off")
    loop.run_until_complete(session(server))  # what the probe does once: follow the loop, wrap the pools
    replaced = changed(names, walk())
    replaced += changed(on_loop, instance("loop", loop)) if not BARE else []
    replaced += changed(on_selector, instance("selector", loop._selector))  # type: ignore[attr-defined]
    replaced += [
        f"middleware {type(one).__name__}" for one in server._lowlevel_server.middleware if one not in middleware
    ]
    entered = Entered()
    threading.setprofile(entered)
    sys.setprofile(entered)
    entered.on = True
    answers = loop.run_until_complete(session(server))
    entered.on = False
    sys.setprofile(None)
    threading.setprofile(None)
    if probe is not None:
        probe.detach()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    tell({"answers": answers, "entered": dict(sorted(entered.counts.items())), "replaced": sorted(replaced)})


if __name__ == "__main__":
    main()
