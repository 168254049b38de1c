"""A client of a probed HTTP server that writes HTTP itself, and notes on the server's clock when it did.

A tool holds the loop of the server. Meanwhile requests come. The client knows when the last byte of each was written.
"""

from __future__ import annotations

import json
import signal
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import RequestRecord, Summary
from mcp_probe.record.file import read_recording
from tests.adapters.asgi_client import META, message
from tests.adapters.http_truth_server import Served

MS = 1_000_000
BLOCK_MS = 500
LAG_MS = 120
"""From one piece of a request to the next."""
ABOUT_MS = 10
"""How far an arrival that counts as known may lie off: a tick of the kernel's clock, and the client's own delay."""
ROOT = Path(__file__).resolve().parent.parent.parent

LONG_BYTES = 40_000
"""A body of three TLS records, that no server stops reading for."""

KNOWN = ("prompt", "before_accept", "keep_alive", "two_pieces", "long")
PIPELINED = ("first_of_two", "second_of_two", "first_then", "then_second")
NAMES = (*KNOWN, *PIPELINED)


Span = tuple[int, int]


class Connection:
    """One connection of a raw client."""

    def __init__(self, bind: str, context: ssl.SSLContext | None = None) -> None:
        kind, _, path = bind.partition(":")
        if kind == "unix":
            with ExitStack() as undo:
                self.socket: Any = undo.enter_context(socket.socket(socket.AF_UNIX))
                self.socket.connect(path)
                undo.pop_all()
        else:
            host, _, port = bind.rpartition(":")
            self.socket = socket.create_connection((host.strip("[]"), int(port)))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(60)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self._unread = b""

    def send(self, data: bytes) -> Span:
        """Write ``data``; when, in ns."""
        began = time.monotonic_ns()
        self.socket.sendall(data)
        return began, time.monotonic_ns()

    def answer(self) -> Span:
        """Read one answer; when it had come, in ns. A busy client reads it later than that."""
        self.receive()
        return self.came()

    def came(self) -> Span:
        """When what was just read had come: by the kernel's clock, and at the latest."""
        now = time.monotonic_ns()
        try:
            info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        except (AttributeError, OSError):  # not Linux, or no TCP
            return now, now
        (ago_ms,) = struct.unpack_from("=I", info, 52)  # tcpi_last_data_recv, include/uapi/linux/tcp.h
        return now - ago_ms * MS, now

    def ask(self, tool: str) -> str:
        """The text that ``tool`` answers."""
        self.send(post(tool))
        return text_of(self.receive())

    def receive(self) -> bytes:
        """Read one answer, headers and body."""
        while b"\r\n\r\n" not in self._unread:
            self._more()
        head, _, rest = self._unread.partition(b"\r\n\r\n")
        assert b" 200 " in head.partition(b"\r\n")[0], head
        (length,) = [
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        while len(rest) < length:
            self._more()
            rest = self._unread.partition(b"\r\n\r\n")[2]
        self._unread = rest[length:]
        return head + b"\r\n\r\n" + rest[:length]

    def _more(self) -> None:
        got = self.socket.recv(65_536)
        assert got, "the server has closed the connection"
        self._unread += got

    def close(self) -> None:
        self.socket.close()


def text_of(answer: bytes) -> str:
    """What the tool said."""
    text: str = json.loads(answer.partition(b"\r\n\r\n")[2])["result"]["content"][0]["text"]
    return text


def post(tool: str, padding: int = 0, **arguments: Any) -> bytes:
    """A whole HTTP request that calls ``tool``."""
    meta = {**META, "padding": "x" * padding} if padding else META
    body = message(1, "tools/call", name=tool, arguments=arguments, _meta=meta)
    head = (
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:8000\r\ncontent-type: application/json\r\n"
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
        f"mcp-method: tools/call\r\nmcp-name: {tool}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def halves(request: bytes) -> tuple[bytes, bytes]:
    """Headers and the beginning of the body; the rest."""
    cut = request.index(b"\r\n\r\n") + 40
    return request[:cut], request[cut:]


class Client:
    """Sends requests while the loop is blocked, and keeps when each one's last byte was written and answered."""

    def __init__(self, bind: str, context: ssl.SSLContext | None) -> None:
        self._bind = bind
        self._context = context
        self._open: list[Connection] = []
        self.sent: dict[str, Span] = {}
        self.answered: dict[str, Span] = {}
        self.blocked: dict[str, Span] = {}  # of what was sent behind a block: when it certainly blocked
        self.held_until: dict[str, int] = {}  # of what was sent behind a block: before then it certainly did not end

    def connect(self) -> Connection:
        connection = Connection(self._bind, self._context)
        self._open.append(connection)
        return connection

    def wait_for_server(self) -> None:
        for _ in range(1200):
            try:
                self.used()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError("nobody listens")

    def used(self) -> Connection:
        """A connection that has had a request."""
        connection = self.connect()
        connection.send(post("quick"))
        connection.answer()
        return connection

    @contextmanager
    def block(self, lag_ms: float = LAG_MS) -> Iterator[None]:
        """The loop is blocked; ``lag_ms`` of it have passed."""
        blocker, before = self.used(), set(self.sent)
        began, _ = blocker.send(post("block", ms=BLOCK_MS))
        time.sleep(lag_ms / 1000)
        yield
        ended = int(text_of(blocker.receive()))
        self.blocked |= dict.fromkeys(self.sent.keys() - before, (ended - BLOCK_MS * MS, ended))
        self.held_until |= dict.fromkeys(self.sent.keys() - before, began + BLOCK_MS * MS)

    def was_in_time(self) -> bool:
        """What was to come behind a block did, by our clock and that of the tool which blocked."""
        return all(self.sent[name][1] < ended - ABOUT_MS * MS for name, (_, ended) in self.blocked.items())

    def play(self) -> None:
        """Every scene that any server can serve."""
        one = self.used()
        time.sleep(0.1)
        self.sent["prompt"] = one.send(post("prompt"))
        self.answered["prompt"] = one.answer()
        with self.block():
            new = self.connect()
            self.sent["before_accept"] = new.send(post("before_accept"))
        self.answered["before_accept"] = new.answer()
        kept = self.used()
        self.behind_a_block(kept)
        self.pipelined(kept)

    def pipelined(self, kept: Connection) -> None:
        """Two requests that do not wait for each other's answer: in one piece, and in two."""
        with self.block():
            self.sent["first_of_two"] = self.sent["second_of_two"] = kept.send(
                post("first_of_two") + post("second_of_two")
            )
        self.answered["first_of_two"] = kept.answer()
        self.answered["second_of_two"] = kept.answer()
        with self.block():
            self.sent["first_then"] = kept.send(post("first_then"))
            time.sleep(LAG_MS / 1000)
            self.sent["then_second"] = kept.send(post("then_second"))
        self.answered["first_then"] = kept.answer()
        self.answered["then_second"] = kept.answer()

    def behind_a_block(self, kept: Connection) -> None:
        """A request in one piece, a long one, and one in two, on a connection that is kept alive."""
        for name, padding in (("keep_alive", 0), ("long", LONG_BYTES)):
            with self.block():
                self.sent[name] = kept.send(post(name, padding))
            self.answered[name] = kept.answer()
        first, second = halves(post("two_pieces"))
        with self.block():
            kept.send(first)
            time.sleep(LAG_MS / 1000)
            self.sent["two_pieces"] = kept.send(second)
        self.answered["two_pieces"] = kept.answer()

    def close(self) -> None:
        for connection in self._open:
            connection.close()


class Seen:
    """What the client knows, and what the server recorded."""

    def __init__(self, client: Client, recording: Path) -> None:
        frames = list(read_recording(recording))
        self.client = client
        self.records = {each.name: each for each in frames if isinstance(each, RequestRecord)}
        fold = Fold()
        for frame in frames:
            fold.add(frame)
        self.summary: Summary = fold.summary()

    def arrived(self, name: str) -> tuple[int, int]:
        """The bounds of its arrival, in ns."""
        record = self.records[name]
        earliest = record.arrival_ns
        for field, tag, low, high in record.quality:
            if field == "queue_transport":
                assert tag == "bounded" and low is not None and high is not None, f"{name} has no earliest arrival"
                earliest -= high - low
        return earliest, record.arrival_ns

    def off_ms(self, name: str) -> tuple[float, float]:
        """How much earlier and later than its last byte was written it may have come."""
        earliest, latest = self.arrived(name)
        began, ended = self.client.sent[name]
        return least(began - earliest, ended - earliest), least(latest - ended, latest - began)

    def waited_ms(self, name: str) -> tuple[float, float]:
        """How long the client waited for its answer, at least and at most."""
        return waited_ms(self.client.sent[name], self.client.answered[name])

    def held_ms(self, name: str) -> float:
        """Of that, what the block took at least. On a busy machine the answer takes its time after it, too."""
        return (self.client.held_until[name] - self.client.sent[name][1]) / MS


def waited_ms(sent: Span, answered: Span) -> tuple[float, float]:
    """From a request's last byte to its answer, at least and at most: both lie within a span."""
    return (answered[0] - sent[1]) / MS, (answered[1] - sent[0]) / MS


def least(low: int, high: int) -> float:
    """What is closest to 0 between the two, in ms: the client may lose its CPU while it writes."""
    return (low if low > 0 else min(high, 0)) / MS


@contextmanager
def running(served: Served, context: ssl.SSLContext | None = None) -> Iterator[Client]:
    """A client of a server that is up."""
    with subprocess.Popen(served.command(), stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"listening\n"
            client = Client(served.bind, context)
            try:
                client.wait_for_server()
                yield client
            finally:
                client.close()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
