"""HTTP servers as they are deployed: several workers, behind a proxy, with HTTP/2; and spans of who waited there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import h2.connection
import h2.events
import pytest

from tests.adapters.http_scenes import (
    ABOUT_MS,
    BLOCK_MS,
    LAG_MS,
    MS,
    ROOT,
    Client,
    Connection,
    Seen,
    Span,
    post,
    running,
    waited_ms,
)
from tests.adapters.http_truth_server import Served
from tests.adapters.raw_clients import HttpClient
from tests.export.otlp_backend import HttpBackend
from tests.export.speaking import FAST, environment
from tests.ports import free_port

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when a segment came")

UVICORN = ("-m", "uvicorn", "tests.adapters.http_truth_app:app", "--log-level", "error", "--loop", "asyncio")


# --- several workers ----------------------------------------------------------------------------------------


@linux
def test_each_worker_has_a_report_that_says_whom_its_own_victims_waited_for(tmp_path: Path) -> None:
    bind = f"127.0.0.1:{free_port()}"
    outputs = ["--json", str(tmp_path / "json"), "--output", str(tmp_path / "report")]
    server = [sys.executable, *UVICORN, "--workers", "2", "--port", bind.rpartition(":")[2]]
    command = [sys.executable, "-m", "mcp_probe", "run", *outputs, "--", *server]
    client = Client(bind, None)
    with subprocess.Popen(command, cwd=ROOT, env=environment()) as run:
        try:
            client.wait_for_server()
            waited = waits_at_each_worker(client)
        finally:
            client.close()
            run.send_signal(signal.SIGTERM)
            run.wait(120)
    assert len(waited) == 2
    found = {}
    for ending in ("", ".2"):
        summary = json.loads((tmp_path / f"json{ending}").read_text("utf-8"))
        found[str(summary["server"]["pid"])] = summary
        said = " ".join((tmp_path / f"report{ending}").read_text("utf-8").split())
        assert f"Process {summary['server']['pid']}, one of 2 that served MCP." in said
    assert found.keys() == waited.keys()
    for process, (least, most, held) in waited.items():
        summary = found[process]
        assert summary["server"]["processes"] == 2
        (row,) = [row for row in summary["operations"] if row["name"] == "victim"]
        assert row["count"] == 1
        bounds = row["quality"]["total_ms_p50"]
        assert bounds["lo"] - ABOUT_MS < most and least < bounds["hi"] + ABOUT_MS
        assert bounds["hi"] - bounds["lo"] < 20
        (blame,) = [row for row in summary["blocked_by"] if (row["victim"], row["blocker"]) == ("victim", "block")]
        assert 0.9 * held < blame["lo_ms"] + ABOUT_MS
        assert blame["lo_ms"] <= blame["hi_ms"] < most + ABOUT_MS


def waits_at_each_worker(client: Client) -> dict[str, tuple[float, float, float]]:
    """Process -> ms that a request waited while another connection's tool blocked: at least, at most, for that tool."""
    waited = {}
    for process, (blocker, victim, *_) in at_each_worker(client).items():
        began, _ = blocker.send(post("block", ms=BLOCK_MS))
        time.sleep(LAG_MS / 1000)
        sent = victim.send(post("victim"))
        waited[process] = (*waited_ms(sent, victim.answer()), (began - sent[1]) / MS + BLOCK_MS)
        blocker.answer()
    return waited


def at_each_worker(client: Client) -> dict[str, list[Connection]]:
    """Two connections or more to each of two processes."""
    one = client.connect()
    found = {one.ask("process"): [one]}
    for _ in range(100):
        if len(found) == 2 and min(map(len, found.values())) >= 2:
            return found
        full = max(found.values(), key=len)[0]
        full.send(post("block", ms=BLOCK_MS))
        time.sleep(LAG_MS / 1000)
        new = client.connect()  # who is blocked does not accept it, so the other one does if it is up
        found.setdefault(new.ask("process"), []).append(new)
        full.answer()
    raise AssertionError("one of the workers takes no connection")


# --- behind a proxy -----------------------------------------------------------------------------------------

HELD_MS = 100
OF_THE_PROXY = {"x-forwarded-for": "203.0.113.7", "via": "1.1 a-proxy-of-this-test"}


class Proxy:
    """A reverse proxy that holds each complete request for a while; ``forwarded``: when it wrote it, by its tool."""

    def __init__(self, bind: str, added: dict[str, str]) -> None:
        self.forwarded: dict[str, Span] = {}
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.upstream = Connection(bind)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = [*self.headers.items(), *added.items()]
                head = f"POST {self.path} HTTP/1.1\r\n" + "".join(f"{key}: {value}\r\n" for key, value in headers)
                time.sleep(HELD_MS / 1000)
                proxy.forwarded[self.headers["mcp-name"]] = self.upstream.send(head.encode() + b"\r\n" + body)
                self.wfile.write(self.upstream.receive())

            def finish(self) -> None:
                super().finish()
                self.upstream.close()

            def log_message(self, *unused: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.bind = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Proxy:
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@linux
@pytest.mark.parametrize("added", [OF_THE_PROXY, {}], ids=["says so", "says nothing"])
def test_behind_a_proxy_a_request_arrives_with_the_proxys_bytes_and_the_report_says_so(
    added: dict[str, str], tmp_path: Path
) -> None:
    recording = tmp_path / "recording"
    bind = f"127.0.0.1:{free_port()}"
    served = Served("httptools", "asyncio", bind, str(recording), ("proxied",))
    with running(served) as direct, Proxy(bind, added) as proxy:
        client = Client(proxy.bind, None)
        kept = client.used()
        with direct.block():
            client.sent["proxied"] = kept.send(post("proxied"))
            client.answered["proxied"] = kept.answer()
        client.close()
    seen = Seen(client, recording)
    sent, _ = client.sent["proxied"]
    client.sent["proxied"] = began, _ = proxy.forwarded["proxied"]
    assert began - sent >= HELD_MS * MS
    early, late = seen.off_ms("proxied")
    assert -ABOUT_MS < early < ABOUT_MS
    assert -ABOUT_MS < late < ABOUT_MS
    assert seen.summary.server.behind_proxy is bool(added)
    for value in OF_THE_PROXY.values():
        assert value.encode() not in recording.read_bytes()


# --- HTTP/2 -------------------------------------------------------------------------------------------------


class Http2(Connection):
    """A connection that speaks HTTP/2 from its first byte on."""

    def __init__(self, bind: str) -> None:
        super().__init__(bind)
        self._h2 = h2.connection.H2Connection()
        self._h2.initiate_connection()
        self._over: dict[int, Span] = {}  # stream -> when its answer was complete, in ns
        self._flush()

    def head(self, request: bytes) -> int:
        """Write the headers of an HTTP/1.1 request as those of a stream."""
        stream: int = self._h2.get_next_available_stream_id()
        first, *lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        headers = [line.split(": ", 1) for line in lines]
        host = next(value for name, value in headers if name == "host")
        method, path, _ = first.split()
        pseudo = [(":method", method), (":path", path), (":scheme", "http"), (":authority", host)]
        self._h2.send_headers(stream, [*pseudo, *((name, value) for name, value in headers if name != "host")])
        self._flush()
        return stream

    def body(self, stream: int, request: bytes) -> Span:
        """Write its body, which ends it; when, in ns."""
        self._h2.send_data(stream, request.partition(b"\r\n\r\n")[2], end_stream=True)
        return self._flush()

    def whole(self, request: bytes) -> tuple[int, Span]:
        """Write a request."""
        stream = self.head(request)
        return stream, self.body(stream, request)

    def answer_of(self, stream: int) -> Span:
        """Read until it has its answer; when that had come, in ns."""
        while stream not in self._over:
            got = self.socket.recv(65_536)
            assert got, "the server has closed the connection"
            came = self.came()
            for event in self._h2.receive_data(got):
                if isinstance(event, h2.events.ResponseReceived):
                    assert dict(event.headers)[b":status"] == b"200"
                elif isinstance(event, h2.events.StreamEnded):
                    self._over[event.stream_id] = came
                elif isinstance(event, h2.events.StreamReset):
                    raise AssertionError("the server has reset the stream")
            self._flush()
        return self._over[stream]

    def _flush(self) -> Span:
        return self.send(self._h2.data_to_send())


STREAMS = ("one", "then", "body_later", "in_between")


@linux
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_request_over_http2_arrived_within_its_bounds(loop: str, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    bind = f"127.0.0.1:{free_port()}"
    with running(Served("hypercorn", loop, bind, str(recording), STREAMS)) as client:
        kept = Http2(bind)
        try:
            for _ in range(2):
                kept.answer_of(kept.whole(post("quick"))[0])
            play_over_http2(client, kept)
        finally:
            kept.close()
    seen = Seen(client, recording)
    for name in STREAMS:
        early, late = seen.off_ms(name)
        assert early > -ABOUT_MS, name
        assert late > -ABOUT_MS, name
        (row,) = [row for row in seen.summary.operations if row.name == name]
        least, most = seen.waited_ms(name)
        quality = row.quality["total_ms_p50"]
        assert quality.tag == "bounded" and quality.lo is not None and quality.hi is not None
        assert quality.lo - ABOUT_MS < most and least < quality.hi + ABOUT_MS
    assert seen.off_ms("body_later")[1] < ABOUT_MS, "no later than what came last"


def play_over_http2(client: Client, kept: Http2) -> None:
    """One request and then another, behind a block; one whose body comes in it, while another comes whole."""
    streams = {}
    with client.block():
        streams["one"], client.sent["one"] = kept.whole(post("one"))
        time.sleep(LAG_MS / 1000)
        streams["then"], client.sent["then"] = kept.whole(post("then"))
    for name in ("one", "then"):
        client.answered[name] = kept.answer_of(streams[name])
    request = post("body_later")
    stream = kept.head(request)
    kept.answer_of(kept.whole(post("quick"))[0])  # so its headers have been read
    with client.block():
        streams["in_between"], client.sent["in_between"] = kept.whole(post("in_between"))
        time.sleep(LAG_MS / 1000)
        client.sent["body_later"] = kept.body(stream, request)
    client.answered["in_between"] = kept.answer_of(streams["in_between"])
    client.answered["body_later"] = kept.answer_of(stream)


# --- spans --------------------------------------------------------------------------------------------------

SPANS = ["mcp 2, ours", "mcp 2, the application's", "mcp 1"]


@linux
@pytest.mark.parametrize("case", SPANS)
def test_over_http_a_victims_span_names_its_blocker_and_links_to_its_span(
    case: str, env_python: Callable[[str], Path], tmp_path: Path
) -> None:
    port = free_port()
    with HttpBackend() as backend:
        env = environment(**FAST)
        own = case == "mcp 2, the application's"
        if case == "mcp 1":
            command = [str(env_python("mcp1")), str(Path(__file__).with_name("server_1x.py")), "http", str(port)]
            amount = {"seconds": BLOCK_MS / 1000}
        else:
            command = [sys.executable, *UVICORN, "--port", str(port)]
            amount = {"ms": BLOCK_MS}
        env |= {"TRACES_TO": backend.url} if own else {"MCP_PROBE_OTLP": backend.url}
        called, arguments = ("add", {"a": 1, "b": 1}) if case == "mcp 1" else ("victim", {})
        with HttpClient(command, tmp_path, env, port, "/mcp", profiled=own) as client:
            client.call("warm", called, **arguments)
            client.wait_for("warm")
            client.call("block", "block", **amount)
            while "block" not in client.handed:
                time.sleep(0.001)
            time.sleep(LAG_MS / 1000)
            client.call("held up", called, **arguments)
            client.wait_for("block", "held up")
        spans = {spoken(span)["jsonrpc.request.id"]: span for span in backend.kept.spans() if span.name[:5] == "tools"}
    victim, blocker = spans["held up"], spans["block"]
    attributes = spoken(victim)
    assert attributes["mcp_probe.blocked_by"] == "block"
    event = next(event for event in victim.events if spoken(event)["mcp_probe.blocker"] == "block")
    assert event.name == "mcp_probe.blocked_by"
    told = spoken(event)
    held_ms = (client.sent["block"] - client.sent["held up"]) * 1e3 + BLOCK_MS  # the block ended no earlier
    least_ms, took_ms = min(held_ms, client.least_ms("held up")), client.latency_ms("held up")
    assert 0.9 * least_ms - ABOUT_MS < told["mcp_probe.duration"] * 1e3 < took_ms + ABOUT_MS
    assert told["mcp_probe.quality"] == "bounded"
    assert told["mcp_probe.duration"] <= told["mcp_probe.duration_max"] < (took_ms + ABOUT_MS) / 1e3
    assert (blocker.trace_id, blocker.span_id) in [(link.trace_id, link.span_id) for link in victim.links]
    least, most = (attributes[f"mcp_probe.queue_wait.transport{end}"] * 1e3 for end in ("", "_max"))
    assert least < most < least + 20
    assert "queue_wait.transport=bounded" in attributes["mcp_probe.quality"]


def spoken(carrier: Any) -> dict[str, Any]:
    """The attributes of a span or an event that came over OTLP."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in carrier.attributes}
