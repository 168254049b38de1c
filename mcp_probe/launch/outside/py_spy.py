"""What py-spy sees of a process's threads. It reads their memory from outside, and is asked not to stop them.

It sees stacks of threads only: a task that is suspended stands in none.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp_probe.launch.outside.shapes import Line

ATTEMPTS = 10
LIMIT_S = 20.0


class Failed(Exception):
    """It is not here, or it could not look; the message says which."""


def program() -> str | None:
    """Its path: on PATH, or beside this interpreter."""
    beside = Path(sys.executable).with_name("py-spy")
    return shutil.which("py-spy") or (str(beside) if beside.exists() else None)


def stacks(pid: int) -> dict[int, tuple[str, tuple[Line, ...]]]:
    """Of each thread its name and its lines, innermost first. Raises: Failed."""
    command = program()
    if command is None:
        raise Failed("py-spy is not installed here; `pip install py-spy` lets this command show lines")
    fault = ""
    for _ in range(ATTEMPTS):  # what is read while the process runs may not fit together
        try:
            asked = [command, "dump", "--nonblocking", "--json", "--pid", str(pid)]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise Failed(f"py-spy could not be run ({type(exc).__name__})") from exc
        if done.returncode == 0:
            return parsed(done.stdout)
        told = (done.stderr or done.stdout).strip().splitlines()
        fault = told[0] if told else f"exit code {done.returncode}"
        if "ermission" in fault:
            raise PermissionError(fault)
    raise Failed(f"py-spy could not read process {pid} ({fault[:200]})")


def parsed(text: str) -> dict[int, tuple[str, tuple[Line, ...]]]:
    """py-spy's JSON in our own shapes. Raises: Failed where it is something else."""
    try:
        return {thread["os_thread_id"]: _thread(thread) for thread in json.loads(text) if thread["os_thread_id"]}
    except (ValueError, KeyError, TypeError) as exc:
        raise Failed(f"this py-spy prints what is not known to us ({type(exc).__name__}: {exc})") from exc


def _thread(thread: dict[str, Any]) -> tuple[str, tuple[Line, ...]]:
    frames = tuple(Line(str(one["filename"]), int(one["line"]), str(one["name"])) for one in thread["frames"])
    return str(thread.get("thread_name") or ""), frames
