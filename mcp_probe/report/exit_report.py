"""``attach(report=…)``: the report at the server's exit, rendered outside the server if it can be.

The summary goes to a short-lived interpreter through a file without a name. That interpreter renders and writes it.
Where it cannot be started, the report is rendered here. stderr may be a pipe that nobody reads: the server waits half
a second for all of this, then the renderer finishes on its own. No thread is needed: an interpreter that ends may
start none.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from io import BufferedWriter
from pathlib import Path

from mcp_probe.model import Summary
from mcp_probe.record.private_file import create
from mcp_probe.report.console import render
from mcp_probe.report.deliver import deliver

STDERR = "stderr"
LEFT_ALONE_S = 10.0
"""What a renderer that was left alone gives a stderr that nobody reads."""

_RENDER = (
    "import sys; sys.path.insert(0, sys.argv[1]); from mcp_probe.report.exit_report import main; main(sys.argv[2])"
)


def report_at_exit(summary: Summary, where: str, budget_s: float) -> None:
    """Render ``summary`` to ``where`` (``"stderr"`` or a path). Never raises; returns within ``budget_s``."""
    deadline = time.monotonic() + budget_s
    try:
        if not _render_outside(summary, where, deadline):
            _render_here(summary, where, deadline - time.monotonic())
    except Exception:  # noqa: BLE001 - the server's exit is not ours to disturb
        pass


def _render_outside(summary: Summary, where: str, deadline: float) -> bool:
    """False where no interpreter could be started, or the one that was did not manage."""
    if not sys.executable:
        return False
    package_home = str(Path(__file__).resolve().parents[2])
    try:
        with tempfile.TemporaryFile() as handed_over:
            handed_over.write(pickle.dumps(summary))
            handed_over.seek(0)
            renderer = subprocess.Popen(
                [sys.executable, "-c", _RENDER, package_home, where], stdin=handed_over, stdout=subprocess.DEVNULL
            )
    except (OSError, RuntimeError):  # no room, no process, or an interpreter too far gone to start one
        return False
    try:
        return renderer.wait(max(0.0, deadline - time.monotonic())) == 0
    except subprocess.TimeoutExpired:
        renderer.returncode = 0  # it has the summary and finishes on its own: no warning that it still runs
        return True


def _render_here(summary: Summary, where: str, budget_s: float) -> None:
    if where == STDERR:
        text = render(summary, width=None, stream=sys.stderr)
        deliver(text, sys.stderr.fileno(), budget_s)
        return
    with BufferedWriter(create(where)) as stream:
        stream.write(render(summary, color=False, ascii_only=False).encode("utf-8", "replace"))


def main(where: str) -> None:
    """The renderer's own process: a summary on stdin, the report to ``where``."""
    summary = pickle.loads(sys.stdin.buffer.read())
    os.dup2(2, 1)
    try:
        _render_here(summary, where, LEFT_ALONE_S)
    except OSError as exc:
        sys.stderr.write(f"mcp_probe: the report cannot be written to {where}: {exc.strerror or exc}.\n")
        sys.exit(1)
