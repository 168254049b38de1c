"""What a server's lifespan holds is let go of as it ends: a leak hunt takes its last look before that."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import memory_leaks
from benchmarks.memory_kinds import KINDS
from mcp_probe import native
from tests.adapters.raw_clients import HttpClient, RawClient, StdioClient
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
MCP1 = ROOT / ".envs" / "mcp1" / "bin" / "python"
CALLS, AT_ONCE, KEPT = 120, 10, 20_000

SERVER = f"""
import sys
from contextlib import asynccontextmanager

import anyio

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP as MCPServer

@asynccontextmanager
async def lifespan(server):
    yield {{"kept": []}}

server = MCPServer("kept", lifespan=lifespan)

@server.tool()
async def keep(ctx: Context) -> str:
    ctx.request_context.lifespan_context["kept"].append(bytearray({KEPT}))
    return "ok"

if __name__ == "__main__":
    backend, port = sys.argv[1:]
    if backend == "http":
        import uvicorn
        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(port), log_level="warning")
    else:
        anyio.run(server.run_stdio_async, backend=backend)
"""

pytestmark = pytest.mark.skipif(native.memory is None, reason="whose blocks are is known with the accelerator only")
mcp1 = pytest.mark.skipif(not MCP1.exists(), reason="no environment with mcp 1.x")


@pytest.mark.parametrize(
    ("python", "backend"),
    [
        (Path(sys.executable), "asyncio"),
        (Path(sys.executable), "trio"),
        (Path(sys.executable), "http"),
        pytest.param(MCP1, "asyncio", marks=mcp1),
        pytest.param(MCP1, "http", marks=mcp1),
    ],
)
def test_a_leak_that_the_lifespan_holds_is_one(tmp_path: Path, python: Path, backend: str) -> None:
    """Each was called steady, after its list had gone with the server."""
    (tmp_path / "server.py").write_text(SERVER)
    port = free_port()
    command = [str(python), str(tmp_path / "server.py"), backend, str(port)]
    environment = {**os.environ, "MCP_PROBE_MEMORY": "leaks", "PYTHONPATH": str(ROOT)}
    client: RawClient
    if backend == "http":
        client = HttpClient(command, tmp_path, environment, port, "/mcp")
    else:
        client = StdioClient(command, tmp_path, environment)
    with client:
        for first in range(0, CALLS, AT_ONCE):
            client.wait_for(*(client.call(f"{first + each}", "keep") for each in range(AT_ONCE)))
    (row,) = [row for row in client.summary["leaks"]["operations"] if row["name"] == "keep"]
    assert row["verdict"] == "grows", row
    assert row["calls"] == CALLS and row["bytes_per_call"] == pytest.approx(KEPT, rel=0.1)
    assert row["held_bytes"] >= 0.9 * CALLS * KEPT
    line: Any = row["lines"][0]
    assert (Path(line["file"]).name, line["function"]) == ("server.py", "keep")


def test_a_quick_run_without_a_leak_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has fewer looks than a course, and its calls seem to keep 580 B each on average, 80 B of them at one line.

    What it takes to be a leak then is in tests/aggregate/test_growth.py.
    """
    monkeypatch.setattr(memory_leaks, "PAUSE_S", 0.0)
    summary = memory_leaks.hunted([KINDS["weak_dicts"]], 70, tmp_path)
    assert summary is not None
    (row,) = [row for row in summary["leaks"]["operations"] if row["name"] == "weak_dicts"]
    assert (row["verdict"], row["calls"]) == ("steady", 70)
    assert "memory-growth" not in [finding["code"] for finding in summary["findings"]]
