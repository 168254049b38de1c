"""What several checks read from a summary: is there enough of it, what slow steps cost, who waited for whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mcp_probe.aggregate.quality import quality_of, worst
from mcp_probe.aggregate.slow_steps import IMPORT
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import (
    BUDGET_PARTS,
    CROWDING_OPERATION,
    DEFAULT_LIMITER,
    LOOP_OPERATION,
    BlockedBy,
    Cause,
    ExecutorSummary,
    OperationSummary,
    Quality,
    Signals,
    SlowStep,
    Summary,
    Tag,
)

UNSHOWN = 0.01
"""Shares of a duration up to this change none of its two or three digits by more than one."""


def is_enough(summary: Summary, options: FindingOptions) -> bool:
    """Whether shares and percentiles mean anything here."""
    return summary.requests.count >= options.min_requests and summary.window.seconds >= options.min_seconds


def judged(summary: Summary, options: FindingOptions) -> list[OperationSummary]:
    """Operations with enough calls to say what their slow ones do: p95 of fewer is a single call."""
    if not is_enough(summary, options):
        return []
    return [operation for operation in summary.operations if operation.count >= options.min_requests]


def window_ms(summary: Summary) -> float:
    """Length of the window."""
    return summary.window.seconds * 1000


def is_short_of_cpu(summary: Summary, options: FindingOptions) -> bool:
    """Whether the loop's thread waited for a CPU of the host for more than a little of the window."""
    return (summary.signals.run_queue_ms or 0.0) >= options.surroundings_share * window_ms(summary) > 0


def total_ms(operation: OperationSummary) -> float:
    """Time of all its calls together, as far as it could be seen."""
    return parts_ms(operation, *BUDGET_PARTS)


def in_hand_ms(operation: OperationSummary) -> float:
    """Time of all its calls from being taken up to their results: without what the transport had them for."""
    outside = ("queue_transport", "queue_dispatch", "write_wait", "write_flush")
    return parts_ms(operation, *(part for part in BUDGET_PARTS if part not in outside))


def own_ms(operation: OperationSummary) -> float:
    """The same without their waits for the loop, which are as long as others, or the host, make them."""
    return in_hand_ms(operation) - parts_ms(operation, "ready_wait")


def parts_ms(operation: OperationSummary, *parts: str) -> float:
    """Time of all its calls in these parts of the budget, as far as it could be seen."""
    means: list[float | None] = [getattr(operation.budget_ms, part) for part in parts]
    return operation.count * sum(mean for mean in means if mean is not None)


def mean_of(operation: OperationSummary, measure: str) -> float | None:
    """What a call has of ``measure`` (its key) on average; ``None`` where that is not known."""
    found = operation.measures.get(measure)
    return None if found is None else found.mean


def clients_waited_ms(summary: Summary) -> float | None:
    """What clients waited for answers in the window: the time of all requests together, as far as it could be seen.

    The whole of which each finding explains a part. ``None`` where the time of no request is known.
    """
    return sum(waited_for_ms(row) for row in summary.operations if row.kind == "request") or None


def clients_waited_quality(summary: Summary) -> Quality:
    """How exact that is. A sum of lower and of upper bounds is an estimate."""
    rows = [
        (waited_for_ms(row), quality_of(row, "all_calls_ms")) for row in summary.operations if row.kind == "request"
    ]
    lo = sum(ms for ms, _ in rows)
    highs = [ms if quality.tag == "exact" else quality.hi for ms, quality in rows]
    hi = None if None in highs else sum(high for high in highs if high is not None)
    if any(quality.tag in ("upper", "estimate") for _, quality in rows):
        is_close = hi is not None and hi <= lo * (1 + UNSHOWN)
        return Quality("upper" if is_close else "estimate", None, hi)
    if hi is None:
        return Quality("lower", lo)
    return Quality("bounded", lo, hi) if hi > lo else Quality("exact")


def waited_for_ms(operation: OperationSummary) -> float:
    """What clients waited for all calls of ``operation`` together, as far as it could be seen."""
    return total_ms(operation) if operation.all_calls_ms is None else operation.all_calls_ms


def is_little(summary: Summary, options: FindingOptions, cost_ms: float) -> bool:
    """True, but too small a part of what clients waited to be why."""
    return cost_ms < options.surroundings_share * (clients_waited_ms(summary) or 0.0)


def waited_by_clients(operation: OperationSummary, ms: float) -> float:
    """``ms`` of the time of its calls, at most all of it: parallel children may have waited for longer together.

    Nobody waits for a notification.
    """
    return 0.0 if operation.kind == "notification" else min(ms, waited_for_ms(operation))


def are_victims_seen(summary: Summary) -> bool:
    """Whether a request that waits for others is seen to: from its arrival on, and each step that it waits for."""
    blind = {"queue", "steps", "wake-ups"}
    return not any(blind.intersection(row.unseen) for row in summary.operations if row.kind == "request")


# --- thread pools -----------------------------------------------------------------------------------


def is_starved(pool: ExecutorSummary, options: FindingOptions) -> bool:
    """Whether the transport itself waited for a thread of ``pool``.

    While the pool was not full it waited for the event loop instead, which a job must pass to get its thread.
    """
    return starved_max_ms(pool) > options.transport_wait_ms


def starved_max_ms(pool: ExecutorSummary) -> float:
    """The transport's longest wait for a thread while the pool was full; of older versions, if it ever was."""
    if pool.transport_starved_max_ms is not None:
        return pool.transport_starved_max_ms
    was_full = pool.max is not None and (pool.borrowed_peak >= pool.max or pool.at_limit_share > 0)
    return pool.transport_wait_max_ms if was_full else 0.0


def saturated_ms(summary: Summary, options: FindingOptions, pool: ExecutorSummary) -> float | None:
    """The longest that its jobs waited for a thread while it was full; ``None`` if that is no finding."""
    longest = pool.wait_ms.p99 if pool.wait_ms.p99 is not None else pool.wait_max_ms
    if pool.max is None or longest is None or pool.queued_peak == 0:
        return None
    is_full = pool.at_limit_share > options.at_limit_share and longest > options.executor_wait_ms
    return longest if is_full and (is_enough(summary, options) or longest >= options.critical_step_ms) else None


def full_default_limiter(summary: Summary, options: FindingOptions) -> ExecutorSummary | None:
    """The limiter from which plain ``def`` tools take their threads, if it has none to spare."""
    for pool in summary.executors:
        if pool.name == DEFAULT_LIMITER and (
            is_starved(pool, options) or saturated_ms(summary, options, pool) is not None
        ):
            return pool
    return None


OWN_CAUSES: tuple[Cause, ...] = ("blocking-call", "unknown", "cpu")
"""Causes of slow steps for which the line itself is to blame."""


# --- slow steps -------------------------------------------------------------------------------------


def slow_steps(summary: Summary, options: FindingOptions, causes: Iterable[Cause]) -> list[SlowStep]:
    """Slow steps with one of ``causes``, without what the host added; of those it alone made slow, as they were."""
    wanted = frozenset(causes)
    found = [step for step in summary.slow_steps if step.cause in wanted]
    steps = [step if step.cause == "run-queue" else _without_host(step) for step in found]
    return [step for step in steps if step.ms >= options.slow_step_ms]


def _without_host(step: SlowStep) -> SlowStep:
    if step.own_ms is None:
        return step
    whole, own = max(step.total_ms, step.ms), step.own_total_ms or 0.0
    share = step.cpu_share
    return replace(
        step,
        ms=step.own_ms,
        total_ms=own,
        p50_ms=step.own_p50_ms or 0.0,
        cpu_share=None if share is None else min(1.0, share * whole / own) if own > 0 else 0.0,
    )


def is_import(step: SlowStep) -> bool:
    """Whether the step imported a module: the first call of something, and no other."""
    return step.library is not None and step.library.startswith(IMPORT)


def step_total_ms(steps: Iterable[SlowStep]) -> float:
    """Time of ``steps`` together."""
    return sum(max(step.total_ms, step.ms) for step in steps)


@dataclass(frozen=True, slots=True)
class Victims:
    """Requests that waited for one blocker, in the whole window."""

    count: int
    lo_ms: float
    hi_ms: float
    quality: Tag


def on_the_loop(summary: Summary) -> list[BlockedBy]:
    """Who waited for whom to leave the event loop; not who waited for what somebody held."""
    return [row for row in summary.blocked_by if row.kind is None]


def victims_of(summary: Summary, blocker: str) -> Victims:
    """Who waited for ``blocker``; nobody where the matrix has no row of it."""
    rows = [row for row in on_the_loop(summary) if row.blocker == blocker]
    certain = [row for row in rows if row.lo_ms > 0]
    steps = [step for step in summary.slow_steps if step.tool == blocker]
    count = max((step.victims for step in steps), default=0) or sum(row.victims for row in certain)
    lo_ms = sum(row.lo_ms for row in rows) or max((step.victim_ms for step in steps), default=0.0)
    return Victims(count, lo_ms, max(lo_ms, sum(row.hi_ms for row in rows)), worst(row.quality for row in certain))


def steps_cost_ms(summary: Summary, steps: Sequence[SlowStep]) -> float:
    """What clients waited for ``steps``: those that called them, and others whose requests could not run meanwhile.

    Nobody calls work that belongs to no request, or waits for the end of a notification. The matrix does not say which
    step of a tool somebody waited for, so each bears its share of the tool's time.
    """
    cost = 0.0
    silent = {LOOP_OPERATION, *(row.name for row in summary.operations if row.kind == "notification")}
    for tool in dict.fromkeys(step.tool for step in steps):
        own = step_total_ms(step for step in steps if step.tool == tool)
        slow = step_total_ms(step for step in summary.slow_steps if step.tool == tool)
        of_tool = max(slow, busy_ms(summary, tool))
        cost += 0.0 if tool in silent else own
        if of_tool > 0:
            cost += victims_of(summary, tool).lo_ms * (own / of_tool)
    return cost


def loop_cost_ms(summary: Summary, operation: OperationSummary, ms: float) -> float:
    """What clients waited for ``ms`` of the loop's time: its own, and its part of what others waited for the operation.

    Nobody waits for the end of a notification.
    """
    busy = busy_ms(summary, operation.name)
    waited = victims_of(summary, operation.name).lo_ms
    own = 0.0 if operation.kind == "notification" else ms
    return own + (waited * min(1.0, ms / busy) if busy > 0 else 0.0)


def queued_ms(signals: Signals) -> float | None:
    """At most this much of the loop's busy time was spent in the run queue; ``None`` where it is not known.

    The thread also queues when it wakes up in the poll, in all some 0.3 ms per stdio request: what does not fit into
    the busy time off the CPU is that.
    """
    if signals.run_queue_ms is None or signals.busy_ms <= 0:
        return None
    if signals.loop_cpu_ms is None:
        return min(signals.run_queue_ms, signals.busy_ms)
    return max(0.0, min(signals.run_queue_ms, signals.busy_ms - signals.loop_cpu_ms))


# --- who waited for whom ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiting:
    """What one operation's requests waited for on the loop, summed over the window."""

    slow_ms: float  # behind operations whose steps are slow
    small_ms: float  # behind all others, and behind steps too short to be kept
    share: float | None  # of its p95: behind steps of other requests
    crowding_share: float  # of its p95: behind steps too short to be kept
    quality: Tag

    @property
    def is_crowded(self) -> bool:
        """Small steps explain more of it than slow ones."""
        return self.small_ms > self.slow_ms

    @property
    def whole_share(self) -> float:
        """Of its p95: behind steps of any length."""
        return min(1.0, (self.share or 0.0) + self.crowding_share)


def waiting_of(summary: Summary, operation: OperationSummary, options: FindingOptions) -> Waiting:
    """How ``operation`` waited."""
    rows = named_rows(summary, operation.name)
    slow = {row.blocker for row in rows if is_slow_blocker(summary, row.blocker, options)}
    loop_rows = [row for row in on_the_loop(summary) if row.victim == operation.name and row.blocker == LOOP_OPERATION]
    if loop_rows and is_slow_blocker(summary, LOOP_OPERATION, options):
        slow.add(LOOP_OPERATION)
    crowding_ms = operation.crowding_ms * operation.count
    share, whole_ms = operation.crowding_p95_share, total_ms(operation)
    tags: list[Tag] = [row.quality for row in rows]
    if share is None:
        share = min(1.0, crowding_ms / whole_ms) if whole_ms > 0 else 0.0
        tags += ["estimate"] if share > 0 else []
    return Waiting(
        slow_ms=sum(row.lo_ms for row in (*rows, *loop_rows) if row.blocker in slow),
        small_ms=crowding_ms + sum(row.lo_ms for row in (*rows, *loop_rows) if row.blocker not in slow),
        share=operation.waited_for_others_p95_share,
        crowding_share=share,
        quality=worst(tags),
    )


def named_rows(summary: Summary, victim: str) -> list[BlockedBy]:
    """Requests that ``victim`` waited for, the worst first."""
    quiet = (CROWDING_OPERATION, LOOP_OPERATION)
    rows = [row for row in on_the_loop(summary) if row.victim == victim and row.blocker not in quiet]
    return sorted(rows, key=lambda row: (-row.lo_ms, row.blocker))


def is_slow_blocker(summary: Summary, blocker: str, options: FindingOptions) -> bool:
    """Whether ``blocker`` holds the loop with slow steps rather than with many small ones, the host's part left out.

    One slow step among thousands of short ones does not make it one: half of its time on the loop must be slow.
    """
    steps = [step for step in summary.slow_steps if step.tool == blocker]
    own = [_without_host(step) for step in steps]
    slow = [step for step in own if step.ms >= options.slow_step_ms]
    of_host = step_total_ms(steps) - step_total_ms(own)
    return bool(slow) and step_total_ms(slow) >= (busy_ms(summary, blocker) - of_host) / 2


def busy_ms(summary: Summary, operation: str) -> float:
    """Time of ``operation`` on the loop, as far as it is known; for the loop's own work, what no request used."""
    busy = {row.name: 0.0 for row in summary.operations}
    for row in summary.operations:
        busy[row.name] += (row.budget_ms.busy or 0.0) * row.count
    if operation == LOOP_OPERATION:
        return max(0.0, summary.signals.busy_ms - sum(busy.values()))
    return busy.get(operation, 0.0)
