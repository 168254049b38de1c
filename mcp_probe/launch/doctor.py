"""`mcp-probe doctor -- CMD`: what would be seen inside the interpreter that CMD starts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence

from mcp_probe.errors import LaunchError
from mcp_probe.launch import inject
from mcp_probe.launch.outcome import nothing_served
from mcp_probe.launch.parent import find_program
from mcp_probe.launch.sight import Facts

LIMIT_S = 30.0


def diagnose_command(command: Sequence[str], *, limit_s: float = LIMIT_S) -> Facts:
    """Starts ``command``; its first Python diagnoses itself and ends there, so the server never runs.

    A command that is no Python program runs as it is, with empty input, and is ended after ``limit_s``.

    Raises: LaunchError where it cannot be started or no Python below it loads the probe.
    """
    program = find_program(command)
    run = inject.make_run_folder()
    try:
        environment = inject.environment(run, os.environ, doctor=1)
        ended = _run_to_end([program, *command[1:]], environment, limit_s)
        seen = inject.processes_seen(run)
    except OSError as exc:
        raise LaunchError(f"Cannot run {program}: {exc.strerror}.") from exc
    finally:
        shutil.rmtree(run, ignore_errors=True)
    for process in seen:
        if process.kind == "doctor":
            return Facts(**json.loads(process.detail))
        if process.kind == "failed":
            raise LaunchError(f"The probe could not start in {process.executable}: {process.detail}.")
    late = "" if ended else f" It was ended after {limit_s:.0f} s."
    raise LaunchError(nothing_served(command, seen) + late)


def _run_to_end(command: Sequence[str], environment: dict[str, str], limit_s: float) -> bool:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdin=quiet, stdout=quiet, start_new_session=True) as process:
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False
        except BaseException:  # a Ctrl-C reaches only this process: the command has a session of its own
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return True
