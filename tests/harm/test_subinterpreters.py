"""Tools may use subinterpreters, also while steps are slow."""

from __future__ import annotations

import os
import subprocess
from functools import cache

import pytest

from tests.harm.running import CORES, ROOT, How, pythons, told

LONG = bool(os.environ.get("MCP_PROBE_FUZZ"))
CALLS, HOGS = ("1000", "4") if LONG else ("40", "0")
TIMEOUT_S = 1500 if LONG else 120
"""`make fuzz` sets it: 1 000 calls beside four processes that only compute."""


@cache
def interpreter(version: str) -> str:
    """The interpreter of this version; skips the test where there is none."""
    for python in pythons():
        code = f"import sys; sys.exit(sys.version_info[:2] != {tuple(map(int, version.split('.')))})"
        if subprocess.run([python, "-c", code], check=False).returncode == 0:
            return python
    return ""


@CORES
@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize(
    ("version", "where"),
    [("3.12", "thread"), ("3.13", "loop"), *([("3.12", "loop"), ("3.13", "thread")] if LONG else [])],
)
def test_subinterpreters_end_no_server_while_steps_are_slow(core: How, version: str, where: str) -> None:
    python = interpreter(version)
    if not python:
        pytest.skip(f"CPython {version} is not here")
    if core == "native":
        loads = "import sys; from mcp_probe import native; sys.exit(native.core is None)"
        if subprocess.run([python, "-c", loads], cwd=ROOT, check=False).returncode:
            pytest.skip(f"no accelerator for CPython {version}")
    assert told("subinterpreters", core, CALLS, where, HOGS, python=python, timeout_s=TIMEOUT_S) == {
        "calls": int(CALLS)
    }
