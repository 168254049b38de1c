"""Which requests are looked at closely: slow ones, and a share of the others."""

from __future__ import annotations

from mcp_probe.export.conventions import MAX_NAMES, OTHER
from mcp_probe.histogram import add, quantile
from mcp_probe.model import RequestRecord

DEFAULT_LIMIT_NS = 1_000_000_000
MIN_COUNT = 100
"""Requests of an operation before its p99 means anything."""

MAX_LATEST = 512
"""Durations of an operation that wait to be counted; requests of a second and more are rare, and only they ask."""

FORGET_AT = 10_000
"""Requests after which older ones count half: a running percentile, not one of all time."""


class SlowLimit:
    """A fixed limit, or by default the larger of 1 s and the running p99 of a request's operation."""

    def __init__(self, slow_request_ms: float | None) -> None:
        self._fixed_ns = None if slow_request_ms is None else round(slow_request_ms * 1e6)
        self._durations: dict[str, dict[int, int]] = {}  # operation -> histogram
        self._latest: dict[str, list[int]] = {}  # operation -> durations that are not in it yet
        self._totals: dict[str, int] = {}  # of both

    @property
    def least_ns(self) -> int:
        """No request that is over sooner is slow."""
        return DEFAULT_LIMIT_NS if self._fixed_ns is None else self._fixed_ns

    def passed_by(self, record: RequestRecord) -> bool:
        """Whether ``record`` is slow, compared with those before it."""
        duration = record.end_ns - record.arrival_ns
        slow = duration >= self.least_ns
        if self._fixed_ns is None:
            operation = self._known(record.name or record.method)
            if slow and self._totals.get(operation, 0) >= MIN_COUNT:
                slow = duration >= (quantile(self._histogram(operation), 0.99) or 0)
            self._count(operation, [duration])
        return slow

    def add(self, operation: str, durations: list[int]) -> None:
        """Count requests that are known not to be slow."""
        if self._fixed_ns is None:
            self._count(self._known(operation), durations)

    def _known(self, operation: str) -> str:
        """``operation``, or what stands for all for which there is no place."""
        if operation not in self._latest:
            if len(self._latest) >= MAX_NAMES:
                operation = OTHER
            self._latest.setdefault(operation, [])
        return operation

    def _count(self, operation: str, durations: list[int]) -> None:
        latest, total = self._latest[operation], self._totals.get(operation, 0)
        latest.extend(durations)
        self._totals[operation] = total + len(durations)
        if total >= FORGET_AT:
            self._forget(operation)
        elif len(latest) >= MAX_LATEST:
            self._histogram(operation)

    def _histogram(self, operation: str) -> dict[int, int]:
        """Of all of an operation's durations: those that came since it was last looked at are added first."""
        durations, latest = self._durations.setdefault(operation, {}), self._latest[operation]
        for duration in latest:
            add(durations, duration)
        latest.clear()
        return durations

    def _forget(self, operation: str) -> None:
        halved = {bucket: count // 2 for bucket, count in self._histogram(operation).items() if count > 1}
        self._durations[operation] = halved
        self._totals[operation] = sum(halved.values())


def detailed(record: RequestRecord, share: float) -> bool:
    """Whether ``record`` is in the sample; the same for every server that sees its trace."""
    return share > 0 and record.trace_id is not None and int(record.trace_id[16:], 16) < share * 2**64
