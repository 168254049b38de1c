"""One HTML page of a run: every table, claim and chart, and nothing to load from anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mcp_probe.record import private_file
from mcp_probe.report.page.document import Section, page_of
from mcp_probe.report.page.markup import text_of
from mcp_probe.report.page.plots import figure
from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.charts import Chart, charts_of
from mcp_probe.workloads.bench.console import ROLES, machine_texts
from mcp_probe.workloads.bench.documents import DocumentPage, by_document, verdicts_of
from mcp_probe.workloads.bench.shapes import VERDICTS, Check, Results, Row, Stats

_MOST_CHARTS = 4
_HEADS = ("", "documented", "measured", "of doc.", "A/A")
_MORE = ("mean", "sd", "95 % CI", "P95", "P99", "min", "max", "n", "first", "L", "others' cores")

_LEGEND = (
    "<b>documented</b> is the figure as printed; <b>of doc.</b> is what was measured over it, brought to the size that "
    "ran."
)
LEGEND = (
    "<b>measured</b> is what came out here: the median, where there are rounds. <b>A/A</b> is what two runs of the "
    'same thing differed by: a ratio nearer to 1 means nothing. <span class="mark">!</span> marks what was measured '
    "while others used more than a quarter of a core. Sentences under rows are the probe's."
)
"""Of the columns that every page has."""


def write_html(results: Results, path: Path) -> None:
    """Writes the page. Raises: OSError where ``path`` cannot be written."""
    private_file.write(path, _page(results))


def _page(results: Results) -> str:
    pages = by_document(results)
    charts = charts_of(results)
    sections = [Section("top", "", "".join(_top(results, pages)))]
    for page in pages:
        title = f"{page.number} {page.title.partition(':')[0]}"
        drawn = [chart for chart in charts if chart.document == page.number]
        sections.append(Section(f"d{page.number}", title, "\n".join(_document(page, drawn))))
    return page_of(f"Documented and measured, {results.size} run", sections)


def _top(results: Results, pages: list[DocumentPage]) -> Iterator[str]:
    yield "<h2>Documented and measured</h2>"
    yield f'<p class="dim">{text_of(" · ".join([f"{results.size} run", *machine_texts(results.machine)]))}</p>'
    yield _counts([check for page in pages for check in page.checks])
    yield f'<p class="dim">{LEGEND} {_LEGEND}</p>'
    yield '<p class="screen"><input type="checkbox" id="all"> <label for="all">all statistics</label></p>'


def _counts(checks: list[Check]) -> str:
    counts = verdicts_of(checks)
    told = " ".join(
        f'<span class="item gap {ROLES[verdict]}">{count} {figures.counted(verdict, count)}</span>'
        for verdict in VERDICTS
        if (count := counts[verdict])
    )
    return f'<p class="counts">{told}</p>'


def _document(page: DocumentPage, charts: list[Chart]) -> Iterator[str]:
    yield f"<h2>{text_of(page.number)} · {text_of(page.title)}</h2>"
    if page.checks:
        yield "<h3>Claims</h3>"
        yield from map(claim_of, page.checks)
    for table, rows in page.tables.items():
        yield f"<h3>{text_of(table)}</h3>"
        yield from _figures([chart for chart in charts if chart.table == table])
        yield from table_of(rows)
    for note in page.notes:
        yield f'<p class="dim">{text_of(note)}</p>'


def _figures(charts: list[Chart]) -> Iterator[str]:
    """The first few at once, the others of a table that has many when asked for."""
    shown, more = charts[:_MOST_CHARTS], charts[_MOST_CHARTS:]
    if shown:
        yield f'<div class="charts">{"".join(figure(chart.plot) for chart in shown)}</div>'
    if more:
        yield f"<details><summary>{len(more)} more {'chart' if len(more) == 1 else 'charts'}</summary>"
        yield f'<div class="charts">{"".join(figure(chart.plot) for chart in more)}</div></details>'


def prose(words: str) -> str:
    """A sentence; what it has in backticks is code."""
    parts = words.split("`")
    if len(parts) % 2 == 0:
        return text_of(words)
    return "".join(f"<code>{text_of(part)}</code>" if place % 2 else text_of(part) for place, part in enumerate(parts))


def claim_of(check: Check) -> str:
    """One claim and what became of it."""
    told = [f"documented {text_of(check.documented)}"] if check.documented else []
    told.append(f"measured <b>{text_of(check.measured)}</b>")
    if check.tolerance:
        told.append(f"asked: {text_of(check.tolerance)}")
    if check.contended:
        told.append('<span class="mark">contended</span>')
    why = f"<br>{prose(check.why)}" if check.why else ""
    claim = f"<b>{text_of(check.claim)}</b> {text_of(check.sentence)}"
    return (
        f'<div class="claim"><span class="{ROLES[check.verdict]}">{check.verdict}</span>'
        f"<div>{claim}<br><small>{' · '.join(told)}{why}</small></div></div>"
    )


def table_of(rows: list[Row]) -> Iterator[str]:
    """Rows with their reasons. A column of the first few in which nothing stands is not there."""
    cells = [_cells(row) for row in rows]
    shown = [place for place in range(len(_HEADS)) if place < 1 or any(row[place - 1][1] for row in cells)]
    heads = "".join(
        f'<th scope="col" class="right">{text_of(_HEADS[place])}</th>' if place else "<td></td>" for place in shown
    )
    more = "".join(f'<th scope="col" class="right more">{text_of(head)}</th>' for head in _MORE)
    yield f'<div class="scroll" tabindex="0"><table><thead><tr>{heads}{more}</tr></thead><tbody>'
    under, below = figures.placed(rows, [_told(row) for row in rows])
    for place, row in enumerate(rows):
        yield _row(row, [cells[place][at - 1] for at in shown if at])
        if place in under:
            colspan = len(shown) + len(_MORE)
            yield f'<tr class="under"><td colspan="{colspan}"><span>{prose(under[place])}</span></td></tr>'
    yield "</tbody></table></div>"
    for labels, told in below:
        yield f'<p class="dim"><b>{text_of(labels)}</b>: {prose(told)}</p>'


def _told(row: Row) -> str:
    excuse = row.little.excused if row.little is not None else ""
    conditions = map(figures.sentence, (figures.expected(row), row.note, excuse))
    return " ".join(filter(None, (row.why, *conditions)))


def _cells(row: Row) -> list[tuple[str, str]]:
    """(class, markup), in the order of ``_HEADS`` after the first."""
    mark = ' <span class="mark" title="others used the machine">!</span>' if figures.is_marked(row) else ""
    return [
        ("dim", text_of(figures.documented(row))),
        ("strong", f"{text_of(figures.measured(row))}{mark}"),
        ("", figures.times(row.ratio)),
        ("dim", figures.times(row.noise_floor)),
    ]


def _row(row: Row, shown: list[tuple[str, str]]) -> str:
    texts = (*shown, *(("more", text_of(text)) for text in _statistics(row)))
    cells = "".join(f'<td class="right {kind}">{text}</td>' for kind, text in texts)
    return f"<tr><td>{text_of(row.name)}</td>{cells}</tr>"


def _statistics(row: Row) -> list[str]:
    """In the order of ``_MORE``."""
    little = figures.little(row.little) + ("" if row.little is None or row.little.fits else " !")
    found = row.measured
    if not isinstance(found, Stats):
        return [""] * 9 + [little, ""]
    number = figures.number
    interval = "" if found.ci_low is None else f"{number(found.ci_low)} – {number(found.ci_high)}"
    shown = [number(value) for value in (found.p95, found.p99, found.min, found.max)]
    first = "" if found.first is None else number(found.first)
    others = "" if found.foreign_cores is None else f"{found.foreign_cores:.2f}"
    sd = "" if found.sd is None else number(found.sd)
    return [number(found.mean), sd, interval, *shown, str(found.n), first, little, others]
