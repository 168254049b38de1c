"""What the SDK does for calls besides running them: `schema-lookup`."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import mean_of, total_ms
from mcp_probe.aggregate.quality import tag_of
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Finding, Summary

KEY = "schema_lookup_ms"


def schema_lookup(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """The SDK lists the server's tools for each call, and that is much of the call's time."""
    for row in summary.operations:
        mean, whole = mean_of(row, KEY), total_ms(row)
        if mean is None or whole <= 0 or mean <= options.lookup_ms:
            continue
        share = min(1.0, mean * row.count / whole)
        if share <= options.lookup_share:
            continue
        yield Finding(
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
