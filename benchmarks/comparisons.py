"""Makes ``docs/comparisons.md`` and its charts from a run of ``mcp-probe bench --document now``.

    mcp-probe bench --document now --json now.json    (on a quiet machine)
    python benchmarks/comparisons.py now.json

Nothing on the page is written by hand: what a comparison is about is its scenario's own docstring. Drawing needs the
extra ``bench``.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.reproductions import ROOT, cell_text, counted, of_groups, reasons_of
from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.charts import Chart, charts_of
from mcp_probe.workloads.bench.documents import by_table
from mcp_probe.workloads.bench.registry import QUESTIONS, TODAY
from mcp_probe.workloads.bench.results import read_results
from mcp_probe.workloads.bench.shapes import Check, Result, Results, Row

PAGE = ROOT / "docs" / "comparisons.md"
PICTURES = ROOT / "docs" / "comparisons"

HEAD = """\
# Comparisons

Questions that no published document answers, asked of real servers on one machine: what large results cost, which event
loop, with or without sessions, how many clients, what notifications and questions to the client take, how many workers,
which SDK, which CPython, what becomes of a call whose connection breaks, and what HTTP/2 gives. Run them with:

```sh
mcp-probe bench --document now --quick   # all of them, small
mcp-probe bench result-size workers      # two of them, at their full sizes
mcp-probe bench pythons --python ~/py312/bin/python --python ~/py314/bin/python
```

Each comparison has a truth that is not the probe's: what the client sent and received, what the server or the kernel
counted. A claim that says *the probe* holds the probe's reading against it. A sentence in italics is the probe's own
reading of the arms that the claim is about, or of what grew from one arm to the other. This page is generated from one
run; [Workloads](bench.md) says what the columns and verdicts mean.
"""
LEGEND = """\
*Measured* is the median, if there were several rounds. *±95 %* is half the width of the 95 % interval of the mean.
*A/A* is the difference between two runs of the same thing. A figure with **!** was measured while other programs used
more than a quarter of a core; a verdict that they could have changed is then *cannot be told here*.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", type=Path, help="of `mcp-probe bench --document now --json FILE`")
    results = read_results(parser.parse_args().results)
    PAGE.write_text(page(results), "utf-8")
    draw(results)


def page(results: Results) -> str:
    """The whole page; of a run of everything only what belongs on it."""
    results = of_groups(results, {TODAY})
    return "\n\n".join(part.strip("\n") for part in _parts(results)) + "\n"


def draw(results: Results) -> None:
    """Replaces the pictures that the page shows."""
    from mcp_probe.workloads.bench.plots import image

    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    for result in of_groups(results, {TODAY}).results:
        for chart in _shown(results, result):
            (PICTURES / f"{chart.name}.svg").write_bytes(image(chart.plot, "svg"))


def _parts(results: Results) -> Iterator[str]:
    yield HEAD
    yield counted(results)
    yield LEGEND
    places = {each.name: each.place for each in QUESTIONS}
    for result in results.results:
        yield f"## {figures.sentence(result.about).removesuffix('.')}"
        yield _about(result.name, places[result.name])
        yield _claims(result.outcome.checks)
        for chart in _shown(results, result):
            yield f"![{chart.plot.title}](comparisons/{chart.name}.svg)"
        for table, rows in by_table(result.outcome.rows).items():
            yield f"### {cell_text(_plain(table))}"
            yield _table(rows)
            if told := _told(rows):
                yield told
        for note in (*result.outcome.missing, *result.outcome.notes):
            yield f"- {cell_text(note)}"


def _told(rows: Sequence[Row]) -> str:
    """Reasons, then conditions: rows that differ in one of them share the other."""
    reasons = reasons_of([replace(row, note="", little=None) for row in rows])
    return "\n".join(filter(None, (reasons, reasons_of([replace(row, why="") for row in rows]))))


def _about(name: str, place: str) -> str:
    """What the scenario says of itself, and the command."""
    _, _, told = (inspect.getdoc(import_module(place.partition(":")[0])) or "").partition("\n\n")
    return f"{told.replace('``', '`')}\n\n`mcp-probe bench {name}`"


def _shown(results: Results, result: Result) -> list[Chart]:
    """The first chart of the comparison."""
    tables = {row.table for row in result.outcome.rows}
    return [chart for chart in charts_of(results) if chart.table in tables][:1]


def _plain(table: str) -> str:
    return figures.sentence(table.partition(" ")[2]).removesuffix(".")


def _claims(checks: Sequence[Check]) -> str:
    lines = ["| | asked | measured | verdict |", "| --- | --- | --- | --- |"]
    for check in checks:
        why = f"<br>*{cell_text(check.why)}*" if check.why else ""
        mark = " **!**" if check.contended else ""
        cells = (cell_text(check.sentence) + why, cell_text(check.tolerance), cell_text(check.measured))
        lines.append(f"| {' | '.join(cells)} | {check.verdict}{mark} |")
    return "\n".join(lines)


def _table(rows: Sequence[Row]) -> str:
    lines = ["| | measured | ±95 % | P95 | A/A |", "| --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        mark = " **!**" if row.is_contended else ""
        cells = [figures.measured(row) + mark, figures.spread(row), figures.tail(row), figures.times(row.noise_floor)]
        lines.append(f"| {cell_text(row.name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
