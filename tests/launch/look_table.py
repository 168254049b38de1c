"""Every cell of tests/launch/looked_at.py, and their table in docs/compatibility.md.

python -m tests.launch.look_table             all 100, in half an hour, and the table (`make looks`)
python -m tests.launch.look_table WORDS       those whose name has all these words
python -m tests.launch.look_table --write     the table of what has been run, by this and earlier runs

A run says of each cell what was wrong, and keeps it in .cells/looks.json. `make attach-cells` makes the environments.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.launch.attach_cells import make
from tests.launch.looked_at import CELLS, Cell, faults_of, look_at
from tools.accelerator import build_in_place
from tools.compatibility import table, write
from tools.interpreters import ROOT, Absent, interpreter

KEPT = ROOT / ".cells" / "looks.json"
WAYS = (("stdio", "asyncio"), ("stdio", "uvloop"), ("stdio", "trio"), ("http", "asyncio"), ("http", "uvloop"))
ABOUT = """\
Each cell is a server with a tool that blocks the event loop, a lock and a pool of two threads, under
`mcp-probe run --record FILE --full --live --flight DIR`. While a call holds the lock and another waits for it,
`mcp-probe top --json`, `top --once` and `top --dump` look at it; afterwards `report`, `--json`, `--trace`,
`--speedscope`, `--html`, `query` and `mcp-probe what-if` read the recording. *n of m*: calls in the recording, of those
that the client sent. A cell has a fault where

- recording, timelines, summary, `query` or the flight recording do not count each tool's calls as the client does,
- a call that blocked has no step that long, or the line that blocked is not among the lines that were seen,
- `top` or the recording does not name the lock, its line and the call that holds it,
- the trace does not pass the checker of `tests/report`, or a page or a profile is empty,
- `mcp-probe what-if` neither predicts nor refuses by a sentence,
- the server's interpreter, loop, SDK or accelerator is not what is said, or a traceback or warning of ours comes out.

*predicts*: what `mcp-probe what-if` runs again is within 10 % of what was measured. *refuses*, and by how much the
percentile was off that was farthest off: the self-check does not hold, so it exits with 2. That judges the host as
much as the cell (load average {load}, on two CPUs). On trio there is no HTTP: uvicorn runs on asyncio and uvloop
only.""".splitlines()


def run(cell: Cell) -> dict[str, Any]:
    """What came of it: ``absent``, or ``faults``, ``counts`` and ``what_if``."""
    try:
        python = make(cell.version, cell.sdk)
        if cell.native:
            build_in_place(interpreter(cell.version))
    except Absent as exc:
        return {"absent": str(exc)}
    with TemporaryDirectory(prefix="looks-") as folder:
        try:
            seen = look_at(cell, python, Path(folder))
        except Exception as exc:  # noqa: BLE001 - a cell that fails leaves the others to be asked
            return {"faults": [f"{type(exc).__name__}: {str(exc)[-800:]}"], "counts": [], "what_if": [-1, ""]}
    counts = [sum(seen.recorded[name] for name in seen.sent), sum(seen.sent.values())]
    return {"faults": faults_of(cell, seen), "counts": counts, "what_if": list(seen.what_if)}


def told(result: dict[str, Any]) -> str:
    """One cell of the table."""
    if "absent" in result:
        return f"— ({result['absent']})"
    if not result["counts"]:
        return "**did not run**"
    recorded, sent = result["counts"]
    code, sentence = result["what_if"]
    off = re.search(r"simulated \(([+-]\d+%)\)", sentence)
    predicts = "predicts" if code == 0 else f"refuses ({off[1]})" if off else "refuses"
    return ("**false**; " if result["faults"] else "") + f"{recorded} of {sent}; {predicts}"


def section(results: dict[str, dict[str, Any]]) -> list[str]:
    ran = [one for one in results.values() if "absent" not in one]
    clean = [one for one in ran if not one["faults"]]
    predicted = [name for name, one in results.items() if one.get("what_if", [2])[0] == 0]
    http = sum(", http," in name for name in predicted) or "none"
    loads = [one["load"] for one in ran]
    rows = []
    for version, sdk, native in sorted({(cell.version, cell.sdk, cell.native) for cell in CELLS}, key=str):
        ways = (str(Cell(version, sdk, how, loop, native)) for how, loop in WAYS)
        cells = [told(results[name]) if name in results else "not run" for name in ways]
        rows.append([version, sdk, "on" if native else "off", *cells])
    heads = [f"{'HTTP' if how == 'http' else how}, {loop}" for how, loop in WAYS]
    wrong = [(name, fault) for name, one in results.items() for fault in one.get("faults", ())]
    return [
        f"{len(ran)} cells ran, {len(clean)} of them without a fault. "
        f"`mcp-probe what-if` predicted in {len(predicted)} and refused in the others; "
        f"over HTTP it predicted in {http}.",
        "",
        *(line.format(load=f"{min(loads):.0f} to {max(loads):.0f}") if "{load}" in line else line for line in ABOUT),
        "",
        *table(["CPython", "SDK", "accelerator", *heads], rows),
        *(["", "What was found wrong:", "", *table(["cell", "fault"], wrong)] if wrong else []),
    ]


def kept() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    return found


def main(*words: str) -> int:
    if words == ("--write",):
        write("looks", section(kept()))
        return 0
    failed = 0
    for cell in CELLS:
        if not all(word in str(cell) for word in words):
            continue
        began = time.monotonic()
        result = {**run(cell), "load": os.getloadavg()[0], "cell": asdict(cell)}
        failed += bool(result.get("faults"))
        KEPT.write_text(json.dumps({**kept(), str(cell): result}, indent=1), "utf-8")
        print(f"{cell}: {time.monotonic() - began:.0f} s; {told(result)}; {result.get('what_if', ['', ''])[1][:200]}")
        print("".join(f"    WRONG {one}\n" for one in result.get("faults", ())), end="", flush=True)
    if not words:
        write("looks", section(kept()))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
