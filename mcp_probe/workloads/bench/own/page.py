"""The HTML page of a run on a user's own server: what to do first, then what it rests on, under headings of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mcp_probe.record import private_file
from mcp_probe.report.page.document import Section, page_of
from mcp_probe.report.page.markup import text_of
from mcp_probe.report.page.plots import figure
from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.charts import Chart, measured_charts
from mcp_probe.workloads.bench.console import machine_texts
from mcp_probe.workloads.bench.documents import by_table
from mcp_probe.workloads.bench.html import LEGEND, claim_of, prose, table_of
from mcp_probe.workloads.bench.registry import DOCUMENTS
from mcp_probe.workloads.bench.shapes import Check, Result, Results, Row

_SWEEP, _READINGS, _TOOLS = "concurrency sweep", "how many at once", "tools"


def write_page(results: Results, path: Path) -> None:
    """Writes the page. Raises: OSError where ``path`` cannot be written."""
    private_file.write(path, "".join(_page(results)))


def _page(results: Results) -> Iterator[str]:
    (result,) = results.results or (None,)
    if result is None:
        yield page_of("A server of one's own", [Section("top", "", "<p>Nothing was measured.</p>")])
        return
    tables = by_table(result.outcome.rows)
    sections = [Section("top", "", "".join(_top(results, result)))]
    told = {name: tables[name] for start in (_READINGS, _SWEEP) for name in tables if name.startswith(start)}
    if told:
        sections.append(Section("knee", "How many", "".join(_tables(told))))
    for number, (name, rows) in enumerate((name, rows) for name, rows in tables.items() if name not in told):
        sections.append(Section(f"t{number}", _short(name), "".join(_tables({name: rows}))))
    if result.outcome.checks:
        sections.append(Section("claims", "Claims", "".join(_claims(result.outcome.checks))))
    yield page_of(result.about, sections)


def _top(results: Results, result: Result) -> Iterator[str]:
    yield f"<h2>{text_of(figures.sentence(result.about).removesuffix('.'))}</h2>"
    if result.outcome.advice:
        yield f'<p class="advice"><b>{prose(result.outcome.advice)}</b></p>'
    if result.error is not None:
        yield f'<p class="critical">Not complete: {text_of(result.error)}.</p>'
    about = [f"{results.size} run", f"{result.seconds:.0f} s", *machine_texts(results.machine)]
    yield f'<p class="dim">{text_of(" · ".join(about))}</p>'
    for note in (*result.outcome.missing, *result.outcome.notes):
        yield f"<p>{prose(note)}</p>"
    yield f'<p class="dim">{LEGEND}</p>'
    yield '<p class="screen"><input type="checkbox" id="all"> <label for="all">all statistics</label></p>'


def _tables(tables: dict[str, list[Row]]) -> Iterator[str]:
    for name, rows in tables.items():
        yield f"<h2>{text_of(name[:1].upper() + name[1:])}</h2>"
        drawn = [] if name.startswith((_READINGS, _TOOLS)) else measured_charts(rows)
        if drawn:
            yield f'<div class="charts">{"".join(map(_figure, drawn))}</div>'
        table = "".join(table_of(rows))
        is_long = bool(drawn) and name.startswith(_SWEEP)
        levels = len({row.x for row in rows})
        yield f"<details><summary>All {levels} levels, and why</summary>{table}</details>" if is_long else table


def _figure(chart: Chart) -> str:
    title = f"{chart.metric} by calls in flight" if chart.table.startswith(_SWEEP) else chart.plot.title
    return figure(replace(chart.plot, title=title[:1].upper() + title[1:]))


def _claims(checks: Sequence[Check]) -> Iterator[str]:
    known = {
        number: DOCUMENTS[number].partition(":")[0] for check in checks if (number := check.claim[:3]) in DOCUMENTS
    }
    told = ", ".join(f"{number} {title}" for number, title in sorted(known.items()))
    yield "<h2>What published comparisons claim, on this server</h2>"
    yield (
        f'<p class="dim">A claim\'s number begins with that of its document: {text_of(told)}. What is documented was '
        "measured there with other servers.</p>"
    )
    yield from map(claim_of, checks)


def _short(name: str) -> str:
    """A table's name for the header: without the operation that it was measured with."""
    short = name.partition(" of ")[0].partition(",")[0].partition(" beside ")[0]
    return "At once" if "×" in short else short[:1].upper() + short[1:]
