"""From marks to a record: a pure state machine without clock, loop or SDK.

The claims of the request's units and jobs partition the handling window [first step, result). Where
claims of several units overlap, the first part in :data:`PRIORITY` wins, so progress beats waiting.
Time that nothing claims is ``unaccounted``: the remainder, and therefore a real check.

Invariants: parts are never negative and never overlap; together they are exactly end - arrival.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

from mcp_probe.model import STEPS, WAKE_UPS, Await, Budget, JobTimes, MemoryUse, RequestRecord, Tag, Wait, draft_of
from mcp_probe.record.awaits import SHORT_AWAIT_NS, job_looks, job_work, looked_at, name_awaits, still_suspended
from mcp_probe.record.raw import (
    WAKE_SPLIT,
    WAKE_THREAD,
    WAKE_UNKNOWN,
    AwaitMark,
    Claim,
    ClientWait,
    Job,
    Kept,
    RawRequest,
    Spilled,
    StepMark,
)
from mcp_probe.record.sampling import seen_of

PRIORITY = ("gc", "busy", "executor_run", "executor_return", "ready_wait", "executor_wait", "unknown", "awaiting")
_GC, _BUSY, _RUN, _RETURN, _READY, _WAIT, _UNKNOWN, _AWAITING = range(len(PRIORITY))

LATE_NS = 1_000_000
"""A resumption later than this is looked at for blame (measurement.md section 3, step 2)."""

MAX_WAITS = 1024
"""Late stretches kept per request. If there are more, the request's blame becomes a lower bound."""

MAX_TAIL = 256
"""Segments kept open at a spill. If a unit was ready before the oldest of them, the time before it stays awaiting."""

MAX_STRETCHES = 8192
"""Stretches kept of a request that lives for long, half of them awaiting; the later ones get no name."""

_STAGES = (_AWAITING, _RUN, _BUSY, _GC)

MAX_JOBS = 16
"""Thread jobs whose times a record keeps one by one; the budget counts all of them."""

MAX_TEXT = 128
"""Characters kept of what a client supplied: ids, names, states."""

_QualityRow = tuple[str, Tag, int | None, int | None]

_DraftRecord, _DraftBudget = draft_of(RequestRecord), draft_of(Budget)


def assemble(
    raw: RawRequest,
    end_ns: int,
    running: StepMark | None = None,
    memory: MemoryUse | None = None,
    weight: int = 1,
    measures: tuple[tuple[str, int | None, Tag], ...] = (),
    named: bool = False,
    short_await_ns: int = SHORT_AWAIT_NS,
    gone_ns: int | None = None,
) -> RequestRecord:
    """The record of ``raw`` as it stands at ``end_ns``; does not change ``raw``.

    ``running``: the step that runs on the loop right now, if any (an unfinished request). ``memory``: what the request
    used. ``weight``: how many requests the record stands for. ``measures``: what else was read of the request.
    ``named``: hooks and looks were there to say what it awaited. ``short_await_ns``: shorter awaits are summed.
    ``gone_ns``: from then on nobody waited for it.
    """
    first, result = _handling_window(raw, end_ns)
    total = Spilled(first, len(PRIORITY)) if raw.spilled is None else _copy(raw.spilled)
    _fold(total, raw, raw.marks if running is None else [*raw.marks, running], result)
    for a, b, part in total.tail:
        total.parts[part] += b - a
    parts = total.parts
    handling = max(0, result - first)
    seen = seen_of(raw.kind, raw.seen, raw.transport_seen and raw.arrival_ns is not None, raw.write_seen)
    runs, wakes = bool(seen & STEPS), bool(seen & STEPS and seen & WAKE_UPS)
    if wakes:
        unaccounted = handling - sum(parts) + parts[_UNKNOWN]
    else:
        unaccounted = handling - parts[_RUN] - parts[_WAIT] - (parts[_GC] + parts[_BUSY] if runs else 0)
    written = _write_parts(raw, end_ns)
    budget = _DraftBudget(
        None if raw.arrival_ns is None or not raw.transport_seen else max(0, _taken(raw, first) - raw.arrival_ns),
        None if raw.taken_ns is None else max(0, first - raw.taken_ns),
        parts[_BUSY] if runs else None,
        parts[_READY] if wakes else None,
        parts[_WAIT],
        parts[_RUN],
        parts[_RETURN] if wakes else None,
        parts[_AWAITING] if wakes else None,
        written[0],
        written[1],
        parts[_GC] if runs else None,
        unaccounted,
    )
    budget.__class__ = Budget
    record = _DraftRecord(
        id=raw.id,
        kind=raw.kind,
        method=raw.method,
        name=raw.name,
        transport=raw.transport,
        outcome=raw.outcome,
        error=raw.error,
        arrival_ns=first if raw.arrival_ns is None else raw.arrival_ns,
        first_step_ns=raw.first_step_ns,
        result_ns=raw.result_ns,
        end_ns=end_ns,
        budget=budget,
        steps=total.steps if runs else 0,
        step_max_ns=total.step_max_ns if runs else 0,
        immediate_resumes=total.immediate,
        sequential_awaits=total.awaits,
        executor_run_sum_ns=total.run_sum_ns,
        detached_ns=raw.detached_ns,
        decode_ns=raw.decode_ns if runs else None,
        encode_ns=raw.encode_ns if runs else None,
        client_wait_ns=_client_wait(raw, first, result),
        request_bytes=raw.request_bytes,
        response_bytes=raw.response_bytes,
        waits=_waits(raw, first, end_ns, total.waits if wakes else []),
        quality=_quality(raw, total, first, runs=runs, wakes=wakes),
        partial=raw.partial or len(total.waits) >= MAX_WAITS,
        loop=raw.loop,
        trace_id=None if raw.trace_id is None else f"{raw.trace_id:032x}",
        span_id=None if raw.span_id is None else f"{raw.span_id:016x}",
        parent_span_id=raw.parent_span_id,
        trace_flags=raw.trace_flags,
        trace_state=raw.trace_state,
        server_span=raw.server_span,
        resource_uri=raw.resource_uri,
        session_id=raw.session_id,
        error_code=raw.error_code,
        request_id=None if raw.span_id is None or raw.request_id is None else str(raw.request_id)[:MAX_TEXT],
        protocol_version=raw.protocol_version,
        tasks_peak=max(1, raw.unit_peak),
        memory=memory if runs else None,  # steps charge allocations to their request: unknown if no step was seen
        sent_ns=raw.sent_ns,
        weight=weight,
        seen=seen,
        measures=measures,
        starved=tuple(raw.starved),
        awaits=_awaits(raw, total, result, short_await_ns) if named and wakes else None,
        jobs_looked=any(job.looks is not None for job in (*total.jobs, *raw.jobs)),
        jobs_cpu_ns=sum(job.cpu_ns or 0 for job in (*total.jobs, *raw.jobs)),
        job_work=job_work((*total.jobs, *raw.jobs)) if raw.jobs or total.jobs else (),
        jobs=tuple(map(_job_times, _first_jobs((*total.jobs, *raw.jobs)))) if raw.jobs or total.jobs else (),
        gone_ns=gone_ns,
    )
    record.__class__ = RequestRecord
    return record


def _first_jobs(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=_stamps)[:MAX_JOBS]


def _stamps(job: Job) -> tuple[int, ...]:
    """All four: jobs with equal submit times must sort the same, whichever of them was folded away first."""
    return tuple(-1 if at is None else at for at in (job.submit_ns, job.start_ns, job.finish_ns, job.resumed_ns))


def _job_times(job: Job) -> JobTimes:
    name = getattr(job.pool, "name", None)
    return JobTimes(str(name or "executor"), job.submit_ns, job.start_ns, job.finish_ns, job.resumed_ns)


def spill(raw: RawRequest, until_ns: int, keep: int = 0) -> None:
    """Fold ``raw``'s marks up to ``until_ns`` into totals, so that its memory stays bounded.

    The first ``keep`` marks stay beside the totals, for its timeline.

    A unit that is suspended now may turn out to have been ready for some time already. So everything since
    the first of them was suspended stays open, as far as :data:`MAX_TAIL` allows. A child that has not taken
    its first step is not known yet: the part of its wait before ``until_ns`` is not counted.
    """
    if raw.first_step_ns is None:
        return
    if raw.result_ns is not None:
        until_ns = max(raw.first_step_ns, min(until_ns, raw.result_ns))
    spilled = raw.spilled or Spilled(raw.first_step_ns, len(PRIORITY))
    if spilled.stages is None:
        spilled.stages = []  # a wait that goes on now may get its name later
    _fold(spilled, raw, raw.marks, until_ns)
    _close(spilled, min(raw.units.values(), default=until_ns))
    spilled.last = dict(raw.units)
    raw.spilled = spilled
    if keep:
        _keep(spilled, raw, keep)
    raw.clear_marks()
    raw.pauses = ()
    if raw.looks:
        raw.looks = [look for look in raw.looks if spilled.last.get(look.unit) == look.suspended_ns]
    if raw.jobs:
        still_open = [job for job in raw.jobs if _open(job, until_ns)]
        over = [job for job in raw.jobs if job not in still_open]
        spilled.jobs = _first_jobs((*spilled.jobs, *over))
        if spilled.kept is not None:
            spilled.kept.jobs.extend(over)
        raw.jobs = still_open


def _keep(spilled: Spilled, raw: RawRequest, most: int) -> None:
    kept = spilled.kept = spilled.kept or Kept()
    marks = raw.marks
    taken = marks[: max(0, most - len(kept.marks))]
    kept.marks.extend(taken)
    kept.marks_left_out += len(marks) - len(taken)
    if taken:
        kept.pauses.extend(raw.pauses)


def _close(spilled: Spilled, settled_ns: int) -> None:
    """Turn the segments before ``settled_ns`` into totals: nothing that comes later changes them."""
    open_from = max(spilled.horizon_ns, min(settled_ns, spilled.until_ns))
    kept = [segment for segment in spilled.tail if segment[1] > open_from]
    if len(kept) > MAX_TAIL:
        kept = kept[-MAX_TAIL:]
        open_from = kept[0][0]
    closed = spilled.tail[: len(spilled.tail) - len(kept)]
    for a, b, part in closed:
        spilled.parts[part] += b - a
    if spilled.stages is not None and len(spilled.stages) < MAX_STRETCHES:
        spilled.stages.extend(segment for segment in closed if segment[2] in _STAGES)
    spilled.tail = kept
    spilled.horizon_ns = min(open_from, kept[0][0]) if kept else open_from


def _open(job: Job, until_ns: int) -> bool:
    """Whether a part of ``job`` lies, or may still come, after ``until_ns``."""
    if job.start_ns is None:
        last = job.resumed_ns  # set: cancelled before it began
    elif job.finish_ns is None or (job.awaited and job.resumed_ns is None):
        last = None
    else:
        last = max(job.finish_ns, job.resumed_ns or 0)
    return last is None or last > until_ns


def _handling_window(raw: RawRequest, end_ns: int) -> tuple[int, int]:
    """[first step, result). Both are the end if the handler never ran, and the result if no step of it was seen."""
    result = end_ns if raw.result_ns is None else raw.result_ns
    first = result if raw.first_step_ns is None else raw.first_step_ns
    return min(first, result), result


def _taken(raw: RawRequest, first: int) -> int:
    return first if raw.taken_ns is None else raw.taken_ns


def _fold(total: Spilled, raw: RawRequest, marks: Sequence[StepMark], end: int) -> None:
    """Add what ``marks`` and the live units claim up to ``end`` to ``total``."""
    start, units = total.until_ns, raw.units.copy()  # of a live request it changes meanwhile
    _count(total, marks)
    total.until_ns = end
    if total.stages is None and (raw.awaits or raw.looks or raw.client_waits or raw.jobs):
        total.stages = []
    if raw.looks:
        total.looked.extend(looked_at(raw.looks, marks))
    alone = not raw.jobs and not raw.pauses and not total.tail and len(units) <= 1 and total.stages is None
    if alone and _fold_single(total, marks, units, start, end):
        total.horizon_ns = end
        return
    claims = unit_claims(marks, units, total.last, start, end)
    claims.extend(total.tail)
    claims.extend((a, b, _GC) for a, b in raw.pauses)
    claims.extend((wait.answered_ns, wait.read_ns, _READY) for wait in raw.client_waits)
    for job in raw.jobs:
        claims.extend(job_claims(job, end))
        if job.start_ns is not None:
            finish = end if job.finish_ns is None else min(job.finish_ns, end)
            total.run_sum_ns += max(0, finish - max(job.start_ns, start))
    total.tail = partition(claims, total.horizon_ns, end)
    _count_lone_awaits(total, marks, units, end)


def _fold_single(total: Spilled, marks: Sequence[StepMark], units: dict[int, int], start: int, end: int) -> bool:
    """The common case: one unit, no threads, no collector pause: its claims follow each other.

    Returns False and changes nothing if that turns out to be wrong.
    """
    unit = next(iter(units), 0) or (marks[0][0] if marks else 0)
    if not unit and marks:
        return False
    cursor = start
    busy = ready_wait = returning = awaiting = awaits = 0
    for mark_unit, suspended, _, ready, began, ended, wake in marks:
        if mark_unit != unit or suspended < cursor:
            if mark_unit != unit or cursor != start:
                return False
            suspended = cursor
        if began < cursor:
            return False
        start_ns = began if began < end else end  # nothing after the result is claimed
        if wake != WAKE_UNKNOWN:
            at = ready if ready > suspended else suspended
            if at > began:
                at = began
            awaits += at > suspended
            if at > end:
                at = end
            if at > suspended:
                awaiting += at - suspended
            elif at < suspended:
                at = start_ns
            if wake == WAKE_THREAD:
                returning += start_ns - at
            else:
                ready_wait += start_ns - at
        cursor = ended if ended < end else end
        busy += max(0, cursor - start_ns)
    if unit in units:
        since = units[unit]
        awaiting += max(0, end - (since if since > cursor else cursor))
    parts = total.parts
    parts[_BUSY] += busy
    parts[_READY] += ready_wait
    parts[_RETURN] += returning
    parts[_AWAITING] += awaiting
    total.awaits += awaits
    return True


def _count(total: Spilled, marks: Sequence[StepMark]) -> None:
    """Count everything that depends on single marks, not on what other units do meanwhile."""
    seen = set(total.last)
    unit_before, since, ended_before = total.step
    for unit, suspended, earliest, ready, began, ended, wake in marks:
        if wake == WAKE_SPLIT and unit == unit_before and began == ended_before:
            began = since  # the same step goes on
        elif unit:
            first = unit not in seen
            if first:
                seen.add(unit)
            if first or wake != WAKE_SPLIT:
                total.steps += 1
            if not (first or wake == WAKE_SPLIT) and ready <= suspended and earliest != suspended:
                total.immediate += 1
        unit_before, since, ended_before = unit, began, ended
        if ended - began > total.step_max_ns:
            total.step_max_ns = ended - began
        if not unit or wake in (WAKE_UNKNOWN, WAKE_SPLIT):
            continue  # the task that a plain callback wakes inherits its wait
        floor = earliest if earliest > suspended else suspended
        if ready > floor:
            total.vague_ns += ready - floor
        if began - floor > LATE_NS and len(total.waits) < MAX_WAITS:
            stage = "return" if wake == WAKE_THREAD else "ready"
            total.waits.append(Wait(floor, ready if ready > floor else floor, began, stage))  # type: ignore[arg-type]
    total.step = (unit_before, since, ended_before)


def unit_claims(
    marks: Sequence[StepMark], units: dict[int, int], before: dict[int, int], start: int, end: int
) -> list[Claim]:
    """What the units claim; ``before``: end of the last step that was folded already, per unit.

    A hole in a unit's own marks is claimed as unknown, so that no other unit's waiting hides it. A unit is
    an object's id, and a later task may get the same. Only a unit's first mark has ``suspended == earliest``.
    """
    claims: list[Claim] = []
    claim = claims.append
    last = dict(before)
    for unit, suspended, earliest, ready, began, ended, wake in marks:
        if unit:
            born = suspended == earliest and wake != WAKE_SPLIT
            known = suspended if born else last.get(unit, suspended if wake == WAKE_SPLIT else start)
            if suspended > known:
                claim((known, suspended, _UNKNOWN))
            last[unit] = ended
            if wake == WAKE_UNKNOWN:
                claim((suspended, began, _UNKNOWN))
            else:
                at = ready if ready > suspended else suspended
                if at > began:
                    at = began
                if at > suspended:
                    claim((suspended, at, _AWAITING))
                if began > at:
                    claim((at, began, _RETURN if wake == WAKE_THREAD else _READY))
        claim((began, ended, _BUSY))
    for unit, since in units.items():
        claim((last.get(unit, start), since, _UNKNOWN))
        claim((since, end, _AWAITING))
    return claims


def _count_lone_awaits(total: Spilled, marks: Sequence[StepMark], units: dict[int, int], end: int) -> None:
    """Suspensions during which no other unit lived."""
    lives = {unit: (total.crowded_ns, since) for unit, since in total.last.items()}
    edges = []
    for unit, suspended, earliest, _, _, ended, wake in marks:
        if unit:
            if unit in lives and suspended == earliest and wake != WAKE_SPLIT:  # a new task with the same id
                edges += [(lives[unit][0], 1), (lives.pop(unit)[1], -1)]
            lives[unit] = (lives[unit][0] if unit in lives else suspended, ended)
    for unit, (born, died) in lives.items():
        edges += [(born, 1), (max(end, died) if unit in units else died, -1)]
    edges.sort()
    alone: list[tuple[int, int]] = []
    living = 0
    for (at, delta), (following, _) in pairwise(edges):
        living += delta
        if living > 1 and following > at:
            total.crowded_ns = max(total.crowded_ns, following)
        elif living == 1:
            joined = alone and alone[-1][1] == at
            alone[-1:] = [(alone[-1][0], following)] if joined else [*alone[-1:], (at, following)]
    for unit, suspended, _, ready, began, _, wake in marks:
        at = min(ready, began)
        if unit and wake != WAKE_UNKNOWN and at > suspended:
            index = bisect_left(alone, (suspended + 1, 0)) - 1
            total.awaits += index >= 0 and alone[index][1] >= at


class JobStamps(Protocol):
    """A job, while it lives or in a recording."""

    @property
    def submit_ns(self) -> int: ...

    @property
    def start_ns(self) -> int | None: ...

    @property
    def finish_ns(self) -> int | None: ...

    @property
    def resumed_ns(self) -> int | None: ...

    @property
    def awaited(self) -> bool: ...


def job_claims(job: JobStamps, end: int) -> Iterable[Claim]:
    """What ``job`` claims for its request up to ``end``."""
    started, finished, resumed = job.start_ns, job.finish_ns, job.resumed_ns
    yield (job.submit_ns, (end if resumed is None else resumed) if started is None else started, _WAIT)
    if started is not None:
        yield (started, end if finished is None else finished, _RUN)
    if finished is not None and (job.awaited or resumed is not None):
        yield (finished, end if resumed is None else resumed, _RETURN)


def partition(claims: Iterable[Claim], start: int, end: int) -> list[Claim]:
    """Cut [start, end) so that each instant belongs to the highest claim that covers it; others are left out."""
    edges: list[tuple[int, int]] = []
    add = edges.append
    for a, b, part in claims:
        if a < start:
            a = start
        if b > end:
            b = end
        if a < b:
            add((a, part))
            add((b, ~part))
    edges.sort()
    covering = [0] * len(PRIORITY)
    covered = 0  # a bit for each part that covers the instant: the lowest one wins
    segments: list[Claim] = []
    last, since, highest = start, start, -1  # the segment so far; -1: none
    for at, part in edges:
        if at > last:
            wins = (covered & -covered).bit_length() - 1
            if wins != highest:
                if highest >= 0:
                    segments.append((since, last, highest))
                since, highest = last, wins
            last = at
        if part >= 0:
            covering[part] += 1
            covered |= 1 << part
        else:
            covering[~part] -= 1
            if not covering[~part]:
                covered ^= 1 << ~part
    if highest >= 0:
        segments.append((since, last, highest))
    return segments


def _copy(spilled: Spilled) -> Spilled:
    copy = Spilled(spilled.until_ns, 0)
    for name in Spilled.__slots__:
        value = getattr(spilled, name)
        setattr(copy, name, value.copy() if isinstance(value, (list, dict)) else value)
    return copy


def _write_parts(raw: RawRequest, end_ns: int) -> tuple[int | None, int | None]:
    if raw.result_ns is None:
        return (0, 0) if raw.write_seen else (None, None)
    if raw.write_seen:
        taken = raw.write_taken_ns
        if taken is None:
            return max(0, end_ns - raw.result_ns), 0
        return max(0, taken - raw.result_ns), max(0, end_ns - taken)
    if raw.write_taken_ns is not None:
        return max(0, raw.write_taken_ns - raw.result_ns), None
    return None, None


class _Client:
    """Its own client, asked for something while it waits."""

    kind, name, tag = "client", "the client", "exact"


_CLIENT = _Client()


def _awaits(raw: RawRequest, total: Spilled, result: int, short_ns: int) -> tuple[Await, ...]:
    if total.stages is None:
        return ()
    stretches = [*total.stages, *total.tail]
    marks = [*raw.awaits, *(AwaitMark(*_by_client(wait), _CLIENT, None) for wait in raw.client_waits)]
    ended = {
        look[:2] for _, _, look in total.looked
    }  # by the step that runs right now, of which ``units`` does not know
    still = [look for look in raw.looks if look[:2] not in ended]
    looked = [*total.looked, *still_suspended(still, raw.units, result)]
    awaiting, running, busy, pauses = ([claim for claim in stretches if claim[2] == part] for part in _STAGES)
    in_jobs = job_looks(job for job in (*total.jobs, *raw.jobs))
    return name_awaits(
        awaiting, running, marks, looked, result, short_ns, in_jobs, busy, pauses, raw.result_ns is not None
    )


def _client_wait(raw: RawRequest, first: int, result: int) -> int | None:
    if not raw.client_waits:
        return None
    claims = ((*_by_client(wait), _AWAITING) for wait in raw.client_waits)
    return sum(b - a for a, b, _ in partition(claims, first, result))


def _by_client(wait: ClientWait) -> tuple[int, int]:
    """While its client had not answered. Then the answer waited for the loop."""
    return wait.asked_ns, wait.answered_ns


def _waits(raw: RawRequest, first: int, end_ns: int, handling: list[Wait]) -> tuple[Wait, ...]:
    arrival, later = raw.arrival_ns, (*handling, *_answers_unread(raw), *_write_waits(raw, end_ns))
    if arrival is None:
        return later
    earliest = arrival if raw.arrival_earliest_ns is None else min(raw.arrival_earliest_ns, arrival)
    queued = (Wait(earliest, arrival, first, "queue"),) if first - earliest > LATE_NS else ()
    return (*queued, *later)


def _answers_unread(raw: RawRequest) -> Iterable[Wait]:
    """While an answer of its client lay there, the handler could have run."""
    for _, earliest, answered, read in raw.client_waits:
        until = read if raw.result_ns is None else min(read, raw.result_ns)
        if until - earliest > LATE_NS:
            yield Wait(earliest, min(answered, until), until, "ready")


def _write_waits(raw: RawRequest, end_ns: int) -> Iterable[Wait]:
    """When the writer of the answer could run and did not. It does not wait for the loop while it encodes this answer.

    If the writer was not seen, it may have waited for the loop until it took the answer, or for its client.
    """
    result, taken = raw.result_ns, raw.write_taken_ns
    if result is None:
        return
    if raw.write_waits is None:
        if taken is not None and taken - result > LATE_NS:
            yield Wait(result, taken, taken, "write")
        return
    for span in raw.write_waits:
        start, end = span
        if start < result or end > end_ns or (taken is not None and start < taken < end):
            until = taken if taken is not None and start < taken < end else end
            span = start, end = max(start, result), min(until, end_ns)
        if end - start > LATE_NS:
            yield _known_waits.get(span) or _writers_wait(span)


_known_waits: dict[tuple[int, int], Wait] = {}
"""Answers that are behind each other share the waits of their writer, and an answer behind many has dozens."""


def _writers_wait(span: tuple[int, int]) -> Wait:
    if len(_known_waits) >= MAX_WAITS:
        _known_waits.clear()
    wait = _known_waits[span] = Wait(span[0], *span, "write")
    return wait


def _quality(raw: RawRequest, total: Spilled, first: int, *, runs: bool, wakes: bool) -> tuple[_QualityRow, ...]:
    rows: list[_QualityRow] = []
    if not runs:
        rows += [("busy", "unavailable", None, None), ("gc", "unavailable", None, None)]
    if not wakes:
        rows += [(part, "unavailable", None, None) for part in ("ready_wait", "executor_return", "awaiting")]
    if raw.arrival_ns is None or not raw.transport_seen:
        rows.append(("queue_transport", "unavailable", None, None))
    elif raw.arrival_earliest_ns is not None and raw.arrival_earliest_ns < raw.arrival_ns:
        known = max(0, _taken(raw, first) - raw.arrival_ns)
        rows.append(("queue_transport", "bounded", known, known + raw.arrival_ns - raw.arrival_earliest_ns))
    if raw.taken_ns is None:
        rows.append(("queue_dispatch", "unavailable", None, None))
    if not raw.write_seen:
        if raw.result_ns is not None and raw.write_taken_ns is not None:
            rows.append(("write_wait", "bounded", 0, max(0, raw.write_taken_ns - raw.result_ns)))
        else:
            rows.append(("write_wait", "unavailable", None, None))
        rows.append(("write_flush", "unavailable", None, None))
    vague = total.vague_ns + sum(wait.answered_ns - wait.earliest_ns for wait in raw.client_waits)
    if vague > 0 and wakes:
        ready, waiting, awaiting = total.parts[_READY], total.parts[_WAIT], total.parts[_AWAITING]
        rows.append(("ready_wait", "bounded", ready, ready + vague))
        rows.append(("awaiting", "bounded", max(0, awaiting - vague), awaiting))
        if waiting:
            rows.append(("executor_wait", "bounded", max(0, waiting - vague), waiting))
    return tuple(rows)
