"""Who waited for whom, and which steps made them wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mcp_probe.aggregate.phrasing import file_and_line
from mcp_probe.aggregate.quality import worst as worst_tag
from mcp_probe.model import (
    BACKGROUND_OPERATION,
    CROWDING_OPERATION,
    LOOP_OPERATION,
    WITHOUT_GIL,
    BlockedBy,
    Cause,
    Quality,
    SlowStep,
    Summary,
)
from mcp_probe.report import figures
from mcp_probe.report.blocks import (
    Block,
    Cell,
    Column,
    Flow,
    Gauge,
    Grid,
    Heading,
    Items,
    Paragraph,
    Role,
    Span,
    Spans,
    Words,
)
from mcp_probe.report.figures import EXACT, UNKNOWN, Notation, plural, quantity
from mcp_probe.report.phrases import first, number, one, rank
from mcp_probe.report.places import place

BLOCKED_ROWS = 8
STEP_ROWS = 8
CRITICAL_STEP_MS = 50.0  # measurement.md §2
VAGUE_MS, VAGUE_SHARE = 0.05, 0.01  # a lower bound below these is about 0
CPU_WAIT_SHARE = 0.1
"""Part of a step from which its waits for a CPU are told."""
IMPORT = "import of "  # how the library of a step begins that imported a module

CAUSES: dict[Cause, str] = {
    "blocking-call": "blocking call",
    "cpu": "computing",
    "gil": "waits for GIL",
    "run-queue": "no CPU free",
    "gc": "gc pause",
    "unknown": "cause unknown",
}
NOBODYS: tuple[Cause, ...] = ("gc", "run-queue")  # the line that happened to run is not to blame
PSEUDO_BLOCKERS = {
    LOOP_OPERATION: "background work",
    CROWDING_OPERATION: "brief work",
    BACKGROUND_OPERATION: "a background task",
}


def blocked_by(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    waits = sorted(summary.blocked_by, key=lambda wait: (-rank(wait.lo_ms), -rank(wait.hi_ms)))
    certain = [wait for wait in waits if not is_vague(wait)]
    vague = len([wait for wait in waits if wait.hi_ms >= VAGUE_MS]) - len(certain)
    if not certain and not vague:
        return
    shown, hidden = first(certain, BLOCKED_ROWS)
    longest = max((wait.hi_ms for wait in shown), default=0.0)
    held = any(wait.kind is not None for wait in shown)
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = [
        (
            Words(one(wait.victim, "name"), "middle"),
            Words(one(f"×{quantity(wait.victims)}", "dim")),
            Words(one("waited", "dim")),
            Words(one(waited(wait, notation), "strong")),
            Gauge(wait.hi_ms / longest if longest else None, _role(wait), track=False),
            Words((Span("for ", "dim"), Span(PSEUDO_BLOCKERS.get(wait.blocker, wait.blocker), "name")), "middle"),
            _blocker_place(summary, wait.blocker, notation, cwd) if wait.kind is None else _held(wait, notation, cwd),
        )
        for wait in shown
    ]
    more = [
        f"+{len(hidden)} more pairs: {waited(together(hidden), notation)} in all" if hidden else "",
        f"of {plural(vague, 'more pair')} it cannot be told whether one waited for the other" if vague else "",
    ]
    if any(more):
        rows.append(Paragraph(one("; ".join(filter(None, more)), "dim"), indent=1))
    asides = (
        "where its longest step was" if any(wait.kind is None for wait in shown) else "",
        "what it held" if held else "",
    )
    told = " or ".join(filter(None, asides))
    yield Heading("Who waited for whom", "; ".join(filter(None, ("all calls together", told))))
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
            *((4, 5), (6, 32), (0, 18), (5, 20), (6, 18), (4, 0), (6, 14), (6, 0)),
            *((0, 14), (5, 16), (2, 0), (0, 8), (5, 8), (1, 0)),
        ),
    )


def _role(wait: BlockedBy) -> Role:
    return "part-ready" if wait.kind is None else "part-await"


def _held(wait: BlockedBy, notation: Notation, cwd: str) -> Cell:
    """What the blocker held, and the line at which it took it."""
    where = file_and_line(wait.where)
    at = None if where is None else place(*where, cwd)
    # The whole path stands under what they waited for.
    taken = () if at is None else ((Span("held at ", "dim"), Span(at.rpartition("/")[2], "place")),)
    return Items((one(wait.object or wait.kind or "", "plain"), *taken), "start", notation.mark(wait.quality))


def is_vague(wait: BlockedBy) -> bool:
    """Whether its lower bound is about 0: an arrival between two polls may have come at the end of it."""
    return wait.lo_ms < max(VAGUE_MS, VAGUE_SHARE * wait.hi_ms)


def waited(wait: BlockedBy, notation: Notation) -> str:
    """How long, with its mark."""
    if wait.quality == "lower":
        return notation.duration(wait.lo_ms, Quality("lower"))
    if wait.lo_ms < wait.hi_ms:
        return notation.duration(wait.hi_ms, Quality("bounded", wait.lo_ms, wait.hi_ms))
    return notation.duration(wait.hi_ms, Quality(wait.quality if wait.quality != "unavailable" else "estimate"))


def together(waits: Sequence[BlockedBy]) -> BlockedBy:
    """One row with the bounds of all."""
    return replace(
        waits[0],
        lo_ms=sum(wait.lo_ms for wait in waits),
        hi_ms=sum(wait.hi_ms for wait in waits),
        quality=worst_tag(wait.quality for wait in waits),
    )


def _blocker_place(summary: Summary, blocker: str, notation: Notation, cwd: str) -> Cell:
    """Where the blocker's longest step was, and why it was slow; how many were slow elsewhere or otherwise."""
    steps = [step for step in summary.slow_steps if step.tool == blocker]
    if not steps or blocker == CROWDING_OPERATION:
        return Items(())
    worst = max(steps, key=lambda step: (rank(step.ms), rank(step.total_ms)))
    others = sum(step.count for step in steps) - worst.count
    more = (one(f"+{plural(others, 'other')}", "dim"),) if others else ()
    cause = one(CAUSES[worst.cause], "dim")
    where = place(worst.file, worst.line, cwd)
    if where is None or worst.cause in NOBODYS:
        return Items((cause, *more))
    # The whole path stands under the slow steps.
    return Items((one(where.rpartition("/")[2], "place"), cause, *more), "start", _where_mark(worst, notation))


def slow_steps(summary: Summary, notation: Notation, cwd: str) -> Iterator[Block]:
    steps = sorted(summary.slow_steps, key=lambda step: (-rank(step.total_ms), -rank(step.ms)))
    if not steps:
        return
    shown, hidden = first(steps, STEP_ROWS)
    rows: list[tuple[Cell, ...] | Paragraph | Flow] = []
    for step in shown:
        rows.append(_step_row(step, notation, cwd))
        if step.library and step.cause not in NOBODYS:
            rows.append(Flow(tuple(_step_details(step)), indent=3, separator=" "))
    if hidden:
        longest = figures.duration(max(step.ms for step in hidden))
        rows.append(Paragraph(one(f"+{len(hidden)} more places: the longest {longest}", "dim"), indent=1))
    yield Heading("Slow steps", "what kept the event loop for long at a stretch; most time first")
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
    longest_ms, median = _by_itself(step)
    role: Role = "critical" if longest_ms >= CRITICAL_STEP_MS else "warn"
    longest = notation.duration(longest_ms, Quality("lower") if step.running else EXACT)
    where = one(place(step.file, step.line, cwd) or "", "place")
    if not where and step.cause not in NOBODYS:
        notation.missing(
            "place of slow steps", "nobody could look while they ran", PSEUDO_BLOCKERS.get(step.tool, step.tool)
        )
    function = (one(_called(step.function), "dim"),) if step.function and not step.library else ()
    more = [one("still running", "warn")] if step.running else []
    if step.ms > longest_ms + CPU_WAIT_SHARE * step.ms:
        more.append(one(f"{figures.duration(step.ms)} with its waits for a CPU", "dim"))
    mark = _where_mark(step, notation)
    return (
        Words(one(PSEUDO_BLOCKERS.get(step.tool, step.tool), "name"), "middle"),
        number(longest, role),
        number(figures.duration(median)),
        number(quantity(step.count)),
        Items((one(CAUSES[step.cause], "plain"), *more)),
        Items((where or one("" if step.cause in NOBODYS else UNKNOWN, "dim"), *function), "start", mark),
    )


def _by_itself(step: SlowStep) -> tuple[float, float | None]:
    """Longest and median as findings judge them: without waits for a CPU, unless these made it slow."""
    if step.own_ms is not None and step.cause not in NOBODYS:
        return step.own_ms, step.own_p50_ms
    # Defaults of the model: one step is its own median; of several, 0 says that nobody computed it.
    return step.ms, step.p50_ms or (step.ms if step.count == 1 else None)


def _step_details(step: SlowStep) -> Iterator[Spans]:
    """Whose time it was, where that is not the place's own."""
    library = step.library or ""
    imported = library.removeprefix(IMPORT)
    if step.function:
        yield (Span("in ", "dim"), Span(_called(step.function)))
    if imported != library:
        yield (Span("first call: import of ", "dim"), Span(imported))
    else:
        called = library.removesuffix(WITHOUT_GIL)
        yield (Span("calling ", "dim"), Span(_called(called)))
        if called != library:
            yield one("which gives up the GIL", "dim")


def _called(function: str) -> str:
    """A function as code, a lambda or a comprehension as it is."""
    return f"{function}()" if function.replace(".", "").isidentifier() else function


def _where_mark(step: SlowStep, notation: Notation) -> str:
    return notation.mark(step.quality) if step.file else ""
