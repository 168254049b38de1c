"""Exported scripts: run by the tools they are for, against a server that counts what it gets."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mcp_probe.errors import OptionError
from mcp_probe.workloads.load.export import Tool, script_of
from mcp_probe.workloads.load.mix import Call, Mix
from mcp_probe.workloads.load.peer import Target
from mcp_probe.workloads.load.wire import Era
from tests.workloads.load.raw import tool

CALLS = (
    Call("tools/call", ({"name": "tea", "arguments": {"n": 1}}, {"name": "tea", "arguments": {"n": 2}}), 3.0),
    tool("broken"),
    Call("tools/list", ({},)),
)
MIX = Mix(CALLS, rate=40, seconds=10, warm_up=0, drain=5)


class Counting(BaseHTTPRequestHandler):
    """Answers as an event stream, and the tool ``broken`` with an error; counts what came, by tool or method."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[Counter[str]]
    arguments: ClassVar[Counter[str]]
    strange: ClassVar[list[str]]

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = message.get("params", {}).get("name", message["method"])
        self.seen[name] += 1
        self.arguments[json.dumps(message.get("params", {}).get("arguments"))] += 1
        self.look_at(message)
        result: dict[str, Any] = {"content": [], "isError": name == "broken"}
        answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
        body = b"" if message.get("id") is None else f"event: message\ndata: {json.dumps(answer)}\n\n".encode()
        self.send_response(200 if body else 202)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        if message["method"] == "initialize":
            self.send_header("mcp-session-id", "one")
        self.end_headers()
        self.wfile.write(body)

    def look_at(self, message: dict[str, Any]) -> None:
        if message["method"] == "initialize":
            return
        if "mcp-session-id" in self.headers:
            right = self.headers["mcp-protocol-version"] == "2025-11-25"
        else:
            version = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"]
            right = self.headers["mcp-method"] == message["method"] and self.headers["mcp-protocol-version"] == version
        if not right or self.headers["x-key"] != "sesame":
            self.strange.append(f"{message['method']}: {dict(self.headers)}")

    def log_message(self, *unused: Any) -> None:
        pass


@contextmanager
def counting_server() -> Iterator[tuple[str, type[Counting]]]:
    handler = type("Fresh", (Counting,), {"seen": Counter(), "arguments": Counter(), "strange": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp", handler
        finally:
            server.shutdown()
            thread.join()


def script_in(folder: Path, name: Tool, url: str, era: Era) -> Path:
    script = folder / ("locustfile.py" if name == "locust" else "load.js")
    script.write_text(script_of(name, MIX, Target(url=url, era=era, headers={"x-key": "sesame"})), encoding="utf-8")
    return script


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)


def check(handler: type[Counting], era: Era) -> int:
    """The tool kept to the mix. Returns how many requests of it came."""
    assert handler.strange == []
    if era == "legacy":
        assert handler.seen.pop("initialize") == handler.seen.pop("notifications/initialized") >= 1
    sent = sum(handler.seen.values())
    assert set(handler.seen) == {"tea", "broken", "tools/list"}
    assert handler.seen["tea"] > handler.seen["broken"]
    assert handler.arguments['{"n": 1}'] > 0
    assert handler.arguments['{"n": 2}'] > 0
    return sent


def counted_by_locust(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[int, int]]:
    """(requests, failures) of each row of the final statistics; worker processes print an empty list beside it."""
    rows, _ = json.JSONDecoder().raw_decode(done.stdout, done.stdout.index("[\n"))
    return {row["name"]: (row["num_requests"], row["num_failures"]) for row in rows}


@pytest.mark.workloads
@pytest.mark.slow
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_locust_runs_the_mix(tmp_path: Path, env_python: Callable[[str], Path], era: Era) -> None:
    locust = str(env_python("locust").with_name("locust"))
    with counting_server() as (url, handler):
        script = script_in(tmp_path, "locust", url, era)
        found = re.search(r"LENGTH: +(--.*)", script.read_text())
        assert found is not None
        done = run([locust, "-f", script.name, "--headless", "--json", *found.group(1).split()], tmp_path)
    sent = check(handler, era)
    assert counted_by_locust(done) == {
        "tea": (handler.seen["tea"], 0),
        "broken": (handler.seen["broken"], handler.seen["broken"]),
        "tools/list": (handler.seen["tools/list"], 0),
    }
    # Its users begin late on a busy machine, and then send no more than is due.
    assert 20 <= sent <= 40 * 10 + 10


@pytest.mark.workloads
def test_locust_spreads_the_mix_over_processes(tmp_path: Path, env_python: Callable[[str], Path]) -> None:
    locust = str(env_python("locust").with_name("locust"))
    length = ["--users", "2", "--spawn-rate", "2", "--run-time", "10s", "--stop-timeout", "10"]
    with counting_server() as (url, handler):
        script = script_in(tmp_path, "locust", url, "modern")
        done = run([locust, "-f", script.name, "--headless", "--json", "--processes", "2", *length], tmp_path)
    sent = check(handler, "modern")
    assert done.stdout.count("[]") == 2
    assert sum(requests for requests, _ in counted_by_locust(done).values()) == sent > 0


@pytest.mark.slow
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_k6_runs_the_mix(tmp_path: Path, era: Era) -> None:
    k6 = os.environ.get("K6") or shutil.which("k6")
    if k6 is None:
        pytest.skip("k6 is not on PATH")
    with counting_server() as (url, handler):
        script = script_in(tmp_path, "k6", url, era)
        done = run([k6, "run", "--quiet", "--summary-export", "out.json", script.name], tmp_path)
    sent = check(handler, era)
    metrics = json.loads((tmp_path / "out.json").read_text())["metrics"]
    assert metrics["mcp_latency"]["count"] == sent, done.stderr
    assert metrics["mcp_failed"]["passes"] == handler.seen["broken"]
    dropped = metrics.get("dropped_iterations", {}).get("count", 0)
    assert 399 <= sent + dropped <= 401


def test_k6_refuses_what_it_cannot_do() -> None:
    with pytest.raises(OptionError, match="Locust"):
        script_of("k6", Mix(CALLS, arrivals="poisson"), Target(url="http://a/mcp"))


@pytest.mark.parametrize("name", ["locust", "k6"])
def test_nothing_is_left_to_fill_in(name: Tool) -> None:
    for era in ("modern", "legacy"):
        text = script_of(name, MIX, Target(url="http://a/mcp", era=era))
        assert "@@" not in text
    if name == "locust":
        compile(text, "locustfile.py", "exec")
