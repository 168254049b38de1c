"""A server, and calls to it over every transport in one process, whose answers must not depend on the probe."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from mcp import Client, MCPError
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import Context, MCPServer

from tests.adapters.asgi_client import Handshake, Modern, started
from tests.safety.conversation import call, encode, key_of

BACKENDS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}


def make_server() -> MCPServer:
    """One tool per way of waiting; what they return depends on nothing but their arguments."""
    server = MCPServer("scenario", version="1", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        await anyio.lowlevel.checkpoint()
        return a + b

    @server.tool()
    def in_thread(text: str) -> str:
        return text[::-1]

    @server.tool()
    async def fail() -> str:
        raise ValueError("refused")

    @server.tool()
    async def timer() -> str:
        await anyio.sleep(0.001)
        with anyio.move_on_after(0.001) as scope:
            await anyio.sleep_forever()
        return f"cancelled: {scope.cancelled_caught}"

    @server.tool()
    async def socket_wait() -> str:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.send(b"x")
            await anyio.wait_readable(ours)
            return ours.recv(1).decode()

    @server.tool()
    async def pools() -> str:
        with ThreadPoolExecutor(1) as pool:
            if _on_asyncio():
                first = await asyncio.get_running_loop().run_in_executor(pool, str, 5)
            else:
                first = pool.submit(str, 5).result()
            second = pool.submit(partial(int, "11", base=2)).result()
        with anyio.fail_after(100):
            third = await anyio.to_thread.run_sync(len, "abc", limiter=anyio.CapacityLimiter(1))
        return f"{first} {second} {third}"

    @server.tool()
    async def raising_pools() -> str:
        seen = []
        with ThreadPoolExecutor(1) as pool:
            for work in (partial(pool.submit(int, "x").result), None):
                try:
                    work() if work is not None else await anyio.to_thread.run_sync(int, "y")
                except ValueError as exc:
                    seen.append(str(exc))
        return "; ".join(seen)

    @server.tool()
    async def bare_thread() -> str:
        done: list[str] = []
        thread = threading.Thread(target=done.append, args=("ran",))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        return done[0]

    @server.tool()
    async def collect() -> str:
        gc.collect(0)
        return "collected"

    @server.tool()
    async def children(number: int) -> str:
        done: list[int] = []

        async def child(index: int) -> None:
            await anyio.lowlevel.checkpoint()
            await anyio.to_thread.run_sync(str, index)
            done.append(index)

        async with anyio.create_task_group() as group:
            for index in range(number):
                group.start_soon(child, index)
        return f"{sorted(done)}"

    @server.tool()
    async def count(to: int, ctx: Context) -> str:
        for number in range(to):
            await ctx.report_progress(number, to)
        return f"counted to {to}"

    @server.tool()
    async def block() -> str:
        time.sleep(0.02)
        return "blocked"

    return server


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("add", {"a": 1, "b": 2}),
    ("in_thread", {"text": "abc"}),
    ("fail", {}),
    ("timer", {}),
    ("socket_wait", {}),
    ("pools", {}),
    ("raising_pools", {}),
    ("bare_thread", {}),
    ("collect", {}),
    ("children", {"number": 3}),
    ("count", {"to": 3}),
    ("block", {}),
    ("nobody_knows", {}),
    ("add", {"a": "no number"}),
)


async def call_in_process(server: MCPServer, *, over_streams: bool, after: Callable[[], None]) -> list[Any]:
    """Every call: over streams all at once, else one by one."""
    answers: list[Any] = []
    async with Client(InMemoryTransport(server) if over_streams else server) as client:

        async def one(index: int, tool: str, arguments: dict[str, Any]) -> None:
            try:
                answer: Any = (await client.call_tool(tool, arguments)).model_dump(mode="json")
            except MCPError as exc:
                answer = [exc.error.code, exc.error.message]
            answers.append((index, answer))
            after()

        async with anyio.create_task_group() as group:
            for index, (tool, arguments) in enumerate(CALLS):
                if over_streams:
                    group.start_soon(one, index, tool, arguments)
                else:
                    await one(index, tool, arguments)
    return sorted(answers, key=lambda answer: answer[0])


async def call_over_http(server: MCPServer, *, modern: bool, json_response: bool) -> list[Any]:
    """Every call one by one, through the ASGI app."""
    answers = []
    async with started(server.streamable_http_app(json_response=json_response)) as app:
        client = Modern(app) if modern else Handshake(app)
        await client.open()
        for id, (tool, arguments) in enumerate(CALLS):
            answer = await client.call(id, tool, token="p", **arguments)
            answers.append((answer.status, answer.body))
    return answers


def call_over_stdio(server: MCPServer, loop: str) -> list[bytes]:
    """Every call in one burst, through pipes that stand for stdin and stdout; returns the lines, sorted by id."""
    read_end, their_end = os.pipe()
    our_end, write_end = os.pipe()
    lines: list[bytes] = []

    def talk() -> None:
        with os.fdopen(their_end, "wb") as requests, os.fdopen(our_end, "rb") as answers:
            requests.write(b"not json\n\n")
            for id, (tool, arguments) in enumerate(CALLS):
                requests.write(encode(call(id, tool, modern=True, **arguments)))
            requests.flush()
            while len(lines) < len(CALLS) and (line := answers.readline()):
                lines.append(line)

    client = threading.Thread(target=talk, daemon=True)
    client.start()
    before = sys.stdin, sys.stdout
    stdin, stdout = io.TextIOWrapper(os.fdopen(read_end, "rb")), io.TextIOWrapper(os.fdopen(write_end, "wb"))
    sys.stdin, sys.stdout = stdin, stdout
    try:
        anyio.run(server.run_stdio_async, **BACKENDS[loop])
    finally:
        sys.stdin, sys.stdout = before
        stdin.close()
        stdout.close()
        client.join(100)
    return sorted(lines, key=lambda line: int(json.loads(key_of(line))))


def run_scenario(
    server: MCPServer, loop: str, after: Callable[[], None] = lambda: None, *, stdio: bool = True
) -> dict[str, Any]:
    """Everything above on one kind of loop; ``after`` is called after each call made in process."""

    async def in_process() -> dict[str, Any]:
        with anyio.fail_after(200):
            return {
                "streams": await call_in_process(server, over_streams=True, after=after),
                "in process": await call_in_process(server, over_streams=False, after=after),
                "http, modern": await call_over_http(server, modern=True, json_response=False),
                "http, session": await call_over_http(server, modern=False, json_response=True),
            }

    answers = anyio.run(in_process, **BACKENDS[loop])
    if stdio:
        answers["stdio"] = call_over_stdio(server, loop)
    return answers
