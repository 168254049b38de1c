"""Who waited for whom, and which steps made them wait."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.model import CROWDING_OPERATION, LOOP_OPERATION, BlockedBy, Cause, Quality, SlowStep, Summary
from mcp_probe.report import figures
from mcp_probe.report.blocks import Block, Cell, Column, Flow, Gauge, Grid, Heading, Items, Paragraph, Role, Span, Words
from mcp_probe.report.figures import EXACT, UNKNOWN, Notation, quantity
from mcp_probe.report.phrases import first, number, one, rank
from mcp_probe.report.places import place

BLOCKED_ROWS = 8
STEP_ROWS = 8
CRITICAL_STEP_MS = 50.0  # measurement.md §2

CAUSES: dict[Cause, str] = {
    "blocking-call": "blocking call",
    "cpu": "CPU-bound",
    "gil": "GIL contention",
    "run-queue": "CPU contention",
    "gc": "gc pause",
    "unknown": "cause unknown",
}
PSEUDO_BLOCKERS = {LOOP_OPERATION: "the loop itself", CROWDING_OPERATION: "many small steps"}


def blocked_by(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    waits = sorted(
        (wait for wait in summary.blocked_by if wait.hi_ms > 0), key=lambda wait: (-rank(wait.lo_ms), -rank(wait.hi_ms))
    )
    if not waits:
        return
    shown, hidden = first(waits, BLOCKED_ROWS)
    longest = shown[0].hi_ms
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = [
        (
            Words(one(wait.victim, "name"), "middle"),
            Words(one(f"×{quantity(wait.victims)}", "dim")),
            Words(one("waited", "dim")),
            Words(one(_waited(wait, notation), "strong")),
            Gauge(wait.hi_ms / longest, "part-ready", track=False),
            Words((Span("for ", "dim"), Span(PSEUDO_BLOCKERS.get(wait.blocker, wait.blocker), "name")), "middle"),
            _blocker_place(summary, wait.blocker, notation, cwd),
        )
        for wait in shown
    ]
    if hidden:
        most = figures.duration(sum(wait.hi_ms for wait in hidden))
        rows.append(Paragraph(one(f"+{len(hidden)} more pairs: {most} at most", "dim"), indent=1))
    yield Heading("Who waited for whom", "sums over the window")
    yield Grid(
        columns=(
            Column(gap=1, most=32),
            Column(right=True, gap=1),
            Column(),
            Column(right=True, gap=1),
            Column(most=10),
            Column(most=40),
            Column(most=60),
        ),
        rows=tuple(rows),
        squeeze=(
            *((4, 5), (6, 32), (0, 18), (5, 20), (6, 18), (4, 0), (6, 0)),
            *((0, 14), (5, 16), (2, 0), (0, 8), (5, 8), (1, 0)),
        ),
    )


def _waited(wait: BlockedBy, notation: Notation) -> str:
    if wait.lo_ms < wait.hi_ms:
        return notation.duration(wait.hi_ms, Quality("bounded", wait.lo_ms, wait.hi_ms))
    return notation.duration(wait.hi_ms, Quality(wait.quality if wait.quality != "unavailable" else "estimate"))


def _blocker_place(summary: Summary, blocker: str, notation: Notation, cwd: str) -> Cell:
    """Where the blocker spent most of its slow time, and why it was slow there."""
    steps = [step for step in summary.slow_steps if step.tool == blocker]
    if not steps:
        return Items(())
    worst = max(steps, key=lambda step: (rank(step.total_ms), rank(step.ms)))
    cause = one(CAUSES[worst.cause], "dim")
    where = place(worst.file, worst.line, cwd)
    if where is None:
        return Items((cause,))
    # The whole path stands under the slow steps.
    return Items((one(where.rpartition("/")[2], "place"), cause), "start", _where_mark(worst, notation))


def slow_steps(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    steps = sorted(summary.slow_steps, key=lambda step: (-rank(step.total_ms), -rank(step.ms)))
    if not steps:
        return
    shown, hidden = first(steps, STEP_ROWS)
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = [_step_row(step, notation, cwd) for step in shown]
    if hidden:
        longest = figures.duration(max(step.ms for step in hidden))
        rows.append(Paragraph(one(f"+{len(hidden)} more places: {longest} at most", "dim"), indent=1))
    yield Heading("Slow steps", "uninterrupted runs on the event loop")
    yield Grid(
        columns=(
            Column("step of", gap=1, most=32),
            Column("longest", right=True),
            Column("median", right=True),
            Column("times", right=True),
            Column("cause"),
            Column("where", most=80),
        ),
        rows=tuple(rows),
        squeeze=((5, 36), (0, 18), (4, 14), (5, 24), (2, 0), (0, 14), (3, 0), (5, 18), (4, 9), (0, 8), (5, 8)),
    )


def _step_row(step: SlowStep, notation: Notation, cwd: str) -> tuple[Cell, ...]:
    role: Role = "critical" if step.ms >= CRITICAL_STEP_MS else "warn"
    longest = notation.duration(step.ms, Quality("lower") if step.running else EXACT)
    # Defaults of the model: one step is its own median; of several, 0 says that nobody computed it.
    median = step.p50_ms or (step.ms if step.count == 1 else None)
    where = one(place(step.file, step.line, cwd) or "", "place")
    if not where:
        notation.missing("place of slow steps", "the watchdog got no sample while they ran", step.tool)
    function = (
        (one(f"{step.function}()" if step.function.isidentifier() else step.function, "dim"),) if step.function else ()
    )
    running = (one("still running", "warn"),) if step.running else ()
    return (
        Words(one(PSEUDO_BLOCKERS.get(step.tool, step.tool), "name"), "middle"),
        number(longest, role),
        number(figures.duration(median)),
        number(quantity(step.count)),
        Items((one(CAUSES[step.cause], "plain"), *running)),
        Items((where or one(UNKNOWN, "dim"), *function), "start", _where_mark(step, notation)),
    )


def _where_mark(step: SlowStep, notation: Notation) -> str:
    return notation.mark(step.quality) if step.file else ""
