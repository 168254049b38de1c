"""A local HTTP/1.1 server that answers each request after a known delay, and counts what it saw.

Its counts are taken in another process than the client's and from its sockets, so they are an independent
truth for whatever a client says of itself: requests, connections, how many were open at once, bytes each way.
Only GET is understood. Standard library only; run as ``python -m mcp_probe.workloads.servers.delay_http``.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import resource
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

HOST = "127.0.0.1"
BACKLOG = 4096
START_LIMIT_S = 30.0
END_LIMIT_S = 5.0

# What httpbin's `/anything` says besides the query; it brings the mean answer to the 1.43 kB of document 003.
_ECHOED = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "User-Agent": "client/1.0", "X-Padding": "x" * 276}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the server counted since it was last reset. Levels are "now" at a reset, not 0."""

    requests: int
    connections: int  # that sent a request
    connections_peak: int  # open at once
    in_flight_peak: int  # read and not yet answered, at once
    received_bytes: int
    sent_bytes: int
    cpu_ms: float  # of the server's process
    seconds: float


def answer_bytes(url_path: str) -> int:
    """Length of the body that a GET of ``url_path`` (path and query) is answered with."""
    return len(_body(url_path.encode()))


def _body(target: bytes) -> bytes:
    if not target.startswith(b"/anything/"):
        return b'{"status":"ok"}'
    path, _, query = target.decode("ascii", "replace").partition("?")
    value = query.partition("=")[2]
    said = {"args": {"query": value}, "headers": _ECHOED, "method": "GET", "path": path, "url": target.decode()}
    return json.dumps(said, separators=(",", ":")).encode()


class _Counts:
    def __init__(self) -> None:
        self.connections_now = self.in_flight_now = 0
        self.reset()

    def reset(self) -> None:
        self.requests = self.connections = self.received_bytes = self.sent_bytes = 0
        self.connections_peak, self.in_flight_peak = self.connections_now, self.in_flight_now
        self._cpu_ns, self._began_ns = time.process_time_ns(), time.monotonic_ns()

    def seen(self) -> dict[str, float]:
        return {
            "requests": self.requests,
            "connections": self.connections,
            "connections_peak": self.connections_peak,
            "in_flight_peak": self.in_flight_peak,
            "received_bytes": self.received_bytes,
            "sent_bytes": self.sent_bytes,
            "cpu_ms": (time.process_time_ns() - self._cpu_ns) / 1e6,
            "seconds": (time.monotonic_ns() - self._began_ns) / 1e9,
        }


class _Connection(asyncio.Protocol):
    """One client connection. Answers leave in the order of their requests, each after its own delay."""

    def __init__(self, counts: _Counts, delay_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self._counts, self._delay_s, self._loop = counts, delay_s, loop
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._waiting: deque[bytes] = deque()  # targets in order of arrival; the first one's delay runs
        self._timer: asyncio.TimerHandle | None = None
        self._counted = False  # who only asks for the counts is none of them

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted:
            self._counts.connections_now -= 1
            self._counts.in_flight_now -= len(self._waiting)
        self._waiting.clear()
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
            target = head.split(b" ", 2)[1]
            if target.startswith(b"/stats"):
                self._tell(reset=target.endswith(b"reset"))
            else:
                self._count()
                self._counts.received_bytes += end + 4
                self._take(target)

    def _count(self) -> None:
        if not self._counted:
            self._counted = True
            counts = self._counts
            counts.connections += 1
            counts.connections_now += 1
            counts.connections_peak = max(counts.connections_peak, counts.connections_now)

    def _take(self, target: bytes) -> None:
        counts = self._counts
        counts.requests += 1
        counts.in_flight_now += 1
        counts.in_flight_peak = max(counts.in_flight_peak, counts.in_flight_now)
        self._waiting.append(target)
        if len(self._waiting) == 1:
            self._begin()

    def _begin(self) -> None:
        if self._delay_s > 0:
            self._timer = self._loop.call_later(self._delay_s, self._answer)
        else:
            self._answer()

    def _answer(self) -> None:
        target = self._waiting.popleft()
        self._counts.in_flight_now -= 1
        self._counts.sent_bytes += self._send(_body(target))
        if self._waiting:
            self._begin()

    def _tell(self, *, reset: bool) -> None:
        self._send(json.dumps(self._counts.seen()).encode())
        if reset:
            self._counts.reset()

    def _send(self, body: bytes) -> int:
        if self._transport is None:
            return 0
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)
        return len(head) + len(body)


async def serve(descriptor: int, delay_s: float) -> None:
    """Serves on the inherited listening socket until standard input is closed."""
    loop, counts, over = asyncio.get_running_loop(), _Counts(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    listener = socket.socket(fileno=descriptor)
    server = await loop.create_server(lambda: _Connection(counts, delay_s, loop), sock=listener, backlog=BACKLOG)
    await over.wait()
    server.close()


class DelayServer:
    """A running server; made by :func:`delay_server`."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port
        self.url = f"http://{HOST}:{port}"

    def seen(self, *, reset: bool = True) -> Seen:
        """What it counted since the last reset, and resets the counts. Blocks for a round trip.

        Raises: OSError where the server is gone.
        """
        return counts(self.port, reset=reset)


def counts(port: int, *, reset: bool = True) -> Seen:
    """What the server at ``port`` counted since the last reset. Blocks for a round trip.

    Raises: OSError where the server is gone.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=START_LIMIT_S)
    try:
        connection.request("GET", "/stats?reset" if reset else "/stats")
        said = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return Seen(**said)


@contextmanager
def delay_server(delay_ms: float) -> Iterator[DelayServer]:
    """A server in a process of its own that answers everything after ``delay_ms``. Blocks until it serves.

    It inherits a listening socket, so there is no port to guess; it ends when its standard input is closed,
    so it does not outlive this process.

    Raises: OSError: no socket, no process, or it did not answer.
    """
    with socket.create_server((HOST, 0), backlog=BACKLOG) as listener:
        port, descriptor = listener.getsockname()[1], listener.fileno()
        module = "mcp_probe.workloads.servers.delay_http"
        command = [sys.executable, "-m", module, "--descriptor", str(descriptor), "--delay-ms", f"{delay_ms:g}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[descriptor])
    try:
        server = DelayServer(process, port)
        server.seen()
        yield server
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves on an inherited socket."""
    parser = argparse.ArgumentParser(description="A local HTTP server that answers after a known delay.")
    parser.add_argument("--descriptor", type=int, required=True)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    options = parser.parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(options.descriptor, options.delay_ms / 1000))


if __name__ == "__main__":
    main()
