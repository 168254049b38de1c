"""The shapes that cross a folder border: what was seen, what is kept, what it means.

Two families live here. *Frames* are what capture and record hand on (integer nanoseconds on
:mod:`mcp_probe.clock`'s timeline). The *Summary* family is what people and scripts read (floats in
milliseconds, ``None`` where a number could not be known; never 0 for unknown). Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

Tag = Literal["exact", "lower", "upper", "bounded", "estimate", "unavailable"]
"""How exact a number is; from best to worst: exact, bounded, lower, upper, estimate, unavailable."""

Severity = Literal["info", "warn", "critical"]
Outcome = Literal["ok", "error", "tool_error", "cancelled", "unfinished"]
RequestKind = Literal["request", "notification", "function"]
Signal = Literal["spans", "metric exports"]
Cause = Literal["blocking-call", "cpu", "gil", "run-queue", "gc", "unknown"]
MemoryTier = Literal["off", "light", "detailed", "leaks"]
MeasureTier = Literal["off", "light", "detailed"]
AwaitKind = Literal[
    "lock",
    "semaphore",
    "limiter",
    "condition",
    "event",
    "queue",
    "connection-pool",
    "connect",
    "http",
    "db",
    "subprocess",
    "sleep",
    "client",
    "task",
    "thread",
    "other",
]
"""What a request can await; see docs/awaits.md."""
AwaitStage = Literal["awaiting", "executor_run", "busy"]
"""The part of the budget that a wait is in. ``busy``: a call that kept the event loop until it returned."""
"""Where it waits: suspended, or in a job on a worker thread."""
AwaitPhase = Literal["dns", "tcp", "tls", "first-byte", "body"]
"""Of a call of a backend, as far as its library shows them."""
MemoryMethod = Literal["native-gross", "native-hybrid", "native-shadow", "tracemalloc", "jemalloc"]

BUDGET_PARTS = (
    "queue_transport",
    "queue_dispatch",
    "busy",
    "ready_wait",
    "executor_wait",
    "executor_run",
    "executor_return",
    "awaiting",
    "write_wait",
    "write_flush",
    "gc",
    "unaccounted",
)
"""The parts that partition a request's wall-clock time, in the order reports show them."""

LOOP_WAITS = ("queue_transport", "queue_dispatch", "ready_wait", "executor_return")
"""Parts of the budget in which a request could go on, but waits for the event loop."""

LOOP_OPERATION = "(loop)"
"""Operation name of work that belongs to no request: transports, timers, the server's own tasks."""

BACKGROUND_OPERATION = "(background task)"
"""Operation name of a task that belongs to no request and holds what requests await."""

UNKNOWN_HOLDER = "(unknown)"
"""Operation name of a holder that nobody saw take it."""

CROWDING_OPERATION = "(many small steps)"
"""Pseudo-blocker: time a runnable request waited behind steps shorter than 0.5 ms."""

DEFAULT_LIMITER = "anyio default limiter"
"""Name of the pool from which `anyio.to_thread.run_sync` takes its threads, and with it the SDK."""

WAKE_UPS, QUEUE, STEPS, WRITES = 1, 2, 4, 8
"""What could be seen of a request, as bits: when its tasks became ready, when its message came, each run on the loop,
and when its answer left. If a bit is missing, everything that depends on it is unknown."""

ALL_SEEN = WAKE_UPS | QUEUE | STEPS | WRITES
CAPABILITIES = {"wake-ups": WAKE_UPS, "queue": QUEUE, "steps": STEPS, "writes": WRITES}


T = TypeVar("T")


def draft_of(frozen: type[T]) -> type[T]:
    """An unfrozen twin of a frozen dataclass: ``draft.__class__ = frozen`` turns an instance into the frozen class.

    A frozen dataclass sets each of its fields through ``object.__setattr__``. That took half of the time that a
    record took to assemble (40 fields of 80 ns).
    """
    parts = fields(frozen)  # type: ignore[arg-type]
    body: dict[str, Any] = {part.name: part.default for part in parts if part.default is not MISSING}
    body["__annotations__"] = {part.name: part.type for part in parts}
    return dataclass(slots=True)(type(f"{frozen.__name__}Draft", (), body))


@dataclass(frozen=True, slots=True)
class Quality:
    """How exact one number is. ``lo`` and ``hi`` bound it, in the unit of the number they describe."""

    tag: Tag
    lo: float | None = None
    hi: float | None = None


# --- frames: what record keeps ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Budget:
    """Wall-clock partition of one request, nanoseconds per part; ``None`` = could not be seen."""

    queue_transport: int | None
    queue_dispatch: int | None
    busy: int | None
    ready_wait: int | None
    executor_wait: int | None
    executor_run: int | None
    executor_return: int | None
    awaiting: int | None
    write_wait: int | None
    write_flush: int | None
    gc: int | None
    unaccounted: int | None


class Wait(NamedTuple):
    """A stretch in which one unit of a request could run and did not (> 1 ms), or it was queued, or its answer was.

    It certainly waited in [start_ns, end_ns); it may have waited since earliest_ns (<= start_ns).
    """

    earliest_ns: int
    start_ns: int
    end_ns: int
    stage: Literal["queue", "ready", "return", "write"]


@dataclass(frozen=True, slots=True)
class JobTimes:
    """One call on a worker thread; ``None`` = has not happened."""

    executor: str
    submit_ns: int
    start_ns: int | None
    finish_ns: int | None
    resumed_ns: int | None


class HolderPart(NamedTuple):
    """Who held what a request awaited, in [from_ns, to_ns)."""

    request: int  # RequestRecord.id; 0: no request
    operation: str  # of that request, or BACKGROUND_OPERATION
    where: str | None  # file:line at which it took it
    from_ns: int
    to_ns: int
    among: int  # how many held it at once: this one counts for one part in so many
    trace_id: str | None = None  # 32 hex digits, of the holder's SERVER span; None: it is no request, or had none yet
    span_id: str | None = None  # 16 hex digits


@dataclass(frozen=True, slots=True)
class Await:
    """A stretch in which a request waited, and for what; stretches below ``SHORT_AWAIT_NS`` are summed."""

    kind: AwaitKind
    object: str  # by where it was made, by its variable, scheme://host:port, or the library's function that is awaited
    where: str | None  # file:line of the innermost line of the user's own code that awaited
    from_ns: int
    to_ns: int
    ns: int  # instants of it that are in its stage, and that belong to no other await
    tag: Tag  # of the name, not of the time
    count: int = 1  # how many stretches this one sums up
    holders: tuple[HolderPart, ...] = ()  # of a stretch of its own, in the order of time
    stage: AwaitStage = "awaiting"
    phase: AwaitPhase | None = None  # None: not of a backend, or its library does not show phases
    calls: int = 0  # requests or statements sent to a backend in it
    opened: int = 0  # connections that were opened in it
    limit: int | None = None  # how many can hold it at once; None: not known
    pending: int = 0  # how many waited for it as this began, this one included
    looks: int = 0  # how many of its stretches were seen by looks, not by hooks
    library: str | None = None  # whose call it was; only of the stage ``busy``


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes that one request asked for, held at most, and still held after its end; ``None`` = could not be known."""

    method: MemoryMethod
    scope: str  # which allocations the numbers are of: "all Python allocations", "Python allocator, > 512 B", …
    requested: int | None  # asked of the allocator, cumulative
    allocations: int | None
    peak: int | None
    retained: int | None
    quality: tuple[tuple[str, Tag, int | None, int | None], ...] = ()  # (field, tag, lo, hi); absent = exact
    arguments: int | None = None  # the object graph that came in, as pympler sizes it; None: not sampled
    result: int | None = None  # the same for the result


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One finished (or, at the window's end, unfinished) request, notification or profiled call."""

    id: int  # unique within one recording; 0 is never used
    kind: RequestKind
    method: str
    name: str | None  # tool or prompt name
    transport: str  # stdio, http, streams, memory, unknown
    outcome: Outcome
    error: str | None  # JSON-RPC code or exception type
    arrival_ns: int
    first_step_ns: int | None
    result_ns: int | None
    end_ns: int
    budget: Budget
    steps: int
    step_max_ns: int
    immediate_resumes: int  # resumptions that had no wait at all (busy-spin)
    sequential_awaits: int  # awaits with no other unit alive
    executor_run_sum_ns: int  # thread-seconds; may exceed the wall clock
    detached_ns: int
    decode_ns: int | None  # sub-figure of queue_transport
    encode_ns: int | None  # sub-figure of write_flush
    client_wait_ns: int | None  # sub-figure of awaiting: sampling, elicitation, roots
    request_bytes: int | None
    response_bytes: int | None
    waits: tuple[Wait, ...]
    quality: tuple[tuple[str, Tag, int | None, int | None], ...]  # (field, tag, lo_ns, hi_ns); absent = exact
    partial: bool  # attached mid-flight, or marks were lost
    loop: int | None = None  # ordinal of the loop its handler ran on
    protocol_version: str | None = None
    trace_id: str | None = None  # 32 hex digits; of the SERVER span, else of the caller's context
    span_id: str | None = None  # 16 hex digits: the request's SERVER span, whoever opened it
    parent_span_id: str | None = None  # the caller's span, from `params._meta.traceparent`
    trace_flags: int | None = None  # W3C; bit 0: sampled
    trace_state: str | None = None  # the caller's, length-capped
    server_span: Literal["app", "probe"] | None = None  # who decided on a SERVER span here; None: nobody did
    resource_uri: str | None = None  # length-capped; kept only if the probe made the request's span itself
    session_id: str | None = None  # of a real session, length-capped; only with telemetry on
    error_code: str | None = None  # JSON-RPC code of the answer
    request_id: str | None = None  # JSON-RPC id, length-capped; kept only where there is a span
    jobs: tuple[JobTimes, ...] = ()  # the first of its thread jobs (at most 16)
    memory: MemoryUse | None = None  # None: nothing measured it
    tasks_peak: int = 1  # most of its tasks alive at once, the handler's included
    sent_ns: int | None = None  # when its client wrote it, if it is on this machine and says so in `_meta`
    weight: int = 1  # how many requests it stands for: more than 1 if there were too many for a record each
    seen: int = ALL_SEEN  # WAKE_UPS | QUEUE | STEPS | WRITES
    # (name of a Measure, its number in the measure's unit or None, how exact) of each that was read
    measures: tuple[tuple[str, int | None, Tag], ...] = ()
    # (stage, from_ns, to_ns, pool, operation that held most of it): its transport waited for a thread of a full pool
    starved: tuple[tuple[Literal["read", "write"], int, int, str, str], ...] = ()
    awaits: tuple[Await, ...] | None = None  # what its awaiting was for; None: nobody looked
    jobs_looked: bool = False  # looks saw what its jobs waited for, or that they did not
    jobs_cpu_ns: int = 0  # of the threads of its jobs, while these ran
    # (file:line, function called there, CPU ns, looks): where looks saw its jobs compute
    job_work: tuple[tuple[str | None, str, int, int], ...] = ()
    gone_ns: int | None = None  # its client had given up, or left, before it got an answer: it waited until then


class StepRun(NamedTuple):
    """One run of one of a request's tasks on its loop, and the suspension before it."""

    task: int  # in the order of first runs, from 1; a later task may have the number again. 0: a plain callback
    suspended_ns: int  # end of the task's run before this one; its first run: when it was made
    earliest_ns: int  # it was ready no earlier than this
    ready_ns: int  # it was certainly ready
    start_ns: int
    end_ns: int
    wake: int  # WAKE_* of record/raw.py: what made it ready


class JobRun(NamedTuple):
    """One job of a request on a worker thread; ``None`` = has not happened, or is not known."""

    pool: int  # PoolSample.pool; 0: not known
    executor: str
    thread: int  # of the system; 0: it has not begun
    submit_ns: int
    start_ns: int | None
    finish_ns: int | None
    resumed_ns: int | None  # whoever waited for it ran again; cancelled before it began: when it was given up
    cpu_ns: int | None  # of its thread
    awaited: bool  # its waiter can be seen to resume


class LockHold(NamedTuple):
    """A lock that a request had and gave back, from the return of the call that got it."""

    kind: AwaitKind
    object: str
    where: str | None  # file:line at which it took it
    from_ns: int
    to_ns: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the tasks and jobs of one request did, one by one. Comes right after its record, in full recordings.

    It holds causes: who ran when, what was awaited, who held it. The parts of the budget, and who waited for whom,
    follow from them (``record/timeline.py``).
    """

    request: int  # RequestRecord.id
    taken_ns: int | None  # off the transport
    write_taken_ns: int | None  # by the writer of the answer
    steps: tuple[StepRun, ...]  # in the order of their ends
    suspended: tuple[tuple[int, int], ...]  # (task, end of its last run) of those that had not ended
    pauses: tuple[tuple[int, int], ...]  # (from_ns, to_ns): the collector ran inside one of its steps
    jobs: tuple[JobRun, ...]  # in the order of submission
    awaits: tuple[Await, ...]  # as hooks and looks saw them: they may overlap, and ``ns`` is to_ns - from_ns
    left_out: tuple[tuple[str, int], ...] = ()  # ("steps" | "jobs" | "awaits", how many; 0: not known how many)
    holds: tuple[LockHold, ...] = ()  # locks that it held, whether or not somebody waited; in the order of their ends
    streams: int = 0  # which of the server's pairs of streams it came through: a session has one; 0: not known
    new_connection: bool = False  # over HTTP: it was the first on its connection, as far as is known


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """Requests that ended the same way and have no record, because there were too many to make one of each.

    Records and groups never count the same request. A record with ``weight`` n stands for n requests: itself
    and n - 1 others, which are in groups. Sums are estimated by the weights; counts and durations are not estimated.
    """

    kind: RequestKind
    method: str
    name: str | None
    transport: str
    outcome: Outcome
    error: str | None
    protocol_version: str | None
    seen: int  # as in RequestRecord
    count: int
    durations: tuple[tuple[int, int, int], ...]  # (bucket, count, sum_ns) of arrival to end, see histogram.py
    longest: tuple[tuple[int, int, int], ...]  # the same from the earliest possible arrival; empty: no difference
    max_ns: int
    max_longest_ns: int
    first_ns: int  # first arrival
    last_ns: int  # last end
    serial_gaps: int = 0  # of them and of records with a weight: came at once after an answer, with none in flight
    overlapping: int = 0  # of the same: came while another was in flight
    closes: tuple[int, ...] = ()  # ids of those that an OpenRequest has named


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request that was open when frames were drained. It tells what hung if the server is killed."""

    id: int
    kind: RequestKind
    method: str
    name: str | None
    transport: str
    arrival_ns: int
    seen_ns: int


WITHOUT_GIL = " without the GIL"
"""Ends the library of a step that computed in C code which let other threads run."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of at least 0.5 ms on a loop. ``request`` 0 = work that belongs to no request."""

    start_ns: int
    end_ns: int
    request: int
    operation: str  # tool/prompt/method name, or LOOP_OPERATION
    loop: int  # ordinal of the loop it ran on
    running: bool = False  # still running when it was drained: end_ns is "at least"
    gc_ns: int = 0
    cpu_ns: int | None = None
    run_queue_ns: int | None = None
    cause: Cause | None = None  # None below the slow-step limit: not looked into
    file: str | None = None
    line: int | None = None
    function: str | None = None
    where: Tag = "unavailable"  # how sure file:line is
    within: tuple[int, ...] = ()  # requests that enclose ``request`` (profiled calls): never its victims
    trace_id: str | None = None  # of the request's SERVER span, where one was opened
    span_id: str | None = None
    library: str | None = None  # foreign function that the line was in, or "import of X"; may end in WITHOUT_GIL
    sleeps: int | None = None  # how often its thread gave its CPU up meanwhile


@dataclass(frozen=True, slots=True)
class LoopSample:
    """Health of one loop since the previous sample of that loop.

    ``iterations`` maps a log-linear bucket of iteration length (ns, see histogram.py) to
    (count, sum of lengths); from it arrival_delay follows by the formula of measurement.md.
    """

    at_ns: int
    span_ns: int
    loop: int
    name: str  # asyncio, uvloop, trio
    poll_ns: int  # time inside the poll call
    iterations: tuple[tuple[int, int, int], ...]  # (bucket, count, sum_ns)
    sum_sq_ns2: int
    max_ns: int
    small_steps: tuple[tuple[str, int, int], ...]  # (operation, count, sum_ns) of steps < 0.5 ms
    cpu_ns: int | None  # CPU of the loop's thread
    run_queue_ns: int | None
    other_threads_cpu_ns: int | None  # of the process, without ours
    quality: Tag


@dataclass(frozen=True, slots=True)
class PoolSample:
    """One executor (thread pool or limiter) since its previous sample; histograms are ns buckets."""

    at_ns: int
    span_ns: int
    pool: int
    name: str
    made_at: str | None  # file:line where it was made or first used
    max: float | None  # None = unbounded
    borrowed_peak: int
    active_peak: int
    pending_peak: int
    active_ns: int  # integral of active jobs over span
    pending_ns: int
    at_limit_ns: int
    submitted: int
    finished: int
    abandoned: int
    wait: tuple[tuple[int, int, int], ...]  # (bucket, count, sum_ns) of jobs that got a thread in span
    run_ns: int
    cpu_ns: int
    return_ns: int
    returned: int
    transport_jobs: int  # the transport's own jobs (reader, writer) in this pool
    transport_wait_max_ns: int
    transport_wait_ns: int
    holders: tuple[tuple[str, int, int], ...]  # (operation, jobs, run_ns): who held the threads
    transport_waits: tuple[tuple[int, int, int], ...] = ()  # as ``wait``, of the transport's own jobs
    # (operation, jobs, ns, longest_ns): they ran on after their request was cancelled or had failed
    ran_on: tuple[tuple[str, int, int, int], ...] = ()
    queued_peak: int | None = None  # most jobs at once beyond ``max``; None: in recordings of older versions


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """The profiled process since the previous sample."""

    at_ns: int
    span_ns: int
    cpu_ns: int
    rss_bytes: int | None
    gc_pauses: tuple[tuple[int, int, int], ...]  # (start_ns, end_ns, generation) of pauses >= 1 ms
    gc_ns: int  # all pauses
    gc_count: int
    throttled_ns: int | None
    cpu_pressure: float | None  # PSI some avg10, percent
    probe_cpu_ns: int  # our threads (measured) + hooks (calibrated count x cost)
    hook_ns: int  # the part of probe_cpu_ns on the profiled threads
    dropped: tuple[tuple[str, int], ...]  # reason -> count
    outstanding: int
    outstanding_peak: int
    finished_unwritten_peak: int
    backlog_bytes_peak: int | None
    stdout_foreign_bytes: int = 0  # written through sys.stdout beside the stdio transport
    detached: tuple[tuple[str, int], ...] = ()  # operation -> step and thread ns after its requests had ended
    active: tuple[tuple[str, int], ...] = ()  # method -> requests and notifications that have not ended
    gc_pauses_cpu: tuple[int | None, ...] = ()  # CPU time of each of gc_pauses; None: not read. Empty in old recordings
    stdout_foreign_at: str | None = None  # file:line of the first such write; None: there was none, or it is not known
    stdout_is_wire: bool = False  # the transport writes its messages to the same stream
    input_ended_ns: int | None = None  # the client of the stdio transport had closed it


@dataclass(frozen=True, slots=True)
class GrowthSample:
    """What the ended calls of each operation still hold, right after a full collection (``memory="leaks"``).

    Totals since the attachment. A row is (method, operation, calls, bytes, groups); the groups divide the calls from
    the oldest to the newest into (calls, bytes still held by them), and are empty where only the total can be known.
    """

    at_ns: int
    how: MemoryMethod
    scope: str
    rows: tuple[tuple[str, str, int, int, tuple[tuple[int, int], ...]], ...]
    collections: int  # full collections that the hunt has made so far
    collect_ns: int  # what they took together, with the GIL held
    notes: tuple[str, ...] = ()  # what this hunt could not do, and why
    are_lines_known: bool = False
    # Time to allocate and free an object here, before tracing began and with it; None: tracing was on already.
    allocation_ns: tuple[float, float] | None = None
    # (operation, file, line, function, bytes allocated there at least, bytes that the call held when it was looked at)
    peaks: tuple[tuple[str, str, int, str, int, int], ...] = ()
    # (resident, asked for by Python) just now in the whole process, without what is the probe's own; None: not known.
    process: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class GrowthSites:
    """Where the memory that stays was allocated, and what it is (``memory="leaks"``). Replaces an earlier such frame.

    A line is (operation, file, line, function, bytes, blocks), a type (operation, name, objects, bytes, bytes of one
    with all it refers to or None); operation "" means that it is known for the process only.
    """

    at_ns: int
    lines: tuple[tuple[str, str, int, str, int, int], ...]
    types: tuple[tuple[str, str, int, int | None, int | None], ...]
    own_files: tuple[
        str, ...
    ] = ()  # files of these lines that are not part of Python, of the SDK, or of what both run on
    looks: tuple[
        tuple[str, int, int], ...
    ] = ()  # (operation, calls by then, of how many of them every block was looked at)


@dataclass(frozen=True, slots=True)
class Header:
    """First frame of a recording: who is profiled, and how its clock relates to wall-clock time."""

    probe_version: str
    server: str
    sdk: str  # mcp, fastmcp
    sdk_version: str
    transport: str
    loop: str
    python: str
    pid: int
    start_unix: float
    start_ns: int
    timer_resolution_ns: int
    hooks: tuple[tuple[str, str], ...]  # hook -> "active…", "does not apply…" or why not
    notes: tuple[str, ...] = ()  # things a reader must know
    accelerator: str = ""  # "active" or why there is none; empty in older recordings
    memory: str = ""  # tier and back end, as "light: native-hybrid, …"; empty in older recordings
    memory_limit_bytes: int | None = None  # of the process's control group
    behind_proxy: bool = False  # HTTP requests had a proxy's headers
    awaits: str = ""  # "on" or "off"; empty in older recordings
    client_spans: tuple[str, ...] = ()  # of "http" and "db" those whose calls another library makes client spans of
    cpus: float | None = None  # that the process may use: its affinity, or less by its control group's limit
    full: bool = False  # a Timeline follows each request's record


TRANSPORT_CLOSED = "transport closed"


@dataclass(frozen=True, slots=True)
class End:
    """Last frame of a clean end: the recording lost nothing after the previous frame."""

    at_ns: int
    reason: str  # TRANSPORT_CLOSED: of one transport only; others may follow
    frames: int | None = None  # that came before it, headers and parts left out; None: not known
    missing: int = 0  # of these, as the reader of the recording found; negative: there are too many


@dataclass(frozen=True, slots=True)
class Part:
    """Where one file of a recording of limited size begins, or (``ends``) where the one before it ends."""

    number: int  # of the file that begins, counted from 1
    requests_before: int  # in all files before it, deleted ones included: with a record, or counted in a group
    frames_before: int  # the same for all frames but headers and parts
    limit_bytes: int  # of all files together
    ends: bool = False
    missing: int = 0  # as with End, where it ends a file


Frame = (
    Header
    | RequestRecord
    | Timeline
    | RequestGroup
    | OpenRequest
    | StepRecord
    | LoopSample
    | PoolSample
    | ProcessSample
    | GrowthSample
    | GrowthSites
    | Part
    | End
)


class FrameListener(Protocol):
    """Where frames go as they are: telemetry. One thread at a time, never the profiled loop's; may block that thread.

    The :class:`Header` comes first; a later one replaces it (a loop or a transport became known). Steps come
    before the requests they held up, requests when they have ended, samples about every second.
    """

    def take(self, frames: Sequence[Frame]) -> None:
        """Take the next frames. A listener that raises gets no more of them, is logged once, and is still closed."""

    def close(self, timeout_s: float) -> None:
        """No more frames will come: deliver what is left, within ``timeout_s``."""


# --- the summary: what people and scripts read ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerInfo:
    name: str
    sdk: str
    sdk_version: str
    transport: str
    loop: str
    python: str
    pid: int | None = None  # unknown where recordings of several processes were added up
    processes: int = 1  # that served MCP in the run; each has a summary of its own
    behind_proxy: bool = False  # requests had a proxy's headers: they arrive with its bytes


@dataclass(frozen=True, slots=True)
class Window:
    start_unix: float
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestCounts:
    count: int
    errors: int
    cancelled: int
    unfinished: int
    dropped: int
    recorded: int | None = None  # how many of ``count`` were looked at one by one; fewer if there were too many


@dataclass(frozen=True, slots=True)
class Percentiles:
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class BudgetMeans:
    """Mean per request of each part, ms; ``None`` where no request of the operation could see it."""

    queue_transport: float | None
    queue_dispatch: float | None
    busy: float | None
    ready_wait: float | None
    executor_wait: float | None
    executor_run: float | None
    executor_return: float | None
    awaiting: float | None
    write_wait: float | None
    write_flush: float | None
    gc: float | None
    unaccounted: float | None


@dataclass(frozen=True, slots=True)
class StepStats:
    mean: float  # steps per request
    max_ms: float
    immediate: float | None = None  # per request, those that followed a suspension without any wait; None: not seen


@dataclass(frozen=True, slots=True)
class MemoryStats:
    p50: int | None
    max: int | None


@dataclass(frozen=True, slots=True)
class OperationMemory:
    requested: MemoryStats
    peak: MemoryStats
    retained: MemoryStats
    arguments: MemoryStats = MemoryStats(None, None)  # of the calls that were sampled
    result: MemoryStats = MemoryStats(None, None)
    measured: int = 0  # calls with at least one known number
    method: str | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class MeasureStats:
    """One measure of an operation's calls, in the unit that its key names; ``None`` where no call's is known."""

    mean: float | None
    p50: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class AwaitHolder:
    """Who held what was awaited: ``ms`` of the waits, of ``calls`` calls that waited."""

    operation: str  # or BACKGROUND_OPERATION, UNKNOWN_HOLDER
    where: str | None  # file:line at which it took it
    ms: float
    calls: int
    quality: Tag


@dataclass(frozen=True, slots=True)
class AwaitRoot:
    """What holders waited for themselves meanwhile: another request's steps (``blocked``), or an await of theirs."""

    kind: AwaitKind | Literal["blocked"]
    name: str
    where: str | None
    ms: float


@dataclass(frozen=True, slots=True)
class AwaitSummary:
    """One thing that calls of an operation awaited at one line, over the window."""

    kind: AwaitKind
    object: str
    where: str | None  # file:line of the user's own code that awaits
    count: int
    total_ms: float
    p95_ms: float | None  # of single waits; None: all were too short to be kept one by one
    holders: tuple[AwaitHolder, ...]
    root: tuple[AwaitRoot, ...]
    quality: Tag  # of the name
    p50_ms: float | None = None  # as p95_ms
    p99_ms: float | None = None
    stage: AwaitStage = "awaiting"
    phase: AwaitPhase | None = None
    calls: int = 0  # requests or statements sent to a backend
    opened: int = 0  # connections opened
    limit: int | None = None  # the largest that was seen; None: not known
    pending_peak: int = 0  # most that waited for it at once
    p95_share: float | None = None  # of the time of the calls near p95; None: those were not looked at
    held_peak: int = 0  # most that held it at once while somebody waited; 0: not known
    looks: int = 0  # how many of its stretches looks saw
    estimated_ms: float = 0.0  # of total_ms: its part, by share of looks, of the suspensions that nobody looked at
    lo_ms: float | None = None  # total_ms lies between the two with 95 % probability; None: nothing of it is estimated
    hi_ms: float | None = None
    library: str | None = None  # whose calls they were; only of the stage ``busy``


@dataclass(frozen=True, slots=True)
class SerialAwaits:
    """Similar awaits of one call, one after the other with nothing beside them; sums over the calls that had several.

    A task group would have taken ``longest_ms`` instead of ``waited_ms``, if none of them needs another's result.
    """

    kind: AwaitKind
    object: str
    where: str | None
    stage: AwaitStage
    calls: int  # calls that had at least two
    awaits: int  # of those calls together
    waited_ms: float
    longest_ms: float  # the longest of each call, summed
    quality: Tag


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """Awaits beside which, on average, so many were under way (themselves included)."""

    least: int
    most: int
    count: int
    p50_ms: float


@dataclass(frozen=True, slots=True)
class AwaitLoad:
    """How many requests awaited one thing at once, and how long that took an operation's calls at each level, at the
    line at which they waited longest."""

    operation: str
    kind: AwaitKind
    object: str
    mean_at_once: float  # of all operations, over the time in which any of them awaited it
    levels: tuple[LoadLevel, ...]  # the lowest first


@dataclass(frozen=True, slots=True)
class FirstCall:
    """One of the first calls of an operation. ``None``: not known."""

    own_ms: float  # of its own work: on the loop, on threads, and what it awaited outside
    alone_ms: float  # the same, at least, if nothing had run beside it
    imports: tuple[str, ...]  # modules that were seen to be imported on the loop
    what: str | None  # "import of X", or kind and name of what it awaited: most of it
    where: str | None  # file:line of that


@dataclass(frozen=True, slots=True)
class FirstCalls:
    """Calls of one operation that came before any call of it had ended, and the later ones of all processes."""

    calls: tuple[FirstCall, ...]  # the dearest first, of those whose work is known
    count: int  # all of them
    warm: int  # how many came later
    warm_p50_ms: float | None  # of their whole time
    warm_max_ms: float  # of their own work
    warm_known: int = 0  # of how many of them that is known


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line at which jobs of an operation computed on worker threads: ``share`` of their CPU time, in [lo, hi]."""

    where: str | None  # file:line of the user's own code
    called: str  # what that line calls, or the function that it stands in
    cpu_ms: float
    share: float
    lo: float
    hi: float
    looks: int


@dataclass(frozen=True, slots=True)
class GrownPart:
    """What slow calls spent longer in than quick ones, on average. ``ms`` is negative where it was shorter.

    ``part`` is a part of the budget, or ``loop`` for all waits for the event loop. ``name``: who held the loop, or what
    was awaited; ``None`` where that is not known.
    """

    part: str
    kind: AwaitKind | None
    name: str | None
    ms: float
    quality: Tag


@dataclass(frozen=True, slots=True)
class SlowCalls:
    """The mean call of the quickest half, that of the slow calls (around p95), and what the difference is made of."""

    quick_ms: float
    quick_calls: int
    slow_ms: float
    slow_calls: int
    parts: tuple[GrownPart, ...]  # what grew most first; all together are slow_ms - quick_ms


@dataclass(frozen=True, slots=True)
class WriteMeans:
    """What the writer of an answer waited for meanwhile: mean ms per request, parts of ``write_wait`` and of
    ``write_flush``."""

    wait_loop: float  # it could go on, but not leave the event loop
    wait_thread: float  # no thread of a full pool was free
    flush_loop: float
    flush_thread: float


@dataclass(frozen=True, slots=True)
class OperationSummary:
    name: str
    method: str
    kind: RequestKind
    count: int
    errors: int
    cancelled: int
    unfinished: int
    total_ms: Percentiles
    budget_ms: BudgetMeans
    steps: StepStats
    memory: OperationMemory
    quality: dict[str, Quality]  # e.g. {"queue_transport": Quality("bounded", 0.1, 3.0)}
    slow_steps: int  # steps >= slow_step_ms
    critical_steps: int  # steps >= 50 ms
    slow_step_p50_ms: float | None
    slow_step_cpu_share: float | None  # CPU share of the slow steps' wall time
    waited_for_others_ms: float  # mean per request, from the blame matrix (lower bound)
    waited_for_others_p95_share: float | None  # of the requests near p95: share of their time
    crowding_ms: float  # mean per request spent behind steps < 0.5 ms
    detached_ms: float  # total over the window
    client_wait_ms: float | None  # mean
    decode_ms: float | None
    encode_ms: float | None
    write_flush_p95_ms: float | None
    request_bytes_max: int | None
    response_bytes_max: int | None
    executor_run_sum_ms: float
    crowding_p95_share: float | None = None  # as waited_for_others_p95_share, for steps < 0.5 ms
    tasks_max: int = 0  # tasks of one call alive at once, at most
    # From the client's write to the arrival; outside the budget.
    pipe_wait_ms: Percentiles = Percentiles(None, None, None, None)
    unseen: tuple[str, ...] = ()  # those of CAPABILITIES that could not be seen of at least one call
    measures: dict[str, MeasureStats] = field(default_factory=dict)  # by Measure.key
    awaits: tuple[AwaitSummary, ...] = ()  # longest in sum first
    awaits_unnamed_ms: float | None = None  # awaiting over the window that nothing named; None: nobody looked
    awaits_unnamed_p95_share: float | None = None  # the same, of the time of the calls near p95
    serial_awaits: tuple[SerialAwaits, ...] = ()  # most time in sum first
    first_calls: FirstCalls | None = None  # None: what they did is not known
    jobs_cpu_ms: float = 0.0  # of its thread jobs, over the window
    job_lines: tuple[JobLine, ...] = ()  # where they computed, most first; empty where too few looks saw them
    slow_calls: SlowCalls | None = None  # None: its slow calls take no longer than its quick ones
    write_ms: WriteMeans = WriteMeans(0.0, 0.0, 0.0, 0.0)
    # What clients waited for all its calls together, as far as it could be seen; None: nobody waits for a notification
    all_calls_ms: float | None = None


@dataclass(frozen=True, slots=True)
class GrowthLine:
    """A source line that allocated some of what stays."""

    file: str
    line: int
    function: str
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class GrowthType:
    """A type with objects that stay. ``each_bytes``: one of them with all it refers to, measured on a few."""

    name: str
    objects: int
    bytes: int | None
    each_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Growth:
    """Whether the memory that calls of one operation keep grows with the calls (``memory="leaks"``)."""

    name: str
    method: str
    verdict: Literal["grows", "steady", "unknown"]
    calls: int
    held_bytes: int  # still held by all its ended calls together
    bytes_per_call: float | None  # None: too few calls to say
    quality: Quality  # of bytes_per_call
    how: MemoryMethod
    scope: str
    lines: tuple[GrowthLine, ...] = ()
    types: tuple[GrowthType, ...] = ()
    floor_bytes: float | None = (
        None  # growth of fewer bytes a call could not have been told from noise; None: nothing was said
    )
    looked_at_calls: int | None = None  # how many calls there had been when lines and types were looked for
    seen_calls: int | None = None  # of how many of these every block was looked at; None: not told


@dataclass(frozen=True, slots=True)
class PeakLine:
    """The line at which a call in flight had allocated most of what it held when it was looked at."""

    operation: str
    file: str
    line: int
    function: str
    bytes: int  # at least
    held_bytes: int  # held by the call at that time: at most its peak


@dataclass(frozen=True, slots=True)
class Remainder:
    """What the process grew by beside the calls: Python's memory that no call owns, or memory of native code."""

    kind: Literal["nobody", "native"]
    verdict: Literal["grows", "steady", "unknown"]
    bytes: int | None  # from the first look to the last; None: not known
    bytes_per_call: float | None  # of all operations together; None: too few looks
    quality: Quality  # of bytes_per_call


@dataclass(frozen=True, slots=True)
class ProcessGrowth:
    """What the process grew by from the first look to the last: owned by calls, by nobody, and of native code."""

    calls: int  # that ended between the two
    resident_bytes: int
    owned_bytes: int
    remainders: tuple[Remainder, ...]


@dataclass(frozen=True, slots=True)
class LeakHunt:
    """What ``memory="leaks"`` found: one row per operation; growing ones come first, then most bytes a call."""

    operations: tuple[Growth, ...]
    collections: int
    collect_ms: float
    lines: tuple[GrowthLine, ...] = ()  # lines that grew and that no known operation allocated
    types: tuple[GrowthType, ...] = ()  # the same
    notes: tuple[str, ...] = ()
    peaks: tuple[PeakLine, ...] = ()
    are_lines_known: bool = True  # False: nothing was traced, see the notes
    # How many times longer allocating and freeing an object took with tracing, measured as it began; None: not known.
    tracing_factor: float | None = None
    process: ProcessGrowth | None = None  # None: it was not looked at twice, or cannot be taken apart here


@dataclass(frozen=True, slots=True)
class BacklogGrowth:
    """The last rise of the requests in flight to where they were most; only where each quarter of it had more."""

    seconds: float
    before: int  # in flight at its beginning
    after: int  # and at its end
    arrived: int
    ended: int
    first_ms: float | None  # mean time of those that ended in its first quarter; None: none did
    last_ms: float | None  # the same of its last quarter
    waited_ms: float  # of all that were in flight beside those at its beginning


@dataclass(frozen=True, slots=True)
class Outstanding:
    peak: int
    slope_per_s: float | None
    finished_unwritten_peak: int
    backlog_bytes_peak: int | None = None
    growth: BacklogGrowth | None = None  # None: it did not grow steadily


@dataclass(frozen=True, slots=True)
class BlockedBy:
    """``victim`` requests waited between lo_ms and hi_ms (sums over the window) for ``blocker``.

    Where ``kind`` is ``None``, it held the event loop; else it held what they awaited.
    """

    victim: str
    blocker: str
    victims: int  # how many requests of ``victim``
    lo_ms: float
    hi_ms: float
    quality: Tag
    kind: AwaitKind | None = None
    object: str | None = None  # what it held, as in AwaitSummary
    where: str | None = None  # file:line at which it took it


@dataclass(frozen=True, slots=True)
class SlowStep:
    """Slow steps of one tool at one place. ``ms`` is the longest; ``total_ms`` and ``count`` sum over the window."""

    tool: str
    ms: float
    cause: Cause
    file: str | None
    line: int | None
    function: str | None
    quality: Tag
    count: int = 1
    total_ms: float = 0.0
    p50_ms: float = 0.0
    cpu_share: float | None = None
    running: bool = False
    victims: int = 0  # requests that waited for this tool
    victim_ms: float = 0.0
    library: str | None = None  # foreign function that the line was in, or "import of X"
    # Of the same steps without what the host added: for steps that computed their CPU time, else all but the run queue.
    own_ms: float | None = None  # None, as the next two: in summaries of older versions
    own_total_ms: float | None = None
    own_p50_ms: float | None = None
    run_queue_ms: float | None = None  # sum over the window; None: not known
    starts: int = 0  # of ``count``: work of no request that was over before the server had answered anything


@dataclass(frozen=True, slots=True)
class WaitPercentiles:
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class AbandonedWork:
    """Jobs of one operation that ran on for at least 100 ms after their request was cancelled or had failed."""

    operation: str
    jobs: int
    ms: float  # of all of them, after that
    longest_ms: float
    share: float | None  # of the time that the executor's threads worked


@dataclass(frozen=True, slots=True)
class ExecutorSummary:
    name: str
    made_at: str | None
    max: float | None
    borrowed_peak: int
    active_peak: int
    pending_peak: int
    wait_ms: WaitPercentiles
    wait_max_ms: float | None
    run_ms: float | None  # mean
    return_ms: float | None  # mean
    at_limit_share: float
    tokens_needed: float | None  # Little: arrival rate x mean run
    jobs: int
    abandoned: int
    transport_jobs: int
    transport_wait_max_ms: float
    transport_wait_ms: float
    holders: tuple[str, ...]  # who held the threads, most thread time first
    cpu_ms: float | None = None  # CPU time of its jobs, sum over the window
    wait_total_ms: float | None = None  # waits of its jobs, sum over the window
    abandoned_work: tuple[AbandonedWork, ...] = ()  # most time first
    # Most jobs at once beyond ``max``: 0 means that each wait was for the event loop, or for a thread to start.
    queued_peak: int | None = None  # None: of older versions
    # The longest of the transport's waits that ended while the pool was full; None: of older versions.
    transport_starved_max_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ArrivalDelay:
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class LoopSummary:
    utilization: float | None
    arrival_delay_ms: ArrivalDelay
    quality: Tag


@dataclass(frozen=True, slots=True)
class Verdict:
    code: str  # a finding's code, "healthy" or "not-enough-data"
    subject: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Gain:
    """What the advice of a finding would give, by a simulation that gives what was measured where nothing changes.

    Of the operation whose calls would gain most. ``percentile`` is 95, of fewer than 20 calls 50.
    """

    operation: str
    percentile: int
    before_ms: float  # measured
    after_ms: float  # predicted
    changes: tuple[str, ...]  # as options of `mcp-probe what-if`


@dataclass(frozen=True, slots=True)
class GuiltyPlace:
    """One of the places in which a finding happened."""

    where: str | None  # file:line; None: nobody saw it
    quality: Tag  # of that
    what: str  # words for what happened there; code in `backticks`
    ms: float  # over the window
    count: int


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    severity: Severity
    confidence: Tag
    subject: str
    sentence: str
    advice: str
    evidence: dict[str, float | int | str | None]
    cost_ms: float = 0.0  # waiting of clients that it explains; at most `Summary.clients_waited_ms`; ranks findings
    gain: Gain | None = None  # None: not predicted
    places: tuple[GuiltyPlace, ...] = ()  # most time first; empty where its sentence names the only one


@dataclass(frozen=True, slots=True)
class Delivery:
    """Telemetry of one signal that this process sent, where it set up the exporters itself."""

    signal: Signal
    destination: str
    delivered: int
    undelivered: int
    reason: str | None  # why the first undelivered item was not delivered


@dataclass(frozen=True, slots=True)
class ProbeSelf:
    overhead_share: float | None  # share of the process's CPU
    dropped_marks: int
    disabled_hooks: tuple[str, ...]  # "name: why"
    timer_resolution_ns: int
    notes: tuple[str, ...] = ()
    telemetry: tuple[Delivery, ...] = ()
    accelerator: str | None = None  # "active" or why there is none; None where it is not known
    memory: str | None = None  # tier and back end of the memory figures; None where it is not known
    awaits: str | None = None  # "on", or "off": nobody looked at what calls awaited; None where it is not known
    cpu_ms: float | None = None  # CPU that the probe used; None where no sample of the process came
    hook_ms: float | None = None  # of it, on the server's own threads: what it added to the requests


@dataclass(frozen=True, slots=True)
class Signals:
    """Evidence for findings that is not in the row of an operation, a pool or a loop."""

    max_in_flight: int
    serial_gaps: int  # gaps response -> next request below 1 ms (over HTTP 5 ms) with nothing else in flight
    serial_awaiting_share: float | None
    gc_pause_ms: float
    gc_worst_second_ms: float  # this and the next: by the CPU time of the pauses, where it is known
    gc_max_pause_ms: float
    gc_max_generation: int | None
    gc_worst_request_share: float | None
    busy_ms: float  # loop busy over the window
    loop_cpu_ms: float | None
    run_queue_ms: float | None
    off_cpu_ms: float | None  # busy - cpu - run queue
    gil_wait_ms: float | None  # estimate
    other_threads_cpu_ms: float | None
    throttled_ms: float | None
    cpu_pressure: float | None
    rss_bytes_max: int | None
    rss_growth_bytes: int | None = None  # median of the window's last quarter minus median of its second
    memory_limit_bytes: int | None = None  # of the control group or the process
    rss_still_grows: bool = False  # a third of rss_growth_bytes came in the window's last quarter
    gc_stretched_ms: float | None = None  # of gc_pause_ms: what the thread that collected did not run
    cpus: float | None = None  # that the process may use
    queued_beside_cpus: float | None = None  # CPUs that its other threads used while the loop waited for one, mean
    stdout_foreign_bytes: int = 0  # written through sys.stdout beside the stdio transport
    stdout_foreign_at: str | None = None  # file:line of the first such write
    stdout_is_wire: bool = False  # they got between the transport's messages
    busiest_share: float | None = None  # of the time between two samples of the loop, about a second: most busy


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended that `mcp-probe run` had started. No message of an exception: it may hold a secret."""

    exit_code: int  # negative for the signal that ended it
    signal: str | None = None  # its name
    exception: str | None = None  # the type of one that nothing caught, in any process below the command
    where: str | None = None  # file:line of its innermost frame
    is_port_in_use: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What one attached probe, recording or run has to say."""

    format: str
    probe_version: str
    server: ServerInfo
    window: Window
    requests: RequestCounts
    operations: tuple[OperationSummary, ...]
    outstanding: Outstanding
    blocked_by: tuple[BlockedBy, ...]
    slow_steps: tuple[SlowStep, ...]
    executors: tuple[ExecutorSummary, ...]
    loop: LoopSummary
    verdict: Verdict
    findings: tuple[Finding, ...]
    probe: ProbeSelf
    signals: Signals
    complete: bool = True  # False: the stream of frames ended without its End (killed, crashed)
    notes: tuple[str, ...] = field(default=())
    leaks: LeakHunt | None = None  # only with memory="leaks"
    await_loads: tuple[AwaitLoad, ...] = ()  # of backends, connection pools and semaphores
    ending: Ending | None = None  # only of `mcp-probe run`
    clients_waited_ms: float | None = None  # sum over all requests; None where none of it is known
    clients_waited_quality: Quality = Quality("exact")
    came_later: bool = False  # True: the probe was brought into a server that ran already, by `mcp-probe attach`

    def to_json(self) -> dict[str, Any]:
        """The summary as plain JSON values, skeleton fixed by ``format``; keys may be added, never renamed."""
        return asdict(self)
