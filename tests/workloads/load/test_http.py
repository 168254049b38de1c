"""The HTTP peer against a real server under uvicorn, and against one that answers what no server should."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.load.http import EventStream
from mcp_probe.workloads.load.mix import Call
from mcp_probe.workloads.load.peer import Peer, Target, listed, names
from mcp_probe.workloads.load.wire import Era, Order, Reply
from tests.workloads.load.raw import talk, tool

SHOP = """
import sys, uvicorn
from mcp.server import MCPServer
server = MCPServer("shop", log_level="ERROR")
@server.tool()
async def price(item: str) -> int:
    return {"tea": 320, "cake": 450}[item]
@server.resource("menu://today")
def menu() -> str:
    return "tea, cake"
uvicorn.run(server.streamable_http_app(json_response=sys.argv[2] == "json"), fd=int(sys.argv[1]), log_level="error")
"""


@contextmanager
def shop(answers: str) -> Iterator[str]:
    """URL of a real server. It inherits the listening socket: no port to guess, and none to wait for."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-c", SHOP, str(listener.fileno()), answers], pass_fds=[listener.fileno()]
        )
        port = listener.getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("answers", ["sse", "json"])
def test_a_real_server_is_spoken_to_in_both_eras_and_both_forms(era: Era, answers: str) -> None:
    async def conversation(peer: Peer) -> tuple[str, list[str], list[Reply]]:
        tools = names(await listed(peer, "tools"))
        orders = [tool("price", item="tea").order(0), Order("resources/read", {"uri": "menu://today"})]
        return peer.protocol, tools, list(await asyncio.gather(*(peer.post(order) for order in orders * 20)))

    with shop(answers) as url:
        protocol, tools, replies = talk(Target(url=url, era=era), conversation)
    assert protocol == ("2026-07-28" if era == "modern" else "2025-11-25")
    assert tools == ["price"]
    assert [reply.failure for reply in replies] == [""] * 40
    assert replies[0].result is not None
    assert replies[0].result["content"][0]["text"] == "320"


def test_a_failing_tool_is_told_from_a_failing_transport() -> None:
    async def conversation(peer: Peer) -> Reply:
        return await peer.post(tool("price", item="coffee").order(0))

    with shop("sse") as url:
        reply = talk(Target(url=url), conversation)
    assert reply.kind == "tool error"
    assert "price" in reply.failure


class Odd(BaseHTTPRequestHandler):
    """Discovers like a server; what it answers to a call is what the call's tool is named after."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        number = message["id"]
        if message["method"] == "server/discover":
            return self.say(200, json.dumps({"id": number, "result": {"supportedVersions": ["2026-07-28"]}}))
        what = message["params"]["name"]
        result = json.dumps({"jsonrpc": "2.0", "id": number, "result": {}})
        ping = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
        if what == "page":
            return self.say(503, "<h1>Sorry</h1>", "text/html")
        if what == "moved":
            return self.say(307, "", location="/elsewhere")
        if what == "empty stream":
            return self.say(200, ": nothing\n\n", "text/event-stream")
        if what == "two lines":
            half = len(result) // 2
            cut = result.index(" ", half)
            data = f"event: message\r\ndata: {ping}\r\n\r\ndata: {result[:cut]}\r\ndata:{result[cut:]}\r\n\r\n"
            return self.say(200, data, "text/event-stream")
        if what == "header":
            return self.say(200, json.dumps({"id": number, "result": {"said": self.headers["x-key"]}}))
        return self.say(200, "not JSON")

    def say(self, status: int, text: str, kind: str = "application/json", location: str = "") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if location:
            self.send_header("location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *unused: Any) -> None:
        pass


@contextmanager
def odd_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("what", "kind", "said"),
    [
        ("page", "transport error", "HTTP 503: <h1>Sorry</h1>"),
        ("moved", "transport error", "HTTP 307 to /elsewhere"),
        ("empty stream", "transport error", "ended without an answer"),
        ("nonsense", "transport error", "HTTP 200: not JSON"),
        ("two lines", "ok", ""),
    ],
)
def test_what_no_server_should_answer_is_a_sentence(what: str, kind: str, said: str) -> None:
    async def conversation(peer: Peer) -> Reply:
        return await peer.post(tool(what).order(0))

    with odd_server() as url:
        reply = talk(Target(url=url), conversation)
    assert (reply.kind, said in reply.failure) == (kind, True), reply


def test_given_headers_are_sent() -> None:
    async def conversation(peer: Peer) -> Reply:
        return await peer.post(tool("header").order(0))

    with odd_server() as url:
        reply = talk(Target(url=url, headers={"X-Key": "sesame"}), conversation)
    assert reply.result == {"said": "sesame"}


def test_a_port_where_nobody_listens_is_named() -> None:
    async def nothing(peer: Peer) -> None:
        raise AssertionError("it should not have connected")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets it meanwhile
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        with pytest.raises(LaunchError, match="nobody listens at"):
            talk(Target(url=url), nothing)


EVENTS = [b"one", b'{"two": 2}', b"three\nlines\nof it"]


@settings(deadline=None)
@given(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 120), max_size=12))
def test_an_event_stream_says_the_same_however_it_is_cut(end: bytes, cuts: list[int]) -> None:
    lines = []
    for data in EVENTS:
        lines += [b"event: message", *(b"data: " + line for line in data.split(b"\n")), b""]
    stream = end.join(lines) + end + b"x" + end  # something after it, so that a last CR is known to stand alone
    places = [0, *sorted(cuts), len(stream)]
    reader, found = EventStream(), []
    for start, stop in pairwise(places):
        found += reader.feed(stream[start:stop])
    assert found == EVENTS


def test_a_name_that_no_header_can_hold_is_sent_encoded() -> None:
    from mcp_probe.workloads.load.wire import headers_of

    plain = headers_of(Call("tools/call", ({"name": "price"},)).order(0), modern=True)
    fancy = headers_of(Call("tools/call", ({"name": "prix €"},)).order(0), modern=True)
    assert plain["mcp-name"] == "price"
    assert fancy["mcp-name"] == "=?base64?cHJpeCDigqw=?="


def test_a_report_names_a_url_without_its_secrets() -> None:
    target = Target(url="https://me:sesame@there:8443/mcp?token=sesame#sesame")
    assert target.name == "https://there:8443/mcp"
