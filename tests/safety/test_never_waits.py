"""The end of a session waits for nothing of ours, and what was recorded survives all the same."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import httpcore
import pytest
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer

import mcp_probe
from mcp_probe.capture import watchdog, worker
from mcp_probe.capture.proc_files import open_task
from mcp_probe.model import End, RequestRecord
from mcp_probe.record.file import read_recording
from mcp_probe.session import attach_everywhere
from tests.adapters.waits.backend import serving
from tests.kept import Kept, keep
from tests.ports import free_port
from tests.safety.test_exit import environment

# The one asks for a lock that is free; the other opens and reads /proc: 44 us a loop, some 2 us a slow step.
EXCUSED = (worker.__file__, watchdog.__file__)
PACKAGE = os.path.dirname(mcp_probe.__file__) + os.sep
WAITS = {
    *("acquire", "sleep", "wait", "recv", "read", "write", "readline"),
    *("open", "listdir", "scandir", "stat", "lstat", "readlink", "getcwd"),
}


def caller_of_ours(frame: FrameType | None) -> str | None:
    """The innermost frame of ours, unless something of somebody else's runs in between that is no library's."""
    while frame is not None and "site-packages" not in frame.f_code.co_filename:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def is_excused(frame: FrameType | None) -> bool:
    if frame is not None and frame.f_code is open_task.__code__:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename in EXCUSED


@contextmanager
def waits_of_ours() -> Iterator[list[str]]:
    """Calls that may wait, made by us on this thread. Ours that wait for nothing are not among them."""
    found: list[str] = []

    def look(frame: FrameType, event: str, arg: Any) -> None:
        name = getattr(arg, "__name__", "")
        if event == "c_call" and name in WAITS and not is_excused(frame):
            where = caller_of_ours(frame)
            if where is not None:
                found.append(f"{name} in {where}")

    gc.collect()  # what earlier tests left is not finalized inside a function of ours
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)


def make_server() -> MCPServer:
    server = MCPServer("ending", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    return server


async def over_streams(server: MCPServer) -> None:
    async with Client(InMemoryTransport(server)) as client:
        for number in range(3):
            await client.call_tool("add", {"a": number, "b": 1})


async def over_http(server: MCPServer) -> None:
    app = server.streamable_http_app()
    async with app.router.lifespan_context(app):
        await anyio.sleep(0.01)


@pytest.mark.parametrize("serve", [over_streams, over_http])
@pytest.mark.parametrize("hung", [False, True], ids=["recording", "a sink that hangs"])
async def test_a_session_from_its_first_request_to_its_end_waits_for_nothing_of_ours(
    serve: Callable[[MCPServer], Any], hung: bool
) -> None:
    server = make_server()
    probe = mcp_probe.attach(server)
    sink = Hanging() if hung else Kept()
    probe.add_sink(sink)
    try:
        with waits_of_ours() as waits:
            await serve(server)
        assert waits == [], waits
    finally:
        if isinstance(sink, Hanging):
            sink.leave.set()
        await anyio.to_thread.run_sync(probe.detach)


class Hanging:
    """A sink on a disk that has stopped answering."""

    def __init__(self) -> None:
        self.leave = threading.Event()

    def write(self, lines: list[bytes]) -> None:
        self.leave.wait(250)

    def close(self) -> None:
        pass


async def test_a_wait_in_a_file_never_seen_before_asks_neither_the_disk_nor_a_lock(tmp_path: Path) -> None:
    server = make_server()
    names: dict[str, Any] = {"asyncio": asyncio, "httpcore": httpcore}
    with serving() as backend:
        for number, body in enumerate((HOLDS, CALLS)):
            file = tmp_path / f"never_seen_{number}.py"
            exec(compile(body.format(backend.address), str(file), "exec"), names)
        server.add_tool(names["hold"])
        server.add_tool(names["call"])
        probe = mcp_probe.attach(server)
        kept = keep(probe)
        try:
            with waits_of_ours() as waits:
                async with Client(InMemoryTransport(server)) as client:
                    async with anyio.create_task_group() as tasks:
                        for _ in range(3):
                            tasks.start_soon(client.call_tool, "hold", {})
                    await client.call_tool("call", {})
            assert waits == [], waits
        finally:
            await anyio.to_thread.run_sync(probe.detach)
    assert {one.kind for record in kept.requests("hold") for one in record.awaits or ()} >= {"lock"}
    assert {one.kind for record in kept.requests("call") for one in record.awaits or ()} >= {"connect"}


HOLDS = """
gate = asyncio.Lock()
asked = 0

async def hold() -> str:
    global asked
    asked += 1
    async with gate:
        while asked < 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
    return "held"
"""
CALLS = """
async def call() -> str:
    async with httpcore.AsyncConnectionPool() as pool:
        await pool.request("GET", "{}/")
    return "called"
"""


async def test_a_server_that_is_created_on_a_loop_is_attached_without_waiting() -> None:
    probe = attach_everywhere(Kept())
    try:
        with waits_of_ours() as waits:
            server = make_server()
            await over_streams(server)
        assert probe.serves(server)
        assert waits == [], waits
    finally:
        await anyio.to_thread.run_sync(probe.detach)


async def test_a_detach_on_a_loop_leaves_nothing_out() -> None:
    for _ in range(20):
        server = make_server()
        probe = mcp_probe.attach(server)
        kept = keep(probe)
        await over_streams(server)
        probe.detach()
        assert len(kept.requests("add")) == 3
        assert isinstance(kept.frames[-1], End)


SERVE = """
import sys
import mcp_probe, uvicorn
from mcp_probe.adapters import exits
from mcp.server.mcpserver import MCPServer

server = MCPServer("ending", log_level="CRITICAL")

@server.tool()
async def add(a: int, b: int) -> int:
    return a + b

exits.EXIT_BUDGET_S = 60.0  # that the recording survives is asked, not how soon
mcp_probe.attach(server)
uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")
"""


def test_a_recording_survives_the_signal_that_uvicorn_sends_itself(tmp_path: Path) -> None:
    script, recording = tmp_path / "server.py", tmp_path / "recording"
    script.write_text(SERVE)
    port = free_port()
    env = {**environment(), "MCP_PROBE_RECORD": str(recording)}
    with subprocess.Popen([sys.executable, str(script), str(port)], env=env) as process:

        async def call() -> None:
            with anyio.fail_after(100):
                while True:
                    try:
                        await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                        break
                    except OSError:
                        await anyio.sleep(0.05)
                async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                    for number in range(40):
                        await client.call_tool("add", {"a": number, "b": 1})

        try:
            anyio.run(call)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == -signal.SIGTERM
        finally:
            process.kill()
    frames = list(read_recording(recording))
    assert sum(isinstance(frame, RequestRecord) and frame.name == "add" for frame in frames) == 40
    assert isinstance(frames[-1], End)


def test_only_a_signal_that_ends_the_process_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = mcp_probe.Probe()
    waited: list[float] = []
    monkeypatch.setattr(probe._hub, "process_ends", waited.append)
    previous = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGCONT)
        assert waited == []
        monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)
        signal.raise_signal(signal.SIGUSR1)
        assert len(waited) == 1
    finally:
        signal.signal(signal.SIGUSR1, previous)
        ours = signal.raise_signal
        probe.detach()
    assert signal.raise_signal is ours.__wrapped__  # type: ignore[attr-defined]


def test_a_thread_of_ours_is_started_without_waiting_for_it_and_can_be_waited_for() -> None:
    began, leave = threading.Event(), threading.Event()
    before = threading.enumerate()  # another test may have left a thread that threading knows only as a dummy

    def work() -> None:
        assert thread.is_current()
        began.set()
        leave.wait(100)

    thread = worker.Worker("test", work)
    assert not thread.is_alive()
    thread.start()
    assert thread.is_alive() and not thread.is_current()
    assert began.wait(100)
    thread.join(0.01)
    assert thread.is_alive()
    leave.set()
    thread.join(100)
    assert not thread.is_alive()
    assert thread not in worker._alive
    assert [one for one in threading.enumerate() if one not in before] == []
