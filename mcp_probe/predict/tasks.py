"""The tasks of one request as units of work: each step, what made it ready, and what it set going.

A step's own words are not trusted for waits: from the time at which a task was ready only that part counts which
nothing in the process explains. What a lock, a pool or the loop explains is left to the simulation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from mcp_probe.model import Await, JobRun, RequestRecord, StepRecord, StepRun, Timeline
from mcp_probe.predict.recorded import Busy
from mcp_probe.predict.workload import (
    ANSWER,
    DELAY,
    HOLD,
    JOB,
    RELEASE,
    SIGNAL,
    SIGNALLED,
    SPAWN,
    SUBMIT,
    TAKEN,
    Act,
    Step,
    Unit,
    Work,
)
from mcp_probe.record.timeline import WAKES

NEAR_NS = 30_000
"""Two stamps of one event: the same within this."""

_OUTSIDE = ("http ", "db ", "connect ", "subprocess ", "sleep ", "client ")
"""Kinds of awaits that nothing in the process ends: they last as long as they lasted."""

_WAKES_WITHIN_NS = 5_000_000

_AT_ONCE_NS = 20_000
_LEAST_SLEEP_NS = 10_000
_IDLE_SHARE = 0.1
"""A step that computes throughout sleeps, too, for the GIL of threads that look at it: 30 to 55 times in 80 ms, 2 ms in
all."""
_CPU_BOUND_SHARE, _CPU_BOUND_NS = 0.5, 1_000_000


@dataclass(slots=True)
class Draft:
    """One step, while its request is read."""

    start_ns: int
    end_ns: int
    ready_ns: int
    run_ns: int
    after: int = DELAY
    arg: int = 0
    about: str = ""
    comes_from: str = ""  # "timer" or "thread", where that is known
    begins: list[Act] = field(default_factory=list)
    ends: list[Act] = field(default_factory=list)
    range_ns: tuple[int, int] | None = None  # the wait before it lies between these two
    is_told: bool = True  # False: it may be the shortest, and is unless the same wait elsewhere says otherwise
    late_ns: int = 0
    cpu_ns: int = -1
    is_free: bool = False
    idle_ns: int = 0
    stops: int = 0
    gc_ns: int = 0

    def made(self) -> Step:
        acts = tuple(self.begins), tuple(self.ends)
        step = Step(self.after, self.arg, self.run_ns, *acts, self.about, self.late_ns, self.cpu_ns, self.is_free)
        return step._replace(idle_ns=self.idle_ns, stops=self.stops, gc_ns=self.gc_ns)


@dataclass(slots=True)
class Tasks:
    """What one request did. ``units`` begin with the handler's own task."""

    record: RequestRecord
    units: list[list[Draft]] = field(default_factory=list)
    jobs: list[Work] = field(default_factory=list)
    turns_ns: int = 0  # of the runs: what the loop took from one step to the next

    def made(self) -> tuple[Unit, ...]:
        return tuple(tuple(step.made() for step in unit) for unit in self.units)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of the rest of the window the reading of one request needs."""

    busy: Busy
    on_the_way: Busy  # the same, and when a message was on its way: of most of that work no step is in the file
    at_work: Busy  # the one of them that counts where a thread or a timer made a step ready
    resource_of: Callable[[Await], int]  # number of the resource that an await is for; -1: none that is modelled
    pools: Mapping[int, int]  # PoolSample.pool -> number of its resource; without a limit: -1
    limiters: frozenset[int]  # those of anyio: a place is given back as the task goes on
    hops: Mapping[tuple[int, int, int], int]  # (pool, submit_ns, start_ns) -> the hop to its thread
    computing: Busy  # when jobs on threads computed
    crowded: Busy  # when several did, and shared the GIL
    read: Mapping[int, StepRecord]  # start of a step whose CPU time was read -> all of it
    free: frozenset[int]  # starts of steps that computed without the GIL
    collected: Mapping[int, int]  # start of a step -> what the garbage collector took of it
    hides_timers: bool  # on trio no callback says that a timer woke a task


def is_cpu_bound(cpu_ns: int, run_ns: int) -> bool:
    """Whether a job is taken to need the GIL while it runs."""
    return cpu_ns >= _CPU_BOUND_NS and cpu_ns >= _CPU_BOUND_SHARE * run_ns


def tasks_of(record: RequestRecord, timeline: Timeline, around: Surroundings) -> Tasks:
    """The units of one request."""
    return _Reading(record, timeline, around).tasks()


class _Reading:
    def __init__(self, record: RequestRecord, timeline: Timeline, around: Surroundings) -> None:
        self._record = record
        self._timeline = timeline
        self._around = around
        self._found = Tasks(record)
        self._signals = 0
        self._flat: list[tuple[Draft, int]] = []  # in the order of time, with their units
        self._holds = sorted(
            ((one.from_ns, one.to_ns, number) for one in timeline.awaits if (number := around.resource_of(one)) >= 0),
        )
        self._named = [one for one in timeline.awaits if one.stage == "awaiting" and one.count == 1]

    def tasks(self) -> Tasks:
        units = self._split()
        self._found.units = [unit for _, unit in units]
        self._flat = sorted(
            ((step, at) for at, unit in enumerate(self._found.units) for step in unit),
            key=lambda each: each[0].start_ns,
        )
        self._spawn(units)
        for at, unit in enumerate(self._found.units):
            for previous, step in pairwise(unit):
                self._explain(at, previous, step)
        self._submit_jobs()
        self._hand_over()
        for unit in self._found.units:
            _collapse(unit)
        return self._found

    # --- steps to units ---

    def _split(self) -> list[tuple[int, list[Draft]]]:
        """(made_ns, steps) of each task, the handler's first; plain callbacks go to the step that they woke."""
        callbacks: dict[int, list[StepRun]] = defaultdict(list)
        tasks: dict[int, tuple[int, list[Draft]]] = {}
        found: list[tuple[int, list[Draft]]] = []
        steps = sorted(self._timeline.steps, key=lambda step: step.start_ns)
        woken = {step.ready_ns for step in steps if step.task}
        loose: list[StepRun] = []
        for step in steps:
            if not step.task:
                (callbacks[step.ready_ns] if step.ready_ns in woken else loose).append(step)
                continue
            is_split = WAKES[step.wake] == "split"
            is_born = step.suspended_ns == step.earliest_ns and not is_split
            if step.task not in tasks or (is_born and tasks[step.task][1][-1].end_ns != step.suspended_ns):
                tasks[step.task] = (step.suspended_ns, [])
                found.append(tasks[step.task])
            unit = tasks[step.task][1]
            if is_split and unit and step.start_ns - unit[-1].end_ns < NEAR_NS:
                unit[-1].run_ns += step.end_ns - step.start_ns
                unit[-1].end_ns = step.end_ns
                continue
            unit.append(self._draft(step, callbacks.pop(step.ready_ns, [])))
        for step in [*loose, *(each for some in callbacks.values() for each in some)]:
            found.append((step.ready_ns, [self._draft(step, [])]))
        return found or [(self._record.first_step_ns or self._record.arrival_ns, [])]

    def _draft(self, step: StepRun, callbacks: Sequence[StepRun]) -> Draft:
        run = step.end_ns - step.start_ns
        read = self._around.read.get(step.start_ns)
        cpu = None if read is None else read.cpu_ns
        is_alone = not self._around.computing.within(step.start_ns, step.end_ns)
        if cpu is not None and not is_alone:
            run = min(run, cpu)  # the rest is waiting for the GIL
        run += sum(one.end_ns - one.start_ns for one in callbacks)
        ready = max(step.ready_ns, step.suspended_ns)
        ready = min(ready, step.start_ns)
        draft = Draft(step.start_ns, step.end_ns, ready, run)
        draft.cpu_ns = -1 if cpu is None else cpu
        if read is not None and is_alone:
            draft.idle_ns, draft.stops = _idle(read)
        draft.is_free = step.start_ns in self._around.free
        draft.gc_ns = min(run, self._around.collected.get(step.start_ns, 0))
        if WAKES[step.wake] in ("loop", "socket") and not callbacks:  # the loop had it, and came to it: its own work
            turn_ns = step.start_ns - ready - self._around.on_the_way.within(ready, step.start_ns)
            draft.run_ns += turn_ns
            self._found.turns_ns += turn_ns
        else:
            draft.late_ns = step.start_ns - ready - self._around.at_work.within(ready, step.start_ns)
        if callbacks and WAKES[step.wake] == "loop":
            draft.comes_from = "timer"
        elif WAKES[step.wake] == "socket":
            draft.range_ns = (max(step.earliest_ns, step.suspended_ns), draft.ready_ns)
        elif WAKES[step.wake] == "unknown":
            draft.range_ns = (step.suspended_ns, step.start_ns)
        elif WAKES[step.wake] == "thread":
            draft.comes_from = "thread"
        return draft

    def _spawn(self, units: list[tuple[int, list[Draft]]]) -> None:
        for at, (made_ns, unit) in enumerate(units):
            if not at:
                continue
            origin = self._running(made_ns, at) or self._before(made_ns, at)
            if origin is None:
                origin = self._flat[0][0]
            origin.ends.append((SPAWN, at))
            gap = max(0, made_ns - origin.end_ns)
            unit[0].arg = gap - self._around.busy.within(origin.end_ns, made_ns)

    def _running(self, at_ns: int, not_of: int) -> Draft | None:
        """The step of another unit that ran then."""
        index = bisect_left(self._flat, at_ns + 1, key=lambda each: each[0].start_ns)
        for step, unit in reversed(self._flat[max(0, index - 3) : index]):
            if unit != not_of and step.start_ns <= at_ns <= step.end_ns:
                return step
        return None

    def _before(self, at_ns: int, not_of: int) -> Draft | None:
        index = bisect_left(self._flat, at_ns + 1, key=lambda each: each[0].start_ns)
        return next((step for step, unit in reversed(self._flat[:index]) if unit != not_of), None)

    # --- what made a step ready ---

    def _explain(self, unit: int, previous: Draft, step: Draft) -> None:
        gap = step.ready_ns - previous.end_ns
        step.about = self._awaited(previous.end_ns, step.ready_ns) or step.about
        if not step.about and step.comes_from == "timer":
            step.about = "sleep "
        held = self._held(previous.end_ns, step.ready_ns)
        if held is not None:
            step.after, step.arg = HOLD, held
            return
        if gap <= _AT_ONCE_NS:
            step.range_ns = None
            return
        taken, result = self._timeline.write_taken_ns, self._record.result_ns
        if (
            taken is not None
            and result is not None
            and result <= previous.end_ns
            and abs(step.ready_ns - taken) < NEAR_NS
        ):
            step.after, step.arg = SIGNALLED, TAKEN
            return
        if step.range_ns is not None or step.comes_from or step.about.startswith("sleep "):
            step.arg = gap
            return
        waker = self._running(step.ready_ns, unit)
        if waker is not None:
            self._signals += 1
            waker.ends.append((SIGNAL, self._signals))
            step.after, step.arg = SIGNALLED, self._signals
            return
        step.arg = gap
        if not step.about.startswith(_OUTSIDE) and self._around.busy.covers(step.ready_ns):
            # Somebody else's step woke it: what is left is no wait for him.
            step.arg -= self._around.busy.within(previous.end_ns, step.ready_ns)
        if self._around.hides_timers and not step.about:  # or a timer that was due meanwhile
            step.range_ns, step.is_told = (previous.end_ns + step.arg, step.ready_ns), False

    def _held(self, since: int, until: int) -> int | None:
        for start, end, number in self._holds:
            if start <= since + NEAR_NS and until <= end + NEAR_NS and until > start:
                return number
        return None

    def _awaited(self, since: int, until: int) -> str:
        """What was awaited then: of awaits that lie around the stretch the innermost, else the one with most of it."""
        best, most = "", 0.0
        for one in self._named:
            if one.from_ns <= since + NEAR_NS and until <= one.to_ns + NEAR_NS:
                shared = 1e18 - (one.to_ns - one.from_ns)
            else:
                shared = float(min(one.to_ns, until) - max(one.from_ns, since))
            if shared > most:
                best, most = f"{one.kind} {one.object} {one.phase or ''} {one.where or ''}", shared
        return best

    # --- threads ---

    def _submit_jobs(self) -> None:
        for job in self._timeline.jobs:
            if job.start_ns is not None:
                self._submit(job, job.start_ns, job.start_ns if job.finish_ns is None else job.finish_ns)

    def _submit(self, job: JobRun, start: int, finish: int) -> None:
        index = bisect_left(self._flat, job.submit_ns + 1, key=lambda each: each[0].start_ns) - 1
        if index < 0:
            return
        step, at = self._flat[index]
        unit = self._found.units[at]
        position = unit.index(step)
        resumed = next(
            (
                later
                for later in range(position + 1, len(unit))
                if job.resumed_ns is not None and unit[later].start_ns <= job.resumed_ns <= unit[later].end_ns
            ),
            None,
        )
        if resumed is None and job.resumed_ns is None:  # of an executor nobody sees who awaits the result
            resumed = self._woken_by_thread(unit, position, finish)
        pool = self._around.pools.get(job.pool, -1)
        launcher = position
        if job.pool in self._around.limiters and resumed is not None:
            while launcher + 1 < resumed and unit[launcher + 1].start_ns <= start:
                launcher += 1
        number = len(self._found.jobs)
        is_held = launcher > position and pool >= 0 and resumed is not None
        self._found.jobs.append(self._work(job, unit[launcher], start, finish, pool, claims=not is_held))
        unit[launcher].ends.append((SUBMIT, number))
        if resumed is None:
            return
        if is_held:
            unit[launcher].after, unit[launcher].arg = HOLD, pool
            unit[resumed].begins.append((RELEASE, pool))
        unit[resumed].after, unit[resumed].arg = JOB, number
        unit[resumed].range_ns = None
        back = max(0, unit[resumed].ready_ns - finish)
        self._found.jobs[number] = self._found.jobs[number]._replace(back_ns=back)

    def _woken_by_thread(self, unit: list[Draft], position: int, finish: int) -> int | None:
        """The first step after ``position`` that a thread made ready, at the time at which the job ended."""
        for later in range(position + 1, len(unit)):
            step = unit[later]
            if step.comes_from == "thread" and step.after == DELAY and 0 <= step.ready_ns - finish < _WAKES_WITHIN_NS:
                return later
        return None

    def _work(self, job: JobRun, launcher: Draft, start: int, finish: int, pool: int, *, claims: bool) -> Work:
        run = max(0, finish - start)
        hop = self._around.hops.get((job.pool, job.submit_ns, start), 0) if claims else max(0, start - launcher.end_ns)
        cpu = job.cpu_ns or 0
        if not is_cpu_bound(cpu, run):
            return Work(pool, hop, run, 0, 0, claims)
        cpu = min(cpu, run)
        shared = self._around.busy.within(start, finish) + self._around.crowded.within(start, finish)
        return Work(pool, hop, max(0, run - cpu - shared), cpu, 0, claims)

    # --- the answer ---

    def _hand_over(self) -> None:
        result = self._record.result_ns
        if result is None:
            return
        step = None
        for each, _ in self._flat:
            if each.start_ns <= result:
                step = each
        if step is None:
            step = Draft(result, result, result, 0)
            self._found.units[0].append(step)
        step.ends.append((ANSWER, 0))


def _idle(step: StepRecord) -> tuple[int, int]:
    """For how long its thread was asleep for something other than the GIL or a processor, and how often."""
    if step.cause == "gil" or step.cpu_ns is None:
        return 0, 0
    wall = step.end_ns - step.start_ns
    idle = max(0, wall - step.cpu_ns - (step.run_queue_ns or 0))
    if idle < _IDLE_SHARE * wall:
        return 0, 0
    return idle, min(step.sleeps or 0, idle // _LEAST_SLEEP_NS)


def _collapse(unit: list[Draft]) -> None:
    """Of several suspensions within one wait for a lock, the last is kept: the steps between are part of waiting."""
    for index in range(len(unit) - 1, 0, -1):
        step, previous = unit[index], unit[index - 1]
        if step.after == HOLD == previous.after and step.arg == previous.arg and not _acts(previous):
            del unit[index - 1]


def _acts(step: Draft) -> bool:
    return bool(step.begins or step.ends)


def settle(every: Sequence[Tasks], busy: Busy) -> None:
    """Waits for sockets are known between two polls; a wait on trio that ended in a step may have been for a timer.
    Where the loop was busy meanwhile, the truth is taken to be what the same wait of the same operation took where it
    was not, as far as the bounds allow."""
    known: dict[tuple[str, str], list[int]] = defaultdict(list)
    open_: list[tuple[tuple[str, str], Draft, int, int]] = []
    for tasks in every:
        name = tasks.record.name or tasks.record.method
        for unit in tasks.units:
            for previous, step in pairwise(unit):
                if step.range_ns is None or step.after != DELAY:
                    continue
                low, high = (max(0, at - previous.end_ns) for at in step.range_ns)
                key = (name, step.about)
                if busy.within(*step.range_ns) > 0.05 * (high + 1):
                    open_.append((key, step, low, high))
                else:
                    known[key].append(high)
    for key, step, low, high in open_:
        unknown = (low + high) / 2 if step.is_told else low
        typical = median(known[key]) if known[key] else unknown
        step.arg = int(min(max(typical, low), high))
