"""Beside others that instrument the server, installed before us or after: nobody gets less, and no span is double."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import End
from mcp_probe.record.file import read_recording
from tests.safety.callers import Caller, Ended, calling

SERVER = str(Path(__file__).with_name("peer_server.py"))
TRACE = "0af7651916cd43dd8448eb211c80319c"
PEERS = ("opentelemetry", "openinference", "logfire", "sentry")
ORDERS = ("before", "after", "run")
QUICK = {
    ("mcp 2.x", "stdio", "openinference", "before"),
    ("mcp 2.x", "stdio", "sentry", "run"),
    ("mcp 1.x", "stdio", "logfire", "after"),
}
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.endurance, id=", ".join(case))
    for sdk in ("mcp 2.x", "mcp 1.x")
    for transport in ("stdio", "http")
    for peer in PEERS
    for order in ORDERS
    for case in [(sdk, transport, peer, order)]
]
SENT = {"add": 6, "in_thread": 1, "fail": 1, "meet": 1, "block": 1, "children": 1}
BLOCKED_MS = 600
Row = tuple[Any, ...]


async def talk(caller: Caller) -> list[Any]:
    """Answers of calls of each kind; the first names its caller's trace."""
    traced = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    answers = [await caller.call(1, "add", meta=traced, a=1, b=2)]
    answers += [await caller.call(2, "in_thread", text="abc"), await caller.call(3, "fail")]
    answers += await asyncio.gather(caller.call(4, "meet"), caller.call(5, "block"))
    answers += [await caller.call(6, "children", number=3)]
    return answers + await asyncio.gather(*(caller.call(10 + n, "add", a=n, b=n) for n in range(5)))


async def held(python: Path, transport: str, *arguments: str, prefix: Sequence[str] = (), **env: str) -> Any:
    async with calling(python, SERVER, transport, *arguments, prefix=prefix, **env) as caller:
        answers = await talk(caller)
        ended = await caller.close()
    # The parent of `mcp-probe run` says how the server ended.
    lines = ended.stderr.splitlines()
    ended.stderr = "\n".join(line for line in lines if not line.startswith("mcp-probe: "))
    return answers, ended


def rows_in(told: Path) -> list[Row]:
    return [tuple(json.loads(line)) for line in told.read_text().splitlines()] if told.exists() else []


def theirs(rows: list[Row]) -> Counter[str]:
    """What a peer has told, whatever we have added to it; trace ids that are made up are not compared."""
    kept = []
    for row in rows:
        if row[0] == "sentry":
            kept.append(json.dumps(row))
        elif row[0] not in ("mcp_probe", "logfire.asyncio"):
            scope, name, kind, trace, status, _ = row
            kept.append(json.dumps([scope, name, kind, trace == TRACE, status]))
    # On a busy machine the loop is held up now and then by what belongs to no tool.
    return Counter(kept) + Counter({row[1] for row in rows if row[0] == "logfire.asyncio"})


def tells(sdk: str, transport: str, peer: str, order: str) -> bool:
    """Whether a peer has anything to tell."""
    if peer == "sentry":
        return order != "after" or transport == "http"  # it patches how handlers are registered
    # The SDK of mcp 1.x has no spans of its own, and OpenInference only passes trace contexts on.
    return sdk == "mcp 2.x" or peer == "logfire"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("sdk", "transport", "peer", "order"), CASES)
def test_a_peer_tells_what_it_tells_without_us_and_no_request_has_two_server_spans(
    sdk: str, transport: str, peer: str, order: str, env_python: Callable[[str], Path], tmp_path: Path
) -> None:
    python = env_python("peers" if sdk == "mcp 2.x" else "peers-mcp1")
    arguments = (peer, "first" if order == "run" else order)
    bare, probed, recording = tmp_path / "bare", tmp_path / "probed", tmp_path / "recording"
    answers: list[Any]
    ended: Ended
    answers, ended = asyncio.run(held(python, transport, *arguments, PEER_TOLD=str(bare)))
    if order == "run":
        run = [
            sys.executable,
            "-m",
            "mcp_probe",
            "run",
            "--record",
            str(recording),
            "--output",
            f"{tmp_path}/out",
            "--",
        ]
        found = asyncio.run(held(python, transport, *arguments, prefix=run, PEER_TOLD=str(probed)))
    else:
        environment = {"PEER_TOLD": str(probed), "MCP_PROBE_RECORD": str(recording)}
        found = asyncio.run(held(python, transport, *arguments, "attach", **environment))
    assert found[0] == answers
    assert found[1] == ended
    expected, rows = rows_in(bare), rows_in(probed)
    assert bool(expected) is tells(sdk, transport, peer, order)
    assert theirs(rows) == theirs(expected)
    assert_report(recording)
    assert_spans(rows, sdk, peer)


def assert_report(recording: Path) -> None:
    """All that was sent is counted, by hooks that all work, and who waited for whom is true."""
    fold = Fold()
    frames = list(read_recording(recording))
    fold.add_all(frames)
    summary = fold.summary()
    assert isinstance(frames[-1], End)
    assert {row.name: row.count for row in summary.operations if row.method == "tools/call"} == SENT
    assert summary.probe.disabled_hooks == ()
    (blame,) = [row for row in summary.blocked_by if (row.victim, row.blocker) == ("meet", "block")]
    assert blame.victims == 1
    assert BLOCKED_MS <= blame.lo_ms <= blame.hi_ms
    assert blame.quality == "exact"


def assert_spans(rows: list[Row], sdk: str, peer: str) -> None:
    """On mcp 2.x the SDK's spans are completed, on 1.x each request has one of ours: where there is a provider."""
    spans = [row for row in rows if row[0] != "sentry"]
    server = [row for row in spans if row[2] == "SERVER"]
    ours = [row for row in server if row[0] == "mcp_probe"]
    calls = [row for row in server if row[1].startswith("tools/call")]
    if peer == "sentry":
        assert spans == []
    elif sdk == "mcp 2.x":
        assert ours == []
        assert Counter(row[1].removeprefix("tools/call ") for row in calls) == SENT
        assert all(row[5] == ["mcp_probe"] for row in calls), "each has what we add"
    else:
        assert server == ours
        assert Counter(row[1].removeprefix("tools/call ") for row in calls) == SENT
    assert sum(row[3] == TRACE for row in calls) == (peer != "sentry")
