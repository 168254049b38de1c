"""A stdio server whose ``sys.stdin`` is some object that test tools and wrappers put there."""

from __future__ import annotations

import io
import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.stdio import stdio_server

from tests.harm.programs.probing import BARE, tell

VERSION = "2025-06-18"
CLIENT = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
LINES = b"".join(
    json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    for message in (
        {"id": 1, "method": "initialize", "params": CLIENT},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}},
        {"id": 3, "method": "ping"},
    )
)


WRITTEN = io.BytesIO()
"""What the server has answered so far."""
PATIENCE_S = 5


class Pipe(io.BytesIO):
    """Ends like a pipe whose client hangs up once it has its answers: else answers race with the end."""

    def _wait_at_the_end(self) -> None:
        until = time.monotonic() + PATIENCE_S
        answers = LINES.count(b'"id"') if self.getbuffer().nbytes else 0
        while self.tell() == self.getbuffer().nbytes and time.monotonic() < until:
            if WRITTEN.getvalue().count(b"\n") >= answers:
                return
            time.sleep(0.001)

    def read(self, size: int | None = -1) -> bytes:
        self._wait_at_the_end()
        return super().read(size)

    def read1(self, size: int | None = -1) -> bytes:
        self._wait_at_the_end()
        return super().read1(-1 if size is None else size)

    def readinto(self, buffer: Any) -> int:
        self._wait_at_the_end()
        return super().readinto(buffer)


class Raw(io.RawIOBase):
    """A raw stream: ``readinto`` and what the base class makes of it."""

    def __init__(self, data: bytes) -> None:
        self._data = Pipe(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(buffer)


class OnlyRead:
    """``read`` and what a text wrapper cannot do without."""

    closed = False

    def __init__(self, data: bytes) -> None:
        self._data = Pipe(data)

    def read(self, size: int = -1) -> bytes:
        return self._data.read(size)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        pass


class WithoutFileno(Pipe):
    """``fileno`` raises something else than the usual."""

    def fileno(self) -> int:
        raise RuntimeError("no descriptor")


class OneByteAtATime(OnlyRead):
    def read(self, size: int = -1) -> bytes:
        return self._data.read(1)


class Overridden(io.BufferedReader):
    """A buffered reader whose ``read1`` is its own."""

    def read1(self, size: int = -1) -> bytes:
        return super().read1(min(size, 7) if size > 0 else 7)


class BytesOfAnotherKind(OnlyRead):
    def read(self, size: int = -1) -> Any:
        return memoryview(self._data.read(size))

    read1 = read


KINDS: dict[str, Any] = {
    "bytes": lambda: Pipe(LINES),
    "raw": lambda: Raw(LINES),
    "buffered": lambda: io.BufferedReader(Raw(LINES)),
    "only read": lambda: OnlyRead(LINES),
    "one byte at a time": lambda: OneByteAtATime(LINES),
    "no fileno": lambda: WithoutFileno(LINES),
    "overridden": lambda: Overridden(Raw(LINES)),
    "memoryview": lambda: BytesOfAnotherKind(LINES),
    "empty": lambda: OnlyRead(b""),
    "no newline at the end": lambda: OnlyRead(LINES[:-1]),
}


async def serve(server: MCPServer) -> None:
    with anyio.fail_after(10):
        async with stdio_server() as streams:
            lowlevel: Any = server._lowlevel_server
            await lowlevel.run(*streams, lowlevel.create_initialization_options())


def outcome(kind: str) -> list[Any]:
    server = MCPServer("odd")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    WRITTEN.seek(0)
    WRITTEN.truncate()
    probe: Any = None
    if not BARE:
        import mcp_probe

        probe = mcp_probe.attach(server)
    before = sys.stdin, sys.stdout
    sys.stdin, sys.stdout = SimpleNamespace(buffer=KINDS[kind]()), SimpleNamespace(buffer=WRITTEN)
    said: list[Any] = []
    try:
        anyio.run(serve, server)
    except BaseException as exc:
        while isinstance(exc, BaseExceptionGroup):
            exc = exc.exceptions[0]
        said.append(type(exc).__name__)
    finally:
        sys.stdin, sys.stdout = before
        if probe is not None:
            probe.detach()
    answers = [json.loads(line) for line in WRITTEN.getvalue().splitlines()]
    return said + sorted(str(answer.get("id")) + str("result" in answer) for answer in answers)


if __name__ == "__main__":
    if sys.version_info < (3, 11):
        from exceptiongroup import BaseExceptionGroup
    tell({kind: outcome(kind) for kind in KINDS})
