"""Constructed lives of requests: every state of every unit at every instant is known before any mark is made.

A :class:`Life` is drawn as a schedule on one loop, on an integer time line of ticks. From it come two things
that know nothing of each other: the marks that capture would have written (:meth:`Life.raw`), and the true
partition, found instant by instant from the states and the list of measurement.md section 1 (:func:`truth`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from hypothesis import strategies as st

from mcp_probe.record.raw import (
    WAKE_LOOP,
    WAKE_SOCKET,
    WAKE_SPLIT,
    WAKE_THREAD,
    WAKE_UNKNOWN,
    Job,
    RawRequest,
    StepMark,
)

TICK_NS = 700_003
"""Two ticks are more than the 1 ms at which a resumption counts as late, one tick is less."""

HANDLER = 1
HANDLING = ("gc", "busy", "executor_run", "executor_return", "ready_wait", "executor_wait", "unaccounted", "awaiting")
"""Highest first. A unit in an unknown state forbids ``awaiting``, for that needs *every* unit observed suspended."""


@dataclass
class Step:
    """One step of ``unit`` in ticks, with the stretch before it; ``became_ready`` is the truth, ``ready`` the stamp."""

    unit: int
    suspended: int
    earliest: int
    became_ready: int
    ready: int
    start: int
    end: int
    wake: int
    done: bool = False
    born: bool = False

    def mark(self) -> StepMark:
        """What capture writes. On a real clock only a first mark has ``suspended == earliest``."""
        suspended, earliest = self.suspended * TICK_NS, self.earliest * TICK_NS
        if earliest == suspended and not self.born and self.wake != WAKE_SPLIT:
            earliest -= 1
        ready, start, end = (tick * TICK_NS for tick in (self.ready, self.start, self.end))
        return (self.unit, suspended, earliest, ready, start, end, self.wake)


@dataclass
class ThreadJob:
    """One job in ticks; ``None`` = never happened."""

    submit: int
    start: int | None
    finish: int | None
    resumed: int | None
    awaited: bool


@dataclass
class Life:
    """A request from its arrival to ``end``; ``result`` is ``None`` where it was cut off unfinished."""

    arrival: int | None = 0
    taken: int | None = 0
    first: int = 0
    result: int | None = None
    write_taken: int | None = None
    end: int = 0
    write_seen: bool = True
    steps: list[Step] = field(default_factory=list)
    jobs: list[ThreadJob] = field(default_factory=list)
    pauses: list[tuple[int, int]] = field(default_factory=list)
    running: Step | None = None

    @property
    def until(self) -> int:
        """End of the handling window."""
        return self.end if self.result is None else self.result

    def raw(
        self,
        lost: Collection[int] = (),
        spill: Callable[[RawRequest, int], None] | None = None,
        spill_after: Collection[int] = (),
    ) -> RawRequest:
        """The request as capture leaves it; the marks of steps number ``lost`` never arrived.

        ``spill`` is called after the steps number ``spill_after``, with everything as it stood then.
        """
        raw = RawRequest(1, "request", "tools/call", "tool", "stdio")
        raw.arrival_ns = None if self.arrival is None else self.arrival * TICK_NS
        raw.taken_ns = None if self.taken is None else self.taken * TICK_NS
        raw.first_step_ns = self.first * TICK_NS
        raw.write_seen = self.write_seen
        jobs: dict[int, Job] = {}
        for number, step in enumerate(self.steps):
            if number not in lost:
                raw.add_mark(step.mark())
            if spill is not None and number in spill_after and step.end <= self.end:
                self._bring_up_to(raw, jobs, step.end)
                raw.units = self._units(self.steps[: number + 1])
                spill(raw, step.end * TICK_NS)
        self._bring_up_to(raw, jobs, self.end, last=True)
        raw.units = self._units(self.steps)
        return raw

    def _units(self, steps: Collection[Step]) -> dict[int, int]:
        return {unit: end * TICK_NS for unit, end in alive_after(steps).items()}

    def _bring_up_to(self, raw: RawRequest, jobs: dict[int, Job], now: int, last: bool = False) -> None:
        since = raw.spilled.until_ns if raw.spilled is not None else -1
        raw.pauses = [(a * TICK_NS, b * TICK_NS) for a, b in self.pauses if since < b * TICK_NS and b <= now]
        if self.result is not None and (self.result <= now or last):
            raw.result_ns = self.result * TICK_NS
            if self.write_taken is not None and (self.write_taken <= now or last):
                raw.write_taken_ns = self.write_taken * TICK_NS
        kept = list(raw.jobs)
        for number, drawn in enumerate(self.jobs):
            if drawn.submit > now:
                continue
            if number not in jobs:
                jobs[number] = Job(None, raw, "tool", drawn.submit * TICK_NS)
                jobs[number].awaited = drawn.awaited
                kept.append(jobs[number])
            job = jobs[number]
            for name, at in (("start_ns", drawn.start), ("finish_ns", drawn.finish), ("resumed_ns", drawn.resumed)):
                # A job may go on after the request's end, and its stamps may come before the record is assembled.
                if at is not None and (at <= now or last):
                    setattr(job, name, at * TICK_NS)
        raw.jobs = kept


def alive_after(steps: Collection[Step]) -> dict[int, int]:
    """Live unit -> end of its last step, as capture keeps it."""
    alive: dict[int, int] = {}
    for step in steps:
        if step.unit:
            if step.done:
                alive.pop(step.unit, None)
            else:
                alive[step.unit] = step.end
    return alive


def truth(life: Life, hidden: Step | None = None, *, exact_sockets: bool = False) -> dict[str, int]:
    """Ticks of the handling window per part: at each instant the first part of HANDLING that some state calls for.

    ``hidden``: the step, and the suspension before it, of which nothing is known.
    ``exact_sockets``: use the instant at which a socket truly became ready, which no hook can see.
    """
    totals = dict.fromkeys(HANDLING, 0)
    for states in states_of(life, hidden, exact_sockets=exact_sockets):
        totals[next((part for part in HANDLING if part in states), "unaccounted")] += 1
    return totals


def states_of(life: Life, hidden: Step | None = None, *, exact_sockets: bool = False) -> list[set[str]]:
    """For each tick of the handling window, what somebody or something of the request is doing."""
    window = range(life.first, life.until)
    states: list[set[str]] = [set() for _ in window]

    def during(a: int, b: int, state: str) -> None:
        for tick in range(max(a, window.start), min(b, window.stop)):
            states[tick - window.start].add(state)

    for step in [*life.steps, *([life.running] if life.running is not None else [])]:
        if step is hidden:
            if step.unit:
                during(step.suspended, step.end, "unaccounted")
            continue
        during(step.start, step.end, "busy")
        if not step.unit:
            continue
        if step.wake == WAKE_UNKNOWN:
            during(step.suspended, step.start, "unaccounted")
            continue
        ready = max(step.suspended, step.became_ready if exact_sockets else step.ready)
        during(step.suspended, ready, "awaiting")
        during(ready, step.start, "executor_return" if step.wake == WAKE_THREAD else "ready_wait")
    for unit, since in alive_after(life.steps).items():
        if life.running is None or life.running.unit != unit:
            during(since, life.end, "awaiting")
    for job in life.jobs:
        gone = [at for at in (job.start, job.resumed) if at is not None]
        during(job.submit, min(gone, default=life.end), "executor_wait")
        if job.start is not None:
            during(job.start, life.end if job.finish is None else job.finish, "executor_run")
        if job.finish is not None and (job.awaited or job.resumed is not None):
            during(job.finish, life.end if job.resumed is None else job.resumed, "executor_return")
    for a, b in life.pauses:
        during(a, b, "gc")
    return states


class _Unit:
    def __init__(self, number: int, born: int) -> None:
        self.number = number
        self.since = born
        self.stepped = False


@st.composite
def lives(draw: st.DrawFn, max_units: int = 4, max_steps: int = 14, threads: bool = True, gc: bool = True) -> Life:
    """A request's life under some schedule of its loop."""
    small = st.integers(0, 6)
    life = Life()
    life.arrival = draw(st.none() | st.just(0))
    life.taken = draw(small) if life.arrival is not None else draw(st.none() | st.just(0))
    now = life.first = (life.taken or 0) + draw(small)
    units = [_Unit(HANDLER, now)]
    free_ids: list[int] = []
    for number in range(draw(st.integers(1, max_steps))):
        if number:
            now += draw(small)  # the loop polls, or runs somebody else
        if not units:
            break
        if number and draw(st.integers(0, 9)) == 0:  # a plain callback of the request
            end = now + draw(st.integers(1, 3))
            ready = draw(st.integers(max(0, now - 4), now))
            earliest = draw(st.integers(max(0, ready - 4), ready))
            life.steps.append(Step(0, earliest, earliest, ready, ready, now, end, WAKE_SOCKET))
            now = end
            continue
        unit = units[draw(st.integers(0, len(units) - 1))] if number else units[0]
        step = _step(draw, unit, now)
        life.steps.append(step)
        now = step.end
        _things_in(draw, life, step, threads, gc)
        if len(units) < max_units and draw(st.booleans()):
            child = free_ids.pop() if free_ids else 1 + max(s.unit for s in life.steps) + len(units)
            units.append(_Unit(child, draw(st.integers(step.start, step.end))))
        unit.since = now
        if draw(st.integers(0, 4)) == 0:
            step.done = True
            units.remove(unit)
            free_ids.append(unit.number)  # a unit is named by its object's id, which the next one may get
    _end(draw, life, now)
    return life


def _step(draw: st.DrawFn, unit: _Unit, now: int) -> Step:
    since, end = unit.since, now + draw(st.integers(0, 6))
    if not unit.stepped:
        unit.stepped = True
        return Step(unit.number, since, since, since, since, now, end, WAKE_LOOP, born=True)
    if since == now and draw(st.booleans()):
        return Step(unit.number, now, now, now, now, now, end, WAKE_SPLIT)
    wake = draw(st.sampled_from((WAKE_LOOP, WAKE_LOOP, WAKE_THREAD, WAKE_SOCKET, WAKE_SOCKET, WAKE_UNKNOWN)))
    # What wakes a task may have happened before it was suspended: a thread result that was ready too soon.
    ready = draw(st.integers(max(0, since - 2), now))
    earliest = draw(st.integers(max(0, min(since, ready) - 3), ready)) if wake == WAKE_SOCKET else ready
    became = draw(st.integers(earliest, ready))
    return Step(unit.number, since, earliest, became, ready, now, end, wake)


def _things_in(draw: st.DrawFn, life: Life, step: Step, threads: bool, gc: bool) -> None:
    if gc and step.end > step.start and draw(st.integers(0, 3)) == 0:
        a = draw(st.integers(step.start, step.end - 1))
        life.pauses.append((a, draw(st.integers(a + 1, step.end))))
    if threads and draw(st.integers(0, 2)) == 0:
        submit = draw(st.integers(step.start, step.end))
        start = submit + draw(st.integers(0, 12))
        finish = start + draw(st.integers(0, 12))
        resumed: int | None = finish + draw(st.integers(0, 6))
        kind = draw(st.sampled_from(("whole", "whole", "own executor", "cancelled", "abandoned")))
        if kind == "cancelled":
            life.jobs.append(ThreadJob(submit, None, None, draw(st.integers(submit, start)), True))
        elif kind == "abandoned":
            life.jobs.append(ThreadJob(submit, start, finish, draw(st.integers(start, finish)), True))
        else:
            own = kind == "own executor"
            life.jobs.append(ThreadJob(submit, start, finish, None if own else resumed, not own))


def _end(draw: st.DrawFn, life: Life, now: int) -> None:
    """The request is answered somewhere, or is cut off where it stands."""
    stop = draw(st.integers(now, now + 3) if draw(st.integers(0, 3)) else st.integers(life.first, now))
    life.write_seen = draw(st.booleans())
    if draw(st.booleans()):
        life.result = stop
        life.write_taken = draw(st.none() | st.integers(stop, stop + 4)) if life.write_seen else None
        life.end = (life.write_taken or stop) + draw(st.integers(0, 4)) if life.write_seen else stop
    else:
        life.end = stop
    # Marks and pauses are written when their step ends; of a step that runs at the end only its beginning is known.
    cut = [step for step in life.steps if step.start < life.end < step.end]
    for step in cut:
        if life.result is None:
            life.running = step
    life.steps = [step for step in life.steps if step.end <= life.end or (step in cut and life.result is not None)]
    if life.running is not None:
        life.running.end = life.end
    life.pauses = [(a, b) for a, b in life.pauses if b <= life.end]
    life.jobs = [job for job in life.jobs if job.submit <= life.end]
    if life.result is None:
        for job in life.jobs:
            job.start = None if job.start is not None and job.start > life.end else job.start
            job.finish = None if job.finish is not None and job.finish > life.end else job.finish
            job.resumed = None if job.resumed is not None and job.resumed > life.end else job.resumed
