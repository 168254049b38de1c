"""Threads that are not there when they are needed, or not needed: `executor-saturated`, `transport-starvation`,
`abandoned-work`."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from mcp_probe.aggregate import phrasing
from mcp_probe.aggregate.checks.evidence import (
    is_little,
    is_short_of_cpu,
    is_starved,
    saturated_ms,
    starved_max_ms,
    window_ms,
)
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import ExecutorSummary, Finding, Summary

_TRANSPORT_THREADS = 2  # reader and writer of stdio, mcp 2.3
_MOST = "the most that came at once"
_ALL_AT_ONCE = f"{_MOST}, and two for the transport"
_DEFAULT_LIMITER = "`anyio.to_thread.current_default_thread_limiter().total_tokens = {}`"


# --- saturation -------------------------------------------------------------------------------------


def executor_saturated(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per pool that was full while jobs waited."""
    for pool in summary.executors:
        longest_ms = saturated_ms(summary, options, pool)
        if pool.max is not None and longest_ms is not None:
            yield _saturated(summary, options, pool, pool.max, longest_ms)


def _saturated(
    summary: Summary, options: FindingOptions, pool: ExecutorSummary, limit: float, longest_ms: float
) -> Finding:
    most = pool.active_peak + pool.pending_peak if pool.queued_peak is None else limit + pool.queued_peak
    waves = ceil(most / limit) if limit > 0 else None
    median = "" if pool.wait_ms.p50 is None else f"{phrasing.duration(pool.wait_ms.p50)} at the median and "
    tail = "worst" if pool.wait_ms.p99 is None else "p99"
    sentence = (
        f"`{pool.name}` was at its limit of {limit:g} for {phrasing.percent(min(1.0, pool.at_limit_share))} "
        f"of the time: jobs waited {median}{phrasing.duration(longest_ms)} at {tail} for a thread, "
        f"up to {pool.pending_peak:,} at once"
    )
    if waves is not None and waves > 1:
        sentence += f", the last after {phrasing.plural(waves - 1, 'round')} of other jobs"
    if pool.holders:
        sentence += f"; {phrasing.listed(pool.holders)} held the threads"
    if is_starved(pool, options):
        sentence += ", and the transport's reader and writer queued among them"
    return Finding(
        code="executor-saturated",
        severity="info" if is_little(summary, options, _waited_ms(pool)) and not is_starved(pool, options) else "warn",
        confidence="exact",
        subject=pool.name,
        sentence=f"{sentence}.",
        advice=_saturated_advice(summary, options, pool, limit),
        evidence={
            "limit": limit,
            "made_at": pool.made_at,
            "at_limit_share": pool.at_limit_share,
            "pending_peak": pool.pending_peak,
            "wait_p50_ms": pool.wait_ms.p50,
            "wait_p99_ms": longest_ms,
            "waves": waves,
            "tokens_needed": pool.tokens_needed,
            "jobs": pool.jobs,
            "holders": ", ".join(pool.holders),
        },
        cost_ms=_waited_ms(pool),
    )


def _waited_ms(pool: ExecutorSummary) -> float:
    """What its jobs waited for a thread, together."""
    if pool.wait_total_ms is not None:
        return pool.wait_total_ms
    return pool.jobs * (pool.wait_ms.p50 or 0.0)


def _most_at_once(summary: Summary, pool: ExecutorSummary) -> int:
    """Threads that everything that came at once would take, the transport's own included."""
    most = max(ceil(pool.max or 0), pool.active_peak + pool.pending_peak)
    if not pool.transport_jobs:
        return most
    # What a reader without a thread did not read is not pending in the pool: outstanding requests may want one, too.
    return max(most, summary.outstanding.peak) + _TRANSPORT_THREADS


def _saturated_advice(summary: Summary, options: FindingOptions, pool: ExecutorSummary, limit: float) -> str:
    if is_starved(pool, options):
        return "See transport-starvation of this pool: the same advice helps here."
    wanted = ceil(pool.tokens_needed) if pool.tokens_needed is not None else 0
    first = ""
    if wanted > limit:
        why = f"on average the load uses about {wanted:,}"
    else:
        wanted = max(_most_at_once(summary, pool), ceil(limit) + 1)
        why = _ALL_AT_ONCE if pool.transport_jobs else _MOST
        first = phrasing.MORE_CPU if is_short_of_cpu(summary, options) else ""  # jobs without one keep threads longer
    advice = f"{first}Raise the limit to {wanted:,} ({why}): {_how_to_raise(pool, wanted)}; or bound the callers."
    run = (pool.run_ms or 0.0) * pool.jobs
    if pool.cpu_ms is not None and run > 0 and pool.cpu_ms > run / 2:
        advice += " Its jobs mostly compute, and more threads do not help that under the GIL: use a process pool."
    return advice


def _how_to_raise(pool: ExecutorSummary, wanted: int) -> str:
    if pool.made_at:
        place, _, line = pool.made_at.rpartition(":")
        short = phrasing.place_of(place, int(line)) if line.isascii() and line.isdigit() else None
        return f"its size is set where it is made (first used at {short or pool.made_at})"
    if pool.name.startswith("asyncio"):
        return f"`loop.set_default_executor(ThreadPoolExecutor({wanted}))`"
    if pool.name.startswith("anyio"):
        return _DEFAULT_LIMITER.format(wanted)
    return "its size is set where it is made"


# --- starvation -------------------------------------------------------------------------------------


def transport_starvation(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per pool that the transport's own reader or writer waited for."""
    for pool in summary.executors:
        if is_starved(pool, options):
            yield _starvation(summary, options, pool)


_SEVERAL = 1.1
"""Times as long as the transport waited: then more than one request waited for it, and a sentence says how long."""


def _starvation(summary: Summary, options: FindingOptions, pool: ExecutorSummary) -> Finding:
    held = f"{phrasing.listed(pool.holders)} held" if pool.holders else "other jobs held"
    starved_ms = _starved_ms(summary, pool)
    lost_ms = _lost_ms(summary, starved_ms)
    several = lost_ms > _SEVERAL * starved_ms
    at_most = "at most " if starved_ms < pool.transport_wait_ms else ""
    jobs_ms = 0.0 if saturated_ms(summary, options, pool) is None else _waited_ms(pool)
    threads = "its threads" if pool.max is None else f"its {pool.max:g} threads"
    sentence = (
        f"The transport's own reader or writer waited up to {phrasing.duration(starved_max_ms(pool))} for a "
        f"thread of `{pool.name}` ({at_most}{phrasing.duration(starved_ms)} in all), because {held} {threads}: "
        "meanwhile requests stayed unread, or answers unwritten"
    )
    sentence += f", several at once: about {phrasing.duration(lost_ms)} of their time." if several else "."
    if jobs_ms:
        sentence += f" Jobs waited {phrasing.duration(jobs_ms)} for a thread, too."
    tools = phrasing.listed([name for name in pool.holders if not name.startswith("(")]) or "the slow tools"
    return Finding(
        code="transport-starvation",
        severity="critical",
        confidence="estimate",
        subject=pool.name,
        sentence=sentence,
        advice=(
            f"Give {tools} a private limiter: an `async def` that calls "
            "`await anyio.to_thread.run_sync(..., limiter=LIMITER)` with one `anyio.CapacityLimiter` of its own. "
            f"Or raise the shared limit: {_DEFAULT_LIMITER.format(_most_at_once(summary, pool))} ({_ALL_AT_ONCE})."
        ),
        evidence={
            "transport_wait_max_ms": starved_max_ms(pool),
            "transport_wait_ms": pool.transport_wait_ms,
            "starved_ms": starved_ms,
            "transport_jobs": pool.transport_jobs,
            "limit": pool.max,
            "made_at": pool.made_at,
            "borrowed_peak": pool.borrowed_peak,
            "pending_peak": pool.pending_peak,
            "holders": ", ".join(pool.holders),
        },
        cost_ms=lost_ms + jobs_ms,
    )


_TRANSPORT_JOBS = 2
"""The transport's reader and its writer: so many of its jobs wait for a thread at once."""


def _starved_ms(summary: Summary, pool: ExecutorSummary) -> float:
    """How long it waited because the pool was full: a thread that is free takes a moment, too, for each of its jobs."""
    full_ms = pool.at_limit_share * window_ms(summary)
    return max(starved_max_ms(pool), min(pool.transport_wait_ms, _TRANSPORT_JOBS * full_ms))


def _lost_ms(summary: Summary, starved_ms: float) -> float:
    """What requests lost to it: at least the transport's waits.

    Of the time that requests spent at the transport, it is the share of the window in which the transport waited for a
    thread: how many were there at that time is not known.
    """
    parts = ("queue_transport", "write_wait", "write_flush")
    at_transport = sum(
        operation.count * sum(getattr(operation.budget_ms, part) or 0.0 for part in parts)
        for operation in summary.operations
    )
    share = min(1.0, starved_ms / window_ms(summary)) if summary.window.seconds > 0 else 0.0
    return max(starved_ms, share * at_transport)


# --- work for nobody --------------------------------------------------------------------------------


def abandoned_work(summary: Summary, options: FindingOptions) -> Iterator[Finding]:
    """One finding per tool and pool whose jobs ran on long after their call was cancelled or had failed."""
    for pool in summary.executors:
        for row in pool.abandoned_work:
            if row.longest_ms <= options.abandoned_ms:
                continue
            where = f" (made at {pool.made_at})" if pool.made_at else ""
            share = "" if row.share is None else f", {phrasing.percent(row.share)} of what its threads worked"
            jobs = "1 job" if row.jobs == 1 else f"{row.jobs:,} jobs"
            ran_on = f"{jobs} of `{row.operation}` ran on after the call was cancelled or had failed"
            long = f"for {phrasing.duration(row.longest_ms)}"
            if row.jobs > 1:
                long = f"for up to {phrasing.duration(row.longest_ms)}, {phrasing.duration(row.ms)} in all"
            yield Finding(
                code="abandoned-work",
                severity="warn",
                confidence="exact",
                subject=row.operation,
                sentence=f"{ran_on}: {long}, on a thread of `{pool.name}`{where}{share}.",
                advice=(
                    "Let the job look now and then whether it is still wanted (`anyio.from_thread.check_cancelled()`), "
                    "or give it a time-out of its own. `abandon_on_cancel=True` frees the call at once, "
                    "but not the thread."
                ),
                evidence={
                    "jobs": row.jobs,
                    "wasted_ms": row.ms,
                    "longest_ms": row.longest_ms,
                    "pool": pool.name,
                    "made_at": pool.made_at,
                    "pool_share": row.share,
                },
            )
