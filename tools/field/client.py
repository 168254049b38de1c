"""An MCP client that shares no code with the SDK or the probe: JSON-RPC by hand, over stdio, streamable HTTP and SSE.

It lives in a process of its own and has its own clock, so what it measures is the truth that a report is held against.
A request's time goes from the write of its first byte to the moment when its answer's last byte is in the client's
pipe or socket. How late the client's thread then gets a CPU is not the server's time and is left out: the kernel says
when bytes came into a socket, and for how long a thread that reads a pipe waited for a CPU. Threads that read only
stamp; answers are parsed by whoever waits for them.
"""

from __future__ import annotations

import json
import os
import queue
import selectors
import signal
import socket
import struct
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

PROTOCOL = "2025-06-18"
STATELESS = "2026-07-28"
START_S = 90.0
ANSWER_S = 120.0
END_S = 15.0
READ_BYTES = 1 << 18

SO_TIMESTAMPNS = 35
"""Not in Python's `socket`. Source: socket(7), asm-generic/socket.h."""
_TIMESPEC = struct.Struct("@qq")


class Silent(Exception):
    """The server did not start, did not answer, or did not end."""


@dataclass(slots=True)
class Exchange:
    """A request and its answer. ``label`` says why it was sent; both instants are seconds on this process's clock."""

    operation: str
    label: str
    sent_s: float = 0.0
    answered_s: float | None = None
    failure: str = ""

    @property
    def ms(self) -> float:
        if self.answered_s is None:
            raise Silent(f"{self.operation} was never answered")
        return (self.answered_s - self.sent_s) * 1e3


class Client(ABC):
    """Sends requests without waiting for their answers, which a thread takes in."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.exchanges: list[Exchange] = []
        self._by_id: dict[str, Exchange] = {}
        self._lines: queue.SimpleQueue[tuple[bytes, float]] = queue.SimpleQueue()

    def start(self) -> None:
        """The handshake."""
        me = {"name": "field", "version": "1"}
        hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": me}
        self.wait([self.request("initialize", hello)], START_S)
        self._deliver({"jsonrpc": "2.0", "method": "notifications/initialized"}, None)

    def request(self, method: str, parameters: Mapping[str, Any] | None = None, *, label: str = "") -> Exchange:
        parameters = parameters or {}
        exchange = Exchange(parameters["name"] if method == "tools/call" else method, label)
        identity = f"r{len(self.exchanges)}"
        self.exchanges.append(exchange)
        self._by_id[identity] = exchange
        self._deliver({"jsonrpc": "2.0", "id": identity, "method": method, "params": parameters}, exchange)
        return exchange

    def call(self, tool: str, arguments: Mapping[str, Any], *, label: str) -> Exchange:
        return self.request("tools/call", {"name": tool, "arguments": arguments}, label=label)

    def wait(self, exchanges: Iterable[Exchange], seconds: float = ANSWER_S) -> None:
        wanted = list(exchanges)
        deadline = time.monotonic() + seconds
        while any(one.answered_s is None for one in wanted):
            try:
                self._take(*self._lines.get(timeout=0.2))
                continue
            except queue.Empty:
                pass
            if self.process.poll() is not None:
                raise Silent(f"the server ended with {self.process.returncode}")
            if refused := [one for one in wanted if one.failure and one.answered_s is None]:
                raise Silent(f"{refused[0].operation}: {refused[0].failure}")
            if time.monotonic() > deadline:
                late = [one.operation for one in wanted if one.answered_s is None]
                raise Silent(f"no answer to {', '.join(late[:3])} in {seconds:.0f} s")

    def _take(self, text: bytes, at_s: float) -> None:
        """If ``text``, complete at ``at_s``, is the answer to a request, that request is answered."""
        try:
            message = json.loads(text)
        except ValueError:
            return  # some servers print to stdout before they speak
        if not isinstance(message, dict) or "method" in message or message.get("id") not in self._by_id:
            return
        exchange = self._by_id[message["id"]]
        exchange.answered_s = at_s
        if "error" in message:
            exchange.failure = str(message["error"].get("message"))
        elif message["result"].get("isError") or _text(message["result"]).startswith("Error"):
            exchange.failure = _text(message["result"])

    @abstractmethod
    def _deliver(self, message: Mapping[str, Any], exchange: Exchange | None) -> None:
        """Hands ``message`` to the server; stamps ``exchange`` before its first byte is written."""

    @abstractmethod
    def close(self) -> None:
        """Ends the session as this transport does; the server may take its time."""

    def end(self) -> int:
        """The exit code."""
        self.close()
        for _ in range(2):
            try:
                return self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGTERM)
        self.process.kill()
        raise Silent("the server did not end")


def _text(result: Mapping[str, Any]) -> str:
    """The first block of a tool's answer; some servers tell of their failures only there."""
    blocks = result.get("content") or [{}]
    return str(blocks[0].get("text", ""))


class RunQueue:
    """How long the thread that made this has waited for a CPU so far. 0 where the system does not say."""

    def __init__(self) -> None:
        try:
            self._file: int | None = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None

    def seconds(self) -> float:
        return 0.0 if self._file is None else int(os.pread(self._file, 100, 0).split()[1]) / 1e9

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


class Stdio(Client):
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process)
        self._input, self._output = _pipe(process.stdin), _pipe(process.stdout)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        run_queue = RunQueue()
        rest = b""
        while True:
            before_s = run_queue.seconds()
            data = os.read(self._output.fileno(), READ_BYTES)
            now_s = time.monotonic()
            if not data:
                break
            at_s = now_s - (run_queue.seconds() - before_s)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._lines.put((line, at_s))
        run_queue.close()
        self._output.close()

    def _deliver(self, message: Mapping[str, Any], exchange: Exchange | None) -> None:
        line = json.dumps(message).encode() + b"\n"
        if exchange is not None:
            exchange.sent_s = time.monotonic()
        self._input.write(line)
        self._input.flush()

    def close(self) -> None:
        self._input.close()

    def release(self) -> None:
        """Closes the pipe of answers, once everybody who could write to it is gone."""
        self._reading.join(END_S)
        self._output.close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the process needs pipes for stdin and stdout")
    return stream


class Connection:
    """One connection of HTTP/1.1 and the answer that comes in on it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port))
        with suppress(OSError):  # then the time of the read has to do
            self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.expect(None)

    def expect(self, exchange: Exchange | None) -> None:
        """A new answer begins, to ``exchange``."""
        self.exchange = exchange
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.complete = False
        self._raw = self._body = b""
        self._received = 0

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        fields = {"host": f"127.0.0.1:{self.port}", "content-length": str(len(body)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    def receive(self) -> tuple[bytes, float]:
        """What has come in, and when the last of it did."""
        data, notes, _, _ = self.socket.recvmsg(READ_BYTES, socket.CMSG_SPACE(_TIMESPEC.size))
        now_s = time.monotonic()
        for level, kind, value in notes:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, ns = _TIMESPEC.unpack(value)
                return data, now_s - max(0.0, time.time() - (seconds + ns / 1e9))
        return data, now_s

    def feed(self, data: bytes) -> list[bytes]:
        """The lines of the body that ``data`` completes."""
        self._raw += data
        if self.status is None:
            head, found, rest = self._raw.partition(b"\r\n\r\n")
            if not found:
                return []
            status, *fields = head.decode().split("\r\n")
            self.status = int(status.split()[1])
            self.headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in fields)}
            self._raw = rest
        if self.headers.get("transfer-encoding") == "chunked":
            self._unchunk()
        else:
            self._body += self._raw
            self._received += len(self._raw)
            self._raw = b""
            self.complete = self._received >= int(self.headers.get("content-length", 0))
        *lines, self._body = self._body.split(b"\n") if not self.complete else [*self._body.split(b"\n"), b""]
        return lines

    def _unchunk(self) -> None:
        while not self.complete:
            size, found, rest = self._raw.partition(b"\r\n")
            if not found or len(rest) < (length := int(size.partition(b";")[0], 16)) + 2:
                return
            self._body += rest[:length]
            self._raw = rest[length + 2 :]
            self.complete = length == 0


class Http(Client):
    """One POST a message, each on a kept-alive connection that is free, else on a new one. One thread reads answers."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, path: str, headers: Mapping[str, str]) -> None:
        super().__init__(process)
        self.port, self.path = port, path
        self._session = dict(headers)
        self._free: list[Connection] = []
        self._all: list[Connection] = []
        self._lock = threading.Lock()
        self._readable = selectors.DefaultSelector()
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise Silent(f"the server ended with {process.returncode}") from None
                if time.monotonic() > deadline:
                    raise Silent("nobody listens on the port") from None
                time.sleep(0.05)
        threading.Thread(target=self._read, daemon=True).start()

    def _deliver(self, message: Mapping[str, Any], exchange: Exchange | None) -> None:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        body = json.dumps(message).encode()
        if exchange is not None:
            exchange.sent_s = time.monotonic()
        with self._lock:
            connection = self._free.pop() if self._free else None
        connection = connection or self._connect()
        connection.expect(exchange)
        connection.send("POST", self.path, headers | self._session, body)

    def _connect(self) -> Connection:
        connection = Connection(self.port)
        self._all.append(connection)
        self._readable.register(connection.socket, selectors.EVENT_READ, connection)
        return connection

    def _read(self) -> None:
        while True:
            # All that has come is stamped before any of it is looked at.
            ready = [key.data for key, _ in self._readable.select()]
            for connection, (data, at_s) in [(one, self._receive(one)) for one in ready]:
                self._take_in(connection, data, at_s)

    def _receive(self, connection: Connection) -> tuple[bytes, float]:
        try:
            return connection.receive()
        except OSError:
            return b"", 0.0

    def _take_in(self, connection: Connection, data: bytes, at_s: float) -> None:
        exchange = connection.exchange
        if not data:
            self._readable.unregister(connection.socket)
            connection.socket.close()
            with self._lock:
                if connection in self._free:
                    self._free.remove(connection)
                elif exchange is not None:
                    exchange.failure = exchange.failure or "the connection was closed"
            return
        lines = connection.feed(data)
        if session := connection.headers.get("mcp-session-id"):  # before the answer: later messages need it
            self._session |= {"mcp-session-id": session, "mcp-protocol-version": PROTOCOL}
        for line in lines:
            self._lines.put((line.strip().removeprefix(b"data:"), at_s))
        if connection.complete:
            if exchange is not None and connection.status is not None and connection.status >= 300:
                exchange.failure = f"HTTP status {connection.status}"
            with self._lock:
                self._free.append(connection)

    def close(self) -> None:
        for connection in self._all:
            with suppress(OSError):  # the server was quicker
                connection.socket.shutdown(socket.SHUT_RDWR)
        self.process.send_signal(signal.SIGTERM)


class Stateless(Http):
    """Streamable HTTP without sessions: each POST says by itself who asks, for what. Source: MCP 2026-07-28."""

    def start(self) -> None:
        """There is no handshake."""

    def _deliver(self, message: Mapping[str, Any], exchange: Exchange | None) -> None:
        parameters = message.get("params", {})
        self._session = {"mcp-protocol-version": STATELESS, "mcp-method": message["method"]}
        if message["method"] == "tools/call":
            self._session["mcp-name"] = parameters["name"]
        meta = {
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientInfo": {"name": "field", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        super()._deliver({**message, "params": {**parameters, "_meta": meta}}, exchange)


class Sse(Http):
    """The older HTTP transport: one stream that brings all answers, and POSTs that only say "accepted"."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, path: str, headers: Mapping[str, str]) -> None:
        super().__init__(process, port, path, headers)
        stream = self._connect()
        stream.send("GET", path, {"accept": "text/event-stream"})
        deadline = time.monotonic() + ANSWER_S
        while not (line := self._line(deadline)).startswith(b"/"):
            pass
        self.path = line.decode()

    def _line(self, deadline: float) -> bytes:
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))[0].strip()
        except queue.Empty:
            raise Silent("the event stream did not name its endpoint") from None
