"""Why requests took as long as they did, in one sentence, from the probe's readings alone.

The sentences know nothing of who sent the requests: the same functions speak of a bundled workload, of a user's
server and of a recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil
from statistics import median

from mcp_probe.aggregate.fold import Fold
from mcp_probe.aggregate.phrasing import duration, object_of, percent, place_of, plural, subject_of
from mcp_probe.model import (
    BUDGET_PARTS,
    CROWDING_OPERATION,
    Frame,
    LoopSample,
    OpenRequest,
    PoolSample,
    ProcessSample,
    RequestRecord,
    StepRecord,
    Summary,
)

WORTH_SAYING = 0.10
"""A wait below this share of the requests' time explains nothing."""

_MS = 1e6
_STEP_SLACK = 0.25  # how far from a multiple of the step a wait may lie and still be of a wave
_STARVED_NS = 10_000_000
_SHORT_NS = 5_000_000
_MOST_OF_IT = 0.5
_LATE_FLUSH_NS = 20_000_000
_SLOW_READER_SHARE = 0.3
_COMPUTES = 0.3  # cores that the threads of a pool keep busy together: from here on they compute
_TRANSPORT_THREADS = 2  # reader and writer of stdio, mcp 2.3
_LOOP_WAITS = ("queue_transport", "queue_dispatch", "ready_wait", "executor_return")
_OWN_PARTS = {
    "awaiting": "awaited something outside",
    "executor_run": "ran on a thread",
    "busy": "held the event loop",
    "gc": "stood still for the garbage collector",
    "unaccounted": "was where the probe could not look",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """Readings of one stretch of time: its summary and the single requests and steps in it.

    Requests and steps are exactly those of the stretch; samples (pools, loop, process) span half a second and are
    taken where they overlap it.
    """

    summary: Summary
    requests: tuple[RequestRecord, ...]
    steps: tuple[StepRecord, ...] = ()
    pools: tuple[PoolSample, ...] = ()

    @classmethod
    def of(cls, frames: Iterable[Frame], since_ns: int | None = None, until_ns: int | None = None) -> Seen:
        """What ``frames`` hold of the requests that arrived in [since_ns, until_ns]; ``None``: no bound."""
        low = since_ns if since_ns is not None else -(1 << 62)
        high = until_ns if until_ns is not None else 1 << 62
        kept = [frame for frame in frames if _within(frame, low, high)]
        fold = Fold()
        fold.add_all(kept)
        return cls(
            fold.summary(),
            tuple(frame for frame in kept if isinstance(frame, RequestRecord) and frame.kind != "notification"),
            tuple(frame for frame in kept if isinstance(frame, StepRecord)),
            tuple(frame for frame in kept if isinstance(frame, PoolSample)),
        )

    def only(self, operation: str) -> Seen:
        """The requests of one operation, with everything else that went on meanwhile."""
        return replace(self, requests=tuple(each for each in self.requests if (each.name or each.method) == operation))

    @property
    def most_in_flight(self) -> int:
        """Requests that were open at once, from arrival to answer written; as the records say, not as sampled."""
        return _most_at_once((each.arrival_ns, each.end_ns) for each in self.requests)


@dataclass(frozen=True, slots=True)
class Reason:
    """One explanation: ``share`` of the requests' time that it explains, 0 to 1."""

    code: str
    share: float
    sentence: str


def explain(seen: Seen, operation: str | None = None) -> str:
    """One sentence on where the time of ``seen``'s requests went; empty where there were none."""
    found = reasons(seen, operation)
    return found[0].sentence if found else ""


def reasons(seen: Seen, operation: str | None = None) -> list[Reason]:
    """What held the requests up, most time first; what they did themselves where nothing held them up."""
    chosen = seen if operation is None else seen.only(operation)
    if not chosen.requests:
        return []
    waits = [reason for look in _LOOKS if (reason := look(chosen)) is not None and reason.share >= WORTH_SAYING]
    return sorted(waits, key=lambda reason: -reason.share) or [_nothing_waited(chosen)]


def _within(frame: Frame, low: int, high: int) -> bool:
    if isinstance(frame, (RequestRecord, OpenRequest)):
        return low <= frame.arrival_ns <= high
    if isinstance(frame, StepRecord):
        return frame.start_ns <= high and frame.end_ns >= low
    if isinstance(frame, (LoopSample, PoolSample, ProcessSample)):
        return frame.at_ns - frame.span_ns <= high and frame.at_ns >= low
    return True


# --- threads that were not there ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PoolUse:
    """What the requests themselves did in one pool; exact, whatever samples reach over the stretch's ends."""

    name: str
    limit: float | None
    waits: list[int]  # ns, sorted
    runs: list[int]  # ns, sorted
    most_wanted: int  # jobs submitted and not finished at once
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
            _most_at_once((submit, finish) for submit, _, finish in jobs),
            _most_at_once((start, finish) for _, start, finish in jobs),
        )
        for name, jobs in by_pool.items()
    ]


def _most_at_once(spans: Iterable[tuple[int, int]]) -> int:
    """Of half-open spans: one that ends when another begins is not with it."""
    edges = sorted(chain.from_iterable(((start, 1), (end, -1)) for start, end in spans))
    most = now = 0
    for _, change in edges:
        now += change
        most = max(most, now)
    return most


def _thread_wait(seen: Seen) -> Reason | None:
    """Jobs that waited for a thread of a pool, in waves where their waits come in steps."""
    use = max(_pool_uses(seen), key=lambda each: sum(each.waits), default=None)
    if use is None:
        return None
    share = _share(seen, "executor_wait")
    threads = "was full" if use.limit is None else f"has {plural(round(use.limit), 'thread')}"
    waves = 1 if not use.limit else ceil(use.most_wanted / use.limit)
    step = use.waits[-1] / (waves - 1) if waves > 1 else 0.0
    if waves > 1 and _alike(use.runs) and _come_in_steps(use.waits, step):
        rose = "rose to" if waves == 2 else f"rose in steps of {duration(step / _MS)} to"
        sentence = (
            f"{plural(seen.most_in_flight, 'request')} at once took {waves} waves: pool `{use.name}` {threads}, and "
            f"the wait for one {rose} {duration(use.waits[-1] / _MS)}."
        )
        return Reason("waves", share, sentence)
    sentence = (
        f"Requests waited for a thread: pool `{use.name}` {threads}, up to {use.most_wanted} jobs wanted one at once "
        f"and got it after {duration(median(use.waits) / _MS)} at the median, "
        f"{duration(use.waits[-1] / _MS)} at worst."
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


def _transport_starved(seen: Seen) -> Reason | None:
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
        f"{duration(worst.transport_wait_max_ns / _MS)}, and what was not read yet lay in the pipe, uncounted."
    )
    lost = sum(pool.transport_wait_ns for pool in samples)
    share = max(_share(seen, "write_wait", "queue_transport"), _of_time(seen, lost))
    return Reason("transport-starved", share, sentence)


def _threads_compute(seen: Seen) -> Reason | None:
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
        f"time (GIL): a job took {duration(run / _MS)} for {duration(cpu / _MS)} of CPU, and the event loop waited "
        "among them."
    )
    return Reason("gil", max(0.0, 1 - cpu / run) * _share(seen, "executor_run") + _share(seen, *_LOOP_WAITS), sentence)


def _was_full(pool: PoolSample) -> bool:
    return pool.max is not None and (pool.borrowed_peak >= pool.max or pool.at_limit_ns > 0)


# --- the loop -------------------------------------------------------------------------------------


def _loop_held(seen: Seen) -> Reason | None:
    """Steps of other requests that the requests waited for while they could have run."""
    victims = {each.name or each.method for each in seen.requests}
    rows = [row for row in seen.summary.blocked_by if row.victim in victims]
    if not rows:
        return None
    blockers: dict[str, float] = {}
    for row in rows:
        blockers[row.blocker] = blockers.get(row.blocker, 0.0) + max(row.lo_ms, 0.0)
    blocker, lost_ms = max(blockers.items(), key=lambda item: item[1])
    share = min(_of_time(seen, lost_ms * _MS), _share(seen, *_LOOP_WAITS))
    if blocker == CROWDING_OPERATION:
        return Reason("crowding", share, _crowding_sentence(seen, share))
    most = max((row.victims for row in rows if row.blocker == blocker), default=0)
    slow = max(
        (step for step in seen.summary.slow_steps if step.tool == blocker), key=lambda step: step.ms, default=None
    )
    waited = (
        f"{plural(most, 'request')} that could have run waited {duration(lost_ms / max(1, most))} for it on average."
    )
    if slow is not None and slow.cause == "run-queue":
        sentence = f"The machine had no CPU for the event loop for up to {duration(slow.ms)} at a time: {waited}"
        return Reason("no-cpu", share, sentence)
    how = ""
    if slow is not None:
        place = place_of(slow.file, slow.line)
        where = f" at {place}" if place else ""
        inside = f" in {slow.library}" if slow.library else ""
        how = f" for up to {duration(slow.ms)} at a time{inside}{where}"
    return Reason("loop-held", share, f"{subject_of(blocker)} held the event loop{how}: {waited}")


def _crowding_sentence(seen: Seen, share: float) -> str:
    utilization = seen.summary.loop.utilization
    busy = "" if utilization is None else f", which was busy {percent(utilization)} of the time"
    return (
        f"{plural(seen.most_in_flight, 'request')} in flight shared one event loop{busy}: {percent(share)} of their "
        "time they waited behind many short steps of each other."
    )


def _loop_queue(seen: Seen) -> Reason | None:
    """The same waits where no single step can be named."""
    if seen.most_in_flight < 3:
        return None  # a request alone waits for its own transport's steps: _stages says how long
    share = _share(seen, *_LOOP_WAITS)
    held = _loop_held(seen)
    if held is not None and held.share >= _MOST_OF_IT * share:
        return None
    per_request = share * _mean_total(seen)
    utilization = seen.summary.loop.utilization
    busy = "" if utilization is None else f" (busy {percent(utilization)} of the time)"
    sentence = (
        f"With {plural(seen.most_in_flight, 'request')} in flight each waited {duration(per_request / _MS)} for its "
        f"turn on the event loop{busy}, {percent(share)} of its time."
    )
    return Reason("loop-queue", share, sentence)


# --- the way in -----------------------------------------------------------------------------------


def _pipe_wait(seen: Seen) -> Reason | None:
    """Requests that had been sent and were not read; known where the client says when it sent them."""
    waits = sorted(each.arrival_ns - each.sent_ns for each in seen.requests if each.sent_ns is not None)
    if not waits:
        return None
    lost = sum(max(0, wait) for wait in waits)
    whole = sum(map(_total, seen.requests)) + lost
    sentence = (
        f"Requests lay unread in the pipe for {duration(max(0, median(waits)) / _MS)} at the median, "
        f"{duration(waits[-1] / _MS)} at worst, before the server took them; no queue of its own counts that."
    )
    return Reason("pipe-wait", lost / whole if whole else 0.0, sentence)


# --- the way out ----------------------------------------------------------------------------------


def _writer_queue(seen: Seen) -> Reason | None:
    """Finished answers that waited for the one writer."""
    waits = [each.budget.write_wait for each in seen.requests if each.budget.write_wait is not None]
    if not waits:
        return None
    where = "one stdout writer" if seen.summary.server.transport == "stdio" else "connection's writer"
    sentence = (
        f"Finished responses queued {duration(median(waits) / _MS)} at the {where} at the median, "
        f"{duration(max(waits) / _MS)} at worst, with up to {plural(seen.most_in_flight, 'request')} read and not "
        f"yet answered; a handler took {duration(median(map(_handling, seen.requests)) / _MS)}."
    )
    return Reason("writer-queue", _share(seen, "write_wait"), sentence)


def _slow_reader(seen: Seen) -> Reason | None:
    """Answers that the client did not take; a few late ones are the machine's."""
    flushes = [each.budget.write_flush for each in seen.requests if each.budget.write_flush is not None]
    share, late = _share(seen, "write_flush"), sum(flush for flush in flushes if flush >= _LATE_FLUSH_NS)
    if not flushes or share < _SLOW_READER_SHARE or late < _MOST_OF_IT * sum(flushes):
        return None
    sentence = (
        f"The client took its answers slowly: writing one took {duration(median(flushes) / _MS)} at the median, "
        f"{duration(max(flushes) / _MS)} at worst."
    )
    return Reason("slow-reader", share, sentence)


# --- nothing --------------------------------------------------------------------------------------


def _nothing_waited(seen: Seen) -> Reason:
    """What the requests did themselves, and how many at once."""
    if seen.most_in_flight < 3 and _mean_total(seen) < _SHORT_NS:
        return _stages(seen)
    shares = {part: _share(seen, part) for part in _OWN_PARTS}
    part = max(shares, key=lambda each: shares[each])
    most, mean = seen.most_in_flight, _mean_total(seen)
    each = f"each {_OWN_PARTS[part]} for {duration(shares[part] * mean / _MS)} of its {duration(mean / _MS)}"
    together = f"up to {most} in flight at once" if most > 1 else "one at a time"
    if part == "busy" and shares[part] >= _MOST_OF_IT:
        sentence = f"{together[:1].upper()}{together[1:]}, {each}{_on_cpu(seen)}: nothing else could run meanwhile."
        return Reason("busy", shares[part], sentence)
    place = "" if _are_functions(seen) else " in the server"
    return Reason("nothing-waited", shares[part], f"Nothing{place} waited: {together}, {each}.")


def _on_cpu(seen: Seen) -> str:
    """How much of the requests' slow steps was computing; empty where that was not looked into."""
    known = [step for step in seen.steps if step.cpu_ns is not None]
    wall = sum(step.end_ns - step.start_ns for step in known)
    return f", {percent(min(1.0, sum(step.cpu_ns or 0 for step in known) / wall))} of it on the CPU" if wall else ""


def _stages(seen: Seen) -> Reason:
    """Short requests, one after another: where their little time went."""
    parts = (
        ("to be read and dispatched", ("queue_transport", "queue_dispatch")),
        ("on the event loop", ("busy", "gc")),
        ("on threads", ("executor_run",)),
        ("waiting for a turn", ("ready_wait", "executor_wait", "executor_return")),
        ("awaiting something outside", ("awaiting",)),
        ("to be written", ("write_wait", "write_flush")),
    )
    mean = _mean_total(seen)
    figures = [(_share(seen, *names) * mean, words) for words, names in parts]
    told = ", ".join(f"{_fine(ns)} {words}" for ns, words in figures if ns >= 0.05 * mean)
    what = "a call took" if _are_functions(seen) else "a request took"
    place = "" if _are_functions(seen) else " in the server"
    return Reason("stages", 1.0, f"One at a time, {what} {_fine(mean)}{place}: {told}.")


def _are_functions(seen: Seen) -> bool:
    """Profiled calls of the program's own: they came over no transport."""
    return all(each.kind == "function" for each in seen.requests)


def _fine(ns: float) -> str:
    """Below ten milliseconds with two decimals."""
    return f"{ns / _MS:.2f} ms" if ns < 10 * _MS else duration(ns / _MS)


# --- figures --------------------------------------------------------------------------------------


def _share(seen: Seen, *parts: str) -> float:
    """Of all requests' time, the part that these parts of the budget take."""
    return _of_time(seen, sum(getattr(each.budget, part) or 0 for each in seen.requests for part in parts))


def _of_time(seen: Seen, ns: float) -> float:
    total = sum(_total(each) for each in seen.requests)
    return min(1.0, ns / total) if total else 0.0


def _mean_total(seen: Seen) -> float:
    return sum(_total(each) for each in seen.requests) / len(seen.requests)


def _total(request: RequestRecord) -> int:
    return max(0, request.end_ns - request.arrival_ns)


def _handling(request: RequestRecord) -> int:
    """From the first step to the result."""
    handled = [part for part in BUDGET_PARTS if part not in _AROUND]
    return sum(getattr(request.budget, part) or 0 for part in handled)


_AROUND = ("queue_transport", "queue_dispatch", "write_wait", "write_flush")
_LOOKS: tuple[Callable[[Seen], Reason | None], ...] = (
    _thread_wait,
    _transport_starved,
    _threads_compute,
    _loop_held,
    _loop_queue,
    _pipe_wait,
    _writer_queue,
    _slow_reader,
)
