"""The quick cells of the matrix: this interpreter, and the newest other one, with a wheel of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_probe import native
from tests.platform import cell
from tools.accelerator import building
from tools.interpreters import ROOT, VERSIONS, Absent, Interpreter, interpreter
from tools.matrix import CELLS, PROGRAM, Cell, Outcome, run_cell

BUILDS = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
VERDICT_ON: Any = cell.verdict_on  # that program has no types: it runs beside any SDK
PARTS = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")


@pytest.mark.parametrize("loop", ["asyncio", pytest.param("unknown", marks=pytest.mark.endurance)])
def test_what_is_said_in_this_interpreter_is_true(loop: str) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), loop, "mcp"],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "MCP_PROBE_NATIVE": os.environ.get("MCP_PROBE_NATIVE", "")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["native"] == native.state()
    assert_true(Outcome(Cell("this", loop=loop, native=native.core is not None), told))


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (None, None, "unseen"),
        (950.0, 1040.0, "true"),
        (None, 1000.0, "wide"),
        (1000.0, None, "wide"),
        (940.0, 1060.0, "wide"),
        (354.0, 1064.0, "wide"),
        (1070.0, 47_425.0, "wide"),
        (0.0, 880.0, "wrong"),
        (1120.0, 1125.0, "wrong"),
    ],
)
def test_a_cell_judges_both_ends_of_a_figure(low: float | None, high: float | None, said: str) -> None:
    assert VERDICT_ON(low, high, 1000.0) == said


def test_a_cell_allows_short_waits_some_milliseconds() -> None:
    assert VERDICT_ON(0.0, 15.0, 12.0) == "true"
    assert VERDICT_ON(0.0, 40.0, 12.0) == "wide"


@pytest.mark.endurance
def test_what_is_said_in_another_interpreter_with_its_own_wheel_is_true(tmp_path: Path) -> None:
    other = newest_other()
    version = ".".join(other.version.split(".")[:2])
    dist = wheel_of(other, tmp_path)
    CELLS.mkdir(exist_ok=True)
    outcome = run_cell(Cell(version), dist)
    if outcome.absent:
        pytest.skip(outcome.absent)
    assert_true(outcome)


def assert_true(outcome: Outcome) -> None:
    assert outcome.faults == []
    transports: dict[str, Any] = outcome.told["transports"]
    assert set(transports) == {"in memory", "stdio", "HTTP"}
    for name, one in transports.items():
        assert set(one["waits"]) == ({"timed"} if name == "in memory" else {"add", "timed"})
        assert one["disabled"] == [] or outcome.cell.loop == "unknown"
    if outcome.cell.native and outcome.cell.loop != "unknown":
        assert all(one["memory"] for one in transports.values())


def newest_other() -> Interpreter:
    """The newest CPython but this one that is here with headers; nothing is unpacked for it."""
    for version in reversed(VERSIONS):
        if version == "{}.{}".format(*sys.version_info):
            continue
        try:
            found = interpreter(version, unpack=False)
            building(found)
        except Absent:
            continue
        return found
    pytest.skip("no other CPython that could be built for is here")


def wheel_of(python: Interpreter, folder: Path) -> Path:
    """A folder with a wheel of this tree, compiled for it."""
    source, dist = folder / "source", folder / "dist"
    source.mkdir()
    dist.mkdir()
    for name in PARTS:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "mcp_probe", source / "mcp_probe", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    subprocess.run(
        [python.command, "-W", "ignore", "-c", BUILDS, str(dist)],
        cwd=source,
        env=building(python),
        check=True,
        capture_output=True,
        timeout=200,
    )
    return dist
