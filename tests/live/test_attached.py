"""A live probe from its attachment to its end: what it leaves, in its process and in a forked one."""

from __future__ import annotations

import gc
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from weakref import ref

import anyio
import pytest
from mcp.server.mcpserver import MCPServer

from mcp_probe.live import folder
from mcp_probe.live.channel import LiveChannel
from mcp_probe.now import Snapshot
from mcp_probe.session import attach
from mcp_probe.top.servers import Connection, Gone
from tests.adapters.serving import over_memory_streams
from tests.loops import LOOPS
from tests.running import Backend, kind_of, run_on

LIMIT_S = 30.0


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="probe-", dir="/tmp") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name) / "mcp-probe"


def sockets_in(place: Path, count: int = 1) -> list[Path]:
    """Once there are so many."""
    deadline = time.monotonic() + LIMIT_S
    while len(found := folder.sockets(place)) != count:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def test_a_server_is_live_from_its_attachment_to_its_detachment(runtime: Path) -> None:
    probe = attach(MCPServer("first"), live=True, telemetry="off")
    try:
        [path] = sockets_in(runtime)
        connection = Connection(path)
        assert (connection.name, connection.pid) == ("first", os.getpid())
        assert probe._hub.hooks["live channel"] == "active"
    finally:
        probe.detach()
    with pytest.raises(Gone, match="its probe was detached"):
        connection.read(LIMIT_S)
    connection.close()
    assert list(runtime.iterdir()) == []


def test_two_probes_of_one_process_are_two_servers(runtime: Path) -> None:
    probes = [attach(MCPServer(name), live=True, telemetry="off") for name in ("first", "second")]
    try:
        connections = [Connection(path) for path in sockets_in(runtime, 2)]
        assert {connection.name for connection in connections} == {"first", "second"}
        for connection in connections:
            connection.close()
    finally:
        for probe in probes:
            probe.detach()
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize("backend", LOOPS)
def test_a_signal_on_its_loop_ends_it_only_after_its_last_word(
    backend: Backend, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn sends itself its signal there; on a busy machine the thread that says so comes last."""
    end = LiveChannel._end

    def end_late(channel: LiveChannel, path: Path) -> None:
        time.sleep(0.1)
        end(channel, path)

    monkeypatch.setattr(LiveChannel, "_end", end_late)
    probe = attach(MCPServer("first"), live=True, telemetry="off")
    try:
        connection = Connection(sockets_in(runtime)[0])

        async def is_signalled() -> None:
            probe._hub.process_ends(0.0)

        run_on(backend, is_signalled)
        assert list(runtime.iterdir()) == []
        with pytest.raises(Gone, match="a signal ends its process"):
            connection.read(LIMIT_S)
        connection.close()
    finally:
        probe.detach()


def test_a_probe_that_was_detached_is_held_by_no_other(runtime: Path) -> None:
    stays = attach(MCPServer("stays"), live=True, telemetry="off")
    try:
        goes = attach(MCPServer("goes"), live=True, telemetry="off")
        held = ref(goes)
        goes.detach()
        del goes
        deadline = time.monotonic() + LIMIT_S
        while held() is not None and time.monotonic() < deadline:  # its threads may still leave their last frames
            gc.collect()
            time.sleep(0.01)
        assert held() is None
    finally:
        stays.detach()


def test_without_the_option_there_is_nothing(runtime: Path) -> None:
    probe = attach(MCPServer("quiet"), telemetry="off")
    probe.detach()
    assert not runtime.exists()


def test_the_environment_switches_it_on(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_PROBE_LIVE", "1")
    probe = attach(MCPServer("first"), telemetry="off")
    try:
        sockets_in(runtime)
    finally:
        probe.detach()


def test_a_folder_that_is_not_private_switches_it_off_and_nothing_else(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.mkdir()
    runtime.chmod(0o755)
    monkeypatch.setattr(folder, "candidates", lambda: [runtime])
    with caplog.at_level(logging.WARNING, "mcp_probe"):
        probe = attach(MCPServer("first"), live=True, telemetry="off")
        deadline = time.monotonic() + LIMIT_S
        while "live channel" not in probe._hub.hooks and time.monotonic() < deadline:
            time.sleep(0.01)
        summary = probe.snapshot()
        probe.detach()
    assert "lets other users in" in caplog.text
    assert any("live channel" in hook for hook in summary.probe.disabled_hooks)
    assert list(runtime.iterdir()) == []


def test_a_forked_child_takes_no_name_and_closes_no_connection_of_its_parent(runtime: Path) -> None:
    probe = attach(MCPServer("parent"), live=True, telemetry="off")
    try:
        [path] = sockets_in(runtime)
        connection = Connection(path)
        child = os.fork()
        if not child:
            os._exit(0 if not probe.attached and path.exists() else 1)
        assert os.waitpid(child, 0)[1] == 0
        connection.say("watch")
        said = connection.read(LIMIT_S)
        assert said is not None
        assert said[0] == "snapshot"
        connection.close()
    finally:
        probe.detach()


def is_counted(snapshot: Snapshot) -> bool:
    return any(row.name == "quick" and row.count == 20 for row in snapshot.operations)


@pytest.mark.parametrize("backend", LOOPS)
def test_a_viewer_has_operations_drained_and_counted(backend: Backend, runtime: Path) -> None:
    server = MCPServer("counting")

    @server.tool()
    async def quick() -> str:
        return "x"

    probe = attach(server, live=True, telemetry="off")
    seen: list[Snapshot] = []

    def watch(connection: Connection) -> None:
        while True:
            said = connection.read(LIMIT_S)
            assert said is not None
            if said[0] == "snapshot":
                seen.append(said[1])
                return

    async def call() -> None:
        async with over_memory_streams(server) as session:
            connection = Connection(sockets_in(runtime)[0])
            connection.say("watch")
            await anyio.to_thread.run_sync(watch, connection)
            for _ in range(20):
                await session.call_tool("quick", {})
            while not (is_counted(seen[-1]) and seen[-1].loops[0].utilization is not None):
                connection.say("watch")
                await anyio.to_thread.run_sync(watch, connection)
            connection.close()

    try:
        run_on(backend, call)
    finally:
        probe.detach()
    [loop] = seen[-1].loops
    assert loop.name == kind_of(backend)
    assert loop.utilization is not None
    assert seen[-1].server.name == "counting"
    assert (seen[-1].rss_bytes or 0) > 10_000_000
