"""Literal frames for tests: each builder fills what the test does not care about with quiet values.

Instants and lengths are integer nanoseconds, as in the frames; write ``120 * MS``. A request's end follows
from its budget (``busy=3 * MS, awaiting=7 * MS`` ends 10 ms after its arrival) unless ``end_ns`` is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from mcp_probe import histogram
from mcp_probe.model import (
    ALL_SEEN,
    BUDGET_PARTS,
    Budget,
    End,
    Header,
    LoopSample,
    OpenRequest,
    PoolSample,
    ProcessSample,
    RequestGroup,
    RequestRecord,
    StepRecord,
    Wait,
)
from mcp_probe.testing import make_record

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000


def make_header(**overrides: Any) -> Header:
    """A stdio server on asyncio whose clock started at 0, with every hook active."""
    header = Header(
        probe_version="0.0.0",
        server="test-server",
        sdk="mcp",
        sdk_version="2.3.0",
        transport="stdio",
        loop="asyncio",
        python="3.13.0",
        pid=1,
        start_unix=1_700_000_000.0,
        start_ns=0,
        timer_resolution_ns=1,
        hooks=(("steps", "active"), ("loop", "active")),
    )
    return replace(header, **overrides)


def make_budget(**parts: int | None) -> Budget:
    """A budget of 0 ns everywhere but in ``parts``; pass ``None`` for a part that could not be seen."""
    return Budget(**{part: parts.get(part, 0) for part in BUDGET_PARTS})


def make_group(durations: Sequence[tuple[int, int, int]], name: str | None = "add", **given: Any) -> RequestGroup:
    """Answered tool calls without a record: (bucket, how many, their nanoseconds together)."""
    group = RequestGroup(
        kind="request",
        method="tools/call",
        name=name,
        transport="stdio",
        outcome="ok",
        error=None,
        protocol_version=None,
        seen=ALL_SEEN,
        count=sum(count for _, count, _ in durations),
        durations=tuple(durations),
        longest=(),
        max_ns=0,
        max_longest_ns=0,
        first_ns=0,
        last_ns=0,
    )
    return replace(group, **given)


def make_request(id: int = 1, name: str | None = "add", **given: Any) -> RequestRecord:
    """An answered tool call that arrived at 0; budget parts and record fields are both keywords."""
    parts = {part: given.pop(part) for part in BUDGET_PARTS if part in given}
    budget = given.pop("budget", None) or make_budget(**parts)
    return make_record(name, id=id, budget=budget, **given)


def make_wait(start_ns: int, end_ns: int, stage: str = "ready", earliest_ns: int | None = None) -> Wait:
    """A wait that certainly lasted [start, end), and possibly since ``earliest_ns``."""
    return Wait(start_ns if earliest_ns is None else earliest_ns, start_ns, end_ns, stage)  # type: ignore[arg-type]


def make_open(id: int = 1, name: str | None = "add", **overrides: Any) -> OpenRequest:
    """A tool call that arrived at 0 and was still alive at 1 s."""
    frame = OpenRequest(id, "request", "tools/call", name, "stdio", arrival_ns=0, seen_ns=SECOND)
    return replace(frame, **overrides)


def make_step(start_ns: int, end_ns: int, request: int = 99, operation: str = "block", **overrides: Any) -> StepRecord:
    """A step on loop 0; its cause is not looked into unless given."""
    return replace(StepRecord(start_ns, end_ns, request, operation, loop=0), **overrides)


def make_histogram(lengths_ns: Iterable[int]) -> tuple[tuple[int, int, int], ...]:
    """Lengths as the (bucket, count, sum_ns) rows that samples carry."""
    rows: dict[int, list[int]] = {}
    for length in lengths_ns:
        row = rows.setdefault(histogram.bucket_of(length), [0, 0])
        row[0] += 1
        row[1] += length
    return tuple((bucket, count, total) for bucket, (count, total) in sorted(rows.items()))


def make_loop_sample(iterations_ns: Sequence[int] = (), **overrides: Any) -> LoopSample:
    """One second of loop 0 with these iteration lengths; the rest of the span was spent in the poll."""
    span_ns = overrides.get("span_ns", SECOND)
    sample = LoopSample(
        at_ns=span_ns,
        span_ns=span_ns,
        loop=0,
        name="asyncio",
        poll_ns=max(0, span_ns - sum(iterations_ns)),
        iterations=make_histogram(iterations_ns),
        sum_sq_ns2=sum(length * length for length in iterations_ns),
        max_ns=max(iterations_ns, default=0),
        small_steps=(),
        cpu_ns=None,
        run_queue_ns=None,
        other_threads_cpu_ns=None,
        quality="exact",
    )
    return replace(sample, **overrides)


def make_pool(waits_ns: Sequence[int] = (), **overrides: Any) -> PoolSample:
    """One second of anyio's default limiter in which jobs waited ``waits_ns`` and no thread was short."""
    sample = PoolSample(
        at_ns=SECOND,
        span_ns=SECOND,
        pool=1,
        name="anyio default",
        made_at=None,
        max=40.0,
        borrowed_peak=0,
        active_peak=0,
        pending_peak=0,
        active_ns=0,
        pending_ns=sum(waits_ns),
        at_limit_ns=0,
        submitted=len(waits_ns),
        finished=len(waits_ns),
        abandoned=0,
        wait=make_histogram(waits_ns),
        run_ns=0,
        cpu_ns=0,
        return_ns=0,
        returned=len(waits_ns),
        transport_jobs=0,
        transport_wait_max_ns=0,
        transport_wait_ns=0,
        holders=(),
    )
    return replace(sample, **overrides)


def make_process(**overrides: Any) -> ProcessSample:
    """One quiet second of the profiled process."""
    sample = ProcessSample(
        at_ns=SECOND,
        span_ns=SECOND,
        cpu_ns=0,
        rss_bytes=None,
        gc_pauses=(),
        gc_ns=0,
        gc_count=0,
        throttled_ns=None,
        cpu_pressure=None,
        probe_cpu_ns=0,
        hook_ns=0,
        dropped=(),
        outstanding=0,
        outstanding_peak=0,
        finished_unwritten_peak=0,
        backlog_bytes_peak=None,
    )
    return replace(sample, **overrides)


def make_end(at_ns: int = SECOND) -> End:
    """The End frame of a clean exit."""
    return End(at_ns, "exit")
