"""An HTTP MCP server on bare sockets, which breaks as it is told: what it does to a call is its tool's name.

python raw_http_server.py DESCRIPTOR [--legacy]       the descriptor of a listening socket
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

LEGACY = "--legacy" in sys.argv
NAMES = ("echo", "hold", "status", "reset", "close", "cut", "first", "counts")


class Server:
    """What it has seen, so that a test can ask for it."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.open = self.most_open = 0
        self.sessions: dict[str, int] = {}  # id -> calls
        self.held: list[asyncio.Future[None]] = []

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self.request(reader, writer):
                pass
        self.open -= 1
        writer.close()

    async def request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        message = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        method, session = message.get("method"), headers.get("mcp-session-id", "")
        if LEGACY and session and (session not in self.sessions or method == "initialize"):
            error = {"code": -32600, "message": "Session not found"}
            return await say(writer, {"jsonrpc": "2.0", "id": message.get("id"), "error": error}, 404)
        if method == "tools/call":
            self.sessions[session] = self.sessions.get(session, 0) + 1
            return await self.call(message["id"], message["params"], writer)
        more = {}
        if method == "initialize" and LEGACY:
            found: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            more = {"mcp-session-id": f"session-{len(self.sessions)}"}
            self.sessions[more["mcp-session-id"]] = 0
        elif method == "server/discover" and not LEGACY:
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        elif method == "tools/list":
            found = {"tools": [{"name": name, "inputSchema": {}} for name in NAMES]}
        elif "id" in message:
            error = {"code": -32601, "message": f"no {method}"}
            stray = {"mcp-session-id": "stray"} if LEGACY else {}  # as mcp 1.30 does
            return await say(writer, {"jsonrpc": "2.0", "id": message["id"], "error": error}, 400, stray)
        else:
            return await say(writer, None, 202)
        return await say(writer, {"jsonrpc": "2.0", "id": message["id"], "result": found}, more=more)

    async def call(self, number: Any, params: Any, writer: asyncio.StreamWriter) -> bool:
        name, given = params["name"], params.get("arguments", {})
        self.calls[name] = count = self.calls.get(name, 0) + 1
        every = given.get("every")
        broken = every is not None and count % every == 0
        result: dict[str, Any] = {"content": []}
        if name == "hold":
            await self.hold(given["count"])
        elif name == "first" and count == 1:
            await asyncio.sleep(given["ms"] / 1000)
        elif name == "counts":
            counts = {"most_open": self.most_open, "calls": self.calls, "sessions": self.sessions}
            result = {"content": [{"type": "text", "text": json.dumps(counts)}]}
        elif name == "status" and broken:
            return await say(writer, None, given["status"])
        elif name == "reset" and broken:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        elif name == "close" and broken:
            return False
        elif name == "cut" and broken:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
            await writer.drain()
            return False
        return await say(writer, {"jsonrpc": "2.0", "id": number, "result": result})

    async def hold(self, count: int) -> None:
        """Until so many wait here, each on a connection of its own."""
        self.held.append(asyncio.get_running_loop().create_future())
        if len(self.held) < count:
            await self.held[-1]
        for waiting in self.held:
            if not waiting.done():
                waiting.set_result(None)


async def say(
    writer: asyncio.StreamWriter, message: Any, status: int = 200, more: Mapping[str, str] | None = None
) -> bool:
    body = b"" if message is None else json.dumps(message).encode()
    head = {"content-type": "application/json", "content-length": str(len(body)), **(more or {})}
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in head.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()
    return True


async def main(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as listener:
        server = await asyncio.start_server(Server().connection, sock=listener, backlog=4096)
        await server.serve_forever()


if __name__ == "__main__":
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(main(int(sys.argv[1])))
