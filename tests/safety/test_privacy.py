"""Names, sizes and times are kept; arguments, results, messages and bodies never. And stdout is the server's alone."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import Context, MCPServer

import mcp_probe
from mcp_probe.report.console import render
from tests.adapters.asgi_client import Handshake, Modern, started
from tests.kept import Log, keep

SECRET = "the-secret-7f3a"


def make_server() -> MCPServer:
    server = MCPServer("discreet", log_level="CRITICAL", instructions=SECRET)

    @server.tool(description=SECRET)
    async def echo(text: str, ctx: Context) -> dict[str, str]:
        await ctx.report_progress(1, 2, SECRET)
        local = text + SECRET
        return {"said": local, SECRET: "key"}

    @server.tool()
    def in_thread(text: str) -> str:
        return text

    @server.tool()
    async def fail(text: str) -> str:
        raise ValueError(f"{text} {SECRET}")

    @server.tool()
    async def refuse(text: str) -> str:
        raise MCPError(code=-32050, message=SECRET, data={"text": text})

    @server.prompt()
    def greet(name: str) -> str:
        return f"{name} {SECRET}"

    @server.resource("note://{key}")
    def note(key: str) -> str:
        return SECRET

    return server


async def tell_secrets(server: MCPServer) -> None:
    for target in (InMemoryTransport(server), server):
        async with Client(target) as client:
            for tool in ("echo", "in_thread", "fail", "refuse"):
                try:
                    await client.call_tool(tool, {"text": SECRET, "more": SECRET}, meta={"progressToken": SECRET})  # type: ignore[arg-type]
                except MCPError:
                    continue
            await client.get_prompt("greet", {"name": SECRET})
            await client.read_resource(f"note://{SECRET}")
    for kind in (Modern, Handshake):
        async with started(server.streamable_http_app()) as app:
            http = kind(app)
            await http.open()
            for id, tool in enumerate(("echo", "in_thread", "fail", "refuse")):
                await http.call(f"{SECRET}{id}", tool, token=SECRET, text=SECRET)
            await http.post(f'{{"{SECRET}'.encode())
            await http.send(90, "resources/read", uri=f"note://{SECRET}")


def leaked(where: Any) -> bool:
    return SECRET in (where if isinstance(where, str) else where.decode("utf-8", "replace"))


async def test_nothing_of_arguments_results_or_messages_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log, logger = Log(), logging.getLogger("mcp_probe")
    logger.addHandler(log)
    server = make_server()
    recording = tmp_path / "recording"
    probe = mcp_probe.attach(server, record=str(recording), slow_step_ms=0.5)
    kept = keep(probe)
    await tell_secrets(server)
    summary = probe.snapshot()
    probe.detach()
    logger.removeHandler(log)
    assert len(kept.requests("echo")) == len(kept.requests("refuse")) == 4
    assert [line for line in kept.lines if leaked(line)] == []
    assert not leaked(recording.read_bytes())
    assert not leaked(json.dumps(summary.to_json(), default=str))
    assert not leaked(render(summary, color=False))
    assert [message for message in log.messages if leaked(message)] == []
    written = capfd.readouterr()
    assert written.out == ""


async def test_faults_of_ours_do_not_tell_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault's message may hold whatever it stumbled over; the recording must not."""
    from mcp_probe.capture.messages import Channel

    received = Channel.received

    def stumble(self: Channel, item: Any, context: Any) -> Any:
        if SECRET in repr(item):
            raise ValueError(f"cannot read {item!r}")
        return received(self, item, context)

    monkeypatch.setattr(Channel, "received", stumble)
    server = make_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    with anyio.fail_after(100):
        await tell_secrets(server)
    probe.detach()
    assert dict(kept.header().hooks)["queueing"].startswith("disabled after ValueError in ")
    assert [line for line in kept.lines if leaked(line)] == []


async def test_names_a_client_makes_up_are_kept_short() -> None:
    server = make_server()
    probe = mcp_probe.attach(server)
    kept = keep(probe)
    async with started(server.streamable_http_app(json_response=True)) as app:
        client = Handshake(app)
        await client.open()
        await client.call(1, "x" * 100_000)
        await client.send(2, "y" * 100_000)
    probe.detach()
    assert max(len(record.name or record.method) for record in kept.requests()) == 128
    assert max(map(len, kept.lines)) < 4096
