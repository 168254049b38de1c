"""`mcp-probe top` as a user meets it: against real servers, as text, as JSON, and in a terminal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mcp_probe.live import folder, wire
from tests.adapters.raw_clients import StdioClient
from tests.adapters.test_await_truths import line_of
from tests.live.test_attached import sockets_in

ROOT = Path(__file__).resolve().parent.parent.parent
SERVER = ROOT / "tests" / "live" / "live_server.py"
LIMIT_S = 60.0


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for sockets that no other server uses, and no other place is looked at."""
    with tempfile.TemporaryDirectory(prefix="probe-", dir="/tmp") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        for variable in ("MCP_PROBE_LIVE", "MCP_PROBE_FLIGHT", "CI", "FORCE_COLOR", "NO_COLOR"):
            monkeypatch.delenv(variable, raising=False)
        yield Path(name)


def run(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **options}
    command = [sys.executable, "-m", "mcp_probe", "top", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT_S, encoding="utf-8")


@pytest.fixture
def hanging(runtime: Path, tmp_path: Path) -> Iterator[StdioClient]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(SERVER), "stdio", "0", "asyncio"]
    with StdioClient(command, tmp_path, environment, profiled=True) as client:
        yield client
        Path(f"{client.waits}.block").touch()


@pytest.mark.slow
def test_once_and_json_say_who_holds_the_lock(hanging: StdioClient) -> None:
    for tool in ("first", "second", "port"):
        hanging.call(tool, tool)
    hanging.wait_for("port")
    pid = str(hanging.process.pid)
    told = json.loads(run(pid, "--json").stdout)
    assert told["format"] == "mcp_probe.top/1"
    [server] = told["servers"]
    requests = {request["operation"]: request for request in server["requests"]}
    assert requests.keys() == {"first", "second"}
    [wait] = requests["first"]["waits"]
    assert wait["where"] == line_of("# first waits for B", SERVER)
    assert wait["holders"][0]["request"] == requests["second"]["id"]
    text = run(pid, "--once", "--width", "100")
    assert text.returncode == 0
    assert "DEADLOCK" in text.stdout
    assert f"hanging · process {pid} · stdio · asyncio" in text.stdout
    assert "\x1b" not in text.stdout
    refused = run("--dump", pid)
    assert refused.returncode == 1
    assert "keeps no flight recording" in refused.stderr
    hanging.call("untie", "untie")
    hanging.wait_for("first", "second")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not there")
def test_a_blocked_loop_is_seen_in_a_terminal_of_80x24(hanging: StdioClient, tmp_path: Path) -> None:
    hanging.call("first", "first")
    hanging.call("blocks", "blocks")
    name = f"mcp-probe-{os.getpid()}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", "TERM": "screen-256color"}
    environment.pop("TMUX", None)

    def tmux(*arguments: str) -> str:
        command = ["tmux", "-L", name, "-u", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, encoding="utf-8").stdout

    top = f"{sys.executable} -m mcp_probe top {hanging.process.pid}; echo it has ended with $?; exec cat"
    tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", top)

    def until(words: str) -> list[str]:
        deadline = time.monotonic() + LIMIT_S
        while words not in (shown := tmux("capture-pane", "-p")):
            assert time.monotonic() < deadline, shown
            time.sleep(0.1)
        return shown.splitlines()

    try:
        lines = until("BLOCKED for")
        assert lines[0].startswith(f"hanging · process {hanging.process.pid} · stdio")
        place = Path(line_of("# blocks", SERVER)).name
        assert any(line.startswith("BLOCKED for") and "by blocks #" in line and place in line for line in lines)
        until("q quit")
        tmux("send-keys", "Home", "Enter")  # who holds the loop comes first
        until("on the event loop")
        tmux("send-keys", "Escape")
        until("IN FLIGHT")
        hanging.process.kill()
        lines = until("ENDED it ended without a word (killed, or crashed)")
        assert any("BLOCKED for" in line for line in lines)
        tmux("send-keys", "q")
        until("it has ended with 0")
    finally:
        tmux("kill-server")


def test_without_a_server_it_says_what_to_do(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run("--once", TMPDIR=str(runtime))
    if found.returncode == 0:
        pytest.skip("a live server of this user runs outside of the tests")
    assert found.returncode == 1
    assert found.stdout == ""
    assert "No live server of this user was found." in found.stderr
    assert "mcp-probe run --live -- python server.py" in found.stderr
    assert str(runtime / "mcp-probe") in found.stderr


@pytest.mark.parametrize("arguments", [("--once", "--json"), ("--dump", "x"), ("0",), ("--once", "--dump", "3")])
def test_bad_use_is_refused(arguments: tuple[str, ...]) -> None:
    found = run(*arguments)
    assert found.returncode == 2
    assert "Traceback" not in found.stderr


def served(pid: int, line: bytes) -> int:
    """A process that listens in the folder as if it were ``pid``, and says ``line`` to whoever comes."""
    place = folder.make()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place / f"{pid}.sock"))
    listener.listen(8)
    child = os.fork()
    if not child:
        signal.alarm(60)
        while True:
            connection, _ = listener.accept()
            with suppress(OSError):
                connection.sendall(line)
            connection.close()
    listener.close()
    return child


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (
            {"format": wire.FORMAT, "version": 99, "probe": "9.9", "pid": 5, "name": "new"},
            "live channel has version 99",
        ),
        ({"format": "x"}, "Something else than an mcp_probe server"),
    ],
)
def test_a_server_of_another_version_is_a_sentence(runtime: Path, hello: dict[str, object], words: str) -> None:
    child = served(5, wire.encoded("hello", hello))
    try:
        found = run("5", "--once")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert found.returncode == 1
    assert words in found.stderr
    assert "Traceback" not in found.stderr


def test_without_textual_the_screen_names_the_extra_and_once_needs_none(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("raise ImportError('hidden')")
    found = run(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert found.returncode == 2
    assert "needs Textual, which is not installed. Install the extra `look`" in found.stderr
    once = run("--once", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert "Textual" not in once.stderr


RUN_SERVER = """
try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("flying", log_level="CRITICAL")

@server.tool()
def quick() -> str:
    return "x"

server.run("stdio")
"""


@pytest.mark.slow
def test_a_server_under_run_is_live_and_its_flight_recording_is_an_ordinary_one(runtime: Path, tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(RUN_SERVER)
    flights = tmp_path / "flights"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MCP_PROBE_LIVE": "1", "MCP_PROBE_FLIGHT": str(flights)}
    with StdioClient([sys.executable, str(program)], tmp_path, environment) as client:
        client.call("quick", "quick")
        client.wait_for("quick")
        [path] = sockets_in(runtime / "mcp-probe")
        dumped = run("--dump", path.stem)
        assert dumped.returncode == 0, dumped.stderr
        [recording] = flights.iterdir()
        assert dumped.stdout.strip() == str(recording)
    report = subprocess.run(
        [sys.executable, "-m", "mcp_probe", "report", str(recording), "--json", "-"],
        capture_output=True,
        check=True,
        env=environment,
        timeout=LIMIT_S,
    )
    summary = json.loads(report.stdout)
    assert summary["complete"]
    assert "quick" in [row["name"] for row in summary["operations"]]
    assert any("somebody asked for it by `mcp-probe top`" in note for note in summary["probe"]["notes"])
    assert folder.sockets(runtime / "mcp-probe") == []
