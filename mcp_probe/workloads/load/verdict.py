"""What a load says of its server, or that it cannot be told: three rates are held against one another.

Requests are *offered* (due), *sent* and *answered*. Where fewer were sent than offered, the generator is to blame, and
nothing is said of the server above what was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from mcp_probe.report import figures
from mcp_probe.report.blocks import Role
from mcp_probe.report.figures import plural, quantity
from mcp_probe.workloads.load.result import FORMAT, Latency, LoadResult, Phase

LATE_MS = 5.0
LATE_SHARE = 0.2
"""From here on, at p99, the generator's own lateness is said to be in the figures: so many milliseconds, and such a
share of the latency."""

OMITTED = 1.5
SMALL_MS = 1.0
"""What the closed loop leaves out is spoken of from this factor, and from this many milliseconds, on."""

BEHIND = 0.95
BEHIND_S = 0.5
"""The generator is behind when it sends less than this share of what was offered, and its last request so late: one
hiccup at the end of a short window looks like a low rate, and is none. It is behind as well when one request in ten is
so late, though it caught up later."""

GROWN = 1.5
LONG_ENOUGH_S = 2.0
"""A server does not keep up when it answers less than the share :data:`BEHIND` of what is sent and requests wait ever
longer: by this factor from the first third of the window to the last. One stall, or a short window, looks alike for a
moment."""

SLOW_START = 10.0
SLOW_START_MS = 100.0
"""From this factor over the median of later calls, and so many milliseconds, on the first call is a slow start."""

BLIND = 0.5
"""From this share of the drain on that the generator stood still, unanswered requests are no sign of the server."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to call it, how bad it is, and the sentences that say so."""

    name: str
    role: Role
    sentences: tuple[str, ...]
    told_up_to_per_s: float | None = None  # above this rate nothing can be told of the server; None: no such limit


def judged(result: LoadResult) -> Verdict:
    """The verdict on the server at the rate that reached it."""
    phase = result.open
    behind = generator_behind(phase)
    ceiling = _least_sent(result) if behind else None
    blame = () if ceiling is None else (_blame(phase, ceiling),)
    lost = phase.fates["cancelled"] + phase.fates["not sent"]
    if lost and _blind_at_the_end(phase):
        return Verdict("cannot be told", "warn", (_blind(phase, lost), *blame), ceiling or 0.0)
    if not phase.answered:
        said = f"None of {plural(phase.due, 'request')} was answered."
        return Verdict("no answers", "critical", (said, *blame), ceiling)
    if lost or _falls_behind(phase):
        return Verdict("does not keep up", "critical", (_too_slow(phase, lost), *blame), ceiling)
    if phase.failed:
        share = figures.share(phase.failed / phase.due)
        rate = _per_s(phase.sent_per_s)
        said = f"{quantity(phase.failed)} of {quantity(phase.due)} ({share}) failed at {rate}: {causes_told(phase)}."
        return Verdict("with failures", "warn", (said, *blame), ceiling)
    if ceiling is not None:
        return Verdict("cannot be told", "warn", (*blame, _beyond(ceiling)), ceiling)
    p50, p99 = figure(phase.due_to_answer, 0.5), figure(phase.due_to_answer, 0.99)
    said = f"{plural(phase.due, 'request')} at {_per_s(phase.offered_per_s)}: p50 {p50}, p99 {p99} from when due."
    if result.stalls:
        return Verdict("keeps up, with stalls", "warn", (said,))
    return Verdict("keeps up", "good", (said,))


def causes_told(phase: Phase) -> str:
    """What failed by kind, the most frequent first."""
    return ", ".join(f"{quantity(count)} × {cause}" for cause, count in phase.causes.items())


def json_of(result: LoadResult) -> dict[str, Any]:
    """The result as plain JSON values, its verdict first; keys may be added, none renamed without a new ``format``."""
    return {"format": FORMAT, "verdict": asdict(judged(result)), **asdict(result)}


def generator_behind(phase: Phase) -> bool:
    """Whether the generator sent fewer requests a second than were due, at its end or for long, by its own clock."""
    return _behind_at_the_end(phase) or (phase.late.p90 or 0.0) >= 1e3 * BEHIND_S


def _behind_at_the_end(phase: Phase) -> bool:
    return phase.sent_per_s < BEHIND * phase.offered_per_s and phase.late_at_end_s >= BEHIND_S


def _least_sent(result: LoadResult) -> float:
    """What reached the server in every slice of the window, requests a second: more can be told of none of them."""
    slices, rate = result.slices, result.open.sent_per_s
    if len(slices) < 2:
        return rate
    width_s = slices[1].start_s - slices[0].start_s
    return min(rate, *(each.sent / width_s for each in slices))


def _falls_behind(phase: Phase) -> bool:
    """Whether requests were sent faster than they were answered, for long enough to be sure."""
    return (
        phase.window_s >= LONG_ENOUGH_S
        and phase.answered_per_s < BEHIND * phase.sent_per_s
        and (phase.growth or 0.0) >= GROWN
    )


def _blind_at_the_end(phase: Phase) -> bool:
    return phase.drain_s > 0 and phase.standing.in_drain_s >= BLIND * phase.drain_s


def _per_s(rate: float) -> str:
    return f"{figures.decimal(rate)}/s"


def _blame(phase: Phase, ceiling: float) -> str:
    if not _behind_at_the_end(phase):
        return (
            f"The generator is to blame: it sent one request in ten {figures.duration(phase.late.p90)} late or more, "
            f"and in its slowest tenth of the window {_per_s(ceiling)} of {_per_s(phase.offered_per_s)} that were due."
        )
    late = figures.duration(1e3 * phase.late_at_end_s)
    return (
        f"The generator is to blame: {_per_s(phase.offered_per_s)} were due and it sent {_per_s(phase.sent_per_s)}, "
        f"the last request {late} late."
    )


def _beyond(ceiling: float) -> str:
    return (
        "The server answered all of what was sent. Whether it keeps up cannot be told above "
        f"{_per_s(ceiling)}; nor can its latency, because a late generator reads answers late as well."
    )


def _blind(phase: Phase, lost: int) -> str:
    stood = figures.duration(1e3 * phase.standing.in_drain_s)
    return (
        f"{quantity(lost)} of {quantity(phase.due)} requests were unanswered at the end, and the generator stood still "
        f"for {stood} of the {figures.duration(1e3 * phase.drain_s)} in which it waited for them."
    )


def _too_slow(phase: Phase, lost: int) -> str:
    rest = f"; {quantity(lost)} of {quantity(phase.due)} were still unanswered when the drain was over" if lost else ""
    return (
        f"{_per_s(phase.sent_per_s)} were sent and {_per_s(phase.answered_per_s)} were answered; at the worst "
        f"{quantity(phase.outstanding_peak)} were waiting{rest}."
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
        if (reported := value_of(theirs, share)) is not None
        and (true := value_of(due, share)) is not None
        and true >= max(OMITTED * reported, reported + SMALL_MS)
    ]
    if not hidden:
        return ""
    name, share = hidden[0]
    unsent = closed.fates["not sent"]
    count = "one request" if result.mix.in_flight == 1 else f"{result.mix.in_flight} requests"
    left = f" It never sent {quantity(unsent)} of {quantity(closed.due)}." if unsent else ""
    return (
        f"A client with {count} in flight reports {name} {figure(theirs, share)}. Counted from when its requests were "
        f"due it is {figure(due, share)}: while it waits for an answer it sends nothing, so those that would have "
        f"waited are missing (coordinated omission).{left}"
    )


def doubts(result: LoadResult) -> Iterator[tuple[Role, str]]:
    """What a reader must know before trusting the figures."""
    yield from _own_doubts(result.open)
    yield from _slow_start(result)
    if result.foreign_cores is not None and result.foreign_cores > 0.25:
        yield "warn", f"Others used {result.foreign_cores:.1f} cores of this machine meanwhile."
    closed = result.closed
    if result.open.due_to_answer.lower_bounds or (closed is not None and closed.due_to_answer.lower_bounds):
        yield (
            "dim",
            "≥: requests were given up unanswered, or never sent, and count with the time they had waited by then.",
        )
    if closed is not None and closed.interrupted:
        yield "dim", "The closed loop was cut short."
    for note in result.notes:
        yield "warn", note


def _slow_start(result: LoadResult) -> Iterator[tuple[Role, str]]:
    first = None if result.start is None else result.start.first_call_ms
    later = result.open.sent_to_answer.p50
    if first is not None and later is not None and first >= max(SLOW_START_MS, SLOW_START * later):
        yield (
            "warn",
            f"Slow start: the first call took {figures.duration(first)}, and later ones {figures.duration(later)} at "
            "p50. It is in no figure of the load.",
        )


def _own_doubts(phase: Phase) -> Iterator[tuple[Role, str]]:
    late, latency = phase.late.p99 or 0.0, phase.due_to_answer.p99 or 0.0
    if late >= max(LATE_MS, LATE_SHARE * latency):
        yield (
            "warn",
            f"The generator itself sent 1 % of the requests {figures.duration(late)} late or more: this "
            "machine had no time for it. Latencies from when requests were due contain that.",
        )
    if phase.standing.count:
        standing = phase.standing
        yield (
            "warn",
            f"The generator's own loop stood still {plural(standing.count, 'time')}, "
            f"{figures.duration(1e3 * standing.total_s)} in all and {figures.duration(1e3 * standing.longest_s)} at "
            "the longest: answers that came meanwhile were read that much later.",
        )


def figure(latency: Latency, share: float) -> str:
    """A percentile as a reader sees it, with its mark."""
    value = value_of(latency, share)
    return ("≥" if value is not None and latency.is_lower(share) else "") + figures.duration(value)


def value_of(latency: Latency, share: float) -> float | None:
    """The percentile ``share``, one of :data:`mcp_probe.workloads.load.result.SHARES`."""
    values = {0.5: latency.p50, 0.9: latency.p90, 0.99: latency.p99, 0.999: latency.p999, 1.0: latency.max}
    return values[share]
