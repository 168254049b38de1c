"""Measures over the calls of one operation (:mod:`mcp_probe.measures`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcp_probe.aggregate.figure_tally import FigureTally
from mcp_probe.measures import BY_NAME, Measure
from mcp_probe.model import MeasureStats, Quality, Tag


@dataclass(slots=True)
class MeasuresTally:
    """Everything the measures of one operation sum up to. Merging is addition.

    A measure that this version does not declare is left out, for its unit is not known here; ``unknown`` names it.
    """

    tallies: dict[str, FigureTally] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def add(self, rows: tuple[tuple[str, int | None, Tag], ...], weight: int) -> None:
        """Add one call's measures, which count for ``weight`` calls."""
        for name, value, tag in rows:
            if name in BY_NAME:
                self._of(name).add(value, tag, None, None, weight)
            else:
                self.unknown.add(name)

    def _of(self, name: str) -> FigureTally:
        tally = self.tallies.get(name)
        if tally is None:  # no ``setdefault``: this is asked for each measure of each call
            tally = self.tallies[name] = FigureTally()
        return tally

    def merge(self, other: MeasuresTally) -> None:
        """Add ``other``, which stays as it is."""
        for name, tally in other.tallies.items():
            self._of(name).merge(tally)
        self.unknown |= other.unknown

    def quality(self) -> dict[str, Quality]:
        """The quality of each measure that is not exact, by its key."""
        scaled = {}
        for name, tally in self.tallies.items():
            measure = BY_NAME[name]
            for key, quality in tally.qualities(measure.key):
                scaled[key] = Quality(quality.tag, _shown(quality.lo, measure), _shown(quality.hi, measure))
        return scaled

    def summary(self) -> dict[str, MeasureStats]:
        """The figures of each measure, by its key."""
        return {BY_NAME[name].key: self._stats(tally, BY_NAME[name]) for name, tally in self.tallies.items()}

    def _stats(self, tally: FigureTally, measure: Measure) -> MeasureStats:
        values = tally.values
        if not values.rows:
            return MeasureStats(None, None, None)
        mean = values.total / values.count
        return MeasureStats(*(_shown(number, measure) for number in (mean, values.quantile(0.5), tally.max)))


def _shown(value: float | None, measure: Measure) -> float | None:
    return value / 1e6 if value is not None and measure.unit == "ns" else value
