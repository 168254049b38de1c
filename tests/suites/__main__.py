"""``python -m tests.suites [SUITE...]``: every suite bare twice and probed twice, and a table of what came out.

Writes ``tests/suites/expected/*.json`` (what is stable bare) and the rows of what was run into docs/compatibility.md.
Ends with 1 where a probed run is not as bare. ``SUITE_PYTHONS`` names further interpreters for CPython's own suite.
"""

from __future__ import annotations

import os
import sys

from mcp_probe import native
from tests.suites.known import KNOWN
from tests.suites.upstream import SUITES, Bare, Core, NotReady, Suite, compare, run, settled, unwatched, version_of
from tools import compatibility

HEADS = ("Suite", "Python", "Bare", "Probed, accelerator", "Probed, Python only", "Watched", "Unstable bare")
SHOWN = 40


def measure(suite: Suite, python: str) -> tuple[list[str], bool]:
    """(its row of the table, whether probed is as bare). Prints every difference."""
    one, two = run(suite, None, python), run(suite, None, python)
    bare = Bare.from_runs(one, two)
    bare.keep(suite, python)
    owned = KNOWN.get(suite.name, {})
    same, cells, watched = True, [], ""
    cores: tuple[Core, ...] = ("native", "pure")
    for core in cores:
        if core == "native" and native.core is None:
            cells.append(f"not run: {native.absence}")
            continue
        probed, calm = settled(suite, core, bare, run(suite, core, python), python)
        for test in calm:
            print(f"  {suite.name}, {core}: {test}: as bare in a second run only", flush=True)
        said = unwatched(suite, probed) + compare(bare, probed, owned)
        for sentence in said[:SHOWN]:
            print(f"  {suite.name}, {core}: {sentence}", flush=True)
        if len(said) > SHOWN:
            print(f"  {suite.name}, {core}: and {len(said) - SHOWN} more", flush=True)
        same = same and not said
        but = f", {len(owned)} known apart" if owned else ""
        but += f", {len(calm)} in a second run only" if calm else ""
        cells.append(f"as bare{but}" if not said else f"{len(said)} differences{but} ({probed.counts()})")
        watched = ", ".join(f"{count} {what}" for what, count in probed.proof().items() if count)
    return [suite.title, version_of(suite, python), one.counts(), *cells, watched, str(len(bare.unstable))], same


def publish(rows: list[list[str]]) -> None:
    """Put these rows into the page; those of other suites and interpreters stay."""
    kept = {tuple(row[:2]): row for row in [*compatibility.rows("suites"), *rows]}
    order = [suite.title for suite in SUITES.values()]
    ordered = sorted((row for row in kept.values() if row[0] in order), key=lambda row: (order.index(row[0]), row[1]))
    introduction = (
        "Tests that nobody here wrote, run without the probe and with it: the outcomes are compared test by test. "
        "Tests whose two runs without the probe disagree are unstable and not compared."
    )
    known = [f"- {SUITES[name].title}, `{test}`: {why}" for name, tests in KNOWN.items() for test, why in tests.items()]
    compatibility.write("suites", [introduction, "", *compatibility.table(HEADS, ordered), "", *known])


def main(names: list[str]) -> int:
    """Run the named suites, or all."""
    all_same = True
    for name in names or SUITES:
        pythons = [sys.executable]
        if name == "asyncio":
            pythons += [python for python in os.environ.get("SUITE_PYTHONS", "").split(os.pathsep) if python]
        for python in pythons:
            print(f"{SUITES[name].title}, {python if name == 'asyncio' else 'its environment'} ...", flush=True)
            try:
                row, same = measure(SUITES[name], python)
            except NotReady as why:
                print(f"not run: {why}", flush=True)
                all_same = False
                continue
            print(" | ".join(row), flush=True)
            publish([row])
            all_same = all_same and same
    return 0 if all_same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
