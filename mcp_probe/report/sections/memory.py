"""What a call asks of the allocator, holds at most and keeps: one row per operation, most memory first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mcp_probe.model import MemoryStats, OperationSummary, Quality, Summary
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Cell, Column, Flow, Grid, Heading, Items, Paragraph
from mcp_probe.report.figures import EXACT, Notation, plural
from mcp_probe.report.phrases import first, number, one, prose

MEMORY_ROWS = 10
_FIGURES = ("requested", "peak", "retained")
NATIVE = frozenset({"native-hybrid", "native-shadow", "native-gross"})
"""Methods that count in Python's own allocator. Which of them it was, the JSON summary says."""
_BOUNDED = ("peak", "peak_max", "retained", "retained_max")
WIDE = 3.0
"""A range is shown if its ends are not further apart than this. Light's is often wider: 2.4 kB to 15.8 MB was seen."""


def memory(summary: Summary, notation: Notation) -> Iterator[Block]:
    """Nothing where nothing was measured: a note says by which tier, and why not."""
    measured = [operation for operation in summary.operations if operation.memory.method is not None]
    if not measured:
        return
    shown, hidden = first(sorted(measured, key=_most_first), MEMORY_ROWS)
    payload = any(row.request_bytes_max is not None or row.response_bytes_max is not None for row in shown)
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = [_row(operation, notation, payload) for operation in shown]
    if hidden:
        calls = plural(sum(operation.count for operation in hidden), "call")
        rows.append(Paragraph(one(f"+{len(hidden)} more: {calls}", "dim"), indent=1))
    sampled = tuple(one(text, "plain") for text in _sampled(shown))
    if sampled:
        rows.append(Flow(sampled, lead=one("objects sent and received, sampled: ", "dim"), indent=1))
    rows.append(Flow(tuple(one(text, "dim") for text in _how(summary, measured)), indent=1))
    rows += [Paragraph(prose(text, "dim"), indent=1) for text in _more(summary, shown)]
    yield Heading("Memory", "per call, largest peak first")
    yield Grid(
        columns=(
            Column("operation", gap=1, most=36),
            *(
                Column(title, right=True, most=16, gap=gap)
                for figure in _FIGURES
                for title, gap in ((f"{figure} p50", 2), ("max", 2))
            ),
            *((Column("in max", right=True), Column("out max", right=True)) if payload else ()),
        ),
        rows=tuple(rows),
        # The payload goes first, then names get shorter, then the largest of what was requested goes.
        squeeze=((0, 24), *(((7, 0), (8, 0)) if payload else ()), (0, 16), (2, 0), (0, 10), (6, 0), (4, 0)),
    )


def _row(operation: OperationSummary, notation: Notation, payload: bool) -> tuple[Cell, ...]:
    cells: list[Cell] = [Items((one(operation.name or operation.method or "unnamed", "name"),), "middle")]
    for name in _FIGURES:
        stats: MemoryStats = getattr(operation.memory, name)
        if stats.p50 is None:
            notation.missing(name, _why(operation, name), operation.name)
        typical = operation.quality.get(name, EXACT)
        for value, quality in ((stats.p50, typical), (stats.max, operation.quality.get(f"{name}_max", typical))):
            cells.append(number(_figure(value, quality, notation)))
    sizes = (operation.request_bytes_max, operation.response_bytes_max) if payload else ()
    cells += [number(figures.size(value) if value is not None else "", "dim") for value in sizes]
    return tuple(cells)


def _figure(value: float | None, quality: Quality, notation: Notation) -> str:
    """A range so wide that its ends say little has only its upper one."""
    if _is_wide(quality):
        return notation.size(quality.hi, Quality("upper", None, quality.hi))
    return notation.size(value, quality)


def _is_wide(quality: Quality) -> bool:
    return quality.lo is not None and quality.hi is not None and quality.hi > WIDE * quality.lo


def _why(operation: OperationSummary, figure: str) -> str:
    if operation.memory.method == "tracemalloc":
        return "its calls overlapped with the work of other threads, whose allocations tracemalloc counts as well"
    if operation.memory.method == "native-gross" and figure != "requested":
        return "who owns a block is not followed here"
    return "no call of it ended while the same back end measured it"


def _how(summary: Summary, measured: list[OperationSummary]) -> Iterator[str]:
    """By what, of which allocations, and the process beside it."""
    for method, scope in dict.fromkeys((row.memory.method, row.memory.scope) for row in measured):
        yield source(method, scope)
    if summary.signals.rss_bytes_max is not None:
        yield f"the whole process had at most {figures.size(summary.signals.rss_bytes_max)}"


def source(method: str | None, scope: str | None) -> str:
    """Whose allocations: those of every extension and thread, or fewer."""
    allocations, _, _ = (scope or "").partition(", owners")  # how exact that makes the figures is said below
    return " by ".join(filter(None, (allocations or "allocations", None if method in NATIVE else method)))


def plainly(told: str) -> str:
    """``light: native-hybrid, all Python allocations, owners > 512 B`` in a reader's words; a reason as it is."""
    tier, _, found = told.partition(": ")
    method, _, scope = found.partition(", ")
    if method not in {*NATIVE, "tracemalloc", "jemalloc"}:
        return told
    _, some, above = scope.partition(", owners > ")
    return f"{tier}: {source(method, scope)}" + (f"; whose blocks of up to {above} are is not followed" if some else "")


def _more(summary: Summary, shown: Iterable[OperationSummary]) -> Iterator[str]:
    """Which tier tells what this one leaves open."""
    if any(_is_wide(row.quality.get(name, EXACT)) for row in shown for name in _BOUNDED):
        yield "≤N: at most N; which call holds small objects, only `--memory detailed` follows"
    elif any(row.memory.method == "native-hybrid" for row in shown):
        yield "ranges, because small blocks are counted without their owner; `--memory detailed` follows each"
    if summary.leaks is None and any(row.memory.retained.max for row in shown):
        yield "retained memory need not be a leak; `--memory leaks` looks again later to find out"


def _sampled(shown: Iterable[OperationSummary]) -> Iterator[str]:
    """Median sizes of the object graphs of arguments and results, by operation."""
    for operation in shown:
        found = operation.memory
        sizes = (("in", found.arguments.p50), ("out", found.result.p50))
        texts = [f"{figures.size(value)} {way}" for way, value in sizes if value is not None]
        if texts:
            yield f"{figures.brief(operation.name)} {', '.join(texts)}"


def _most_first(operation: OperationSummary) -> tuple[float, float]:
    """By the peak that is shown. Those whose peak is not known come last, by what they requested."""
    found = operation.memory
    quality = operation.quality.get("peak_max", EXACT)
    peak = quality.hi if _is_wide(quality) else found.peak.max
    return (-(peak if peak is not None else -1), -(found.requested.max or 0))
