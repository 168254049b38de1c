"""When the server stalled: it answered nobody, though several requests waited that are otherwise answered soon.

A stall begins with the last answer before it, or with the first request that was sent into it, and ends with the next
answer. So it is shorter than the truth by up to one distance between requests. One slow request is no stall while
others are answered, and alone it cannot be told from one.

If the generator stood still when the silence ended, answers may have come at any instant of that pause: the stall is
only known up to its beginning. A pause within the silence takes nothing off: what had come meanwhile was read after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from mcp_probe.aggregate.phrasing import joined
from mcp_probe.workloads.load.lateness import Pauses
from mcp_probe.workloads.load.log import Log
from mcp_probe.workloads.load.mix import Mix
from mcp_probe.workloads.load.silences import SILENCE_NS, Silences
from mcp_probe.workloads.load.tally import ANSWERED, FATES, Tally
from mcp_probe.workloads.load.times import Times

READ_NS = 25_000_000
"""An answer that is read so soon after a pause of the generator's may have come within it."""

OVERDUE = 5.0
OVERDUE_NS = SILENCE_NS // 2
WITNESSES = 2
"""So many requests must wait this many times longer than the median of their operation, and so long at least."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A silence of the server's. Seconds after the window began."""

    start_s: float
    length_s: float
    waiting: int  # requests that were unanswered when it ended
    over: bool = True  # False: nothing was answered any more
    at_least: bool = False  # the generator stood still at its end: it may have been longer


def stalls_of(log: Log, mix: Mix) -> tuple[Stall, ...]:
    """In order. Empty for a server that answered nothing at all: that is no stall."""
    tally = log.tally()
    if not any(tally.fates[fate] for fate in ANSWERED):
        return ()
    usual = _usual(tally, mix)
    found = []
    for silence in (_replayed(log) if log.beyond is None else log.silences).found:
        known_until = _known_until(log.pauses, silence.end_ns)
        length = known_until - silence.start_ns
        overdue = sum(
            silence.end_ns - sent >= max(OVERDUE_NS, OVERDUE * usual.get(mix.calls[call].operation, float("inf")))
            for call, sent in silence.oldest
        )
        if length >= SILENCE_NS and overdue >= WITNESSES:
            start_s = (silence.start_ns - log.begun_ns) / 1e9
            at_least = known_until < silence.end_ns
            found.append(Stall(start_s, length / 1e9, silence.waiting, silence.over, at_least))
    return tuple(found)


def _known_until(pauses: Pauses, end_ns: int) -> int:
    """The beginning of the pause at whose end the silence ended; without one, its own end."""
    place = bisect_left(pauses, end_ns, key=lambda pause: pause[0])
    if place and pauses[place - 1][1] >= end_ns - READ_NS:
        return pauses[place - 1][0]
    return end_ns


def _usual(tally: Tally, mix: Mix) -> dict[str, float]:
    """Median time from sending to answer of each operation that was ever answered, in nanoseconds."""
    times: dict[str, Times] = {}
    for number, row in tally.calls.items():
        operation = mix.calls[number].operation
        times[operation] = times.get(operation, Times()).merged(row.served)
    return {operation: middle for operation, each in times.items() if (middle := each.median()) is not None}


def _replayed(log: Log) -> Silences:
    """Those of a log whose rows are all there, in the order of their instants: a callback may run out of it."""
    events = sorted(
        [(sent, 0, row) for row, sent in enumerate(log.sent_ns) if sent]
        + [(done, 1, row) for row, (sent, done) in enumerate(zip(log.sent_ns, log.done_ns, strict=True)) if sent]
    )
    silences = Silences()
    for at, is_end, row in events:
        if is_end:
            silences.ended(row, at, given_up=FATES[log.fate[row]] == "cancelled")
        else:
            silences.sent(row, log.call[row], at)
    return silences


# --- in words -------------------------------------------------------------------------------------

_MOST_NAMED = 6
_ALIKE = 1.25


def stalls_told(stalls: Sequence[Stall]) -> str:
    """One sentence with how long and when; empty where there was none."""
    passed = [stall for stall in stalls if stall.over]
    last = next((stall for stall in stalls if not stall.over), None)
    end = "" if last is None else f"From {_second(last.start_s)} s on it answered nothing more."
    if not passed:
        return end and end.replace("it answered", "the server answered")
    lengths = [stall.length_s for stall in passed]
    alike = max(lengths) <= _ALIKE * min(lengths)
    if alike and len(passed) <= _MOST_NAMED:
        instants = joined([_second(each.start_s) for each in passed])
        least = "at least " if any(stall.at_least for stall in passed) else ""
        said = f"The server stalled {least}{_length(median(lengths))} at {instants} s."
    else:
        longest = sorted(sorted(passed, key=lambda each: -each.length_s)[:_MOST_NAMED], key=lambda each: each.start_s)
        named = joined([f"{_mark(each)}{_length(each.length_s)} at {_second(each.start_s)} s" for each in longest])
        which = ", the longest" if len(passed) > len(longest) else ""
        said = f"The server stalled {len(passed)} times, {_length(sum(lengths))} in all{which}: {named}."
    return f"{said} {end}".strip()


def _mark(stall: Stall) -> str:
    return "≥" if stall.at_least else ""


def _second(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _length(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.95 else f"{seconds:.2f} s"
