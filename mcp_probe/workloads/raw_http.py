"""A client of streamable HTTP that does as little as it can: one connection, plain POSTs, nothing parsed unasked.

What it adds to a call is the same for every server and for every size of a result, and it counts the bytes that came
over the socket: an independent truth for what a probe in the server says of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.load.wire import CLIENT, LEGACY, Order, encode, headers_of

SESSION = "Mcp-Session-Id"
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Posted:
    """One answered POST. ``body`` is as it came: JSON, or an SSE stream up to its end."""

    status: int
    body: bytes
    ms: float

    def message(self) -> dict[str, Any]:
        """The last JSON-RPC message in it. Raises: LaunchError where there is none."""
        lines = [line[5:] for line in self.body.splitlines() if line.startswith(b"data:")] or [self.body]
        try:
            found: dict[str, Any] = json.loads(lines[-1])
        except ValueError as exc:
            raise LaunchError(f"The server answered with status {self.status} and no message of MCP.") from exc
        return found

    def text(self) -> str:
        """The first text of a tool's result. Raises: LaunchError where the call failed."""
        message = self.message()
        result = message.get("result", {})
        if "result" not in message or result.get("isError"):
            raise LaunchError(f"The call failed: {message.get('error', result)}")
        blocks: list[dict[str, Any]] = result["content"]
        return str(blocks[0]["text"]) if blocks else ""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of an SSE stream. ``message`` is ``None`` for one that only gives an id to read on from."""

    id: str
    message: dict[str, Any] | None


class RawSession:
    """One connection to ``url``. Blocks: use it from one thread at a time.

    ``session_id`` is what the server gave at :meth:`open`; ``None``: it keeps no sessions, or was not asked. In
    protocol 2026-07-28 (``modern``) there is nothing to open. Connections that
    share a session need ids of their own (``first_id``): an id that is open twice may never be answered.
    """

    def __init__(self, url: str, *, modern: bool = False, first_id: int = 1) -> None:
        parts = urlsplit(url)
        self._path = parts.path
        self._connection = HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        self.modern = modern
        self._number = first_id - 1
        self.session_id: str | None = None

    def __enter__(self) -> RawSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the server keeps the session."""
        self._connection.close()

    def open(self) -> None:
        """Shakes hands. Raises: LaunchError where the server refuses."""
        answer = self._request(
            Order("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT})
        )
        if "result" not in answer.message():
            raise LaunchError(f"The server refused to initialize: {answer.body[:200]!r}")
        order = Order("notifications/initialized", {})
        self._exchange("POST", encode(None, order, modern=False), self._headers(order))

    def call(self, tool: str, **arguments: Any) -> Posted:
        """One tool call, whatever came of it."""
        return self._request(Order("tools/call", {"name": tool, "arguments": arguments}))

    def stream(self, tool: str, **arguments: Any) -> Iterator[Event]:
        """One tool call whose answer is read event by event; asks for progress."""
        self._number += 1
        order = Order("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": self._number}})
        return self._events("POST", encode(self._number, order, modern=self.modern), self._headers(order))

    def resume(self, last_id: str) -> Iterator[Event]:
        """The events after ``last_id`` in its stream."""
        headers = {**self._headers(Order("", {})), "accept": "text/event-stream", "last-event-id": last_id}
        return self._events("GET", None, headers)

    def _events(self, method: str, body: bytes | None, headers: dict[str, str]) -> Iterator[Event]:
        """Until the stream ends, or nobody wants more."""
        self._connection.request(method, self._path, body, headers)
        response = self._connection.getresponse()
        if response.status != HTTPStatus.OK:
            raise LaunchError(f"The server answered with status {response.status}: {response.read()[:200]!r}")
        fields: dict[bytes, bytes] = {}
        while line := response.readline():
            name, _, value = line.rstrip(b"\r\n").partition(b":")
            if name:
                fields[name] = value.strip()
            elif not line.strip() and fields:
                data = fields.get(b"data", b"")
                yield Event(fields.get(b"id", b"").decode(), json.loads(data) if data else None)
                fields = {}

    def end(self) -> int:
        """Has the server forget the session; its status."""
        return self._exchange("DELETE", None, self._headers(Order("", {}))).status

    def _request(self, order: Order) -> Posted:
        self._number += 1
        body = encode(self._number, order, modern=self.modern)
        return self._exchange("POST", body, self._headers(order))

    def _headers(self, order: Order) -> dict[str, str]:
        headers = headers_of(order, modern=self.modern)
        if not self.modern and order.method != "initialize":
            headers["mcp-protocol-version"] = LEGACY
        if self.session_id is not None:
            headers[SESSION] = self.session_id
        return headers

    def _exchange(self, method: str, body: bytes | None, headers: dict[str, str]) -> Posted:
        began = time.perf_counter_ns()
        self._connection.request(method, self._path, body, headers)
        response = self._connection.getresponse()
        found = response.read()
        elapsed_ms = (time.perf_counter_ns() - began) / 1e6
        self.session_id = response.headers.get(SESSION) or self.session_id
        return Posted(response.status, found, elapsed_ms)
