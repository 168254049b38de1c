"""A server that breaks is told from one that ends, and from one that was asked to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.launch.running import program, run

SERVER = """
import os, signal
from mcp.server import MCPServer

server = MCPServer("breakable")
server.run("stdio")
{end}
"""
SECRET = "hunter2"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}


def ended(folder: Path, end: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, summary and stderr of a server that a client asked something before it came to ``end``."""
    report = folder / "report.json"
    command = program(folder, SERVER.format(end=end))
    done = run(command, "--json", str(report), stdin=json.dumps(INITIALIZE).encode() + b"\n")
    return done.returncode, json.loads(report.read_text("utf-8")), done.stderr.decode()


def test_an_exception_that_nothing_caught_is_the_verdict_with_its_line_and_without_its_message(tmp_path: Path) -> None:
    code, summary, stderr = ended(tmp_path, f"raise ValueError({SECRET!r})")
    assert code == 1
    assert summary["verdict"]["code"] == "crashed"
    (crash,) = [finding for finding in summary["findings"] if finding["code"] == "crashed"]
    assert crash["severity"] == "critical"
    assert crash["evidence"]["exit_code"] == 1
    assert (crash["evidence"]["exception"], crash["evidence"]["where"]) == ("ValueError", "program.py:7")
    assert SECRET not in json.dumps(summary)
    assert f"ValueError: {SECRET}" in stderr, "the program's own traceback, as it is"


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_a_clean_end_and_one_that_was_asked_for_are_no_crash(tmp_path: Path, end: str) -> None:
    _, summary, _ = ended(tmp_path, end)
    assert "crashed" not in {finding["code"] for finding in summary["findings"]}
