"""What a request's tasks and jobs did, one by one: written from its marks, and read again as phases.

A timeline holds causes only. Its phases are found from them as the budget is (``record/assemble.py``), so they
partition [arrival, end] and add up to the budget's parts, unless something was left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mcp_probe.model import (
    STEPS,
    WAKE_UPS,
    Await,
    AwaitStage,
    JobRun,
    LockHold,
    RequestRecord,
    StepRecord,
    StepRun,
    Timeline,
)
from mcp_probe.record.assemble import PRIORITY, job_claims, partition, unit_claims
from mcp_probe.record.awaits import Looked, await_of, is_covered, job_looks, looked_at, still_suspended
from mcp_probe.record.raw import MAX_AWAITS, AwaitMark, Job, RawRequest, StepMark

MAX_STEPS = 1_024
"""Steps kept of one request while it lives (0.3 MB). Later ones are counted."""

MAX_JOB_RUNS = 256
"""Jobs kept of one request, the earliest ones."""

WAKES = ("loop", "thread", "socket", "unknown", "split")
"""Names of ``StepRun.wake``: what made the task ready."""

_NEEDS_WAKE_UPS = frozenset({"ready_wait", "executor_return", "awaiting", "unknown"})
_NEEDS_STEPS = frozenset({"busy", "gc"})
_WAIT_PARTS = {"queue": "unknown", "ready": "ready_wait", "return": "executor_return", "write": "unknown"}


_new = tuple.__new__  # half of the time of the class's own


class Phase(NamedTuple):
    """A stretch of a request in one part of its budget."""

    from_ns: int
    to_ns: int
    part: str  # one of BUDGET_PARTS


def timeline_of(
    raw: RawRequest, end_ns: int, running: StepMark | None = None, holds: Iterable[LockHold] = ()
) -> Timeline:
    """What ``raw`` did until ``end_ns``; does not change it. ``running``: its step on the loop right now, if any."""
    kept = None if raw.spilled is None else raw.spilled.kept
    marks = [*(kept.marks if kept is not None else ()), *raw.marks]
    steps_left_out = 0 if kept is None else kept.marks_left_out
    if steps_left_out:  # later ones would stand behind a hole
        steps_left_out += len(marks) - len(kept.marks if kept is not None else ())
        marks = list(kept.marks if kept is not None else ())
    elif running is not None:
        marks.append(running)
    numbers: dict[int, int] = {0: 0}
    steps = tuple([_new(StepRun, (numbers.setdefault(mark[0], len(numbers)), *mark[1:])) for mark in marks])
    jobs = sorted((*(kept.jobs if kept is not None else ()), *raw.jobs), key=lambda job: job.submit_ns)
    pauses = (*(kept.pauses if kept is not None else ()), *raw.pauses)
    left_out = {
        "steps": steps_left_out,
        "jobs": max(0, len(jobs) - MAX_JOB_RUNS),
        **({"awaits": 0} if len(raw.awaits) >= MAX_AWAITS or len(raw.looks) >= MAX_AWAITS else {}),
    }
    return Timeline(
        request=raw.id,
        taken_ns=raw.taken_ns,
        write_taken_ns=raw.write_taken_ns,
        steps=steps,
        suspended=tuple(sorted((numbers.setdefault(unit, len(numbers)), at) for unit, at in raw.units.copy().items())),
        pauses=tuple(pauses),
        jobs=tuple(map(_job_run, jobs[:MAX_JOB_RUNS])),
        awaits=_awaits(raw, marks, jobs, end_ns),
        left_out=tuple((what, count) for what, count in left_out.items() if count or what == "awaits"),
        holds=tuple(holds),
        streams=getattr(raw.channel, "number", 0),
        new_connection=raw.new_connection,
    )


def _job_run(job: Job) -> JobRun:
    pool = job.pool
    return JobRun(
        getattr(pool, "id", 0),
        str(getattr(pool, "name", None) or "executor"),
        job.native_id,
        job.submit_ns,
        job.start_ns,
        job.finish_ns,
        job.resumed_ns,
        job.cpu_ns,
        job.awaited,
    )


def _awaits(raw: RawRequest, marks: Sequence[StepMark], jobs: Sequence[Job], end_ns: int) -> tuple[Await, ...]:
    looked: list[Looked] = [] if raw.spilled is None else list(raw.spilled.looked)
    if raw.looks:
        known = {look[:2] for _, _, look in looked}
        looked += [one for one in looked_at(raw.looks, marks) if one[2][:2] not in known]
        known = {look[:2] for _, _, look in looked}
        looked += still_suspended([look for look in raw.looks if look[:2] not in known], raw.units, end_ns)
    looks = [AwaitMark(a, b, look.thing, look.where, looks=1) for a, b, look in looked]
    seen = [*raw.awaits, *(look for look in looks if not is_covered(look, raw.awaits, end_ns))]
    in_jobs = [mark for mark in raw.awaits if mark.in_job]
    seen += [look for look in job_looks(jobs) if not is_covered(look, in_jobs, end_ns)]
    return tuple(sorted((_await(mark, end_ns) for mark in seen), key=lambda one: one.from_ns))


def _await(mark: AwaitMark, end_ns: int) -> Await:
    until = max(mark.from_ns, end_ns if mark.to_ns is None else mark.to_ns)
    stage: AwaitStage = "executor_run" if mark.in_job else "busy" if mark.library else "awaiting"
    return await_of(mark, stage, (mark.from_ns, until), until - mark.from_ns, mark.holders, mark.library)


# --- read again -----------------------------------------------------------------------------------


def phases_of(record: RequestRecord, timeline: Timeline) -> list[Phase]:
    """The parts of ``record``'s budget as stretches that partition [arrival, end], in the order of time.

    Where the arrival could not be seen, they begin as the message was taken off its stream.

    What ``timeline`` leaves out, and what nobody could see, is ``unaccounted``.
    """
    result = record.end_ns if record.result_ns is None else record.result_ns
    first = min(result, result if record.first_step_ns is None else record.first_step_ns)
    taken = first if timeline.taken_ns is None else min(timeline.taken_ns, first)
    arrival = taken if record.budget.queue_transport is None else min(record.arrival_ns, first)
    taken = max(taken, arrival)
    written = result
    if timeline.write_taken_ns is not None and record.result_ns is not None:
        written = min(max(timeline.write_taken_ns, result), record.end_ns)
    elif record.budget.write_wait:
        written = record.end_ns
    stretches = [
        Phase(arrival, taken, "queue_transport"),
        Phase(taken, first, "queue_dispatch"),
        *_handling(record, timeline, first, result),
        Phase(result, written, "write_wait"),
        Phase(written, record.end_ns, "unaccounted" if record.budget.write_flush is None else "write_flush"),
    ]
    return [phase for phase in stretches if phase.to_ns > phase.from_ns]


def kept_phases(record: RequestRecord, steps: Iterable[StepRecord]) -> list[Phase]:
    """What an ordinary recording knows of a request, in the order of time; what it does not know is left open."""
    result = record.end_ns if record.result_ns is None else record.result_ns
    first = min(result, result if record.first_step_ns is None else record.first_step_ns)
    rank = {name: number for number, name in enumerate(PRIORITY)}
    claims = [(step.start_ns, step.end_ns, rank["busy"]) for step in steps]
    claims += [
        (wait.start_ns, wait.end_ns, rank[_WAIT_PARTS[wait.stage]])
        for wait in record.waits
        if wait.stage in ("ready", "return")
    ]
    for job in record.jobs:
        if job.start_ns is not None:
            claims.append((job.start_ns, job.finish_ns or result, rank["executor_run"]))
        claims.append((job.submit_ns, job.start_ns or job.resumed_ns or result, rank["executor_wait"]))
    for one in record.awaits or ():
        if one.count == 1 and one.stage == "awaiting":
            claims.append((one.from_ns, one.to_ns, rank["awaiting"]))
    middle = [Phase(a, b, PRIORITY[part]) for a, b, part in partition(claims, first, result)]
    phases = [Phase(min(record.arrival_ns, first), first, "queue"), *middle, Phase(result, record.end_ns, "write")]
    return [phase for phase in phases if phase.to_ns > phase.from_ns]


def _handling(record: RequestRecord, timeline: Timeline, first: int, result: int) -> Iterable[Phase]:
    claims = unit_claims(timeline.steps, dict(timeline.suspended), {}, first, result)
    claims += [(a, b, PRIORITY.index("gc")) for a, b in timeline.pauses]
    for job in timeline.jobs:
        claims += job_claims(job, result)
    runs = bool(record.seen & STEPS)
    unseen = frozenset() if runs and record.seen & WAKE_UPS else _NEEDS_WAKE_UPS
    unseen |= frozenset({"unknown"}) if runs else _NEEDS_STEPS
    cursor = first
    for a, b, part in partition(claims, first, result):
        yield Phase(cursor, a, "unaccounted")
        yield Phase(a, b, "unaccounted" if PRIORITY[part] in unseen else PRIORITY[part])
        cursor = b
    yield Phase(cursor, result, "unaccounted")


def ready_waits(timeline: Timeline, least_ns: int = 1) -> list[tuple[int, int, StepRun]]:
    """(from_ns, to_ns, the step that came late): one of its tasks could certainly run and did not."""
    found = []
    for step in timeline.steps:
        since = max(step.ready_ns, step.suspended_ns)
        if step.task and WAKES[step.wake] not in ("unknown", "split") and step.start_ns - since >= least_ns:
            found.append((since, step.start_ns, step))
    return found
