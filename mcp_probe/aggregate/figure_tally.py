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

    def qualities(self, name: str) -> Iterator[tuple[str, Quality]]:
        """How exact the median (``name``) and the largest (``name_max``) are; nothing if they are exact."""
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
