"""Puts fresh output into docs/reading-the-report.md, under its comments `<!-- report: RUN, SECTION -->`.

Run it from the root on a quiet machine:   .venv/bin/python -m docs.make_reading

RUN is ``demo`` (of `mcp-probe demo`), ``blocking`` (docs/reading/server.py) or ``mended`` (the same with one word less);
SECTION is a heading of the report, ``header``, or ``all``. The words around the blocks are checked by whoever runs this.
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

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reading-the-report.md"
SERVER = ROOT / "docs" / "reading" / "server.py"
BLOCK = re.compile(r"(<!-- report: (\w+), ([^>]+) -->\n+```text\n).*?^```$", re.M | re.S)
TITLE = re.compile(r"^(?:╭─ )?([A-Z][A-Za-z ]+?) ─")


def of_server(server: Path, folder: Path) -> Summary:
    """What docs/reading/client.py makes of ``server``; the recording goes to ``folder``."""
    recording = folder / "recording"
    probe = [sys.executable, "-m", "mcp_probe", "run", "--record", str(recording), "--output", str(folder / "report")]
    client = [sys.executable, str(ROOT / "docs" / "reading" / "client.py")]
    subprocess.run([*client, *probe, "--", sys.executable, str(server)], cwd=ROOT, check=True)
    fold = Fold()
    for frame in read_recording(recording):
        fold.add(frame)
    return fold.summary()


@cache
def report(run: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        mended = Path(name, "server.py")
        mended.write_text(SERVER.read_text("utf-8").replace("async def resize", "def resize"), "utf-8")
        if run == "demo":
            summary = demo.run()
        else:
            summary = of_server(SERVER if run == "blocking" else mended, Path(name))
    return render(summary, width=100, color=False, ascii_only=False)


def section(text: str, wanted: str) -> str:
    """The lines of ``wanted`` in a report, its heading included."""
    if wanted == "all":
        return text
    parts: dict[str, list[str]] = {"header": []}
    lines = parts["header"]
    for line in text.splitlines():
        title = TITLE.match(line)
        if title:
            lines = parts.setdefault(title[1], [])
        lines.append(line)
    if wanted not in parts:
        raise SystemExit(f"This run has no section {wanted!r}, only {', '.join(parts)}. Run it again, or change the page.")
    return "\n".join(parts[wanted]).strip("\n") + "\n"


def main() -> None:
    text = PAGE.read_text("utf-8")
    text = BLOCK.sub(lambda block: f"{block[1]}{section(report(block[2]), block[3])}```", text)
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
