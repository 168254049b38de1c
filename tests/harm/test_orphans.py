"""A command does not outlive the ``mcp-probe run`` that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harm.running import CORES, How, environment

PATIENCE_S = 20
COMMANDS = {
    "a server that waits for stdin": "import sys; print('up', flush=True); sys.stdin.read()",
    "a server that never reads": "import time; print('up', flush=True); time.sleep(600)",
}


@CORES
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
@pytest.mark.parametrize("what", COMMANDS)
def test_sigkill_of_the_run_leaves_no_orphan(core: How, what: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"import os; open({str(pid_file)!r}, 'w').write(str(os.getpid())); {COMMANDS[what]}"
    read_end, write_end = os.pipe()  # stays open: the end of stdin must not be what ends the command
    try:
        run = subprocess.Popen(
            [sys.executable, "-m", "mcp_probe", "run", "--", sys.executable, "-c", code],
            env=environment(core),
            stdin=read_end,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        child = int(pid_file.read_text())
        os.kill(run.pid, signal.SIGKILL)
        run.wait(PATIENCE_S)
        run.stdout.close()
        try:
            assert _ends(child), f"process {child} outlived the run by {PATIENCE_S} s"
        finally:
            if _is_alive(child):
                os.kill(child, signal.SIGKILL)
    finally:
        os.close(read_end)
        os.close(write_end)


def _ends(pid: int) -> bool:
    until = time.monotonic() + PATIENCE_S
    while _is_alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    """A zombie that nobody reaps is dead, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
