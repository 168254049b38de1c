"""The sweep's reasons: from a run under the probe, and only where that run was as quick."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mcp_probe.workloads.bench.own.knee import Level
from mcp_probe.workloads.bench.own.sweep import Sweep


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
