"""What the calls of one operation asked for, held at most and kept; and how exact that is.

Each figure is kept three times: as it was reported, as its lower and as its upper bound. The median of lower bounds
bounds the median from below, and so does the largest of them the largest; an open end on any call leaves it open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.aggregate.quality import worst
from mcp_probe.model import MemoryStats, MemoryUse, OperationMemory, Quality, Tag

FIGURES = ("requested", "peak", "retained")

_NOT_MEASURED = MemoryStats(None, None)


@dataclass(slots=True)
class FigureTally:
    """One figure over the calls that know it."""

    values: Buckets = field(default_factory=Buckets)
    least: Buckets = field(default_factory=Buckets)
    most: Buckets = field(default_factory=Buckets)
    max: int = 0
    max_least: int = 0
    max_most: int = 0
    tag: Tag = "exact"
    open_below: bool = False
    open_above: bool = False
    unseen: int = 0
    estimated: bool = False  # some of these calls stand for others

    def add(self, value: int | None, tag: Tag, lo: int | None, hi: int | None, weight: int = 1) -> None:
        """One call's figure; ``tag`` "exact" needs no bounds."""
        if value is None:
            self.unseen += weight
            return
        if weight > 1:
            self.estimated = True
        if tag == "exact":
            lo = hi = value
        else:
            self.tag = worst((self.tag, tag))
            lo = value if lo is None and tag == "lower" else lo
            hi = value if hi is None and tag == "upper" else hi
        self.values.add(value, weight)
        self.max = max(self.max, value)
        self.open_below = self.open_below or lo is None
        self.open_above = self.open_above or hi is None
        self.least.add(lo or 0, weight)
        self.most.add(hi or 0, weight)
        self.max_least = max(self.max_least, lo or 0)
        self.max_most = max(self.max_most, hi or 0)

    def merge(self, other: FigureTally) -> None:
        """Add ``other``, which stays as it is."""
        self.values.merge(other.values)
        self.least.merge(other.least)
        self.most.merge(other.most)
        self.max = max(self.max, other.max)
        self.max_least = max(self.max_least, other.max_least)
        self.max_most = max(self.max_most, other.max_most)
        self.tag = worst((self.tag, other.tag))
        self.open_below = self.open_below or other.open_below
        self.open_above = self.open_above or other.open_above
        self.unseen += other.unseen
        self.estimated = self.estimated or other.estimated

    @property
    def stats(self) -> MemoryStats:
        """Median and largest of the calls that know it."""
        p50 = self.values.quantile(0.5)
        return _NOT_MEASURED if p50 is None else MemoryStats(round(p50), self.max)

    def qualities(self, name: str) -> Iterator[tuple[str, Quality]]:
        """``name`` is of the median, ``name_max`` of the largest; none where they are exact."""
        if not self.values.rows:
            if self.unseen:
                yield name, Quality("unavailable")
            return
        if self.estimated:
            yield name, Quality("estimate")
            yield f"{name}_max", Quality("lower", self.max_least)
            return
        if self.tag == "exact":
            return
        for key, lo, hi in (
            (name, self.least.quantile(0.5), self.most.quantile(0.5)),
            (f"{name}_max", self.max_least, self.max_most),
        ):
            yield key, Quality(self.tag, None if self.open_below else lo, None if self.open_above else hi)


def _figures() -> dict[str, FigureTally]:
    return {name: FigureTally() for name in FIGURES}


@dataclass(slots=True)
class MemoryTally:
    """Everything the memory figures of one operation sum up to. Merging is addition."""

    figures: dict[str, FigureTally] = field(default_factory=_figures)
    arguments: FigureTally = field(default_factory=FigureTally)
    result: FigureTally = field(default_factory=FigureTally)
    measured: int = 0
    how: dict[tuple[str, str], int] = field(default_factory=dict)  # (method, scope) -> calls

    def add(self, use: MemoryUse, weight: int = 1) -> None:
        """One call's memory; ``weight``: of how many calls it is taken to be."""
        rows = {name: (tag, lo, hi) for name, tag, lo, hi in use.quality}
        known = False
        for name, tally in self.figures.items():
            value: int | None = getattr(use, name)
            known = known or value is not None
            tally.add(value, *rows.get(name, ("exact", None, None)), weight)
        self.measured += known
        how = (use.method, use.scope)
        self.how[how] = self.how.get(how, 0) + weight
        if use.arguments is not None:
            self.arguments.add(use.arguments, "exact", None, None, weight)
        if use.result is not None:
            self.result.add(use.result, "exact", None, None, weight)

    def merge(self, other: MemoryTally) -> None:
        """Add ``other``, which stays as it is."""
        for name, tally in self.figures.items():
            tally.merge(other.figures[name])
        self.arguments.merge(other.arguments)
        self.result.merge(other.result)
        self.measured += other.measured
        for how, calls in other.how.items():
            self.how[how] = self.how.get(how, 0) + calls

    def quality(self) -> dict[str, Quality]:
        """Every figure that is not exact; nothing where nothing was measured."""
        return {key: quality for name, tally in self.figures.items() for key, quality in tally.qualities(name)}

    def summary(self) -> OperationMemory:
        """The row's figures; method and scope are those of most calls."""
        most = max(self.how, key=lambda how: (self.how[how], how), default=None)
        method, scope = (None, None) if most is None else most
        return OperationMemory(
            requested=self.figures["requested"].stats,
            peak=self.figures["peak"].stats,
            retained=self.figures["retained"].stats,
            arguments=self.arguments.stats,
            result=self.result.stats,
            measured=self.measured,
            method=method,
            scope=scope,
        )
