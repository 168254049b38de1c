"""Whether there is anything to judge: `not-enough-data`."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import is_enough, window_ms
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Finding, Summary


def not_enough_data(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """Says so; what needs no statistics is judged all the same."""
    if is_enough(summary, options):
        return
    count = summary.requests.count
    wanted = f"{phrasing.plural(options.min_requests, 'request')} and {phrasing.duration(options.min_seconds * 1000)}"
    yield Finding(
        code="not-enough-data",
        severity="info",
        confidence="exact",
        subject=summary.server.name,
        sentence=(
            f"Not enough data: {phrasing.plural(count, 'request')} in {phrasing.duration(window_ms(summary))}; "
            f"shares and percentiles need at least {wanted}."
        ),
        advice="Let it run longer, or send more requests. Checks that need no statistics were made all the same.",
        evidence={
            "requests": count,
            "seconds": summary.window.seconds,
            "min_requests": options.min_requests,
            "min_seconds": options.min_seconds,
        },
    )
