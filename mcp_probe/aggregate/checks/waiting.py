"""Requests that could run and did not: `head-of-line` behind a few long steps, `crowding` behind many short ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import Waiting, is_enough, is_slow_blocker, named_rows, queued_ms, waiting_of
from mcp_probe.aggregate.checks.first_calls import are_of_first_calls
from mcp_probe.aggregate.quality import worst
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Finding, OperationSummary, SlowStep, Summary


@dataclass(frozen=True, slots=True)
class _Victim:
    operation: OperationSummary
    waiting: Waiting


def _victims(summary: Summary, options: FindingOptions) -> list[_Victim]:
    return [_Victim(operation, waiting_of(summary, operation, options)) for operation in summary.operations]


def _is_crowded(summary: Summary, victim: _Victim, options: FindingOptions) -> bool:
    return (
        _utilization(summary) > options.crowded_utilization
        and _computes(summary)
        and victim.waiting.is_crowded
        and victim.waiting.whole_share > options.waited_share
    )


def _utilization(summary: Summary) -> float:
    """Of the window, or of its busiest second: the time before and after a load says nothing of it.

    Without its waits for a CPU: they make any loop busy, and would be gone where it had one.
    """
    waits = _waits_for_a_cpu(summary)
    wall = max(summary.loop.utilization or 0.0, summary.signals.busiest_share or 0.0)
    return wall * (1.0 - waits) / (1.0 - wall * waits) if waits < 1.0 else 0.0


def _waits_for_a_cpu(summary: Summary) -> float:
    """Share of the loop's busy time."""
    busy = summary.signals.busy_ms
    return (queued_ms(summary.signals) or 0.0) / busy if busy > 0 else 0.0


def _computes(summary: Summary) -> bool:
    """Whether the loop ran for half of its busy time, waits for a CPU left out. Else it waits for the GIL or blocks."""
    cpu, signals = summary.signals.loop_cpu_ms, summary.signals
    return cpu is None or cpu * 2 >= signals.busy_ms - (queued_ms(signals) or 0.0)


def head_of_line(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per blocker, on the operation that waited most for it."""
    if not is_enough(summary, options):
        return
    by_blocker: dict[str | None, list[_Victim]] = {}
    for victim in _victims(summary, options):
        share, p95 = victim.waiting.share, victim.operation.total_ms.p95
        if share is None or p95 is None or share <= options.waited_share or share * p95 < options.waited_ms:
            continue
        if not _is_crowded(summary, victim, options):
            rows = named_rows(summary, victim.operation.name)
            by_blocker.setdefault(rows[0].blocker if rows else None, []).append(victim)
    for blocker, victims in by_blocker.items():
        yield _head_of_line(summary, options, blocker, sorted(victims, key=lambda victim: -_lost_ms(summary, victim)))


def _lost_ms(summary: Summary, victim: _Victim) -> float:
    rows = named_rows(summary, victim.operation.name)
    return sum(row.lo_ms for row in rows) or victim.operation.waited_for_others_ms * victim.operation.count


def _head_of_line(summary: Summary, options: FindingOptions, blocker: str | None, victims: list[_Victim]) -> Finding:
    first = victims[0]
    operation, share = first.operation, first.waiting.share or 0.0
    is_slow = blocker is not None and is_slow_blocker(summary, blocker, options)
    matrix = {victim.operation.name: named_rows(summary, victim.operation.name) for victim in victims}
    rows = [row for victim in victims for row in matrix[victim.operation.name] if row.blocker == blocker]
    p95 = operation.total_ms.p95 or 0.0
    sentence = (
        f"`{operation.name}` spent {phrasing.percent(share)} of its p95 of {phrasing.percentile(operation, 'p95')} "
    )
    sentence += "waiting for other requests"
    if rows:
        name = phrasing.calls_of(rows[0].blocker, blocker == operation.name)
        sentence += f", mostly for {name} ({phrasing.known(rows[0].lo_ms, rows[0].quality)} in all)"
    others = [victim.operation.name for victim in victims[1:]]
    if others:
        sentence += f"; so did {phrasing.listed(others)}"
    return Finding(
        code="head-of-line",
        severity="warn" if is_slow and _goes_on(summary, options, blocker) else "info",
        confidence=worst(row.quality for rows in matrix.values() for row in rows),
        subject=operation.name,
        sentence=sentence + ".",
        advice=_head_of_line_advice(summary, blocker, is_slow),
        evidence={
            "waited_p95_share": share,
            "p95_ms": p95,
            "blocker": blocker,
            "blocker_is_slow": int(is_slow),
            "blocker_ms": sum(row.lo_ms for row in rows),
            "victim_operations": len(victims),
            "matrix": "; ".join(
                f"{row.victim} waited {phrasing.known(row.lo_ms, row.quality)} for {row.blocker}"
                for name in matrix
                for row in matrix[name][:3]
            ),
        },
        cost_ms=sum(_lost_ms(summary, victim) for victim in victims),
    )


def _goes_on(summary: Summary, options: FindingOptions, blocker: str | None) -> bool:
    """Whether ``blocker`` is slow without its first calls' steps and the collector's pauses, if these are `info`.

    In a short run two such steps are met by 5 % of the calls, and so by p95.
    """

    def is_little(step: SlowStep) -> bool:
        if step.cause == "gc":
            return summary.signals.gc_pause_ms < options.gc_total_ms
        return step.ms < options.cold_ms and are_of_first_calls(summary, options, step.tool, step.ms, step.count)

    rest = tuple(step for step in summary.slow_steps if step.tool == blocker and not is_little(step))
    return blocker is not None and is_slow_blocker(replace(summary, slow_steps=rest), blocker, options)


def _head_of_line_advice(summary: Summary, blocker: str | None, is_slow: bool) -> str:
    if is_slow:
        causes = {step.cause for step in summary.slow_steps if step.tool == blocker}
        if causes & {"blocking-call", "cpu", "unknown"}:
            return f"See the finding of `{blocker}`: it holds the event loop while others could run."
        return f"See the finding of what made the steps of `{blocker}` slow: it was not its own code."
    return (
        "No step they waited for is slow by itself: calls come in bursts. Spread them over more processes, "
        "or let the client send fewer at once."
    )


def crowding(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding for the whole loop, with the operation that loses most."""
    if not is_enough(summary, options):
        return
    crowded = [victim for victim in _victims(summary, options) if _is_crowded(summary, victim, options)]
    if not crowded:
        return
    first = max(crowded, key=lambda victim: victim.waiting.small_ms)
    share, utilization = first.waiting.whole_share, _utilization(summary)
    is_whole = (summary.loop.utilization or 0.0) >= (summary.signals.busiest_share or 0.0)
    when = "the time" if is_whole else "its busiest second"
    if _waits_for_a_cpu(summary) > options.run_queue_share:
        when += ", waits for a CPU left out,"
    delay, p95 = summary.loop.arrival_delay_ms.p99, first.operation.total_ms.p95
    sentence = (
        f"The event loop was busy {phrasing.percent(utilization)} of {when} with steps that are all short: "
        f"`{first.operation.name}` spent {phrasing.percent(share)} of its p95"
        f"{'' if p95 is None else ' of ' + phrasing.percentile(first.operation, 'p95')} waiting for its turn"
    )
    yield Finding(
        code="crowding",
        severity="warn",
        confidence=worst([summary.loop.quality, *(victim.waiting.quality for victim in crowded)]),
        subject=summary.server.name,
        sentence=f"{sentence}.",
        advice=(
            "One loop is not enough for this load: run more server processes. Or make fewer, larger steps: "
            "batch small calls, and drop awaits that do nothing."
        ),
        evidence={
            "utilization": utilization,
            "arrival_delay_p99_ms": delay,
            "operation": first.operation.name,
            "waited_p95_share": share,
            "p95_ms": p95,
            "small_steps_ms": first.waiting.small_ms,
            "slow_steps_ms": first.waiting.slow_ms,
            "operations": len(crowded),
        },
        cost_ms=sum(victim.waiting.small_ms for victim in crowded),
    )
