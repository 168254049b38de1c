"""Driving the subjects: each connects to one process and runs a block of calls in it when asked."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.orders import Ordered

SUBJECTS = Path(__file__).with_name("subjects.py")
PROTOCOL = "2026-07-28"
ARGUMENTS = {"a": 1, "b": 2}
START_LIMIT_S = 60.0


class Subject(Protocol):
    """A server process and a client connected to it."""

    pid: int  # of the server

    async def block(self, calls: int, lead_in: int) -> list[int]:
        """Wall nanoseconds of each of ``calls`` calls, after ``lead_in`` calls that are not kept."""

    async def describe(self) -> dict[str, Any]:
        """What the server process says of itself."""


def command(transport: str, variant: str, *more: str) -> list[str]:
    """How a subject is started: with this interpreter."""
    return [sys.executable, str(SUBJECTS), transport, "--variant", variant, *more]


class MemorySubject:
    """Client and server in one child process, which is told how many calls to make."""

    def __init__(self, ordered: Ordered) -> None:
        self._ordered = ordered
        self.pid = ordered.process.pid

    async def block(self, calls: int, lead_in: int) -> list[int]:
        taken: list[int] = self._ordered.ask(calls=calls, lead_in=lead_in)["taken_ns"]
        return taken

    async def describe(self) -> dict[str, Any]:
        return self._ordered.ask(describe=True)


@asynccontextmanager
async def memory_subject(variant: str) -> AsyncIterator[Subject]:
    """Client and server over memory streams in one process."""
    ordered = Ordered(command("memory", variant))
    try:
        yield MemorySubject(ordered)
    finally:
        ordered.close()
        _end(ordered.process)


class ClientSubject:
    """A server process behind the SDK's client, which lives in this process."""

    def __init__(self, client: Client, pid: int) -> None:
        self._client = client
        self.pid = pid

    async def block(self, calls: int, lead_in: int) -> list[int]:
        call_tool, clock, taken = self._client.call_tool, time.perf_counter_ns, []
        for _ in range(lead_in):
            await call_tool("add", ARGUMENTS)
        for _ in range(calls):
            began = clock()
            await call_tool("add", ARGUMENTS)
            taken.append(clock() - began)
        return taken

    async def describe(self) -> dict[str, Any]:
        return await _describe(self._client)


@asynccontextmanager
async def stdio_subject(variant: str) -> AsyncIterator[Subject]:
    """A real server process behind pipes."""
    program, *arguments = command("stdio", variant)
    transport = stdio_client(StdioServerParameters(command=program, args=arguments, env=dict(os.environ)))
    async with Client(transport, cache=None) as client:
        await client.list_tools()
        yield ClientSubject(client, (await _describe(client))["pid"])


async def _describe(client: Client) -> dict[str, Any]:
    result: Any = await client.call_tool("describe", {})
    described: dict[str, Any] = json.loads(result.content[0].text)
    return described


class LeanSubject:
    """A streamable HTTP server behind one keep-alive connection of the leanest client at hand."""

    def __init__(self, connection: http.client.HTTPConnection, pid: int) -> None:
        self._connection = connection
        self.pid = pid

    async def block(self, calls: int, lead_in: int) -> list[int]:
        clock, taken = time.perf_counter_ns, []
        order = http_order("add", ARGUMENTS)
        for _ in range(lead_in):
            self._post(*order)
        for _ in range(calls):
            began = clock()
            self._post(*order)
            taken.append(clock() - began)
        return taken

    async def describe(self) -> dict[str, Any]:
        result = json.loads(self._post(*http_order("describe", {})))["result"]
        described: dict[str, Any] = json.loads(result["content"][0]["text"])
        return described

    def _post(self, body: bytes, headers: dict[str, str]) -> bytes:
        self._connection.request("POST", "/mcp", body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200 or b'"result"' not in answer:
            raise RuntimeError(f"The HTTP server answered {response.status}: {answer[:500]!r}")
        return answer


def http_order(tool: str, arguments: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Body and headers of one stateless call. Source: MCP 2026-07-28, streamable HTTP."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": PROTOCOL,
        "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": PROTOCOL,
        "mcp-method": "tools/call",
        "mcp-name": tool,
    }
    return body, headers


@contextmanager
def _http_server(transport: str, variant: str) -> Iterator[tuple[int, int]]:
    """(process, port) of a real uvicorn; it inherits a listening socket: no port to guess and none to wait for."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        descriptor = listener.fileno()
        process = subprocess.Popen(command(transport, variant, "--descriptor", str(descriptor)), pass_fds=[descriptor])
        port = listener.getsockname()[1]
    try:
        yield process.pid, port
    finally:
        process.terminate()
        _end(process)


@asynccontextmanager
async def http_subject(variant: str) -> AsyncIterator[Subject]:
    """Both sides as the SDK has them where nobody says otherwise."""
    with _http_server("http", variant) as (pid, port):
        async with Client(f"http://127.0.0.1:{port}/mcp", cache=None) as client:
            await client.list_tools()
            yield ClientSubject(client, pid)


@asynccontextmanager
async def lean_subject(variant: str) -> AsyncIterator[Subject]:
    """JSON answers, no sessions, and a client that does next to nothing: every added share is as large as it gets."""
    with _http_server("http-lean", variant) as (pid, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_LIMIT_S)
        try:
            yield LeanSubject(connection, pid)
        finally:
            connection.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


SUBJECT_MAKERS = {"memory": memory_subject, "stdio": stdio_subject, "http": http_subject, "http-lean": lean_subject}
