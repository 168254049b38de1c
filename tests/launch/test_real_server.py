"""`mcp-probe run` around a real MCP server, driven by the SDK's own client over real stdio."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_probe.model import End, Frame, RequestRecord
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.client import Answer, Call, stdio_client_session
from tests.launch.running import ROOT, probe_run, program

SERVER = """
import time
from mcp.server import MCPServer

server = MCPServer("small")

@server.tool()
async def add(a: int, b: int) -> int:
    return a + b

@server.tool()
async def hold(ms: int) -> str:
    time.sleep(ms / 1000)
    return "held"

server.run("stdio")
"""

CALLS = [Call("hold", {"ms": 1500}), *(Call("add", {"a": 1, "b": number}) for number in range(5))]


def drive(command: Sequence[str], stderr: Path) -> list[Answer]:
    """Makes ``CALLS``, all at once, and stops the server as SDK clients do."""

    async def talk() -> list[Answer]:
        with stderr.open("w") as errors:
            variables = {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
            async with stdio_client_session(command, environment=variables, stderr=errors) as session:
                return await session.pipelined(CALLS)

    return anyio.run(talk)


@dataclass(frozen=True)
class Run:
    """One run, seen from everywhere."""

    answers: list[Answer]
    summary: dict[str, Any]
    stderr: str
    frames: list[Frame]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    summary, stderr, recording = folder / "summary.json", folder / "stderr.txt", folder / "recording"
    options = ("--json", str(summary), "--record", str(recording))
    answers = drive(probe_run(program(folder, SERVER), *options), stderr)
    return Run(answers, json.loads(summary.read_text()), stderr.read_text("utf-8"), list(read_recording(recording)))


def test_a_server_is_profiled_unmodified_and_ends_cleanly(run: Run) -> None:
    counts = {operation["name"]: operation["count"] for operation in run.summary["operations"]}
    assert (counts["hold"], counts["add"]) == (1, 5)
    assert (run.summary["server"]["name"], run.summary["server"]["transport"]) == ("small", "stdio")
    assert run.summary["complete"]
    assert "small" in run.stderr
    assert "mcp-probe:" not in run.stderr


def test_who_was_held_up_by_the_blocking_tool_is_in_the_report(run: Run) -> None:
    held = [row for row in run.summary["blocked_by"] if (row["victim"], row["blocker"]) == ("add", "hold")]
    assert held[0]["hi_ms"] >= 1000  # five of them; each may come a second late


def test_the_recording_holds_every_request_and_the_end(run: Run) -> None:
    calls = [frame.name for frame in run.frames if isinstance(frame, RequestRecord) and frame.method == "tools/call"]
    assert sorted(str(name) for name in calls) == ["add"] * 5 + ["hold"]
    assert isinstance(run.frames[-1], End)


def test_answers_are_those_of_the_server_without_us(run: Run, tmp_path: Path) -> None:
    bare = drive(program(tmp_path, SERVER), tmp_path / "stderr.txt")
    assert [answer.text for answer in bare] == ["held", "1", "2", "3", "4", "5"]
    assert [(answer.text, answer.error) for answer in bare] == [(answer.text, answer.error) for answer in run.answers]
