"""Sessions of streamable HTTP that no client ever closes."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.field.cases.case import PLAIN_MCP_2, Facts, Row, Source, quoted
from tests.field.cases.playing import Start, facts, http_port, server_pid
from tools.field.client import PROTOCOL
from tools.field.first_screen import Truth, near

SOURCE = Source("open_sessions")
SESSIONS = 500
CHECKS = 300
STARTS_S = 30.0
HEAD = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
HELLO = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "visitor", "version": "1"}}


def play(start: Start) -> Facts:
    """Clients that initialize, call once in two, and go away without DELETE; then health checks by GET."""
    sessions, checks = (100, 5) if start.is_brief else (SESSIONS, CHECKS)
    with http_port(start) as (process, port):
        wait_for(port)
        visit(port, 1)  # what the first session costs once
        server = server_pid(start, process)
        before = resident_kb(server)
        for number in range(sessions):
            visit(port, number)
        after = resident_kb(server)
        codes = Counter(check(port) for _ in range(checks))
    return facts(kb_a_session=(after - before) / sessions, refused=sum(codes[code] for code in (400, 405, 406)))


def wait_for(port: int) -> None:
    deadline = time.monotonic() + STARTS_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.1)


def visit(port: int, number: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    session = post(connection, {"id": 0, "method": "initialize", "params": HELLO}).getheader("mcp-session-id")
    assert session, "the server opens no session"
    head = {"mcp-session-id": session}
    post(connection, {"method": "notifications/initialized"}, head)
    if number % 2:
        post(
            connection,
            {"id": 1, "method": "tools/call", "params": {"name": "price", "arguments": {"item": "tea"}}},
            head,
        )
    connection.close()


def post(
    connection: http.client.HTTPConnection, message: Mapping[str, Any], head: Mapping[str, str] | None = None
) -> http.client.HTTPResponse:
    connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), {**HEAD, **(head or {})})
    answer = connection.getresponse()
    answer.read()
    return answer


def check(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/mcp")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def resident_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4


TRUTH = Truth(
    cause="sessions are opened and never closed: memory and tasks grow by session, not by call",
    account="open",
    named=(
        near(r"(?i:\bsessions?\b)", r"(?i:\b(?:open|opened|closed|ended|deleted|idle|stay|stayed|left|kept|grows?)\b)"),
        r"\bsession-growth\b",
    ),
    mends=(r"\bidle\b", r"\bstateless\b", r"\bDELETE\b", r"\bsession_idle_timeout\b"),
    innocents=(quoted("price"), SOURCE.inside("price")),
)


def grows_by_session(facts: Facts) -> bool:
    return facts["kb_a_session"] > 15


REPORT = "modelcontextprotocol/python-sdk#1283"
ROWS = (
    Row("open_sessions", "mcp 1", REPORT, TRUTH, play, grows_by_session, "mcp1", "mcp1"),
    Row("open_sessions", "mcp 2", REPORT, TRUTH, play, grows_by_session, PLAIN_MCP_2, PLAIN_MCP_2, is_slow=True),
)
