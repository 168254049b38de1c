"""The readings of one stretch of time, and the sums over them that explanations use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median

from mcp_probe.aggregate.bounded import earlier_ns
from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import (
    BUDGET_PARTS,
    Frame,
    LoopSample,
    OpenRequest,
    PoolSample,
    ProcessSample,
    RequestGroup,
    RequestRecord,
    StepRecord,
    Summary,
)

MS = 1e6
_AROUND = ("queue_transport", "queue_dispatch", "write_wait", "write_flush")


@dataclass(frozen=True, slots=True)
class Seen:
    """Readings of one stretch of time: its summary and the single requests and steps in it.

    Requests and steps are exactly those of the stretch; groups and samples (pools, loop, process) span half a second
    or more and are taken if they overlap it.
    """

    summary: Summary
    requests: tuple[RequestRecord, ...]
    steps: tuple[StepRecord, ...] = ()
    pools: tuple[PoolSample, ...] = ()

    @classmethod
    def of(cls, frames: Iterable[Frame], since_ns: int | None = None, until_ns: int | None = None) -> Seen:
        """What ``frames`` hold of the requests that arrived in [since_ns, until_ns]; ``None``: no bound."""
        low = since_ns if since_ns is not None else -(1 << 62)
        high = until_ns if until_ns is not None else 1 << 62
        kept = [frame for frame in frames if _within(frame, low, high)]
        fold = Fold()
        fold.add_all(kept)
        return cls(
            fold.summary(),
            tuple(frame for frame in kept if isinstance(frame, RequestRecord) and frame.kind != "notification"),
            tuple(frame for frame in kept if isinstance(frame, StepRecord)),
            tuple(frame for frame in kept if isinstance(frame, PoolSample)),
        )

    def only(self, operation: str) -> Seen:
        """The requests of one operation, with everything else that went on meanwhile."""
        return replace(self, requests=tuple(each for each in self.requests if (each.name or each.method) == operation))

    @property
    def most_in_flight(self) -> int:
        """Requests that were open at once, from arrival to answer written; as the records say, not as sampled."""
        return most_at_once((each.arrival_ns, each.end_ns) for each in self.requests)


@dataclass(frozen=True, slots=True)
class Reason:
    """One explanation: ``share`` of the requests' time that it certainly explains, 0 to 1."""

    code: str
    share: float
    sentence: str


def _within(frame: Frame, low: int, high: int) -> bool:
    if isinstance(frame, (RequestRecord, OpenRequest)):
        return low <= frame.arrival_ns <= high
    if isinstance(frame, StepRecord):
        return frame.start_ns <= high and frame.end_ns >= low
    if isinstance(frame, RequestGroup):
        return frame.first_ns <= high and frame.last_ns >= low
    if isinstance(frame, (LoopSample, PoolSample, ProcessSample)):
        return frame.at_ns - frame.span_ns <= high and frame.at_ns >= low
    return True


def most_at_once(spans: Iterable[tuple[int, int]]) -> int:
    """How many of these half-open spans overlap at most. One that ends when another begins does not overlap it."""
    edges = sorted(chain.from_iterable(((start, 1), (end, -1)) for start, end in spans))
    most = now = 0
    for _, change in edges:
        now += change
        most = max(most, now)
    return most


def share_of(seen: Seen, *parts: str) -> float:
    """Share of all requests' time that these parts of the budget certainly take."""
    return shares_of(seen, *parts)[0]


Ends = tuple[float, float | None]
"""The least and the most that a number can be; ``None``: nobody can say."""


def ends_of(request: RequestRecord, *parts: str) -> Ends:
    """How long these parts of its budget took together, ns. What could not be seen is in no budget."""
    least, most = 0, 0
    rows = {row[0]: row for row in request.quality}
    is_open = False
    for part in parts:
        known = getattr(request.budget, part) or 0
        _, tag, lo, hi = rows.get(part, ("", "exact", None, None))
        is_open |= tag == "lower" and hi is None
        least += (lo or 0) if hi is not None else known
        most += known if hi is None else hi
    return least, None if is_open else most


def together(ends: Iterable[tuple[Ends, int]]) -> Ends:
    """The sum of numbers that stand for so many each."""
    least, most = 0.0, 0.0
    is_open = False
    for (lo, hi), weight in ends:
        least += lo * weight
        most += (lo if hi is None else hi) * weight
        is_open |= hi is None
    return least, None if is_open else most


def mean_of(seen: Seen, *parts: str) -> Ends:
    """How long these parts of the budget took in one request on average, ns. There must be a request."""
    weights = sum(each.weight for each in seen.requests)
    least, most = together((ends_of(each, *parts), each.weight) for each in seen.requests)
    return least / weights, None if most is None else most / weights


def shares_of(seen: Seen, *parts: str) -> Ends:
    """Share of all requests' time that these parts of the budget take.

    An earlier arrival makes ``queue_transport`` longer and with it the whole; other parts only change places within it.
    """
    whole = sum(total_of(each) * each.weight for each in seen.requests)
    earlier = sum(earlier_ns(each) * each.weight for each in seen.requests)
    least, most = together((ends_of(each, *parts), each.weight) for each in seen.requests)
    if not whole:
        return 0.0, 0.0
    low, high = (whole, whole + earlier) if "queue_transport" in parts else (whole + earlier, whole)
    return min(1.0, least / low), None if most is None else min(1.0, most / high)


def mean_totals(seen: Seen) -> tuple[float, float]:
    """Mean time of a request, ns, from the latest and from the earliest arrival. There must be one."""
    weights = sum(each.weight for each in seen.requests)
    earlier = sum(earlier_ns(each) * each.weight for each in seen.requests)
    return mean_total(seen), mean_total(seen) + earlier / weights


def median_of(ends: Sequence[Ends]) -> Ends:
    """Of so many numbers, of which there must be one."""
    highs = [hi for _, hi in ends if hi is not None]
    return median(lo for lo, _ in ends), median(highs) if len(highs) == len(ends) else None


def largest_of(ends: Sequence[Ends]) -> Ends:
    """The same for the largest."""
    highs = [hi for _, hi in ends if hi is not None]
    return max(lo for lo, _ in ends), max(highs) if len(highs) == len(ends) else None


def of_time(seen: Seen, ns: float) -> float:
    """``ns`` as a share of all requests' time, at most 1."""
    total = sum(total_of(each) * each.weight for each in seen.requests)
    return min(1.0, ns / total) if total else 0.0


def mean_total(seen: Seen) -> float:
    """Mean time of a request, ns. There must be one."""
    weights = sum(each.weight for each in seen.requests)
    return sum(total_of(each) * each.weight for each in seen.requests) / weights


def total_of(request: RequestRecord) -> int:
    """From arrival to end, ns."""
    return max(0, request.end_ns - request.arrival_ns)


def handling(request: RequestRecord) -> int:
    """From the first step to the result, ns."""
    handled = [part for part in BUDGET_PARTS if part not in _AROUND]
    return sum(getattr(request.budget, part) or 0 for part in handled)
