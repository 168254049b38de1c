"""The pages of ``mcp-probe bench`` on a terminal, made of the report's own blocks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from mcp_probe.report.blocks import Block, Box, Column, Flow, Grid, Heading, Paragraph, Role, Span, Spans, Words, words
from mcp_probe.report.console import draw
from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.documents import by_table, claims_told
from mcp_probe.workloads.bench.shapes import VERDICTS, Check, Result, Results, Row, Verdict, Workload

ROLES: dict[Verdict, Role] = {
    "holds": "good",
    "in shape": "info",
    "does not hold": "critical",
    "cannot be told here": "dim",
}
_VERDICT_WIDTH = max(map(len, VERDICTS))


@dataclass(frozen=True, slots=True)
class Look:
    """How a page is painted; ``None`` decides by ``stream``, which is stdout where it is ``None`` itself."""

    width: int | None = None
    color: bool | None = None
    stream: TextIO | None = None


DEFAULT_LOOK = Look()


def page(results: Results, *, details: bool = False, look: Look = DEFAULT_LOOK) -> str:
    """Everything a run found: a section per workload, and the claims counted at the end."""
    blocks: list[Block] = []
    for result in results.results:
        blocks += _section(result, details)
    blocks += _closing(results)
    return _painted(blocks, look)


def listing(workloads: Iterable[Workload], documents: Mapping[str, str], *, look: Look = DEFAULT_LOOK) -> str:
    """What there is to run."""
    rows = [
        (words(workload.name, "name"), words(" ".join(workload.documents), "dim"), words(workload.about))
        for workload in workloads
    ]
    blocks: list[Block] = [Heading("Workloads", f"{len(rows)}")]
    blocks.append(Grid((Column("name"), Column("documents"), Column("what it shows")), tuple(rows), ((2, 20),)))
    blocks.append(Heading("Documents"))
    told = [(words(number, "name"), words(title)) for number, title in documents.items()]
    blocks.append(Grid((Column(), Column()), tuple(told), ((1, 20),)))
    return _painted(blocks, look)


# --- a workload ---------------------------------------------------------------------------------


def _section(result: Result, details: bool) -> Iterator[Block]:
    yield Heading(result.name, f"{' '.join(result.documents)} · {result.seconds:.1f} s")
    yield _dim(figures.sentence(result.about))
    if result.outcome.advice:
        yield Paragraph((Span(result.outcome.advice, "strong"),), lead=(Span("→ ", "info"),))
    if result.outcome.rows:
        yield _tables(result.outcome.rows, details)
    for note in (*result.outcome.missing, *result.outcome.notes):
        yield Paragraph((Span(note),), lead=(Span("note  ", "info"),))
    for check in result.outcome.checks:
        yield from _check(check)
    if result.error is not None:
        yield Paragraph((Span(f"Not complete: {result.error}."),), lead=(Span("error ", "critical"),))


def _tables(rows: Sequence[Row], details: bool) -> Grid:
    """All tables of a workload in the columns of one; what nobody has a figure for has no column."""
    lines: list[tuple[Words, ...] | Paragraph | Flow] = []
    for table, group in by_table(rows).items():
        lines.append(Paragraph((Span(table, "strong"),), indent=2))
        lines += _lines(group, details)
    cells = [line for line in lines if isinstance(line, tuple)]
    shown = [
        index for index in range(len(_TITLES)) if index in (0, 2) or any(line[index].spans[0].text for line in cells)
    ]
    columns = [Column(_TITLES[index], right=index > 0, most=48 if index == 0 else 1000) for index in shown]
    kept = [tuple(line[index] for index in shown) if isinstance(line, tuple) else line for line in lines]
    squeeze = [(0, 44), *((shown.index(index), 0) for index in _DROPPED_FIRST if index in shown), (0, 20)]
    return Grid(tuple(columns), tuple(kept), tuple(squeeze), indent=2)


_TITLES = ("", "documented", "measured", "±95 %", "P95", "of doc.", "A/A", "L")
_DROPPED_FIRST = (4, 3)


def _lines(rows: Sequence[Row], details: bool) -> Iterator[tuple[Words, ...] | Paragraph]:
    """Rows; reasons and conditions stand below the last of those that share them, or below the table."""
    whys, shared_whys = figures.placed(rows, [row.why for row in rows])
    asides, shared_asides = figures.placed(rows, [_aside(row) for row in rows])
    for place, row in enumerate(rows):
        yield _row(row)
        if details and (told := figures.statistics(row)):
            yield Paragraph((Span(told, "dim"),), indent=6)
        if place in whys:
            yield Paragraph((Span(whys[place]),), lead=(Span("→ ", "info"),), indent=6)
        if place in asides:
            yield Paragraph((Span(asides[place], "dim"),), indent=6)
    for labels, told in shared_whys:
        yield Paragraph((Span(f"{labels}: ", "dim"), Span(told)), lead=(Span("→ ", "info"),), indent=4)
    for labels, told in shared_asides:
        yield Paragraph((Span(f"{labels}: {told}", "dim"),), indent=4)


def _row(row: Row) -> tuple[Words, ...]:
    contended = figures.is_marked(row)
    off = row.little is not None and not row.little.fits
    return (
        Words((Span(row.name),), "middle"),
        words(figures.documented(row), "dim"),
        Words((Span(figures.measured(row), "strong"), Span("!" if contended else " ", "warn"))),
        words(figures.spread(row), "dim"),
        words(figures.tail(row)),
        words(figures.times(row.ratio)),
        words(figures.times(row.noise_floor), "dim"),
        words(figures.little(row.little) + (" !" if off else ""), "critical" if off else "dim"),
    )


def _aside(row: Row) -> str:
    parts = [figures.expected(row), row.note]
    if row.little is not None and row.little.excused:
        parts.append(f"L: {row.little.excused}")
    return "; ".join(part for part in parts if part)


def _check(check: Check) -> Iterator[Block]:
    lead = (
        Span(f"{check.verdict:<{_VERDICT_WIDTH}}  ", ROLES[check.verdict]),
        Span(f"{check.claim:<7} ", "name"),
    )
    yield Paragraph((Span(check.sentence),), lead=lead)
    told: list[Spans] = [(Span("documented "), Span(check.documented))] if check.documented else []
    told.append((Span("measured "), Span(check.measured, "strong")))
    if check.tolerance:
        told.append((Span(f"asked: {check.tolerance}", "dim"),))
    if check.contended:
        told.append((Span("others used the machine", "warn"),))
    yield Flow(tuple(told), indent=4)
    if check.why:
        yield Paragraph((Span(check.why),), lead=(Span("→ ", "info"),), indent=4)


def _closing(results: Results) -> Iterator[Block]:
    checks = [check for result in results.results for check in result.outcome.checks]
    rows = [row for result in results.results for row in result.outcome.rows]
    told = [claims_told(checks) if checks else "No claims were checked."]
    if contended := sum(row.is_contended for row in rows):
        told.append(f"{contended} of {len(rows)} rows are contended (!): others used more than a quarter of a core.")
    if broken := sum(row.little is not None and not row.little.fits for row in rows):
        rows_told = "1 row contradicts itself" if broken == 1 else f"{broken} rows contradict themselves"
        told.append(f"{rows_told}: throughput × latency is not the concurrency.")
    machine = Flow(tuple((Span(text, "dim"),) for text in machine_texts(results.machine)))
    failed = any(result.error is not None for result in results.results)
    yield Box(
        f"{results.size} run",
        f"{sum(result.seconds for result in results.results):.0f} s",
        "warn" if failed else "info",
        (*(Paragraph((Span(text),)) for text in told), machine),
    )


def machine_texts(machine: Mapping[str, object]) -> list[str]:
    """The machine in a few words each."""
    packages = machine.get("packages")
    known = packages if isinstance(packages, dict) else {}
    texts = [
        f"{machine.get('implementation', 'Python')} {machine.get('python', '?')}",
        *(f"{name} {known[name]}" for name in ("mcp", "httpx2", "httpx", "aiohttp", "requests") if known.get(name)),
        f"{machine.get('cores', '?')} cores",
        str(machine.get("cpu", "")),
        str(machine.get("system", "")),
        f"load {machine.get('load_average_1min', '?')} at the start",
        str(machine.get("date", "")),
    ]
    return [text for text in texts if text]


def _dim(text: str) -> Paragraph:
    return Paragraph((Span(text, "dim"),))


def _painted(blocks: Iterable[Block], look: Look) -> str:
    target = sys.stdout if look.stream is None else look.stream
    return draw(blocks, target, width=look.width, color=look.color)
