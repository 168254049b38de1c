"""`make field-cases`: what the first screen of `mcp-probe run` says of public bug reports, beside each one's truth.

tests/field/cases/ holds the servers, their clients and their truths; tools/field/first_screen.py judges. Each run of
all rows is a column of tests/field/cases/outcomes.json, from which this writes the table of docs/field-reports.md. A
column belongs to the last commit that changed mcp_probe/: a second run of the same commit takes its place, and a later
commit gets a column of its own. With WORDs only rows whose names hold one of them run, and they are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from tests.field.cases.case import FOLDER, Row
from tests.field.cases.playing import Start
from tests.field.cases.rows import ROWS
from tools.compatibility import table
from tools.field.client import Silent
from tools.field.first_screen import LINES, OUTCOMES, Judgement, judge
from tools.interpreters import ROOT

OUTCOMES_FILE = FOLDER / "outcomes.json"
PAGE = ROOT / "docs" / "field-reports.md"
BETWEEN = re.compile(r"(?<=<!-- cases:begin -->\n\n).*?(?=\n\n<!-- cases:end -->)", re.S)
KEPT = ROOT / ".cache" / "field" / "cases"
BUSY = 1.0
"""Load average, before a run, from which the machine was not quiet."""


@dataclass(frozen=True, slots=True)
class Column:
    """The outcomes of one run by row: outcome, reason, the verdict in one line, and what was wrong with the run itself.

    Loads are those of one minute.
    """

    commit: str
    day: str
    load_before: float
    load_after: float
    rows: Mapping[str, Mapping[str, str]]


def run(row: Row, environments: Path) -> tuple[Judgement, str]:
    """The judgement of the row's first screen, and what went wrong with the run itself, if anything did."""
    kept = KEPT / re.sub(r"[^\w-]+", "-", row.name)
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    report = kept / "report.txt"
    probe = (sys.executable, "-m", "mcp_probe", "run", "--output", str(report), *row.options, "--")
    python = environments / row.environment / "bin" / "python"
    trouble = ""
    try:
        seen = row.play(Start(python, FOLDER / row.case / "server.py", kept, prefix=probe))
        if not row.shows_fault(seen):
            trouble = f"the fault did not show: {dict(seen)}"
    except (Silent, OSError) as fault:
        trouble = f"{type(fault).__name__}: {fault}"
    return judge(report.read_text("utf-8") if report.exists() else "", row.truth), trouble


def read_columns(path: Path = OUTCOMES_FILE) -> list[Column]:
    """The columns, oldest first."""
    if not path.exists():
        return []
    return [Column(**one) for one in json.loads(path.read_text("utf-8"))]


def with_column(columns: Sequence[Column], new: Column) -> list[Column]:
    """``columns`` with ``new`` in the place of that of the same commit, else behind all others."""
    if any(one.commit == new.commit for one in columns):
        return [new if one.commit == new.commit else one for one in columns]
    return [*columns, new]


def page_text(columns: Sequence[Column], rows: Sequence[Row] = ROWS) -> str:
    """The summary and the table of the page: a row for each variant, a column for each run, oldest first."""
    heads = ["report", "public source", "the fault", *(f"{one.day}, {one.commit}" for one in columns)]
    lines = [
        [row.name, row.source or "public report, rebuilt", row.truth.cause, *(_cell(one, row) for one in columns)]
        for row in rows
    ]
    return "\n".join([*(_summary(one) for one in columns), "", *table(heads, lines)])


def _cell(column: Column, row: Row) -> str:
    found = column.rows.get(row.name)
    if not found:
        return "not run"
    trouble = " (The run itself went wrong.)" if found.get("trouble") else ""
    return f"**{found['outcome']}** {found['said']}{trouble}"


def _summary(column: Column) -> str:
    counts = Counter(one["outcome"] for one in column.rows.values())
    numbers = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
    load = f"load average {column.load_before:.1f} before and {column.load_after:.1f} after"
    quiet = "" if column.load_before < BUSY else ": not a quiet machine"
    return f"- {column.day}, {column.commit}: {numbers}, of {counts.total()}; {load}{quiet}."


def commit() -> str:
    """The last commit that changed the package, with a plus where it was changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "mcp_probe")
    return git("log", "-1", "--format=%h", "--", "mcp_probe") + ("+" if changed else "")


def today() -> str:
    day = date.today()
    return f"{day.day} {day:%b %Y}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.field.cases", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="run only what has one of these in its name")
    parser.add_argument("--environments", type=Path, default=ROOT / ".envs", help="one for each requirements/*.txt")
    parser.add_argument("--again", action="store_true", help="judge the kept reports again instead of running")
    parser.add_argument("--screen", action="store_true", help=f"print the first {LINES} lines of each report, too")
    chosen = parser.parse_args()
    missing = {row.environment for row in ROWS if not (chosen.environments / row.environment / "bin").exists()}
    if missing and not chosen.again:
        parser.error(f"not installed: {', '.join(sorted(missing))}; `make field-cases` does it")
    began, load_before = time.monotonic(), os.getloadavg()[0]
    found: dict[str, Mapping[str, str]] = {}
    for row in ROWS:
        if chosen.words and not any(word in row.name for word in chosen.words):
            continue
        at = time.monotonic()
        kept = KEPT / re.sub(r"[^\w-]+", "-", row.name) / "report.txt"
        if chosen.again:
            judgement, trouble = judge(kept.read_text("utf-8") if kept.exists() else "", row.truth), ""
        else:
            judgement, trouble = run(row, chosen.environments.absolute())
        found[row.name] = {**asdict(judgement), **({"trouble": trouble} if trouble else {})}
        print(f"{row.name}: {judgement.outcome} ({judgement.why}; {time.monotonic() - at:.0f} s): {judgement.said}")
        if trouble:
            print(f"    {trouble}")
        if chosen.screen and kept.exists():
            print(*kept.read_text("utf-8").splitlines()[:LINES], sep="\n")
        sys.stdout.flush()
    print(f"{time.monotonic() - began:.0f} s; load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after")
    if not chosen.words:
        columns = read_columns()
        load_after = os.getloadavg()[0]
        if chosen.again:
            old = next(one for one in columns if one.commit == commit())
            column = Column(old.commit, old.day, old.load_before, old.load_after, found)
        else:
            column = Column(commit(), today(), round(load_before, 1), round(load_after, 1), found)
        columns = with_column(columns, column)
        text = json.dumps([asdict(one) for one in columns], indent=1, ensure_ascii=False)
        OUTCOMES_FILE.write_text(f"{text}\n", "utf-8")
        PAGE.write_text(BETWEEN.sub(lambda _: page_text(columns), PAGE.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
