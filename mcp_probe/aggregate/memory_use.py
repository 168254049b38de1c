"""What the calls of one operation asked for, held at most and kept; and how exact that is."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcp_probe.aggregate.figure_tally import FigureTally
from mcp_probe.model import MemoryStats, MemoryUse, OperationMemory, Quality

FIGURES = ("requested", "peak", "retained")

_NOT_MEASURED = MemoryStats(None, None)


def _stats(tally: FigureTally) -> MemoryStats:
    """Median and largest of the calls that know it."""
    p50 = tally.values.quantile(0.5)
    return _NOT_MEASURED if p50 is None else MemoryStats(round(p50), tally.max)


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
        """Add one call's memory, which counts for ``weight`` calls."""
        exact, figures = dict(zip(FIGURES, (use.requested, use.peak, use.retained), strict=True)), self.figures
        if any(value is not None for value in exact.values()):
            self.measured += 1
        for name, tag, lo, hi in use.quality:
            if name in exact:
                figures[name].add(exact.pop(name), tag, lo, hi, weight)
        for name, value in exact.items():
            figures[name].add(value, "exact", None, None, weight)
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
            requested=_stats(self.figures["requested"]),
            peak=_stats(self.figures["peak"]),
            retained=_stats(self.figures["retained"]),
            arguments=_stats(self.arguments),
            result=_stats(self.result),
            measured=self.measured,
            method=method,
            scope=scope,
        )
