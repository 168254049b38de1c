"""Does the memory that a tool's calls keep grow with the calls? From growth samples to one row for each operation.

If blocks have owners, the order of the calls tells it. Memory grows if, after a full collection, the *older* half of
the calls still holds memory, group by group, and not only the newest. A full cache holds entries of its latest calls.
A cache that is filled once, a first call's set-up, and garbage hold nothing in the older half. A cache that is not full
yet when the run ends looks like a leak, and cannot be told from one by then.

If only totals are known (tracemalloc), memory grows if the total rises over the second half of the calls: from look to
look in four cases of five, and at least half as fast as over all calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from mcp_probe.aggregate.process_growth import ProcessLooks, slope
from mcp_probe.model import (
    Growth,
    GrowthLine,
    GrowthSample,
    GrowthSites,
    GrowthType,
    LeakHunt,
    MemoryMethod,
    PeakLine,
    ProcessGrowth,
    Quality,
)

MIN_CALLS = 50
"""With fewer calls of an operation nothing is said about its growth."""

MIN_BYTES = 256.0
"""Bytes a call. Workload: a clean tool of mcp 2.3. Its latest thousand calls keep up to 200 of bookkeeping (notes of
slow steps and thread jobs, contexts of idle worker threads)."""

FEW_LOOKS_BYTES = 512.0
"""The same before there are :data:`MIN_POINTS` looks. Workload: ninety quick calls of `benchmarks/memory_kinds.py`
(`weak_dicts`, `c_through_ctypes`) with mcp 2.3, which end after one to three: each seemed to keep 256 to 306 bytes."""

MIN_TRACED_BYTES = 32.0
"""Bytes a call if they are not bookkeeping: one line of the server, or of a library that it chose, allocated much of
them in most calls. Workload: clean tools of mcp 2.3. Four groups in five hold 0-6 bytes a call; on a busy machine up to
80, in tuples that the SDK's worker threads and the probe allocate."""

AT_ONE_LINE, OF_CALLS = 0.25, 0.8
"""Of the bytes, and of the calls whose blocks were looked at. CPython takes up to two thirds of a small dict from its
free lists, and then its trace is of whoever allocated it first. Workload: `lru_cache` passes the 56 bytes of its links
from call to call. So calls that filled it seem to hold them for ever, but only as many as it has entries."""

FEW_LOOKS_AT_ONE_LINE = 0.5
"""Of the bytes, before there are :data:`MIN_POINTS` looks. Workload: `weak_dicts` as above, whose weak references of
80 B a call stand beside some 200 B of bookkeeping: 0.29 of what its calls seemed to keep."""

LEAST_OF_MEAN, FEW_LOOKS_OF_MEAN = 0.25, 0.5
"""Calls that still hold the least must hold so much of the mean of all; the second before there are :data:`MIN_POINTS`
looks. Workload: `weak_dicts` as above, 125 to 183 B of a mean of 580."""

LINES_LATE = 0.5
"""Share of the calls so far that a look at lines must have seen: a cache that was filling then is full, or twice as
large."""

STILL_HELD = 0.8
"""This share of the older half's groups must still hold as much: a cache that holds three quarters of the calls has
released the oldest ones by the end."""

FREE_LISTS_HIDE = 2048.0
"""Below this many bytes a call, free lists may hide as much: 500 were measured as 170. Source: docs/memory.md."""

MAX_POINTS = 64
MIN_POINTS = 4
"""Looks at different numbers of calls, from which on they are a course."""

Point = tuple[int, int]
"""(calls, bytes still held by all of them)"""


@dataclass(frozen=True, slots=True)
class Sites:
    """What the latest look found for one operation, how many calls there were by then, and how many were looked at."""

    calls: int | None = None
    seen: int = 0
    lines: tuple[GrowthLine, ...] = ()
    types: tuple[GrowthType, ...] = ()
    own_files: tuple[str, ...] = ()

    def is_at_one_line(self, each: float, calls: int, share: float) -> bool:
        """Whether a line of the server's own allocated ``share`` of ``each`` bytes a call, in most of ``calls``."""
        if self.calls is None or not self.seen or self.calls < LINES_LATE * calls:
            return False
        return any(
            line.file in self.own_files
            and line.blocks >= OF_CALLS * self.seen
            and line.bytes >= share * each * self.seen
            for line in self.lines
        )


@dataclass(slots=True)
class GrowthTally:
    """One operation's samples: the latest groups, and the totals over time, thinned out if there are many."""

    method: str
    name: str
    calls: int = 0
    held_bytes: int = 0
    groups: tuple[Point, ...] = ()
    points: list[Point] = field(default_factory=list)
    how: MemoryMethod = "native-shadow"
    scope: str = ""

    def add(self, calls: int, held: int, groups: tuple[Point, ...], sample: GrowthSample) -> None:
        """Add a sample, which covers all calls so far."""
        self.calls, self.held_bytes, self.groups = calls, held, groups
        self.how, self.scope = sample.how, sample.scope
        if self.points and self.points[-1][0] == calls:
            self.points[-1] = (calls, held)
        else:
            self.points.append((calls, held))
        if len(self.points) > MAX_POINTS:
            self.points = [*self.points[1:-1:2], self.points[-1]]

    def row(self, sites: Sites, *, are_lines_known: bool) -> Growth:
        """The operation's row."""
        per_call = self._of_groups(sites, are_lines_known) if self.groups else self._of_points()
        grows, rate, floor = per_call or (False, None, None)
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
            lines=sites.lines,
            types=sites.types,
            floor_bytes=floor,
            looked_at_calls=sites.calls,
            seen_calls=None if sites.calls is None else sites.seen,
        )

    def _of_groups(self, sites: Sites, are_lines_known: bool) -> tuple[bool, float, float] | None:
        """(whether it grows, bytes a call, the smallest growth that would be found).

        Leaves out the first group, which includes set-up, and the newest one.
        """
        if self.calls < MIN_CALLS or len(self.groups) < 4:
            return None
        settled = self.groups[1:-1]
        rate = sum(held for _, held in settled) / max(1, sum(calls for calls, _ in settled))
        older = sorted(held / max(1, calls) for calls, held in settled[: len(self.groups) // 2])
        least = older[int((1 - STILL_HELD) * len(older))]
        share, untraced, of_mean = AT_ONE_LINE, MIN_BYTES, LEAST_OF_MEAN
        if len(self.points) < MIN_POINTS:
            share, untraced, of_mean = FEW_LOOKS_AT_ONE_LINE, FEW_LOOKS_BYTES, FEW_LOOKS_OF_MEAN
        is_at_line = sites.is_at_one_line(least, self.calls, share)
        is_traced = is_at_line or (are_lines_known and least < MIN_TRACED_BYTES)
        enough = MIN_TRACED_BYTES if is_traced else untraced
        grows = least >= max(enough, rate * of_mean)
        floor = max(enough, rate * of_mean / (1 - of_mean))  # a leak would be part of the average
        if grows and rate < FREE_LISTS_HIDE:  # reported as a lower bound, and the mean includes bookkeeping
            rate = least
        return grows, rate, floor

    def _of_points(self) -> tuple[bool, float, float] | None:
        """The same, from the totals over time; slopes are the median of all pairs (Theil and Sen)."""
        late = [point for point in self.points if point[0] >= self.calls / 2]
        if self.calls < MIN_CALLS or len(self.points) < MIN_POINTS or len(late) < 3:
            return None
        whole, second = slope(self.points), slope(late)
        rises = sum(after[1] > before[1] for before, after in pairwise(late)) / (len(late) - 1)
        grows = rises >= STILL_HELD and second >= max(MIN_BYTES, whole / 2)
        return grows, max(0.0, second), max(MIN_BYTES, whole)


def _quality(rate: float | None, *, exact: bool) -> Quality:
    if rate is None:
        return Quality("unavailable")
    if exact and rate >= FREE_LISTS_HIDE:
        return Quality("exact")
    return Quality("lower", rate)


class LeakTally:
    """Everything that leak hunts have found; ``None`` if there was no hunt."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], GrowthTally] = {}
        self._sites: GrowthSites | None = None
        self._looks: dict[str, tuple[int, int]] = {}
        self._last: GrowthSample | None = None
        self._hunted = False
        self._others: list[LeakHunt] = []
        self._process = ProcessLooks()

    def add(self, frame: GrowthSample | GrowthSites) -> None:
        """Take one frame in."""
        self._hunted = True
        if isinstance(frame, GrowthSites):
            self._sites = frame
            # A recording of an older version has no looks: its lines are of all calls.
            self._looks = {name: (tally.calls, tally.calls) for (_, name), tally in self._tallies.items()}
            self._looks.update((name, (calls, seen)) for name, calls, seen in frame.looks)
            return
        self._last = frame
        self._process.add(frame)
        for method, name, calls, held, groups in frame.rows:
            tally = self._tallies.setdefault((method, name), GrowthTally(method, name))
            tally.add(calls, held, groups, frame)

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
            peaks=tuple(peak for hunt in hunts for peak in hunt.peaks),
            are_lines_known=all(hunt.are_lines_known for hunt in hunts),
            tracing_factor=max((hunt.tracing_factor for hunt in hunts if hunt.tracing_factor), default=None),
            process=max((hunt.process for hunt in hunts if hunt.process), key=_beside_calls, default=None),
        )

    def _own(self) -> LeakHunt:
        last = self._last
        return LeakHunt(
            operations=tuple(
                tally.row(self._sites_of(tally.name), are_lines_known=last is not None and last.are_lines_known)
                for tally in self._tallies.values()
            ),
            collections=0 if last is None else last.collections,
            collect_ms=0.0 if last is None else last.collect_ns / 1e6,
            lines=tuple(self._lines("")),
            types=tuple(self._types("")),
            notes=() if last is None else last.notes,
            peaks=() if last is None else tuple(PeakLine(*row) for row in last.peaks),
            are_lines_known=last is not None and last.are_lines_known,
            tracing_factor=_factor(last),
            process=self._process.growth(),
        )

    def _sites_of(self, operation: str) -> Sites:
        lines, types = tuple(self._lines(operation)), tuple(self._types(operation))
        calls, seen = self._looks.get(operation, (None, 0)) if lines or types else (None, 0)
        return Sites(calls, seen, lines, types, () if self._sites is None else self._sites.own_files)

    def _lines(self, operation: str) -> Iterator[GrowthLine]:
        for owner, file, line, function, size, blocks in () if self._sites is None else self._sites.lines:
            if owner == operation:
                yield GrowthLine(file, line, function, size, blocks)

    def _types(self, operation: str) -> Iterator[GrowthType]:
        for owner, name, objects, size, each in () if self._sites is None else self._sites.types:
            if owner == operation:
                yield GrowthType(name, objects, size, each)


def _beside_calls(process: ProcessGrowth) -> tuple[bool, int]:
    """Of several processes the one that shows the largest growth beside its calls is told."""
    return any(part.verdict == "grows" for part in process.remainders), process.resident_bytes - process.owned_bytes


def _factor(sample: GrowthSample | None) -> float | None:
    if sample is None or sample.allocation_ns is None:
        return None
    before, traced = sample.allocation_ns
    return traced / before if before > 0 else None


def _rank(row: Growth) -> tuple[bool, float, int, str]:
    return row.verdict != "grows", -(row.bytes_per_call or 0.0), -row.held_bytes, row.name
