"""For each finding a summary that must raise it, and summaries just short of that which must not.

Every near miss differs from its fault in the one thing that its key names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mcp_probe.model import (
    BACKGROUND_OPERATION,
    CROWDING_OPERATION,
    LOOP_OPERATION,
    AbandonedWork,
    AwaitHolder,
    AwaitLoad,
    AwaitRoot,
    AwaitSummary,
    BacklogGrowth,
    Ending,
    FirstCall,
    FirstCalls,
    JobLine,
    LoadLevel,
    MeasureStats,
    OperationSummary,
    Quality,
    SerialAwaits,
    SlowStep,
    StepStats,
    Summary,
    WaitPercentiles,
)
from tests.aggregate.summaries import (
    make_blocked,
    make_growth,
    make_hunt,
    make_memory,
    make_operation,
    make_pool,
    make_slow,
    make_summary,
)

_VICTIM = make_operation(
    "lookup", p95=200.0, waited_for_others_ms=31.0, waited_for_others_p95_share=0.21, awaiting=100.0
)
_BLOCKED = (make_blocked("lookup", "resize", 3_100.0),)
_CROWDED = make_operation("add", count=1_000, p95=10.0, busy=5.0, crowding_ms=2.5, crowding_p95_share=0.21)
_FULL = make_pool(
    borrowed_peak=40,
    active_peak=40,
    pending_peak=22,
    wait_ms=WaitPercentiles(4.0, 11.0),
    at_limit_share=0.06,
    tokens_needed=52.3,
    holders=("render",),
)
_STARVED = replace(_FULL, transport_jobs=900, transport_wait_max_ms=51.0, transport_wait_ms=400.0)
_AWAITING = make_operation("fetch", awaiting=95.0, busy=5.0)
_SERIAL = make_summary(_AWAITING, max_in_flight=1, serial_gaps=90, serial_awaiting_share=0.95)
_UNREAD = make_operation(
    "export", p95=90.0, busy=10.0, write_flush=30.0, write_flush_p95_ms=51.0, response_bytes_max=910_000
)


def _signals(summary: Summary, **changed: object) -> Summary:
    return replace(summary, signals=replace(summary.signals, **changed))  # type: ignore[arg-type]


def _starting(*steps: SlowStep) -> Summary:
    """Its handshake waited for it, and later calls for its short steps."""
    return make_summary(
        make_operation("initialize", count=1, method="initialize", busy=1.0),
        make_operation(busy=1.0),
        blocked_by=(
            make_blocked("initialize", LOOP_OPERATION, 120.0, victims=1),
            make_blocked("add", LOOP_OPERATION, 300.0),
        ),
        slow_steps=steps,
        busy_ms=400.0,
    )


def _head_of_line(**changed: object) -> Summary:
    victim = replace(_VICTIM, **changed)  # type: ignore[arg-type]
    return make_summary(victim, blocked_by=_BLOCKED, slow_steps=(make_slow(),))


def _crowded(*, utilization: float | None = 0.91, busiest_share: float | None = None, **changed: object) -> Summary:
    victim = replace(_CROWDED, **changed)  # type: ignore[arg-type]
    return make_summary(victim, utilization=utilization, busiest_share=busiest_share)


def _kept(
    retained: int | None = 600_000, growth: int | None = 20_000_000, count: int = 100, **changed: object
) -> Summary:
    """Calls that keep memory, seen without a hunt: 60 MB in all."""
    row = make_operation("remember", count=count, memory=make_memory(retained=retained), **changed)  # type: ignore[arg-type]
    return make_summary(row, rss_growth_bytes=growth)


def _looked_up(mean: float | None, busy: float) -> OperationSummary:
    """Calls for each of which the SDK lists the tools."""
    return make_operation("find", busy=busy, measures={"schema_lookup_ms": MeasureStats(mean, mean, mean)})


def _crowded_by_look_ups(on_loop: float | None = 1.8, *, utilization: float = 0.72, **changed: object) -> Summary:
    """200 calls of 60 ms, of which the look-up is a twentieth, while the loop is busy for 1.44 s of 2 s."""
    measures = {
        "schema_lookup_ms": MeasureStats(3.2, 3.2, 3.2),
        "schema_lookup_busy_ms": MeasureStats(on_loop, on_loop, on_loop),
    }
    row = make_operation("query", count=200, busy=7.0, ready_wait=53.0, measures=measures)
    return make_summary(row, count=200, seconds=2.0, utilization=utilization, busy_ms=1_440.0, **changed)


def _logged(mean: float | None, logs: float | None, **changed: object) -> OperationSummary:
    """100 calls, of which some log a traceback; ``mean`` ms and ``logs`` records a call."""
    measures = {"error_logging_ms": MeasureStats(mean, mean, mean), "errors_logged": MeasureStats(logs, logs, logs)}
    return make_operation("parse", measures=measures, busy=30.0, **changed)  # type: ignore[arg-type]


def _told(
    sent: float | None = 21.0,
    write_ms: float | None = 2.0,
    flush_ms: float = 1.0,
    busy: float = 10.0,
    **changed: object,
) -> OperationSummary:
    """100 calls; each sends so many notifications, which are written in ``write_ms``, its answer in ``flush_ms``."""
    measures = {
        "notifications": MeasureStats(sent, sent, sent),
        "notification_write_ms": MeasureStats(write_ms, write_ms, write_ms),
    }
    return make_operation("index", measures=measures, busy=busy, write_flush=flush_ms, **changed)  # type: ignore[arg-type]


_LARGE_ANSWERS = replace(_told(0.0, 0.0, flush_ms=8.0), name="export")
_TOLD_AT = AwaitSummary(
    "queue", "anyio.MemoryObjectSendStream.send", "/srv/app/tools.py:31", 40, 60.0, None, (), (), "exact"
)

_RENDERS = make_slow(
    tool="parse", ms=180.0, cause="cpu", file="/srv/.venv/lib/python3.11/site-packages/rich/segment.py", line=204
)


_APPEND = AwaitHolder("append", "/srv/notes.py:19", 1_000.0, 100, "exact")


def _held(
    p95: float | None = 10.1, busy: float = 39.0, holder: AwaitHolder | None = _APPEND, **changed: object
) -> OperationSummary:
    """100 calls that wait 10 ms each for a lock that `append` holds."""
    root = AwaitRoot("sleep", "sleep", "/srv/notes.py:20", 900.0)
    found = AwaitSummary(
        kind="lock",
        object="asyncio.Lock notes.GATE",
        where="/srv/notes.py:27",
        count=100,
        total_ms=1_000.0,
        p95_ms=p95,
        holders=() if holder is None else (holder,),
        root=(root,),
        quality="exact",
    )
    return make_operation("list", count=100, busy=busy, awaiting=10.0, awaits=(replace(found, **changed),))  # type: ignore[arg-type]


def _await(kind: str, name: str, total_ms: float, **changed: object) -> AwaitSummary:
    row = AwaitSummary(kind, name, "/srv/app/tools.py:31", 100, total_ms, None, (), (), "exact")  # type: ignore[arg-type]
    return replace(row, **changed)  # type: ignore[arg-type]


_ASK = AwaitHolder("ask", "/srv/app/tools.py:30", 1_000.0, 60, "exact")


def _pooled(p95: float = 10.1, busy: float = 180.0, **changed: object) -> Summary:
    """100 calls that wait 10 ms each for a connection of a pool of 2; on average 3 waited while any did."""
    row = _await("connection-pool", "db pool", 1_000.0, p50_ms=9.0, p95_ms=p95, p99_ms=14.0, limit=2, pending_peak=7)
    row = replace(row, **{"holders": (_ASK,), **changed})  # type: ignore[arg-type]
    load = AwaitLoad("ask", "connection-pool", "db pool", 2.6, ())
    return make_summary(make_operation("ask", p95=220.0, busy=busy, awaiting=10.0, awaits=(row,)), await_loads=(load,))


def _on_loop(each_ms: float = 2.1, whole_ms: float = 10.0, stage: str = "busy", **changed: object) -> Summary:
    """100 calls that ask a Redis twice each, on the loop, for so long in all; none of their steps is slow."""
    row = _await("db", "redis://cache.example:6379", 100 * each_ms, calls=200, stage=stage, library="redis")
    return make_summary(make_operation("get", p95=12.0, busy=whole_ms, awaits=(row,)), **changed)


_SHOP = "https://shop.example:443"


def _connecting(opened: int = 9, connect_ms: float = 6.0, calls: int = 10, **changed: object) -> Summary:
    """100 calls of which ten ask a shop, for 100 ms in all."""
    rows = (
        _await("http", _SHOP, 80.0, phase="first-byte", calls=calls),
        _await("connect", _SHOP, connect_ms / 2, phase="tcp", opened=opened),
        _await("connect", _SHOP, connect_ms / 2, phase="tls", where=None),
    )
    return make_summary(make_operation("buy", awaiting=1.0, awaits=rows, **changed))  # type: ignore[arg-type]


_MAKING = (
    JobLine("/srv/app/client.py:196", "boto3.session.Session.__init__", 30.0, 0.75, 0.6, 0.9, 30),
    JobLine("/srv/app/client.py:202", "json.loads", 10.0, 0.25, 0.1, 0.4, 10),
)
_HARDLY = (replace(_MAKING[0], cpu_ms=3.0), replace(_MAKING[1], cpu_ms=1.0))
"""The same, of jobs that the machine let compute for 4 ms of 100."""
_PARSING = (replace(_MAKING[0], called="json.loads"), _MAKING[1])


def _in_turn(
    kind: str = "http",
    awaits: int = 500,
    longest_ms: float = 2_000.0,
    busy: float = 20.0,
    awaiting: float = 50.0,
    waiting: float = 0.0,
) -> Summary:
    """100 calls of which each makes five awaits of 10 ms, for 50 ms; the longest of each takes 20 ms."""
    row = SerialAwaits(kind, _SHOP, "/srv/app/tools.py:31", "awaiting", 100, awaits, 5_000.0, longest_ms, "exact")  # type: ignore[arg-type]
    parts = {"busy": busy, "awaiting": awaiting, "ready_wait": waiting, "write_wait": waiting}
    return make_summary(make_operation("buy", p95=70.0, serial_awaits=(row,), **parts))  # type: ignore[arg-type]


def _slow_shop(
    p95: float = 201.0, share: float = 0.51, crowded: float = 140.0, count: int = 40, **changed: object
) -> Summary:
    """A tool of 400 ms that asks a shop."""
    row = _await("http", _SHOP, 20_000.0, phase="first-byte", p50_ms=180.0, p95_ms=p95, p99_ms=230.0, p95_share=share)
    levels = (LoadLevel(1, 1, 40, 100.0), LoadLevel(5, 8, count, crowded))
    operation = make_operation("buy", p95=400.0, awaiting=300.0, awaits=(replace(row, **changed),))  # type: ignore[arg-type]
    return make_summary(operation, await_loads=(AwaitLoad("buy", "http", _SHOP, 3.0, levels),))


def _unnamed(share: float | None = 0.21, p95: float = 50.0, count: int = 100, looks: int = 0) -> Summary:
    row = _await("other", "lib.read", 900.0, p95_share=0.3, looks=looks)
    return make_summary(
        make_operation(
            "read",
            p95=p95,
            count=count,
            awaiting=45.0,
            awaits=(row,),
            awaits_unnamed_ms=700.0,
            awaits_unnamed_p95_share=share,
        )
    )


def _queued(share: float | None = 0.21, p95: float = 50.0, count: int = 100, **changed: object) -> Summary:
    row = _await("queue", "asyncio.Queue jobs.TODO", 1_000.0, p95_ms=12.0, p95_share=share)
    row = replace(row, **changed)  # type: ignore[arg-type]
    return make_summary(make_operation("submit", p95=p95, count=count, awaiting=10.0, busy=35.0, awaits=(row,)))


def _held_by_a_thread(kind: str = "lock", p95: float = 10.1) -> OperationSummary:
    """100 calls whose jobs wait 10 ms each for a lock."""
    row = _await(kind, "threading.Lock repos.GATE", 1_000.0, p95_ms=p95, stage="executor_run")
    return make_operation("status", busy=2.0, executor_run=37.0, awaits=(row,))


def _scattered(lost: float = 25.5, busy: float = 24.5, count: int = 100, **changed: object) -> Summary:
    """Calls that wait for three things in turn, none of them long; ``lost`` ms a call in all, as long as they work."""
    row = _await("semaphore", "asyncio.Semaphore quotes.TWO", lost / 5 * count, p95_ms=9.0, p95_share=0.1)
    operation = make_operation(
        "quote",
        p95=90.0,
        count=count,
        queue_transport=2 * lost / 5,
        awaiting=lost / 5 + 1.0,
        write_wait=2 * lost / 5,
        busy=busy - 1.0,
        awaits=(row, _await("sleep", "sleep", 1.0 * count, p95_ms=1.0, p95_share=0.1)),
    )
    return make_summary(replace(operation, **changed))  # type: ignore[arg-type]


_FASTER_SHOP = replace(_slow_shop(p95=150.0, crowded=151.0))


def first_calls_of(
    *own_ms: float,
    alone_ms: float | None = None,
    warm: int = 10,
    p50: float | None = 10.0,
    most: float = 50.0,
    known: int = 0,
    **of: object,
) -> OperationSummary:
    """A tool whose first calls worked so long, alone or beside each other, and whose later calls did not."""
    calls = tuple(FirstCall(ms, ms if alone_ms is None else alone_ms, (), None, None) for ms in own_ms)
    if calls:
        calls = (replace(calls[0], **of), *calls[1:])  # type: ignore[arg-type]
    return make_operation("search", first_calls=FirstCalls(calls, len(calls), warm, p50, most, known))


def _first(*own_ms: float, **of: Any) -> Summary:
    return make_summary(first_calls_of(*own_ms, **of))


def _abandoned(*rows: AbandonedWork, **of: Any) -> Summary:
    return make_summary(executors=(make_pool(abandoned_work=rows, **of),))


def _spinning(immediate: float | None, steps: float = 20_000.0, busy: float = 200.0, **of: Any) -> Summary:
    return make_summary(make_operation("poll", busy=busy, steps=StepStats(steps, 0.4, immediate), **of))


def _growing(**of: Any) -> Summary:
    """In ten seconds ten more requests came than were answered, of a hundred."""
    growth = BacklogGrowth(
        seconds=10.0,
        before=5,
        after=15,
        arrived=100,
        ended=90,
        first_ms=100.0,
        last_ms=150.0,
        waited_ms=50_000.0,
    )
    quiet = make_summary(make_operation("search", busy=10.0, awaiting=600.0), make_operation("add", count=5))
    return replace(quiet, outstanding=replace(quiet.outstanding, growth=replace(growth, **of)))


FAULTS: dict[str, Summary] = {
    "blocking-call": make_summary(slow_steps=(make_slow(ms=10.0, count=2),)),
    "cpu-bound-step": make_summary(slow_steps=(make_slow("score", 10.0, "cpu", count=2, cpu_share=0.98),)),
    "head-of-line": _head_of_line(),
    "crowding": _crowded(),
    "serial-handler": make_summary(_held()),
    "pool-exhausted": _pooled(),
    "client-per-request": _connecting(),
    "serial-awaits": _in_turn(),
    "slow-backend": _slow_shop(),
    "unexplained-wait": _unnamed(),
    "long-wait": _queued(),
    "gc-pause": make_summary(gc_worst_second_ms=101.0, gc_pause_ms=140.0, gc_max_pause_ms=60.0, gc_max_generation=2),
    "gil-contention": make_summary(
        gil_wait_ms=201.0, other_threads_cpu_ms=4_000.0, executors=(make_pool(cpu_ms=3_900.0, holders=("render",)),)
    ),
    "own-threads": make_summary(run_queue_ms=101.0, cpus=2.0, queued_beside_cpus=1.0),
    "host-pressure": make_summary(run_queue_ms=101.0),
    "executor-saturated": make_summary(executors=(_FULL,)),
    "transport-starvation": make_summary(executors=(_STARVED,)),
    "serial-client": _SERIAL,
    "slow-reader": make_summary(_UNREAD),
    "chatty-notifications": make_summary(_told()),
    "memory-growth": make_summary(leaks=make_hunt(make_growth(), make_growth("add", verdict="steady"))),
    "memory-peak": make_summary(make_operation("load", memory=make_memory(most=64_000_001))),
    "large-payload": make_summary(make_operation("export", response_bytes_max=1_000_001, encode_ms=4.0, busy=40.0)),
    "schema-lookup": make_summary(_looked_up(5.1, busy=20.0)),
    "stdout-pollution": make_summary(stdout_foreign_bytes=1, stdout_foreign_at="/srv/app/server.py:41"),
    "slow-error-logging": make_summary(_logged(0.63, 0.03, errors=3)),
    "unbounded-fan-out": make_summary(make_operation("crawl", tasks_max=1_001, memory=make_memory())),
    "cold-start": _first(100.0, imports=("pandas",), what="import of pandas", where="/srv/app/server.py:41"),
    "cold-start-stampede": _first(100.0, 100.0, what="subprocess git", where="/srv/app/server.py:41"),
    "abandoned-work": _abandoned(AbandonedWork("render", 3, 2_400.0, 1_001.0, 0.3)),
    "busy-spin": _spinning(10_001.0),
    "dispatch-backlog": _growing(),
    "crashed": make_summary(ending=Ending(1, None, "ValueError", "/srv/app/server.py:12")),
    "not-enough-data": make_summary(count=29),
}

ALSO_FAULTS: dict[tuple[str, str], Summary] = {
    ("blocking-call", "once, but somebody waited"): make_summary(
        slow_steps=(make_slow(ms=10.0),), blocked_by=(make_blocked("add", "resize", 7.0, victims=1),)
    ),
    ("blocking-call", "certain, in five calls"): make_summary(slow_steps=(make_slow(ms=400.0),), count=5, seconds=0.5),
    ("blocking-call", "cause unknown"): make_summary(slow_steps=(make_slow(cause="unknown"),)),
    ("blocking-call", "many short calls on the loop, a fifth of the tool's time"): _on_loop(),
    ("blocking-call", "many short calls on the loop, a fifth of the window"): _on_loop(21.0, whole_ms=200.0),
    ("blocking-call", "calls just long enough for a thread"): _on_loop(0.26, whole_ms=1.0),
    ("blocking-call", "many short calls, and one slow step that held up nobody"): _on_loop(
        slow_steps=(make_slow("get", 11.0),)
    ),
    ("serial-handler", "a fifth of what the transport leaves"): make_summary(
        replace(_held(), budget_ms=replace(_held().budget_ms, queue_transport=30.0, write_wait=30.0))
    ),
    ("serial-handler", "a lock of threads, of which nobody saw the holder"): make_summary(_held_by_a_thread()),
    ("long-wait", "of several things, half of its time"): _scattered(),
    ("long-wait", "of several things, just long enough"): _scattered(20.5, busy=5.0),
    ("head-of-line", "just as long as a slow step"): _head_of_line(total_ms=replace(_VICTIM.total_ms, p95=48.0)),
    ("slow-reader", "the GIL was not to be had, and what four in flight may get is too much for a pipe"): make_summary(
        replace(_UNREAD, response_bytes_max=16_385), gil_wait_ms=201.0
    ),
    ("blocking-call", "why is not known, and the tool's other steps waited less for the GIL"): make_summary(
        slow_steps=(make_slow(ms=60.0, cause="unknown"), make_slow(ms=59.0, cause="gil", line=7))
    ),
    ("cpu-bound-step", "a server that goes on as it started"): _starting(
        make_slow(LOOP_OPERATION, 150.0, "cpu", starts=1, victims=11, victim_ms=420.0),
        make_slow(LOOP_OPERATION, 110.0, "cpu", line=9, victims=11, victim_ms=420.0),
    ),
    ("crowding", "it ran for half of the time"): _signals(_crowded(), busy_ms=1_000.0, loop_cpu_ms=490.0),
    ("crowding", "and waited for a CPU for as long again"): _signals(
        _crowded(utilization=0.96), busy_ms=1_000.0, loop_cpu_ms=480.0, run_queue_ms=510.0
    ),
    ("crowding", "its busiest second, in a longer window"): _crowded(utilization=0.5, busiest_share=0.91),
    ("gc-pause", "one request only"): make_summary(gc_worst_request_share=0.11, gc_max_pause_ms=12.0, gc_pause_ms=12.0),
    ("gc-pause", "just long enough in all"): make_summary(
        seconds=2.0, gc_worst_second_ms=250.0, gc_pause_ms=401.0, gc_max_pause_ms=90.0
    ),
    ("gc-pause", "not long enough in all"): make_summary(
        seconds=2.0, gc_worst_second_ms=250.0, gc_pause_ms=399.0, gc_max_pause_ms=90.0
    ),
    ("gc-pause", "long enough without what the host added"): make_summary(
        gc_worst_request_share=0.3, gc_pause_ms=120.0, gc_stretched_ms=60.0, gc_max_pause_ms=60.0
    ),
    ("blocking-call", "slow even without what the host added"): make_summary(
        slow_steps=(make_slow(ms=60.0, count=2, own_ms=10.0, own_total_ms=20.0, own_p50_ms=10.0, run_queue_ms=100.0),)
    ),
    ("gil-contention", "one certain step in five calls"): make_summary(
        slow_steps=(make_slow("score", 60.0, "gil", cpu_share=0.3),), count=5, gil_wait_ms=None, busy_ms=0.0
    ),
    ("own-threads", "of a pool"): make_summary(
        run_queue_ms=101.0,
        cpus=0.5,
        queued_beside_cpus=0.4,
        executors=(make_pool(cpu_ms=3_900.0, holders=("render",)),),
    ),
    ("host-pressure", "not its own threads"): make_summary(run_queue_ms=101.0, cpus=2.0, queued_beside_cpus=0.99),
    ("host-pressure", "costly"): make_summary(run_queue_ms=520.0, busy_ms=2_000.0, loop_cpu_ms=1_400.0),
    ("host-pressure", "not quite costly"): make_summary(run_queue_ms=480.0, busy_ms=2_000.0, loop_cpu_ms=1_400.0),
    ("host-pressure", "throttled"): make_summary(throttled_ms=10.1),
    ("host-pressure", "one certain step in five calls"): make_summary(
        slow_steps=(make_slow("add", 60.0, "run-queue", cpu_share=0.3),), count=5, run_queue_ms=None, busy_ms=0.0
    ),
    ("executor-saturated", "certain, in five calls"): make_summary(
        executors=(replace(_FULL, wait_ms=WaitPercentiles(30.0, 50.0)),), count=5
    ),
    ("executor-saturated", "one had to wait"): make_summary(executors=(replace(_FULL, queued_peak=1),)),
    ("executor-saturated", "just over its share"): make_summary(executors=(replace(_FULL, at_limit_share=0.051),)),
    ("serial-client", "just so"): replace(
        _signals(_SERIAL, serial_gaps=15, serial_awaiting_share=0.5), requests=make_summary(count=30).requests
    ),
    ("transport-starvation", "certain, in five calls"): make_summary(executors=(_STARVED,), count=5, seconds=0.3),
    ("slow-reader", "nine answers"): make_summary(replace(_UNREAD, count=9)),
    ("slow-reader", "ten answers"): make_summary(replace(_UNREAD, count=10)),
    ("slow-reader", "one answer of many"): make_summary(
        replace(_UNREAD, name="initialize", count=1), make_operation("export", busy=40.0)
    ),
    ("slow-reader", "slower than the server's own hold-ups"): make_summary(
        replace(_UNREAD, write_flush_p95_ms=471.0),
        executors=(make_pool(transport_wait_max_ms=420.0),),
        slow_steps=(make_slow(ms=412.0),),
    ),
    ("chatty-notifications", "just over a fifth of the writing, with other operations' answers"): make_summary(
        _told(write_ms=2.26), _LARGE_ANSWERS
    ),
    ("chatty-notifications", "and the line was seen"): make_summary(_told(awaits=(_TOLD_AT,))),
    ("chatty-notifications", "a tenth of its time"): make_summary(_told(busy=20.0)),
    ("chatty-notifications", "just over a tenth of its time"): make_summary(_told(busy=18.0)),
    ("memory-growth", "a lower bound, of nobody knows which line"): make_summary(
        leaks=make_hunt(
            make_growth(bytes_per_call=500.0, quality=Quality("lower", 500.0), lines=(), types=(), how="tracemalloc")
        )
    ),
    ("memory-growth", "ten megabytes by now"): make_summary(leaks=make_hunt(make_growth(calls=2_000))),
    ("memory-growth", "no hunt, and the process grows with the calls"): _kept(),
    ("memory-growth", "no hunt, fifty calls"): _kept(count=50, retained=1_200_000),
    ("memory-growth", "no hunt, half of what is kept shows"): _kept(growth=16_000_000),
    ("memory-peak", "a tenth of the limit"): make_summary(
        make_operation("load", memory=make_memory(most=10_000_001)), memory_limit_bytes=100_000_000
    ),
    ("memory-peak", "half of the limit"): make_summary(
        make_operation("load", memory=make_memory(most=51_000_000)), memory_limit_bytes=100_000_000
    ),
    ("memory-peak", "just under half of the limit"): make_summary(
        make_operation("load", memory=make_memory(most=49_000_000)), memory_limit_bytes=100_000_000
    ),
    ("memory-peak", "certainly, though not exactly"): make_summary(
        make_operation(
            "load",
            memory=make_memory(most=70_000_000),
            quality={"peak_max": Quality("bounded", 65_000_000, 90_000_000)},
        )
    ),
    ("large-payload", "arguments"): make_summary(make_operation("load", request_bytes_max=1_000_001)),
    ("large-payload", "coding takes a fifth of its time"): make_summary(
        make_operation("export", response_bytes_max=900_000, encode_ms=4.0, decode_ms=1.1, busy=20.0)
    ),
    ("serial-handler", "a background task holds it"): make_summary(
        _held(holder=AwaitHolder(BACKGROUND_OPERATION, None, 1_000.0, 100, "exact"), root=(), kind="semaphore")
    ),
    ("serial-handler", "at two lines, each less than a fifth of its time"): make_summary(
        replace(
            _held(busy=45.0),
            awaits=tuple(
                replace(_held().awaits[0], where=f"/srv/notes.py:{line}", total_ms=600.0) for line in (27, 40)
            ),
        )
    ),
    ("serial-handler", "a semaphore whose limit and load are known"): make_summary(
        _held(kind="semaphore", object="asyncio.Semaphore notes.TWO", limit=2),
        await_loads=(AwaitLoad("list", "semaphore", "asyncio.Semaphore notes.TWO", 5.2, ()),),
    ),
    ("pool-exhausted", "just over a twentieth of its time"): _pooled(busy=188.0),
    ("pool-exhausted", "nobody knows its limit, its load, or who holds it"): replace(
        _pooled(limit=None, holders=(), pending_peak=0), await_loads=()
    ),
    ("client-per-request", "connecting is a twentieth of its time"): replace(
        _connecting(connect_ms=5.0),
        operations=(*_connecting(connect_ms=5.0).operations, make_operation("add", busy=10.0)),
    ),
    ("client-per-request", "connecting is less than that"): _connecting(connect_ms=4.9),
    ("client-per-request", "threads make clients"): _connecting(connect_ms=1.0, job_lines=_MAKING),
    ("client-per-request", "threads make clients on a busy machine"): _connecting(
        connect_ms=1.0, job_lines=_HARDLY, executor_run=1.0
    ),
    ("client-per-request", "threads compute something else"): _connecting(connect_ms=1.0, job_lines=_PARSING),
    ("client-per-request", "clients are made on the loop"): replace(
        _connecting(connect_ms=1.0, busy=3.0),
        operations=(*_connecting(connect_ms=1.0, busy=3.0).operations, make_operation("add", busy=10.0)),
        slow_steps=(
            make_slow("buy", 20.0, "cpu", total_ms=200.0, count=10, library="httpx._client.AsyncClient.__init__"),
            make_slow("buy", 100.0, "cpu", line=60),
        ),
        blocked_by=(make_blocked("add", "buy", 600.0),),
    ),
    ("client-per-request", "a database"): make_summary(
        make_operation(
            "ask",
            awaiting=5.0,
            awaits=(_await("db", "db://x:1", 300.0, calls=100), _await("connect", "db://x:1", 200.0, opened=100)),
        )
    ),
    ("serial-awaits", "just over a fifth of its time"): _in_turn(longest_ms=3_000.0, busy=49.0),
    ("serial-awaits", "a task group would save just over 10 ms"): _in_turn(longest_ms=3_950.0, busy=0.0),
    ("serial-awaits", "the loop takes three times as long to come back to it"): _in_turn(
        longest_ms=3_000.0, busy=49.0, waiting=200.0
    ),
    ("serial-awaits", "polling"): _in_turn(kind="sleep"),
    ("serial-awaits", "statements"): _in_turn(kind="db"),
    ("slow-backend", "slower under load"): _slow_shop(crowded=151.0),
    ("slow-backend", "slower under load, as ten calls say"): _slow_shop(crowded=151.0, count=10),
    ("slow-backend", "its library shows no phases"): _slow_shop(phase=None),
    ("unexplained-wait", "a few looks"): _unnamed(looks=9),
    ("unexplained-wait", "short calls"): _unnamed(share=0.5, p95=20.0),
    ("long-wait", "a backend that is slower under load and not slow"): _FASTER_SHOP,
    ("long-wait", "just 10 ms"): _queued(share=0.25, p95=40.0),
    ("schema-lookup", "just over a tenth of its time"): make_summary(_looked_up(8.1, busy=80.0)),
    ("schema-lookup", "much of what a busy loop does"): _crowded_by_look_ups(),
    ("schema-lookup", "just over 15 % of what a busy loop does"): _crowded_by_look_ups(1.09),
    ("schema-lookup", "of a loop that is busy for just over half of the time"): _crowded_by_look_ups(utilization=0.51),
    ("large-payload", "coding takes just over a fifth"): make_summary(
        make_operation("export", encode_ms=6.3, busy=30.0)
    ),
    ("stdout-pollution", "between the messages"): make_summary(stdout_foreign_bytes=1_200, stdout_is_wire=True),
    ("slow-error-logging", "and the line was seen"): make_summary(_logged(5.4, 0.03), slow_steps=(_RENDERS,)),
    ("unbounded-fan-out", "memory is not measured"): make_summary(make_operation("crawl", tasks_max=5_000)),
    ("cold-start", "what it did is not known"): _first(1_000.0),
    ("cold-start", "one of two first calls"): _first(1_000.0, 20.0),
    ("cold-start", "two first calls, one of them hardly slower than later ones can be"): _first(100.0, 99.0),
    ("cold-start-stampede", "three of four"): _first(900.0, 500.0, 500.0, 2.0),
    ("cold-start-stampede", "the later calls mostly wait for each other"): _first(
        422.0, 415.0, 409.0, alone_ms=109.0, p50=19.4, most=8.0, known=5
    ),
    ("abandoned-work", "one job, and the pool's time is not known"): _abandoned(
        AbandonedWork("render", 1, 60_000.0, 60_000.0, None), made_at="server.py:7"
    ),
    ("busy-spin", "100 ms"): _spinning(19_900.0, busy=100.6),
    ("busy-spin", "just below a fifth of a millisecond each"): _spinning(19_900.0, busy=3_990.0),
    ("dispatch-backlog", "by a little more"): _growing(after=16, arrived=101),
    ("dispatch-backlog", "ten answers"): _growing(ended=10),
    ("crashed", "by the system"): make_summary(ending=Ending(-9, "SIGKILL")),
    ("crashed", "in C code, before any request"): make_summary(ending=Ending(-11, "SIGSEGV"), count=0),
    ("crashed", "its port is in use"): make_summary(
        ending=Ending(1, None, "OSError", "/srv/app/server.py:9", is_port_in_use=True)
    ),
    ("crashed", "after all was answered"): make_summary(ending=Ending(1)),
    ("not-enough-data", "under a second"): make_summary(seconds=0.99),
}

NEAR_MISSES: dict[tuple[str, str], Summary] = {
    ("blocking-call", "step below the limit"): make_summary(slow_steps=(make_slow(ms=9.9, count=50),)),
    ("blocking-call", "mostly CPU"): make_summary(slow_steps=(make_slow(cause="cpu"),)),
    ("blocking-call", "mostly the run queue"): make_summary(slow_steps=(make_slow(cause="run-queue"),)),
    ("blocking-call", "mostly the GIL"): make_summary(slow_steps=(make_slow(cause="gil"),)),
    ("blocking-call", "why is not known, and the tool's other steps waited longer for the GIL"): make_summary(
        slow_steps=(make_slow(ms=60.0, cause="unknown"), make_slow(ms=61.0, cause="gil", line=7))
    ),
    ("blocking-call", "mostly the collector"): make_summary(slow_steps=(make_slow(cause="gc"),)),
    ("blocking-call", "a server that starts up"): make_summary(slow_steps=(make_slow(LOOP_OPERATION, 900.0, count=3),)),
    ("blocking-call", "the transport's many short steps are waited for, not its one long one"): make_summary(
        slow_steps=(make_slow(LOOP_OPERATION, 130.0, "unknown", victims=145, victim_ms=740.0),), busy_ms=1_000.0
    ),
    ("blocking-call", "a fifth of the tool's time, not more"): _on_loop(2.0),
    ("blocking-call", "a fifth of the window, not more"): _on_loop(20.0, whole_ms=200.0),
    ("blocking-call", "calls shorter than a hop to a thread is worth"): _on_loop(0.24, whole_ms=1.0),
    ("blocking-call", "one call of 2 ms in hundreds of own work"): _on_loop(2.0, whole_ms=300.0),
    ("blocking-call", "the same calls in a thread"): _on_loop(stage="executor_run"),
    ("blocking-call", "the same calls, awaited"): _on_loop(stage="awaiting"),
    ("blocking-call", "many short calls, in too few requests"): _on_loop(count=29),
    ("cpu-bound-step", "a server that starts up"): make_summary(slow_steps=(make_slow(LOOP_OPERATION, 900.0, "cpu"),)),
    ("cpu-bound-step", "a server to which a handshake came while it started"): _starting(
        make_slow(LOOP_OPERATION, 250.0, "cpu", starts=1, victims=11, victim_ms=420.0)
    ),
    ("cpu-bound-step", "step below the limit"): make_summary(slow_steps=(make_slow("score", 9.9, "cpu", count=50),)),
    ("cpu-bound-step", "mostly off the CPU"): make_summary(slow_steps=(make_slow(),)),
    ("head-of-line", "a fifth of p95, not more"): _head_of_line(waited_for_others_p95_share=0.20),
    ("head-of-line", "shorter than a slow step"): _head_of_line(total_ms=replace(_VICTIM.total_ms, p95=47.0)),
    ("head-of-line", "share not known"): _head_of_line(waited_for_others_p95_share=None),
    ("head-of-line", "too few requests"): replace(_head_of_line(), requests=make_summary(count=29).requests),
    ("head-of-line", "many small steps on a full loop"): make_summary(
        replace(_VICTIM, crowding_ms=40.0), blocked_by=_BLOCKED, slow_steps=(make_slow(),), utilization=0.95
    ),
    ("crowding", "it waited for the GIL for most of the time"): _signals(
        _crowded(), busy_ms=1_000.0, loop_cpu_ms=489.0
    ),
    ("crowding", "it was busy waiting for a CPU"): _signals(
        _crowded(utilization=0.94), busy_ms=1_000.0, loop_cpu_ms=480.0, run_queue_ms=510.0
    ),
    ("crowding", "loop not full in its busiest second"): _crowded(utilization=0.5, busiest_share=0.90),
    ("crowding", "loop not full"): _crowded(utilization=0.90),
    ("crowding", "utilization not known"): _crowded(utilization=None),
    ("crowding", "a fifth of p95, not more"): _crowded(crowding_p95_share=0.20),
    ("crowding", "too few requests"): replace(_crowded(), requests=make_summary(count=29).requests),
    ("crowding", "one blocker explains it"): replace(
        _crowded(waited_for_others_p95_share=0.5),
        blocked_by=(make_blocked("add", "resize", 2_500.0),),
        slow_steps=(make_slow(ms=10.0, count=250),),
    ),
    ("crowding", "the loop's own slow steps explain it"): replace(
        _crowded(),
        blocked_by=(make_blocked("add", LOOP_OPERATION, 2_500.0),),
        slow_steps=(make_slow(LOOP_OPERATION, 10.0, count=250),),
    ),
    ("gc-pause", "100 ms in a second, not more"): make_summary(gc_worst_second_ms=100.0, gc_pause_ms=900.0),
    ("gc-pause", "a tenth of a request, not more"): make_summary(gc_worst_request_share=0.10, gc_max_pause_ms=12.0),
    ("gc-pause", "too few requests"): make_summary(gc_worst_request_share=0.5, gc_max_pause_ms=49.0, count=29),
    ("gil-contention", "a fifth of busy time, not more"): _signals(FAULTS["gil-contention"], gil_wait_ms=200.0),
    ("gil-contention", "less than 1 % of the window"): _signals(
        FAULTS["gil-contention"], gil_wait_ms=99.0, busy_ms=100.0
    ),
    ("gil-contention", "too few requests"): replace(FAULTS["gil-contention"], requests=make_summary(count=29).requests),
    ("gil-contention", "not measured"): _signals(FAULTS["gil-contention"], gil_wait_ms=None),
    ("gil-contention", "a short step in five calls"): make_summary(
        slow_steps=(make_slow("score", 49.0, "gil", cpu_share=0.3),), count=5, gil_wait_ms=None, busy_ms=0.0
    ),
    ("own-threads", "less than half of its CPUs"): make_summary(run_queue_ms=101.0, cpus=2.0, queued_beside_cpus=0.99),
    ("own-threads", "a tenth of busy time, not more"): make_summary(
        run_queue_ms=100.0, cpus=2.0, queued_beside_cpus=1.0
    ),
    ("own-threads", "nobody knows how many CPUs it has"): make_summary(run_queue_ms=101.0, queued_beside_cpus=1.0),
    ("own-threads", "too few requests"): _signals(
        make_summary(run_queue_ms=500.0, count=29), cpus=2.0, queued_beside_cpus=1.0
    ),
    ("host-pressure", "its own threads had the CPUs"): FAULTS["own-threads"],
    ("blocking-call", "the host made it slow"): make_summary(
        slow_steps=(make_slow(ms=60.0, own_ms=9.9, own_total_ms=9.9, own_p50_ms=9.9, run_queue_ms=50.1),)
    ),
    ("cpu-bound-step", "it computed for less than that"): make_summary(
        slow_steps=(make_slow(ms=60.0, cause="cpu", own_ms=9.9, own_total_ms=9.9, own_p50_ms=9.9, run_queue_ms=40.0),)
    ),
    ("gc-pause", "the host stretched it in a request"): make_summary(
        gc_worst_request_share=0.5, gc_pause_ms=60.0, gc_stretched_ms=51.0, gc_max_pause_ms=9.0
    ),
    ("gc-pause", "a tenth of a request without what the host added"): make_summary(
        gc_worst_request_share=0.2, gc_pause_ms=120.0, gc_stretched_ms=60.0, gc_max_pause_ms=60.0
    ),
    ("host-pressure", "a tenth of busy time, not more"): make_summary(run_queue_ms=100.0),
    ("host-pressure", "less than 1 % of the window"): make_summary(run_queue_ms=99.0, busy_ms=200.0, loop_cpu_ms=20.0),
    ("host-pressure", "it queues when it wakes up, not while it is busy"): make_summary(
        run_queue_ms=500.0, loop_cpu_ms=900.0
    ),
    ("host-pressure", "busy time not known"): make_summary(run_queue_ms=500.0, busy_ms=0.0),
    ("gil-contention", "busy time not known"): make_summary(gil_wait_ms=500.0, busy_ms=0.0),
    ("host-pressure", "too few requests"): make_summary(run_queue_ms=500.0, count=29),
    ("host-pressure", "not measured"): make_summary(run_queue_ms=None, throttled_ms=None),
    ("host-pressure", "hardly throttled"): make_summary(throttled_ms=10.0),
    ("executor-saturated", "what waited could have had a thread"): make_summary(
        executors=(replace(_FULL, queued_peak=0),)
    ),
    ("executor-saturated", "rarely at its limit"): make_summary(executors=(replace(_FULL, at_limit_share=0.05),)),
    ("executor-saturated", "nobody waits long"): make_summary(
        executors=(replace(_FULL, wait_ms=WaitPercentiles(4.0, 10.0)),)
    ),
    ("executor-saturated", "too few requests"): make_summary(
        executors=(replace(_FULL, wait_ms=WaitPercentiles(4.0, 49.0)),), count=29
    ),
    ("executor-saturated", "no limit"): make_summary(executors=(replace(_FULL, max=None),)),
    ("executor-saturated", "waits not known"): make_summary(
        executors=(replace(_FULL, wait_ms=WaitPercentiles(None, None), wait_max_ms=None),)
    ),
    ("transport-starvation", "50 ms, not more"): make_summary(
        executors=(replace(_STARVED, transport_wait_max_ms=50.0),)
    ),
    ("transport-starvation", "never full: it waited for the loop"): make_summary(
        executors=(replace(_STARVED, borrowed_peak=39, at_limit_share=0.0, transport_wait_max_ms=180.0),)
    ),
    ("transport-starvation", "full at another time: it waited for the GIL"): make_summary(
        executors=(replace(_STARVED, transport_wait_max_ms=180.0, transport_starved_max_ms=50.0),)
    ),
    ("transport-starvation", "no limit"): make_summary(executors=(replace(_STARVED, max=None),)),
    ("serial-client", "two in flight, once"): _signals(_SERIAL, max_in_flight=2),
    ("serial-client", "29 requests"): replace(_SERIAL, requests=make_summary(count=29).requests),
    ("serial-client", "it thinks between calls"): _signals(_SERIAL, serial_gaps=49),
    ("serial-client", "the server computes"): _signals(_SERIAL, serial_awaiting_share=0.49),
    ("serial-client", "share not known"): _signals(_SERIAL, serial_awaiting_share=None),
    ("slow-reader", "50 ms, not more"): make_summary(replace(_UNREAD, write_flush_p95_ms=50.0)),
    ("slow-reader", "the loop was blocked as long"): make_summary(
        replace(_UNREAD, write_flush_p95_ms=462.0), slow_steps=(make_slow(ms=412.0),)
    ),
    ("slow-reader", "the writer waited for a thread as long"): make_summary(
        replace(_UNREAD, write_flush_p95_ms=150.0), executors=(make_pool(transport_wait_max_ms=100.0),)
    ),
    ("slow-reader", "the GIL was not to be had, and what four in flight may get fits into a pipe"): make_summary(
        replace(_UNREAD, response_bytes_max=16_384), gil_wait_ms=201.0
    ),
    ("slow-reader", "writes not seen"): make_summary(replace(_UNREAD, write_flush_p95_ms=None)),
    ("slow-reader", "too few requests"): make_summary(_UNREAD, count=29),
    ("chatty-notifications", "20 for each answer, not more"): make_summary(_told(20.0)),
    ("chatty-notifications", "15 for each answer"): make_summary(_told(15.0)),
    ("chatty-notifications", "a fifth of the writing, not more"): make_summary(_told(30.0, 2.0, flush_ms=8.0)),
    ("chatty-notifications", "30 for each answer, a twentieth of the writing"): make_summary(_told(30.0, 0.5, 9.5)),
    ("chatty-notifications", "the answers of others are most of the writing"): make_summary(
        _told(write_ms=2.2), _LARGE_ANSWERS
    ),
    ("chatty-notifications", "how long they were written is not known"): make_summary(_told(500.0, None)),
    ("chatty-notifications", "not known"): make_summary(_told(None, None)),
    ("chatty-notifications", "too few requests"): make_summary(_told(), count=29),
    ("memory-growth", "a cache that is full"): make_summary(leaks=make_hunt(make_growth(verdict="steady"))),
    ("memory-growth", "too few calls to say"): make_summary(
        leaks=make_hunt(make_growth(verdict="unknown", bytes_per_call=None, calls=49))
    ),
    ("memory-growth", "49 calls, no hunt"): _kept(count=49),
    ("memory-growth", "calls that keep nothing"): _kept(retained=0),
    ("memory-growth", "it may be nothing that they keep"): _kept(quality={"retained": Quality("bounded", 0, 600_000)}),
    ("memory-growth", "a process that hardly grows"): _kept(growth=14_000_000),
    ("memory-growth", "nobody knows whether the process grows"): _kept(growth=None),
    ("memory-growth", "less than ten megabytes"): _kept(retained=90_000, growth=9_000_000),
    ("memory-peak", "64 MB, not more"): make_summary(make_operation("load", memory=make_memory(most=64_000_000))),
    ("memory-peak", "a tenth of the limit, not more"): make_summary(
        make_operation("load", memory=make_memory(most=10_000_000)), memory_limit_bytes=100_000_000
    ),
    ("memory-peak", "it may be more"): make_summary(
        make_operation(
            "load",
            memory=make_memory(most=63_000_000),
            quality={"peak_max": Quality("bounded", 63_000_000, 90_000_000)},
        )
    ),
    ("memory-peak", "not known"): make_summary(make_operation("load", memory=make_memory(peak=None))),
    ("large-payload", "1 MB, not more"): make_summary(
        make_operation("export", response_bytes_max=1_000_000, request_bytes_max=1_000_000)
    ),
    ("large-payload", "a quick tool"): make_summary(make_operation("add", encode_ms=0.2, decode_ms=0.1, busy=0.5)),
    ("large-payload", "a fifth of its time, not more"): make_summary(
        make_operation("export", encode_ms=6.0, decode_ms=0.0, busy=30.0)
    ),
    ("large-payload", "5 ms, not more"): make_summary(make_operation("export", encode_ms=5.0, busy=20.0)),
    ("large-payload", "coding not seen"): make_summary(make_operation("export", busy=30.0)),
    ("serial-handler", "10 ms, not more"): make_summary(_held(p95=10.0)),
    ("serial-handler", "all waits short"): make_summary(_held(p95=None)),
    ("serial-handler", "a fifth of its time, not more"): make_summary(_held(busy=40.0)),
    ("serial-handler", "nobody holds it"): make_summary(_held(holder=None)),
    ("pool-exhausted", "10 ms, not more"): _pooled(p95=10.0),
    ("pool-exhausted", "a twentieth of its time, not more"): _pooled(busy=190.0),
    ("pool-exhausted", "one of its two was free: its calls waited for the loop"): _pooled(held_peak=1),
    ("pool-exhausted", "too few requests"): replace(_pooled(), requests=make_summary(count=29).requests),
    ("client-per-request", "85 connections for a hundred calls"): _connecting(opened=85, calls=100),
    ("client-per-request", "nine calls"): _connecting(opened=9, calls=9),
    ("client-per-request", "another host's connections"): make_summary(
        make_operation(
            "buy", awaiting=1.0, awaits=(_await("http", _SHOP, 80.0, calls=10), _await("connect", "x", 6.0, opened=10))
        )
    ),
    ("serial-awaits", "fewer than five"): _in_turn(awaits=470),
    ("serial-awaits", "a fifth of its time, not more"): _in_turn(longest_ms=3_000.0, busy=50.0),
    ("serial-awaits", "a task group would save less than 10 ms"): _in_turn(longest_ms=4_050.0, busy=0.0, awaiting=45.0),
    ("slow-backend", "200 ms, not more"): _slow_shop(p95=200.0),
    ("slow-backend", "half of its time, not more"): _slow_shop(share=0.50),
    ("slow-backend", "its share is not known"): _slow_shop(share=None),  # type: ignore[arg-type]
    ("slow-backend", "one call of forty asks it"): replace(
        _slow_shop(), operations=(make_operation("buy", p95=5.0, awaits=_slow_shop().operations[0].awaits),)
    ),
    ("slow-backend", "29 calls of it"): replace(
        _slow_shop(), operations=(replace(_slow_shop().operations[0], count=29),)
    ),
    ("slow-backend", "a sleep"): _slow_shop(kind="sleep"),
    ("unexplained-wait", "a fifth, not more"): _unnamed(share=0.20),
    ("unexplained-wait", "less than 10 ms"): _unnamed(share=0.5, p95=19.9),
    ("unexplained-wait", "29 calls of it"): _unnamed(count=29),
    ("unexplained-wait", "nobody looked"): _unnamed(share=None),
    ("long-wait", "a fifth, not more"): _queued(share=0.20),
    ("long-wait", "less than 10 ms"): _queued(share=0.5, p95=19.9),
    ("long-wait", "29 calls of it"): _queued(count=29),
    ("long-wait", "a backend that is not slower under load"): replace(
        _FASTER_SHOP, await_loads=_slow_shop(crowded=149.0).await_loads
    ),
    ("long-wait", "a backend that may be slower under load: nine calls say so"): replace(
        _FASTER_SHOP, await_loads=_slow_shop(crowded=151.0, count=9).await_loads
    ),
    ("long-wait", "another finding says it"): make_summary(_held(p95_share=0.9)),
    ("long-wait", "the client's own answer"): _queued(kind="client", object="elicitation"),
    ("serial-handler", "a lock of threads, for 10 ms and not more"): make_summary(_held_by_a_thread(p95=10.0)),
    ("serial-handler", "what jobs wait for is no lock"): make_summary(_held_by_a_thread("http")),
    ("long-wait", "of several things, half of its time, not more"): _scattered(25.0, busy=25.0),
    ("long-wait", "of several things, less than 20 ms"): _scattered(19.9, busy=5.0),
    ("long-wait", "of several things, 29 calls"): _scattered(count=29),
    ("long-wait", "of several things, and a notification"): _scattered(kind="notification"),
    ("long-wait", "of several things, and a finding beside"): replace(
        _scattered(), signals=make_summary(gil_wait_ms=501.0, busy_ms=1_000.0, other_threads_cpu_ms=4_000.0).signals
    ),
    ("schema-lookup", "5 ms, not more"): make_summary(_looked_up(5.0, busy=20.0)),
    ("schema-lookup", "a tenth of its time, not more"): make_summary(_looked_up(8.0, busy=80.0)),
    ("schema-lookup", "not known"): make_summary(_looked_up(None, busy=20.0)),
    ("schema-lookup", "15 % of what a busy loop does, not more"): _crowded_by_look_ups(1.08),
    ("schema-lookup", "of a loop that is idle half of the time"): _crowded_by_look_ups(utilization=0.5),
    ("schema-lookup", "it awaits, and the loop does other things"): _crowded_by_look_ups(0.2),
    ("schema-lookup", "the host made it long"): make_summary(  # the near miss of the fault matrix beside two hogs
        make_operation(
            "find",
            busy=4.3,
            ready_wait=4.6,
            awaiting=30.6,
            measures={
                "schema_lookup_ms": MeasureStats(5.44, 6.5, 12.7),
                "schema_lookup_busy_ms": MeasureStats(1.17, 0.7, 10.8),
            },
        ),
        run_queue_ms=368.0,
        busy_ms=518.0,
    ),
    ("schema-lookup", "nobody saw what the loop did for it"): _crowded_by_look_ups(None),
    ("unbounded-fan-out", "a thousand, not more"): make_summary(make_operation("crawl", tasks_max=1_000)),
    ("stdout-pollution", "nothing was written"): make_summary(stdout_is_wire=True),
    ("slow-error-logging", "fewer than three"): make_summary(_logged(0.6, 0.028)),
    ("slow-error-logging", "20 ms, not more"): make_summary(_logged(0.6, 0.03)),
    ("slow-error-logging", "not known"): make_summary(_logged(None, None)),
    ("slow-error-logging", "of a profiled function, which is part of a call"): make_summary(
        _logged(0.63, 0.03, kind="function")
    ),
    ("slow-error-logging", "none logged"): make_summary(_logged(0.0, 0.0)),
    ("cpu-bound-step", "it renders tracebacks, which has a finding of its own"): make_summary(
        _logged(5.4, 0.03), slow_steps=(_RENDERS,)
    ),
    ("cold-start", "99 ms"): _first(99.0, most=1.0, p50=1.0),
    ("cold-start", "nine times its warm median"): _first(500.0, p50=51.0, most=100.0),
    ("cold-start", "nine later calls"): _first(1_000.0, warm=9),
    ("cold-start", "no later call"): _first(1_000.0, warm=0, p50=None, most=0.0),
    ("cold-start", "a later call was half as slow"): _first(1_000.0, most=501.0),
    ("cold-start", "with others beside it, which may have made it slow"): _first(1_000.0, alone_ms=99.0),
    ("cold-start", "nobody saw what it did"): make_summary(make_operation("search")),
    ("cold-start", "several set up the same"): _first(1_000.0, 1_000.0),
    ("cold-start-stampede", "of most later calls it is not known how long they worked"): _first(
        422.0, 415.0, 409.0, alone_ms=109.0, p50=19.4, most=8.0, known=4
    ),
    ("cold-start-stampede", "one did, the others waited for it"): _first(1_000.0, 5.0, 5.0),
    ("cold-start-stampede", "as many at once may be as slow as that"): _first(1_000.0, 1_000.0, alone_ms=99.0),
    ("abandoned-work", "many, one second each, not more"): _abandoned(
        AbandonedWork("render", 300, 300_000.0, 1_000.0, 0.9)
    ),
    ("abandoned-work", "waiters gave up, and their jobs ended soon"): _abandoned(abandoned=300),
    ("busy-spin", "half of its steps, not more"): _spinning(10_000.0, busy=1_000.0),
    ("busy-spin", "less than 100 ms"): _spinning(19_900.0, busy=99.0),
    ("busy-spin", "its steps do work"): _spinning(19_900.0, busy=4_000.0),
    ("busy-spin", "nobody saw what woke it"): _spinning(None),
    ("busy-spin", "a profiled function inside a call"): _spinning(19_900.0, kind="function"),
    ("dispatch-backlog", "nine more in flight"): _growing(after=14, arrived=50),
    ("dispatch-backlog", "a tenth of what came, not quite"): _growing(after=25, arrived=201),
    ("dispatch-backlog", "answers take hardly longer"): _growing(last_ms=149.0),
    ("dispatch-backlog", "nine answers"): _growing(ended=9),
    ("dispatch-backlog", "no answers in the last quarter: calls hang"): _growing(last_ms=None),
    ("dispatch-backlog", "it did not grow steadily"): make_summary(),
    ("dispatch-backlog", "too few requests"): replace(_growing(), requests=make_summary(count=29).requests),
    ("crashed", "a clean end"): make_summary(ending=Ending(0)),
    ("crashed", "somebody asked it to end"): make_summary(ending=Ending(-15, "SIGTERM")),
    ("crashed", "somebody asked it, and it said so"): make_summary(ending=Ending(130)),
    ("crashed", "nobody knows"): make_summary(),
    ("not-enough-data", "30 requests in one second"): make_summary(count=30, seconds=1.0),
}

CROWDING_ROW = make_blocked("add", CROWDING_OPERATION, 2_500.0)
