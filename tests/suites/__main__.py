"""``python -m tests.suites [SUITE...]``: every suite bare twice and probed twice, and a table of what came out.

Writes ``tests/suites/expected/*.json`` (what is stable bare) and ``tests/suites/table.md``. Ends with 1 where a probed
run is not as bare. ``SUITE_PYTHONS`` names further interpreters for CPython's own suite.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp_probe import native
from tests.suites.known import KNOWN
from tests.suites.upstream import SUITES, Bare, Core, NotReady, Suite, compare, run, unwatched, version_of

TABLE = Path(__file__).with_name("table.md")
HEAD = """| Suite | Python | Bare | Probed, accelerator | Probed, Python only | Watched | Unstable bare |
|---|---|---|---|---|---|---|
"""
SHOWN = 40


def measure(suite: Suite, python: str) -> tuple[str, bool]:
    """(its row of the table, whether probed is as bare). Prints every difference."""
    one, two = run(suite, None, python), run(suite, None, python)
    bare = Bare.from_runs(one, two)
    bare.keep(suite, python)
    same, cells, watched = True, [], ""
    cores: tuple[Core, ...] = ("native", "pure")
    for core in cores:
        if core == "native" and native.core is None:
            cells.append(f"not run: {native.absence}")
            continue
        probed = run(suite, core, python)
        said = unwatched(suite, probed) + compare(bare, probed, KNOWN.get(suite.name, {}))
        for sentence in said[:SHOWN]:
            print(f"  {suite.name}, {core}: {sentence}", flush=True)
        if len(said) > SHOWN:
            print(f"  {suite.name}, {core}: and {len(said) - SHOWN} more", flush=True)
        same = same and not said
        cells.append("as bare" if not said else f"{len(said)} differences ({probed.counts()})")
        proof = probed.proof()
        watched = ", ".join(f"{count} {what}" for what, count in proof.items() if count)
    words = [suite.title, version_of(suite, python), one.counts(), *cells, watched, str(len(bare.unstable))]
    return "| " + " | ".join(words) + " |", same


def main(names: list[str]) -> int:
    """Run the named suites, or all."""
    rows, all_same = [], True
    for name in names or SUITES:
        pythons = [sys.executable]
        if name == "asyncio":
            pythons += [python for python in os.environ.get("SUITE_PYTHONS", "").split(os.pathsep) if python]
        for python in pythons:
            print(f"{SUITES[name].title}, {python if name == 'asyncio' else 'its environment'} ...", flush=True)
            try:
                row, same = measure(SUITES[name], python)
            except NotReady as why:
                row, same = f"| {SUITES[name].title} | not run: {why} |" + " |" * 5, False
            rows.append(row)
            all_same = all_same and same
            print(row, flush=True)
    if not names:
        TABLE.write_text(HEAD + "\n".join(rows) + "\n")
    return 0 if all_same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
