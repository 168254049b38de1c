"""mcp 1.x from a client's side: what was sent is counted, and every part of its way is seen, on each transport."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.model import ALL_SEEN, RequestRecord
from mcp_probe.record.file import read_recording
from tests.adapters.raw_clients import VERSION, HttpClient, RawClient, SseClient, StdioClient
from tests.ports import free_port

HERE = Path(__file__).parent
BLOCK_MS = 400.0


def client_of(transport: str, python: Path, folder: Path) -> RawClient:
    port = free_port()
    command = [str(python), str(HERE / "server_1x.py"), transport, str(port)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    if transport == "stdio":
        return StdioClient(command, folder, environment)
    if transport == "http":
        return HttpClient(command, folder, environment, port, "/mcp")
    return SseClient(command, folder, environment, port, "/sse")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
@pytest.mark.parametrize("environment", ["mcp1", "fastmcp2", "fastmcp3"])
def test_what_a_client_sends_is_counted_and_seen_from_arrival_to_flush(
    environment: str, transport: str, env_python: Callable[[str], Path], tmp_path: Path
) -> None:
    with client_of(transport, env_python(environment), tmp_path) as client:
        client.call("warm", "add", a=1, b=1)
        client.wait_for("warm")
        client.call("block", "block", seconds=BLOCK_MS / 1e3)
        waiting = [client.call(f"add{n}", "add", a=n, b=n) for n in range(5)]
        waiting += [client.ask(f"ping{n}", "ping") for n in range(3)]
        client.call("bad", "add", a="no number", b=1)
        client.ask("unknown", "nobody/knows")
        client.call("long", "wait")
        client.wait_for("block", "bad", "unknown", *waiting)
        client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "long"}})
        client.wait_for("long")
    records = [frame for frame in read_recording(client.recording) if isinstance(frame, RequestRecord)]
    assert Counter((record.name or record.method, record.outcome) for record in records) == {
        ("initialize", "ok"): 1,
        ("notifications/initialized", "ok"): 1,
        ("notifications/cancelled", "ok"): 1,
        ("add", "ok"): 6,
        ("add", "tool_error"): 1,
        ("ping", "ok"): 3,
        ("block", "ok"): 1,
        ("wait", "cancelled"): 1,
        ("nobody/knows", "error"): 1,
    }
    for record in records:
        assert record.protocol_version == VERSION
        assert record.transport == ("stdio" if transport == "stdio" else "http")
        if record.kind == "request":
            assert record.seen == ALL_SEEN
            assert_parts_are_the_whole(record)
    summary = client.summary
    assert summary["server"]["name"] == "one x"
    assert summary["verdict"]["code"] == "blocking-call" and summary["verdict"]["subject"] == "block"
    lines = (HERE / "server_1x.py").read_text().splitlines()
    blocking = 1 + next(number for number, line in enumerate(lines) if line.endswith("# the line"))
    assert f"server_1x.py:{blocking}" in summary["verdict"]["sentence"]


def assert_parts_are_the_whole(record: RequestRecord) -> None:
    budget: dict[str, Any] = {name: getattr(record.budget, name) for name in record.budget.__slots__}
    assert None not in budget.values(), (record, budget)
    assert sum(budget.values()) == record.end_ns - record.arrival_ns
