"""Arms: calls that take turns, what came of each way to make them, and the rows and figures that are made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Little, Measured, Stats, Why
from mcp_probe.workloads.bench.statistics import floor_of, quickest, ratio_of, scaled
from mcp_probe.workloads.scenarios.tables import Round, Table


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to make calls. ``floor``: A/A of the arms it took turns with. ``wall_ms``: every round, the first too."""

    stats: Stats
    floor: float | None
    wall_ms: Sequence[float]
    little: Little | None
    why: Why | str

    @property
    def quickest_ms(self) -> float:
        """The quickest round."""
        return min(self.wall_ms)

    def over(self, under: Arm) -> Measured:
        """Median over median."""
        return ratio_of(self.stats, under.stats, floor_of(self.floor, under.floor))

    def quickest_over(self, under: Arm | float) -> Measured:
        """Quickest round over the other's, or over so many milliseconds."""
        if isinstance(under, Arm):
            floor, contended = floor_of(self.floor, under.floor), self.stats.contended or under.stats.contended
            return quickest(self.wall_ms, under.wall_ms, floor=floor, contended=contended)
        return scaled(quickest(self.wall_ms, floor=self.floor, contended=self.stats.contended), 1 / under)


async def take_turns(
    bench: Bench,
    ways: Mapping[str, Round],
    rounds: int,
    *servers: ProfiledServer,
    twin: str | None = None,
    warm_up: int = 0,
    excused: str = "",
) -> dict[str, Arm]:
    """Rounds of all ``ways`` by turns; ``twin`` has two turns in each, for the A/A floor.

    Each way's last round is a phase of its label at each of ``servers``, and the first of them says where its time
    went. ``excused``: why Little's law may not fit.
    """
    found = await bench.interleaved(ways, rounds, twin=twin, warm_up=warm_up)
    for label, way in ways.items():
        for server in servers:
            server.mark(label, way.last_ns)
    whys = {label: servers[0].later(label) if servers else "" for label in ways}
    return {
        label: Arm(found.stats[label], found.floor, way.wall_ms, way.little(excused), whys[label])
        for label, way in ways.items()
    }


def put_arm(
    table: Table, label: str, arm: Arm, documented: float | None = None, *, unit: str = "ms", **more: Any
) -> None:
    """The arm's row. ``unit``: of what its rounds give."""
    fields: dict[str, Any] = {"floor": arm.floor, "little": arm.little, "why": arm.why, **more}
    table.put(label, unit, arm.stats, documented, **fields)


def put_ratio(table: Table, label: str, over: Arm, under: Arm, documented: float | None = None, **more: Any) -> None:
    """A row of median over median, whatever the size of the run."""
    table.put(label, "×", over.over(under), documented, **{"metric": "ratio", "scale": 1.0, **more})
