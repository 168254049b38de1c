"""An outcome as people read it: percentiles of each operation, how much of what was used, and where the limit lies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mcp_probe.predict.simulate import Outcome
from mcp_probe.predict.workload import Workload

LOOP = "the event loop"


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one operation; times in ms from arrival to end."""

    calls: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    per_second: float


@dataclass(frozen=True, slots=True)
class Share:
    """How much of a resource was used, and at which rate of calls it would be full."""

    name: str
    used_ratio: float
    full_per_second: float | None


@dataclass(frozen=True, slots=True)
class Result:
    operations: dict[str, Figures]
    shares: tuple[Share, ...]  # the most used first
    per_second: float
    unended: int


def percentile(ordered: Sequence[int], share: float) -> float:
    """By linear interpolation between the two neighbours, as numpy's default. ``ordered`` is not empty."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def figures_of(durations: Iterable[int], span_ns: int) -> Figures:
    """Of durations in ns."""
    some = sorted(durations)
    p50, p95, p99 = (percentile(some, share) / 1e6 for share in (0.5, 0.95, 0.99))
    return Figures(len(some), p50, p95, p99, len(some) / (span_ns / 1e9))


def measured(workload: Workload) -> dict[str, list[int]]:
    """Durations of each operation, as they were recorded."""
    found: dict[str, list[int]] = defaultdict(list)
    for call in workload.calls:
        if call.took_ns is not None:
            found[call.operation].append(call.took_ns)
    return found


def simulated(workload: Workload, outcome: Outcome) -> dict[str, list[int]]:
    """The same, as they came out."""
    found: dict[str, list[int]] = defaultdict(list)
    for call, times in zip(workload.calls, outcome.times, strict=True):
        if call.took_ns is not None and times is not None:
            found[call.operation].append(times[1] - times[0])
    return found


def result_of(workload: Workload, outcome: Outcome) -> Result:
    """Figures and shares of an outcome."""
    span = outcome.span_ns
    operations = {name: figures_of(some, span) for name, some in simulated(workload, outcome).items()}
    calls = sum(figures.calls for figures in operations.values())
    rate = calls / (span / 1e9)
    shares = [_share(LOOP, outcome.loop_ns / span, rate)]
    shares += [_share(one.name, one.used_ns / (span * one.limit), rate) for one in outcome.usages if one.used_ns]
    shares.sort(key=lambda one: -one.used_ratio)
    unended = sum(1 for times in outcome.times if times is None)
    return Result(operations, tuple(shares), rate, unended)


def _share(name: str, ratio: float, rate: float) -> Share:
    """By the utilization law: what is used to a ratio at one rate is full at the rate divided by it.

    Source: Denning and Buzen, The Operational Analysis of Queueing Network Models (1978).
    """
    return Share(name, ratio, rate / ratio if ratio > 0 else None)
