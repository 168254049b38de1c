"""The self-check: a window that is run again unchanged must give what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_probe.predict.outcome import measured, percentile, simulated
from mcp_probe.predict.recorded import CannotPredictError
from mcp_probe.predict.simulate import Outcome
from mcp_probe.predict.workload import Workload

TOLERANCE = 0.10
LEAST_CALLS = 5
"""Fewer calls have no percentiles to speak of: an operation with fewer is part of the load, and not checked."""

FEW_CALLS = 100
"""Below, less than five calls decide the 95th percentile."""

LEAST_CALLS_P95 = 20
"""Below, the 95th percentile is the longest call or the one before it: one call would decide. Only p50 is checked."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One percentile of one operation's ``calls``, in ms."""

    operation: str
    calls: int
    percentile: int
    measured_ms: float
    simulated_ms: float

    @property
    def error(self) -> float:
        return self.simulated_ms / self.measured_ms - 1 if self.measured_ms else 0.0

    @property
    def holds(self) -> bool:
        return abs(self.error) <= TOLERANCE


def checks_of(workload: Workload, outcome: Outcome) -> list[Checked]:
    """Every percentile that can be checked."""
    found = []
    after = simulated(workload, outcome)
    for operation, some in measured(workload).items():
        if len(some) < LEAST_CALLS:
            continue
        before, now = sorted(some), sorted(after.get(operation, []))
        if len(now) < len(before):
            found.append(Checked(operation, len(some), 50, percentile(before, 0.5) / 1e6, 0.0))
            continue
        for share in (50, 95):
            if share == 50 or len(some) >= LEAST_CALLS_P95:
                was, is_now = (percentile(each, share / 100) / 1e6 for each in (before, now))
                found.append(Checked(operation, len(some), share, was, is_now))
    return found


def check(workload: Workload, outcome: Outcome) -> list[Checked]:
    """The checks, all of which hold.

    Raises:
        CannotPredictError: one does not, or nothing can be checked; the sentence has the figures.
    """
    found = checks_of(workload, outcome)
    if not found:
        raise CannotPredictError(
            f"No operation has {LEAST_CALLS} calls, so there is nothing to hold the simulation against. "
            "Record more load."
        )
    failed = [one for one in found if not one.holds]
    if failed:
        listed = "; ".join(
            f"`{one.operation}` p{one.percentile} {one.measured_ms:,.1f} ms measured, {one.simulated_ms:,.1f} "
            f"simulated ({one.error:+.0%})"
            for one in sorted(failed, key=lambda one: -abs(one.error))[:4]
        )
        fewest = min(one.calls for one in failed)
        few = all(one.percentile == 95 and one.calls < FEW_CALLS for one in failed)
        advice = f" {fewest // 20} of {fewest} calls decide a p95: record more of them." if few else ""
        raise CannotPredictError(
            f"The window run again does not give what was measured, so no prediction is made from it: {listed}. "
            f"Expected {TOLERANCE:.0%} at most.{advice}"
        )
    return found
