"""Percentiles of durations that are known by their bounds only.

A request may have taken longer than the probe saw: its message may have come earlier, or nobody saw it come, or nobody
saw its answer leave. So the lower bound of a total is always known, and the upper bound only sometimes.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.model import QUEUE, WRITES, Outcome, Quality, RequestKind, RequestRecord

Rows = Iterable[tuple[int, int, int]]
"""(bucket, count, sum)"""


class Bounded:
    """Values with bounds. Merging is addition."""

    __slots__ = ("_loose", "_most", "least")

    def __init__(self) -> None:
        self.least = Buckets()  # lower bounds of all
        self._loose = Buckets()  # lower bounds of those that may be longer
        self._most = Buckets()  # upper bounds of these, where there is one

    def add(self, least: int, most: int, *, is_open: bool) -> None:
        """One value in [least, most]; ``is_open``: there is no upper bound."""
        self.least.add(least)
        if is_open or most > least:
            self._loose.add(least)
            if not is_open:
                self._most.add(most)

    def add_group(self, least: Rows, most: Rows, *, is_open: bool) -> None:
        """Add many values. If ``most`` is empty, the upper bounds are the same as the lower ones."""
        least, most = tuple(least), tuple(most)
        self.least.add_rows(least)
        if is_open or most:
            self._loose.add_rows(least)
            if not is_open:
                self._most.add_rows(most)

    def merge(self, other: Bounded) -> None:
        """Add ``other``, which stays as it is."""
        self.least.merge(other.least)
        self._loose.merge(other._loose)
        self._most.merge(other._most)

    @property
    def is_open(self) -> bool:
        """One of them has no upper bound."""
        return self._most.count < self._loose.count

    def quality(self, q: float) -> Quality | None:
        """Bounds of quantile ``q`` of the true values, ms; ``None`` if it is known exactly."""
        least = self.least.quantile(q)
        if least is None or not self._loose.rows:
            return None
        closed = Buckets()
        closed.merge(self.least)
        closed.take_out(self._loose)
        closed.merge(self._most)
        most = closed.quantile_of(q, self.least.count)
        if most is None:
            return Quality("lower", least / 1e6)
        return None if most <= least else Quality("bounded", least / 1e6, most / 1e6)


def is_open(kind: RequestKind, seen: int, outcome: Outcome) -> bool:
    """Whether a request may have taken longer than was seen, by an unknown time."""
    if kind == "function":
        return False
    if not seen & QUEUE:
        return True
    return kind == "request" and outcome != "cancelled" and not seen & WRITES


def seen_in(record: RequestRecord) -> int:
    """What could be seen of ``record``. In older recordings without ``seen`` the missing values say it."""
    seen, budget = record.seen, record.budget
    if record.kind == "function":
        return seen
    if budget.queue_transport is None:
        seen &= ~QUEUE
    if budget.write_flush is None and record.kind == "request" and record.outcome != "cancelled":
        seen &= ~WRITES
    return seen


def earlier_ns(record: RequestRecord) -> int:
    """How long before its recorded arrival ``record`` may have come."""
    for name, _, lo, hi in record.quality:
        if name == "queue_transport" and lo is not None and hi is not None:
            return max(0, hi - lo)
    return 0
