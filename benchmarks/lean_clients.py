"""Clients that keep a number of calls in flight and do next to nothing else, so that the server is what is busy.

Each is one thread, and parses no answer: it counts them, and refuses to go on after one that is an error.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.driving import ARGUMENTS, http_order

LIMIT_S = 120.0
"""Without any answer. A server's start is in it."""
CHUNK = 1 << 18
FAULTS = (b'"isError":true', b'"error":{')


class ServerSilentError(RuntimeError):
    """The server has not answered for :data:`LIMIT_S`, or has answered with an error."""


@dataclass(frozen=True, slots=True)
class Burst:
    """``answers`` calls were answered within ``took_s``."""

    answers: int
    took_s: float


class LeanClient(Protocol):
    """A server's client. Its calls block."""

    def burst(self, in_flight: int, calls: int, seconds: float) -> Burst:
        """Keep ``in_flight`` calls in flight until ``calls`` were sent or ``seconds`` have passed, and wait for all."""

    def ask(self, tool: str) -> dict[str, Any]:
        """The JSON in the text that a tool without arguments returns."""

    def close(self) -> None:
        """Let go of the server."""


def drive(
    in_flight: int, calls: int, seconds: float, send: Callable[[int], None], answered: Callable[[], int]
) -> Burst:
    """``send`` so many calls at once; ``answered`` waits, and returns how many more answers have come."""
    began = time.perf_counter()
    until, sent, done = began + seconds, 0, 0
    while True:
        more = min(in_flight - (sent - done), calls - sent) if time.perf_counter() < until else 0
        if more > 0:
            send(more)
            sent += more
        if sent == done:
            return Burst(done, time.perf_counter() - began)
        done += answered()


class StdioClient:
    """A stdio server's client. The pipes are read while they are written: neither side can wait for the other."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output = process.stdin.fileno(), process.stdout.fileno()
        self._close = process.stdin.close
        self._message = _line("add", ARGUMENTS)
        self._unsent = b""
        self._last = b""
        os.set_blocking(self._input, False)
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(self._output, selectors.EVENT_READ)

    def burst(self, in_flight: int, calls: int, seconds: float) -> Burst:
        return drive(in_flight, calls, seconds, self._send, self._answered)

    def ask(self, tool: str) -> dict[str, Any]:
        self._unsent += _line(tool, {})
        self._write()
        found = b""
        while not found.endswith(b"\n"):
            found += self._read()
        return _told(found)

    def close(self) -> None:
        self._waiting.close()
        self._close()

    def _send(self, calls: int) -> None:
        self._unsent += self._message * calls
        self._write()

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._input, self._unsent) :]
        except BlockingIOError:
            return  # the pipe is full: the next answer makes room

    def _answered(self) -> int:
        count = 0
        while not count:
            count = _without_faults(self._read()).count(b"\n")
        if self._unsent:
            self._write()
        return count

    def _read(self) -> bytes:
        while self._unsent and not self._waiting.select(0.01):
            self._write()
        if not self._waiting.select(LIMIT_S):
            raise ServerSilentError("The stdio server does not answer.")
        found = os.read(self._output, CHUNK)
        if not found:
            raise ServerSilentError("The stdio server has ended.")
        return found


class HttpClient:
    """A streamable HTTP server's client: one kept connection for each call in flight."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._order = _request(port, "add", ARGUMENTS)
        self._idle: list[socket.socket] = []
        self._parts: dict[socket.socket, bytes] = {}
        self._waiting = selectors.DefaultSelector()

    def burst(self, in_flight: int, calls: int, seconds: float) -> Burst:
        while len(self._parts) < in_flight:
            self._connect()
        return drive(in_flight, calls, seconds, self._send, self._answered)

    def ask(self, tool: str) -> dict[str, Any]:
        if not self._idle:
            self._connect()
        connection = self._idle.pop()
        connection.sendall(_request(self._port, tool, {}))
        while not is_whole(self._parts[connection]):
            self._receive(connection)
        found, self._parts[connection] = self._parts[connection], b""
        self._idle.append(connection)
        return _told(found)

    def close(self) -> None:
        self._waiting.close()
        for connection in self._parts:
            connection.close()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=LIMIT_S)
        self._parts[connection] = b""
        self._idle.append(connection)
        self._waiting.register(connection, selectors.EVENT_READ)
        return connection

    def _send(self, calls: int) -> None:
        for _ in range(calls):
            self._idle.pop(0).sendall(self._order)

    def _answered(self) -> int:
        ready = self._waiting.select(LIMIT_S)
        if not ready:
            raise ServerSilentError("The HTTP server does not answer.")
        count = 0
        for key, _ in ready:
            connection: Any = key.fileobj
            self._receive(connection)
            if is_whole(self._parts[connection]):
                _without_faults(self._parts[connection])
                self._parts[connection] = b""
                self._idle.append(connection)
                count += 1
        return count

    def _receive(self, connection: socket.socket) -> None:
        found = connection.recv(CHUNK)
        if not found:
            raise ServerSilentError("The HTTP server has closed a connection.")
        self._parts[connection] += found


def is_whole(response: bytes) -> bool:
    """Whether an HTTP response is there to its end. Source: RFC 9112, section 6.3."""
    head, end, body = response.partition(b"\r\n\r\n")
    if not end:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise ServerSilentError(f"The HTTP server answered {head[:80]!r}.")
    _, length_is_given, rest = head.lower().partition(b"\r\ncontent-length:")
    if length_is_given:
        return len(body) >= int(rest.partition(b"\r\n")[0])
    return body.endswith(b"0\r\n\r\n")


def _line(tool: str, arguments: dict[str, Any]) -> bytes:
    return http_order(tool, arguments)[0] + b"\n"


def _request(port: int, tool: str, arguments: dict[str, Any]) -> bytes:
    body, headers = http_order(tool, arguments)
    fields = {"host": f"127.0.0.1:{port}", "content-length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def _without_faults(answers: bytes) -> bytes:
    if any(fault in answers for fault in FAULTS):
        raise ServerSilentError(f"The server answered with an error: {answers[:500]!r}")
    return answers


def _told(answer: bytes) -> dict[str, Any]:
    """The JSON in the text of a result, which is in an event, a chunk or a line."""
    start = _without_faults(answer).index(b'{"jsonrpc"')
    message, _ = json.JSONDecoder().raw_decode(answer[start:].decode())
    told: dict[str, Any] = json.loads(message["result"]["content"][0]["text"])
    return told
