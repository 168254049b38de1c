# mypy: ignore-errors
"""A server on mcp 1.x or 2.x that is told what to receive, byte by byte, and tells what it answered.

Usage: odd_input.py bare|native|pure stdio|http|sse [soak]. Each line of stdin is a case, each line of stdout what came
of it, and how large the process is. With the probe it also tells what the probe still holds of the session once that is
over. In a soak the records of requests are not kept.
"""

from __future__ import annotations

import base64
import gc
import io
import json
import logging
import os
import re
import socket
import sys
import threading
import time
from contextlib import suppress

import anyio

try:
    from mcp.server.mcpserver import Context, MCPServer

    OPTIONS = {"log_level": "CRITICAL"}
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer

    OPTIONS = {"log_level": "CRITICAL"}

ALLOWED = {"exchanges": 8, "deliveries": 8, "asking": 8}
"""What may stay, however many sessions there were: contexts of idle connections, questions of the last session."""
QUIET_S = 0.03
LIMIT_S = 60.0
LAST = "the last one"
"""The id of a ping after the case: what came before it has been taken once it is answered."""
VERSION = "2025-06-18"
HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "odd", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
PING = {"jsonrpc": "2.0", "id": LAST, "method": "ping"}
_DATE = re.compile(rb"(?i)^(date: ).*?\r$", re.MULTILINE)


def make_server():
    server = MCPServer("odd input", **OPTIONS)

    @server.tool()
    async def echo(text: str) -> str:
        return text

    @server.tool()
    async def fail(text: str) -> str:
        raise ValueError(text)

    @server.tool()
    async def wait() -> str:
        await anyio.sleep_forever()
        return "never"

    @server.tool()
    async def ask(ctx: Context) -> str:
        await ctx.session.send_ping()
        return "asked"

    @server.prompt()
    def greet(name: str) -> str:
        return name

    @server.resource("note://{key}")
    def note(key: str) -> str:
        return key

    return server


def line(message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _is_ours(kind):
    return str(getattr(kind, "__module__", "")).startswith("mcp_probe")


class Holding:
    """What the probe holds that it should have let go."""

    def __init__(self, probe) -> None:
        self._probe = probe

    def now(self):
        if self._probe is None:
            return {}
        from mcp_probe.capture import heap
        from mcp_probe.capture.current import Exchange
        from mcp_probe.capture.messages import Channel
        from mcp_probe.capture.socket_reads import Delivery

        hub = self._probe._hub
        self._probe.snapshot()
        gc.collect()
        found = {
            "live": len(hub.requests.live),
            "unwritten": hub.requests.unwritten,
            "channels": len(hub.channels),
            "exchanges": 0,
            "deliveries": 0,
        }
        for one in heap.objects():
            kind = type(one)
            if kind is Exchange:
                found["exchanges"] += 1
            elif kind is Delivery:
                found["deliveries"] += 1
            elif kind is Channel:
                for name in ("pending", "repeated", "handed", "sent", "events"):
                    found[name] = found.get(name, 0) + len(getattr(one, name) or ())
                if one.stamps is not None:
                    found["lines"] = found.get("lines", 0) + len(one.stamps.waiting)
                found["asking"] = found.get("asking", 0) + len(one.asked)
            elif kind.__name__ == "HandlerHooks":
                found["scopes"] = len(one._scopes)
        return {name: number for name, number in found.items() if number > ALLOWED.get(name, 0)}

    def objects(self):
        """How many objects of types of the probe there are, without those of who waited for whom.

        Of pairs there may be as many as ``MAX_CELLS``, and a soak is too short to reach that. What each call waited for
        is kept for some seconds: how many calls that is, and how many of them waited, is the machine's business.
        """
        if self._probe is None:
            return 0
        from mcp_probe.capture import heap

        left_out = ("Cell", "Victim", "Wait", "_Trace")
        return sum(_is_ours(kind) and kind.__name__ not in left_out for kind in heap.types())

    def disabled(self):
        hooks = {} if self._probe is None else self._probe._hub.hooks
        return [f"{hook}: {state}" for hook, state in hooks.items() if state.startswith("disabled")]


# --- stdio ---


class Lines:
    """Answers as they come."""

    def __init__(self, ids) -> None:
        self.seen = []
        self.came = time.monotonic()
        self.missing = set(ids)

    def add(self, answer: bytes) -> None:
        self.seen.append(answer)
        self.came = time.monotonic()
        with suppress(ValueError):
            message = json.loads(answer)
            if isinstance(message, dict) and isinstance(message.get("id"), (int, str)):
                self.missing.discard(message["id"])

    def wait(self, over: threading.Event) -> None:
        """Until all that must be answered are, or the session is over, and nothing more comes."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until and not over.is_set():
            if not self.missing and time.monotonic() - self.came > QUIET_S:
                return
            time.sleep(0.005)


def over_stdio(server, chunks, ids=(LAST,)):
    """``ids``: of the requests whose answers are waited for."""
    read_end, their_end = os.pipe()
    our_end, write_end = os.pipe()
    answers, over = Lines(ids), threading.Event()

    def read() -> None:
        with os.fdopen(our_end, "rb") as stream:
            for answer in stream:
                answers.add(answer)

    def talk() -> None:
        with suppress(BrokenPipeError), os.fdopen(their_end, "wb", buffering=0) as requests:
            for chunk in (line(HANDSHAKE) + line(INITIALIZED), *chunks, b"\n" + line(PING)):
                rest = memoryview(chunk)
                while rest:
                    rest = rest[requests.write(rest) :]
            answers.wait(over)

    reader, talker = threading.Thread(target=read, daemon=True), threading.Thread(target=talk, daemon=True)
    reader.start()
    talker.start()
    before = sys.stdin, sys.stdout
    stdin, stdout = io.TextIOWrapper(os.fdopen(read_end, "rb")), io.TextIOWrapper(os.fdopen(write_end, "wb"))
    sys.stdin, sys.stdout = stdin, stdout
    ended = "ok"
    try:
        anyio.run(server.run_stdio_async)
    except BaseException as exc:  # told, and compared
        ended = _name_of(exc)
    finally:
        over.set()
        sys.stdin, sys.stdout = before
        with suppress(ValueError, OSError):
            stdin.close()
        with suppress(ValueError, OSError):
            stdout.close()
        reader.join(LIMIT_S)
        talker.join(LIMIT_S)
    return [ended.encode(), *sorted(answers.seen)]


def _name_of(exc: BaseException) -> str:
    inner = getattr(exc, "exceptions", None)
    return f"{type(exc).__name__}({', '.join(map(_name_of, inner))})" if inner else type(exc).__name__


# --- HTTP ---


class Served:
    """The server on a port, on a thread of its own."""

    def __init__(self, server, transport: str) -> None:
        import uvicorn

        app = server.sse_app() if transport == "sse" else server.streamable_http_app()
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(LIMIT_S)


def exchange(port: int, segments, quiet_s: float = 0.25) -> bytes:
    """What comes back on a connection of its own, until the server closes it or all answers are whole."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port)) as connection, suppress(ConnectionError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for segment in segments:
            connection.sendall(segment)
        connection.settimeout(quiet_s)
        with suppress(TimeoutError):
            while not _is_whole(answer) and (chunk := connection.recv(1 << 16)):
                answer += chunk
    return answer


def _is_whole(answer: bytes) -> bool:
    """Whether it is one response that asks to close the connection, and its body is all there."""
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found or b"connection: close" not in head.lower():
        return False
    size = re.search(rb"(?i)content-length: (\d+)", head)
    return len(body) >= int(size[1]) if size else body.endswith(b"0\r\n\r\n")


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1:80",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    lines += ["Accept: application/json, text/event-stream", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def over_http(port: int, connections):
    greeting = exchange(port, [post("/mcp", line(HANDSHAKE))])
    session = re.search(rb"(?i)mcp-session-id: (\S+)", greeting)[1]
    named = (f"Mcp-Session-Id: {session.decode()}", f"Mcp-Protocol-Version: {VERSION}")
    exchange(port, [post("/mcp", line(INITIALIZED), *named)])
    answers = []
    for segments in connections:
        filled = [segment.replace(b"{SESSION}", session) for segment in segments]
        said = exchange(port, filled).replace(session, b"{SESSION}")
        said = re.sub(rb"(?i)(mcp-session-id: )[0-9a-f]{32}", rb"\1{ANOTHER}", said)
        answers.append(_DATE.sub(rb"\1\r", said))
    exchange(port, [post("/mcp", b"", *named).replace(b"POST", b"DELETE", 1)])
    return answers


def over_sse(port: int, connections, ids=(LAST,)):
    """Answers come on one stream of events; each message by a POST."""
    stream = socket.create_connection(("127.0.0.1", port))
    stream.sendall(b"GET /sse HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n")
    events, over, seen = Lines(ids), threading.Event(), []
    path = threading.Event()
    where = []

    def read() -> None:
        with stream.makefile("rb") as lines, suppress(OSError):
            for one in lines:
                if one.startswith(b"data: /"):
                    where.append(one[6:].strip().decode())
                    path.set()
                elif one.startswith(b"data: "):
                    events.add(one[6:])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert path.wait(LIMIT_S)
    answers = []
    for body in (line(HANDSHAKE), line(INITIALIZED)):
        exchange(port, [post(where[0], body)])
    for segments in connections:
        filled = [segment.replace(b"/mcp", where[0].encode(), 1) for segment in segments]
        answers.append(_DATE.sub(rb"\1\r", exchange(port, filled)))
    exchange(port, [post(where[0], line(PING))])
    events.wait(over)
    stream.shutdown(socket.SHUT_RDWR)
    reader.join(LIMIT_S)
    stream.close()
    return [*answers, *sorted(events.seen), *seen]


def settled(holding: Holding):
    """What is held once the server has had time to notice that a session is over."""
    # Idle connections are closed after 5 s; a stream may notice at its next ping, after 15.
    until = time.monotonic() + 45.0
    while (found := holding.now()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def resident_bytes():
    """Of this process; 0 where there is no ``/proc``."""
    try:
        with open("/proc/self/statm") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main() -> None:
    how, transport, *soak = sys.argv[1:]
    logging.disable(logging.ERROR)
    cases, told = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    server = make_server()
    probe = kept = None
    if how != "bare":
        import mcp_probe
        from tests.kept import keep

        probe = mcp_probe.attach(server, telemetry="off")
        kept = None if soak else keep(probe)
    holding = Holding(probe)
    served = None if transport == "stdio" else Served(server, transport)
    with cases, told:
        for case in cases:
            connections = [[base64.b64decode(chunk) for chunk in chunks] for chunks in json.loads(case)]
            if transport == "stdio":
                answers = over_stdio(server, connections[0])
            elif transport == "http":
                answers = over_http(served.port, connections)
            else:
                answers = over_sse(served.port, connections)
            said = {
                "answers": [base64.b64encode(answer).decode() for answer in answers],
                "held": settled(holding),
                "disabled": holding.disabled(),
                "objects": holding.objects() if soak else 0,
                "resident": resident_bytes(),
            }
            told.write(json.dumps(said).encode() + b"\n")
            told.flush()
        if probe is not None:
            summary = probe.snapshot()
            from mcp_probe.report.console import render

            probe.detach()
            shown = {
                "ok": 0 if kept is None else sum(record.outcome == "ok" for record in kept.requests()),
                "json": json.dumps(summary.to_json(), ensure_ascii=True),
                "console": render(summary, color=False) + render(summary, color=True),
            }
            told.write(json.dumps(shown).encode() + b"\n")
            told.flush()
    if served is not None:
        served.close()
    os._exit(0)  # a server that a case has broken may have left threads that read


if __name__ == "__main__":
    main()
