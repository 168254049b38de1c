"""What calls tell the client besides their answer: `chatty-notifications`."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import is_enough, mean_of, total_ms, waited_by_clients
from mcp_probe.aggregate.quality import tag_of
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Finding, OperationSummary, Summary

COUNT, TIME = "notifications", "notification_write_ms"
_SEND = ("queue", "anyio.MemoryObjectSendStream.send")
"""What a look names where a handler waits for the transport to take its message."""

_ADVICE = (
    "Throttle progress and log messages: report progress a few times a second or once per percent, and join log "
    "messages, or send only those of a level that the client needs."
)


def chatty_notifications(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """An operation sends many notifications for each answer, and much of what the transport writes is they."""
    if not is_enough(summary, options):
        return
    rows = [row for row in summary.operations if row.kind == "request"]
    written_ms = sum(_written_ms(row) + (row.budget_ms.write_flush or 0.0) * row.count for row in rows if is_timed(row))
    for row in rows:
        sent, own_ms, whole_ms = mean_of(row, COUNT) or 0.0, _written_ms(row), total_ms(row)
        if sent <= options.notifications or written_ms <= 0 or own_ms <= options.notification_share * written_ms:
            continue
        share = own_ms / written_ms
        of_time = min(1.0, own_ms / whole_ms) if whole_ms > 0 else 1.0
        place = _place_of(row)
        yield Finding(
            code="chatty-notifications",
            severity="warn" if of_time > options.notification_time_share else "info",
            confidence=tag_of(row, COUNT, TIME),
            subject=row.name,
            sentence=(
                f"`{row.name}` sent {sent:,.0f} notifications a call: writing them was {phrasing.percent(share)} of "
                f"all that the transport wrote, by time ({phrasing.duration(own_ms / row.count)} a call"
                f"{f'; a look found it sending at {place}' if place else ''})."
            ),
            advice=_ADVICE,
            evidence={
                "notifications": sent,
                "calls": row.count,
                "write_ms": own_ms,
                "share": share,
                "time_share": of_time,
                "where": place,
            },
            cost_ms=waited_by_clients(row, own_ms),
        )


def is_timed(row: OperationSummary) -> bool:
    """Whether it is known how long its notifications were written."""
    return mean_of(row, TIME) is not None


def is_counted(row: OperationSummary) -> bool:
    """Whether its notifications are."""
    return mean_of(row, COUNT) is not None


def _written_ms(row: OperationSummary) -> float:
    return (mean_of(row, TIME) or 0.0) * row.count


def _place_of(row: OperationSummary) -> str | None:
    """Where a look saw it wait for the transport; the place of most of that time."""
    seen = [found for found in row.awaits if (found.kind, found.object) == _SEND and found.where]
    return phrasing.place_at(max(seen, key=lambda found: found.total_ms).where) if seen else None
