"""One run of a drawn server below `mcp-probe run`, and the judgement of its verdict."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.counterfactual.draw import Server
from tools.counterfactual.drive import Broken, run
from tools.counterfactual.judge import Verdict, read_verdict
from tools.interpreters import ROOT


@dataclass(frozen=True, slots=True)
class Probed:
    """A probed run: its verdict, what its clients waited, and what the report says that they did.

    A run that broke has a verdict without a code; its sentence says why.
    """

    verdict: Verdict
    waited_s: float
    reported_s: float | None
    report: str
    """The console report, for people."""


def probe(server: Server, service: str) -> Probed:
    """Runs the seed with all of its causes."""
    with tempfile.TemporaryDirectory() as folder:
        summary, console = Path(folder) / "summary.json", Path(folder) / "report.txt"
        prefix = [sys.executable, "-m", "mcp_probe", "run", "--json", str(summary), "--output", str(console), "--"]
        try:
            clients = run(server, server.sources[None], service, prefix)
            report = json.loads(summary.read_text("utf-8"))
        except (Broken, OSError, ValueError) as exc:
            return Probed(Verdict("", "info", str(exc), "", None), 0.0, None, "")
        waited = report.get("clients_waited_ms")
        return Probed(
            read_verdict(report),
            round(clients.waited_s, 3),
            None if waited is None else round(waited / 1e3, 3),
            console.read_text("utf-8"),
        )


def commit() -> str:
    """Returns the last commit that changed the package, short; `+` behind it says that it was changed since."""
    command = ["git", "log", "-1", "--format=%h", "--", "mcp_probe"]
    name = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "mcp_probe"], cwd=ROOT).returncode
    return name + ("+" if changed else "")


def plain(run: Probed) -> Mapping[str, Any]:
    """Returns what is kept of a run: all but its console report. It is judged anew whenever it is read."""
    said = asdict(run)
    del said["report"]
    return said
