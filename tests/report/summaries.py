"""Literal summaries for tests: builders with quiet defaults, and four whole servers that reports are looked at with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mcp_probe.aggregate.checks.evidence import clients_waited_ms, clients_waited_quality, total_ms
from mcp_probe.model import (
    BUDGET_PARTS,
    ArrivalDelay,
    BlockedBy,
    BudgetMeans,
    ExecutorSummary,
    Finding,
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

START_UNIX = 1_763_712_000.0  # 2025-11-21 08:00:00 UTC
NO_MEMORY = OperationMemory(MemoryStats(None, None), MemoryStats(None, None), MemoryStats(None, None))


def make_budget(**parts: float | None) -> BudgetMeans:
    """Parts that are not named are 0 ms: seen, and nothing there."""
    return BudgetMeans(**{name: parts.get(name, 0.0) for name in BUDGET_PARTS})


LONGER = dict.fromkeys(("total_ms", "total_ms_p50", "total_ms_p95", "total_ms_p99", "total_ms_max"), Quality("lower"))


def make_operation(
    name: str,
    count: int,
    p50: float | None,
    p95: float | None,
    p99: float | None,
    budget: BudgetMeans,
    **overrides: Any,
) -> OperationSummary:
    values: dict[str, Any] = {
        "name": name,
        "method": "tools/call",
        "kind": "request",
        "count": count,
        "errors": 0,
        "cancelled": 0,
        "unfinished": 0,
        "total_ms": Percentiles(p50, p95, p99, None if p99 is None else 1.1 * p99),
        "budget_ms": budget,
        "steps": StepStats(3.0, 0.4),
        "memory": NO_MEMORY,
        "quality": {},
        "slow_steps": 0,
        "critical_steps": 0,
        "slow_step_p50_ms": None,
        "slow_step_cpu_share": None,
        "waited_for_others_ms": 0.0,
        "waited_for_others_p95_share": None,
        "crowding_ms": 0.0,
        "detached_ms": 0.0,
        "client_wait_ms": None,
        "decode_ms": None,
        "encode_ms": None,
        "write_flush_p95_ms": None,
        "request_bytes_max": None,
        "response_bytes_max": None,
        "executor_run_sum_ms": 0.0,
    }
    return OperationSummary(**(values | overrides))


def make_executor(name: str, **overrides: Any) -> ExecutorSummary:
    values: dict[str, Any] = {
        "name": name,
        "made_at": None,
        "max": 40.0,
        "borrowed_peak": 3,
        "active_peak": 1,
        "pending_peak": 0,
        "wait_ms": WaitPercentiles(0.1, 0.3),
        "wait_max_ms": 0.4,
        "run_ms": 4.0,
        "return_ms": 0.1,
        "at_limit_share": 0.0,
        "tokens_needed": 0.6,
        "jobs": 200,
        "abandoned": 0,
        "transport_jobs": 0,
        "transport_wait_max_ms": 0.0,
        "transport_wait_ms": 0.0,
        "holders": (),
    }
    return ExecutorSummary(**(values | overrides))


def make_finding(code: str, severity: Any, subject: str, sentence: str, advice: str, **overrides: Any) -> Finding:
    values: dict[str, Any] = {"confidence": "exact", "evidence": {}, "cost_ms": 0.0}
    return Finding(code, severity, subject=subject, sentence=sentence, advice=advice, **(values | overrides))


def make_signals(**overrides: Any) -> Signals:
    values: dict[str, Any] = {
        "max_in_flight": 1,
        "serial_gaps": 0,
        "serial_awaiting_share": None,
        "gc_pause_ms": 0.0,
        "gc_worst_second_ms": 0.0,
        "gc_max_pause_ms": 0.0,
        "gc_max_generation": None,
        "gc_worst_request_share": None,
        "busy_ms": 0.0,
        "loop_cpu_ms": None,
        "run_queue_ms": None,
        "off_cpu_ms": None,
        "gil_wait_ms": None,
        "other_threads_cpu_ms": None,
        "throttled_ms": None,
        "cpu_pressure": None,
        "rss_bytes_max": None,
    }
    return Signals(**(values | overrides))


def make_summary(**overrides: Any) -> Summary:
    """A stdio server on asyncio, watched for two seconds in which nothing came."""
    values: dict[str, Any] = {
        "format": "1",
        "probe_version": "0.1.0",
        "server": ServerInfo("test-server", "mcp", "2.3.0", "stdio", "asyncio", "3.13.0"),
        "window": Window(START_UNIX, 2.0),
        "requests": RequestCounts(0, 0, 0, 0, 0),
        "operations": (),
        "outstanding": Outstanding(0, None, 0),
        "blocked_by": (),
        "slow_steps": (),
        "executors": (),
        "loop": LoopSummary(0.001, ArrivalDelay(0.01, 0.0, 0.0, 0.02, 0.3), "exact"),
        "verdict": Verdict("not-enough-data", "test-server", "Only 0 requests in 2.0 s: not enough data."),
        "findings": (),
        "probe": ProbeSelf(0.001, 0, (), 42),
        "signals": make_signals(),
    }
    values |= overrides
    summary = Summary(**(values | {"operations": tuple(map(with_bounds, values["operations"]))}))
    return replace(
        summary, clients_waited_ms=clients_waited_ms(summary), clients_waited_quality=clients_waited_quality(summary)
    )


def with_bounds(operation: OperationSummary) -> OperationSummary:
    """``operation``, whose calls took longer together if each came as early as it may have."""
    queue, whole = operation.quality.get("queue_transport"), total_ms(operation)
    if queue is None or queue.hi is None or "all_calls_ms" in operation.quality:
        return operation
    more = max(0.0, queue.hi - (operation.budget_ms.queue_transport or 0.0)) * operation.count
    return replace(operation, quality={**operation.quality, "all_calls_ms": Quality("bounded", whole, whole + more)})


def healthy() -> Summary:
    """Fast tools, an idle loop, nothing found."""
    return make_summary(
        server=ServerInfo("mcp-time", "mcp", "2.3.0", "stdio", "uvloop", "3.13.0"),
        window=Window(START_UNIX, 61.4),
        requests=RequestCounts(2_418, 0, 0, 0, 0),
        operations=(
            make_operation(
                "get_current_time",
                1_204,
                1.1,
                1.9,
                3.2,
                make_budget(
                    queue_transport=0.09,
                    queue_dispatch=0.08,
                    busy=0.62,
                    ready_wait=0.03,
                    write_wait=0.17,
                    write_flush=0.14,
                ),
            ),
            make_operation(
                "convert_time",
                1_201,
                1.2,
                2.1,
                3.4,
                make_budget(
                    queue_transport=0.09,
                    queue_dispatch=0.08,
                    busy=0.71,
                    ready_wait=0.04,
                    write_wait=0.18,
                    write_flush=0.13,
                ),
                errors=2,
                quality={"ready_wait": Quality("bounded", 0.01, 0.09)},
            ),
            make_operation(
                "tools/list",
                12,
                0.9,
                1.4,
                1.4,
                make_budget(queue_transport=0.1, busy=0.55, write_wait=0.14, write_flush=0.11),
                method="tools/list",
            ),
            make_operation(
                "initialize",
                1,
                3.1,
                3.1,
                3.1,
                make_budget(queue_transport=1.2, busy=1.5, write_wait=0.2, write_flush=0.2),
                method="initialize",
            ),
        ),
        outstanding=Outstanding(4, 0.0, 1),
        executors=(
            make_executor(
                "anyio default",
                transport_jobs=2_420,
                jobs=0,
                run_ms=None,
                return_ms=None,
                tokens_needed=None,
                wait_ms=WaitPercentiles(None, None),
                wait_max_ms=None,
                active_peak=2,
            ),
        ),
        loop=LoopSummary(0.052, ArrivalDelay(0.04, 0.0, 0.1, 0.62, 2.8), "estimate"),
        verdict=Verdict(
            "healthy", "mcp-time", "Healthy: 99% of the requests took less than 3.4 ms, and none waited for another."
        ),
        probe=ProbeSelf(0.013, 0, (), 42, cpu_ms=540.0, hook_ms=52.0),
    )


def blocking() -> Summary:
    """The demo: a blocking tool holds the loop, thread tools fill the pool that the transport needs too."""
    return make_summary(
        server=ServerInfo("demo shop", "mcp", "2.3.0", "stdio", "asyncio", "3.13.0"),
        window=Window(START_UNIX, 12.4),
        requests=RequestCounts(1_284, 3, 2, 1, 0),
        operations=(
            make_operation(
                "lookup",
                812,
                4.2,
                212.0,
                1_480.0,
                make_budget(
                    queue_transport=11.0,
                    queue_dispatch=6.4,
                    busy=0.4,
                    ready_wait=24.2,
                    awaiting=0.1,
                    write_wait=9.6,
                    write_flush=0.7,
                    gc=0.02,
                    unaccounted=0.1,
                ),
                quality={"ready_wait": Quality("bounded", 21.0, 27.5)},
            ),
            make_operation(
                "resize",
                48,
                151.0,
                204.0,
                212.0,
                make_budget(
                    queue_transport=14.0,
                    queue_dispatch=9.0,
                    busy=141.0,
                    ready_wait=22.0,
                    write_wait=12.0,
                    write_flush=0.9,
                ),
                slow_steps=48,
                critical_steps=48,
            ),
            make_operation(
                "render",
                160,
                962.0,
                1_850.0,
                2_140.0,
                make_budget(
                    queue_transport=8.0,
                    queue_dispatch=3.0,
                    busy=0.9,
                    ready_wait=4.0,
                    executor_wait=431.0,
                    executor_run=482.0,
                    executor_return=38.0,
                    write_wait=22.0,
                    write_flush=0.8,
                    unaccounted=1.0,
                ),
                cancelled=2,
                detached_ms=1_210.0,
            ),
            make_operation(
                "fetch",
                201,
                318.0,
                498.0,
                611.0,
                make_budget(
                    queue_transport=9.0,
                    queue_dispatch=4.0,
                    busy=0.6,
                    ready_wait=31.0,
                    awaiting=301.0,
                    write_wait=11.0,
                    write_flush=0.7,
                ),
                errors=3,
                unfinished=1,
            ),
            make_operation(
                "score",
                61,
                39.0,
                121.0,
                168.0,
                make_budget(
                    queue_transport=9.0,
                    queue_dispatch=5.0,
                    busy=28.0,
                    ready_wait=6.0,
                    write_wait=8.0,
                    write_flush=0.7,
                    gc=1.4,
                ),
                slow_steps=61,
            ),
            make_operation(
                "tools/list",
                1,
                6.3,
                6.3,
                6.3,
                make_budget(queue_transport=1.0, busy=3.9, write_wait=0.9, write_flush=0.5),
                method="tools/list",
            ),
            make_operation(
                "notifications/initialized",
                1,
                0.4,
                0.4,
                0.4,
                make_budget(queue_transport=0.2, busy=0.2, write_wait=None, write_flush=None),
                method="notifications/initialized",
                kind="notification",
            ),
        ),
        outstanding=Outstanding(57, 0.2, 18, 14_200),
        blocked_by=(
            BlockedBy("lookup", "resize", 571, 14_900.0, 17_300.0, "bounded"),
            BlockedBy("fetch", "resize", 140, 5_120.0, 5_120.0, "exact"),
            BlockedBy("lookup", "score", 212, 1_310.0, 1_310.0, "exact"),
            BlockedBy("render", "resize", 96, 820.0, 1_240.0, "bounded"),
            BlockedBy("resize", "(loop)", 20, 96.0, 96.0, "estimate"),
            BlockedBy("lookup", "(many small steps)", 33, 61.0, 61.0, "lower"),
        ),
        slow_steps=(
            SlowStep(
                "resize",
                212.4,
                "blocking-call",
                "/srv/shop/demo_server.py",
                34,
                "resize",
                "exact",
                48,
                6_760.0,
                141.0,
                0.01,
                False,
                807,
                23_660.0,
            ),
            SlowStep("score", 44.8, "cpu", "/srv/shop/demo_server.py", 50, "score", "exact", 61, 1_720.0, 28.1, 0.98),
            SlowStep(
                "(loop)",
                12.1,
                "unknown",
                "/srv/shop/.venv/lib/python3.13/site-packages/mcp/shared/session.py",
                212,
                "_receive_loop",
                "estimate",
                3,
                31.0,
                10.4,
            ),
        ),
        executors=(
            make_executor(
                "anyio default limiter",
                borrowed_peak=40,
                active_peak=38,
                pending_peak=22,
                wait_ms=WaitPercentiles(402.0, 1_310.0),
                wait_max_ms=1_420.0,
                run_ms=482.0,
                return_ms=38.0,
                at_limit_share=0.61,
                tokens_needed=52.3,
                jobs=160,
                abandoned=2,
                transport_jobs=1_290,
                transport_wait_max_ms=1_380.0,
                transport_wait_ms=8_800.0,
                holders=("render",),
            ),
            make_executor(
                "thumbnails",
                made_at="/srv/shop/pools.py:8",
                max=4.0,
                borrowed_peak=2,
                active_peak=2,
                jobs=61,
                run_ms=3.2,
            ),
        ),
        loop=LoopSummary(0.71, ArrivalDelay(44.0, 0.0, 148.0, 206.0, 231.0), "exact"),
        verdict=Verdict(
            "blocking-call",
            "resize",
            "`resize` blocks the event loop at demo_server.py:34: 48 steps of 141 ms (longest 212 ms); "
            "807 other requests waited 24 s for it.",
        ),
        findings=(
            make_finding(
                "blocking-call",
                "critical",
                "resize",
                "`resize` blocks the event loop at demo_server.py:34: 48 steps of 141 ms (longest 212 ms).",
                "Make `resize` a plain `def`: mcp 2.x then runs it in a thread. "
                "Or wrap the call in `anyio.to_thread.run_sync`.",
                cost_ms=23_660.0,
            ),
            make_finding(
                "transport-starvation",
                "critical",
                "anyio default limiter",
                "The transport waited up to 1.38 s for a thread, because `render` held all 40 of the default limiter.",
                "Give `render` a private `CapacityLimiter`, or raise `total_tokens` of the default limiter.",
                cost_ms=8_800.0,
            ),
            make_finding(
                "head-of-line",
                "warn",
                "lookup",
                "`lookup` spent 61% of its p95 waiting for other requests, mostly `resize`.",
                "See the finding of `resize`.",
                confidence="bounded",
                cost_ms=17_300.0,
            ),
            make_finding(
                "executor-saturated",
                "warn",
                "anyio default limiter",
                "The pool was at its limit of 40 for 61% of the window; jobs waited 402 ms (p99 1.31 s); "
                "it needs 53 threads.",
                "Raise the limit to 53, or bound the callers.",
                cost_ms=6_900.0,
            ),
            make_finding(
                "cpu-bound-step",
                "warn",
                "score",
                "`score` computes on the event loop: 61 steps of 28 ms, 98% CPU.",
                "A thread does not help under the GIL: use a process pool, or chunk the work with checkpoints.",
                cost_ms=1_310.0,
            ),
        ),
        probe=ProbeSelf(0.011, 0, (), 42, cpu_ms=97.0, hook_ms=30.0),
        signals=make_signals(
            max_in_flight=57,
            busy_ms=8_800.0,
            loop_cpu_ms=2_110.0,
            off_cpu_ms=6_520.0,
            run_queue_ms=170.0,
            gc_pause_ms=96.0,
        ),
    )


def in_memory() -> Summary:
    """A client in the server's own process: no queue, no writing; few calls; the hooks of threads are missing."""
    return make_summary(
        server=ServerInfo("notes", "mcp", "2.3.0", "memory", "trio", "3.11.7"),
        window=Window(START_UNIX, 0.84),
        requests=RequestCounts(14, 1, 0, 0, 0),
        operations=(
            make_operation(
                "search_all_notes_of_every_workspace_by_full_text",
                9,
                22.0,
                48.0,
                None,
                make_budget(
                    queue_transport=None,
                    queue_dispatch=None,
                    busy=3.1,
                    ready_wait=0.6,
                    executor_wait=None,
                    executor_run=None,
                    executor_return=None,
                    awaiting=19.4,
                    write_wait=None,
                    write_flush=None,
                    unaccounted=0.1,
                ),
                errors=1,
                quality={"ready_wait": Quality("lower"), "awaiting": Quality("upper")},
                client_wait_ms=8.2,
            ),
            make_operation(
                "summarise",
                4,
                61.0,
                88.0,
                None,
                make_budget(
                    queue_transport=None,
                    queue_dispatch=None,
                    busy=1.2,
                    ready_wait=0.2,
                    executor_wait=None,
                    executor_run=None,
                    executor_return=None,
                    awaiting=62.0,
                    write_wait=None,
                    write_flush=None,
                ),
                method="prompts/get",
            ),
            make_operation(
                "notes://{id}",
                1,
                2.0,
                2.0,
                2.0,
                make_budget(
                    queue_transport=None,
                    queue_dispatch=None,
                    busy=1.7,
                    ready_wait=0.0,
                    executor_wait=None,
                    executor_run=None,
                    executor_return=None,
                    awaiting=0.3,
                    write_wait=None,
                    write_flush=None,
                ),
                method="resources/read",
            ),
        ),
        loop=LoopSummary(0.09, ArrivalDelay(0.3, 0.0, 0.8, 4.1, 6.0), "exact"),
        verdict=Verdict("not-enough-data", "notes", "Not enough data for a verdict: 14 requests in 0.84 s."),
        findings=(
            make_finding(
                "not-enough-data",
                "info",
                "notes",
                "14 requests in 0.84 s are fewer than statistics need.",
                "Run longer, or send more requests.",
            ),
        ),
        probe=ProbeSelf(None, 0, ("executor: anyio.to_thread.run_sync was replaced by something else",), 42),
    )


def killed() -> Summary:
    """A server that hung and was killed: requests that never ended, a step still running, marks lost."""
    return make_summary(
        server=ServerInfo("excel", "fastmcp", "4.1.0", "http", "asyncio", "3.12.1"),
        window=Window(START_UNIX, 184.0),
        requests=RequestCounts(96, 4, 0, 7, 3),
        operations=(
            make_operation(
                "export_workbook",
                6,
                61_000.0,
                118_000.0,
                118_000.0,
                make_budget(
                    queue_transport=2.0,
                    queue_dispatch=1.0,
                    busy=60_200.0,
                    ready_wait=12.0,
                    awaiting=340.0,
                    write_wait=0.0,
                    write_flush=0.0,
                    unaccounted=310.0,
                ),
                unfinished=2,
                quality={"queue_transport": Quality("bounded", 0.2, 9.0), **LONGER},
            ),
            make_operation(
                "read_range",
                71,
                12.0,
                61_400.0,
                118_000.0,
                make_budget(
                    queue_transport=4_100.0,
                    queue_dispatch=1_900.0,
                    busy=6.2,
                    ready_wait=880.0,
                    awaiting=4.0,
                    write_wait=1.0,
                    write_flush=2.1,
                ),
                errors=4,
                unfinished=4,
                quality={"queue_transport": Quality("bounded", 3_600.0, 4_900.0)},
            ),
            make_operation(
                "recalculate", 1, None, None, None, make_budget(**dict.fromkeys(BUDGET_PARTS)), unfinished=1
            ),
            make_operation(
                "ping", 18, 1.0, 2.2, 2.4, make_budget(queue_transport=0.4, busy=0.4, write_flush=0.2), method="ping"
            ),
        ),
        outstanding=Outstanding(9, 0.1, 0),
        blocked_by=(
            BlockedBy("read_range", "export_workbook", 39, 388_000.0, 412_000.0, "bounded"),
            BlockedBy("recalculate", "export_workbook", 1, 57_000.0, 57_000.0, "lower"),
        ),
        slow_steps=(
            SlowStep(
                "export_workbook",
                118_000.0,
                "gil",
                "/opt/app/.venv/lib/python3.12/site-packages/openpyxl/writer/excel.py",
                141,
                "_write_worksheets",
                "estimate",
                4,
                240_800.0,
                60_200.0,
                0.99,
                True,
                40,
                412_000.0,
            ),
        ),
        loop=LoopSummary(0.96, ArrivalDelay(38_400.0, 31_000.0, 104_000.0, 117_000.0, 118_000.0), "bounded"),
        verdict=Verdict(
            "blocking-call",
            "export_workbook",
            "`export_workbook` held the event loop for 118 s and was still running when the server was killed.",
        ),
        findings=(
            make_finding(
                "blocking-call",
                "critical",
                "export_workbook",
                "`export_workbook` held the event loop for 118 s and was still running when the server was killed.",
                "Move the work into a process pool, or save in smaller parts with a checkpoint between them.",
                confidence="lower",
                cost_ms=412_000.0,
            ),
        ),
        probe=ProbeSelf(0.002, 1_204, ("poll: the loop's selector has no select method",), 42),
        complete=False,
    )


SUMMARIES = {"healthy": healthy, "blocking": blocking, "in_memory": in_memory, "killed": killed}
