"""Explanations by threads: none was free, the transport itself got none, or they all compute in one interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import ceil
from statistics import median

from mcp_probe.aggregate.phrasing import duration, object_of, plural
from mcp_probe.aggregate.seen import MS, Reason, Seen, most_at_once, of_time, share_of
from mcp_probe.model import LOOP_WAITS, PoolSample

_STEP_SLACK = 0.25  # a wait this close to a multiple of the step belongs to a wave
_STARVED_NS = 10_000_000
_COMPUTES = 0.3  # the threads of a pool compute if together they keep this many cores busy
_TRANSPORT_THREADS = 2  # reader and writer of stdio, mcp 2.3


@dataclass(frozen=True, slots=True)
class _PoolUse:
    """What the requests themselves did in one pool. Exact, even if samples reach beyond the stretch."""

    name: str
    limit: float | None
    waits: list[int]  # ns, sorted
    runs: list[int]  # ns, sorted
    most_wanted: int  # most jobs submitted and not finished at one time
    most_running: int


def _pool_uses(seen: Seen) -> list[_PoolUse]:
    by_pool: dict[str, list[tuple[int, int, int]]] = {}
    for job in chain.from_iterable(each.jobs for each in seen.requests):
        if job.start_ns is not None and job.finish_ns is not None:
            by_pool.setdefault(job.executor, []).append((job.submit_ns, job.start_ns, job.finish_ns))
    return [
        _PoolUse(
            name,
            max((pool.max for pool in seen.pools if pool.name == name and pool.max is not None), default=None),
            sorted(max(0, start - submit) for submit, start, _ in jobs),
            sorted(max(0, finish - start) for _, start, finish in jobs),
            most_at_once((submit, finish) for submit, _, finish in jobs),
            most_at_once((start, finish) for _, start, finish in jobs),
        )
        for name, jobs in by_pool.items()
    ]


def thread_wait(seen: Seen) -> Reason | None:
    """Jobs that waited for a thread of a pool, in waves if their waits come in steps."""
    use = max(_pool_uses(seen), key=lambda each: sum(each.waits), default=None)
    if use is None:
        return None
    share = share_of(seen, "executor_wait")
    threads = "was full" if use.limit is None else f"has {plural(round(use.limit), 'thread')}"
    waves = 1 if not use.limit else ceil(use.most_wanted / use.limit)
    step = use.waits[-1] / (waves - 1) if waves > 1 else 0.0
    if waves > 1 and _alike(use.runs) and _come_in_steps(use.waits, step):
        rose = "rose to" if waves == 2 else f"rose in steps of {duration(step / MS)} to"
        sentence = (
            f"{plural(seen.most_in_flight, 'request')} at once took {waves} waves: pool `{use.name}` {threads}, and "
            f"the wait for one {rose} {duration(use.waits[-1] / MS)}."
        )
        return Reason("waves", share, sentence)
    sentence = (
        f"Requests waited for a thread: pool `{use.name}` {threads}, up to {use.most_wanted} jobs wanted one at once "
        f"and got it after {duration(median(use.waits) / MS)} at the median, "
        f"{duration(use.waits[-1] / MS)} at worst."
    )
    return Reason("thread-wait", share, sentence)


def _alike(runs: list[int]) -> bool:
    """Whether nearly all jobs ran about equally long."""
    few, many = runs[len(runs) // 10], runs[-1 - len(runs) // 10]
    return many <= 1.5 * few


def _come_in_steps(waits: list[int], step: float) -> bool:
    """Whether nearly all waits lie near a multiple of ``step``."""
    near = sum(abs(wait - step * round(wait / step)) <= _STEP_SLACK * step for wait in waits)
    return step > 0 and near >= 0.8 * len(waits)


def transport_starved(seen: Seen) -> Reason | None:
    """The transport's own reader and writer had to queue for a thread, since the requests held all others."""
    full = [use for use in _pool_uses(seen) if use.limit and use.most_running >= use.limit - _TRANSPORT_THREADS]
    names = {use.name for use in full}
    samples = [
        pool
        for pool in seen.pools
        if pool.name in names and pool.transport_wait_max_ns > _STARVED_NS and _was_full(pool)
    ]
    if not samples:
        return None
    worst = max(samples, key=lambda pool: pool.transport_wait_max_ns)
    holders = [each for each in seen.requests if any(job.executor in names for job in each.jobs)]
    named = sorted({each.name or each.method for each in holders})
    sentence = (
        f"{' and '.join(map(object_of, named[:2]))} held all {worst.max:g} threads of `{worst.name}`, from which the "
        f"transport's reader and writer take theirs: they waited up to "
        f"{duration(worst.transport_wait_max_ns / MS)}, and what was not read yet lay in the pipe, uncounted."
    )
    lost = sum(pool.transport_wait_ns for pool in samples)
    share = max(share_of(seen, "write_wait", "queue_transport"), of_time(seen, lost))
    return Reason("transport-starved", share, sentence)


def threads_compute(seen: Seen) -> Reason | None:
    """Jobs that compute on several threads of one interpreter at once."""
    use = max(_pool_uses(seen), key=lambda each: sum(each.runs), default=None)
    samples = [] if use is None else [pool for pool in seen.pools if pool.name == use.name and pool.finished]
    if use is None or use.most_running < 2 or not samples:
        return None
    cpu = sum(pool.cpu_ns for pool in samples) / sum(pool.finished for pool in samples)
    run = sum(use.runs) / len(use.runs)
    if cpu * use.most_running < _COMPUTES * run:
        return None
    sentence = (
        f"Up to {use.most_running} threads of `{use.name}` computed at once in one interpreter, which runs one at a "
        f"time (GIL): a job took {duration(run / MS)} for {duration(cpu / MS)} of CPU, and the event loop waited "
        "among them."
    )
    return Reason(
        "gil", max(0.0, 1 - cpu / run) * share_of(seen, "executor_run") + share_of(seen, *LOOP_WAITS), sentence
    )


def _was_full(pool: PoolSample) -> bool:
    return pool.max is not None and (pool.borrowed_peak >= pool.max or pool.at_limit_ns > 0)
