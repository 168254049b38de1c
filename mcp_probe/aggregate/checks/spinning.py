"""Calls that run without waiting for anything, and do nothing: `busy-spin`."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import waited_by_clients
from mcp_probe.aggregate.quality import tag_of
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Finding, Summary


def busy_spin(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """Most steps of a tool follow each other without a wait, and are too short to do work."""
    for row in summary.operations:
        steps, busy_ms = row.steps, row.budget_ms.busy
        if row.kind == "function" or steps.immediate is None or busy_ms is None or steps.mean <= 0:
            continue
        share, step_ms = min(1.0, steps.immediate / steps.mean), busy_ms / steps.mean
        spun_ms = busy_ms * share
        if share <= options.spin_share or spun_ms < options.spin_ms or step_ms >= options.spin_step_ms:
            continue
        yield Finding(
            code="busy-spin",
            severity="warn",
            confidence=tag_of(row, "busy"),
            subject=row.name,
            sentence=(
                f"A call of `{row.name}` ran {steps.immediate:,.0f} times on the event loop without having waited for "
                f"anything ({phrasing.percent(share)} of its steps), {phrasing.duration(spun_ms)} in all (mean of "
                f"{phrasing.plural(row.count, 'call')})."
            ),
            advice=(
                "Await what it polls for, such as an event, a queue or a task, instead of asking again after "
                "`sleep(0)`. If it hands over many small pieces, hand over several at a time."
            ),
            evidence={
                "resumptions": steps.immediate,
                "share": share,
                "spun_ms": spun_ms,
                "step_ms": step_ms,
                "calls": row.count,
            },
            cost_ms=waited_by_clients(row, spun_ms * row.count),
        )
