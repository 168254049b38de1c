"""A workload's run as a full recording: what the probe would have written, had a server done just this.

So the truth of each demand is known, and every wait in the recording comes from what was shared in that run.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

from mcp_probe.model import Await, AwaitKind, Frame, HolderPart, JobRun, RequestRecord, StepRun, Timeline
from mcp_probe.predict.simulate import Outcome, _Live, _Place, _Simulation
from mcp_probe.predict.workload import DELAY, HOLD, JOB, RELEASE, Workload
from tests.frames import make_header, make_pool, make_request

BASE_NS = 1_000_000_000


class Replayed(_Simulation):
    """Notes when each step was ready, began and ended, and when jobs and places were taken."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.ready: dict[tuple[int, tuple[int, int]], int] = {}
        self.begun: dict[tuple[int, tuple[int, int]], int] = {}
        self.over: dict[tuple[int, tuple[int, int]], int] = {}
        self.submitted: dict[tuple[int, int], int] = {}
        self.on_thread: dict[tuple[int, int], int] = {}
        self.finished: dict[tuple[int, int], int] = {}
        self.wanted: dict[tuple[int, tuple[int, int]], int] = {}
        self.got: dict[tuple[int, int], list[list[int]]] = defaultdict(list)  # (call, place) -> [from, to]
        self.answered: dict[int, int] = {}

    def _queue_up(self, live: _Live, at: tuple[int, int]) -> None:
        self.ready[live.position, at] = self.now
        step = live.call.units[at[0]][at[1]]
        self._ready(step.run_ns, self._begun, self._done, live, at)

    def _begun(self, live: _Live, at: tuple[int, int]) -> None:
        self.begun[live.position, at] = self.now
        super()._begun(live, at)

    def _done(self, live: _Live, at: tuple[int, int]) -> None:
        self.over[live.position, at] = self.now
        super()._done(live, at)

    def _acquire(self, place: _Place, do: Any, a: Any, b: Any) -> bool:
        is_free = super()._acquire(place, do, a, b)
        if is_free and isinstance(b, tuple) and a.call.units[b[0]][b[1]].after == HOLD:
            step = a.call.units[b[0]][b[1]]
            if not step.run_ns:
                self.got[a.position, step.arg].append([self.now, -1])
        return is_free

    def _follow(self, live: _Live, at: tuple[int, int]) -> None:
        steps = live.call.units[at[0]]
        if at[1] < len(steps) and steps[at[1]].after == HOLD:
            self.wanted[live.position, at] = self.now
        super()._follow(live, at)

    def _act(self, live: _Live, acts: Any) -> None:
        for what, number in acts:
            if what == RELEASE:
                self.got[live.position, number][-1][1] = self.now
        super()._act(live, acts)

    def _runnable(self, live: _Live, at: tuple[int, int]) -> None:
        step = live.call.units[at[0]][at[1]]
        if step.after == HOLD:
            self.got[live.position, step.arg].append([self.now, -1])
        super()._runnable(live, at)

    def _submit(self, live: _Live, number: int) -> None:
        self.submitted[live.position, number] = self.now
        super()._submit(live, number)

    def _on_thread(self, live: _Live, number: int) -> None:
        self.on_thread[live.position, number] = self.now
        super()._on_thread(live, number)

    def _finished(self, live: _Live, number: int) -> None:
        self.finished[live.position, number] = self.now
        super()._finished(live, number)

    def _answer(self, live: _Live) -> None:
        self.answered[live.position] = self.now
        super()._answer(live)


def recording_of(workload: Workload) -> list[Frame]:
    """The frames of one run of ``workload``. Its transport must cost nothing; no place is taken without a step."""
    run = Replayed(workload)
    outcome = run.run()
    frames: list[Frame] = [make_header(full=True, start_ns=BASE_NS)]
    for number, one in enumerate(workload.resources):
        if one.kind == "threads":
            frames.append(make_pool(pool=number + 1, name=one.name, max=float(one.limit)))
    for position in range(len(workload.calls)):
        frames += _request(workload, run, outcome, position)
    return frames


def _request(workload: Workload, run: Replayed, outcome: Outcome, position: int) -> list[Frame]:
    call = workload.calls[position]
    times = outcome.times[position]
    assert times is not None
    steps: list[StepRun] = []
    awaits: list[Await] = []
    resumed: dict[int, int] = {}
    for unit, every in enumerate(call.units):
        before = BASE_NS + times[0]
        for index, step in enumerate(every):
            key = (position, (unit, index))
            if key not in run.begun:  # a place that was free: no step of its own
                continue
            begun, over = BASE_NS + run.begun[key], BASE_NS + run.over[key]
            ready = BASE_NS + run.ready[key]
            if index == 0:
                before = ready
            wake = 1 if step.after == JOB else 0
            steps.append(StepRun(unit + 1, before, ready if index else before, ready, begun, over, wake))
            if step.after == JOB:
                resumed[step.arg] = begun
            if step.after == HOLD and run.ready[key] > run.wanted[key]:
                wanted = BASE_NS + run.wanted[key]
                awaits.append(_await(workload, run, step.arg, position, wanted, ready))
            if step.after == DELAY and index and step.arg:
                awaits.append(_sleep(before, ready))
            before = over
    jobs = tuple(
        JobRun(
            work.pool + 1,
            "threads",
            1,
            BASE_NS + run.submitted[position, number],
            BASE_NS + run.on_thread[position, number],
            BASE_NS + run.finished[position, number],
            resumed.get(number),
            work.cpu_ns,
            number in resumed,
        )
        for number, work in enumerate(call.jobs)
    )
    record = make_request(
        id=position + 1,
        name=call.operation,
        arrival_ns=BASE_NS + times[0],
        end_ns=BASE_NS + times[1],
        first_step_ns=min(step.start_ns for step in steps),
        result_ns=BASE_NS + run.answered[position],
        transport="memory",
        loop=1,
    )
    timeline = Timeline(
        record.id,
        record.first_step_ns,
        record.result_ns,
        tuple(sorted(steps, key=lambda step: step.end_ns)),
        (),
        (),
        jobs,
        tuple(awaits),
    )
    return [record, timeline]


def _sleep(since: int, until: int) -> Await:
    return Await("sleep", "sleep", None, since, until, until - since, "exact")


def _await(workload: Workload, run: Replayed, number: int, position: int, since: int, until: int) -> Await:
    """With its holders: a part ends with each change among them."""
    resource = workload.resources[number]
    spans = [
        (BASE_NS + a, BASE_NS + b if b >= 0 else 1 << 62, other)
        for (other, place), some in run.got.items()
        for a, b in some
        if place == number and other != position
    ]
    edges = sorted({since, until, *(at for a, b, _ in spans for at in (a, b) if since < at < until)})
    parts = []
    for a, b in pairwise(edges):
        here = [other for start, end, other in spans if start <= a and b <= end]
        parts += [
            HolderPart(other + 1, workload.calls[other].operation, "server.py:1", a, b, len(here)) for other in here
        ]
    kind: AwaitKind = "lock" if resource.limit == 1 else "semaphore"
    return Await(
        kind,
        resource.name,
        "server.py:1",
        since,
        until,
        until - since,
        "exact",
        holders=tuple(parts),
        limit=resource.limit,
        pending=1,
    )


def without_waits_written(frames: list[Frame]) -> list[Frame]:
    """The same, with every field blank that says how long something waited."""
    blank = {part: None for part in ("queue_transport", "queue_dispatch", "ready_wait", "executor_wait")}
    blank |= {part: None for part in ("executor_return", "awaiting", "write_wait", "write_flush", "unaccounted")}
    found: list[Frame] = []
    for frame in frames:
        if isinstance(frame, RequestRecord):
            frame = replace(frame, budget=replace(frame.budget, **blank), waits=(), starved=(), jobs=(), awaits=None)
        elif isinstance(frame, Timeline):
            awaits = tuple(replace(one, ns=0, pending=0, holders=one.holders) for one in frame.awaits)
            frame = replace(frame, awaits=awaits)
        found.append(frame)
    return found
