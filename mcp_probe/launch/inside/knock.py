"""PEP 768: has the server run a script, by way of its own interpreter, and says in a sentence why that is not possible.

Caller and server must be of one minor version, so the server's interpreter calls ``sys.remote_exec``. It needs nothing
installed for that. The script is run by the server's main thread once that executes Python: not while it waits for
events, sleeps, or is in C.

Source: PEP 768; Python/remote_debug.h, Python/ceval_gil.c, CPython 3.14 and 3.15.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from mcp_probe.errors import AttachError
from mcp_probe.launch.outside.target import Target, permission_advice

OLDEST = (3, 14)
LIMIT_S = 30.0
NOTHING = "/dev/null"
"""A script that does nothing: run in the place of one that nobody waits for any more."""
_CALL = """\
import sys
try:
    sys.remote_exec(int(sys.argv[1]), sys.argv[2])
except BaseException as exc:
    print(type(exc).__name__, exc, sep="\\n")
"""


def check(target: Target) -> None:
    """Raises: AttachError where the probe cannot be brought into ``target``, with what to do instead."""
    if target.version < OLDEST:
        raise AttachError(
            f"Process {target.pid} runs Python {target.python}. The probe can be brought into a running process from "
            f"Python 3.14 on. Restart the server under the probe instead:\n  {restart(target)}"
        )
    if target.unaskable:
        raise AttachError(f"The probe cannot be brought into process {target.pid}: {target.unaskable}.")


def knock(target: Target, script: str | Path) -> None:
    """Have ``target`` run ``script`` as soon as it executes Python. Does not wait for that. Raises: AttachError."""
    command = [target.interpreter, "-I", "-S", "-B", "-c", _CALL, str(target.pid), str(script)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise AttachError(f"{target.executable} could not be run to enter process {target.pid} ({exc}).") from exc
    if done.returncode or done.stderr:
        told = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise AttachError(f"{target.executable} could not be run to enter process {target.pid} ({told[-1][:200]}).")
    if done.stdout:
        kind, _, text = done.stdout.strip().partition("\n")
        raise AttachError(refused(target, kind, text))


def withdraw(target: Target) -> bool:
    """Have it run nothing in the place of a script that it has not run yet. Whether that was possible."""
    try:
        knock(target, NOTHING)
    except AttachError:
        return False
    return True


def refused(target: Target, kind: str, text: str) -> str:
    """The sentence for what ``sys.remote_exec`` raised."""
    if not Path(f"/proc/{target.pid}").exists():
        return f"Process {target.pid} has ended meanwhile."
    if kind == "AttributeError" or "not enabled" in text:
        return _disabled(target)
    if "Can't send commands" in text:
        return (
            f"{target.executable} is no longer what process {target.pid} runs ({text}): it was replaced since. "
            f"Restart the server under the probe instead:\n  {restart(target)}"
        )
    if kind == "PermissionError" or "ermission" in text or "not permitted" in text:
        return f"The memory of process {target.pid} may not be written. {permission_advice(target)}"
    return f"Process {target.pid} could not be entered ({kind}: {text}). Is it the server's own process?"


def _disabled(target: Target) -> str:
    """By what it was switched off, as far as its command line and its environment tell."""
    variable = _variable(target.pid, "PYTHON_DISABLE_REMOTE_DEBUG")
    given = " ".join(target.command[1:]).replace("_", "-")
    if variable:
        how = "PYTHON_DISABLE_REMOTE_DEBUG is set in its environment"
    elif "disable-remote-debug" in given:
        how = "it was started with -X disable-remote-debug"
    else:
        how = "its Python was built with --without-remote-debug"
    return (
        f"Process {target.pid} lets nobody in: {how}. Restart it without that, or under the probe:\n  {restart(target)}"
    )


def restart(target: Target) -> str:
    """The command line of ``target`` under `mcp-probe run`, for a shell, whole."""
    command = list(target.command) or [target.executable]
    if os.sep not in command[0]:  # the folder of a virtual environment may be on its PATH, and not on ours
        command[0] = shutil.which(command[0], path=_variable(target.pid, "PATH") or os.defpath) or command[0]
    line = shlex.join(["mcp-probe", "run", "--", *command])
    return line if target.folder is None else f"cd {shlex.quote(target.folder)} && {line}"


def _variable(pid: int, name: str) -> str:
    """One variable of its environment as it was at its start; empty where it has none, or may not be read."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    before = name.encode() + b"="
    return next((entry[len(before) :].decode("utf-8", "replace") for entry in entries if entry.startswith(before)), "")
