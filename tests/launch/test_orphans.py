"""What becomes of the command where `mcp-probe run` is killed."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mcp_probe.launch import lifeline, parent
from mcp_probe.launch.signals import signal_source
from tests.launch.running import LIMIT_S, ROOT, program, start

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has a parent-death signal")
WAIT = "import os, signal, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)\n"


def is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not is_gone(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True


@linux_only
@pytest.mark.parametrize("before", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"], ids=["plain", "deaf"])
def test_killing_the_run_leaves_no_server_behind(before: str, tmp_path: Path) -> None:
    source = WAIT.replace("time\n", f"time\n{before}", 1)
    with start(program(tmp_path, source)) as run:
        assert run.stdout is not None
        assert select.select([run.stdout], [], [], LIMIT_S)[0]
        pid = int(run.stdout.readline())
        run.kill()
        assert gone_within(pid, 20)


@linux_only
def test_what_a_server_has_started_is_its_own_business(tmp_path: Path) -> None:
    inner = tmp_path / "inner.py"
    inner.write_text(WAIT)
    outer = f"import subprocess, sys\nsubprocess.Popen([sys.executable, {str(inner)!r}]).wait()\n"
    with start(program(tmp_path, outer)) as run:
        assert run.stdout is not None
        assert select.select([run.stdout], [], [], LIMIT_S)[0]
        pid = int(run.stdout.readline())
        run.kill()
        run.wait()
        time.sleep(0.5)
        assert not is_gone(pid)
        os.kill(pid, signal.SIGKILL)


@linux_only
def test_a_command_that_finds_its_parent_dead_never_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 1)
    started = tmp_path / "started"
    command = ["/bin/sh", "-c", f"touch {started}"]
    with signal_source() as source:
        process = parent._spawn(command[0], command, dict(os.environ), source)
        assert process.wait() == 1
    assert not started.exists()


def test_a_server_waits_for_a_run_that_lives_and_leaves_with_one_that_was_killed(tmp_path: Path) -> None:
    code = "import sys, time; from mcp_probe.launch.lifeline import end_with_parent; end_with_parent(sys.argv[1]); "
    code += "print('up', flush=True); time.sleep(60)"
    held = lifeline.hold(str(tmp_path))
    assert held is not None
    server = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    with server:
        try:
            assert server.stdout is not None and server.stdout.readline() == b"up\n"
            time.sleep(0.2)
            assert server.poll() is None
            held.close()
            assert server.wait(20) == -signal.SIGKILL
        finally:
            server.kill()


def test_a_server_outlives_a_run_that_ended_by_itself(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    code = "import sys, time; from mcp_probe.launch.lifeline import end_with_parent; end_with_parent(sys.argv[1]); "
    code += "print('up', flush=True); sys.stdin.read()"
    held = lifeline.hold(str(run))
    assert held is not None
    command = [sys.executable, "-c", code, str(run)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stdout.readline() == b"up\n"
        shutil.rmtree(run)
        held.close()
        time.sleep(0.2)
        assert server.poll() is None
        server.communicate()
    assert server.returncode == 0
