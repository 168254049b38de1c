"""``attach(report=…)``: the report at the server's exit, rendered outside the server if it can be.

The summary goes to a short-lived interpreter that renders it, so the server never imports rich; where
that interpreter cannot be started the plain renderer serves here. stderr may be a pipe that nobody
reads: all of it together is given half a second, then the renderer is left to finish on its own.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

from mcp_probe.model import Summary
from mcp_probe.report.console import render
from mcp_probe.report.deliver import deliver

STDERR = "stderr"
_RENDER = "import sys; sys.path.insert(0, sys.argv[1]); from mcp_probe.report.at_exit import main; main(sys.argv[2])"


def report_at_exit(summary: Summary, where: str, budget_s: float) -> None:
    """Render ``summary`` to ``where`` (``"stderr"`` or a path). Never raises; returns within ``budget_s``."""
    done = threading.Event()

    def work() -> None:
        try:
            if not _render_outside(summary, where, budget_s):
                _render_here(summary, where, budget_s, plain=True)
        except Exception:  # noqa: BLE001 - the server's exit is not ours to disturb
            pass
        finally:
            done.set()

    try:
        threading.Thread(target=work, name="mcp-probe-report", daemon=True).start()
    except RuntimeError:  # CPython 3.12 starts no thread while the interpreter ends
        work()
    done.wait(budget_s)


def _render_outside(summary: Summary, where: str, budget_s: float) -> bool:
    if not sys.executable:
        return False
    package_home = str(Path(__file__).resolve().parents[2])
    try:
        renderer = subprocess.Popen(
            [sys.executable, "-c", _RENDER, package_home, where],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            close_fds=True,
        )
    except OSError:
        return False
    try:
        renderer.communicate(pickle.dumps(summary), timeout=budget_s)
    except subprocess.TimeoutExpired:
        return True  # it has the summary and finishes on its own
    return renderer.returncode == 0


def _render_here(summary: Summary, where: str, budget_s: float, *, plain: bool) -> None:
    if where == STDERR:
        text = render(summary, width=None, color=False if plain else None, stream=sys.stderr)
        deliver(text, sys.stderr.fileno(), budget_s)
        return
    Path(where).write_text(render(summary, color=False, ascii_only=False), encoding="utf-8")


def main(where: str) -> None:
    """The renderer's own process: a summary on stdin, the report to ``where``."""
    summary = pickle.loads(sys.stdin.buffer.read())
    os.dup2(2, 1)
    try:
        _render_here(summary, where, 60.0, plain=False)
    except OSError as exc:
        sys.stderr.write(f"mcp_probe: the report cannot be written to {where}: {exc.strerror or exc}.\n")
        sys.exit(1)
