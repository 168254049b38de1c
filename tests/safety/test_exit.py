"""The end of a profiled process: silent, with its own exit code, and not held up."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mcp_probe.model import End, RequestRecord
from mcp_probe.record.file import read_recording
from tests.safety.conversation import ROOT

PROGRAM = """
import os, signal, sys, threading
import anyio
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer

server = MCPServer("exiting", log_level="CRITICAL")

@server.tool()
async def add(a: int, b: int) -> int:
    await anyio.sleep(0.001)
    return a + b

@server.tool()
def in_thread(text: str) -> str:
    return text

{attach}

async def main():
    for target in (server, InMemoryTransport(server)):
        async with Client(target) as client:
            await client.call_tool("add", {{"a": 1, "b": 2}})
            await client.call_tool("in_thread", {{"text": "x"}})
            {inside}

anyio.run(main, backend={backend!r})
{ending}
"""
ATTACH = "import mcp_probe; probe = mcp_probe.attach(server)"


def run(
    folder: Path, *, attach: str = ATTACH, inside: str = "pass", ending: str = "", backend: str = "asyncio", **env: str
) -> subprocess.CompletedProcess[bytes]:
    script = folder / "program.py"
    script.write_text(PROGRAM.format(attach=attach, inside=inside, ending=ending, backend=backend))
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", str(script)],
        capture_output=True,
        cwd=folder,
        env={**environment(), **env},
        timeout=120,
    )


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MCP_PROBE_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(ROOT)}


ENDINGS = {
    "normal": ("", 0),
    "exit code": ("sys.exit(7)", 7),
    "exception": ("raise SystemExit(3) from None", 3),
    "detached": ("probe.detach()", 0),
    "daemon thread": ("threading.Thread(target=threading.Event().wait, daemon=True).start()", 0),
    "hard": ("os._exit(5)", 5),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_attached_program_ends_silently_with_its_own_exit_code(ending: str, tmp_path: Path) -> None:
    code, status = ENDINGS[ending]
    ended = run(tmp_path, ending=code, backend="trio" if ending == "normal" else "asyncio")
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, b"", b"")


def test_program_that_dies_of_an_exception_says_only_that(tmp_path: Path) -> None:
    ended = run(tmp_path, ending="raise LookupError('its own')")
    assert ended.returncode == 1
    assert ended.stdout == b""
    assert ended.stderr.count(b"Traceback") == 1
    assert ended.stderr.rstrip().endswith(b"LookupError: its own")
    assert b"Exception ignored" not in ended.stderr and b"mcp_probe" not in ended.stderr


def test_program_that_is_terminated_dies_of_the_signal(tmp_path: Path) -> None:
    ended = run(tmp_path, inside="os.kill(os.getpid(), signal.SIGTERM)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGTERM, b"", b"")


def test_interrupted_program_says_no_more_than_without_a_probe(tmp_path: Path) -> None:
    interrupt = "signal.raise_signal(signal.SIGINT); await anyio.sleep(5)"
    bare = run(tmp_path, attach="", inside=interrupt)
    ended = run(tmp_path, inside=interrupt)
    assert (ended.returncode, ended.stdout) == (bare.returncode, bare.stdout)
    assert ended.stderr.count(b"Traceback") == bare.stderr.count(b"Traceback")
    assert b"Exception ignored" not in ended.stderr
    assert ended.stderr.rstrip().splitlines()[-1] == bare.stderr.rstrip().splitlines()[-1]


@pytest.mark.parametrize("ending", ["", "sys.exit(7)", "raise LookupError('its own')"], ids=["normal", "code", "dies"])
def test_report_at_exit_is_all_that_is_on_stderr(ending: str, tmp_path: Path) -> None:
    attach = "import mcp_probe; probe = mcp_probe.attach(server, report='stderr')"
    ended = run(tmp_path, attach=attach, ending=ending)
    assert ended.stdout == b""
    report = ended.stderr.decode()
    assert "add" in report and "in_thread" in report
    assert "Exception ignored" not in report
    assert report.count("Traceback") == ("its own" in ending)
    assert ended.returncode == {"": 0, "sys.exit(7)": 7}.get(ending, 1)


def test_report_and_recording_can_go_to_files_by_environment(tmp_path: Path) -> None:
    report, recording = tmp_path / "report.txt", tmp_path / "recording"
    ended = run(tmp_path, MCP_PROBE_REPORT=str(report), MCP_PROBE_RECORD=str(recording))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert "in_thread" in report.read_text()
    frames = list(read_recording(recording))
    assert isinstance(frames[-1], End)
    assert sum(isinstance(frame, RequestRecord) and frame.name == "add" for frame in frames) == 2


def test_report_to_a_place_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    ended = run(tmp_path, ending="sys.exit(7)", MCP_PROBE_REPORT=str(tmp_path / "no such folder" / "report"))
    assert ended.returncode == 7
    assert ended.stdout == b""
    assert ended.stderr.startswith(b"mcp_probe: the report cannot be written to ")
    assert ended.stderr.count(b"\n") == 1


def test_forked_child_that_exits_normally_reports_nothing(tmp_path: Path) -> None:
    report, recording = tmp_path / "report.txt", tmp_path / "recording"
    ending = """
pid = os.fork()
if pid == 0:
    anyio.run(main)
    sys.exit(0)
os.waitpid(pid, 0)
assert not os.path.exists(os.environ["MCP_PROBE_REPORT"])
"""
    ended = run(tmp_path, ending=ending, MCP_PROBE_REPORT=str(report), MCP_PROBE_RECORD=str(recording))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert "in_thread" in report.read_text()
    frames = list(read_recording(recording))
    assert sum(isinstance(frame, RequestRecord) and frame.name == "add" for frame in frames) == 2
    assert sum(isinstance(frame, End) and frame.reason == "exit" for frame in frames) == 1


def seconds_to_exit(folder: Path, attach: str) -> float:
    """From the program's last statement to its end, with a stderr that is full and that nobody reads."""
    script = folder / "program.py"
    script.write_text(PROGRAM.format(attach=attach, inside="pass", ending="os.write(1, b'x')", backend="asyncio"))
    unread, stderr = os.pipe()
    fcntl.fcntl(stderr, fcntl.F_SETFL, os.O_NONBLOCK)
    try:
        while os.write(stderr, b"x" * 4096):
            pass
    except BlockingIOError:
        pass
    fcntl.fcntl(stderr, fcntl.F_SETFL, 0)
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=stderr, cwd=folder, env=environment()
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.read(1) == b"x"
            began = time.monotonic()
            assert process.wait(120) == 0
            took = time.monotonic() - began
        finally:
            process.kill()
            os.close(stderr)
            os.close(unread)
    return took


def test_report_to_a_stderr_that_nobody_reads_does_not_hold_up_the_exit(tmp_path: Path) -> None:
    bare = min(seconds_to_exit(tmp_path, "") for _ in range(2))
    attach = "import mcp_probe; probe = mcp_probe.attach(server, report='stderr')"
    probed = min(seconds_to_exit(tmp_path, attach) for _ in range(2))
    assert probed - bare < 10  # 0.5 s by design; for ever where it waits for a reader
