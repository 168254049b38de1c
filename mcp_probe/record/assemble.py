"""From marks to a record: a pure state machine without clock, loop or SDK.

The handling window [first step, result) is partitioned by the claims of the request's units and
jobs; where claims of several units overlap, the first part of :data:`PRIORITY` wins, so progress
beats waiting. What nobody claims is ``unaccounted``: the remainder, and therefore a real check.

Invariants: parts are never negative and never overlap; together they are exactly end - arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mcp_probe.model import Budget, RequestRecord, Tag, Wait
from mcp_probe.record.raw import WAKE_SPLIT, WAKE_THREAD, WAKE_UNKNOWN, Job, RawRequest, Spilled, StepMark

PRIORITY = ("gc", "busy", "executor_run", "executor_return", "ready_wait", "executor_wait", "unknown", "awaiting")
_GC, _BUSY, _RUN, _RETURN, _READY, _WAIT, _UNKNOWN, _AWAITING = range(len(PRIORITY))

LATE_NS = 1_000_000
"""A resumption later than this is looked at for blame (measurement.md section 3, step 2)."""

MAX_WAITS = 1024
"""Late stretches kept per request; more and the request's blame becomes a lower bound."""

Claim = tuple[int, int, int]
_QualityRow = tuple[str, Tag, int | None, int | None]


def assemble(raw: RawRequest, end_ns: int, running: StepMark | None = None) -> RequestRecord:
    """The record of ``raw`` as it stands at ``end_ns``; does not change ``raw``.

    ``running`` is the step it is on the loop with right now, if any (an unfinished request).
    """
    first, result = _handling_window(raw, end_ns)
    marks = raw.marks if running is None else [*raw.marks, running]
    total = Spilled(first, len(PRIORITY))
    if raw.spilled is not None:
        _merge(total, raw.spilled)
        first_open = raw.spilled.until_ns
    else:
        first_open = first
    _fold(total, raw, marks, first_open, result)
    parts = total.parts
    handling = max(0, result - first)
    unaccounted = handling - sum(parts) + parts[_UNKNOWN]
    written = _write_parts(raw, end_ns)
    return RequestRecord(
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
        budget=Budget(
            None if raw.arrival_ns is None else max(0, _taken(raw, first) - raw.arrival_ns),
            None if raw.taken_ns is None else max(0, first - raw.taken_ns),
            parts[_BUSY],
            parts[_READY],
            parts[_WAIT],
            parts[_RUN],
            parts[_RETURN],
            parts[_AWAITING],
            written[0],
            written[1],
            parts[_GC],
            unaccounted,
        ),
        steps=total.steps,
        step_max_ns=total.step_max_ns,
        immediate_resumes=total.immediate,
        sequential_awaits=total.awaits,
        executor_run_sum_ns=total.run_sum_ns,
        detached_ns=raw.detached_ns,
        decode_ns=raw.decode_ns,
        encode_ns=raw.encode_ns,
        client_wait_ns=_client_wait(raw, first, result),
        request_bytes=raw.request_bytes,
        response_bytes=raw.response_bytes,
        waits=_waits(raw, first, total),
        quality=_quality(raw, total, first),
        partial=raw.partial or len(total.waits) >= MAX_WAITS,
    )


def spill(raw: RawRequest, until_ns: int) -> None:
    """Fold ``raw``'s marks up to ``until_ns`` into totals, so that its memory stays bounded."""
    if raw.first_step_ns is None:
        return
    spilled = raw.spilled or Spilled(raw.first_step_ns, len(PRIORITY))
    _fold(spilled, raw, raw.marks, spilled.until_ns, until_ns)
    spilled.until_ns = until_ns
    raw.spilled = spilled
    raw.marks = []
    raw.pauses = ()
    raw.jobs = [job for job in raw.jobs if job.finish_ns is None]


def _handling_window(raw: RawRequest, end_ns: int) -> tuple[int, int]:
    """[first step, result); both at the end where the handler never ran, or at once where it answered unseen."""
    result = end_ns if raw.result_ns is None else raw.result_ns
    first = result if raw.first_step_ns is None else raw.first_step_ns
    return min(first, result), result


def _taken(raw: RawRequest, first: int) -> int:
    return first if raw.taken_ns is None else raw.taken_ns


def _fold(total: Spilled, raw: RawRequest, marks: Sequence[StepMark], start: int, end: int) -> None:
    """Add what ``marks`` and the live units claim in [start, end) to ``total``."""
    units = raw.units
    alone = not raw.jobs and not raw.pauses and len(units) <= 1
    if alone and _fold_single(total, marks, units, start, end):
        return
    claims = _unit_claims(marks, units, start, end)
    claims.extend((a, b, _GC) for a, b in raw.pauses)
    for job in raw.jobs:
        claims.extend(_job_claims(job, end))
        if job.start_ns is not None:
            total.run_sum_ns += max(0, (job.finish_ns or end) - max(job.start_ns, start))
    for part, ns in enumerate(sweep(claims, start, end)):
        total.parts[part] += ns
    for mark in marks:
        _count(total, mark)
    if len(units) <= 1:
        total.awaits += sum(1 for m in marks if m[0] and m[3] > m[1])


def _fold_single(total: Spilled, marks: Sequence[StepMark], units: dict[int, int], start: int, end: int) -> bool:
    """The common case: one unit, no threads, no collector pause: its claims follow each other.

    Returns False, having changed nothing, where that turns out not to hold.
    """
    unit = next(iter(units), 0) or (marks[0][0] if marks else 0)
    cursor = start
    busy = ready_wait = returning = awaiting = unknown = awaits = 0
    for mark_unit, suspended, _, ready, began, ended, wake in marks:
        if mark_unit != unit or suspended < cursor:
            if mark_unit != unit or cursor != start:
                return False
            suspended = cursor
        if began >= end:
            return False
        unknown += suspended - cursor
        if wake == WAKE_UNKNOWN:
            unknown += max(0, began - suspended)
        else:
            at = ready if ready > suspended else suspended
            if at > began:
                at = began
            if at > suspended:
                awaiting += at - suspended
                awaits += 1
            if wake == WAKE_THREAD:
                returning += max(0, began - at)
            else:
                ready_wait += max(0, began - at)
        began = began if began > cursor else cursor
        stop = ended if ended < end else end
        busy += max(0, stop - began)
        cursor = stop if stop > cursor else cursor
    if unit in units:
        awaiting += max(0, end - cursor)
    parts = total.parts
    parts[_BUSY] += busy
    parts[_READY] += ready_wait
    parts[_RETURN] += returning
    parts[_AWAITING] += awaiting
    total.awaits += awaits
    for mark in marks:
        _count(total, mark)
    return True


def _count(total: Spilled, mark: StepMark) -> None:
    unit, suspended, earliest, ready, began, ended, wake = mark
    length = ended - began
    if unit and wake != WAKE_SPLIT:
        total.steps += 1
        if ready <= suspended:
            total.immediate += 1
    if length > total.step_max_ns:
        total.step_max_ns = length
    if wake == WAKE_UNKNOWN:
        return
    if ready > earliest:
        total.vague_ns += ready - max(earliest, suspended)
    if began - earliest > LATE_NS and len(total.waits) < MAX_WAITS:
        stage = "return" if wake == WAKE_THREAD else "ready"
        floor = max(earliest, suspended)
        if began - floor > LATE_NS:
            total.waits.append(Wait(floor, max(ready, floor), began, stage))  # type: ignore[arg-type]


def _unit_claims(marks: Sequence[StepMark], units: dict[int, int], start: int, end: int) -> list[Claim]:
    claims: list[Claim] = []
    last: dict[int, int] = {}
    for unit, suspended, _, ready, began, ended, wake in marks:
        if unit:
            previous = last.get(unit)
            if previous is not None and suspended > previous:
                claims.append((previous, suspended, _UNKNOWN))
            last[unit] = ended
            if wake == WAKE_UNKNOWN:
                claims.append((suspended, began, _UNKNOWN))
            else:
                at = min(max(ready, suspended), began)
                claims.append((suspended, at, _AWAITING))
                claims.append((at, began, _RETURN if wake == WAKE_THREAD else _READY))
        claims.append((began, ended, _BUSY))
    for unit, since in units.items():
        known = last.get(unit)
        if known is not None and since > known:
            claims.append((known, since, _UNKNOWN))
        claims.append((max(since, start), end, _AWAITING))
    return claims


def _job_claims(job: Job, end: int) -> Iterable[Claim]:
    started, finished = job.start_ns, job.finish_ns
    yield (job.submit_ns, end if started is None else started, _WAIT)
    if started is not None:
        yield (started, end if finished is None else finished, _RUN)
    if finished is not None and job.resumed_ns is not None:
        yield (finished, job.resumed_ns, _RETURN)


def sweep(claims: Iterable[Claim], start: int, end: int) -> list[int]:
    """Nanoseconds of [start, end) per priority, each instant charged to the highest claim that covers it."""
    edges: list[tuple[int, int, int]] = []
    for a, b, part in claims:
        a = a if a > start else start
        b = b if b < end else end
        if a < b:
            edges.append((a, 1, part))
            edges.append((b, -1, part))
    edges.sort()
    covering = [0] * len(PRIORITY)
    totals = [0] * len(PRIORITY)
    last = start
    for at, delta, part in edges:
        if at > last:
            for candidate, count in enumerate(covering):
                if count:
                    totals[candidate] += at - last
                    break
            last = at
        covering[part] += delta
    return totals


def _merge(into: Spilled, other: Spilled) -> None:
    into.parts = [a + b for a, b in zip(into.parts, other.parts, strict=True)]
    into.steps += other.steps
    into.step_max_ns = max(into.step_max_ns, other.step_max_ns)
    into.immediate += other.immediate
    into.awaits += other.awaits
    into.run_sum_ns += other.run_sum_ns
    into.vague_ns += other.vague_ns
    into.waits.extend(other.waits)


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


def _client_wait(raw: RawRequest, first: int, result: int) -> int | None:
    if not raw.client_waits:
        return None
    return sweep(((a, b or result, _AWAITING) for a, b in raw.client_waits), first, result)[_AWAITING]


def _waits(raw: RawRequest, first: int, total: Spilled) -> tuple[Wait, ...]:
    arrival = raw.arrival_ns
    if arrival is None:
        return tuple(total.waits)
    earliest = arrival if raw.arrival_earliest_ns is None else min(raw.arrival_earliest_ns, arrival)
    if first - earliest > LATE_NS:
        return (Wait(earliest, arrival, first, "queue"), *total.waits)
    return tuple(total.waits)


def _quality(raw: RawRequest, total: Spilled, first: int) -> tuple[_QualityRow, ...]:
    rows: list[_QualityRow] = []
    if raw.arrival_ns is None:
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
    if total.vague_ns > 0:
        ready, awaiting = total.parts[_READY], total.parts[_AWAITING]
        vague = min(total.vague_ns, awaiting)
        rows.append(("ready_wait", "bounded", ready, ready + vague))
        rows.append(("awaiting", "bounded", awaiting - vague, awaiting))
    return tuple(rows)
