"""What becomes of the command where `mcp-probe run` is killed."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from mcp_probe.launch import child
from tests.launch.running import LIMIT_S, program, start

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


def test_only_the_process_that_was_started_by_the_run_asks_for_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: pytest.fail("asked"))
    for parent in (0, 1, os.getpid()):
        if parent != os.getppid():
            child.die_with(parent)


@linux_only
def test_a_parent_that_died_meanwhile_takes_the_process_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([77, 1])
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))

    class Library:
        def __init__(self, name: None) -> None:
            pass

        def prctl(self, *args: int) -> int:
            return 0

    monkeypatch.setattr("ctypes.CDLL", Library)
    child.die_with(77)
    assert killed == [(os.getpid(), signal.SIGKILL)]
