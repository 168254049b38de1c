"""Span and metric of a request say the same of it: SDK by transport, against a real OTLP receiver."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.export import semantic_conventions as names
from tests.export.backends.loopback import accepts, running
from tests.export.otlp_backend import HttpBackend, Kept
from tests.launch.running import ROOT, probe_run, program
from tests.ports import free_port
from tests.safety.conversation import INITIALIZED, Conversation, initialize, request

SERVER = """
import sys
try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("agreeing", log_level="CRITICAL")

@server.tool()
async def fail() -> str:
    raise ValueError("on purpose")

@server.resource("note://{host}/{path}")
def note(host: str, path: str) -> str:
    return "text"

if len(sys.argv) == 1:
    server.run("stdio")
else:
    import uvicorn
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")
"""
REQUESTS = (
    request(1, "tools/call", name="unknown", arguments={}),
    request(2, "un/known"),
    request(3, "tools/call", name="fail", arguments={}),
    request(4, "resources/read", uri="note://user:word@host/path?query=1#fragment"),
    request(5, "prompts/get", name="unknown"),
)
VERSION = "2025-11-25"
SAID = (
    *(names.MCP_METHOD_NAME, names.GEN_AI_TOOL_NAME, names.ERROR_TYPE),
    *(names.RPC_RESPONSE_STATUS_CODE, names.MCP_PROTOCOL_VERSION),
)


def over_stdio(command: list[str], folder: Path, env: dict[str, str]) -> None:
    with Conversation(command, env=env) as client:
        client.send(initialize(0))
        client.wait_for(0)
        client.send(INITIALIZED)
        for message in REQUESTS:
            client.send(message)
            client.wait_for(message["id"])
    assert client.exit_code == 0, client.stderr.decode()


def over_http(command: list[str], folder: Path, env: dict[str, str]) -> None:
    port = free_port()
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

    def post(message: dict[str, Any]) -> str:
        sent = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", json.dumps(message).encode(), headers)
        try:
            with urllib.request.urlopen(sent, timeout=60) as answer:
                answer.read()
                return str(answer.headers.get("mcp-session-id", ""))
        except urllib.error.HTTPError as refused:
            refused.close()
            return ""

    log = folder / "server.log"
    with running(
        [*command, str(port)], log=log, is_ready=lambda: accepts(port), environment=env, ends_with=signal.SIGINT
    ):
        headers |= {"mcp-session-id": post(initialize(0)), "mcp-protocol-version": VERSION}
        for message in (INITIALIZED, *REQUESTS):
            post(message)


def said(attributes: Iterable[Any]) -> tuple[str, ...]:
    found = {item.key: item.value.string_value for item in attributes}
    return tuple(found.get(name, "") for name in SAID)


def of_metrics(kept: Kept) -> set[tuple[str, ...]]:
    return {
        said(point.attributes)
        for message in kept.metrics
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == names.OPERATION_DURATION.name
        for point in metric.histogram.data_points
    }


@pytest.mark.slow
@pytest.mark.parametrize("talk", [over_stdio, over_http])
@pytest.mark.parametrize("sdk", ["mcp2", "mcp1"])
def test_span_and_metric_agree_on_what_failed_and_why(
    sdk: str, talk: Callable[..., None], env_python: Callable[[str], Path], tmp_path: Path
) -> None:
    python = sys.executable if sdk == "mcp2" else str(env_python(sdk))
    with HttpBackend() as backend:
        command = probe_run(program(tmp_path, SERVER, python=python), "--otlp", backend.url)
        talk(command, tmp_path, {"MCP_PROBE_OTLP_EXIT_MS": "30000", "PYTHONPATH": os.fspath(ROOT)})
        requests = len(REQUESTS) + 1
        spans = {said(span.attributes): span for span in backend.kept.spans() if span.kind == span.SPAN_KIND_SERVER}
        metrics = of_metrics(backend.kept)
    told = {one for one in spans if not one[0].startswith("notifications/")}
    assert len(told) == requests
    known = {(method if method in names.KNOWN_METHODS else names.OTHER, *rest) for method, *rest in told}
    assert known == {one for one in metrics if not one[0].startswith("notifications/")}
    assert {one[4] for one in told} == {VERSION}  # from `initialize` on
    unknown = "-32601" if sdk == "mcp2" else "-32602"  # mcp 1.x cannot parse such a request
    assert {one[0]: one[2:4] for one in told if one[0] != "tools/call"} == {
        "initialize": ("", ""),
        "un/known": ("", unknown),
        "resources/read": ("", "-32602") if sdk == "mcp2" else ("", ""),
        "prompts/get": (names.OTHER_ERROR, "0"),
    }
    assert {one[1:4] for one in told if one[0] == "tools/call"} == {
        ("unknown", names.TOOL_ERROR, ""),
        ("fail", names.TOOL_ERROR, ""),
    }
    for one, span in spans.items():
        assert (span.status.code == span.status.STATUS_CODE_ERROR) == bool(one[2]), one
    (read,) = (span for one, span in spans.items() if one[0] == "resources/read")
    uris = {item.value.string_value for item in read.attributes if item.key == names.MCP_RESOURCE_URI}
    assert uris == {"note://host/path"}


WAITING = """
import asyncio
try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("waiting", log_level="CRITICAL")
GATE = asyncio.Lock()
asked = 0

@server.tool()
async def append_note() -> str:
    global asked
    asked += 1
    async with GATE:
        while asked < 4:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
    return "appended"

server.run("stdio")
"""
CALLS = 4


@pytest.mark.slow
@pytest.mark.parametrize("sdk", ["mcp2", "mcp1"])
def test_events_of_waits_and_the_metric_of_awaits_agree(
    sdk: str, env_python: Callable[[str], Path], tmp_path: Path
) -> None:
    python = sys.executable if sdk == "mcp2" else str(env_python(sdk))
    with HttpBackend() as backend:
        command = probe_run(program(tmp_path, WAITING, python=python), "--otlp", backend.url)
        with Conversation(command, env={"MCP_PROBE_OTLP_EXIT_MS": "30000", "PYTHONPATH": os.fspath(ROOT)}) as client:
            client.send(initialize(0))
            client.wait_for(0)
            client.send(INITIALIZED)
            client.send(*(request(n, "tools/call", name="append_note", arguments={}) for n in range(1, CALLS + 1)))
            client.wait_for(*range(1, CALLS + 1))
        assert client.exit_code == 0, client.stderr.decode()
        spans = [span for span in backend.kept.spans() if span.name == "tools/call append_note"]
        awaits = {
            kind: point
            for message in backend.kept.metrics
            for resource in message.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == names.AWAIT.name
            for point in metric.exponential_histogram.data_points
            for kind in [value_of(point.attributes, names.KIND)]
        }
    events = [event for span in spans for event in span.events if event.name == names.EVENT_WAITED_FOR]
    told = sum(value_of(event.attributes, names.DURATION) for event in events)
    # The step in which a waiter is woken is no longer its holder's: both leave it out.
    assert told == pytest.approx(awaits["lock"].sum, rel=0.02)
    assert awaits["lock"].count == CALLS - 1
    assert {value_of(event.attributes, names.OBJECT) for event in events} == {"asyncio.Lock made at program.py:9"}
    # On a busy machine calls, and `initialize`, also hold each other up: those links are of another kind.
    links = [link for span in spans for link in span.links]
    linked = {link.span_id for link in links if value_of(link.attributes, names.LINK_KIND) == "waited_for"}
    assert linked <= {span.span_id for span in spans}
    assert len(linked) == CALLS - 1  # each but the last is somebody's holder


def value_of(attributes: Iterable[Any], name: str) -> Any:
    """The value of one attribute, whatever its type."""
    (found,) = (item.value for item in attributes if item.key == name)
    return getattr(found, found.WhichOneof("value"))
