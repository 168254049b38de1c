"""One HTML page of a run: every table, claim and chart, and nothing to load from anywhere."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path

from mcp_probe.record import private_file
from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.charts import Chart, charts_of
from mcp_probe.workloads.bench.console import machine_texts
from mcp_probe.workloads.bench.documents import DocumentPage, by_document
from mcp_probe.workloads.bench.plots import image
from mcp_probe.workloads.bench.shapes import VERDICTS, Check, Results, Row, Stats, Verdict

_CLASSES: dict[Verdict, str] = {
    "holds": "good",
    "holds in shape": "shape",
    "does not hold": "bad",
    "cannot be tested here": "none",
}
_MOST_CHARTS = 4
_HEADS = ("", "documented", "measured", "of doc.", "A/A")
_MORE = ("mean", "sd", "95 % CI", "P95", "P99", "min", "max", "n", "first", "L", "others' cores")

_LEGEND = (
    "<b>documented</b> is the figure as printed, <b>measured</b> what came out here: the median, where there are "
    "rounds. <b>of doc.</b> is what was measured over the documented figure, brought to the size that ran; <b>A/A</b> "
    'is what two runs of the same thing differed by: a ratio nearer to 1 means nothing. <span class="mark">!</span> '
    "marks what was measured while others used more than a quarter of a core. Sentences under rows are the probe's."
)

_CSS = """
:root{--ink:#1f2328;--dim:#656d76;--line:#d8dee4;--paper:#fff;--soft:#f6f8fa;--good:#1a7f37;--shape:#4c8a2b;
--bad:#cf222e;
--none:#656d76;--link:#0969da}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#8d96a0;--line:#30363d;--paper:#0d1117;
--soft:#161b22;
--good:#3fb950;--shape:#7ab85f;--bad:#f85149;--none:#8d96a0;--link:#58a6ff}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:75rem;padding:1.5rem 1.25rem 4rem;color:var(--ink);background:var(--paper);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.6rem;margin:.2rem 0}
h2{font-size:1.25rem;margin:2.8rem 0 .4rem;padding-top:.8rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.6rem 0 .3rem}p{margin:.3rem 0}.dim,small{color:var(--dim)}
a{color:var(--link);text-decoration:none}
nav{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;margin:.8rem 0;padding:0}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.87rem}
th{font-weight:600;color:var(--dim);text-align:right;padding:.25rem .6rem;white-space:nowrap;
border-bottom:1px solid var(--line)}
td{text-align:right;padding:.22rem .6rem;white-space:nowrap;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left;padding-left:0;white-space:normal;min-width:17rem}
td.strong{font-weight:600}
tr.why td{border-bottom:1px solid var(--line);padding:.05rem 0 .45rem 1.2rem;text-align:left;
white-space:normal;color:var(--dim);max-width:60rem}tr.told td{border-bottom:0}
.more{display:none}#all:checked~main .more{display:table-cell}label{cursor:pointer;color:var(--link)}
#all{margin-right:.4rem}
.claim{display:grid;grid-template-columns:12rem 1fr;gap:.1rem .9rem;padding:.5rem 0;
border-bottom:1px solid var(--line)}
.claim b{font-weight:600}.verdict{font-weight:600;white-space:nowrap}.good{color:var(--good)}
.shape{color:var(--shape)}
.bad{color:var(--bad)}.none{color:var(--none)}.mark{color:var(--bad);font-weight:700}
.charts{display:flex;flex-wrap:wrap;gap:1rem;margin:1rem 0}
.charts figure{margin:0;flex:1 1 30rem;max-width:44rem;background:#fff;
border:1px solid var(--line);border-radius:6px;padding:.5rem}.charts img{width:100%;height:auto;display:block}
.counts{display:flex;flex-wrap:wrap;gap:.4rem 1.4rem;margin:.6rem 0;font-size:1.05rem}
"""


def write_html(results: Results, path: Path) -> None:
    """Writes the page. Raises: OSError where ``path`` cannot be written."""
    private_file.write(path, "\n".join(_page(results)) + "\n")


def _page(results: Results) -> Iterator[str]:
    pages = by_document(results)
    charts = charts_of(results)
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>mcp-probe bench, {escape(results.size)} run</title>\n<style>{_CSS}</style>\n</head>\n<body>"
    yield "<h1>Documented and measured</h1>"
    yield f'<p class="dim">{escape(" · ".join([f"{results.size} run", *machine_texts(results.machine)]))}</p>'
    yield _counts([check for page in pages for check in page.checks])
    yield f'<p class="dim">{_LEGEND}</p>'
    links = "".join(
        f'<a href="#d{escape(page.number)}">{escape(page.number)} {escape(page.title.partition(":")[0])}</a>'
        for page in pages
    )
    yield f"<nav>{links}</nav>"
    yield '<input type="checkbox" id="all"><label for="all">all statistics</label>'
    yield "<main>"
    for page in pages:
        yield from _document(page, [chart for chart in charts if chart.document == page.number])
    yield "</main>\n</body>\n</html>"


def _counts(checks: list[Check]) -> str:
    counts = Counter(check.verdict for check in checks)
    told = "".join(
        f'<span class="{_CLASSES[verdict]}"><b>{counts[verdict]}</b> {figures.counted(verdict, counts[verdict])}</span>'
        for verdict in VERDICTS
        if counts[verdict]
    )
    return f'<div class="counts">{told}</div>'


def _document(page: DocumentPage, charts: list[Chart]) -> Iterator[str]:
    yield f'<h2 id="d{escape(page.number)}">{escape(page.number)} · {escape(page.title)}</h2>'
    if page.checks:
        yield "<h3>Claims</h3>"
        yield from map(_claim, page.checks)
    for table, rows in page.tables.items():
        yield f"<h3>{escape(table)}</h3>"
        yield from _figures([chart for chart in charts if chart.table == table])
        yield from _table(rows)
    for note in page.notes:
        yield f'<p class="dim">{escape(note)}</p>'


def _figures(charts: list[Chart]) -> Iterator[str]:
    """The first few at once, the others of a table that has many when asked for."""
    shown, more = charts[:_MOST_CHARTS], charts[_MOST_CHARTS:]
    if shown:
        yield f'<div class="charts">{"".join(map(_figure, shown))}</div>'
    if more:
        yield f"<details><summary>{len(more)} more {'chart' if len(more) == 1 else 'charts'}</summary>"
        yield f'<div class="charts">{"".join(map(_figure, more))}</div></details>'


def _figure(chart: Chart) -> str:
    data = b64encode(image(chart, "svg")).decode("ascii")
    return f'<figure><img alt="{escape(chart.title)}" src="data:image/svg+xml;base64,{data}"></figure>'


def _claim(check: Check) -> str:
    told = [f"documented {escape(check.documented)}", f"measured <b>{escape(check.measured)}</b>"]
    if check.tolerance:
        told.append(f"asked: {escape(check.tolerance)}")
    if check.contended:
        told.append('<span class="mark">contended</span>')
    why = f"<br>{escape(check.why)}" if check.why else ""
    claim = f"<b>{escape(check.claim)}</b> {escape(check.sentence)}"
    return (
        f'<div class="claim"><span class="verdict {_CLASSES[check.verdict]}">{check.verdict}</span>'
        f"<div>{claim}<br><small>{' · '.join(told)}{why}</small></div></div>"
    )


def _table(rows: list[Row]) -> Iterator[str]:
    heads = "".join(f"<th>{escape(head)}</th>" for head in _HEADS)
    more = "".join(f'<th class="more">{escape(head)}</th>' for head in _MORE)
    yield f'<div class="scroll"><table><thead><tr>{heads}{more}</tr></thead><tbody>'
    under, below = figures.placed(rows, [_told(row) for row in rows])
    for place, row in enumerate(rows):
        yield _row(row, place in under)
        if place in under:
            yield f'<tr class="why"><td colspan="{len(_HEADS) + len(_MORE)}">{escape(under[place])}</td></tr>'
    yield "</tbody></table></div>"
    for labels, told in below:
        yield f'<p class="dim"><b>{escape(labels)}</b>: {escape(told)}</p>'


def _told(row: Row) -> str:
    excuse = row.little.excused if row.little is not None else ""
    return " ".join(
        part
        for part in (
            row.why,
            figures.sentence(figures.expected(row)),
            figures.sentence(row.note),
            figures.sentence(excuse),
        )
        if part
    )


def _row(row: Row, has_more: bool) -> str:
    label = f"{row.label} ({row.protocol})" if row.protocol else row.label
    mark = ' <span class="mark" title="others used the machine">!</span>' if row.is_contended else ""
    cells = [
        f"<td>{escape(label)}</td>",
        f'<td class="dim">{escape(figures.documented(row))}</td>',
        f'<td class="strong">{escape(figures.measured(row))}{mark}</td>',
        f"<td>{figures.times(row.ratio)}</td>",
        f'<td class="dim">{figures.times(row.noise_floor)}</td>',
    ]
    more = "".join(f'<td class="more">{escape(text)}</td>' for text in _statistics(row))
    opening = '<tr class="told">' if has_more else "<tr>"
    return f"{opening}{''.join(cells)}{more}</tr>"


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
