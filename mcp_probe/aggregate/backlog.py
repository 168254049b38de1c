"""Whether requests came faster than they were answered, for how long, and what that did to the time they took.

Looked at is the last rise to the sample with most requests in flight, from where a quarter of the way was left behind:
before it the server may have been idle, or well, and after it a client may wait for all answers. A *backlog* has grown
in each quarter of that time. A burst has not: it is there at once.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from mcp_probe.model import BacklogGrowth, ProcessSample, RequestGroup, RequestRecord

LISTENS = "subscriptions/listen"
"""A request that stays open for as long as its client likes. Source: MCP 2026-07-28."""

MIN_READINGS = 4
MOST_READINGS = 4096
MOST_BINS = 512
SECOND_NS = 1_000_000_000


class BacklogTally:
    """Requests in flight, and those answered, over time. Merged with another process's, what grew more stays."""

    def __init__(self) -> None:
        self._levels: list[tuple[int, int]] = []  # (ns, requests in flight)
        self._bin_ns = SECOND_NS // 4
        self._ended: dict[int, list[int]] = {}  # bin of the end -> [requests, their nanoseconds]
        self._others: list[BacklogGrowth] = []

    def add_sample(self, sample: ProcessSample) -> None:
        """One reading of what is in flight."""
        listening = dict(sample.active).get(LISTENS, 0)
        self._levels.append((sample.at_ns, sample.outstanding - listening))
        if len(self._levels) >= MOST_READINGS:
            self._levels = self._levels[1::2]

    def add(self, record: RequestRecord) -> None:
        """One request that has ended."""
        if record.kind == "request" and record.outcome != "unfinished" and record.method != LISTENS:
            self._end(record.end_ns, 1, record.end_ns - record.arrival_ns)

    def add_group(self, group: RequestGroup) -> None:
        """Requests without a record; they ended within a drain of each other."""
        if group.kind == "request" and group.method != LISTENS:
            self._end(group.last_ns, group.count, sum(ns for _, _, ns in group.durations))

    def _end(self, at_ns: int, count: int, took_ns: int) -> None:
        entry = self._ended.setdefault(at_ns // self._bin_ns, [0, 0])
        entry[0] += count
        entry[1] += took_ns
        if len(self._ended) > MOST_BINS:
            self._bin_ns *= 2
            finer, self._ended = self._ended, {}
            for number, (requests, ns) in finer.items():
                coarse = self._ended.setdefault(number // 2, [0, 0])
                coarse[0] += requests
                coarse[1] += ns

    def merge(self, other: BacklogTally) -> None:
        """Add ``other``, which stays as it is."""
        self._others.extend(other._others)
        own = other._growth()
        if own is not None:
            self._others.append(own)

    def summary(self) -> BacklogGrowth | None:
        """The largest backlog of one process; ``None`` where none grew."""
        return max(self._others, key=lambda growth: growth.after - growth.before, default=None)

    def _growth(self) -> BacklogGrowth | None:
        if not self._levels:
            return None
        top = max(range(len(self._levels)), key=lambda index: (self._levels[index][1], -index))
        low = min(level for _, level in self._levels[: top + 1])
        begun = low + (self._levels[top][1] - low) / 4
        rise = self._levels[max(index for index in range(top + 1) if self._levels[index][1] <= begun) : top + 1]
        if len(rise) < MIN_READINGS:
            return None
        cuts = [len(rise) * quarter // 4 for quarter in range(5)]
        quarters = [median(level for _, level in rise[a:b]) for a, b in pairwise(cuts)]
        if not all(one < following for one, following in pairwise(quarters)):
            return None
        (start, before), (end, after) = rise[0], rise[-1]
        quarter_ns = (end - start) // 4
        first, first_ns = self._ended_between(start, start + quarter_ns)
        last, last_ns = self._ended_between(end - quarter_ns, end)
        ended, _ = self._ended_between(start, end)
        return BacklogGrowth(
            seconds=(end - start) / SECOND_NS,
            before=before,
            after=after,
            arrived=ended + after - before,
            ended=ended,
            first_ms=first_ns / first / 1e6 if first else None,
            last_ms=last_ns / last / 1e6 if last else None,
            waited_ms=sum((level - before) * (at - previous) / 1e6 for (previous, _), (at, level) in pairwise(rise)),
        )

    def _ended_between(self, since_ns: int, until_ns: int) -> tuple[int, int]:
        """(requests, their nanoseconds) of the bins that begin in [since, until)."""
        rows = [entry for number, entry in self._ended.items() if since_ns <= number * self._bin_ns < until_ns]
        return sum(row[0] for row in rows), sum(row[1] for row in rows)
