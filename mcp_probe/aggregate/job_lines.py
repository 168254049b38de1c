"""Where jobs on worker threads computed: the CPU time of all of them, divided by what looks saw of some."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcp_probe.aggregate.awaiting import LEAST_LOOKS, share_of
from mcp_probe.model import JobLine, RequestRecord

MAX_LINES = 64
"""Lines of one operation counted separately; further ones are counted under ``other``."""

Key = tuple["str | None", str]
"""(file:line, function called there)"""


@dataclass(slots=True)
class JobLinesTally:
    """Sums over the jobs of one operation. Merging is addition."""

    cpu_ns: int = 0
    rows: dict[Key, tuple[int, int]] = field(default_factory=dict)  # -> (CPU ns, looks)

    def add(self, record: RequestRecord) -> None:
        """Take one record in."""
        self.cpu_ns += record.jobs_cpu_ns * record.weight
        for where, called, ns, looks in record.job_work:
            self._add((where, called), ns, looks)

    def _add(self, key: Key, ns: int, looks: int) -> None:
        if key not in self.rows and len(self.rows) >= MAX_LINES:
            key = (None, "other")
        known = self.rows.get(key, (0, 0))
        self.rows[key] = known[0] + ns, known[1] + looks

    def merge(self, other: JobLinesTally) -> None:
        """Add ``other``, which stays as it is."""
        self.cpu_ns += other.cpu_ns
        for key, (ns, looks) in other.rows.items():
            self._add(key, ns, looks)

    def summary(self) -> tuple[JobLine, ...]:
        """Most CPU time first; empty where there were too few looks to divide it."""
        looks = sum(count for _, count in self.rows.values())
        seen = sum(ns for ns, _ in self.rows.values())
        if looks < LEAST_LOOKS or not seen:
            return ()
        ranked = sorted(self.rows.items(), key=lambda item: (-item[1][0], str(item[0])))
        return tuple(self._line(key, ns / seen, count, looks) for key, (ns, count) in ranked)

    def _line(self, key: Key, share: float, count: int, looks: int) -> JobLine:
        _, lo, hi = share_of(share * looks, looks)
        return JobLine(*key, share * self.cpu_ns / 1e6, share, lo, hi, count)
