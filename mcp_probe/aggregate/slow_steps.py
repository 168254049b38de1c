"""Slow steps, grouped by what ran, where, and why it was slow."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from mcp_probe.aggregate.blocking import OTHER, Matrix, blocker_of
from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.aggregate.loop_health import plus
from mcp_probe.aggregate.quality import worst
from mcp_probe.model import LOOP_OPERATION, WITHOUT_GIL, Cause, SlowStep, StepRecord, Tag

MAX_GROUPS = 512
MAX_EARLY = 64
"""Steps of no request that may be the server's start: the earliest of a stream."""
SHOWN = 20

GroupKey = tuple[str, str | None, int | None, Cause, str | None]
"""(operation, file, line, cause, what it imported): a first call that imports says nothing about later calls"""

IMPORT = "import of "
"""Prefix of a step's library if the step imported a module."""

SEEN_WITHOUT_GIL = 0.2
"""Of the slow steps of a line: if so many were seen to compute without the GIL, all did (:func:`lets_others_run`)."""


@dataclass(slots=True)
class StepGroup:
    """Slow steps of one operation at one place with one cause."""

    count: int = 0
    critical: int = 0
    lengths: Buckets = field(default_factory=Buckets)
    own: Buckets = field(default_factory=Buckets)  # their own times
    own_longest_ns: int = 0
    run_queue_ns: int | None = None
    longest_ns: int = 0
    function: str | None = None  # of the longest
    library: str | None = None  # of the longest
    without_gil: int = 0  # those that were seen to compute without the GIL
    where: Tag = "exact"
    cpu_ns: int = 0
    cpu_known_ns: int = 0  # wall time of the steps whose CPU time is known
    running: bool = False
    starts: int = 0  # as in SlowStep

    def add(self, step: StepRecord, own_ns: int, critical_ns: int) -> None:
        """Count one step with its own time; if it still runs, its time so far."""
        length = step.end_ns - step.start_ns
        self.own.add(own_ns)
        self.own_longest_ns = max(self.own_longest_ns, own_ns)
        self.run_queue_ns = plus(self.run_queue_ns, step.run_queue_ns)
        self.count += 1
        self.critical += length >= critical_ns
        self.lengths.add(length)
        self._keep_longest(length, step.function, step.library)
        self.without_gil += is_without_gil(step.library)
        self.where = worst((self.where, step.where))
        if step.cpu_ns is not None:
            self.cpu_ns += min(step.cpu_ns, length)
            self.cpu_known_ns += length
        self.running = self.running or step.running

    def merge(self, other: StepGroup) -> None:
        """Add ``other``, which stays as it is."""
        self.count += other.count
        self.critical += other.critical
        self.lengths.merge(other.lengths)
        self.own.merge(other.own)
        self.own_longest_ns = max(self.own_longest_ns, other.own_longest_ns)
        self.run_queue_ns = plus(self.run_queue_ns, other.run_queue_ns)
        self._keep_longest(other.longest_ns, other.function, other.library)
        self.without_gil += other.without_gil
        self.where = worst((self.where, other.where))
        self.cpu_ns += other.cpu_ns
        self.cpu_known_ns += other.cpu_known_ns
        self.running = self.running or other.running
        self.starts += other.starts

    def _keep_longest(self, length: int, function: str | None, library: str | None) -> None:
        if (length, function or "", library or "") >= (self.longest_ns, self.function or "", self.library or ""):
            self.longest_ns, self.function, self.library = length, function, library

    @property
    def called(self) -> str | None:
        """What the longest called; whether without the GIL, by all of them."""
        if self.library is None or not self.without_gil:
            return self.library
        name = self.library.removesuffix(WITHOUT_GIL)
        return name + WITHOUT_GIL if lets_others_run(self.without_gil, self.count) else name

    @property
    def cpu_share(self) -> float | None:
        """Share of their wall time that the thread had a CPU; ``None`` where it could not be read."""
        return self.cpu_ns / self.cpu_known_ns if self.cpu_known_ns else None


class SlowSteps:
    """All slow steps of the stream. Bounded: beyond :data:`MAX_GROUPS` groups a step is counted without its place."""

    def __init__(self, slow_ns: int, critical_ns: int) -> None:
        self._slow_ns = slow_ns
        self._critical_ns = critical_ns
        self.groups: dict[GroupKey, StepGroup] = {}
        self._early: list[tuple[int, GroupKey]] = []  # (end, key), the earliest first

    def add(self, step: StepRecord) -> None:
        """Count ``step`` if it is slow."""
        if step.end_ns - step.start_ns >= self._slow_ns:
            imported = step.library if step.library is not None and step.library.startswith(IMPORT) else None
            cause, own_ns = judged(step, self._slow_ns)
            key = (blocker_of(step), step.file, step.line, cause, imported)
            self._group(key).add(step, own_ns, self._critical_ns)
            if key[0] == LOOP_OPERATION and not step.running:
                insort(self._early, (step.end_ns, key), key=lambda early: early[0])
                del self._early[MAX_EARLY:]

    def merge(self, other: SlowSteps, answered_ns: int | None = None) -> None:
        """Add ``other``, which stays as it is: the stream of another process, or all of this one so far.

        Its server had started by ``answered_ns``; ``None``: it has answered nothing.
        """
        for key, group in other.groups.items():
            self._group(key).merge(group)
        for end_ns, key in other._early:
            if answered_ns is not None and end_ns <= answered_ns:
                self._group(key).starts += 1

    def _group(self, key: GroupKey) -> StepGroup:
        if key not in self.groups and len(self.groups) >= MAX_GROUPS:
            key = (key[0], None, None, "unknown", None)
            if key not in self.groups and len(self.groups) >= 2 * MAX_GROUPS:
                key = (OTHER, None, None, "unknown", None)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = StepGroup()
        return group

    def of_operation(self, operation: str) -> StepGroup:
        """All slow steps of ``operation``, wherever they were."""
        found = StepGroup()
        for key, group in self.groups.items():
            if key[0] == operation:
                found.merge(group)
        return found

    def rows(self, matrix: Matrix) -> tuple[SlowStep, ...]:
        """The worst places, largest sum first.

        ``victims`` counts the victims of the whole tool, not only those of this place.
        """
        ranked = sorted(
            self.groups.items(),
            key=lambda item: (-item[1].lengths.total, tuple(str(part) for part in item[0])),
        )
        return tuple(_row(key, group, matrix) for key, group in ranked[:SHOWN])


def is_without_gil(library: str | None) -> bool:
    """Whether a step that called ``library`` was seen to compute in C code that had given up the GIL."""
    return library is not None and library.endswith(WITHOUT_GIL)


def lets_others_run(seen: int, count: int) -> bool:
    """Whether ``count`` slow steps of one line computed without the GIL, of which that was seen of ``seen``.

    The watchdog sees it if most of its looks come while the step is in C. Of eight queries of 60 ms in sqlite3, on two
    busy processors, it saw three.
    """
    return seen >= SEEN_WITHOUT_GIL * count


def judged(step: StepRecord, slow_ns: int) -> tuple[Cause, int]:
    """Why ``step`` was slow, and its own time: of one that computed or collected its CPU time, else all but the queue.

    The host is the cause only where what it left is not slow. Recordings of older versions blame it from half of the
    step on, and do not say what the rest was.
    """
    length, cause = step.end_ns - step.start_ns, step.cause or "unknown"
    own = length - min(length, step.run_queue_ns or 0)
    if step.run_queue_ns:
        if own < slow_ns:
            return "run-queue", own
        if cause == "run-queue":
            cause = "cpu" if (step.cpu_ns or 0) * 2 >= own else "unknown"
    if cause in ("cpu", "gc") and step.cpu_ns is not None:
        own = min(own, step.cpu_ns)
    return cause, own


def _row(key: GroupKey, group: StepGroup, matrix: Matrix) -> SlowStep:
    operation, file, line, cause, _ = key
    victims, victim_ms = matrix.caused_by(operation)
    p50 = group.lengths.quantile(0.5)
    return SlowStep(
        tool=operation,
        ms=group.longest_ns / 1e6,
        cause=cause,
        file=file,
        line=line,
        function=group.function,
        quality=group.where,
        count=group.count,
        total_ms=group.lengths.total / 1e6,
        p50_ms=(p50 or 0.0) / 1e6,
        cpu_share=group.cpu_share,
        running=group.running,
        victims=victims,
        victim_ms=victim_ms,
        library=group.called,
        own_ms=group.own_longest_ns / 1e6,
        own_total_ms=group.own.total / 1e6,
        own_p50_ms=(group.own.quantile(0.5) or 0.0) / 1e6,
        run_queue_ms=None if group.run_queue_ns is None else group.run_queue_ns / 1e6,
        starts=min(group.starts, group.count),
    )
