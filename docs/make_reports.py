"""Puts fresh reports into the pages, under their comments `<!-- report: RUN, SECTION -->`.

Run it from the root, on a quiet machine, after `make env envs`:   .venv/bin/python -m docs.make_reports [RUN ...]

RUN is ``demo`` (of `mcp-probe demo`), ``blocking`` (docs/reading/server.py), ``mended`` (the same, one word less), or a
server of tests/field/; without any, all are run. SECTION is a heading of the report, ``header``, or ``all``.
The words around a block are nobody's but the writer's: read them again.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import Summary
from mcp_probe.record.file import read_recording
from mcp_probe.report.console import render
from mcp_probe.workloads import demo
from tests.field.driving import ROOT, run_probed
from tests.field.servers import SERVERS

DOCS = ROOT / "docs"
PAGES = (DOCS / "reading-the-report.md", DOCS / "field-reports.md")
WIDTH = 100
BLOCK = re.compile(r"(<!-- report: (?P<run>[\w-]+), (?P<section>[^>]+) -->\n+```text\n).*?^```$", re.M | re.S)
TITLE = re.compile(r"^(?:╭─ )?([A-Z][A-Za-z ]+?) ─")
ROUNDS = {"mcp-server-time": 40, "mcp-server-git": 8, "mcp-server-fetch": 4, "mcp-server-sqlite": 8}


@cache
def report(run: str) -> str:
    """The report of a new run, at most one of each kind."""
    sys.stderr.write(f"{run} …\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        summary = demo.run() if run == "demo" else field(run, folder) if run in SERVERS else reading(run, folder)
        text = render(summary, width=WIDTH, color=False, ascii_only=False)
        if str(ROOT) in text or name in text:
            raise SystemExit(f"The report of {run} names a folder of this machine.")
    return text


def field(program: str, folder: Path) -> Summary:
    with SERVERS[program].set_up(folder) as setting:
        return folded(run_probed(SERVERS[program], setting, folder, rounds=ROUNDS.get(program, 6)).recording)


def reading(run: str, folder: Path) -> Summary:
    """What docs/reading/client.py gets from docs/reading/server.py."""
    server = DOCS / "reading" / "server.py"
    if run == "mended":
        source = server.read_text("utf-8").replace("async def resize", "def resize")
        server = folder / "server.py"
        server.write_text(source, "utf-8")
    recording = folder / "recording"
    probe = [sys.executable, "-m", "mcp_probe", "run", "--record", str(recording), "--output", str(folder / "report")]
    client = [sys.executable, str(DOCS / "reading" / "client.py")]
    subprocess.run([*client, *probe, "--", sys.executable, str(server)], cwd=ROOT, check=True)
    return folded(recording)


def folded(recording: Path) -> Summary:
    fold = Fold()
    for frame in read_recording(recording):
        fold.add(frame)
    return fold.summary()


def section(text: str, wanted: str) -> str:
    """The lines of ``wanted`` in a report, its heading included."""
    if wanted == "all":
        return text
    lines: list[str] = []
    parts = {"header": lines}
    for line in text.splitlines():
        title = TITLE.match(line)
        if title:
            lines = parts.setdefault(title[1], [])
        lines.append(line)
    if wanted not in parts:
        raise SystemExit(
            f"This run has no section {wanted!r}, only {', '.join(parts)}. Run it again, or change the page."
        )
    return "\n".join(parts[wanted]).strip("\n") + "\n"


def main(runs: list[str]) -> None:
    def fresh(block: re.Match[str]) -> str:
        if runs and block["run"] not in runs:
            return block[0]
        return f"{block[1]}{section(report(block['run']), block['section'])}```"

    for page in PAGES:
        page.write_text(BLOCK.sub(fresh, page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
