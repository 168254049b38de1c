"""Workloads made by hand, and what came out of them."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_probe.predict.simulate import Outcome, simulate
from mcp_probe.predict.workload import (
    ANSWER,
    DELAY,
    HOLD,
    JOB,
    RELEASE,
    SUBMIT,
    Call,
    Resource,
    Step,
    Unit,
    Way,
    Work,
    Workload,
)

MS = 1_000_000


def runs(run_ns: int, ends: tuple[tuple[int, int], ...] = ((ANSWER, 0),)) -> Unit:
    """A handler that only keeps the loop."""
    return (Step(DELAY, 0, run_ns, ends=ends),)


def sleeps(ns: int) -> Unit:
    return (Step(DELAY, 0, 0), Step(DELAY, ns, 0, ends=((ANSWER, 0),)))


def on_thread() -> Unit:
    """A handler whose job 0 does everything."""
    return (Step(DELAY, 0, 0, ends=((SUBMIT, 0),)), Step(JOB, 0, 0, ends=((ANSWER, 0),)))


def holding(resource: int, ns: int) -> Unit:
    """A handler that takes a place, sleeps, and gives it back."""
    last = Step(DELAY, ns, 0, ends=((RELEASE, resource), (ANSWER, 0)))
    return (Step(DELAY, 0, 0), Step(HOLD, resource, 0), last)


def job(outside_ns: int = 0, cpu_ns: int = 0, pool: int = 0) -> Work:
    return Work(pool, 0, outside_ns, cpu_ns, 0, claims=True)


def call(
    *units: Unit,
    at: int = 0,
    after: tuple[int, ...] = (),
    jobs: tuple[Work, ...] = (),
    operation: str = "work",
    took_ns: int | None = 1,
    way: Way | None = None,
) -> Call:
    return Call(1, operation, way or Way(), units, jobs, after, at, took_ns)


def workload(calls: Sequence[Call], *resources: Resource, **options: object) -> Workload:
    return Workload(tuple(calls), resources, **options)  # type: ignore[arg-type]


def threads(limit: int) -> Resource:
    return Resource("threads", "threads", limit)


def durations(made: Workload, outcome: Outcome | None = None) -> list[int]:
    """From arrival to end of each call, in ns."""
    outcome = outcome or simulate(made)
    found = []
    for times in outcome.times:
        assert times is not None, "a call never ended"
        found.append(times[1] - times[0])
    return found
