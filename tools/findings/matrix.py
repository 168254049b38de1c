"""The state of the fault matrix: which cell is run next, whether a run was right, and the table of it. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from tools.compatibility import table
from tools.findings.cells import FAULTS, FORMS, HEALTHY, Beside, Cell, Form, Sdk, Transport, Workload

FORMAT = "mcp-probe-findings/2"
OTHERS_SHARE = 0.25
"""Of a CPU: if other programs took more during a run, it was on a busy machine. A quiet one's take a twentieth."""

_OF_THE_HOST = frozenset({"host-pressure"})
_BEHIND_THE_HOST = frozenset({"healthy", "unexplained-wait", "long-wait"})
"""Verdicts of servers of which nothing certain was found: on a busy machine the host is."""


@dataclass(frozen=True, slots=True)
class Run:
    """``wrong`` says what was found and should not have been, or the other way round; ``None`` where it was right.

    ``others`` is what other programs used of a CPU until its calls were over; ``commit`` is what was run.
    ``is_forked``: from a process that had imported the SDK, instead of in a fresh interpreter.
    """

    wrong: str | None
    seconds: float
    others: float
    commit: str
    is_forked: bool = False


State = dict[str, list[Run]]
"""Runs of each cell, by its key."""


def wrong_of(cell: Cell, tool: str, summary: Mapping[str, Any], *, is_busy: bool) -> str | None:
    """Why verdict and findings of a run are not those that its cell must have; ``None`` where they are.

    Args:
        tool: what the tools of this run are called, or begin with.
        summary: the JSON report.
        is_busy: more wanted to run on the machine than it has CPUs, so what is said of the host is true of any server,
            and single figures are worse than they would be.
    """
    found = summary["findings"]
    code, verdict = cell.workload.code, summary["verdict"]["code"]
    if code is None:
        excused = _OF_THE_HOST if is_busy else frozenset()
        bad = [one for one in found if one["severity"] != "info" and one["code"] not in excused]
        return "; ".join(f"{one['code']}: {one['sentence']}" for one in bad) or None
    of_code = [one for one in found if one["code"] == code]
    if not cell.workload.is_of_server:
        of_code = [one for one in of_code if str(one["subject"]).startswith(tool)]
    if cell.form == "fault":
        others = ", ".join(one["code"] for one in found) or "nothing"
        if not of_code:
            return f"{code} was not raised; {others} was"
        allowed = {code, *cell.workload.verdicts}
        allowed |= _OF_THE_HOST if is_busy and allowed & _BEHIND_THE_HOST else set()
        return None if verdict in allowed else f"the verdict was {verdict}; found were {others}"
    if is_busy:  # there a step of 4 ms may take 12: it is told, and accuses nobody
        of_code = [one for one in of_code if one["severity"] != "info" and code not in _OF_THE_HOST]
    return "; ".join(f"{code}: {one['sentence']}" for one in of_code) or None


def is_done(cell: Cell, state: State, most: int) -> bool:
    """Whether a cell has the runs that say enough of it, or ``most``."""
    return len(state.get(cell.key, [])) >= min(cell.runs, most)


def next_of(cells: Sequence[Cell], state: State, most: int, running: Sequence[Cell] = ()) -> Cell | None:
    """The cell to run next: failing ones first, then those with fewest runs; ``None`` when all are done.

    ``running`` counts as runs that there are: so no cell has more than it needs.
    """
    begun = Counter(cell.key for cell in running)

    def runs(cell: Cell) -> int:
        return len(state.get(cell.key, [])) + begun[cell.key]

    return min(
        (cell for cell in cells if runs(cell) < min(cell.runs, most)),
        key=lambda cell: (not any(run.wrong for run in state.get(cell.key, [])), runs(cell), cells.index(cell)),
        default=None,
    )


def is_fresh(cell: Cell, state: State, running: Sequence[Cell] = ()) -> bool:
    """Whether its next run is one in a fresh interpreter: the first of a fault, or of a healthy server, alone."""
    is_first = cell.form == next(iter(cell.workload.loads)) and cell.beside == "alone"
    return is_first and not state.get(cell.key) and cell not in running


def to_text(state: State) -> str:
    """The state as a file holds it: a line for each cell."""
    cells = ",\n".join(
        f"{json.dumps(key)}: {json.dumps([list(astuple(run)) for run in runs])}" for key, runs in sorted(state.items())
    )
    return f'{{"format": "{FORMAT}", "cells": {{\n{cells}\n}}}}\n'


def from_text(text: str) -> State:
    """The state of a file. Raises: ValueError where it is of another format."""
    values = json.loads(text)
    if values.get("format") != FORMAT:
        raise ValueError(
            f"The state is of the format {values.get('format')!r}; expected {FORMAT!r}: name another file."
        )
    return {key: [Run(*run) for run in runs] for key, runs in values["cells"].items()}


# --- the table ----------------------------------------------------------------------------------------

_Condition = tuple[Transport, Sdk, Beside]

_SDK_NAMES: Mapping[Sdk, str] = {"mcp1": "mcp 1.30", "mcp2": "mcp 2.3"}
_CONDITIONS: tuple[_Condition, ...] = tuple(
    (transport, sdk, beside)
    for transport in ("stdio", "http")
    for sdk in ("mcp2", "mcp1")
    for beside in ("alone", "hog")
)


def tables(state: State) -> list[str]:
    """Markdown: right verdicts of runs, for each code, and for each healthy server."""
    shown = [each for each in _CONDITIONS if any(_runs(state, workload, form, each) for workload, form in _rows())]
    heads = [f"{transport}, {_SDK_NAMES[sdk]}, {_beside(beside)}" for transport, sdk, beside in shown]
    lines = table(
        ("code", *heads),
        (
            (
                f"`{workload.code}`",
                *(_ratios(state, workload, each) for each in shown),
            )
            for workload in FAULTS
            if any(_runs(state, workload, form, each) for form in FORMS for each in shown)
        ),
    )
    healthy = [workload for workload in HEALTHY if any(_runs(state, workload, "healthy", each) for each in shown)]
    if healthy:
        rows = [
            (
                workload.name.removeprefix("healthy_").replace("_", " "),
                *(_ratio(state, workload, "healthy", each) for each in shown),
            )
            for workload in healthy
        ]
        lines += ["", *table(("healthy server", *heads), rows)]
    return lines


def section(state: State, about: str) -> list[str]:
    """What docs/findings.md says of the matrix: sums, the tables, and every kind of wrong verdict."""
    right, runs = totals(state)
    alone = [run.others for key, each in state.items() if key.endswith("/alone") for run in each]
    busy = sum(others > OTHERS_SHARE for others in alone)
    beside = f"{busy} of {len(alone)} runs alone were on a busy machine." if alone else ""
    wrong = Counter(
        key.split("/")[0] + "/" + key.split("/")[1] for key, each in state.items() for run in each if run.wrong
    )
    commits = ", ".join(sorted({run.commit for each in state.values() for run in each}))
    forked = sum(run.is_forked for each in state.values() for run in each)
    said = f"{right} of {runs} runs were right, on {about}, of commit {commits}. {beside} Runs of forks: {forked}."
    lines = [said, "", *tables(state)]
    if wrong:
        listed = ", ".join(f"{_named(key)} {count}" for key, count in wrong.most_common())
        lines += ["", f"Wrong runs: {listed}."]
    return lines


def _named(key: str) -> str:
    """``near miss of gc-pause``; a healthy server by its name."""
    name, form = key.split("/")
    code = next((workload.code for workload in FAULTS if workload.name == name), None)
    if code is None:
        return f"healthy server {name.removeprefix('healthy_').replace('_', ' ')}"
    return f"{'near miss' if form == 'near' else form} of `{code}`"


def totals(state: State) -> tuple[int, int]:
    """(runs that were right, runs)."""
    every = [run for runs in state.values() for run in runs]
    return sum(run.wrong is None for run in every), len(every)


def _rows() -> Iterable[tuple[Workload, Form]]:
    return ((workload, form) for workload in (*FAULTS, *HEALTHY) for form in workload.loads)


def _runs(state: State, workload: Workload, form: Form, condition: _Condition) -> list[Run]:
    transport, asked, beside = condition
    sdk: Sdk = "fastmcp3" if workload.sdks == ("fastmcp3",) and asked == "mcp2" else asked
    return state.get(Cell(workload, form, transport, sdk, beside).key, [])


def _ratios(state: State, workload: Workload, condition: _Condition) -> str:
    """Of each form; one dash where none was run."""
    each = [_ratio(state, workload, form, condition) for form in FORMS]
    return " · ".join(each) if set(each) != {"–"} else "–"


def _ratio(state: State, workload: Workload, form: Form, condition: _Condition) -> str:
    runs = _runs(state, workload, form, condition)
    return f"{sum(run.wrong is None for run in runs)}/{len(runs)}" if runs else "–"


def _beside(beside: Beside) -> str:
    return "alone" if beside == "alone" else "beside a CPU hog"
