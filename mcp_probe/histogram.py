"""Log-linear integer buckets: cheap enough for the hot path, mergeable, with a stated error.

Each power of two is cut into 16 equal buckets, so a bucket is at most 1/16 of its lower edge wide and
a value reported as its bucket's midpoint is off by at most 3.2 %. Values below 16 are exact. A
histogram is a plain ``dict[bucket, count]``: merging is addition.

Source: the bucketing of HdrHistogram (G. Tene) with 4 significant bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SUB_BITS = 4
SUB_BUCKETS = 1 << SUB_BITS
MAX_RELATIVE_ERROR = 1 / (2 * SUB_BUCKETS)
_MOST_SHIFTS = 256
LAST_BUCKET = (_MOST_SHIFTS << SUB_BITS) - 1
"""Of values below 2**258, more than any sum of ours. Edges of one that a damaged file names could take gigabytes."""


def bucket_of(value: int) -> int:
    """Bucket index of a non-negative integer; negative values fall in bucket 0."""
    if value < SUB_BUCKETS:
        return value if value > 0 else 0
    shift = value.bit_length() - SUB_BITS - 1
    return (shift << SUB_BITS) + (value >> shift)


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """Half-open range [low, high) of the values that fall in ``bucket``. Raises: ValueError beyond the last one."""
    if bucket > LAST_BUCKET:
        raise ValueError(f"there is no bucket {bucket}; the last one is {LAST_BUCKET}")
    shift = max((bucket >> SUB_BITS) - 1, 0)
    low = (bucket - (shift << SUB_BITS)) << shift
    return low, low + (1 << shift)


def midpoint(bucket: int) -> float:
    """The value a bucket stands for."""
    low, high = bucket_bounds(bucket)
    return (low + high - 1) / 2


def add(histogram: dict[int, int], value: int) -> None:
    """Count one value."""
    bucket = bucket_of(value)
    histogram[bucket] = histogram.get(bucket, 0) + 1


def merge(into: dict[int, int], other: Mapping[int, int] | Iterable[tuple[int, int]]) -> None:
    """Add the counts of ``other`` to ``into``."""
    items = other.items() if isinstance(other, Mapping) else other
    for bucket, count in items:
        into[bucket] = into.get(bucket, 0) + count


def quantile(histogram: Mapping[int, int], q: float) -> float | None:
    """Value at quantile ``q`` in [0, 1] (nearest rank), or ``None`` for an empty histogram."""
    total = sum(histogram.values())
    if total == 0:
        return None
    rank = max(1, -(-q * total // 1))
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= rank:
            return midpoint(bucket)
    raise AssertionError("unreachable: ranks are within the total")
