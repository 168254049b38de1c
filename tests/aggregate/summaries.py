"""Literal summaries for tests of findings: each builder fills what the test does not care about with quiet values."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from mcp_probe.model import (
    BUDGET_PARTS,
    ArrivalDelay,
    BlockedBy,
    BudgetMeans,
    ExecutorSummary,
    Growth,
    GrowthLine,
    GrowthType,
    LeakHunt,
    LoopSummary,
    MemoryStats,
    OperationMemory,
    OperationSummary,
    Outstanding,
    Percentiles,
    ProbeSelf,
    Quality,
    RequestCounts,
    ServerInfo,
    Signals,
    SlowStep,
    StepStats,
    Summary,
    Verdict,
    WaitPercentiles,
    Window,
)

_UNKNOWN = MemoryStats(None, None)


def make_operation(
    name: str = "add", *, count: int = 100, p95: float | None = 5.0, **overrides: Any
) -> OperationSummary:
    """A quick tool; budget parts (ms, means) and fields of the row are both keywords."""
    parts = {part: overrides.pop(part) for part in BUDGET_PARTS if part in overrides}
    row = OperationSummary(
        name=name,
        method="tools/call",
        kind="request",
        count=count,
        errors=0,
        cancelled=0,
        unfinished=0,
        total_ms=Percentiles(p95, p95, p95, p95),
        budget_ms=BudgetMeans(**{part: parts.get(part, 0.0) for part in BUDGET_PARTS}),
        steps=StepStats(1.0, 0.5),
        memory=OperationMemory(_UNKNOWN, _UNKNOWN, _UNKNOWN),
        quality={},
        slow_steps=0,
        critical_steps=0,
        slow_step_p50_ms=None,
        slow_step_cpu_share=None,
        waited_for_others_ms=0.0,
        waited_for_others_p95_share=0.0,
        crowding_ms=0.0,
        detached_ms=0.0,
        client_wait_ms=None,
        decode_ms=None,
        encode_ms=None,
        write_flush_p95_ms=None,
        request_bytes_max=None,
        response_bytes_max=None,
        executor_run_sum_ms=0.0,
        crowding_p95_share=0.0,
    )
    return replace(row, **overrides)


def make_slow(tool: str = "resize", ms: float = 412.0, cause: Any = "blocking-call", **overrides: Any) -> SlowStep:
    """One slow step at a place that is known exactly; ``count`` of them are all as long."""
    step = SlowStep(tool, ms, cause, "/srv/app/server.py", 41, tool, "exact", total_ms=ms, p50_ms=ms)
    step = replace(step, **overrides)
    return replace(step, total_ms=overrides.get("total_ms", step.count * ms))


def make_blocked(victim: str, blocker: str, lo_ms: float, victims: int = 10, **overrides: Any) -> BlockedBy:
    """A row of the matrix; exact unless ``hi_ms`` says otherwise."""
    hi_ms = overrides.pop("hi_ms", lo_ms)
    return BlockedBy(victim, blocker, victims, lo_ms, hi_ms, overrides.pop("quality", "exact"))


def make_pool(name: str = "anyio default limiter", **overrides: Any) -> ExecutorSummary:
    """A limiter of 40 that nobody had to wait for."""
    pool = ExecutorSummary(
        name=name,
        made_at=None,
        max=40.0,
        borrowed_peak=3,
        active_peak=1,
        pending_peak=0,
        wait_ms=WaitPercentiles(0.1, 0.3),
        wait_max_ms=0.4,
        run_ms=4.0,
        return_ms=0.1,
        at_limit_share=0.0,
        tokens_needed=0.6,
        jobs=200,
        abandoned=0,
        transport_jobs=0,
        transport_wait_max_ms=0.0,
        transport_wait_ms=0.0,
        holders=(),
        cpu_ms=0.0,
        wait_total_ms=20.0,
    )
    return replace(pool, **overrides)


QUIET_SIGNALS = Signals(
    max_in_flight=4,
    serial_gaps=0,
    serial_awaiting_share=0.1,
    gc_pause_ms=0.0,
    gc_worst_second_ms=0.0,
    gc_max_pause_ms=0.0,
    gc_max_generation=None,
    gc_worst_request_share=None,
    busy_ms=1_000.0,
    loop_cpu_ms=800.0,
    run_queue_ms=20.0,
    off_cpu_ms=180.0,
    gil_wait_ms=0.0,
    other_threads_cpu_ms=0.0,
    throttled_ms=0.0,
    cpu_pressure=0.0,
    rss_bytes_max=None,
)
_SIGNALS = frozenset(field.name for field in fields(Signals))


def make_memory(
    requested: int = 200_000, peak: int | None = 100_000, retained: int | None = 0, *, most: int | None = None
) -> OperationMemory:
    """Memory of calls that are all alike but for the largest peak, ``most``."""
    largest = peak if most is None else most
    return OperationMemory(
        MemoryStats(requested, requested),
        MemoryStats(peak, largest),
        MemoryStats(retained, retained),
        method="native-shadow",
        scope="all Python allocations",
        measured=100,
    )


def make_growth(name: str = "remember", **overrides: Any) -> Growth:
    """An operation whose thousand calls keep 5 kB each, allocated at a known line."""
    row = Growth(
        name=name,
        method="tools/call",
        verdict="grows",
        calls=1_000,
        held_bytes=5_000_000,
        bytes_per_call=5_000.0,
        quality=Quality("exact"),
        how="native-shadow",
        scope="all Python allocations",
        lines=(GrowthLine("/srv/app/server.py", 41, "remember", 4_900_000, 1_000),),
        types=(GrowthType("app.Entry", 1_000, 4_800_000, 4_800),),
    )
    return replace(row, **overrides)


def make_hunt(*rows: Growth) -> LeakHunt:
    """What a hunt found of ``rows``."""
    return LeakHunt(rows, collections=20, collect_ms=400.0)


def make_summary(*operations: OperationSummary, **overrides: Any) -> Summary:
    """Ten quiet seconds of a stdio server on asyncio with 100 requests; signals and fields are both keywords."""
    signals = {name: overrides.pop(name) for name in _SIGNALS & overrides.keys()}
    count = overrides.pop("count", 100)
    summary = Summary(
        format="mcp_probe.summary/1",
        probe_version="0.1.0",
        server=ServerInfo("shop", "mcp", "2.3.0", "stdio", "asyncio", "3.13.0"),
        window=Window(1_700_000_000.0, overrides.pop("seconds", 10.0)),
        requests=RequestCounts(count, 0, 0, 0, 0),
        operations=operations or (make_operation(),),
        outstanding=Outstanding(4, 0.0, 1),
        blocked_by=(),
        slow_steps=(),
        executors=(make_pool(),),
        loop=LoopSummary(overrides.pop("utilization", 0.1), ArrivalDelay(0.1, 0.0, 0.2, 2.0, 4.0), "exact"),
        verdict=Verdict("healthy", "shop", ""),
        findings=(),
        probe=ProbeSelf(0.01, 0, (), 1),
        signals=replace(QUIET_SIGNALS, **signals),
    )
    return replace(summary, **overrides)
