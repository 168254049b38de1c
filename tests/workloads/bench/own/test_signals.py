"""A run that is ended from outside keeps what it has measured, on the page and in the file."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mcp_probe.workloads.bench.results import read_results
from mcp_probe.workloads.bench.shapes import INTERRUPTED

RAW = Path(__file__).parents[2] / "load" / "raw_server.py"
PATIENCE_S = 100


class Run:
    """``mcp-probe bench`` on the raw server, in a process of its own that says what it is doing in a file."""

    def __init__(self, folder: Path, stream: int) -> None:
        self.json, self.html, self._said = folder / "own.json", folder / "own.html", folder / "said.txt"
        code = (
            "import sys; from mcp_probe.cli import main; from mcp_probe.workloads.bench import progress;"
            f"progress.Progress.show = lambda self, workload, what: open({str(self._said)!r}, 'a').write(what + '\\n');"
            "sys.exit(main(sys.argv[1:]))"
        )
        server = f"{sys.executable} {RAW}"
        options = ["--quick", "--no-probe", "--server", server, "--call", 'stall={"every": 1, "ms": 30}']
        outputs = ["--json", str(self.json), "--html", str(self.html)]
        command = [sys.executable, "-c", code, "bench", *options, *outputs]
        self.process = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)

    def until(self, what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while what not in (self._said.read_text() if self._said.exists() else ""):
            assert self.process.poll() is None and time.monotonic() < end
            time.sleep(0.02)

    def kept(self) -> None:
        (cut,) = read_results(self.json).results
        assert cut.error == INTERRUPTED
        assert {row.label for row in cut.outcome.rows} >= {"list tools", "tool stall"}
        page = self.html.read_text("utf-8")
        assert "Not complete: interrupted." in page and "tool stall" in page


@pytest.mark.slow
def test_sigterm_keeps_page_and_results(tmp_path: Path) -> None:
    run = Run(tmp_path, subprocess.PIPE)
    try:
        run.until("calls at once")
        run.process.send_signal(signal.SIGTERM)
        shown, stderr = run.process.communicate(timeout=PATIENCE_S)
    finally:
        run.process.kill()
    assert run.process.returncode == 128 + signal.SIGINT, stderr
    assert b"Not complete: interrupted." in shown
    run.kept()


@pytest.mark.slow
def test_a_terminal_that_is_closed_keeps_page_and_results(tmp_path: Path) -> None:
    """The terminal is gone before anything is printed: writing to it fails from then on."""
    ours, theirs = pty.openpty()
    run = Run(tmp_path, theirs)
    try:
        os.close(theirs)
        run.until("calls at once")
        os.close(ours)
        run.process.send_signal(signal.SIGHUP)
        run.process.wait(PATIENCE_S)
    finally:
        run.process.kill()
    run.kept()
