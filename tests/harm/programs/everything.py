"""One program of everything that a server does: tasks, timers, threads, sockets, stdio, HTTP, spans.

It does the same each time, so that what it enters can be counted.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp.server.stdio
import mcp.server.streamable_http_manager  # noqa: F401
import uvicorn
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.adapters.asgi_client import META, Modern, message, started
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


class Outside:
    """A client in a process of its own (outside.py), which does all of ``todo``."""

    def __init__(self, todo: dict[str, Any], pass_fds: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", str(Path(__file__).with_name("outside.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=pass_fds,
        )
        self._todo = json.dumps(todo).encode()

    def answers(self) -> Any:
        """Blocks until it has ended."""
        return json.loads(self._process.communicate(self._todo)[0])


async def http_from_outside(server: MCPServer) -> Any:
    """uvicorn serves, without its main loop: that one counts the tenths of a second that the machine takes."""
    app = server.streamable_http_app(json_response=True)
    config = uvicorn.Config(app, port=0, http="h11", ws="none", lifespan="on", log_config=None)
    config.load()
    serving = uvicorn.Server(config)
    serving.lifespan = config.lifespan_class(config)
    await serving.startup()
    port = serving.servers[0].sockets[0].getsockname()[1]
    outside = Outside({"port": port, "requests": [http_request(number) for number in range(CALLS)]})
    answers = await anyio.to_thread.run_sync(outside.answers)
    await serving.shutdown()
    return answers


def http_request(number: int) -> str:
    body = message(number, "tools/call", _meta=META, name="work", arguments={"number": number})
    headers = [*Modern(None).headers("tools/call", "work"), (b"content-length", b"%d" % len(body))]  # type: ignore[arg-type]
    lines = [b"POST /mcp HTTP/1.1", *(name + b": " + value for name, value in headers), b"", body]
    return b"\r\n".join(lines).decode()


async def stdio_from_outside(server: MCPServer) -> Any:
    """The SDK's own stdio transport on the standard descriptors, which are pipes meanwhile."""
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "outside", "version": "1"}}
    lines = [message(0, "initialize", **info), message(None, "notifications/initialized")]
    lines += [message(1 + n, "tools/call", name="work", arguments={"number": n}) for n in range(CALLS)]
    with pipes_for_standard_streams() as (to_server, from_server):
        todo = {"to_server": to_server, "from_server": from_server, "lines": [line.decode() for line in lines]}
        outside = Outside(todo, (to_server, from_server))
        os.close(to_server)  # the end of stdin comes when the client closes it
        told: list[Any] = []
        answering = threading.Thread(target=lambda: told.append(outside.answers()))
        answering.start()
        await server.run_stdio_async()
        os.close(from_server)
    answering.join()
    return told[0]


@contextmanager
def pipes_for_standard_streams() -> Iterator[tuple[int, int]]:
    """(where to write to stdin, where to read what was written to stdout). The caller closes both."""
    kept = os.dup(0), os.dup(1)
    stdin, to_server = os.pipe()
    from_server, stdout = os.pipe()
    sys.stdout.flush()
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.close(stdin)
    os.close(stdout)
    try:
        yield to_server, from_server
    finally:
        sys.stdout.flush()
        for standard, descriptor in enumerate(kept):
            os.dup2(descriptor, standard)
            os.close(descriptor)


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


async def from_outside(server: MCPServer) -> list[Any]:
    """How many turns the loop takes here depends on when the other process answers."""
    return [await http_from_outside(server), await stdio_from_outside(server)]


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    trace.set_tracer_provider(provider)
    server = make_server()
    loop = asyncio.new_event_loop()
    for part in (session, from_outside):
        loop.run_until_complete(part(server))  # whatever is imported, cached or started once
    for name in dir(anyio):
        getattr(anyio, name)
    gc.disable()
    names, middleware = walk(), list(server._lowlevel_server.middleware)
    on_loop, on_selector = instance("loop", loop), instance("selector", loop._selector)  # type: ignore[attr-defined]
    probe: Any = None
    if not BARE:
        import mcp_probe

        probe = mcp_probe.attach(server, telemetry="off")
    for part in (session, from_outside):
        loop.run_until_complete(part(server))  # what the probe does once: follow the loop, wrap the pools
    replaced = changed(names, walk())
    replaced += changed(on_loop, instance("loop", loop)) if not BARE else []
    replaced += changed(on_selector, instance("selector", loop._selector))  # type: ignore[attr-defined]
    replaced += [
        f"middleware {type(one).__name__}" for one in server._lowlevel_server.middleware if one not in middleware
    ]
    entered = Entered()
    threading.setprofile(entered)
    sys.setprofile(entered)
    answers, counts = [], {}
    for part in (session, from_outside):
        entered.counts.clear()
        entered.on = True
        answers += loop.run_until_complete(part(server))
        entered.on = False
        counts[part.__name__] = dict(sorted(entered.counts.items()))
    sys.setprofile(None)
    threading.setprofile(None)
    if probe is not None:
        probe.detach()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    tell({"answers": answers, "entered": counts, "replaced": sorted(replaced)})


if __name__ == "__main__":
    main()
