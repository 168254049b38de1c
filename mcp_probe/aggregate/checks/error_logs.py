"""What logging of failing calls costs the event loop: `slow-error-logging`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import loop_cost_ms, mean_of
from mcp_probe.aggregate.quality import tag_of
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Finding, OperationSummary, SlowStep, Summary

TIME, COUNT = "error_logging_ms", "errors_logged"
_FORMATTERS = ("rich", "pygments")
"""Packages that render tracebacks for a handler; Python's own modules are never the place of a step."""

_ADVICE = {
    "mcp": (
        "Give the root logger a plain handler before the server is made (`logging.basicConfig()`): without one the SDK "
        "logs through rich wherever it can be imported. Or uninstall rich there."
    ),
    "fastmcp": "Set `FASTMCP_ENABLE_RICH_LOGGING=false`, or give its logger a plain handler.",
}


@dataclass(frozen=True, slots=True)
class ErrorLogs:
    """Records with a traceback that calls of one operation have logged on the loop."""

    operation: OperationSummary
    count: float  # of a sample of the calls an estimate
    mean_ms: float


def error_logs(summary: Summary, options: FindingOptions) -> list[ErrorLogs]:
    """Of each operation in which they are slow, the first one not alone."""
    found = []
    for row in summary.operations:
        time_ms, count = (mean_of(row, key) for key in (TIME, COUNT))
        if row.kind == "function" or time_ms is None or not count:
            continue
        logs = ErrorLogs(row, round(count * row.count, 1), time_ms / count)
        if logs.count >= options.error_logs and logs.mean_ms > options.error_log_ms:
            found.append(logs)
    return found


def is_formatting(step: SlowStep) -> bool:
    """Whether the line that made the step slow renders a traceback."""
    file = (step.file or "").replace("\\", "/")
    return any(f"-packages/{package}/" in file for package in _FORMATTERS)


def slow_error_logging(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """Each traceback that an operation logs keeps the loop, for everybody."""
    for logs in error_logs(summary, options):
        row, total_ms = logs.operation, logs.mean_ms * logs.count
        steps = [step for step in summary.slow_steps if step.tool == row.name and is_formatting(step)]
        place = phrasing.place_of(steps[0].file, steps[0].line) if steps else None
        yield Finding(
            code="slow-error-logging",
            severity="warn",
            confidence=tag_of(row, TIME, COUNT),
            subject=row.name,
            sentence=(
                f"Logging a traceback of `{row.name}` kept the event loop for {phrasing.duration(logs.mean_ms)} "
                f"(mean of {logs.count:,.0f}; {phrasing.duration(total_ms)} in all"
                f"{f'; probably most at {place}' if place else ''})."
            ),
            advice=_ADVICE.get(summary.server.sdk, _ADVICE["mcp"]),
            evidence={
                "mean_ms": logs.mean_ms,
                "count": round(logs.count),
                "total_ms": total_ms,
                "errors": row.errors,
                "where": place,
            },
            cost_ms=loop_cost_ms(summary, row, total_ms),
        )
