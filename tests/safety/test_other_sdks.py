"""mcp 1.x and fastmcp 2, 3 and 4, each in its own environment: the same bytes, and records of what can be seen."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import ALL_SEEN, End, Header, RequestRecord
from mcp_probe.record.file import read_recording
from tests.kept import unavailable
from tests.safety.conversation import INITIALIZED, Conversation, call, initialize, notification, python, request

EnvPython = Callable[[str], Path]


def talk_to(command: Sequence[str], **environment: str) -> list[bytes]:
    """Every line the server writes in a conversation that reaches each of its tools."""
    with Conversation(command, environment) as talk:
        talk.send(initialize(0), INITIALIZED)
        talk.wait_for(0)
        talk.send(
            call(1, "add", a=1, b=2),
            call(2, "sync_add", a=1, b=2),
            call(3, "in_thread", text="abc"),
            call(4, "fail", text="no"),
            call(5, "nobody_knows"),
            call(6, "add", a="no number", b=2),
            request(7, "prompts/get", name="greet", arguments={"name": "you"}),
            request(8, "tools/list"),
            request(9, "nobody/knows"),
            b"{not json}\n",
            request(10, "ping"),
        )
        talk.wait_for(*range(1, 11))
        talk.send(call(20, "hang", meta={"progressToken": "h"}))
        talk.wait_for_method("notifications/progress")
        talk.send(
            notification("notifications/cancelled", requestId=20), *(call(30 + n, "add", a=n, b=0) for n in range(20))
        )
        talk.wait_for(*range(30, 50))
    assert talk.exit_code == 0, talk.stderr.decode()
    assert b"Exception ignored" not in talk.stderr
    return talk.lines


def talk_to_low_level(command: Sequence[str], **environment: str) -> list[bytes]:
    with Conversation(command, environment) as talk:
        talk.send(initialize(0), INITIALIZED)
        talk.wait_for(0)
        talk.send(call(1, "add", a=1, b=2), call(2, "fail"), request(3, "tools/list"), request(4, "ping"))
        talk.wait_for(1, 2, 3, 4)
    assert talk.exit_code == 0, talk.stderr.decode()
    return talk.lines


def read(recording: Path) -> tuple[Header, list[RequestRecord]]:
    frames = list(read_recording(recording))
    assert isinstance(frames[-1], End)
    header = [frame for frame in frames if isinstance(frame, Header)][-1]
    assert not [state for _, state in header.hooks if "disabled" in state], header.hooks
    return header, [frame for frame in frames if isinstance(frame, RequestRecord) and frame.kind == "request"]


def outcomes(records: Sequence[RequestRecord], tool: str) -> dict[str, int]:
    return dict(Counter(record.outcome for record in records if (record.name or record.method) == tool))


def assert_recorded(records: Sequence[RequestRecord]) -> None:
    assert outcomes(records, "sync_add") == {"ok": 1}
    assert outcomes(records, "in_thread") == {"ok": 1}
    assert outcomes(records, "fail") == {"tool_error": 1}
    assert outcomes(records, "greet") == {"ok": 1}
    assert outcomes(records, "tools/list") == {"ok": 1}
    assert outcomes(records, "hang") == {"cancelled": 1}
    added = outcomes(records, "add")
    assert added.pop("ok") == 21
    assert sum(added.values()) == 1 and "cancelled" not in added
    for record in records:
        assert record.budget.busy is not None and record.budget.busy > 0
        assert not record.partial
    threaded = next(record for record in records if record.name == "in_thread")
    assert threaded.budget.executor_run is not None and threaded.executor_run_sum_ns > 0


def assert_whole_way_is_seen(records: Sequence[RequestRecord]) -> None:
    assert records and records[0].method == "initialize"
    for record in records:
        assert not unavailable(record)
        assert record.seen == ALL_SEEN
        assert record.protocol_version is not None
        assert sum(part or 0 for part in astuple(record.budget)) == record.end_ns - record.arrival_ns


def disabled_hooks(recording: Path) -> tuple[str, ...]:
    fold = Fold()
    for frame in read_recording(recording):
        fold.add(frame)
    return fold.summary().probe.disabled_hooks


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    ["mcp1", *(pytest.param(one, marks=pytest.mark.endurance) for one in ("fastmcp2", "fastmcp3")), "fastmcp4"],
)
def test_server_of_another_sdk_writes_the_same_bytes_and_is_recorded(
    environment: str, env_python: EnvPython, tmp_path: Path
) -> None:
    interpreter = str(env_python(environment))
    server = python("any_sdk_server.py", interpreter=interpreter)
    bare = talk_to(server)
    attached, launched = tmp_path / "attached", tmp_path / "launched"
    assert Counter(talk_to([*server, "attach"], MCP_PROBE_RECORD=str(attached))) == Counter(bare)
    run = [sys.executable, "-m", "mcp_probe", "run", "--record", str(launched), "--", *server]
    assert Counter(talk_to(run)) == Counter(bare)
    for recording in (attached, launched):
        header, records = read(recording)
        assert_recorded(records)
        assert header.server == "any sdk"
        assert header.sdk == ("mcp" if environment == "mcp1" else "fastmcp")
        assert header.transport == "stdio"
        assert disabled_hooks(recording) == (), "what mcp 1.x has no place for is not a hook that is off"
        in_threads = environment in ("fastmcp3", "fastmcp4")  # the others run sync tools on the loop
        [sync] = [record for record in records if record.name == "sync_add"]
        assert (sync.executor_run_sum_ns > 0) == in_threads
        if environment != "fastmcp4":
            assert_whole_way_is_seen(records)
            assert dict(header.hooks)["request handler (mcp 1.x)"] == "active"


@pytest.mark.slow
def test_low_level_server_of_mcp_1_writes_the_same_bytes_and_is_recorded(env_python: EnvPython, tmp_path: Path) -> None:
    server = python("any_sdk_server.py", "lowlevel", interpreter=str(env_python("mcp1")))
    recording = tmp_path / "recording"
    bare = talk_to_low_level(server)
    assert Counter(talk_to_low_level([*server, "attach"], MCP_PROBE_RECORD=str(recording))) == Counter(bare)
    header, records = read(recording)
    assert outcomes(records, "add") == {"ok": 1}
    assert outcomes(records, "fail") == {"tool_error": 1}
    assert_whole_way_is_seen(records)
    assert header.sdk == "mcp" and header.sdk_version.startswith("1.")
    assert header.transport == "stdio"
