"""What `mcp-probe attach` does besides the report: spans, a recording of limited size, an exit code for CI."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import anyio
import pytest

from mcp_probe.model import RequestRecord
from mcp_probe.record.parts import read_parts
from tests.export.otlp_backend import HttpBackend
from tests.launch.attach_cells import python_of
from tests.launch.attaching import LIMIT_S, attaching, serving
from tests.launch.test_attach import anyio_backend, inside, same_as, settled, visit

__all__ = ["anyio_backend"]  # a fixture


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, the last spans have the time for an answer."""
    monkeypatch.setenv("MCP_PROBE_OTLP_EXIT_MS", "60000")


COUNT = 200
"""Calls whose full records are more than an eighth of 1 MB."""
CELLS = [
    (version, sdk, how)
    for version in ("3.14", "3.15")
    for sdk in ("mcp 2.3", "mcp 1.30")
    for how in ("stdio", "http")
    if (version, sdk, how) != ("3.14", "mcp 2.3", "stdio")
]


async def check_exit_code(version: str, sdk: str, how: str, folder: Path, *, slow: bool) -> None:
    """1 where a call blocked for so long, 0 where it did not."""
    junit = folder / "findings.xml"
    async with (
        serving(python_of(version, sdk), folder, how) as server,
        attaching(server.pid, "--fail-on", "blocking-call>150ms", "--junit", str(junit)) as command,
    ):
        await inside(command, server)
        for _ in range(5):  # on a host that lets the watchdog wait, a step that blocked may count as the host's
            await (server.ask("block", seconds=0.2) if slow else server.ask("add", a=1, b=1))
        code, out = await command.end(signal.SIGINT)
    assert code == int(slow), command.told
    assert ("blocking-call" in command.told) == ("<failure" in junit.read_text()) == slow
    assert "mcp_probe" not in server.errors.read_text() and ("block" if slow else "add") in out


async def check_spans_and_limit(version: str, sdk: str, how: str, folder: Path) -> None:
    """As many calls as the client made are spans at the backend and records, with the same ids."""
    calls = folder / "calls"
    async with serving(python_of(version, sdk), folder, how) as server:
        await visit(server, folder, 1)
        before = await settled(server)
        with HttpBackend() as backend:
            options = ("--otlp", backend.url, "--record", str(calls), "--record-limit", "1MB", "--full")
            async with attaching(server.pid, *options, "--json", "-") as command:
                await inside(command, server)
                for number in range(COUNT):
                    assert await server.ask("add", a=number, b=1) == str(number + 1)
                code, out = await command.end(signal.SIGINT)
        assert await same_as(server, before) == {}
    assert code == 0, command.told
    recorded = list(read_parts(calls))
    ids = {frame.span_id for frame in recorded if isinstance(frame, RequestRecord) and frame.name == "add"}
    spans = [span for span in backend.kept.spans() if span.name == "tools/call add"]
    assert {span.span_id.hex() for span in spans} == ids and len(spans) == len(ids) == COUNT
    told = {row["signal"]: row for row in json.loads(out)["probe"]["telemetry"]}
    assert told["spans"]["delivered"] >= COUNT and told["spans"]["undelivered"] == 0
    parts = sorted(folder.glob("calls.part-*"))
    assert parts and all(part.stat().st_size <= 1_000_000 / 8 for part in parts)


@pytest.mark.parametrize("slow", [True, False])
async def test_a_finding_that_was_asked_for_fails_the_command(slow: bool, tmp_path: Path) -> None:
    await check_exit_code("3.14", "mcp 2.3", "stdio", tmp_path, slow=slow)


async def test_spans_of_a_visit_are_sent_and_what_is_recorded_has_its_limit(tmp_path: Path) -> None:
    await check_spans_and_limit("3.14", "mcp 2.3", "stdio", tmp_path)


@pytest.mark.endurance
async def test_findings_that_may_be_missing_fail_the_command(tmp_path: Path) -> None:
    """The server is stopped before it could send its last frames, so nobody knows what is in them."""
    async with serving(python_of("3.14"), tmp_path) as server:
        options = ("--fail-on", "blocking-call>150ms", "--record", str(tmp_path / "calls"))
        async with attaching(server.pid, *options) as command:
            await inside(command, server)
            await server.ask("add", a=1, b=1)
            with anyio.fail_after(LIMIT_S):
                while '"add"' not in (tmp_path / "calls").read_text("utf-8"):
                    await anyio.sleep(0.05)
            os.kill(server.pid, signal.SIGSTOP)
            code, _ = await command.end(signal.SIGINT)
        os.kill(server.pid, signal.SIGCONT)
        assert await server.ask("add", a=1, b=1) == "2"
    assert code == 1, command.told
    assert "did not send its last frames in time" in command.told


@pytest.mark.endurance
@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize(("version", "sdk", "how"), CELLS)
async def test_so_the_exit_code_is_wherever_a_probe_gets_in(
    version: str, sdk: str, how: str, slow: bool, tmp_path: Path
) -> None:
    await check_exit_code(version, sdk, how, tmp_path, slow=slow)


@pytest.mark.endurance
@pytest.mark.parametrize(("version", "sdk", "how"), CELLS)
async def test_so_spans_and_records_are_wherever_a_probe_gets_in(
    version: str, sdk: str, how: str, tmp_path: Path
) -> None:
    await check_spans_and_limit(version, sdk, how, tmp_path)
