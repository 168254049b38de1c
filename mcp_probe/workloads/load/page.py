"""The page of ``mcp-probe load``: one verdict, the two ways of counting beside each other, and the window in tenths."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from mcp_probe.model import Quality
from mcp_probe.report import figures
from mcp_probe.report.blocks import (
    Block,
    Box,
    Cell,
    Column,
    Flow,
    Gauge,
    Grid,
    Heading,
    Paragraph,
    Role,
    Span,
    Spans,
    words,
)
from mcp_probe.report.console import draw
from mcp_probe.report.figures import plural, quantity
from mcp_probe.workloads.load.result import Latency, LoadResult, Phase
from mcp_probe.workloads.load.stalls import stalls_told
from mcp_probe.workloads.load.verdict import causes_told, doubts, figure, judged, omission


def page(result: LoadResult, *, width: int | None = None, color: bool | None = None) -> str:
    """The whole page as text; ``None`` decides by stdout."""
    return draw(blocks(result), sys.stdout, width=width, color=color)


def blocks(result: LoadResult) -> Iterator[Block]:
    """The page before it has a width."""
    yield _title(result)
    yield _verdict(result)
    yield from _rates(result)
    yield from _latency(result)
    yield from _operations(result)
    yield from _window(result)
    yield from _server(result)
    yield from _checks(result)


# --- parts of the page ----------------------------------------------------------------------------


def _title(result: LoadResult) -> Block:
    mix = result.mix
    length = f"{mix.seconds:g} s" if mix.seconds is not None else plural(mix.count or 0, "request")
    items = [
        result.target if len(result.target) <= 72 else f"…{result.target[-70:]}",
        f"{mix.rate:g}/s {'Poisson' if mix.arrivals == 'poisson' else 'constant'}",
        length,
        f"{result.transport}, {result.protocol}",
        "" if result.start is None or result.start.sessions == 1 else plural(result.start.sessions, "session"),
        result.server,
    ]
    return Flow(
        tuple((Span(item, "dim"),) for item in items if item),
        lead=(Span("load  ", "title"),),
    )


def _verdict(result: LoadResult) -> Box:
    verdict = judged(result)
    sentences = [*verdict.sentences, stalls_told(result.stalls), omission(result)]
    if result.server_side is not None:
        sentences.append(result.server_side.why)
    return Box(verdict.name, "", verdict.role, tuple(Paragraph((Span(each),)) for each in sentences if each))


def _rates(result: LoadResult) -> Iterator[Block]:
    """Offered, sent and answered apart: between the first two stands the generator, between the last two the server."""
    phase = result.open
    late = phase.late.max
    behind = "" if late is None else f"by the generator, at most {figures.duration(late)} late"
    yield Heading("Rates", "requests a second")
    rows = (
        ("offered", phase.offered_per_s, phase.due, "due by the schedule"),
        ("sent", phase.sent_per_s, phase.sent, behind),
        ("answered", phase.answered_per_s, phase.answered, "by the server"),
    )
    yield Grid(
        columns=(Column(gap=1), Column("rate", right=True), Column("requests", right=True), Column(gap=1)),
        rows=tuple(
            (
                words(name, "name"),
                words(f"{figures.decimal(rate)}/s"),
                words(quantity(count)),
                words(what, "dim"),
            )
            for name, rate, count, what in rows
        ),
        squeeze=((3, 0),),
    )


def _latency(result: LoadResult) -> Iterator[Block]:
    """Groups and short labels: a label that were cut would leave the reader to guess which row is which."""
    phase, closed = result.open, result.closed
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = [
        Paragraph((Span("open loop", "name"),), indent=1),
        _latency_row(" from when due", phase.due_to_answer, "strong"),
        _latency_row(" from sending", phase.sent_to_answer),
    ]
    if closed is not None:
        rows.append(Paragraph((Span(f"closed loop, {result.mix.in_flight} in flight", "name"),), indent=1))
        rows.append(_latency_row(" from sending", closed.sent_to_answer))
        rows.append(_latency_row(" from when due", closed.due_to_answer))
    rows.append(Paragraph((Span("generator", "name"),), indent=1))
    rows.append(_latency_row(" due to sent", phase.late, "dim"))
    yield Heading("Latency", "per request")
    yield _grid("", rows)


def _grid(title: str, rows: list[tuple[Cell, ...] | Paragraph | Flow]) -> Grid:
    names = ("requests", "p50", "p90", "p99", "p99.9", "max")
    return Grid(
        columns=(Column(title, gap=1, most=48), *(Column(name, right=True) for name in names)),
        rows=tuple(rows),
        squeeze=((0, 46), (5, 0), (0, 30), (3, 0), (0, 12)),
    )


def _latency_row(label: str, latency: Latency, role: Role = "plain") -> tuple[Cell, ...]:
    shares = (0.5, 0.9, 0.99, 0.999, 1.0)
    return (
        words(label, "name" if role == "strong" else role),
        words(quantity(latency.n), role),
        *(words(figure(latency, share), role) for share in shares),
    )


def _operations(result: LoadResult) -> Iterator[Block]:
    if len(result.operations) < 2 and not result.failures:
        return
    yield Heading("By operation", "open loop, from when due")
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = []
    for operation in result.operations:
        rows.append(_latency_row(operation.name, operation.latency, "strong"))
        if operation.failed:
            rows.append(Paragraph((Span(f"{plural(operation.failed, 'failure')} beside these", "warn"),), indent=3))
    yield _grid("", rows)
    for failure in result.failures:
        lead = (Span(f"{quantity(failure.count)} × {figures.brief(failure.operation)}: ", "warn"),)
        yield Paragraph((Span(failure.sentence, "plain"),), lead=lead, indent=1)


def _window(result: LoadResult) -> Iterator[Block]:
    if not result.slices:
        return
    worst = max((each.max or 0.0) for each in result.slices)
    yield Heading("Over the window", "by when requests were due")
    rows = tuple(
        (
            words(f"{each.start_s:.1f} s", "dim"),
            words(quantity(each.due)),
            words(quantity(each.sent)),
            words(quantity(each.answered)),
            words(figures.duration(each.p50)),
            words(("≥" if each.lower else "") + figures.duration(each.max)),
            Gauge((each.max or 0.0) / worst if worst else None, _heat(each.max, result.open), track=False),
        )
        for each in result.slices
    )
    yield Grid(
        columns=(
            Column("from", right=True, gap=1),
            Column("due", right=True),
            Column("sent", right=True),
            Column("answers", right=True),
            Column("p50", right=True),
            Column("longest", right=True),
            Column(most=40),
        ),
        rows=rows,
        squeeze=((6, 10), (6, 0)),
    )


def _heat(longest: float | None, phase: Phase) -> Role:
    p50 = phase.due_to_answer.p50 or 0.0
    if longest is None or longest < 10 * p50:
        return "part-run"
    return "warn" if longest < 100 * p50 else "critical"


def _server(result: LoadResult) -> Iterator[Block]:
    side = result.server_side
    if side is None:
        return
    yield Heading("At the server", "the same requests, by the probe inside it")
    wait, total = side.pipe_wait, side.total
    notation, quality = figures.Notation(), Quality("lower" if side.later else "exact")
    yield Flow(
        (
            _pair(
                "written, not yet read",
                f"p50 {figures.duration(wait.p50)}, p99 {figures.duration(wait.p99)}, max {figures.duration(wait.max)}",
            ),
            _pair("queue p50", notation.duration(side.queue_p50, quality)),
            _pair("handling p50", figures.duration(side.handling_p50)),
            _pair("write p50", figures.duration(side.write_p50)),
            _pair("arrival to written p99", notation.duration(total.p99, quality)),
        ),
        indent=1,
    )
    yield Paragraph((Span(side.verdict),), lead=(Span("verdict: ", "dim"),), indent=1)


def _pair(name: str, value: str) -> Spans:
    return (Span(f"{name} ", "dim"), Span(value))


def _checks(result: LoadResult) -> Iterator[Block]:
    phase = result.open
    yield Heading("What the figures rest on")
    fates = [f"{quantity(count)} {fate}" for fate, count in phase.fates.items() if count]
    items: list[Spans] = [
        _pair("requests", ", ".join(fates) or "none"),
        *((_pair("failures", causes_told(phase)),) if phase.causes else ()),
        _pair("in flight at most", quantity(phase.outstanding_peak)),
        _pair("drain", f"{figures.duration(phase.drain_s * 1e3)} of {result.mix.drain:g} s"),
    ]
    if phase.little is not None:
        sign = "" if phase.little.agree else ", which do not agree: distrust this run"
        items.append(
            _pair(
                "in flight on average",
                f"{figures.decimal(phase.little.counted)} counted, "
                f"{figures.decimal(phase.little.computed)} = throughput × latency{sign}",
            )
        )
    yield Flow(tuple(items), indent=1)
    yield from _start(result)
    for role, sentence in doubts(result):
        yield Paragraph((Span(sentence, role),), indent=1)


def _start(result: LoadResult) -> Iterator[Block]:
    """Before the load, and in none of its figures."""
    start = result.start
    if start is None:
        return
    connect = figures.duration(start.connect.p50)
    if start.sessions > 1:
        connect += f" at p50, {figures.duration(start.connect.max)} at the longest of {start.sessions} sessions"
    items = [_pair("before the load: connected in", connect)]
    if start.first_call_ms is not None:
        items.append(_pair("first call", figures.duration(start.first_call_ms)))
    yield Flow(tuple(items), indent=1)
