"""The event loop: how busy it was, and what a request arriving at a random moment had to wait."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.model import Quality, Summary
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Column, Gauge, Grid, Heading, Items, Paragraph, Role, Span, Spans, Words
from mcp_probe.report.figures import UNKNOWN, Notation
from mcp_probe.report.phrases import one

CRITICAL_STEP_MS = 50.0  # measurement.md §2


def event_loop(summary: Summary, notation: Notation) -> Iterator[Block]:
    loop, delay = summary.loop, summary.loop.arrival_delay_ms
    quality = Quality(loop.quality)
    if loop.utilization is None and delay.mean is None:
        if summary.requests.count:
            notation.missing("event-loop health", f"not visible on {summary.server.loop}")
            yield Heading("Event loop")
            yield Paragraph(
                (Span("busy ", "dim"), Span(UNKNOWN), Span("  arrival delay ", "dim"), Span(UNKNOWN)), indent=1
            )
        return
    yield Heading("Event loop", summary.server.loop)
    busy = loop.utilization or 0.0
    role: Role = "critical" if busy > 0.9 else "warn" if busy > 0.7 else "part-busy"
    yield Grid(
        columns=(Column(gap=1), Column(most=30), Column(), Column(most=60)),
        rows=(
            (
                Words(one("busy", "dim")),
                Gauge(loop.utilization, role),
                Words(one(notation.share(loop.utilization, quality), "strong")),
                Items(tuple(_busy_split(summary))),
            ),
        ),
        squeeze=((1, 20), (3, 24), (1, 10), (3, 0)),
    )
    yield Paragraph(_delay_sentence(summary, notation, quality), indent=1)


def _busy_split(summary: Summary) -> Iterator[Spans]:
    """What the loop's busy time was, as far as the operating system says.

    The thread also waits for a CPU when it wakes up in the poll: what does not fit into its busy time is that.
    """
    signals = summary.signals
    busy_ms = signals.busy_ms
    if busy_ms <= 0 or signals.loop_cpu_ms is None:
        return
    parts = (
        ("computing", signals.loop_cpu_ms, busy_ms),
        ("blocked", signals.off_cpu_ms, busy_ms),
        ("waiting for a CPU", signals.run_queue_ms, max(0.0, busy_ms - signals.loop_cpu_ms)),
    )
    lead = "of that: "
    for label, ms, most_ms in parts:
        if ms is not None and min(ms, most_ms) >= 0.01 * busy_ms:
            at_most = "≤" if ms > most_ms else ""
            share = figures.share(min(ms, most_ms) / busy_ms)
            yield (*one(lead, "dim"), Span(at_most + share), Span(f" {label}", "dim"))
            lead = ""
    collecting = min(signals.gc_pause_ms, signals.loop_cpu_ms, busy_ms) / busy_ms  # pauses of other threads are in it
    if collecting >= 0.01:
        yield (Span(f"≤{figures.share(collecting)}"), Span(" garbage collection, part of these", "dim"))


def _delay_sentence(summary: Summary, notation: Notation, quality: Quality) -> Spans:
    delay = summary.loop.arrival_delay_ms
    if delay.mean is None:
        notation.missing("arrival delay", f"not visible on {summary.server.loop}")
        return (Span(f"A request arriving at a random moment waits {UNKNOWN}."),)
    spans = [
        Span("A request arriving at a random moment waits "),
        Span(notation.duration(delay.mean, quality), "strong"),
        Span(" on average"),
    ]
    tails: tuple[tuple[str, float | None, str], ...] = (
        ("half", delay.p50, " or more"),
        ("one in ten", delay.p90, " or more"),
        ("one in a hundred", delay.p99, " or more"),
        ("the unluckiest", delay.max, ""),
    )
    separator = ": "
    idle = [who for who, value, _ in tails if value is not None and value <= 0 and quality.tag != "lower"]
    for who, value, more in tails:
        if value is None or (who in idle and who != idle[-1]):
            continue
        if who in idle:
            spans.append(Span(f"{separator}{_MOST_OF[who]} not at all"))
        else:
            spans += [
                Span(f"{separator}{who} "),
                Span(notation.duration(value, quality), "critical" if value >= CRITICAL_STEP_MS else "strong"),
                Span(more),
            ]
        separator = ", "
    return (*spans, Span("."))


_MOST_OF = {
    "half": "half",
    "one in ten": "nine in ten",
    "one in a hundred": "99 in a hundred",
    "the unluckiest": "everyone",
}
"""How many wait no longer than these."""
