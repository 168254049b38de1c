# mypy: ignore-errors
"""Tests as users write them: each budget, kept and not kept. ``test_plugin.py`` runs them and says what must fail."""

from __future__ import annotations

import http.server
import os
import socketserver
import sys
import threading

import anyio
import pytest
import shop

ACCEPTED = []


class Backend(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        ACCEPTED.append(self.client_address)  # a truth of our own: connections, not requests
        super().setup()

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args):
        pass


class Listening(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def backend(monkeypatch):
    ACCEPTED.clear()
    with Listening(("127.0.0.1", 0), Backend) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{listening.server_address[1]}/"
        monkeypatch.setattr(shop, "BACKEND", url)
        monkeypatch.setattr(shop, "SHARED", None)
        monkeypatch.setenv("SHOP_BACKEND", url)
        yield
        listening.shutdown()


def client_of(server):
    if shop.WHICH == "mcp2":
        from mcp.client import Client

        return Client(server)
    if shop.WHICH == "mcp1":
        from mcp.shared.memory import create_connected_server_and_client_session

        return create_connected_server_and_client_session(server._mcp_server)
    from fastmcp import Client

    return Client(server)


async def call_in_process(tool, times=10):
    async with client_of(shop.server) as client:
        for _ in range(times):
            await client.call_tool(tool, {})
    if shop.SHARED is not None:
        await shop.SHARED.aclose()


async def call_over_stdio(command, tool, times=10):
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    given = StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(os.environ))
    async with stdio_client(given) as streams, ClientSession(*streams) as session:
        await session.initialize()
        for _ in range(times):
            await session.call_tool(tool, {})


LIMITS = {
    "retained": "2kB",
    "step_cpu": "30ms",
    "max_connections": 1,
    "max_tasks": 4,
    "max_awaits_under_lock": 0,
    "findings": "blocking-call",
}
CASES = [
    pytest.param(tool, marks=pytest.mark.mcp_budget(**{key: limit}))
    for key, limit in LIMITS.items()
    for tool in (key, f"{key}_well")
]


@pytest.mark.anyio
@pytest.mark.parametrize("tool", CASES)
async def test_async(mcp_profile, backend, tool):
    with mcp_profile(shop.server) as profile:
        await call_in_process(tool)
    assert profile.calls(tool) == 10
    if tool.startswith("max_connections"):
        assert profile.connections_opened() == len(ACCEPTED)


@pytest.mark.parametrize("tool", [case for case in CASES if "stdio" in os.environ.get("SHOP_RUNS", "")])
def test_sync_over_stdio(mcp_profile, backend, tool):
    profile = mcp_profile(command=[sys.executable, shop.__file__])
    anyio.run(call_over_stdio, profile.command, tool)
    assert profile.calls(tool) == 10


def test_z_nothing_is_attached():
    from mcp_probe.capture.worker import workers_alive
    from mcp_probe.session import attached

    assert attached() == ()
    assert workers_alive() <= 1  # one may be about to end
