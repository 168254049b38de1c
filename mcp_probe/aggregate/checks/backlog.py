"""Requests that come faster than they are answered: `dispatch-backlog`."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import is_enough, total_ms
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import BacklogGrowth, Finding, Summary


def dispatch_backlog(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """What is in flight grows, and answers take longer and longer."""
    growth = summary.outstanding.growth
    if growth is None or not is_enough(summary, options):
        return
    ratio = _slower(growth, options)
    if ratio is None or ratio < options.backlog_ratio:
        return
    grown = growth.after - growth.before
    if grown < options.backlog_requests or grown < options.backlog_share * growth.arrived:
        return
    first_ms, last_ms = growth.first_ms or 0.0, growth.last_ms or 0.0
    arrivals, answers = growth.arrived / growth.seconds, growth.ended / growth.seconds
    slowest = max(summary.operations, key=lambda row: (row.kind == "request", total_ms(row)))
    yield Finding(
        code="dispatch-backlog",
        severity="warn",
        confidence="estimate",
        subject=summary.server.name,
        sentence=(
            f"For {phrasing.duration(growth.seconds * 1e3)} requests came faster than they were answered: "
            f"{arrivals:.3g} a second against {answers:.3g}. Those in flight grew from {growth.before:,} to "
            f"{growth.after:,}, and answers took {phrasing.duration(last_ms)} instead of {phrasing.duration(first_ms)} "
            f"(mean); `{slowest.name}` took most of the time."
        ),
        advice=(
            f"Bound how many requests are let in at once and refuse the rest, so that clients slow down. Then look at "
            f"what calls of `{slowest.name}` wait for."
        ),
        evidence={
            "in_flight_before": growth.before,
            "in_flight_after": growth.after,
            "slope_per_s": grown / growth.seconds,
            "arrivals_per_s": arrivals,
            "answers_per_s": answers,
            "seconds": growth.seconds,
            "first_ms": first_ms,
            "last_ms": last_ms,
            "operation": slowest.name,
        },
        cost_ms=growth.waited_ms,
    )


def _slower(growth: BacklogGrowth, options: FindingOptions) -> float | None:
    """How many times as long the last answers took as the first; ``None`` where there are too few to say."""
    if growth.ended < options.backlog_answers:
        return None
    return growth.last_ms / growth.first_ms if growth.first_ms and growth.last_ms else None
