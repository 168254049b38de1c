"""An MCP client that shares no code with the SDK or the probe: JSON-RPC by hand, over stdio, streamable HTTP and SSE.

It lives in a process of its own and has its own clock, so what it measures is the truth that a report is held against.
A request's time goes from the write of its first byte to the read of its answer's last.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

PROTOCOL = "2025-06-18"
START_S = 90.0
ANSWER_S = 120.0
END_S = 15.0


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
    """Sends requests without waiting for their answers, which come in on threads."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.exchanges: list[Exchange] = []
        self._by_id: dict[str, Exchange] = {}
        self._answered = threading.Condition()

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
        with self._answered:
            while any(one.answered_s is None for one in wanted):
                if self.process.poll() is not None:
                    raise Silent(f"the server ended with {self.process.returncode}")
                if refused := [one for one in wanted if one.failure and one.answered_s is None]:
                    raise Silent(f"{refused[0].operation}: {refused[0].failure}")
                if time.monotonic() > deadline:
                    late = [one.operation for one in wanted if one.answered_s is None]
                    raise Silent(f"no answer to {', '.join(late[:3])} in {seconds:.0f} s")
                self._answered.wait(0.2)

    def _take(self, text: bytes, at_s: float) -> bool:
        """Whether ``text``, read at ``at_s``, is the answer to a request."""
        try:
            message = json.loads(text)
        except ValueError:
            return False  # some servers print to stdout before they speak
        if not isinstance(message, dict) or "method" in message or message.get("id") not in self._by_id:
            return False
        exchange = self._by_id[message["id"]]
        with self._answered:
            exchange.answered_s = at_s
            if "error" in message:
                exchange.failure = str(message["error"].get("message"))
            elif message["result"].get("isError") or _text(message["result"]).startswith("Error"):
                exchange.failure = _text(message["result"])
            self._answered.notify_all()
        return True

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


class Stdio(Client):
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process)
        self._input, self._output = _pipe(process.stdin), _pipe(process.stdout)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._output:
            self._take(line, time.monotonic())

    def _deliver(self, message: Mapping[str, Any], exchange: Exchange | None) -> None:
        line = json.dumps(message).encode() + b"\n"
        if exchange is not None:
            exchange.sent_s = time.monotonic()
        self._input.write(line)
        self._input.flush()

    def close(self) -> None:
        self._input.close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the process needs pipes for stdin and stdout")
    return stream


class Http(Client):
    """One POST a message, each on a kept-alive connection that is free, else on a new one."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, path: str, headers: Mapping[str, str]) -> None:
        super().__init__(process)
        self.port, self.path = port, path
        self._session = dict(headers)
        self._free: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                if process.poll() is not None:
                    raise Silent(f"the server ended with {process.returncode}") from None
                if time.monotonic() > deadline:
                    raise Silent("nobody listens on the port") from None
                time.sleep(0.05)

    def _deliver(self, message: Mapping[str, Any], exchange: Exchange | None) -> None:
        job = threading.Thread(target=self._post, args=(json.dumps(message).encode(), exchange), daemon=True)
        job.start()
        if exchange is None or exchange.operation == "initialize":
            job.join()  # later messages need the session

    def _post(self, body: bytes, exchange: Exchange | None) -> None:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        with self._lock:
            connection = self._free.pop() if self._free else None
        if exchange is not None:
            exchange.sent_s = time.monotonic()
        connection = connection or http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request("POST", self.path, body, headers | self._session)
            response = connection.getresponse()
            if session := response.getheader("mcp-session-id"):
                self._session |= {"mcp-session-id": session, "mcp-protocol-version": PROTOCOL}
            if response.status >= 300 and exchange is not None:
                exchange.failure = f"HTTP status {response.status}"
            self._read(response)
        except (OSError, http.client.HTTPException) as fault:
            if exchange is not None:
                exchange.failure = f"{type(fault).__name__}: {fault}"
            connection.close()
        else:
            with self._lock:
                self._free.append(connection)

    def _read(self, response: http.client.HTTPResponse) -> None:
        while line := response.readline():
            self._take(line.removeprefix(b"data:"), time.monotonic())
        response.read()  # an empty body counts as read only then, and the connection as free

    def close(self) -> None:
        for connection in self._free:
            connection.close()
        self.process.send_signal(signal.SIGTERM)


class Sse(Http):
    """The older HTTP transport: one stream that brings all answers, and POSTs that only say "accepted"."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, path: str, headers: Mapping[str, str]) -> None:
        super().__init__(process, port, path, headers)
        self._stream = http.client.HTTPConnection("127.0.0.1", port)
        self._stream.request("GET", path, headers={"accept": "text/event-stream"})
        response = self._stream.getresponse()
        while not (line := response.readline()).startswith(b"data:"):
            if not line:
                raise Silent("the event stream ended before it named its endpoint")
        self.path = line.removeprefix(b"data:").strip().decode()
        threading.Thread(target=self._read, args=(response,), daemon=True).start()

    def close(self) -> None:
        self._stream.sock.shutdown(socket.SHUT_RDWR)
        super().close()
