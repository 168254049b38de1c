"""Programs of ``tests/harm/programs``, run in processes of their own: bare, and with the probe, native and pure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

from mcp_probe import native

ROOT = Path(__file__).resolve().parents[2]
How = Literal["bare", "native", "pure"]
_NATIVE = pytest.param(
    "native", marks=pytest.mark.skipif(native.core is None, reason=f"no accelerator: {native.absence}")
)
CORES = pytest.mark.parametrize("core", [_NATIVE, "pure"])
ONE_CORE = pytest.mark.parametrize("core", [_NATIVE, pytest.param("pure", marks=pytest.mark.endurance)])
"""For what takes long: `make test-endurance` runs the other."""


def environment(core: How, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what says how to probe, and with ``core``."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MCP_PROBE_")}
    kept.update(PYTHONPATH=str(ROOT), PYTHONFAULTHANDLER="1", MCP_PROBE_NATIVE="0" if core == "pure" else "1")
    return {**kept, **(extra or {})}


def told(
    program: str,
    core: How,
    *arguments: str,
    python: str = sys.executable,
    timeout_s: float = 60,
    extra: Mapping[str, str] | None = None,
) -> Any:
    """What ``program`` tells of itself: the JSON of its last line. Fails the test where it does not end with 0."""
    command = [python, "-m", f"tests.harm.programs.{program}", core, *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(core, extra),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        errors = late.stderr.decode() if isinstance(late.stderr, bytes) else late.stderr or ""
        pytest.fail(f"{program} ({core}) has not ended after {timeout_s} s\n{errors[-3000:]}")
    if done.returncode:
        pytest.fail(f"{program} ({core}) ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@cache
def bare(program: str, *arguments: str, python: str = sys.executable) -> Any:
    """What ``program`` tells without the probe."""
    return told(program, "bare", *arguments, python=python)


@cache
def pythons() -> tuple[str, ...]:
    """Interpreters found here, one for each minor version from 3.10 on, this one included."""
    found = {sys.version_info[:2]: sys.executable}
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    for minor in range(10, 20):
        for folder in folders:
            candidate = folder / f"python3.{minor}"
            if (3, minor) not in found and candidate.exists() and _runs(candidate, minor):
                found[3, minor] = str(candidate)
    return tuple(found[version] for version in sorted(found))


def _runs(candidate: Path, minor: int) -> bool:
    code = f"import sys, asyncio, ctypes; sys.exit(sys.version_info[:2] != (3, {minor}))"
    return subprocess.run([candidate, "-c", code], capture_output=True, check=False).returncode == 0
