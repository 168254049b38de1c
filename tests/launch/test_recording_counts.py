"""What a recording counts beside what a client counted: at a clean end, at a signal, and of a limited size."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.cli import main
from mcp_probe.model import Summary
from mcp_probe.record.parts import files_of, read_parts
from tests.launch.running import probe_run

CALLS = 1500
SERVER = f"""
import signal, sys
import anyio
from mcp.client import Client
from mcp.server.mcpserver import MCPServer

server = MCPServer("counted")

@server.tool()
async def add(a: int, b: int) -> int:
    return a + b

async def main() -> None:
    async with Client(server) as client:
        for first in range(0, {CALLS}, 50):
            async with anyio.create_task_group() as group:
                for number in range(50):
                    group.start_soon(client.call_tool, "add", {{"a": first, "b": number}})
        print("answered", flush=True)
        if "wait" in sys.argv:
            await anyio.sleep_forever()

options = [argument for argument in sys.argv[1:] if argument.startswith("record")]
if options:
    import mcp_probe
    mcp_probe.attach(server, **dict(option.split("=", 1) for option in options))
if "clean" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
anyio.run(main)
"""


def counted(recording: Path) -> tuple[int, Summary]:
    """(calls of the tool, all that it says)."""
    fold = Fold()
    fold.add_all(read_parts(recording))
    summary = fold.summary()
    return sum(row.count for row in summary.operations if row.name == "add"), summary


def command(folder: Path, way: str, *arguments: str, limit: str | None = None) -> list[str]:
    (folder / "server.py").write_text(SERVER)
    python = [sys.executable, "server.py", *arguments]
    if way == "attach":
        return [*python, "record=calls.jsonl", *([f"record_limit={limit}"] if limit else [])]
    options = ["--record", "calls.jsonl", *(["--record-limit", limit] if limit else [])]
    return probe_run(python, "--output", "report.txt", *options)


@pytest.mark.parametrize("way", ["attach", "run"])
def test_at_a_clean_end_the_recording_counts_what_the_client_counted(way: str, tmp_path: Path) -> None:
    subprocess.run(command(tmp_path, way), cwd=tmp_path, check=True, timeout=120, capture_output=True)
    count, summary = counted(tmp_path / "calls.jsonl")
    assert (count, summary.notes) == (CALLS, ())


@pytest.mark.parametrize("way", ["attach", "run"])
def test_a_server_that_handles_sigterm_loses_no_count(way: str, tmp_path: Path) -> None:
    assert ended_by_sigterm(tmp_path, way, "clean") in (0, 1)  # 1: a task group wraps its SystemExit
    count, summary = counted(tmp_path / "calls.jsonl")
    assert (count, summary.notes) == (CALLS, ())


@pytest.mark.parametrize("way", ["attach", "run"])
def test_a_server_that_sigterm_kills_has_a_recording_that_says_so(way: str, tmp_path: Path) -> None:
    assert ended_by_sigterm(tmp_path, way, lines=3) == -signal.SIGTERM
    count, summary = counted(tmp_path / "calls.jsonl")
    assert count <= CALLS
    assert "stops without an end" in " ".join(summary.notes)


def ended_by_sigterm(folder: Path, way: str, *arguments: str, lines: int = 0) -> int:
    """Its exit code; the signal comes once the last call has been answered and the recording has so many lines."""
    process = subprocess.Popen(command(folder, way, "wait", *arguments), cwd=folder, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"answered\n"
        deadline = time.monotonic() + 60
        while lines and count_lines(folder / "calls.jsonl") < lines:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        return process.wait(60)
    finally:
        process.kill()
        process.communicate()


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("way", ["attach", "run"])
def test_a_recording_of_limited_size_says_how_many_calls_it_lacks_wherever_it_is_read(
    way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(command(tmp_path, way, limit="1MB"), cwd=tmp_path, check=True, timeout=240, capture_output=True)
    path = tmp_path / "calls.jsonl"
    assert sum(file.stat().st_size for file in tmp_path.glob("calls.jsonl*")) <= 1_000_000
    count, summary = counted(path)
    cut = [note for note in summary.notes if note.startswith("The recording is cut: ")]
    first = tmp_path / "calls.jsonl.part-00001"
    lacks_some = first not in files_of(path) and len(files_of(path)) > 1  # a loaded machine may count most calls only
    assert len(cut) == lacks_some
    assert lacks_some == (count < CALLS)
    for name, text in outputs(tmp_path, path, capfd).items():
        assert ("recording is cut: " in text) == bool(cut), name


def outputs(folder: Path, path: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What the commands say of a recording."""

    def ran(*arguments: str | Path) -> str:
        assert main([str(argument) for argument in arguments]) == 0
        told = capfd.readouterr()
        return " ".join((told.out + told.err).split())

    capfd.readouterr()
    ran("report", path, "--html", folder / "page.html", "--json", folder / "summary.json")
    return {
        "report": ran("report", path),
        "summary": " ".join(json.loads((folder / "summary.json").read_text())["notes"]),
        "page": (folder / "page.html").read_text("utf-8"),
        "trace": ran("report", path, "--trace", folder / "trace.json"),
        "query": ran("query", "SELECT count(*) FROM requests", path, "--no-cache"),
    }
