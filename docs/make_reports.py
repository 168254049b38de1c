"""Puts fresh reports into the pages, under their comments `<!-- report: RUN, SECTION -->`.

Run it from the root, on a quiet machine, after `make env envs`:   .venv/bin/python -m docs.make_reports [RUN ...]

RUN is ``demo`` (of `mcp-probe demo`), ``blocking`` (docs/reading/server.py), ``mended`` (the same, one word less),
``leaky`` (mcp_probe.workloads.leaky_server under ``--memory leaks``), or a server of tests/field/, alone or with
``-leaks`` behind it for a leak hunt of two thousand calls; without any, all are run. SECTION is a heading of the
report, ``header``, or ``all``.
The words around a block are nobody's but the writer's: read them again.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import anyio

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import Summary
from mcp_probe.record.file import read_recording
from mcp_probe.report.console import render
from mcp_probe.workloads import demo
from mcp_probe.workloads.client import Call, LoadSession, stdio_client_session
from tests.field.driving import ROOT, run_probed
from tests.field.servers import SERVERS, WITH_BACKENDS

DOCS = ROOT / "docs"
REAL = {**SERVERS, **WITH_BACKENDS}
PAGES = (DOCS / "reading-the-report.md", DOCS / "memory.md")
WIDTH = 100
BLOCK = re.compile(r"(<!-- report: (?P<run>[\w-]+), (?P<section>[^>]+) -->\n+```text\n).*?^```$", re.M | re.S)
TITLE = re.compile(r"^(?:╭─ )?([A-Z][A-Za-z ]+?) ─")
ROUNDS = {
    "mcp-server-time": 40,
    "mcp-server-git": 8,
    "mcp-server-fetch": 4,
    "mcp-server-sqlite": 8,
    "redis-mcp-server": 20,
}
LEAKS = "-leaks"
HUNTED_CALLS = 2_000
LEAKY_TOOLS = ("clean", "recall", "tangle", "remember")
LEAKY_CALLS = 200
LAST_LOOK_SECONDS = 15.0
"""A client that closes the connection leaves the hunt 2 s for its last look, and this takes longer."""


@cache
def report(run: str) -> str:
    """The report of a new run, at most one of each kind."""
    sys.stderr.write(f"{run} …\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        summary = summary_of(run, folder)
        text = render(summary, width=WIDTH, color=False, ascii_only=False).replace(f"{name}/", "")
        if str(ROOT) in text or name in text:
            raise SystemExit(f"The report of {run} names a folder of this machine.")
    return text


def summary_of(run: str, folder: Path) -> Summary:
    program = run.removesuffix(LEAKS)
    if program in REAL:
        return field(program, folder, hunt=run != program)
    if run == "demo":
        return demo.run()
    return leaky(folder) if run == "leaky" else reading(run, folder)


def field(program: str, folder: Path, *, hunt: bool) -> Summary:
    with REAL[program].set_up(folder) as setting:
        if not hunt:
            return folded(run_probed(REAL[program], setting, folder, rounds=ROUNDS.get(program, 6)).recording)

        async def ask(session: LoadSession) -> None:
            for _ in range(-(-HUNTED_CALLS // sum(setting.counts.values()))):
                await setting.ask(session)

        environment = {"PYTHONPATH": "", **setting.environment}
        return hunted(REAL[program].command(ROOT, setting), ask, folder, environment)


def leaky(folder: Path) -> Summary:
    """What a hunt finds of a server with one tool that leaks and three that only look like it."""

    async def ask(session: LoadSession) -> None:
        for number in range(LEAKY_CALLS):
            await session.pipelined([Call(tool, {"number": number}) for tool in LEAKY_TOOLS])

    return hunted([sys.executable, "-m", "mcp_probe.workloads.leaky_server"], ask, folder)


def hunted(
    server: Sequence[str],
    ask: Callable[[LoadSession], Awaitable[None]],
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Summary:
    """Of a server that is asked under ``mcp-probe run --memory leaks``, and that the client may have to kill."""
    recording = folder / "recording"
    options = ["--memory", "leaks", "--record", str(recording), "--output", str(folder / "report")]
    command = [sys.executable, "-m", "mcp_probe", "run", *options, "--", *server]

    async def talk() -> None:
        with (folder / "stderr").open("w") as errors:
            async with stdio_client_session(command, environment=environment, stderr=errors) as session:
                await ask(session)
                await anyio.sleep(LAST_LOOK_SECONDS)

    anyio.run(talk)
    return folded(recording)


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
        BLOCK.sub(fresh, page.read_text("utf-8"))  # may take minutes, in which the page may be edited
        page.write_text(BLOCK.sub(fresh, page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
