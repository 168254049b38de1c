"""A platform without some of the standard library's names, or with none of them: attach, call, report, detach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.raw_stdio import raw_client
from tests.platform.test_optional_names import used_in_servers

ROOT = Path(__file__).parents[2]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rows").read_text().splitlines()]


def check(row: dict[str, Any]) -> None:
    """The server was called, and the probe saw it; what it could not see has no exception for its reason."""
    assert row["raised"] == "" and row["attached"] and row["stuck"] == [], row
    assert row["calls"] == {"block": 1, "wait": 1, "in_thread": 1}, row
    assert "block" in {tool for tool, *_ in row["slow_steps"]}
    assert not [line for line in (*row["told"], *row["disabled"]) if "Error" in line and "OSError" not in line], row
    assert len(row["report"]) > 1000


@cache
def missing_on(*platforms: str) -> frozenset[tuple[str, str]]:
    return frozenset().union(*map(used_in_servers, platforms))


def run(which: str, folder: Path, *platforms: str, native: str = "0") -> None:
    (folder / "names").write_text(json.dumps(sorted(missing_on(*platforms))))
    ran = subprocess.run(
        [sys.executable, "-m", "tests.platform.bare_platform", which, "memory", str(folder)],
        cwd=ROOT, env={**os.environ, "MCP_PROBE_NATIVE": native}, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.slow
def test_without_any_one_name_a_server_is_profiled(tmp_path: Path) -> None:
    run("each", tmp_path, "win32", "darwin")
    rows = rows_of(tmp_path)
    assert {row["platform"] for row in rows} == {
        "/proc", *(".".join(filter(None, pair)) for pair in missing_on("win32", "darwin"))
    }  # fmt: skip
    assert len(rows) > 30
    for row in rows:
        assert row["answers"] == [1, 2, 3]
        check(row)


@pytest.mark.parametrize(
    ("platforms", "native"), [(("win32", "darwin"), "0"), (("win32", "darwin"), ""), (("darwin",), "0")]
)
def test_without_all_of_them_and_proc_a_server_is_profiled(
    platforms: tuple[str, ...], native: str, tmp_path: Path
) -> None:
    run("all", tmp_path, *platforms, native=native)
    (row,) = rows_of(tmp_path)
    assert row["answers"] == [1, 2, 3]
    check(row)


def test_without_all_of_them_a_stdio_server_is_profiled_and_reports_at_its_exit(tmp_path: Path) -> None:
    (tmp_path / "names").write_text(json.dumps(sorted(missing_on("win32", "darwin"))))
    command = [sys.executable, "-m", "tests.platform.bare_platform", "all", "stdio", str(tmp_path)]
    with raw_client(command, {"MCP_PROBE_NATIVE": "0", "PYTHONPATH": str(ROOT)}) as client:
        for number, (tool, given) in enumerate((("block", {"ms": 50.0}), ("wait", {}), ("in_thread", {})), 1):
            client.call(number, tool, **given)
            client.wait(number)
        answers = [client.answers[number]["result"]["structuredContent"]["result"] for number in (1, 2, 3)]
    assert answers == [1, 2, 3]
    (row,) = rows_of(tmp_path)
    check(row)
    assert "attached · " in (tmp_path / "report").read_text()
