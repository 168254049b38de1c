"""A comparison on a terminal: what differs, which part moved, what came and went, and what could have been seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from mcp_probe.compare.samples import QUANTILES
from mcp_probe.compare.shapes import Comparison, Difference
from mcp_probe.model import BUDGET_PARTS, Finding
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Column, Flow, Grid, Heading, Paragraph, Role, Span, Words, words
from mcp_probe.report.phrases import prose
from mcp_probe.workloads.bench.figures import times, with_unit

UNKNOWN = figures.UNKNOWN
_SHOWN = ("more than noise", "only before", "only after", "noise unknown")


def page(comparison: Comparison, *, every_row: bool = False) -> Iterator[Block]:
    """All blocks, the most important first."""
    looked_at = [row for row in comparison.rows if not row.is_nothing]
    counts = Counter(row.judgement for row in looked_at)
    before, after = (", ".join(names) for names in (comparison.before, comparison.after))
    yield Heading(f"{before} → {after}", figures.plural(len(looked_at), "row"))
    if comparison.not_the_same:
        items = tuple((Span(change, "warn"),) for change in comparison.not_the_same)
        yield Flow(items, lead=(Span("not the same: "),))
    for sentence in comparison.contended:
        lead = (Span("contended  ", "warn"),)
        yield Paragraph((*prose(sentence), Span(_CONTENDED)), lead=lead)
    yield Flow(tuple((Span(f"{count} {judgement}"),) for judgement, count in counts.most_common()))
    yield from _verdict(comparison)
    shown = [row for row in looked_at if every_row or row.judgement in _SHOWN]
    for operation, rows in groupby(shown, key=lambda row: row.operation):
        listed = list(rows)
        yield Heading(operation, _moved(comparison, operation))
        yield _grid(listed)
    yield from _findings("Findings that came", comparison.came, "warn")
    yield from _findings("Findings that went", comparison.went, "good")
    yield from _turns(comparison)
    if comparison.notes:
        yield Heading("Notes")
    for note in comparison.notes:
        yield Paragraph((Span(note),), lead=(Span("note  ", "info"),))
    yield Paragraph((Span(_LEGEND, "dim"),))


_CONTENDED = " Times, and findings that came or went, show nothing then, either way."

_LEGEND = (
    "Intervals are of 95 %. More than noise: at most 5 % of the rows called so are none, on average, and at most one "
    "comparison in 20 of two equal servers has any. Seen from: what 4 of 5 comparisons would have called so."
)


def _verdict(comparison: Comparison) -> Iterator[Block]:
    """One sentence per operation, and what could have been seen of those that do not differ."""
    differ = [row for row in comparison.rows if row.judgement == "more than noise"]
    quiet = []
    for operation in dict.fromkeys(row.operation for row in comparison.rows):
        called = [row for row in differ if row.operation == operation]
        if called:
            role: Role = "critical" if _is_worse(called) else "good"
            told = ", ".join(f"{row.measure} {change_of(row)}" for row in called if row.measure not in BUDGET_PARTS)
            moved = _moved(comparison, operation)
            text = "; ".join(filter(None, (told, moved)))
            yield Paragraph((Span(text),), lead=(Span("● ", role), Span(f"{operation}  ", "name")))
        else:
            median = next((row for row in comparison.rows if row.key == (operation, "p50", "")), None)
            if median is not None and median.visible is not None and median.judgement == "within noise":
                quiet.append(f"{operation} (from {100 * median.visible:.0f}%)")
    few = _too_few(comparison)
    if few:
        yield Paragraph((Span(f"Too few calls to judge: {', '.join(few)}."),), lead=(Span("○ ", "dim"),))
    if quiet:
        text = f"No difference seen in {', '.join(quiet)}: of p50, a change from there on would have been."
        yield Paragraph((Span(text),), lead=(Span("○ ", "dim"),))


def _too_few(comparison: Comparison) -> list[str]:
    """Operations of which no row could be judged for that."""
    judged = {row.operation for row in comparison.rows if row.judgement != "too few calls" and not row.is_nothing}
    few = dict.fromkeys(row.operation for row in comparison.rows if row.judgement == "too few calls")
    return [operation for operation in few if operation not in judged]


def _is_worse(rows: Sequence[Difference]) -> bool:
    first = rows[0]
    return (first.change or 0.0) > (0.0 if first.is_part else 1.0)


def _moved(comparison: Comparison, operation: str) -> str:
    """The part that changed most, of the parts that changed."""
    rows = [
        row
        for row in comparison.rows
        if row.operation == operation and row.measure in BUDGET_PARTS and row.judgement == "more than noise"
    ]
    if not rows:
        return ""
    most = max(rows, key=lambda row: abs(row.change or 0.0))
    return f"what moved is {most.measure}: {change_of(most)} of the mean"


def _grid(rows: Sequence[Difference]) -> Grid:
    titles = ("", "before", "after", "change", "95 % interval", "seen from", "")
    columns = tuple(Column(title, right=0 < at < 6, most=46) for at, title in enumerate(titles))
    lines = []
    for row in rows:
        role: Role = "warn" if row.judgement == "more than noise" else "plain"
        about = row.key[2].split(" ")[-1] if row.key[1] not in QUANTILES and row.key[2].count(" ") > 1 else ""
        lines.append(
            (
                Words((Span(f"{row.measure} {about}".strip()),), "middle"),
                words(_figure(row.before, row.unit)),
                words(_figure(row.after, row.unit)),
                words(change_of(row), role),
                words(_interval(row), "dim"),
                words(_visible(row), "dim"),
                words(row.judgement, role),
            )
        )
    return Grid(columns, tuple(lines), ((0, 20), (5, 0), (4, 0)), indent=2)


def _figure(value: float | None, unit: str) -> str:
    if unit == "ms":
        return figures.duration(value)
    if unit == "bytes":
        return figures.size(value)
    if unit == "share":
        return figures.fine_share(value)
    return with_unit(value, unit)


def change_of(row: Difference) -> str:
    """As a figure: ``-38%``, ``0.29×``, ``+1.1 ms``."""
    if row.change is None:
        return UNKNOWN
    return signed(row.change, row.unit) if row.is_part else ratio(row.change)


def ratio(factor: float) -> str:
    """``+12%`` up to twice as much, then ``3.77×``."""
    return f"{100 * (factor - 1):+.0f}%" if 0.5 <= factor < 2 else times(factor)


def signed(value: float, unit: str) -> str:
    """``+1.1 ms``, ``−35 ms``"""
    return f"{'+' if value >= 0 else '−'}{_figure(abs(value), unit)}"


def _interval(row: Difference) -> str:
    if row.low is None or row.high is None:
        return times(row.floor) if row.floor is not None else ""
    ends = [signed(end, row.unit) if row.is_part else ratio(end) for end in (row.low, row.high)]
    return f"{ends[0]} … {ends[1]}"


def _visible(row: Difference) -> str:
    if row.visible is None:
        return ""
    return _figure(row.visible, row.unit) if row.is_part else f"{100 * row.visible:.0f}%"


def _findings(title: str, found: Sequence[Finding], role: Role) -> Iterator[Block]:
    if found:
        yield Heading(title)
    for finding in found:
        yield Paragraph(prose(finding.sentence), lead=(Span("● ", role), Span(f"{finding.code}  ", "name")))


def _turns(comparison: Comparison) -> Iterator[Block]:
    if not comparison.turns:
        return
    yield Heading("Claims that came out differently")
    rows = [
        (words(turn.claim, "name"), words(f"{turn.before} → {turn.after}", "warn"), words(turn.sentence))
        for turn in comparison.turns
    ]
    yield Grid((Column(), Column(), Column()), tuple(rows), ((2, 20),))
