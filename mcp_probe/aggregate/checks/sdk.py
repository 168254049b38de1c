"""What the SDK does for calls besides running them: `schema-lookup`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import is_enough, loop_cost_ms, mean_of, total_ms
from mcp_probe.aggregate.quality import tag_of
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Finding, OperationSummary, Summary

KEY, ON_LOOP = "schema_lookup_ms", "schema_lookup_busy_ms"


def schema_lookup(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """The SDK lists the server's tools for each call, and that is much of the call's time, or of a busy loop's."""
    slow = []
    for row in summary.operations:
        mean, whole = mean_of(row, KEY), total_ms(row)
        if mean is None or whole <= 0 or _own_ms(summary, row, mean) <= options.lookup_ms:
            continue
        share = min(1.0, mean * row.count / whole)
        if share > options.lookup_share:
            slow.append(_finding(row, mean, share))
    yield from slow or _crowding(summary, options)


def _own_ms(summary: Summary, row: OperationSummary, mean_ms: float) -> float:
    """The least of a look-up that is left without the host: it may have taken its share of what ran or could run."""
    signals = summary.signals
    queued = min(1.0, (signals.run_queue_ms or 0.0) / signals.busy_ms) if signals.busy_ms > 0 else 0.0
    on_loop_ms, ready_ms = mean_of(row, ON_LOOP) or 0.0, row.budget_ms.ready_wait or 0.0
    return mean_ms - queued * min(mean_ms, on_loop_ms + ready_ms)


def _crowding(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding, of the operation whose look-ups took most, where the look-ups of all are much of a busy loop's time.

    Each may be short: every call waits for those of the others.
    """
    utilization, busy_ms = summary.loop.utilization, summary.signals.busy_ms
    looked_up = [((mean_of(row, ON_LOOP) or 0.0) * row.count, row) for row in summary.operations]
    on_loop_ms = sum(ms for ms, _ in looked_up)
    if utilization is None or utilization <= options.lookup_utilization or not is_enough(summary, options):
        return
    if on_loop_ms <= options.lookup_busy_share * busy_ms:
        return
    _, row = max(looked_up, key=lambda one: one[0])
    mean, share = mean_of(row, KEY) or 0.0, min(1.0, on_loop_ms / busy_ms)
    finding = _finding(row, mean, min(1.0, mean * row.count / total_ms(row)) if total_ms(row) > 0 else 0.0)
    yield replace(
        finding,
        sentence=(
            f"{finding.sentence[:-1]}, and look-ups are {phrasing.percent(share)} of all that the event loop does. It "
            f"is busy {phrasing.percent(utilization)} of the time, so each call waits for those of the others, too."
        ),
        evidence={**finding.evidence, "on_loop_ms": on_loop_ms, "busy_share": share, "utilization": utilization},
        cost_ms=sum(loop_cost_ms(summary, one, ms) for ms, one in looked_up),
    )


def _finding(row: OperationSummary, mean: float, share: float) -> Finding:
    return Finding(
        code="schema-lookup",
        severity="warn",
        confidence=tag_of(row, KEY),
        subject=row.name,
        sentence=(
            f"Before each call of `{row.name}` the SDK lists all tools for the schema of this one: "
            f"{phrasing.duration(mean)} a call, {phrasing.percent(share)} of its time."
        ),
        advice=(
            "Give the low-level `Server` a `get_tool_input_schema` that looks the schema up, or let the handler of "
            "`tools/list` keep its answer."
        ),
        evidence={"schema_lookup_ms": mean, "share": share, "calls": row.count},
        cost_ms=mean * row.count,
    )
