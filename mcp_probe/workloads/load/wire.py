"""The protocol as a load generator speaks it: JSON-RPC written and read with the standard library, in either era.

The SDK's client costs 0.4 ms of CPU a call and validates what it reads, which on a small machine is as much as the
server under test does. What is sent here is what that client would send (protocols 2026-07-28 and 2025-11-25).

Source: MCP specification 2026-07-28, basic/index (``_meta``), basic/transports (headers); 2025-11-25, lifecycle.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mcp_probe.capture import sent

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
Era = Literal["auto", "modern", "legacy"]
CLIENT = {"name": "mcp-probe load", "version": "1"}

_PREFIX = "io.modelcontextprotocol/"
MODERN_META: dict[str, Any] = {
    f"{_PREFIX}protocolVersion": MODERN,
    f"{_PREFIX}clientInfo": CLIENT,
    f"{_PREFIX}clientCapabilities": {},
}
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose HTTP request names its object in a header, and the parameter that holds the name."""

_PLAIN = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
MAX_TEXT = 300

NO_ANSWER = "no JSON-RPC answer"
"""The cause of a failure where something came that answers nothing."""


@dataclass(frozen=True, slots=True)
class Order:
    """One request to make: a method and its parameters, without ``_meta``."""

    method: str
    params: Mapping[str, Any]

    @property
    def operation(self) -> str:
        """What a report calls it: the tool, prompt or resource, else the method."""
        name = self.params.get(NAMED.get(self.method, ""))
        return name if isinstance(name, str) and name else self.method


Kind = Literal["ok", "tool error", "protocol error", "transport error"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one request; instants on :func:`mcp_probe.clock.now_ns`.

    ``sent_ns`` is when its bytes were handed to the pipe or to the HTTP client, ``answered_ns`` when those of the
    answer had come, before anything was decoded.
    """

    sent_ns: int
    answered_ns: int
    kind: Kind
    failure: str = ""  # one line, for people; empty for "ok"
    result: Mapping[str, Any] | None = None
    cause: str = ""  # the kind of failure, from a short list: what failures are counted by; empty for "ok"

    @property
    def service_ms(self) -> float:
        """From its own sending to the answer."""
        return (self.answered_ns - self.sent_ns) / 1e6


def encode(number: int | str | None, order: Order, *, modern: bool, sent_ns: int | None = None) -> bytes:
    """One JSON-RPC message, without a line end; ``number`` ``None`` makes a notification."""
    meta: dict[str, Any] = dict(MODERN_META) if modern else {}
    if sent_ns is not None and (stamp := sent.stamp(sent_ns)) is not None:
        meta[sent.KEY] = stamp
    params = {**order.params, "_meta": meta} if meta else order.params
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": order.method}
    if number is not None:
        message["id"] = number
    if params:
        message["params"] = params
    return json.dumps(message, separators=(",", ":")).encode()


def headers_of(order: Order, *, modern: bool) -> dict[str, str]:
    """HTTP headers that belong to this one request."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if modern:
        headers["mcp-protocol-version"] = MODERN
        headers["mcp-method"] = order.method
        name = order.params.get(NAMED.get(order.method, ""))
        if isinstance(name, str):
            headers["mcp-name"] = _header_value(name)
    return headers


def _header_value(text: str) -> str:
    if _PLAIN.fullmatch(text) and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def read(message: Mapping[str, Any], sent_ns: int, answered_ns: int) -> Reply:
    """The reply that a JSON-RPC response makes."""
    if "error" in message:
        error = message["error"] if isinstance(message["error"], Mapping) else {}
        text = one_line(f"{error.get('message', 'an error without a message')} (code {error.get('code')})")
        cause = f"JSON-RPC {one_line(str(error.get('code')))}"
        return Reply(sent_ns, answered_ns, "protocol error", text, cause=cause)
    result = message.get("result")
    if not isinstance(result, Mapping):
        return Reply(sent_ns, answered_ns, "protocol error", "neither a result nor an error", cause=NO_ANSWER)
    if result.get("isError"):
        return Reply(sent_ns, answered_ns, "tool error", one_line(text_of(result)) or "isError", result, "isError")
    if result.get("resultType") == "input_required":
        text = "it asks its client for input"
        return Reply(sent_ns, answered_ns, "protocol error", text, result, "input required")
    return Reply(sent_ns, answered_ns, "ok", "", result)


def text_of(result: Mapping[str, Any]) -> str:
    """The first text of a tool's result."""
    content = result.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, Mapping) and block.get("type") == "text":
            return str(block.get("text", ""))
    return ""


def one_line(text: str) -> str:
    """``text`` on one line, length-capped."""
    joined = " ".join(text.split())
    return joined if len(joined) <= MAX_TEXT else joined[: MAX_TEXT - 1] + "…"


def answer_to_server(message: Mapping[str, Any]) -> bytes:
    """What a client without any capability answers to a request of the server's."""
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
    if message.get("method") == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": f"mcp-probe load has no {message.get('method')}"}
    return json.dumps(answer, separators=(",", ":")).encode()
