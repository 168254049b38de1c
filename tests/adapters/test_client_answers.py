"""A handler asks its client. Once the answer lies in the pipe it waits for the loop, not for the client."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from mcp_probe.model import RequestRecord
from mcp_probe.record.file import read_recording
from tests.adapters.raw_clients import StdioClient

ROOT = Path(__file__).resolve().parents[2]
MCP1 = ROOT / ".envs" / "mcp1" / "bin" / "python"
BLOCK_MS, THINKS_MS = 600, 100

SERVER = f"""
import sys, time

import anyio

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp_types import SamplingMessage, TextContent
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP as MCPServer
    from mcp.types import SamplingMessage, TextContent

server = MCPServer("asks")

@server.tool()
async def ask(ctx: Context) -> str:
    question = SamplingMessage(role="user", content=TextContent(type="text", text="?"))
    await ctx.session.create_message([question], max_tokens=5)
    return "ok"

@server.tool()
async def block() -> str:
    time.sleep({BLOCK_MS / 1e3})
    return "ok"

anyio.run(server.run_stdio_async, backend=sys.argv[1])
"""


class Asked(StdioClient):
    """Notes the question of the server, and when it came."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.question: str | None = None
        self.was_asked = threading.Event()

    def note(self, line: bytes) -> None:
        message = json.loads(line)
        if message.get("method") == "sampling/createMessage":
            self.question = message["id"]
            self.was_asked.set()
        super().note(line)


@pytest.mark.parametrize(
    ("python", "backend"),
    [
        (Path(sys.executable), "asyncio"),
        (Path(sys.executable), "trio"),
        pytest.param(MCP1, "asyncio", marks=pytest.mark.skipif(not MCP1.exists(), reason="no mcp 1.x")),
    ],
)
def test_an_answer_that_lay_in_the_pipe_waited_for_the_loop(python: Path, backend: str, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    client = Asked([str(python), str(script), backend], tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    with client:
        client.call("asks", "ask")
        assert client.was_asked.wait(60)
        asked = time.monotonic()
        client.call("blocks", "block")
        time.sleep(THINKS_MS / 1e3)
        content = {"type": "text", "text": "!"}
        answer = {"role": "assistant", "content": content, "model": "m"}
        client.post({"jsonrpc": "2.0", "id": client.question, "result": answer})
        answered = time.monotonic()
        client.wait_for("asks", "blocks")
    by_name = {each.name: each for each in read_recording(client.recording) if isinstance(each, RequestRecord)}
    record, blocker = by_name["ask"], by_name["block"]
    assert record.client_wait_ns is not None
    thought_ms = (answered - asked) * 1e3
    assert record.client_wait_ns / 1e6 < thought_ms + 30  # from its question on, which came before we saw it
    unread_ms = blocker.step_max_ns / 1e6 - thought_ms  # it blocked since then, or later
    assert record.budget.ready_wait is not None
    assert record.budget.ready_wait / 1e6 > unread_ms - 30
    blamed = {(each["victim"], each["blocker"]): each["lo_ms"] for each in client.summary["blocked_by"]}
    assert blamed["ask", "block"] > unread_ms - 30
