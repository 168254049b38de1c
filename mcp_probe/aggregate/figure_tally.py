"""One figure over many calls, as it was reported, with its lower and its upper bound.

The median of the lower bounds is a lower bound of the median, and the largest of them is a lower bound of the largest.
If one call has no bound on a side, the figure has none on that side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.aggregate.quality import worst
from mcp_probe.model import Quality, Tag


@dataclass(slots=True)
class FigureTally:
    """One figure over the calls that know it.

    Most calls know it exactly: such a value is kept once, and read as the figure and as both of its bounds.
    """

    exact: Buckets = field(default_factory=Buckets)
    inexact: Buckets = field(default_factory=Buckets)
    least: Buckets = field(default_factory=Buckets)  # lower bounds of the inexact ones
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
            self.exact.add(value, weight)
            self._note_largest(value, value, value)
            return
        if tag != self.tag:
            self.tag = worst((self.tag, tag))
        lo = value if lo is None and tag == "lower" else lo
        hi = value if hi is None and tag == "upper" else hi
        self.open_below = self.open_below or lo is None
        self.open_above = self.open_above or hi is None
        self.inexact.add(value, weight)
        self.least.add(lo or 0, weight)
        self.most.add(hi or 0, weight)
        self._note_largest(value, lo or 0, hi or 0)

    def _note_largest(self, value: int, least: int, most: int) -> None:
        if value > self.max:
            self.max = value
        if least > self.max_least:
            self.max_least = least
        if most > self.max_most:
            self.max_most = most

    def merge(self, other: FigureTally) -> None:
        """Add ``other``, which stays as it is."""
        self.exact.merge(other.exact)
        self.inexact.merge(other.inexact)
        self.least.merge(other.least)
        self.most.merge(other.most)
        self._note_largest(other.max, other.max_least, other.max_most)
        self.tag = worst((self.tag, other.tag))
        self.open_below = self.open_below or other.open_below
        self.open_above = self.open_above or other.open_above
        self.unseen += other.unseen
        self.estimated = self.estimated or other.estimated

    @property
    def values(self) -> Buckets:
        """The figure as it was reported, over all calls."""
        return self._with_exact(self.inexact)

    def _with_exact(self, others: Buckets) -> Buckets:
        if not others.rows:
            return self.exact
        both = Buckets()
        both.merge(self.exact)
        both.merge(others)
        return both

    def qualities(self, name: str) -> Iterator[tuple[str, Quality]]:
        """``name`` is of the median, ``name_max`` of the largest; none where they are exact."""
        if not self.exact.rows and not self.inexact.rows:
            if self.unseen:
                yield name, Quality("unavailable")
            return
        if self.estimated:
            yield name, Quality("estimate")
            yield f"{name}_max", Quality("lower", self.max_least)
            return
        if self.tag == "exact":
            return
        least, most = self._with_exact(self.least), self._with_exact(self.most)
        for key, lo, hi in (
            (name, least.quantile(0.5), most.quantile(0.5)),
            (f"{name}_max", self.max_least, self.max_most),
        ):
            yield key, Quality(self.tag, None if self.open_below else lo, None if self.open_above else hi)
