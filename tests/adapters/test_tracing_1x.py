"""Spans of mcp 1.x and fastmcp 2 and 3, which have none or their own: real servers, each in its own environment.

Those environments hold no OpenTelemetry SDK; they are lent this one's, which is pure Python.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SERVER = Path(__file__).with_name("traced_server_1x.py")
LIMIT_S = 120.0


@pytest.mark.parametrize(
    ("environment", "kind"), [("mcp1", "mcp"), ("fastmcp2", "fastmcp"), ("fastmcp3", "fastmcp")], ids=lambda one: one
)
def test_each_request_has_one_server_span_that_continues_the_callers_trace(
    env_python: Callable[[str], Path], lent_opentelemetry: Path, environment: str, kind: str
) -> None:
    outcome = serve(env_python(environment), lent_opentelemetry, kind)
    assert outcome["disabled"] == []
    server = [span for span in outcome["spans"] if span["kind"] == "SERVER"]
    names = [span["name"] for span in server]
    assert sorted(names) == sorted({*names}), "no request has two"
    added = only(server, "tools/call add")
    assert (added["trace"], added["parent"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert added["scope"] == "mcp_probe"
    assert added["status"] == "UNSET"
    agreed = only(server, "initialize")["attributes"]["mcp.protocol.version"]
    found = added["attributes"]
    assert found["mcp.method.name"] == "tools/call"
    assert found["gen_ai.operation.name"] == "execute_tool"
    assert found["gen_ai.tool.name"] == "add"
    assert found["jsonrpc.request.id"].isdigit()
    assert agreed.startswith("20")
    assert found["mcp.protocol.version"] == agreed
    assert found["mcp_probe.busy"] > 0
    assert ("fastmcp.server.name" in found) is (environment == "fastmcp3")
    assert set(outcome["seen"]) == {"handler", "to_thread", "run_in_executor", "thread"}
    assert set(outcome["seen"].values()) == {added["id"]}


@pytest.mark.parametrize("environment", ["mcp1", "fastmcp2"])
def test_our_span_of_a_failing_tool_says_so_without_its_words(
    env_python: Callable[[str], Path], lent_opentelemetry: Path, environment: str
) -> None:
    outcome = serve(env_python(environment), lent_opentelemetry, "mcp" if environment == "mcp1" else "fastmcp")
    failed = only(outcome["spans"], "tools/call fail")
    assert failed["attributes"]["error.type"] == "tool_error"
    assert failed["status"] == "ERROR"
    assert "the-secret-1x" not in failed["text"]
    assert only(outcome["spans"], "ping")["status"] == "UNSET"


def test_a_session_over_http_gives_no_request_the_span_of_an_earlier_one(
    env_python: Callable[[str], Path], lent_opentelemetry: Path
) -> None:
    outcome = serve(env_python("mcp1"), lent_opentelemetry, "http")
    assert outcome["disabled"] == []
    exchanges = {span["id"] for span in outcome["spans"] if span["name"] == "POST"}
    added, failed = only(outcome["spans"], "tools/call add"), only(outcome["spans"], "tools/call fail")
    assert added["parent"] is None
    assert (failed["trace"], failed["parent"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert not exchanges & {*added["links"], *failed["links"]}
    found = added["attributes"]
    assert (found["network.transport"], found["client.port"]) == ("tcp", 5000)
    assert found["mcp.session.id"]


@cache
def serve(python: Path, lent_opentelemetry: Path, kind: str) -> Any:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MCP_PROBE_", "OTEL_"))}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(lent_opentelemetry)))
    done = subprocess.run(
        [str(python), str(SERVER), kind],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def only(spans: list[Any], name: str) -> Any:
    [span] = [span for span in spans if span["name"] == name]
    return span
