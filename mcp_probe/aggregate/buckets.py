"""Histograms that also know each bucket's sum, so that equal values are returned exactly.

Buckets are those of :mod:`mcp_probe.histogram`. A quantile is the mean of the values in the bucket it
falls in. So it is off by less than 1/16 (6.3 %), and exact if the values in that bucket are equal.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp_probe.histogram import bucket_of

MAX_RELATIVE_ERROR = 1 / 16


class Buckets:
    """Counts and sums per bucket; merging is addition. Bounded: a few hundred rows for any range of times."""

    __slots__ = ("rows",)

    def __init__(self, rows: Iterable[tuple[int, int, int]] = ()) -> None:
        self.rows: dict[int, list[int]] = {}
        self.add_rows(rows)

    def add(self, value: int, times: int = 1) -> int:
        """Count one value, or ``times`` of it; returns its bucket."""
        bucket = bucket_of(value)
        row = self.rows.get(bucket)
        if row is None:
            self.rows[bucket] = [times, times * value]
        else:
            row[0] += times
            row[1] += times * value
        return bucket

    def add_rows(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Add (bucket, count, sum) rows, as samples carry them."""
        for bucket, count, total in rows:
            row = self.rows.setdefault(bucket, [0, 0])
            row[0] += count
            row[1] += total

    def take_out(self, other: Buckets) -> None:
        """Remove ``other``, which was added before; ``other`` stays as it is."""
        for bucket, (count, total) in other.rows.items():
            row = self.rows[bucket]
            row[0] -= count
            row[1] -= total
            if row[0] == 0:
                del self.rows[bucket]

    def merge(self, other: Buckets) -> None:
        """Add ``other``, which stays as it is."""
        self.add_rows((bucket, count, total) for bucket, (count, total) in other.rows.items())

    @property
    def count(self) -> int:
        """How many values."""
        return sum(count for count, _ in self.rows.values())

    @property
    def total(self) -> int:
        """Their sum, exact."""
        return sum(total for _, total in self.rows.values())

    def bucket_at(self, q: float) -> int | None:
        """Bucket that quantile ``q`` in [0, 1] falls in (nearest rank); ``None`` where nothing was counted."""
        return self._bucket_at(q, self.count)

    def _bucket_at(self, q: float, count: int) -> int | None:
        rank = max(1, min(count, -int(-q * count // 1)))
        for bucket in sorted(self.rows):
            rank -= self.rows[bucket][0]
            if rank <= 0:
                return bucket
        return None

    def quantile(self, q: float) -> float | None:
        """Value at quantile ``q``; see the module's text for its error."""
        return self.quantile_of(q, self.count)

    def quantile_of(self, q: float, count: int) -> float | None:
        """The same for ``count`` values. Those not in here are the largest; ``None`` if the quantile is one of them."""
        bucket = self._bucket_at(q, count)
        return None if bucket is None else self.mean_of(bucket)

    def largest(self) -> float | None:
        """About the largest value: the mean of the highest bucket."""
        return self.mean_of(max(self.rows)) if self.rows else None

    def mean_of(self, bucket: int) -> float:
        """Mean of the values in ``bucket``, which must not be empty."""
        count, total = self.rows[bucket]
        return total / count
