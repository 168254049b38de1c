"""Durations of any number of requests in bounded memory: exact up to a bound, in buckets beyond it.

Invariant: the count, the sum and the largest are always exact. Beyond :data:`EXACT` values, any other rank reads the
upper end of its bucket, which is too long by at most :data:`ERROR`, and never too short.

The buckets are :mod:`mcp_probe.histogram`'s, with 8 significant bits.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

from mcp_probe.histogram import bucket_bounds, bucket_of

EXACT = 50_000
BITS = 8
ERROR = 1 / (1 << BITS)
"""Of the value: 0.4 %. A day in nanoseconds has 46 bits, so there are fewer than 40 x 256 buckets."""


class Times:
    """Nanoseconds, counted."""

    __slots__ = ("_buckets", "_exact", "count", "longest", "total")

    def __init__(self, values: Iterable[int] = ()) -> None:
        self.count = self.total = self.longest = 0
        self._exact: array[int] = array("q")
        self._buckets: Counter[int] = Counter()  # in use as soon as it holds anything
        for value in values:
            self.add(value)

    def add(self, value: int) -> None:
        """One more; below 0 counts as 0."""
        value = max(value, 0)
        self.count += 1
        self.total += value
        self.longest = max(self.longest, value)
        if self._buckets:
            self._buckets[bucket_of(value, BITS)] += 1
            return
        self._exact.append(value)
        if len(self._exact) > EXACT:
            self._spill()

    def merged(self, other: Times) -> Times:
        """Those of both."""
        both = Times()
        both.count, both.total = self.count + other.count, self.total + other.total
        both.longest = max(self.longest, other.longest)
        both._exact = self._exact + other._exact
        if self._buckets or other._buckets or len(both._exact) > EXACT:
            both._spill()
            both._buckets.update(self._buckets)
            both._buckets.update(other._buckets)
        return both

    def at(self, ranks: Iterable[int]) -> list[int]:
        """The values of ascending ranks, of which 0 is the shortest; beyond the last rank: the longest."""
        if not self._buckets:
            ordered = sorted(self._exact)
            return [ordered[rank] if rank < len(ordered) else self.longest for rank in ranks]
        buckets = sorted(self._buckets)
        reached = list(accumulate(self._buckets[bucket] for bucket in buckets))
        found, place = [], 0
        for rank in ranks:
            while place < len(buckets) and reached[place] <= rank:
                place += 1
            end = bucket_bounds(buckets[place], BITS)[1] - 1 if place < len(buckets) else self.longest
            found.append(min(end, self.longest))
        if found and self.count and rank >= self.count - 1:
            found[-1] = self.longest
        return found

    def median(self) -> int | None:
        """The middle one, the lower of two; ``None`` if there is none."""
        return self.at([(self.count - 1) // 2])[0] if self.count else None

    def held(self) -> int:
        """How many numbers this keeps: what its memory is proportional to."""
        return len(self._exact) + len(self._buckets)

    def _spill(self) -> None:
        self._buckets.update(bucket_of(value, BITS) for value in self._exact)
        self._exact = array("q")
