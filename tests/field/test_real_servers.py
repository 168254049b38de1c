"""Servers that nobody here wrote, unmodified, under `mcp-probe run`, asked by the SDK's own client."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import pytest

from mcp_probe.model import GrowthSample, RequestRecord
from mcp_probe.record.file import read_recording
from mcp_probe.workloads.client import stdio_client_session
from tests.field.driving import ROOT, ProbedRun, Run, run_bare, run_probed
from tests.field.servers import SERVERS, RealServer, Setting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BLOCKING = ("blocking-call", "cpu-bound-step")
OF_MCP_2 = ("mcp-server-time", "mcp-server-git", "mcp-server-fetch", "mcp-server-motherduck")


class Runs:
    """Both runs of each server, made when first asked for."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._made: dict[str, tuple[Run, ProbedRun, dict[str, int]]] = {}

    def of(self, server: RealServer) -> tuple[Run, ProbedRun, dict[str, int]]:
        """Without the probe, with it, and how often each tool was called."""
        if server.program not in self._made:
            self.once_more(server)
        return self._made[server.program]

    def once_more(self, server: RealServer) -> None:
        """Run it again; what was made before is forgotten."""
        folder = self._folders.mktemp(server.environment)
        with server.set_up(folder) as setting:
            runs = (run_bare(server, setting, folder), run_probed(server, setting, folder), dict(setting.counts))
        self._made[server.program] = runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory)


@pytest.fixture
def server(request: pytest.FixtureRequest, env_python: Callable[[str], Path]) -> RealServer:
    """The server named by the test's parameter; fails where its environment has not been made."""
    found = SERVERS[request.param]
    env_python(found.environment)
    return found


every_server = pytest.mark.parametrize("server", SERVERS, indirect=True)


def tools_of(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in summary["operations"] if row["method"] == "tools/call"}


def unaccounted_share(record: RequestRecord) -> float | None:
    if record.budget.unaccounted is None:
        return None
    return record.budget.unaccounted / max(record.end_ns - record.arrival_ns, 1)


@every_server
def test_the_server_does_not_have_mcp_probe(server: RealServer, env_python: Callable[[str], Path]) -> None:
    done = subprocess.run(
        [str(env_python(server.environment)), "-c", "import mcp_probe"], capture_output=True, text=True, cwd="/", env={}
    )
    assert "No module named 'mcp_probe'" in done.stderr


@every_server
def test_answers_are_those_of_the_server_without_the_probe(server: RealServer, runs: Runs) -> None:
    bare, probed, counts = runs.of(server)
    assert probed.answers == bare.answers
    assert Counter(tool for tool, _, _ in bare.answers) == counts


@every_server
def test_every_tool_has_a_row_with_its_calls(server: RealServer, runs: Runs) -> None:
    _, probed, counts = runs.of(server)
    assert {name: row["count"] for name, row in tools_of(probed.summary).items()} == counts
    assert probed.summary["requests"]["unfinished"] == 0


@every_server
def test_the_report_is_printed_and_the_exit_code_is_the_servers(server: RealServer, runs: Runs) -> None:
    bare, probed, counts = runs.of(server)
    assert (bare.exit_code, probed.exit_code) == (0, 0)
    assert "Where the time goes" in probed.stderr
    assert "mcp-probe: " not in probed.stderr
    for tool in counts:
        assert tool in probed.stderr
    assert "Where the time goes" not in bare.stderr
    assert probed.summary["complete"]


@every_server
def test_less_than_one_percent_of_a_request_is_unaccounted(server: RealServer, runs: Runs) -> None:
    _, probed, counts = runs.of(server)
    shares = [unaccounted_share(record) for record in probed.records if record.method == "tools/call"]
    seen = [share for share in shares if share is not None]
    assert len(seen) == sum(counts.values())
    assert median(seen) < 0.01


@pytest.mark.parametrize("server", OF_MCP_2, indirect=True)
def test_no_hook_was_disabled_and_nothing_was_dropped(server: RealServer, runs: Runs) -> None:
    _, probed, _ = runs.of(server)
    assert probed.summary["probe"]["disabled_hooks"] == []
    assert (probed.summary["requests"]["dropped"], probed.summary["probe"]["dropped_marks"]) == (0, 0)


@pytest.mark.parametrize("server", ["mcp-server-fetch"], indirect=True)
def test_the_step_that_converts_a_large_page_is_named_with_its_place(server: RealServer, runs: Runs) -> None:
    _, probed, _ = runs.of(server)
    steps = [step for step in probed.summary["slow_steps"] if step["tool"] == "fetch"]
    slowest = max(steps, key=lambda step: float(step["ms"]))
    assert slowest["ms"] > 300
    assert "/site-packages/" in slowest["file"] and slowest["line"] > 0
    assert slowest["cause"] in ("cpu", "run-queue")
    assert "cpu-bound-step" in {finding["code"] for finding in probed.summary["findings"]} or (
        slowest["cause"] == "run-queue"
    )
    victims = [row for row in probed.summary["blocked_by"] if (row["victim"], row["blocker"]) == ("fetch", "fetch")]
    assert victims[0]["hi_ms"] > 300


@pytest.mark.parametrize("server", ["mcp-server-git", "mcp-server-motherduck"], indirect=True)
def test_tools_that_the_sdk_runs_in_threads_have_their_time_there(server: RealServer, runs: Runs) -> None:
    _, probed, counts = runs.of(server)
    tools = tools_of(probed.summary)
    assert all(tools[tool]["budget_ms"]["executor_run"] > 0 for tool in counts)


@pytest.mark.parametrize("server", ["mcp-server-git"], indirect=True)
def test_a_server_that_works_in_threads_is_not_said_to_block_its_loop(server: RealServer, runs: Runs) -> None:
    _, _, counts = runs.of(server)
    blamed = blamed_in(runs, server) & set(counts)
    if blamed:  # on a machine without a core to spare any step may take long: what the server does, it does again
        runs.once_more(server)
        blamed &= blamed_in(runs, server)
    assert not blamed


def blamed_in(runs: Runs, server: RealServer) -> set[str]:
    """Tools that are said to hold the loop up."""
    _, probed, _ = runs.of(server)
    return {finding["subject"] for finding in probed.summary["findings"] if finding["code"] in BLOCKING}


@pytest.mark.parametrize(
    "server", ["mcp-server-sqlite", pytest.param("mcp-server-time", marks=pytest.mark.endurance)], indirect=True
)
def test_a_leak_hunt_is_traced_before_the_transport_has_threads(server: RealServer, tmp_path: Path) -> None:
    """Of a client that kills a server which takes long to end, so all is read from the recording."""
    recording = tmp_path / "recording"
    probe = [sys.executable, "-m", "mcp_probe", "run", "--memory", "leaks", "--record", str(recording), "--"]

    async def talk(setting: Setting) -> None:
        environment = {"PYTHONPATH": "", **setting.environment}
        with (tmp_path / "stderr").open("w") as errors:
            command = [*probe, *server.command(ROOT, setting)]
            async with stdio_client_session(command, environment=environment, stderr=errors) as session:
                await setting.ask(session)
                await anyio.sleep(2)  # the hunt looks every half second or so

    with server.set_up(tmp_path) as setting:
        anyio.run(talk, setting)
    samples = [frame for frame in read_recording(recording) if isinstance(frame, GrowthSample)]
    assert {sample.are_lines_known for sample in samples} == {True}
