"""Notifications, from what a channel sees to the finding: literal frames, a recording, and real servers.

Of real servers only counts are exact. That large answers take most of the writing is true of any machine, but a busy
one may hold up anything: such a run is made again.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from contextvars import Context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.messages import Channel
from mcp_probe.model import Summary
from mcp_probe.record.file import decode_lines, encode, preamble
from mcp_probe.record.raw import RawRequest
from tests.adapters.raw_clients import HttpClient, RawClient, StdioClient
from tests.aggregate.live_faults import findings, line_in
from tests.frames import MS, SECOND, make_end, make_header, make_request
from tests.ports import free_port

SERVER = Path(__file__).with_name("chatty_server.py")
ROOT = Path(__file__).resolve().parents[2]
MCP1 = ROOT / ".envs" / "mcp1" / "bin" / "python"
RUNS = 3
SENT = {"fault": 60, "mended": 5, "few": 15, "large": 30}


# --- frames -------------------------------------------------------------------------------------------


def lines(sent: int, write_ns: int | None, flush_ns: int, name: str = "index") -> list[bytes]:
    """A recording of 40 calls in 4 s."""
    rows = (
        ("notifications", sent, "exact"),
        ("notification_write", write_ns, "unavailable" if write_ns is None else "exact"),
    )
    calls = [
        make_request(n, name, arrival_ns=n * SECOND // 10, busy=5 * MS, write_flush=flush_ns, measures=rows)
        for n in range(1, 41)
    ]
    return [encode(make_header()), *map(encode, calls), encode(make_end(5 * SECOND))]


def folded(recording: list[bytes]) -> Summary:
    fold = Fold()
    for frame in decode_lines([preamble(), *recording], "a test"):
        fold.add(frame)
    return fold.summary()


def chatty(summary: Summary) -> dict[str, dict[str, Any]]:
    return {one.subject: dict(one.evidence) for one in summary.findings if one.code == "chatty-notifications"}


def test_frames_of_a_chatty_tool_raise_it_and_those_of_its_mended_twin_do_not() -> None:
    assert chatty(folded(lines(60, 3 * MS, 1 * MS)))["index"] == {
        "notifications": 60.0,
        "calls": 40,
        "write_ms": pytest.approx(120.0),
        "share": pytest.approx(0.75),
        "time_share": pytest.approx(0.5),
        "where": None,
    }
    assert not chatty(folded(lines(5, MS // 4, 1 * MS)))


@pytest.mark.parametrize(("sent", "write_ns", "flush_ns"), [(15, 3 * MS, MS), (30, 1 * MS, 19 * MS), (60, None, MS)])
def test_frames_of_a_near_miss_do_not(sent: int, write_ns: int | None, flush_ns: int) -> None:
    """15 for each answer; 30, which are 5 % of the writing; writing that could not be seen."""
    assert not chatty(folded(lines(sent, write_ns, flush_ns)))


def test_recordings_of_older_versions_have_none() -> None:
    fold = Fold()
    for frame in decode_lines((ROOT / "tests/data/recording-v1.jsonl").read_bytes().splitlines(True), "old"):
        fold.add(frame)
    assert not chatty(fold.summary())


# --- a channel ----------------------------------------------------------------------------------------


class Progress:
    method = "notifications/progress"
    params: Any = None


def begun(hub: Hub, channel: Channel | None) -> RawRequest:
    raw = hub.requests.open("request", "tools/call", "index", "stdio")
    raw.channel = channel
    raw.first_step_ns = time.monotonic_ns()
    return raw


def read(hub: Hub, raw: RawRequest) -> dict[str, int | None]:
    return {name: value for name, value, _ in hub.measuring.of(raw) if name.startswith("notification")}


@pytest.fixture
def hub() -> Any:
    made = Hub()
    made.measuring.want("a test", "light")
    yield made
    made.measuring.close()
    made.close()


def test_a_notification_is_its_senders_and_not_of_the_call_that_serves_another_client_inside(hub: Hub) -> None:
    outside, inside = (Channel(hub.requests, "stdio", lambda: (0, 0, 0)) for _ in range(2))
    outside.times_writes = True
    outer, inner = begun(hub, outside), begun(hub, inside)
    function = begun(hub, None)
    inner.parent, function.parent = outer, inner
    item = SimpleNamespace(message=Progress())

    def send(sender: RawRequest | None, channel: Channel) -> None:
        context = Context()
        context.run(CURRENT.set, sender)
        context.run(channel.sending, item)

    send(function, inside)
    send(outer, outside)
    send(None, outside)
    assert read(hub, inner) == {"notifications": 1, "notification_write": None}
    assert read(hub, outer) == {"notifications": 1, "notification_write": 0}
    assert read(hub, function) == {"notifications": None, "notification_write": None}


def test_what_was_not_sent_is_never_taken_for_something_else(hub: Hub) -> None:
    channel = Channel(hub.requests, "stdio", lambda: (0, 0, 0))
    channel.times_writes = True
    raw = begun(hub, channel)
    item = SimpleNamespace(message=Progress())
    context = Context()
    context.run(CURRENT.set, raw)
    for is_sent in (False, True):
        context.run(channel.sending, item)
        if not is_sent:
            channel.not_sent(item, None)
        channel.taken(item)
        assert (channel.notifying is not None) == is_sent
        channel.flushed()
    assert not channel.notified
    written = read(hub, raw)["notification_write"]
    assert written is not None and written > 0


# --- servers ------------------------------------------------------------------------------------------


def served(kind: type[RawClient], folder: Path, python: str | Path, calls: dict[str, int]) -> dict[str, Any]:
    """The summary, and under ``came`` how many notifications the client has got by tool."""
    came: Counter[str] = Counter()

    class Counting(kind):  # type: ignore[misc, valid-type]
        def note(self, line: bytes) -> None:
            message = json.loads(line)
            if message.get("method") == "notifications/progress":
                came[message["params"]["progressToken"].split()[0]] += 1
            super().note(line)

    port = free_port()
    command = [str(python), str(SERVER), "stdio" if kind is StdioClient else "streamable-http", str(port)]
    where = () if kind is StdioClient else (port, "/mcp")
    with Counting(command, folder, {"PYTHONPATH": str(ROOT)}, *where) as client:
        began = time.monotonic()
        for tool, times in calls.items():
            for number in range(times):
                id = f"{tool} {number}"
                meta = {"progressToken": id}
                client.wait_for(client.ask(id, "tools/call", name=tool, arguments={}, _meta=meta))
        for number in range(30):
            client.wait_for(client.ask(f"ping {number}", "ping"))
        time.sleep(max(0.0, began + 1.1 - time.monotonic()))
        client.wait_for(client.ask("last", "ping"))
    return {**client.summary, "came": came}


def counted(summary: dict[str, Any]) -> dict[str, int]:
    rows = [row for row in summary["operations"] if row["name"] in SENT]
    return {row["name"]: round(row["measures"]["notifications"]["mean"] * row["count"]) for row in rows}


CALLS = {"fault": 4, "mended": 2, "few": 2}
COUNTED = {name: times * SENT[name] for name, times in CALLS.items()}


@pytest.mark.parametrize(
    "python",
    [
        sys.executable,
        pytest.param(MCP1, marks=pytest.mark.skipif(not MCP1.exists(), reason="no environment with mcp 1.x")),
    ],
)
def test_a_chatty_tool_on_stdio_is_named_and_its_mended_twin_and_fifteen_are_not(
    tmp_path_factory: pytest.TempPathFactory, python: str | Path
) -> None:
    summary: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for _ in range(RUNS):
        summary = served(StdioClient, tmp_path_factory.mktemp("chatty"), python, CALLS)
        assert counted(summary) == summary["came"] == COUNTED
        found = findings(summary, "chatty-notifications")
        if found:  # else a write that was kept from the CPU took longer than all of theirs
            break
    assert found.keys() == {"fault"}, summary["findings"]
    assert (found["fault"]["confidence"], found["fault"]["evidence"]["notifications"]) == ("exact", 60)
    assert found["fault"]["evidence"]["where"] in (None, line_in(SERVER, "progress"))


def test_thirty_beside_large_answers_are_not_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    summary: dict[str, Any] = {}
    for _ in range(RUNS):
        summary = served(StdioClient, tmp_path_factory.mktemp("large"), sys.executable, {"large": 2})
        if not findings(summary, "chatty-notifications"):
            break
    assert counted(summary) == summary["came"] == {"large": 60}
    assert not findings(summary, "chatty-notifications")


def test_over_http_they_are_counted_and_how_long_they_were_written_is_said_to_be_unknown(tmp_path: Path) -> None:
    summary = served(HttpClient, tmp_path, sys.executable, CALLS)
    assert counted(summary) == summary["came"] == COUNTED
    rows = {row["name"]: row for row in summary["operations"]}
    assert rows["fault"]["measures"]["notification_write_ms"]["mean"] is None
    assert rows["fault"]["quality"]["notification_write_ms"]["tag"] == "unavailable"
    assert not findings(summary, "chatty-notifications")
