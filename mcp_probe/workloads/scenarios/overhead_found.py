"""One row of what a layer costs: the calls of a round, and what its rounds came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from mcp_probe.workloads.bench.shapes import Measured, Stats
from mcp_probe.workloads.bench.statistics import halves_floor, ratio_floor
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.tables import Burst, One


@dataclass(frozen=True, slots=True)
class Case:
    """One row: ``calls[k]`` go to provider k. ``scale`` is the size of a round over the document's."""

    key: str
    label: str
    calls: tuple[tuple[Call, ...], ...]
    rounds: int
    scale: float = 1.0
    one_by_one: bool = False
    note: str = ""

    @property
    def count(self) -> int:
        """Calls of a round."""
        return sum(map(len, self.calls))

    def round_of(self, ways: Sequence[One]) -> Burst:
        """One round, each provider's calls by its own way."""
        plan = [(ways[place], call) for place, calls in enumerate(self.calls) for call in calls]
        return Burst(plan, one_by_one=self.one_by_one)


@dataclass
class Found:
    """What one case came to. Of calls that are made one by one the median call is compared, else the median round."""

    stats: dict[str, Stats]
    bursts: dict[str, Burst]
    why: str
    one_by_one: bool

    @property
    def floor(self) -> float:
        """A/A: the direct client against itself."""
        return ratio_floor([self.level("direct")], [self.level("direct again")])

    @property
    def contended(self) -> bool:
        """Whether others used the machine meanwhile."""
        return any(stats.contended for stats in self.stats.values())

    def compared(self, label: str) -> Measured:
        """Over the direct client, with what the direct client differs from itself by."""
        return Measured(self.level(label) / self.level("direct"), floor=self.floor, contended=self.contended)

    def percent(self, label: str, over: str = "direct") -> float:
        """What it takes more than ``over``."""
        return 100 * (self.level(label) / self.level(over) - 1)

    def us_per_call(self, label: str, case: Case) -> float:
        """What a call takes longer; of calls made at once the round's excess is shared out."""
        excess_ms = self.level(label) - self.level("direct")
        return 1e3 * (excess_ms if self.one_by_one else excess_ms / case.count)

    def halves(self, label: str) -> float | None:
        """A/A of one of them: every other call, or round, against the rest."""
        return halves_floor(self.bursts[label].latency_ms) if self.one_by_one else self.stats[label].halves

    def level(self, label: str) -> float:
        """Milliseconds: what is compared."""
        return median(self.bursts[label].latency_ms) if self.one_by_one else self.stats[label].median
