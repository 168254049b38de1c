"""Raw clients of a server process, one for each transport: they send what they are told, and keep the answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.ports import free_port
from tests.safety.conversation import INITIALIZED, LIMIT_S, ROOT, call, encode, initialize

MOST = 1 << 31
"""Bytes of a line."""


@dataclass
class Ended:
    """What became of a server process."""

    exit_code: int | None = None
    stderr: str = ""
    stray: list[Any] = field(default_factory=list)
    """What it wrote to stdout that answers nothing and is no progress."""


class Caller(Protocol):
    """A client with an open session."""

    async def call(self, id: int, tool: str, *, meta: Mapping[str, Any] | None = None, **arguments: Any) -> Any:
        """What answers the call."""

    async def begin(self, id: int, tool: str, **arguments: Any) -> None:
        """Calls a tool that reports progress, and returns once it has."""

    async def hang_up(self) -> None:
        """Goes, whatever runs. The server goes on where others may come."""

    async def close(self) -> Ended:
        """Ends the server as its clients do."""


class StdioCaller:
    """Speaks to stdin and stdout."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ended = Ended()
        self._waiting: dict[Any, asyncio.Future[Any]] = {}
        self._reader = asyncio.create_task(self._read())
        self._errors = asyncio.create_task(self._read_errors())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            key = message["params"]["progressToken"] if "method" in message else message.get("id")
            waiting = self._waiting.get(key)
            if waiting is None:
                self._ended.stray.append(message)
            elif not waiting.done():
                waiting.set_result(message)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the server's stdout ended"))

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._ended.stderr = (await self._process.stderr.read()).decode()

    async def send(self, *messages: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(map(encode, messages)))
        await self._process.stdin.drain()

    async def answer(self, key: Any, message: Mapping[str, Any]) -> Any:
        self._waiting[key] = waiting = asyncio.get_running_loop().create_future()
        await self.send(message)
        return await asyncio.wait_for(waiting, LIMIT_S)

    async def call(self, id: int, tool: str, *, meta: Mapping[str, Any] | None = None, **arguments: Any) -> Any:
        return await self.answer(id, call(id, tool, meta=meta, **arguments))

    async def begin(self, id: int, tool: str, **arguments: Any) -> None:
        await self.answer(f"of {id}", call(id, tool, meta={"progressToken": f"of {id}"}, **arguments))

    async def hang_up(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def close(self) -> Ended:
        await self.hang_up()
        self._ended.exit_code = await asyncio.wait_for(self._process.wait(), LIMIT_S)
        await asyncio.gather(self._reader, self._errors)
        self._ended.stray.sort(key=json.dumps)  # whose turn it is as a session ends is chance
        return self._ended


class HttpCaller:
    """Speaks streamable HTTP, one connection for each call."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self._port = port
        self._session: list[str] = []
        self._open: list[asyncio.StreamWriter] = []
        self._ended = Ended()
        self._errors = asyncio.create_task(self._read_errors())

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._ended.stderr = (await self._process.stderr.read()).decode()

    async def initialize(self) -> None:
        deadline = asyncio.get_running_loop().time() + LIMIT_S
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.close()
                break
            except OSError:
                assert self._process.returncode is None and asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.05)
        head, _ = await self._exchange(initialize(0))
        found = re.search(r"(?i)mcp-session-id: (\S+)", head)
        assert found is not None, head
        self._session = [f"Mcp-Session-Id: {found[1]}", "Mcp-Protocol-Version: 2025-11-25"]
        await self._exchange(INITIALIZED)

    async def _post(self, message: Mapping[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        body = encode(message)
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Accept: application/json, text/event-stream",
            "Connection: close",
            *self._session,
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=MOST)
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        return reader, writer

    async def _exchange(self, message: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Head and messages of the response, however it is framed."""
        reader, writer = await self._post(message)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = await reader.read()
        writer.close()
        if "text/event-stream" in head:
            lines = [part[6:] for part in unchunked(body).splitlines() if part.startswith(b"data: {")]
            return head, [json.loads(one) for one in lines]
        return head, [json.loads(body)] if body.strip() else []

    async def call(self, id: int, tool: str, *, meta: Mapping[str, Any] | None = None, **arguments: Any) -> Any:
        _, messages = await asyncio.wait_for(self._exchange(call(id, tool, meta=meta, **arguments)), LIMIT_S)
        return messages[-1]

    async def begin(self, id: int, tool: str, **arguments: Any) -> None:
        reader, writer = await self._post(call(id, tool, meta={"progressToken": f"of {id}"}, **arguments))
        self._open.append(writer)
        await asyncio.wait_for(reader.readuntil(b"notifications/progress"), LIMIT_S)

    async def hang_up(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def close(self) -> Ended:
        await self.hang_up()
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        self._ended.exit_code = await asyncio.wait_for(self._process.wait(), LIMIT_S)
        await self._errors
        return self._ended


def unchunked(body: bytes) -> bytes:
    """The body without what HTTP's chunked coding adds."""
    parts, at = [], 0
    while at < len(body):
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(parts)


@asynccontextmanager
async def calling(
    python: Path | str, program: str, transport: str, *arguments: str, prefix: Sequence[str] = (), **environment: str
) -> AsyncIterator[Caller]:
    """A client with a session at a server of its own, started behind ``prefix``. Leaving kills what still runs."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    port = free_port()
    command: Sequence[str] = [*prefix, str(python), program, "stdio" if transport == "stdio" else str(port), *arguments]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        limit=MOST,
        start_new_session=True,
    )
    try:
        if transport == "stdio":
            caller = StdioCaller(process)
            await caller.answer(0, initialize(0))
            await caller.send(INITIALIZED)
            yield caller
        else:
            http = HttpCaller(process, port)
            await http.initialize()
            yield http
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its children, too
        await process.wait()
