"""What requests do at this instant, and who has what they wait for: read from outside, when somebody asks.

Nothing here is called while nobody asks, and nothing needs the event loop: any thread of ours may call it while a loop
is blocked. Requests change meanwhile; a row is true of the instant at which it was read. What holds the loop counts
only if the same step ran before and after its stack was read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from types import FrameType
from typing import Any

from mcp_probe.capture.await_looks import StackNames, chain_of, coroutine_of, is_future
from mcp_probe.capture.awaits import Held, Open, has_place, holders_now
from mcp_probe.capture.executor import Pool
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.job_looks import frames_of, sleeps
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.capture.outbound import NOT_ASKED, Call
from mcp_probe.capture.places import frame_of, is_own, is_users, own_frames, place_among, place_of
from mcp_probe.clock import now_ns
from mcp_probe.model import BACKGROUND_OPERATION, LOOP_OPERATION, STEPS, UNKNOWN_HOLDER
from mcp_probe.now import Detail, Holder, Line, LoopNow, PoolNow, RequestNow, State, StepNow, TaskNow, WaitNow
from mcp_probe.record.raw import Job, RawRequest

MAX_ROWS = 200
"""Requests that are looked at, the oldest: some 75 us each. The others are counted."""
SLICE = 16
"""Requests that are looked at before others may have the GIL."""
MAX_TASKS = 8
"""Of one request that are looked at."""
MAX_WAITS = 4
MAX_HOLDERS = 4
MAX_LINES = 60
HELD_UP_NS = 1_000_000
"""A step this long holds up what waits for the loop; shorter ones pass before anybody could read it."""

_HELD_KINDS = frozenset({"lock", "semaphore", "limiter", "connection-pool"})
_MS = 1e6


class InFlight:
    """See the module's text. One thread at a time calls it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._names = StackNames(hub.awaits)

    def requests(self, session: object, most: int = MAX_ROWS) -> tuple[list[RequestNow], int]:
        """(rows of the ``most`` oldest, how many there are) of ``session``, and of those nobody has claimed yet."""
        live = [raw for raw in list(self._hub.requests.live.values()) if raw.session in (None, session)]
        moment = _Moment(self._hub, self._names)
        rows = []
        for at, raw in enumerate(islice(live, most), 1):
            if not raw.ended:
                rows.append(moment.row(raw))
            if at % SLICE == 0:
                time.sleep(0)  # lets the loop have the GIL: else it would wait for a switch interval
        return rows, len(live)

    def loops(self) -> list[LoopNow]:
        """Every loop that is followed and runs."""
        return [moment_of_loop(self._hub, self._names, monitor) for monitor in _running(self._hub)]

    def pools(self) -> list[PoolNow]:
        """Every executor that has had a job."""
        return [_pool(pool, now_ns()) for pool in self._hub.pools.rows()]

    def detail(self, session: object, number: int) -> Detail | None:
        """The request with this id, with the stacks of its tasks and jobs; ``None``: it is not in flight."""
        raw = self._hub.requests.live.get(number)
        if raw is None or raw.session not in (None, session):
            return None
        moment = _Moment(self._hub, self._names)
        return Detail(moment.row(raw), tuple([*moment.tasks(raw), *moment.jobs(raw)]))


def _running(hub: Hub) -> list[LoopMonitor]:
    return [monitor for monitor in hub.monitors.values() if monitor.alive and monitor.is_running()]


def moment_of_loop(hub: Hub, names: StackNames, monitor: LoopMonitor) -> LoopNow:
    """What runs on the loop of ``monitor`` now."""
    step = step_of(hub, names, monitor)
    if monitor.sees.steps == "unavailable":
        return LoopNow(monitor.ordinal, monitor.name, "unknown", None)
    if step is None:
        return LoopNow(monitor.ordinal, monitor.name, "idle", None)
    is_slow = step.for_ms * _MS >= monitor.slow_step_ns
    return LoopNow(monitor.ordinal, monitor.name, "blocked" if is_slow else "busy", step)


def step_of(hub: Hub, names: StackNames, monitor: LoopMonitor) -> StepNow | None:
    """The step that runs; ``None``: the loop polls, or the step was over before it could be read."""
    since, owner = monitor.since, monitor.owner
    if not since:
        return None
    where = function = call = None
    now = now_ns()
    if now - since >= HELD_UP_NS:
        frame = frame_of(monitor.thread_id)
        place = place_of(frame, of_request=owner is not None)
        if place is not None:
            where, function, call = f"{place.file}:{place.line}", place.function, place.library
            call = call or names.called(frame)[0]
    if monitor.since != since:
        return None
    cpu = _cpu_of(monitor, since)
    operation = LOOP_OPERATION if owner is None else owner.operation
    request = None if owner is None else owner.id
    return StepNow(request, operation, (now - since) / _MS, where, function, call, cpu)


def _cpu_of(monitor: LoopMonitor, since: int) -> float | None:
    """CPU that a slow step has used."""
    watch = monitor.watch
    found = None if watch is None else watch.running(monitor.slow_step_ns)
    return None if found is None or found[0] != since or found[2] is None else found[2] / _MS


def _pool(pool: Pool, now: int) -> PoolNow:
    jobs = [job for job in pool.jobs() if job.finish_ns is None]
    pending = [job for job in jobs if job.start_ns is None]
    most, taken = pool.level()
    active = len(jobs) - len(pending)
    return PoolNow(
        name=pool.name,
        made_at=pool.made_at,
        max=most,
        taken=max(taken, active),
        active=active,
        pending=len(pending),
        longest_wait_ms=max(((now - job.submit_ns) / _MS for job in pending), default=None),
        holders=_holders_of_threads(jobs, now),
    )


def _holders_of_threads(jobs: Iterable[Job], now: int) -> tuple[Holder, ...]:
    """Whose calls have the threads, most of them first."""
    running = [job for job in jobs if job.start_ns is not None]
    counts = Counter(job.operation for job in running)
    since = {name: min(job.start_ns or now for job in running if job.operation == name) for name in counts}
    return tuple(
        Holder(None, name, None, (now - since[name]) / _MS, count) for name, count in counts.most_common(MAX_HOLDERS)
    )


class _Moment:
    """One look at all requests: what is asked once for each loop is kept."""

    def __init__(self, hub: Hub, names: StackNames) -> None:
        self._hub = hub
        self._names = names
        self._monitors = {monitor.ordinal: monitor for monitor in _running(hub)}
        self._steps = {ordinal: step_of(hub, names, monitor) for ordinal, monitor in self._monitors.items()}
        self._tasks: dict[int, Mapping[int, Any]] = {}
        self._names_waits = hub.awaits.active
        self._waiting: dict[int, list[Open]] = {}
        for opened in [*hub.awaits.waiting(), *hub.outbound.waiting()]:
            if opened.raw is not None and not opened.over:
                self._waiting.setdefault(opened.raw.id, []).append(opened)
        self.now = now_ns()

    def row(self, raw: RawRequest) -> RequestNow:
        """``raw``, as it is now."""
        state, since, waits, where = self._state(raw)
        arrival = raw.arrival_ns if raw.arrival_ns is not None else raw.first_step_ns
        jobs = [job for job in list(raw.jobs) if job.finish_ns is None and not job.transport and not job.cancelled]
        return RequestNow(
            id=raw.id,
            operation=raw.operation,
            method=raw.method,
            kind=raw.kind,
            transport=raw.transport,
            state=state,
            age_ms=None if arrival is None else max(0.0, (self.now - arrival) / _MS),
            state_ms=None if since is None else max(0.0, (self.now - since) / _MS),
            waits=tuple(waits[:MAX_WAITS]),
            where=where,
            parent=None if raw.parent is None else raw.parent.id,
            tasks=len(raw.units),
            jobs=len(jobs),
        )

    def _state(self, raw: RawRequest) -> tuple[State, int | None, list[WaitNow], str | None]:
        """(state, since, what it waits for, the line that runs): progress beats waiting, as in the budget."""
        if raw.first_step_ns is None:
            return "queue", raw.arrival_ns, self._for_loop(raw), None
        if raw.result_ns is not None:
            return "write", raw.result_ns, self._for_write(raw), None
        step = self._step_of(raw)
        if step is not None:
            return "busy", self.now - round(step.for_ms * _MS), [], step.where
        jobs = [job for job in list(raw.jobs) if not job.transport and not job.cancelled and job.resumed_ns is None]
        running = [job for job in jobs if job.start_ns is not None and job.finish_ns is None]
        if running:
            where, waits = self._in_thread(running[0])
            return "executor_run", running[0].start_ns, waits or self._of_hooks(raw, None), where
        if not raw.seen & STEPS:
            return "unknown", None, [], None
        back = [job for job in jobs if job.finish_ns is not None and job.awaited]
        if back:
            return "executor_return", back[0].finish_ns, self._for_loop(raw), None
        waits, ready, since = self._suspended(raw)
        if ready:
            return "ready_wait", None, self._for_loop(raw), None
        pending = [job for job in jobs if job.start_ns is None]
        if pending:
            return "executor_wait", pending[0].submit_ns, [self._for_thread(pending[0])], None
        return ("awaiting" if raw.units else "unknown"), since, waits, None

    def _step_of(self, raw: RawRequest) -> StepNow | None:
        """The step that is its work: its own, or that of a request that is part of it."""
        for ordinal, monitor in self._monitors.items():
            owner, step = monitor.owner, self._steps[ordinal]
            if step is None or owner is None or owner.id != step.request:
                continue  # another step runs by now
            while owner is not None:
                if owner is raw:
                    return step
                owner = owner.parent
        return None

    # --- what it waits for ---

    def _for_loop(self, raw: RawRequest) -> list[WaitNow]:
        """Its loop, and who is on it. Before its first step the loop is known if there is only one."""
        ordinal = raw.loop
        if ordinal is None and len(self._monitors) == 1:
            [ordinal] = self._monitors
        if ordinal is None:
            return [WaitNow("loop", "event loop", tag="unavailable")]
        step = self._steps.get(ordinal)
        if step is None or step.for_ms * _MS < HELD_UP_NS or step.request == raw.id:
            return [WaitNow("loop", "event loop")]
        return [WaitNow("loop", "event loop", holders=(Holder(step.request, step.operation, step.where, step.for_ms),))]

    def _for_write(self, raw: RawRequest) -> list[WaitNow]:
        if not raw.write_seen:
            return []
        if raw.write_taken_ns is None:
            held = self._for_loop(raw)[0].holders
            return [WaitNow("writer", "the transport's writer", holders=held)]
        return [WaitNow("reader", "its client, which has not read its answer", for_ms=self._ms(raw.write_taken_ns))]

    def _for_thread(self, job: Job) -> WaitNow:
        holders = _holders_of_threads(job.pool.jobs(), self.now)
        return WaitNow("threads", job.pool.name, None, self._ms(job.submit_ns), holders)

    def _in_thread(self, job: Job) -> tuple[str | None, list[WaitNow]]:
        """(line of the user's code, what the thread waits for): nothing where it runs."""
        frames = frames_of(job) if self._names_waits else None
        if frames is None or not (frames or job.called):
            return None, []
        thing, where = self._names.of_thread(frames, job.called)
        if job.finish_ns is not None or (thing.kind in ("other", "lock") and not sleeps(job.native_id)):
            return where, []
        return where, [WaitNow(thing.kind, thing.name, where, None, (), thing.tag)]

    def _suspended(self, raw: RawRequest) -> tuple[list[WaitNow], bool, int | None]:
        """(what its tasks wait for, whether one of them could run, since when the one that waits longest does)."""
        monitor = self._monitors.get(raw.loop or 0)
        if monitor is None:
            return self._of_hooks(raw, None), False, None
        found: list[tuple[int, WaitNow, bool]] = []
        for unit, suspended in list(raw.units.copy().items())[:MAX_TASKS]:
            coroutine = coroutine_of(self._tasks_of(monitor).get(unit))
            links, awaited = ([], None) if coroutine is None else chain_of(coroutine)
            if not links or raw.units.get(unit) != suspended:
                continue
            if _is_ready(monitor, unit, awaited):
                return [], True, None
            thing, where, for_tasks = self._names.of(links, awaited, raw.units)
            inner = for_tasks or (unit == raw.handler and where is None and thing.kind in ("other", "queue"))
            holders = holders_of_now(thing, self.now) if isinstance(thing, Held) else ()
            found.append((suspended, WaitNow(thing.kind, thing.name, where, self._ms(suspended), holders), inner))
        own = [one for one in found if not one[2]] or found  # a task that waits for its own tasks says nothing more
        since = min((suspended for suspended, _, _ in own), default=None)
        looked = [wait for _, wait, _ in own] if self._names_waits else []
        return self._of_hooks(raw, looked[0].where if len(looked) == 1 else None) or looked, False, since

    def _of_hooks(self, raw: RawRequest, where: str | None) -> list[WaitNow]:
        """What hooks know that it waits for, longest first. ``where``: the line, where the stack has told it."""
        found = sorted(self._waiting.get(raw.id, ()), key=lambda opened: opened.began_ns)
        return [wait for opened in found if (wait := self._of_hook(opened, where)) is not None]

    def _of_hook(self, opened: Open, where: str | None) -> WaitNow | None:
        for_ms = self._ms(opened.began_ns)
        if isinstance(opened, Call):
            thing = self._hub.outbound.thing(opened.kind, opened.name)
            line = where if opened.where is NOT_ASKED else opened.where or where
            return WaitNow(opened.kind, thing.name, line, for_ms, (), thing.tag, opened.phase)
        held = opened.held
        if held is None:
            return None
        held.search()
        return WaitNow(held.kind, held.name, where or held.first, for_ms, holders_of_now(held, self.now), held.tag)

    def _tasks_of(self, monitor: LoopMonitor) -> Mapping[int, Any]:
        if monitor.ordinal not in self._tasks:
            self._tasks[monitor.ordinal] = monitor.tasks()
        return self._tasks[monitor.ordinal]

    def _ms(self, since: int) -> float:
        return max(0.0, (self.now - since) / _MS)

    # --- one request, opened ---

    def tasks(self, raw: RawRequest) -> Iterable[TaskNow]:
        """Its tasks, with their stacks."""
        for ordinal, monitor in self._monitors.items():
            step = self._steps[ordinal]
            if step is not None and step.request == raw.id:
                yield TaskNow("on the event loop", "busy", step.for_ms, _lines(own_frames(frame_of(monitor.thread_id))))
        monitor = self._monitors.get(raw.loop or 0)  # type: ignore[assignment]
        for unit, suspended in list(raw.units.copy().items())[:MAX_TASKS] if monitor is not None else ():
            task = self._tasks_of(monitor).get(unit)
            coroutine = coroutine_of(task)
            if coroutine is None or (monitor.since and monitor.unit == unit):
                continue
            links, _ = chain_of(coroutine)
            what = "handler" if unit == raw.handler else "task"
            name = str(getattr(coroutine, "__qualname__", type(coroutine).__name__))
            frames = [frame for frame, _ in links]
            yield TaskNow(f"{what} {name}", "suspended", self._ms(suspended), _lines(frames))

    def jobs(self, raw: RawRequest) -> Iterable[TaskNow]:
        """Its calls on threads that have not ended."""
        for job in [job for job in list(raw.jobs) if job.finish_ns is None and not job.transport][:MAX_TASKS]:
            what = f"thread of {job.pool.name}"
            if job.start_ns is None:
                yield TaskNow(what, "waits for a thread", self._ms(job.submit_ns), ())
            else:
                yield TaskNow(what, "runs", self._ms(job.start_ns), _lines(frames_of(job) or []))


def _is_ready(monitor: LoopMonitor, unit: int, awaited: Any) -> bool:
    """Whether a suspended task could run: what it awaits is there, or its loop has scheduled it."""
    return monitor.is_scheduled(unit) or (is_future(awaited) and awaited.done())


def holders_of_now(held: Held, now: int) -> tuple[Holder, ...]:
    """Who has it now; those of one operation at one line are one row. Nobody has an event, a queue or a free place."""
    if held.kind not in _HELD_KINDS or has_place(held):
        return ()
    groups: dict[tuple[str, str | None], list[tuple[int | None, int]]] = {}
    for raw, where, since in holders_now(held):
        operation = BACKGROUND_OPERATION if raw is None else raw.operation
        groups.setdefault((operation, where), []).append((None if raw is None else raw.id, since))
    if not groups:
        return (Holder(None, UNKNOWN_HOLDER, None, None),)
    rows = [
        Holder(
            request=members[0][0] if len(members) == 1 else None,
            operation=operation,
            where=where,
            held_ms=max(0.0, (now - min(since for _, since in members)) / _MS),
            count=len(members),
        )
        for (operation, where), members in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.count)[:MAX_HOLDERS])


def _lines(frames: list[FrameType]) -> tuple[Line, ...]:
    """``frames`` (innermost first) as a traceback has them, without ours."""
    known = [frame for frame in frames if not is_own(frame.f_code.co_filename)][:MAX_LINES]
    place = place_among(list(known))
    user = None if place is None else known[place[1]].f_code.co_filename
    lines = [
        Line(
            frame.f_code.co_filename,
            frame.f_lineno or 0,
            getattr(frame.f_code, "co_qualname", frame.f_code.co_name),
            is_users(frame.f_code.co_filename) or frame.f_code.co_filename == user,
        )
        for frame in known
    ]
    return tuple(reversed(lines))
