"""How servers under `mcp-probe run` end, and that each of them is told whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.launch.running import environment, program, run

SERVE = """
import multiprocessing, sys
import anyio
from mcp import Client
from mcp.server.mcpserver import MCPServer

def serve():
    server = MCPServer("child", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    async def main():
        async with Client(server) as client:
            for number in range(5):
                await client.call_tool("add", {"a": 1, "b": number})

    anyio.run(main)

if __name__ == "__main__":
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_server_in_a_child_of_multiprocessing_is_told_whole(method: str, tmp_path: Path) -> None:
    """Such a child leaves through os._exit, with workers of a web server the usual case."""
    start = f"""
    child = multiprocessing.get_context({method!r}).Process(target=serve)
    child.start()
    child.join()
"""
    figures = tmp_path / "summary.json"
    ended = run(program(tmp_path, SERVE + start), "--json", str(figures))
    assert ended.returncode == 0
    assert b"closing its recording" not in ended.stderr and b"Incomplete" not in ended.stderr
    summary = json.loads(figures.read_text())
    [row] = [row for row in summary["operations"] if row["name"] == "add"]
    assert (row["count"], summary["complete"]) == (5, True)


@pytest.mark.slow
def test_the_option_to_report_at_exit_is_the_parents_business_and_logs_nothing(tmp_path: Path) -> None:
    command = program(tmp_path, SERVE + "    serve()\n")
    ended = run(command, env=environment(MCP_PROBE_REPORT="stderr"))
    said = ended.stderr.decode()
    assert ended.returncode == 0
    assert "disabled" not in said and "Traceback" not in said
    assert said.count("Where the time goes") == 1
