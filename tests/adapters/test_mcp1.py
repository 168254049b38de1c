"""mcp 1.x from a client's side: what was sent is counted, and every part of its way is seen, on each transport."""

from __future__ import annotations

import os
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.aggregate.bounded import earlier_ns
from mcp_probe.model import ALL_SEEN, RequestRecord
from mcp_probe.record.file import read_recording
from tests.adapters.raw_clients import VERSION, HttpClient, RawClient, SseClient, StdioClient
from tests.ports import free_port

HERE = Path(__file__).parent
BLOCK_MS = 400.0


def client_of(transport: str, python: Path, folder: Path, way: str = "", paths: str = "") -> RawClient:
    port = free_port()
    command = [str(python), str(HERE / "server_1x.py"), transport, str(port), *filter(None, [way])]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    environment |= {"PYTHONPATH": paths} if paths else {}
    profiled = bool(way)
    if transport == "stdio":
        return StdioClient(command, folder, environment, profiled=profiled)
    if transport == "http":
        return HttpClient(command, folder, environment, port, "/mcp", profiled=profiled)
    return SseClient(command, folder, environment, port, "/sse", profiled=profiled)


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> str:
    """This probe, and the loops that the environments of mcp 1.x have not: they run the same Python."""
    folder = tmp_path_factory.mktemp("loops-only")
    for name in ("trio", "uvloop", "sortedcontainers", "outcome", "sniffio", "attr", "attrs"):
        (folder / name).symlink_to(Path(sysconfig.get_paths()["purelib"]) / name)
    return f"{HERE.parent.parent}{os.pathsep}{folder}"


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
    records = records_of(client)
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


WAYS = [
    ("mcp1", "uvloop", "http"),
    ("mcp1", "uvloop", "sse"),
    ("mcp1", "attach", "sse"),
    ("mcp1", "lowlevel", "stdio"),
    ("mcp1", "trio", "stdio"),
    ("fastmcp3", "attach", "http"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "way", "transport"), WAYS)
def test_an_attached_server_times_and_blames_as_its_client_waits(
    environment: str, way: str, transport: str, env_python: Callable[[str], Path], lent: str, tmp_path: Path
) -> None:
    with client_of(transport, env_python(environment), tmp_path, way, lent) as client:
        drive(client)
    records = records_of(client)
    assert Counter((record.name or record.method, record.outcome) for record in records) == {
        ("initialize", "ok"): 1,
        ("notifications/initialized", "ok"): 1,
        ("add", "ok"): 6,
        ("ping", "ok"): 3,
        ("block", "ok"): 1,
    }
    loops = {"trio": "trio", "uvloop": "uvloop"}
    assert client.summary["server"]["loop"] == loops.get(way, "asyncio")
    for name, ids in (("add", ADDS), ("ping", PINGS)):
        mine = sorted((r for r in records if (r.name or r.method) == name), key=lambda r: r.end_ns - r.arrival_ns)
        for record, waited_ms in zip(mine[-len(ids) :], sorted(map(client.latency_ms, ids)), strict=True):
            assert_total_is_the_clients(record, waited_ms)
    over = client.sent["block"] + LONG_S  # no earlier; who was answered before then had come before the block
    held_up_s = [over - client.sent[id] for id in (*ADDS, *PINGS) if client.answers[id][0] > over]
    assert len(held_up_s) > 4, "most came while it blocked"
    blamed_ms = [
        row["lo_ms"]
        for row in client.summary["blocked_by"]
        if row["blocker"] == "block" and row["victim"] in ("add", "ping")
    ]
    assert 0.9 * 1e3 * sum(held_up_s) <= sum(blamed_ms) <= 1.05 * sum(map(client.latency_ms, (*ADDS, *PINGS)))


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_the_decorator_counts_the_calls_of_a_client(
    transport: str, env_python: Callable[[str], Path], lent: str, tmp_path: Path
) -> None:
    """It sees the functions and not the requests: who waited before its function ran is never said to be exact."""
    with client_of(transport, env_python("mcp1"), tmp_path, "decorator", lent) as client:
        drive(client)
    records = records_of(client)
    assert {record.kind for record in records} == {"function"}
    assert Counter((record.method, record.outcome) for record in records) == {("add", "ok"): 6, ("block", "ok"): 1}
    assert client.summary["verdict"]["code"] == "blocking-call" and client.summary["verdict"]["subject"] == "block"


LONG_S = 2 * BLOCK_MS / 1e3
ADDS, PINGS = [f"add{n}" for n in range(5)], [f"ping{n}" for n in range(3)]


def drive(client: RawClient) -> None:
    """One call alone, then others while a tool blocks."""
    client.call("warm", "add", a=1, b=1)
    client.wait_for("warm")
    client.call("block", "block", seconds=LONG_S)
    time.sleep(LONG_S / 4)
    for id in ADDS:
        client.call(id, "add", a=1, b=1)
    for id in PINGS:
        client.ask(id, "ping")
    client.wait_for("block", *ADDS, *PINGS)


def records_of(client: RawClient) -> list[RequestRecord]:
    return [frame for frame in read_recording(client.recording) if isinstance(frame, RequestRecord)]


def assert_total_is_the_clients(record: RequestRecord, waited_ms: float) -> None:
    """The client may have its answer before the write has returned here, or be late itself on a busy machine."""
    least_ms = (record.end_ns - record.arrival_ns) / 1e6
    most_ms = least_ms + earlier_ns(record) / 1e6
    slack_ms = max(60.0, 0.1 * waited_ms)
    assert least_ms - slack_ms <= waited_ms <= most_ms + slack_ms, (record, waited_ms)
    assert most_ms - least_ms <= max(20.0, 0.1 * waited_ms), record


def assert_parts_are_the_whole(record: RequestRecord) -> None:
    budget: dict[str, Any] = {name: getattr(record.budget, name) for name in record.budget.__slots__}
    assert None not in budget.values(), (record, budget)
    assert sum(budget.values()) == record.end_ns - record.arrival_ns
