"""The 99th percentile of each operation's durations so far, of the recent ones more than of old ones."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_probe.histogram import quantile

MIN_COUNT = 100
"""Requests of an operation before its p99 means anything."""

FORGET_AT = 10_000
"""Requests after which older ones count half: a running percentile, not one of all time."""


class RunningP99:
    """Histograms of at most ``most`` operations; all others are one, called ``other``."""

    def __init__(self, most: int, other: str) -> None:
        self._most = most
        self._other = other
        self._durations: dict[str, dict[int, int]] = {}  # operation -> histogram
        self._totals: dict[str, int] = {}

    def of(self, operation: str) -> float | None:
        """In nanoseconds; ``None``: too few are known."""
        name = operation if operation in self._durations else self._other
        if self._totals.get(name, 0) < MIN_COUNT:
            return None
        return quantile(self._durations[name], 0.99) or 0.0

    def count(self, operation: str, durations: Iterable[tuple[int, int]]) -> None:
        """Take (bucket, how many) in."""
        name = operation
        if name not in self._durations:
            if len(self._durations) >= self._most:
                name = self._other
            self._durations.setdefault(name, {})
            self._totals.setdefault(name, 0)
        known = self._durations[name]
        for bucket, count in durations:
            known[bucket] = known.get(bucket, 0) + count
            self._totals[name] += count
        if self._totals[name] > FORGET_AT:
            halved = {bucket: count // 2 for bucket, count in known.items() if count > 1}
            self._durations[name], self._totals[name] = halved, sum(halved.values())
