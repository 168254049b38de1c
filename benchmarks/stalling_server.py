"""An HTTP MCP server on bare sockets that stalls when it is told to: its whole loop sleeps, whoever is connected.

    python benchmarks/stalling_server.py DESCRIPTOR 6,18,27 1.0     a second each at 6, 18 and 27 s after the first call

At the end it writes what it did to stdout, as JSON: calls, and when its loop stood still for 0.1 s or more by its own
clock, on purpose or because the machine had no time for it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from typing import Any

ANSWERS: dict[str, Any] = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {}}]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}


class Stalls:
    """When to stall, and when that was."""

    def __init__(self, instants_s: list[float], length_s: float) -> None:
        self.instants_s, self.length_s = instants_s, length_s
        self.calls = 0
        self.begun = 0.0
        self.happened: list[tuple[float, float]] = []

    def called(self) -> None:
        """One more call; the first starts the clock."""
        self.calls += 1
        if self.calls == 1:
            loop, self.begun = asyncio.get_running_loop(), time.monotonic()
            for instant in self.instants_s:
                loop.call_at(self.begun + instant, time.sleep, self.length_s)
            self._beat(self.begun)

    def _beat(self, last: float) -> None:
        now = time.monotonic()
        if now - last >= 0.1:
            self.happened.append((round(last - self.begun, 3), round(now - last, 3)))
        asyncio.get_running_loop().call_later(0.005, self._beat, now)


class Connection(asyncio.Protocol):
    """Requests of one connection, one after the other."""

    def __init__(self, stalls: Stalls) -> None:
        self._stalls = stalls
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head = self._rest[:end].lower()
            place = head.find(b"content-length:")
            size = int(head[place + 15 :].split(b"\r\n", 1)[0]) if place >= 0 else 0
            if len(self._rest) < end + 4 + size:
                return
            body, self._rest = self._rest[end + 4 : end + 4 + size], self._rest[end + 4 + size :]
            self._answer(json.loads(body or b"{}"))

    def _answer(self, message: dict[str, Any]) -> None:
        if message.get("method") == "tools/call":
            self._stalls.called()
        result = ANSWERS.get(message.get("method", ""), {})
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


async def main(descriptor: int, instants_s: list[float], length_s: float) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    stalls = Stalls(instants_s, length_s)
    with socket.socket(fileno=descriptor) as listener:
        async with await loop.create_server(lambda: Connection(stalls), sock=listener, backlog=4096):
            await ended.wait()
            print(json.dumps({"calls": stalls.calls, "stalls": stalls.happened}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), [float(each) for each in sys.argv[2].split(",") if each], float(sys.argv[3])))
