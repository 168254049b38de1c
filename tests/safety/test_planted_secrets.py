"""A secret in every field of every message, and in what a server does with it: no output of ours has any of them.

The server runs under `mcp-probe run` with a report, JSON, a recording and telemetry; a raw client fills fields that
the SDK's own would not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.export.backends.loopback import accepts, eventually
from tests.export.otlp_backend import HttpBackend
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(__file__).with_name("planted_server.py")
MARK = "planted7f3a"
VERSION = "2025-06-18"


def secret(kind: str) -> str:
    return f"{MARK}-{kind}"


def messages() -> Iterator[dict[str, Any]]:
    """Requests and notifications of a session, after `initialize`."""
    meta = {"progressToken": secret("progress-token"), secret("meta-key"): secret("meta-value"), "baggage": f"k={MARK}"}
    for tool in ("ask", "ask_client", "ask_roots", "fail", "outside", "outside_on_loop"):
        arguments = {"key": secret("argument"), secret("argument-name"): 1}
        yield request("tools/call", name=tool, arguments=arguments, _meta=meta)
    yield request("tools/call", name="ask", arguments={secret("bad-argument"): 1})
    yield request("prompts/get", name="greet", arguments={"key": secret("prompt-argument")}, _meta=meta)
    for uri in ("note://u:{}@h", "note://h?token={}", "note://h#{}", "note://plain"):
        yield request("resources/read", uri=uri.format(secret("uri")), _meta=meta)
    argument = {"name": "key", "value": secret("completion")}
    yield request("completion/complete", ref={"type": "ref/prompt", "name": "greet"}, argument=argument)
    yield request("logging/setLevel", level=secret("level"))
    yield notice("notifications/cancelled", requestId=secret("cancelled-id"), reason=secret("cancelled-reason"))
    progress = {"progressToken": secret("their-token"), "progress": 1, "message": secret("their-progress")}
    yield notice("notifications/progress", **progress)
    yield request("tools/list", cursor=secret("cursor"))
    yield {"jsonrpc": "2.0", "id": secret("answered"), "result": {"content": secret("sampling"), "roots": [MARK]}}
    yield {"jsonrpc": "2.0", "id": 9, "error": {"code": -1, "message": secret("elicitation"), "data": secret("data")}}


def answer_to(asked: dict[str, Any]) -> dict[str, Any]:
    """What the client says to a request of the server, a secret in each field."""
    results: dict[str, Any] = {
        "sampling/createMessage": {
            "role": "assistant",
            "model": secret("model"),
            "stopReason": secret("stop-reason"),
            "content": {"type": "text", "text": secret("sampled")},
        },
        "elicitation/create": {"action": "accept", "content": {"answer": secret("elicited")}},
        "roots/list": {"roots": [{"uri": f"file:///{secret('root')}", "name": secret("root-name")}]},
    }
    result = {**results[asked["method"]], "_meta": {secret("answer-meta-key"): secret("answer-meta-value")}}
    return {"jsonrpc": "2.0", "id": asked["id"], "result": result}


_ids = iter(range(100, 1000))


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": params}


def notice(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def initialize() -> dict[str, Any]:
    info = {"name": secret("client-name"), "version": secret("client-version"), "title": secret("client-title")}
    capabilities: dict[str, Any] = {"experimental": {secret("capability"): {}}, "sampling": {}, "elicitation": {}}
    capabilities["roots"] = {"listChanged": False}
    return request("initialize", protocolVersion=VERSION, capabilities=capabilities, clientInfo=info)


@dataclass(frozen=True)
class Outputs:
    """All that the probe wrote, by where it went."""

    texts: dict[str, bytes]

    def with_secrets(self) -> list[str]:
        return [f"{name}: {text[max(0, text.find(MARK.encode()) - 80) :][:200]!r}" for name, text in self.texts.items()
                if MARK.encode() in text]  # fmt: skip


@pytest.fixture(scope="module", params=["mcp 2.x", "mcp 1.x"])
def python(request: pytest.FixtureRequest, env_python: Callable[[str], Path]) -> Path:
    return Path(sys.executable) if request.param == "mcp 2.x" else env_python("mcp1")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_no_output_has_a_secret(python: Path, transport: str, tmp_path: Path) -> None:
    with HttpBackend() as backend:
        answers, outputs = outputs_of(python, transport, tmp_path, backend)
    told = ["argument", "result", "prompt-argument", "prompt-text", "resource-text", "uri", "description"]
    told += ["sampling-question", "system-prompt", "elicitation-question", "sampled", "elicited", "root"]
    assert [kind for kind in told if secret(kind).encode() not in answers] == []  # the client did get them
    assert b'"fail"' in outputs.texts["recording"] and b"outside" in outputs.texts["report"]
    assert "tools/call ask" in outputs.texts["telemetry"].decode()
    assert outputs.with_secrets() == []


def outputs_of(python: Path, transport: str, folder: Path, backend: HttpBackend) -> tuple[bytes, Outputs]:
    temporary = folder / "tmp"
    temporary.mkdir()
    files = {name: folder / name for name in ("report", "json", "recording", "stderr")}
    port = free_port()
    probe = [sys.executable, "-m", "mcp_probe", "run", "--slow-step-ms", "0.5", "--otlp", backend.url]
    probe += ["--output", str(files["report"]), "--json", str(files["json"]), "--record", str(files["recording"])]
    command = [*probe, "--", str(python), str(SERVER), transport, str(port)]
    environment = {**os.environ, "PLANTED": MARK, "TMPDIR": str(temporary), "MCP_PROBE_SLOW_REQUEST_MS": "0.1"}
    environment |= {"MCP_PROBE_DETAIL": "1", "MCP_PROBE_OTLP_EXIT_MS": "30000"}
    environment["OPENAI_API_KEY"] = secret("environment")
    with files["stderr"].open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
        try:
            answers = (over_stdio if transport == "stdio" else over_http)(process, port)
        finally:
            process.send_signal(signal.SIGINT) if transport == "http" else None
            process.communicate(timeout=60)
    kept = backend.kept
    sent = "".join(map(str, (*kept.traces, *kept.metrics, *kept.headers)))
    report = [sys.executable, "-m", "mcp_probe", "report", str(files["recording"])]
    shown = subprocess.run(report, capture_output=True, cwd=ROOT, check=True).stdout
    left = {str(path): path.read_bytes() for path in temporary.rglob("*") if path.is_file()}
    texts = {name: path.read_bytes() for name, path in files.items()}
    return answers, Outputs({**texts, **left, "telemetry": sent.encode(), "shown": shown})


def over_stdio(process: subprocess.Popen[bytes], port: int) -> bytes:
    answers = b""

    def ask(message: dict[str, Any]) -> None:
        nonlocal answers
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        while "method" in message and "id" in message:
            line = process.stdout.readline()
            answers += line
            heard = json.loads(line) if line else {}
            if "method" in heard and "id" in heard:
                process.stdin.write(json.dumps(answer_to(heard)).encode() + b"\n")
                process.stdin.flush()
            elif not line or heard.get("id") == message["id"]:
                return

    ask(initialize())
    ask(notice("notifications/initialized"))
    for message in (*messages(), request("tools/list")):
        ask(message)
    return answers


def over_http(process: subprocess.Popen[bytes], port: int) -> bytes:
    answers = b""
    assert eventually(lambda: accepts(port))
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {secret('authorization')}",
        "cookie": f"session={secret('cookie')}",
        "x-api-key": secret("header"),
        "baggage": f"key={secret('baggage')}",
        "user-agent": secret("user-agent"),
        "referer": f"http://h/{secret('referer')}",
    }

    url = f"http://127.0.0.1:{port}/mcp?token={secret('query')}"

    def listen(stream: Any) -> None:
        """To all that comes, and to what the server asks meanwhile with an answer."""
        nonlocal answers
        for line in stream:
            answers += line
            heard = json.loads(line[5:]) if line.startswith(b"data: {") else {}
            if "method" in heard and "id" in heard:
                ask(answer_to(heard))

    def ask(message: dict[str, Any]) -> str:
        nonlocal answers
        sent = urllib.request.Request(url, json.dumps(message).encode(), headers)
        try:
            with urllib.request.urlopen(sent, timeout=60) as answer:
                listen(answer)
                return str(answer.headers.get("mcp-session-id", ""))
        except urllib.error.HTTPError as exc:
            answers += exc.read()
            return ""

    session = ask(initialize())
    assert session
    headers |= {"mcp-session-id": session, "mcp-protocol-version": VERSION}
    ask(notice("notifications/initialized"))
    # The session's own stream, on which a server asks what belongs to no request.
    standing = urllib.request.Request(url, headers={**headers, "accept": "text/event-stream"})
    with urllib.request.urlopen(standing, timeout=120) as stream:
        listening = threading.Thread(target=listen, args=(stream,), daemon=True)
        listening.start()
        for message in (*messages(), request("tools/list")):
            ask(message)
        ended = dict(headers)
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.request.Request(url, headers=ended, method="DELETE"), timeout=60).close()
        listening.join(60)
    headers["mcp-session-id"] = secret("session")
    ask(request("tools/list"))
    return answers
