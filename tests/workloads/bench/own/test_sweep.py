"""The sweep's reasons: from a run under the probe, and only where that run was as quick."""

from __future__ import annotations

import math
from random import Random
from typing import Any, cast

import anyio
import pytest

from mcp_probe.workloads.bench.own.knee import Level
from mcp_probe.workloads.bench.own.sweep import MOST_REPEATS, Sweep


class Told:
    """Readings of every level."""

    def has(self, *labels: str) -> bool:
        return True

    def why(self, name: str, *, quicker: str) -> str:
        return f"Calls of {name} waited. From {quicker} to {name} it was the lock."


def swept(probed: float | None) -> Sweep:
    """40 in flight, 300 and 340 calls a second without the probe; ``probed`` a second under it."""
    levels = [Level(40, 1.0, (100.0,) * calls) for calls in (300, 340)]
    nobody: Any = None
    found = Sweep(nobody, nobody, nobody, 1.0, {40: levels}, cast("Any", Told()))
    if probed is not None:
        found.probed[40] = probed
    return found


@pytest.mark.parametrize("probed", [400.0, 241.0, None])
def test_a_level_that_was_as_quick_under_the_probe_has_its_reasons(probed: float | None) -> None:
    assert swept(probed).why(40) == "Calls of sweep 40 waited. From sweep 1 to sweep 40 it was the lock."


def test_a_level_that_the_probe_made_slower_has_none_and_says_so() -> None:
    assert swept(239.0).why(40) == swept(239.0).slower(40)
    assert swept(239.0).slower(40) == (
        "What limits it cannot be told: with 40 in flight it answered 239/s under the probe, 320/s without."
    )


class Noisy(Sweep):
    """A server of eight places on a machine that takes up to ``noise`` of each level's throughput away."""

    noise = 0.0

    async def measure(self, in_flight: int, what: str, number: int | None = None) -> Level:
        rate = 10 * min(in_flight, 8) * (1 - self.noise * Random(f"{in_flight} {what}").random())
        found = Level(in_flight, 1.0, (1e3 * in_flight / rate,) * round(rate))
        self.levels.setdefault(in_flight, []).append(found)
        return found


@pytest.mark.parametrize(
    ("noise", "fewest", "most"), [(0.02, 3, 4), (0.3, 5, 10), (0.95, MOST_REPEATS - 1, MOST_REPEATS)]
)
def test_levels_are_repeated_until_they_tell_a_curve_or_no_more_would_help(
    noise: float, fewest: int, most: int
) -> None:
    class Present:
        def gone(self) -> bool:
            return False

    nobody: Any = None
    found = Noisy(nobody, cast("Any", Present()), nobody, 1.0)
    found.noise = noise

    async def measured() -> None:
        await found.up(64)
        await found.again((1, 2, 4, 6, 8, 10, 16), 4)
        await found.closer(4, 64, until=math.inf)

    anyio.run(measured)
    assert {fewest <= len(each.levels) <= most for each in found.repeated() if len(each.levels) > 1} == {True}
    assert len(found.levels[32]) == 1  # which nobody asked to repeat
