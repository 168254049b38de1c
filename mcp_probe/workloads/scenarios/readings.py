"""What single requests say that no summary does: who was there at once, and who waited longest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mcp_probe.model import RequestRecord


def most_in_flight(requests: Sequence[RequestRecord]) -> int:
    """How many of these requests were being handled at once, from their first step to their result."""
    return _most_at_once(
        (request.first_step_ns, request.result_ns if request.result_ns is not None else request.end_ns)
        for request in requests
        if request.first_step_ns is not None
    )


def most_outstanding(requests: Sequence[RequestRecord]) -> int:
    """How many had been read and not yet been answered."""
    return _most_at_once((request.arrival_ns, request.end_ns) for request in requests)


def longest_wait_ms(requests: Sequence[RequestRecord]) -> float | None:
    """The longest that a job of theirs waited for a thread; ``None`` where there was no job."""
    waits = [job.start_ns - job.submit_ns for request in requests for job in request.jobs if job.start_ns is not None]
    return max(waits) / 1e6 if waits else None


def _most_at_once(spans: Iterable[tuple[int, int]]) -> int:
    """Of half-open stretches: one that ends as another begins makes room for it."""
    level = most = 0
    for _, change in sorted(change for since, until in spans for change in ((since, 1), (until, -1))):
        level += change
        most = max(most, level)
    return most
