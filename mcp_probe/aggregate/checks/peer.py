"""What is between server and client: `serial-client`, `slow-reader` and `stdout-pollution`."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import is_enough, is_little, total_ms
from mcp_probe.aggregate.checks.runtime import gil_contention
from mcp_probe.aggregate.quality import tag_of, worst
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Finding, OperationSummary, Summary
from mcp_probe.record.sampling import gap_ns_of

PIPE_BYTES = 65_536
"""What a pipe of Linux holds: answers that fit into it together need no reader."""


def serial_client(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """Requests came one by one, each at once after the answer to the one before."""
    signals, count = summary.signals, summary.requests.count
    awaiting = signals.serial_awaiting_share
    if awaiting is None or signals.max_in_flight != 1 or count < options.serial_requests:
        return
    gaps = signals.serial_gaps / max(1, count - 1)
    if gaps < options.serial_gap_share or awaiting < options.serial_awaiting_share:
        return
    if not is_enough(summary, options):
        return
    gap_ms = max(gap_ns_of(each.strip()) for each in summary.server.transport.split(",")) / 1e6
    together = max(2, options.serial_example)
    awaiting = min(1.0, awaiting)
    speed_up = 1.0 / (1.0 - awaiting + awaiting / together)
    took = sum(total_ms(operation) for operation in summary.operations if operation.kind == "request")
    yield Finding(
        code="serial-client",
        severity="info",
        confidence="estimate",
        subject=summary.server.name,
        sentence=(
            f"The client never had more than one request in flight: {signals.serial_gaps:,} of {count:,} came within "
            f"{gap_ms:.0f} ms of the answer before, and {phrasing.percent(awaiting)} of their time the server only "
            f"awaited; with {together} in flight it would be about {speed_up:.1f} times as fast."
        ),
        advice="Send requests without waiting for earlier answers, in a task group: the protocol allows that.",
        evidence={
            "requests": count,
            "max_in_flight": signals.max_in_flight,
            "gaps": signals.serial_gaps,
            "gap_ms": gap_ms,
            "awaiting_share": awaiting,
            "in_flight": together,
            "speed_up": speed_up,
        },
        cost_ms=took * (1.0 - 1.0 / speed_up),
    )


def slow_reader(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """Answers waited in the pipe or socket for the client, and for nothing of the server's own.

    On stdio a flush is a job on a thread, so it also lasts while no thread is free, or while the loop is blocked. It
    waits for the GIL, too, and more than once: where others keep that, only answers that fill the pipe count.
    """
    if not is_enough(summary, options):
        return
    own_ms = max(
        max((pool.transport_wait_max_ms for pool in summary.executors), default=0.0),
        max((step.ms for step in summary.slow_steps), default=0.0),
    )
    slow = [
        (operation.write_flush_p95_ms, operation)
        for operation in summary.operations
        if operation.write_flush_p95_ms is not None and operation.write_flush_p95_ms - own_ms > options.flush_ms
    ]
    if any(gil_contention(summary, options)):
        slow = [(p95, operation) for p95, operation in slow if not _fits(summary, operation)]
    if slow:
        yield _slow_reader(summary, options, sorted(slow, key=lambda row: (-_flush_ms(row[1]), row[1].name)))


def _fits(summary: Summary, operation: OperationSummary) -> bool:
    """Whether the largest answers of all requests in flight fit into a pipe."""
    largest = operation.response_bytes_max
    return largest is not None and largest * max(1, summary.signals.max_in_flight) <= PIPE_BYTES


def _flush_ms(operation: OperationSummary) -> float:
    return (operation.budget_ms.write_flush or 0.0) * operation.count


def _slow_reader(summary: Summary, options: FindingOptions, slow: list[tuple[float, OperationSummary]]) -> Finding:
    p95, first = slow[0]
    whole = total_ms(first)
    share = min(1.0, _flush_ms(first) / whole) if whole > 0 else None
    asides = []
    if first.response_bytes_max is not None:
        asides.append(f"largest {phrasing.size(first.response_bytes_max)}")
    if share is not None:
        asides.append(f"{phrasing.percent(share)} of its time")
    sentence = f"The client reads slowly: answers of `{first.name}` needed {phrasing.duration(p95)} at p95 to be taken"
    sentence += f" ({', '.join(asides)})" if asides else ""
    others = [operation.name for _, operation in slow[1:]]
    if others:
        sentence += f"; so with {phrasing.listed(others)}"
    cost = sum(_flush_ms(operation) for _, operation in slow)
    are_few = sum(operation.count for _, operation in slow) < options.flush_answers
    return Finding(
        code="slow-reader",
        severity="info" if are_few or is_little(summary, options, cost) else "warn",
        confidence=worst(tag_of(operation, "write_flush") for _, operation in slow),
        subject=first.name,
        sentence=f"{sentence}.",
        advice="Let the client read in a task of its own, or return less: a page, or a link to a resource.",
        evidence={
            "write_flush_p95_ms": p95,
            "write_flush_mean_ms": first.budget_ms.write_flush,
            "share": share,
            "response_bytes_max": first.response_bytes_max,
            "operations": len(slow),
        },
        cost_ms=cost,
    )


def stdout_pollution(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """Something else than the transport wrote to the stream that belongs to its messages."""
    signals = summary.signals
    if not signals.stdout_foreign_bytes:
        return
    place = phrasing.place_at(signals.stdout_foreign_at)
    reaches = signals.stdout_is_wire
    yield Finding(
        code="stdout-pollution",
        severity="critical" if reaches else "warn",
        confidence="lower",
        subject=summary.server.name,
        sentence=(
            f"At least {phrasing.size(signals.stdout_foreign_bytes)} was written to stdout beside the transport"
            f"{f', first at {place}' if place else ''}"
            f"{', where the client reads messages' if reaches else '; the SDK turns it away from the client'}."
        ),
        advice="Log to stderr: `logging` does so by default, and `print(..., file=sys.stderr)`.",
        evidence={"bytes": signals.stdout_foreign_bytes, "where": place, "reaches_client": int(reaches)},
        cost_ms=0.0,
    )
