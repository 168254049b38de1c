"""Writes docs/field-reports.md: the reports of real servers, asked what tests/field/ asks them, several times over.

Run it from the root on a quiet machine:   .venv/bin/python -m docs.make_field_reports [PROGRAM ...]

With names of programs only their sections are made anew. Needs `make env envs` and git; takes about a minute.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mcp_probe.aggregate.fold import Fold
from mcp_probe.record.file import read_recording
from mcp_probe.report.console import render
from tests.field.driving import ROOT, run_probed
from tests.field.servers import IN_FLIGHT, SERVERS

PAGE = ROOT / "docs" / "field-reports.md"
WIDTH = 100

HEAD = f"""\
# Reports of real servers

Servers that nobody here wrote, installed from their packages into environments of their own that do not hold mcp_probe, and
profiled unmodified with `mcp-probe run`. The client is the Python SDK's, over stdio; where nothing else is said it keeps
{IN_FLIGHT} calls in flight. `tests/field/` asks the same and checks that the answers are those of the server without the probe.

The reports are as `mcp-probe` printed them, at {WIDTH} columns and without colour, on a machine with two shared cores.
[Reading the report](reading-the-report.md) explains each section. `docs/make_field_reports.py` makes this page.
"""


@dataclass(frozen=True)
class Section:
    """What stands around one report. ``shown`` are the arguments as a user would write them."""

    title: str
    shown: str
    rounds: int
    asked: str
    look: str


SECTIONS = {
    "mcp-server-time": Section(
        "nothing is wrong",
        "--local-timezone UTC",
        40,
        "Time zone conversions and current times; one in 43 names a zone that does not exist.",
        "A healthy server. Its tools are plain functions, so the SDK runs each in a worker thread: most of a call is the way "
        "there and back, and the queue of a client that has several calls in flight.",
    ),
    "mcp-server-git": Section(
        "threads, one call at a time",
        "--repository PATH",
        6,
        "Log, status, diff and commits of a small repository; one in 37 calls names a revision that does not exist.",
        "The negative control: the tools run git in worker threads, and nothing holds the event loop. The server runs one "
        "call at a time behind a lock of its own. A job that waits for that lock is on its thread, so the wait counts as "
        "`exec run`; it is not the pool that is full.",
    ),
    "mcp-server-fetch": Section(
        "HTML to Markdown, on the event loop",
        "--ignore-robots-txt --allow-private-ips",
        4,
        "Per round: five small pages at once, then a page of some 30 kB, and five small ones while it is being converted. "
        "The pages come from a file server on the same machine.",
        "`fetch` is an `async def` that converts the page in place. Every other call waits for that. The place is inside a "
        "package the server uses, and it is the innermost line that was running, so it may stand deep below the call to "
        "move. A second place shows up that no large page is needed for: each call makes an HTTP client of its own and "
        "with it an SSL context.",
    ),
    "mcp-server-sqlite": Section(
        "mcp 1.x, queries on the event loop",
        "--db-path FILE",
        6,
        "Single-row queries, table lists, descriptions, and two queries per round that count for a while.",
        "On mcp 1.x a request is seen from its handler on: `queue` is unavailable (–), not 0, and calls that wait in it are "
        "not seen waiting.",
    ),
    "mcp-server-motherduck": Section(
        "fastmcp 4, queries in threads",
        "--db-path :memory: --read-write",
        4,
        "Aggregations and table lists, one call at a time (its threads share one database connection, and with several calls "
        "in flight it mixes up their answers, with and without the probe).",
        "The queries run in threads. What holds the event loop are imports: the first `tools/list` loads modules that nothing "
        "needed before.",
    ),
}


def section_of(program: str) -> str:
    section, server = SECTIONS[program], SERVERS[program]
    with tempfile.TemporaryDirectory() as name, server.set_up(Path(name)) as setting:
        run = run_probed(server, setting, Path(name), rounds=section.rounds)
        fold = Fold()
        for frame in read_recording(run.recording):
            fold.add(frame)
    report = render(fold.summary(), width=WIDTH, color=False, ascii_only=False)
    if str(ROOT) in report or name in report:
        raise SystemExit(f"The report of {program} names a path of this machine.")
    command = shlex.join(["mcp-probe", "run", "--", program])
    return (
        f"## {program}: {section.title}\n\n```sh\n{command} {section.shown}\n```\n\n"
        f"{section.asked}\n\n{section.look}\n\n```text\n{report}```\n"
    )


def main(programs: list[str]) -> None:
    text = PAGE.read_text("utf-8") if PAGE.exists() else ""
    sections = {part.partition(":")[0]: f"## {part}" for part in re.split(r"^## ", text, flags=re.M)[1:]}
    for program in programs or SECTIONS:
        print(f"{program} …", flush=True)
        sections[program] = section_of(program)
    made = [sections[program].strip() for program in SECTIONS if program in sections]
    PAGE.write_text("\n\n".join([HEAD.strip(), *made]) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
