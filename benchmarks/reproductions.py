"""Makes ``docs/reproductions.md`` and its charts from the committed results of a full run of ``mcp-probe bench``.

    mcp-probe bench --all --json RESULTS            (some 15 minutes, on a quiet machine)
    python benchmarks/reproductions.py RESULTS      (commits what the page needs of them, and makes the page)
    python benchmarks/reproductions.py              (makes the page of what is committed)

Nothing on the page is written by hand. Drawing needs the extra ``bench``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.charts import Chart, charts_of
from mcp_probe.workloads.bench.console import machine_texts
from mcp_probe.workloads.bench.documents import CONDITIONS, DocumentPage, by_document, claims_told
from mcp_probe.workloads.bench.registry import DOCUMENTS, TODAY
from mcp_probe.workloads.bench.results import FORMAT, read_results
from mcp_probe.workloads.bench.shapes import Check, Results, Row
from mcp_probe.workloads.scenarios.documents.doc003 import PLOTS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reproductions.md"
PICTURES = ROOT / "docs" / "reproductions"
DIGITS = 6
MOST_CHARTS = 2  # of one table whose document has no plots; `--html` has them all

HEAD = """\
# Reproductions

Five published documents compare ways to serve and to call MCP and HTTP. `mcp-probe bench` runs every table of
them again, on one machine, and has the probe say why each figure is what it is. This page is generated from the
results committed in [`benchmarks/results`](../benchmarks/results); [Workloads](bench.md) says how to make your
own, and what the columns mean.
"""
EMPTY = "No results of a full run are committed yet: run `mcp-probe bench --all --quick` for a first look."
LEGEND = """\
*Documented* is the figure in the document. *Measured* is what we got here: the median, if there were several rounds.
*±95 %* is half the width of the 95 % interval of the mean. *Of doc.* is the measured figure divided by the documented
one, at the size that ran. *A/A* is the difference between two runs of the same thing. *L* is throughput × mean latency,
next to the concurrency that was asked for. A figure with **!** was measured while other programs used more than a
quarter of a core. The machines differ: compare shapes, not milliseconds.
[One function](bench.md) grades all claims; twins of one claim, on another library or protocol, count once.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", nargs="?", type=Path, help="of a full run; default: those in benchmarks/results")
    given = parser.parse_args().results
    if given is not None:
        found = read_results(given)
        found = replace(found, results=tuple(each for each in found.results if set(each.documents) != {TODAY}))
        version = ".".join(str(found.machine["python"]).split(".")[:2])
        (RESULTS / f"bench-{version}.json").write_text(summary(found), "utf-8")
    path = committed()
    if path is None:
        PAGE.write_text(page(None), "utf-8")
        return
    results = read_results(path)
    PAGE.write_text(page(results), "utf-8")
    draw(results)


def summary(results: Results) -> str:
    """What the page needs, a row a line: what is as usual is left out, and digits that nobody reads."""
    told = _kept(results)
    lines = []
    for result in told.pop("results"):
        outcome = result.pop("outcome")
        rows, checks = (",\n".join(map(_line, outcome.pop(part, ()))) for part in ("rows", "checks"))
        parts = f'"rows": [\n{rows}\n],\n"checks": [\n{checks}\n]'
        more = "".join(f",\n{json.dumps(name)}: {_line(value)}" for name, value in outcome.items())
        lines.append(f'{_line(result)[:-1]}, "outcome": {{\n{parts}{more}}}}}')
    return f'{_line({"format": FORMAT, **told})[:-1]}, "results": [\n' + ",\n".join(lines) + "\n]}\n"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _kept(value: Any) -> Any:
    if is_dataclass(value):
        values = {field.name: (getattr(value, field.name), field.default) for field in fields(value)}
        return {name: _kept(each) for name, (each, usual) in values.items() if each != usual}
    if isinstance(value, (tuple, list)):
        return [_kept(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def committed() -> Path | None:
    """The results of the newest Python that are committed."""
    found = sorted(RESULTS.glob("bench-*.json"), key=lambda path: [int(part) for part in path.stem[6:].split(".")])
    return found[-1] if found else None


def page(results: Results | None) -> str:
    """The whole page; ``None``: there is nothing to tell yet."""
    if results is None:
        return f"{HEAD}\n{EMPTY}\n"
    results = of_groups(results, DOCUMENTS)
    return "\n\n".join(part.strip("\n") for part in _parts(results)) + "\n"


def of_groups(results: Results, groups: Collection[str]) -> Results:
    """The workloads that belong to one of these documents."""
    kept = (result for result in results.results if set(result.documents) & set(groups))
    return replace(results, results=tuple(kept))


def draw(results: Results) -> None:
    """Replaces the pictures that the page shows."""
    from mcp_probe.workloads.bench.plots import image

    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    for chart in _shown(results):
        (PICTURES / f"{chart.name}.svg").write_bytes(image(chart.plot, "svg"))


def _shown(results: Results) -> list[Chart]:
    """A document's own plots, else the first charts of each of its tables; none of conditions."""
    taken: Counter[str] = Counter()
    shown = []
    for chart in charts_of(of_groups(results, DOCUMENTS)):
        taken[chart.table] += 1
        asked = chart.metric in PLOTS[chart.table] if chart.table in PLOTS else taken[chart.table] <= MOST_CHARTS
        if asked and not chart.table.endswith(CONDITIONS):
            shown.append(chart)
    return shown


def counted(results: Results) -> str:
    """What was run where, and how many claims got which verdict."""
    told = claims_told(check for each in by_document(results) for check in each.checks)
    seconds = sum(result.seconds for result in results.results)
    commit = results.machine.get("commit")
    run = f"A {results.size} run, {seconds / 60:.0f} min"
    settings = f"{', '.join(machine_texts(results.machine))}{f'; mcp_probe at {commit}' if commit else ''}"
    rows = [row for result in results.results for row in result.outcome.rows]
    contended = sum(row.is_contended for row in rows)
    marked = f" {contended} of {len(rows)} rows were measured while others used the machine." if contended else ""
    return f"{run}: {settings}.\n\n**{told}**{marked}"


def _parts(results: Results) -> Iterator[str]:
    yield HEAD
    yield counted(results)
    yield LEGEND
    for each in by_document(results):
        yield from _document(each, [chart for chart in _shown(results) if chart.document == each.number])


def _document(each: DocumentPage, charts: list[Chart]) -> Iterator[str]:
    yield f"## {each.number} {each.title}"
    if each.checks:
        yield _claims(each.checks)
    for table, rows in each.tables.items():
        yield f"### {cell_text(table)}"
        for chart in charts:
            if chart.table == table:
                yield f"![{chart.plot.title}](reproductions/{chart.name}.svg)"
        yield _table(rows)
        if reasons := reasons_of(rows):
            yield reasons
    if each.notes:
        yield "\n".join(f"- {cell_text(note)}" for note in each.notes)


def _claims(checks: tuple[Check, ...]) -> str:
    lines = ["| claim | | documented | measured | verdict |", "| --- | --- | --- | --- | --- |"]
    for check in checks:
        why = f"<br>*{cell_text(check.why)}*" if check.why else ""
        verdict = check.verdict if check.verdict == "holds" else f"**{check.verdict}**"
        mark = " **!**" if check.contended else ""
        cells = (
            check.claim,
            cell_text(check.sentence) + why,
            cell_text(check.documented),
            cell_text(check.measured),
            verdict + mark,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _table(rows: list[Row]) -> str:
    lines = [
        "| | documented | measured | ±95 % | P95 | of doc. | A/A | L |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        mark = " **!**" if row.is_contended else ""
        cells = [figures.documented(row), figures.measured(row) + mark, figures.spread(row), figures.tail(row)]
        cells += [figures.times(row.ratio), figures.times(row.noise_floor), figures.little(row.little)]
        lines.append(f"| {cell_text(row.name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def reasons_of(rows: list[Row]) -> str:
    """What the probe says of each row, and the conditions; said once where rows share them."""
    told: dict[str, list[str]] = {}
    for row in rows:
        excuse = row.little.excused if row.little is not None else ""
        parts = (row.why, figures.expected(row), row.note, excuse)
        if text := " ".join(figures.sentence(part) for part in parts if part):
            told.setdefault(text, []).append(row.label)
    return "\n".join(f"- **{cell_text(figures.listed(labels))}**: {cell_text(text)}" for text, labels in told.items())


def cell_text(words: str) -> str:
    """For a cell: what Markdown would take for its own is escaped."""
    return words.replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_").replace("\n", " ")


if __name__ == "__main__":
    main()
