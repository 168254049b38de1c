"""How many requests awaited one thing at once: does a backend get slower under load, how large should a pool be.

The level of an await is the mean number of awaits of the same thing over its time, itself included. So ten that begin
together have level ten, each of them. The mean over the time in which anybody awaited the thing is Little's L for its
queue in that time (J. D. C. Little, "A Proof for the Queuing Formula: L = λW", Operations Research 9, 1961).

Bounded: the latest :data:`KEPT` awaits of each of :data:`MAX_THINGS` things. A record that stands for n requests counts
n times in both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.model import AwaitKind, AwaitLoad, LoadLevel, RequestRecord

KEPT = 1_024
MAX_THINGS = 32

KINDS: frozenset[AwaitKind] = frozenset(
    {"http", "db", "subprocess", "other", "connection-pool", "semaphore", "limiter"}
)
"""Backends, and what several can have at once."""

Thing = tuple[AwaitKind, str]
_Span = tuple[int, int, int, int, str, str | None]
"""(from_ns, to_ns, ns of it that count, weight, operation, line)"""


class RecentAwaits:
    """The latest awaits of each thing, of one stream of records: their instants are of one clock."""

    def __init__(self) -> None:
        self._by_thing: dict[Thing, deque[_Span]] = {}

    def add(self, record: RequestRecord) -> None:
        """Remember what ``record`` awaited. Sums of short awaits have no instants and are left out."""
        for one in record.awaits or ():
            if one.kind not in KINDS or one.count != 1 or one.ns <= 0 or one.phase not in (None, "first-byte"):
                continue
            if one.stage == "busy":
                continue  # no two at once
            thing = (one.kind, one.object)
            spans = self._by_thing.get(thing)
            if spans is None:
                if len(self._by_thing) >= MAX_THINGS:
                    continue
                spans = self._by_thing[thing] = deque(maxlen=KEPT)
            spans.append((one.from_ns, one.to_ns, one.ns, record.weight, record.name or record.method, one.where))

    def tally_into(self, loads: Loads) -> None:
        """Add them to ``loads``; changes nothing here."""
        for thing, spans in self._by_thing.items():
            _tally(spans, loads.of(thing))


@dataclass(slots=True)
class ThingTally:
    """One thing. ``levels``: (operation, level) -> lengths, where level n is from 2^(n-1)+1 to 2^n awaits at once."""

    awaited_ns: int = 0  # sum of the awaits
    any_ns: int = 0  # time in which at least one was under way
    levels: dict[tuple[str, int], Buckets] = field(default_factory=dict)

    def merge(self, other: ThingTally) -> None:
        """Add ``other``: the awaits of another process."""
        self.awaited_ns += other.awaited_ns
        self.any_ns += other.any_ns
        for key, lengths in other.levels.items():
            self.levels.setdefault(key, Buckets()).merge(lengths)


class Loads:
    """All things; merging is addition."""

    def __init__(self) -> None:
        self._by_thing: dict[Thing, ThingTally] = {}

    def of(self, thing: Thing) -> ThingTally:
        """The tally of ``thing``."""
        return self._by_thing.setdefault(thing, ThingTally())

    def merge(self, other: Loads) -> None:
        """Add ``other``, which stays as it is."""
        for thing, tally in other._by_thing.items():
            self.of(thing).merge(tally)

    def summaries(self) -> tuple[AwaitLoad, ...]:
        """One row per thing and operation, in the order of their names."""
        rows = []
        for (kind, name), tally in self._by_thing.items():
            mean = tally.awaited_ns / tally.any_ns if tally.any_ns else 0.0
            for operation in sorted({operation for operation, _ in tally.levels}):
                levels = sorted((level, found) for (of, level), found in tally.levels.items() if of == operation)
                rows.append(AwaitLoad(operation, kind, name, mean, tuple(_level(*one) for one in levels)))
        return tuple(sorted(rows, key=lambda row: (row.kind, row.object, row.operation)))


def _level(level: int, lengths: Buckets) -> LoadLevel:
    least = 1 if level == 0 else 2 ** (level - 1) + 1
    return LoadLevel(least, 2**level, lengths.count, (lengths.quantile(0.5) or 0.0) / 1e6)


def _tally(spans: deque[_Span], tally: ThingTally) -> None:
    changes: dict[int, int] = {}
    for since, until, _, weight, _, _ in spans:
        changes[since] = changes.get(since, 0) + weight
        changes[until] = changes.get(until, 0) - weight
    instants = sorted(changes)
    areas, counts = [0], [changes[instants[0]] if instants else 0]  # up to each instant; from it on
    for before, at in pairwise(instants):
        areas.append(areas[-1] + counts[-1] * (at - before))
        tally.any_ns += at - before if counts[-1] else 0
        counts.append(counts[-1] + changes[at])
    tally.awaited_ns += areas[-1]

    def area(at: int) -> int:
        index = bisect_right(instants, at) - 1
        return areas[index] + counts[index] * (at - instants[index])

    lines = _lines(spans)
    for since, until, ns, weight, operation, where in spans:
        if lines[operation] != where:
            continue
        level = max(1, round((area(until) - area(since)) / (until - since)))
        key = (operation, (level - 1).bit_length())
        lengths = tally.levels.get(key)
        if lengths is None:
            lengths = tally.levels[key] = Buckets()
        lengths.add(ns, weight)


def _lines(spans: Iterable[_Span]) -> dict[str, str | None]:
    """The line of each operation that waited longest. Another line may ask for something else, which is quick and comes
    at other times: it would seem that the thing gets slower under load."""
    waited: Counter[tuple[str, str | None]] = Counter()
    for _, _, ns, weight, operation, where in spans:
        waited[operation, where] += ns * weight
    return {operation: where for (operation, where), _ in reversed(waited.most_common())}
