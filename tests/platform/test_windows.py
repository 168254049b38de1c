"""A Windows CPython: a server that attaches there starts, answers, and reports what was seen and what was not.

MCP_PROBE_WINDOWS_PYTHON is a command that runs such an interpreter with mcp 2.x: ``python.exe`` itself, or a script
that runs it under Wine, where this checkout is on drive Z.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.raw_stdio import raw_client

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("attached_calls.py")
PYTHON = os.environ.get("MCP_PROBE_WINDOWS_PYTHON", sys.executable if sys.platform == "win32" else "")

pytestmark = pytest.mark.skipif(not PYTHON, reason="no Windows CPython here: MCP_PROBE_WINDOWS_PYTHON names none")


def there(path: Path) -> str:
    """``path`` as Windows calls it."""
    return str(path) if sys.platform == "win32" else "Z:" + str(path).replace("/", "\\")


def row_of(folder: Path) -> dict[str, Any]:
    (line,) = (folder / "rows").read_text(encoding="utf-8").splitlines()
    row: dict[str, Any] = json.loads(line)
    return row


def check(row: dict[str, Any], folder: Path) -> None:
    assert row["platform"] == "win32" and row["raised"] == "" and row["attached"] and row["stuck"] == [], row
    assert row["calls"] == {"block": 1, "wait": 1, "in_thread": 1}
    assert not [line for line in (*row["told"], *row["disabled"]) if "disabled after" in line], row
    assert row["longest_ms"]["block"] >= 450
    blamed = [ms for tool, _, ms in row["slow_steps"] if tool == "block"]
    if blamed:
        assert 450 <= blamed[0] <= row["longest_ms"]["block"] + 20
    else:
        assert any(line.startswith("steps: ") for line in row["disabled"]), "neither blamed nor said to be unseen"
        assert "is disabled, see below" in row["report"]
    assert report_of(folder).startswith("attached · ")


def report_of(folder: Path) -> str:
    """What was written at the server's exit: by a process of its own, for which the server waits 0.5 s."""
    report, until = folder / "report", time.monotonic() + 60
    while not (report.exists() and report.stat().st_size) and time.monotonic() < until:
        time.sleep(0.05)
    return report.read_text(encoding="utf-8")


def test_server_in_memory(tmp_path: Path) -> None:
    ran = subprocess.run(
        [PYTHON, there(PROGRAM), "memory", there(tmp_path)],
        env={**os.environ, "PYTHONPATH": there(ROOT)}, stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    row = row_of(tmp_path)
    assert row["answers"] == [1, 2, 3]
    check(row, tmp_path)


def test_server_over_stdio(tmp_path: Path) -> None:
    # Wine's python.exe takes pipes for its streams, and no files, which is what pytest has for stderr.
    command = ["sh", "-c", 'exec "$0" "$@" 2>/dev/null', PYTHON] if sys.platform != "win32" else [PYTHON]
    with raw_client([*command, there(PROGRAM), "stdio", there(tmp_path)], {"PYTHONPATH": there(ROOT)}) as client:
        for number, (tool, given) in enumerate((("block", {"ms": 500.0}), ("wait", {}), ("in_thread", {})), 1):
            client.call(number, tool, **given)
            client.wait(number)
        answers = [client.answers[number]["result"]["structuredContent"]["result"] for number in (1, 2, 3)]
    assert answers == [1, 2, 3]
    check(row_of(tmp_path), tmp_path)
