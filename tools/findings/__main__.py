"""``python -m tools.findings``: how often each finding is right. Runs the fault matrix and fills docs/findings.md.

Each run is a process of its own, with tools of new names: of each workload the first in a fresh interpreter, the others
in a fork of one that has imported the SDK (1.5 s less). The state file has every run, so that a later call goes on
where this one ends: cells that failed first. Ends with 1 where a cell that was run now was wrong.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from benchmarks.machine import describe_machine
from benchmarks.page import filled
from tests.hogs import hogs
from tools.findings.cells import MOST_RUNS, WORKLOADS, Beside, Cell, Sdk, Transport, cells_of
from tools.findings.lanes import Lanes
from tools.findings.matrix import Run, State, from_text, is_done, is_fresh, next_of, section, to_text, totals
from tools.interpreters import ROOT

PAGE = ROOT / "docs" / "findings.md"
RUNS = Path(__file__).with_name("runs.json")
AT_A_STRETCH = 40
"""Runs alone, or beside a hog, before the other ones have their turn."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs cells until each has its runs, or the time is over."""
    options = _parser().parse_args(argv)
    state = from_text(options.state.read_text("utf-8")) if options.state.exists() else {}
    wanted = tuple(one for one in WORKLOADS if not options.only or one.name in options.only or one.code in options.only)
    cells = list(cells_of(wanted, options.transports, options.sdks, options.beside))
    until, wrong = time.monotonic() + options.minutes * 60, 0
    with Lanes(options.lanes, str(describe_machine()["commit"])) as lanes:
        while time.monotonic() < until and (cell := next_of(cells, state, options.runs)) is not None:
            these = [one for one in cells if one.beside == cell.beside]
            with hogs((os.cpu_count() or 1) if cell.beside == "hog" else 0):
                for done, run in _some(lanes, these, state, options.runs, until):
                    _keep(options.state, state)
                    wrong += run.wrong is not None
                    print(f"{done.key}: {run.wrong or 'right'} ({run.seconds:.1f} s)", flush=True)
    right, runs = totals(state)
    left = sum(not is_done(cell, state, options.runs) for cell in cells)
    print(f"{right} of {runs} runs right; {left} of {len(cells)} cells are to be run again.")
    if options.write:
        write_page(state)
    return 1 if wrong else 0


def _some(lanes: Lanes, cells: Sequence[Cell], state: State, most: int, until: float) -> Iterator[tuple[Cell, Run]]:
    """Runs of ``cells``, all of which are alone or all beside a hog; each is in the state when it is yielded."""
    begun = 0
    while True:
        while begun < AT_A_STRETCH and time.monotonic() < until and not lanes.is_full:
            cell = next_of(cells, state, most, lanes.running)
            if cell is None:
                break
            lanes.begin(cell, is_forked=not is_fresh(cell, state, lanes.running))
            begun += 1
        if not lanes.running:
            return
        for cell, run in lanes.ended():
            state.setdefault(cell.key, []).append(run)
            yield cell, run


def write_page(state: State) -> None:
    """Put the tables of ``state`` into docs/findings.md."""
    machine = describe_machine()
    about = f"{machine['cores']} CPUs ({machine['cpu']}), Python {machine['python']}, {machine['date']}"
    part = "\n".join(section(state, about))
    PAGE.write_text(filled(PAGE.read_text("utf-8"), {"matrix": part}), "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.findings", description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=MOST_RUNS, help="of a cell at most: 20 where a clock judges, else 3"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="no run begins after this (default: 30)")
    parser.add_argument("--state", type=Path, default=RUNS, help="the state file (default: tools/findings/runs.json)")
    parser.add_argument("--lanes", type=int, default=2, help="runs at once (default: 2)")
    parser.add_argument("--only", nargs="*", default=[], help="codes, or names of workloads")
    parser.add_argument("--transports", type=_several(Transport), default=("stdio", "http"), help="stdio,http")
    parser.add_argument("--sdks", type=_several(Sdk), default=("mcp2", "mcp1"), help="mcp2,mcp1")
    parser.add_argument("--beside", type=_several(Beside), default=("alone", "hog"), help="alone,hog")
    parser.add_argument("--write", action="store_true", help="put the table into docs/findings.md")
    return parser


def _several(of: Any) -> Any:
    def parse(text: str) -> tuple[str, ...]:
        found = tuple(text.split(","))
        if not set(found) <= set(get_args(of)):
            raise argparse.ArgumentTypeError(f"{text!r}: expected some of {', '.join(get_args(of))}.")
        return found

    return parse


def _keep(path: Path, state: State) -> None:
    """All of it or what was there: a run that is killed loses nothing."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(to_text(state), "utf-8")
    beside.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
