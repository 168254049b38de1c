"""Does the memory that a tool's calls keep grow with the calls? From growth samples to one row for each operation.

Where blocks have owners, the answer is in the calls' own order: after a full collection the *older* half of the calls
still holds memory, group by group, and not the newest only. A full cache holds entries of its latest calls; one that is
filled once, a first call's set-up, and garbage hold nothing there. A cache that is not full yet when the run ends looks
like a leak, and is one as far as anybody can tell by then.

Where only totals are known (tracemalloc), it is in their course: over the second half of the calls they rise from look
to look, four times in five, and at least half as fast as over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from mcp_probe.model import (
    Growth,
    GrowthLine,
    GrowthSample,
    GrowthSites,
    GrowthType,
    LeakHunt,
    MemoryMethod,
    Quality,
)

MIN_CALLS = 50
"""Calls of an operation below which nothing is said of its growth."""

MIN_BYTES = 256.0
"""Bytes a call. Workload: a clean tool of mcp 2.3, whose latest thousand calls keep up to 200 of bookkeeping (notes of
slow steps and thread jobs, contexts of idle worker threads)."""

STILL_HELD = 0.8
"""Of the groups of the older half, so many must still hold as much: a cache that holds three quarters of the calls has
let go of the oldest by the end."""

FREE_LISTS_HIDE = 2048.0
"""Bytes a call below which free lists may hide as much: 500 were seen to read as 170. Source: docs/memory.md."""

MAX_POINTS = 64
MIN_POINTS = 4

Point = tuple[int, int]
"""(calls, bytes still held by all of them)"""


@dataclass(slots=True)
class GrowthTally:
    """One operation's samples: the latest groups, and a course that is thinned out where it gets long."""

    method: str
    name: str
    calls: int = 0
    held_bytes: int = 0
    groups: tuple[Point, ...] = ()
    points: list[Point] = field(default_factory=list)
    how: MemoryMethod = "native-shadow"
    scope: str = ""

    def add(self, calls: int, held: int, groups: tuple[Point, ...], sample: GrowthSample) -> None:
        """One more sample, which is of all calls so far."""
        self.calls, self.held_bytes, self.groups = calls, held, groups
        self.how, self.scope = sample.how, sample.scope
        if self.points and self.points[-1][0] == calls:
            self.points[-1] = (calls, held)
        else:
            self.points.append((calls, held))
        if len(self.points) > MAX_POINTS:
            self.points = [*self.points[1:-1:2], self.points[-1]]

    def row(self, lines: tuple[GrowthLine, ...], types: tuple[GrowthType, ...]) -> Growth:
        """What it comes to."""
        per_call = self._of_groups() if self.groups else self._of_points()
        grows = per_call is not None and per_call[0]
        rate = None if per_call is None else per_call[1]
        return Growth(
            name=self.name,
            method=self.method,
            verdict="unknown" if rate is None else "grows" if grows else "steady",
            calls=self.calls,
            held_bytes=max(0, self.held_bytes),
            bytes_per_call=rate,
            quality=_quality(rate, exact=bool(self.groups)),
            how=self.how,
            scope=self.scope,
            lines=lines,
            types=types,
        )

    def _of_groups(self) -> tuple[bool, float] | None:
        """(whether it grows, bytes a call): without the first group, which sets things up, and the newest."""
        if self.calls < MIN_CALLS or len(self.groups) < 4:
            return None
        settled = self.groups[1:-1]
        rate = sum(held for _, held in settled) / max(1, sum(calls for calls, _ in settled))
        older = sorted(held / max(1, calls) for calls, held in settled[: len(self.groups) // 2])
        least = older[int((1 - STILL_HELD) * len(older))]
        return least >= max(MIN_BYTES, rate / 4), rate

    def _of_points(self) -> tuple[bool, float] | None:
        """The same, from the course of the total; slopes are the median of all pairs (Theil and Sen)."""
        late = [point for point in self.points if point[0] >= self.calls / 2]
        if self.calls < MIN_CALLS or len(self.points) < MIN_POINTS or len(late) < 3:
            return None
        whole, second = _slope(self.points), _slope(late)
        rises = sum(after[1] > before[1] for before, after in pairwise(late)) / (len(late) - 1)
        return rises >= STILL_HELD and second >= max(MIN_BYTES, whole / 2), max(0.0, second)


def _slope(points: Sequence[Point]) -> float:
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(points)
        for later in points[index + 1 :]
        if later[0] > earlier[0]
    ]
    return median(slopes) if slopes else 0.0


def _quality(rate: float | None, *, exact: bool) -> Quality:
    if rate is None:
        return Quality("unavailable")
    if exact and rate >= FREE_LISTS_HIDE:
        return Quality("exact")
    return Quality("lower", rate)


class LeakTally:
    """Everything that leak hunts have told; ``None`` of it where there was no hunt."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], GrowthTally] = {}
        self._sites: GrowthSites | None = None
        self._collections = 0
        self._collect_ns = 0
        self._notes: dict[str, None] = {}
        self._hunted = False
        self._others: list[LeakHunt] = []

    def add(self, frame: GrowthSample | GrowthSites) -> None:
        """Take one frame in."""
        self._hunted = True
        if isinstance(frame, GrowthSites):
            self._sites = frame
            return
        for method, name, calls, held, groups in frame.rows:
            tally = self._tallies.setdefault((method, name), GrowthTally(method, name))
            tally.add(calls, held, groups, frame)
        self._collections, self._collect_ns = frame.collections, frame.collect_ns
        self._notes = dict.fromkeys(frame.notes)

    def merge(self, other: LeakTally) -> None:
        """Add another process's hunt as it stands: its blocks and its calls have nothing to do with ours."""
        found = other.hunt()
        if found is not None:
            self._others.append(found)

    def hunt(self) -> LeakHunt | None:
        """What was found, in all processes."""
        own = [self._own()] if self._hunted else []
        hunts = [*own, *self._others]
        if not hunts:
            return None
        return LeakHunt(
            operations=tuple(sorted((row for hunt in hunts for row in hunt.operations), key=_rank)),
            collections=sum(hunt.collections for hunt in hunts),
            collect_ms=sum(hunt.collect_ms for hunt in hunts),
            lines=tuple(line for hunt in hunts for line in hunt.lines),
            types=tuple(kind for hunt in hunts for kind in hunt.types),
            notes=tuple(dict.fromkeys(note for hunt in hunts for note in hunt.notes)),
        )

    def _own(self) -> LeakHunt:
        return LeakHunt(
            operations=tuple(
                tally.row(tuple(self._lines(tally.name)), tuple(self._types(tally.name)))
                for tally in self._tallies.values()
            ),
            collections=self._collections,
            collect_ms=self._collect_ns / 1e6,
            lines=tuple(self._lines("")),
            types=tuple(self._types("")),
            notes=tuple(self._notes),
        )

    def _lines(self, operation: str) -> Iterator[GrowthLine]:
        for owner, file, line, function, size, blocks in () if self._sites is None else self._sites.lines:
            if owner == operation:
                yield GrowthLine(file, line, function, size, blocks)

    def _types(self, operation: str) -> Iterator[GrowthType]:
        for owner, name, objects, size, each in () if self._sites is None else self._sites.types:
            if owner == operation:
                yield GrowthType(name, objects, size, each)


def _rank(row: Growth) -> tuple[bool, float, int, str]:
    return row.verdict != "grows", -(row.bytes_per_call or 0.0), -row.held_bytes, row.name
