"""Similar awaits of one call, one after the other with nothing beside them: what a task group would give.

A call counts if nothing else of it was under way meanwhile: its awaits had no other task beside them, or its jobs on
worker threads did not overlap. Awaits whose turns must follow each other (locks, queues, pools) are left out, and so
are calls that keep the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mcp_probe.aggregate.quality import worst
from mcp_probe.model import Await, AwaitKind, AwaitStage, RequestRecord, SerialAwaits, Tag

MAX_ROWS = 64
"""Different awaits of one operation; further ones are not counted."""

_HAS_TURNS: frozenset[AwaitKind] = frozenset({
    "lock", "semaphore", "limiter", "condition", "event", "queue", "connection-pool", "client", "connect",
})  # fmt: skip
"""Kinds whose awaits follow each other because they must; a connection is opened for the call that follows."""

SerialKey = tuple[AwaitKind, str, "str | None", AwaitStage]


@dataclass(slots=True)
class _Run:
    """Similar awaits of one call: sums, and the longest of them."""

    awaits: int = 0  # how many, by stretches
    sent: int = 0  # the same by what was sent to a backend; 0: its library does not say
    waited_ns: int = 0
    longest_ns: int = 0
    rest_ns: int = 0  # of phases that follow the first byte
    tag: Tag = "exact"

    def add(self, one: Await) -> None:
        """One stretch, or a sum of short ones."""
        self.sent += one.calls
        self.waited_ns += one.ns
        self.tag = worst((self.tag, one.tag))
        if one.phase in (None, "first-byte"):
            self.awaits += one.count
            self.longest_ns = max(self.longest_ns, one.ns // one.count)
        else:
            self.rest_ns += one.ns

    @property
    def count(self) -> int:
        """How many; 0 where that cannot be told."""
        return self.sent or self.awaits


@dataclass(slots=True)
class SerialTally:
    """Of the calls of one operation. See :class:`~mcp_probe.model.SerialAwaits`."""

    rows: dict[SerialKey, list[int]] = field(default_factory=dict)  # -> [calls, awaits, waited_ns, longest_ns]
    tags: dict[SerialKey, Tag] = field(default_factory=dict)

    def add(self, record: RequestRecord, awaits: tuple[Await, ...]) -> None:
        """Take the awaits of one call in."""
        if len(awaits) < 2 and not any(one.count > 1 for one in awaits):
            return
        runs: dict[SerialKey, _Run] = {}
        for one in awaits:
            if one.kind not in _HAS_TURNS and one.stage != "busy":
                runs.setdefault((one.kind, one.object, one.where, one.stage), _Run()).add(one)
        for key, run in runs.items():
            if run.count >= 2 and _is_alone(record, key, run):
                self._add(key, run, record.weight)

    def _add(self, key: SerialKey, run: _Run, weight: int) -> None:
        if key not in self.rows and len(self.rows) >= MAX_ROWS:
            return
        row = self.rows.setdefault(key, [0, 0, 0, 0])
        longest = min(run.waited_ns, run.longest_ns + run.rest_ns // run.count)
        for index, value in enumerate((1, run.count, run.waited_ns, longest)):
            row[index] += value * weight
        self.tags[key] = worst((self.tags.get(key, "exact"), run.tag, "estimate" if weight > 1 else "exact"))

    def merge(self, other: SerialTally) -> None:
        """Add ``other``."""
        for key, values in other.rows.items():
            if key not in self.rows and len(self.rows) >= MAX_ROWS:
                continue
            row = self.rows.setdefault(key, [0, 0, 0, 0])
            row[:] = [mine + theirs for mine, theirs in zip(row, values, strict=True)]
            self.tags[key] = worst((self.tags.get(key, "exact"), other.tags[key]))

    def summary(self) -> tuple[SerialAwaits, ...]:
        """Rows, the most time first."""
        return tuple(
            SerialAwaits(*key, calls, awaits, waited / 1e6, longest / 1e6, self.tags[key])
            for key, (calls, awaits, waited, longest) in sorted(self.rows.items(), key=lambda item: -item[1][2])
        )


def _is_alone(record: RequestRecord, key: SerialKey, run: _Run) -> bool:
    """Whether nothing else of the call was under way during these awaits.

    Looks do not tell how many requests an HTTP client sent: one request may be several suspensions. So those are not
    counted at all.
    """
    kind, _, _, stage = key
    if kind == "http" and not run.sent:
        return False
    if stage == "executor_run":
        running = record.budget.executor_run
        return running is not None and record.executor_run_sum_ns <= 1.05 * running
    return record.sequential_awaits >= run.count
