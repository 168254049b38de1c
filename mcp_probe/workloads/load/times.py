"""Durations of any number of requests in bounded memory: exact up to a bound, in an HdrHistogram beyond it.

Invariant: the count, the sum and the largest are always exact. Beyond :data:`EXACT` values, any other rank reads the
upper end of its bucket, which is too long by at most :data:`ERROR`, and never too short.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from hdrh.histogram import HdrHistogram

EXACT = 200_000
"""As many as the log keeps rows: shorter loads are exact, and none of them pays for buckets (some 2 us a value)."""
DIGITS = 3
ERROR = 10**-DIGITS
"""Of the value."""
LONGEST_NS = 24 * 3600 * 10**9
"""Longer ones count as this long, except for the sum and the largest."""
_MOVED = 3


class Times:
    """Nanoseconds, counted."""

    __slots__ = ("_exact", "_histogram", "count", "longest", "total")

    def __init__(self, values: Iterable[int] = ()) -> None:
        self.count = self.total = self.longest = 0
        self._exact: array[int] = array("q")
        self._histogram: HdrHistogram | None = None
        for value in values:
            self.add(value)

    def add(self, value: int) -> None:
        """One more; below 0 counts as 0."""
        value = max(value, 0)
        self.count += 1
        self.total += value
        self.longest = max(self.longest, value)
        self._exact.append(value)
        if self._histogram is not None or len(self._exact) > EXACT:
            self._move(_MOVED)  # a few at a time: who drives a load must not stop for all of them

    def merged(self, other: Times) -> Times:
        """Those of both."""
        both = Times()
        both.count, both.total = self.count + other.count, self.total + other.total
        both.longest = max(self.longest, other.longest)
        both._exact = self._exact + other._exact
        for each in (self, other):
            if each._histogram is not None:
                both._in_buckets().add(each._histogram)
        if both._histogram is not None or len(both._exact) > EXACT:
            both._move(len(both._exact))
        return both

    def at(self, ranks: Iterable[int]) -> list[int]:
        """The values of ascending ranks, of which 0 is the shortest; beyond the last rank: the longest."""
        if self._histogram is None:
            ordered: Sequence[int] = sorted(self._exact)
            return [ordered[rank] if rank < len(ordered) else self.longest for rank in ranks]
        self._move(len(self._exact))
        shares = [100 * (rank + 1) / self.count for rank in ranks]
        values = self._histogram.get_percentile_to_value_dict([share for share in shares if share < 100])
        return [min(values.get(share, self.longest), self.longest) for share in shares]

    def median(self) -> int | None:
        """The middle one, the lower of two; ``None`` if there is none."""
        return self.at([(self.count - 1) // 2])[0] if self.count else None

    def held(self) -> int:
        """How many numbers this keeps: what its memory is proportional to."""
        return len(self._exact) + (0 if self._histogram is None else self._histogram.counts_len)

    def encoded(self) -> str:
        """As other programs read it: base64 of HdrHistogram's compressed form (V2), in nanoseconds."""
        histogram = HdrHistogram(1, LONGEST_NS, DIGITS)
        if self._histogram is not None:
            histogram.add(self._histogram)
        for value in self._exact:
            histogram.record_value(min(value, LONGEST_NS))
        return bytes(histogram.encode()).decode("ascii")

    def _in_buckets(self) -> HdrHistogram:
        if self._histogram is None:
            self._histogram = HdrHistogram(1, LONGEST_NS, DIGITS)
        return self._histogram

    def _move(self, most: int) -> None:
        """Some of those that are still exact into the histogram."""
        record = self._in_buckets().record_value
        for _ in range(min(most, len(self._exact))):
            record(min(self._exact.pop(), LONGEST_NS))
