"""The page of ``mcp-probe load``: one verdict, the two ways of counting beside each other, and the window in tenths."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TextIO

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
    Words,
)
from mcp_probe.report.console import draw
from mcp_probe.report.figures import plural, quantity
from mcp_probe.workloads.load.result import Latency, LoadResult, Phase

LATE_MS = 5.0
"""From here on, at p99, the generator's own lateness is said to be in the figures."""

OMITTED = 1.5
SMALL_MS = 1.0
"""What the closed loop leaves out is spoken of from this factor, and from this many milliseconds, on."""

BEHIND = 0.95
GROWN = 1.5
LONG_ENOUGH_S = 2.0
"""A server does not keep up when it answers less than this share of what arrives and requests wait ever longer: by
this factor from the first third of the window to the last. One stall, or a short window, looks alike for a moment."""


def page(
    result: LoadResult,
    *,
    width: int | None = None,
    color: bool | None = None,
    stream: TextIO | None = None,
) -> str:
    """The whole page as text; ``None`` decides by ``stream`` (stdout where that is ``None``)."""
    target = sys.stdout if stream is None else stream
    return draw(blocks(result), target, width=width, color=color)


def blocks(result: LoadResult) -> Iterator[Block]:
    """The page before it has a width."""
    yield _title(result)
    yield _verdict(result)
    yield from _latency(result)
    yield from _operations(result)
    yield from _window(result)
    yield from _server(result)
    yield from _checks(result)


def judgement(result: LoadResult) -> tuple[str, Role, str]:
    """What to call it, how bad it is, and the sentence that says so."""
    phase = result.open
    p50, p99 = _figure(phase.due_to_answer, 0.5), _figure(phase.due_to_answer, 0.99)
    rate = f"{figures.decimal(phase.offered_per_s)}/s"
    if not phase.answered:
        return "no answers", "critical", f"None of {plural(phase.due, 'request')} was answered."
    if phase.fates["not sent"] or phase.fates["cancelled"] or _falls_behind(phase):
        lost = phase.fates["cancelled"] + phase.fates["not sent"]
        rest = (
            f"; {quantity(lost)} of {quantity(phase.due)} were still unanswered when the drain was over" if lost else ""
        )
        return (
            "does not keep up",
            "critical",
            f"{rate} arrived and {figures.decimal(phase.answered_per_s)}/s were answered; at the worst "
            f"{quantity(phase.outstanding_peak)} were waiting{rest}.",
        )
    if phase.failed:
        share = figures.share(phase.failed / phase.due)
        return "with failures", "warn", f"{quantity(phase.failed)} of {quantity(phase.due)} ({share}) failed at {rate}."
    return (
        "keeps up",
        "good",
        f"{plural(phase.due, 'request')} at {rate}: p50 {p50}, p99 {p99} from when they were due.",
    )


def _falls_behind(phase: Phase) -> bool:
    """Whether requests came faster than they were answered, for long enough to be sure."""
    return (
        phase.window_s >= LONG_ENOUGH_S
        and phase.answered_per_s < BEHIND * phase.offered_per_s
        and (phase.growth or 0.0) >= GROWN
    )


def omission(result: LoadResult) -> str:
    """What the waiting client leaves out of its own figures; empty where it leaves out nothing.

    Both figures are of one run, so that nothing else that happened meanwhile tells them apart.
    """
    closed = result.closed
    if closed is None:
        return ""
    theirs, due = closed.sent_to_answer, closed.due_to_answer
    hidden = [
        (name, share)
        for name, share in (("p99", 0.99), ("p90", 0.9), ("p50", 0.5))
        if (reported := _value(theirs, share)) is not None
        and (true := _value(due, share)) is not None
        and true >= max(OMITTED * reported, reported + SMALL_MS)
    ]
    if not hidden:
        return ""
    name, share = hidden[0]
    unsent = closed.fates["not sent"]
    count = "one request" if result.mix.in_flight == 1 else f"{result.mix.in_flight} requests"
    left = f" It never sent {quantity(unsent)} of {quantity(closed.due)}." if unsent else ""
    return (
        f"A client with {count} in flight reports {name} {_figure(theirs, share)}. Counted from when its requests were "
        f"due it is {_figure(due, share)}: while it waits for an answer it sends nothing, so those that would have "
        f"waited are missing (coordinated omission).{left}"
    )


# --- parts of the page ----------------------------------------------------------------------------


def _title(result: LoadResult) -> Block:
    mix = result.mix
    length = f"{mix.seconds:g} s" if mix.seconds is not None else plural(mix.count or 0, "request")
    items = [
        result.target if len(result.target) <= 72 else f"…{result.target[-70:]}",
        f"{mix.rate:g}/s {'Poisson' if mix.arrivals == 'poisson' else 'constant'}",
        length,
        f"{result.transport}, {result.protocol}",
        result.server,
    ]
    return Flow(
        tuple((Span(item, "dim"),) for item in items if item),
        lead=(Span("load  ", "title"),),
    )


def _verdict(result: LoadResult) -> Box:
    name, role, sentence = judgement(result)
    body = [Paragraph((Span(sentence),))]
    if omitted := omission(result):
        body.append(Paragraph((Span(omitted),)))
    if result.server_side is not None and result.server_side.why:
        body.append(Paragraph((Span(result.server_side.why),)))
    return Box(name, "", role, tuple(body))


def _latency(result: LoadResult) -> Iterator[Block]:
    phase = result.open
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = [
        _latency_row("open loop, from when it was due", phase.due_to_answer, "strong"),
        _latency_row("open loop, from its sending", phase.sent_to_answer),
    ]
    if result.closed is not None:
        label = f"closed loop, {result.mix.in_flight} in flight"
        rows.append(_latency_row(f"{label}, from its sending", result.closed.sent_to_answer))
        rows.append(_latency_row(f"{label}, from when it was due", result.closed.due_to_answer))
    rows.append(_latency_row("generator: due to sent", phase.late, "dim"))
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
        Words((Span(label, "name" if role == "strong" else role),)),
        Words((Span(quantity(latency.n), role),)),
        *(Words((Span(_figure(latency, share), role),)) for share in shares),
    )


def _figure(latency: Latency, share: float) -> str:
    value = _value(latency, share)
    return ("≥" if value is not None and latency.is_lower(share) else "") + figures.duration(value)


def _value(latency: Latency, share: float) -> float | None:
    values = {0.5: latency.p50, 0.9: latency.p90, 0.99: latency.p99, 0.999: latency.p999, 1.0: latency.max}
    return values[share]


def _operations(result: LoadResult) -> Iterator[Block]:
    if len(result.operations) < 2 and not result.failures:
        return
    yield Heading("By operation", "open loop, from when it was due")
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
            Words((Span(f"{each.start_s:.1f} s", "dim"),)),
            Words((Span(quantity(each.due)),)),
            Words((Span(quantity(each.answered)),)),
            Words((Span(figures.duration(each.p50)),)),
            Words((Span(("≥" if each.lower else "") + figures.duration(each.max)),)),
            Gauge((each.max or 0.0) / worst if worst else None, _heat(each.max, result.open), track=False),
        )
        for each in result.slices
    )
    yield Grid(
        columns=(
            Column("from", right=True, gap=1),
            Column("due", right=True),
            Column("answers", right=True),
            Column("p50", right=True),
            Column("longest", right=True),
            Column(most=40),
        ),
        rows=rows,
        squeeze=((5, 10), (5, 0)),
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
        _pair("offered", f"{figures.decimal(phase.offered_per_s)}/s"),
        _pair("answered", f"{figures.decimal(phase.answered_per_s)}/s"),
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
    for role, sentence in _warnings(result):
        yield Paragraph((Span(sentence, role),), indent=1)


def _warnings(result: LoadResult) -> Iterator[tuple[Role, str]]:
    phase = result.open
    if (phase.late.p99 or 0.0) >= LATE_MS:
        yield (
            "warn",
            f"The generator itself sent 1 % of the requests {figures.duration(phase.late.p99)} late or more: this "
            "machine had no time for it. Latencies from when requests were due contain that.",
        )
    if result.foreign_cores is not None and result.foreign_cores > 0.25:
        yield "warn", f"Others used {result.foreign_cores:.1f} cores of this machine meanwhile."
    closed = result.closed
    if phase.due_to_answer.lower_bounds or (closed is not None and closed.due_to_answer.lower_bounds):
        yield (
            "dim",
            "≥: requests were given up unanswered, or never sent, and count with the time they had waited by then.",
        )
    if closed is not None and closed.interrupted:
        yield "dim", "The closed loop was cut short."
    for note in result.notes:
        yield "warn", note
