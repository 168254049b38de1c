"""A fault of ours in attach(): the server goes on without us, the log says so once, and what was hooked is put back."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer

import mcp_probe
from mcp_probe.adapters.all_hooks import ProcessHooks
from mcp_probe.adapters.mcp2 import ServerHooks
from mcp_probe.errors import OptionError, UnsupportedServerError
from mcp_probe.session import AutomaticProbe, InertProbe, Probe
from tests.kept import Log
from tests.safety.broken_attach import leftovers
from tests.test_attach import Snapshot, make_server, use

ROOT = Path(__file__).parents[2]
OFF = "could not attach because of a fault of its own (Fault: planted). The server runs without it. Please report this."


class Fault(Exception):
    """Raised by the part that was broken."""


def fault(*_args: Any, **_kwargs: Any) -> Any:
    raise Fault("planted")


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    logger = logging.getLogger("mcp_probe")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("owner", "name"),
    [(ProcessHooks, "__init__"), (ProcessHooks, "install"), (ServerHooks, "install"), (Probe, "attach")],
    ids=lambda value: getattr(value, "__name__", value),
)
async def test_server_runs_without_a_probe_that_could_not_attach(
    owner: type, name: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    await use(server)
    before = Snapshot(server)
    with monkeypatch.context() as broken:
        broken.setattr(owner, name, fault)
        probe = mcp_probe.attach(server, telemetry="off")
    assert [message for message in log.messages if OFF in message] == log.messages
    assert len(log.messages) == 1
    assert leftovers(server, before) == []
    await use(server)
    assert isinstance(probe, InertProbe) and isinstance(probe, mcp_probe.Probe)
    assert not probe.attached and probe.stuck == () and probe.memory == "off" and probe.findings() == ()
    summary = probe.snapshot()
    assert summary.requests.count == 0 and "Fault: planted" in summary.notes[0]
    probe.detach()
    probe.detach()
    working = mcp_probe.attach(server, telemetry="off")
    await use(server)
    assert working.snapshot().requests.count > 0
    working.detach()


@pytest.mark.anyio
async def test_middleware_streams_app_and_decorator_of_a_probe_at_fault_pass_through(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(ProcessHooks, "install", fault)
        probe = Probe(telemetry="off")
    assert len(log.messages) == 1 and OFF in log.messages[0]
    assert (probe.attached, repr(probe)) == (False, "<Probe that could not attach: Fault: planted>")

    @probe.profile
    async def double(value: int) -> int:
        return 2 * value

    server = MCPServer("passed through", log_level="CRITICAL", middleware=[probe.middleware])
    server.tool(name="double")(double)
    pair, app = (object(), object()), object()
    assert probe.streams(*pair) == pair and probe.asgi(app) is app
    async with Client(InMemoryTransport(server)) as client:
        assert (await client.call_tool("double", {"value": 4})).structured_content == {"result": 8}
    assert probe.snapshot().requests.count == 0
    probe.detach()


@pytest.mark.slow
def test_whatever_raises_in_attach_the_server_works_and_nothing_stays_hooked(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.safety.broken_attach", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    whole, *broken, works = map(json.loads, ran.stdout.splitlines())
    assert whole["left"] == [] and whole["entered"] > 200, whole
    assert [row for row in broken if row["raised"] or row["left"]] == []
    assert sum(row["inert"] for row in broken) > 100, "faults that no hook's own guard catches"
    assert works == {"part": "works"}


def test_bad_use_is_still_told(log: Log) -> None:
    with pytest.raises(UnsupportedServerError):
        mcp_probe.attach(object())
    with pytest.raises(OptionError):
        mcp_probe.attach(make_server(), no_such_option=1)
    assert log.messages == []


@pytest.mark.anyio
async def test_who_makes_a_probe_of_a_class_of_its_own_is_told_of_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Snapshot(server := make_server())
    with monkeypatch.context() as broken, pytest.raises(Fault):
        broken.setattr(ProcessHooks, "install", fault)
        AutomaticProbe(telemetry="off")
    assert leftovers(server, before) == []


BROKEN_IMPORT = """
import asyncio, logging, sys
logging.basicConfig(format="%(message)s")
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer
sys.modules["mcp_probe.{module}"] = None
from mcp_probe import {name}
server = MCPServer("s")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
probe = {name}({argument}telemetry="off")
async def call():
    async with Client(InMemoryTransport(server)) as client:
        return (await client.call_tool("add", dict(a=1, b=2))).structured_content
print(asyncio.run(call()))
probe.detach()
"""


@pytest.mark.parametrize(
    ("name", "argument", "module"), [("attach", "server, ", "capture.proc_files"), ("Probe", "", "session")]
)
def test_server_runs_where_a_module_of_ours_cannot_be_imported(module: str, name: str, argument: str) -> None:
    code = BROKEN_IMPORT.format(module=module, name=name, argument=argument)
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "{'result': 3}\n", ran.stderr
    assert ran.stderr.count("mcp_probe: could not attach because of a fault of its own") == 1


@pytest.mark.anyio
async def test_what_a_server_asks_of_a_probe_works_when_the_probe_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    probe = Probe()
    monkeypatch.setattr(Probe, "_begin", fault)
    try:
        server = MCPServer("x", middleware=[probe.middleware])

        @server.tool()
        def add(a: int, b: int) -> int:
            return a + b

        async with Client(server) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"  # type: ignore[union-attr]
        streams = object(), object()
        assert probe.streams(*streams) == streams
        assert probe.asgi(app) is app
    finally:
        probe.detach()
