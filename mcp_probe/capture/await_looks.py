"""What suspended requests wait for, where no hook knows: a thread of ours looks at their stacks.

A suspended task's stack cannot change until the task runs again. So one look names the whole suspension, from when it
began until the task became ready; no look is needed twice. The thread sleeps while no request is in flight, makes at
most :data:`LOOKS_A_SECOND` looks, and takes at most :data:`MOST_SHARE` of a core: on a busy server it names fewer.
Suspensions are drawn at random whatever their age, so that those that were looked at stand for those that were not
(aggregate/awaiting.py). Jobs on worker threads are looked at in the same rounds (capture/job_looks.py).
A look counts only if the same suspension stood before and after it. Nothing is kept of what was looked at but names.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from types import AsyncGeneratorType, CellType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any

from mcp_probe.capture.await_kinds import (
    callee_of,
    class_of,
    global_lock,
    kind_of,
    kind_of_class,
    lock_of,
    path_of_callee,
    waits_for_tasks,
)
from mcp_probe.capture.awaits import Awaited, Awaits
from mcp_probe.capture.guard import Fail, Guard
from mcp_probe.capture.job_looks import JobLooks, running_jobs
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.capture.places import is_own, place_among
from mcp_probe.capture.worker import Worker
from mcp_probe.clock import now_ns
from mcp_probe.model import AwaitKind
from mcp_probe.record.raw import MAX_AWAITS, AwaitLook, Job, RawRequest

HOOK = "awaits (looks)"
PAUSE_S = 0.005
"""Between two rounds of looks."""
LOOKS_A_SECOND = 500
IDLE_ROUNDS = 4
"""Without a request in flight, before the thread sleeps: each wake-up costs the request that comes some 10 us."""
LATE_S = 0.01
LATE_FACTOR, LATE_PAUSE_S = 10.0, 0.25
"""A thread that waits for the GIL costs a loop that is never idle 65 us a call (two cores, SCHED_RR): each poll of the
loop lets go of the GIL and wakes it, and is faster to take it again. So who got it late asks less often."""
MOST_SHARE = 0.005
"""Of a core. A round that took long is followed by a longer pause."""
LONGEST_PAUSE_S = 1.0
"""A collection that happens to run on this thread may take 0.2 s. It is no cost of looks: they would stop for 40 s."""
YOUNG_NS = 2_000_000
"""In this time a task that somebody waits for begins, unless the loop is held up."""
MOST_OTHERS = 8
"""Tasks of a request that are looked at because another task of it seems to wait for them."""
MOST_DEEP = 200
MAX_NAMES = 8_192

Suspension = tuple[RawRequest, int, int]
"""(request, unit, suspended_ns)"""


class AwaitLooks:
    """The thread that looks. ``live`` and ``monitors`` are read while others change them."""

    def __init__(
        self,
        live: Mapping[int, RawRequest],
        monitors: Callable[[], Iterable[LoopMonitor]],
        awaits: Awaits,
        fail: Fail = lambda hook, exc: None,
    ) -> None:
        self._live = live
        self._monitors = monitors
        self._names = StackNames(awaits)
        self._guard = Guard(HOOK, fail, self.stop)
        self._worker: Worker | None = None
        self._wakes: SimpleQueue[None] = SimpleQueue()  # an event would take a lock on the loop's thread
        self._stop = False
        self._jobs = JobLooks(self._names)
        self._done: dict[tuple[int, int], int] = {}  # (request, unit) -> suspended_ns of the look
        self.asleep = False  # nobody is in flight: whoever opens a request calls ``wake``
        self.cpu_ns = 0

    def start(self) -> None:
        """Look from now on."""
        if self._worker is None and not self._stop:
            self._worker = Worker("mcp-probe-awaits", self._run)
            self._worker.start()

    def wake(self) -> None:
        """A request has come. Any thread; waits for nothing."""
        self.asleep = False
        self._wakes.put(None)

    def stop(self, wait_s: float = 0.0) -> None:
        """End the thread, for good."""
        self._stop = True
        self.asleep = False
        worker, self._worker = self._worker, None
        self._wakes.put(None)
        if worker is not None and wait_s and not worker.is_current():
            worker.join(wait_s)

    def abandon(self) -> None:
        """This is a forked child, which has no thread of ours."""
        self._worker = None
        self._wakes = SimpleQueue()
        self._stop = True

    def _run(self) -> None:
        self._guard.call(self._look_around)

    def _look_around(self) -> None:
        pause_s = PAUSE_S
        idle = 0
        while not self._stop:
            idle = 0 if self._live else idle + 1
            if idle > IDLE_ROUNDS:
                self._sleep()
                idle = 0
            took_s = self._round(pause_s) if self._live else 0.0
            asked_s = pause_s * random.uniform(0.5, 1.5)  # else looks may keep time with what is looked at
            since = time.monotonic()
            time.sleep(asked_s)
            late_s = time.monotonic() - since - asked_s
            held_up_s = min(LATE_PAUSE_S, late_s * LATE_FACTOR) if late_s > LATE_S else 0.0
            pause_s = max(pause_after(took_s), held_up_s)

    def _sleep(self) -> None:
        """Until a request comes."""
        self._done.clear()
        self._jobs.clear()
        self.asleep = True
        if not self._live and not self._stop:
            self._wakes.get()
        self.asleep = False

    def _round(self, pause_s: float) -> float:
        """One round after a pause of so long; returns the CPU time that it took."""
        before = time.thread_time_ns() - self._names.search_ns
        self._names.search()
        jobs = self._running()
        most = round(LOOKS_A_SECOND * pause_s)
        self.look_at_jobs(jobs, max(1, most - self.look(most - 1 if jobs else most)))
        self.cpu_ns = time.thread_time_ns()
        return (self.cpu_ns - self._names.search_ns - before) / 1e9

    def look(self, most: int) -> int:
        """One round of at most ``most`` looks; returns how many suspensions were named."""
        due = self._due(most)
        if not due:
            return 0
        named = 0
        drawn: set[str] = set()  # operations: calls that run side by side often wait for the same at the same time
        for monitor in self._monitors():
            mine = [one for one in due if one[0].loop == monitor.ordinal]
            if not mine:
                continue
            tasks = monitor.tasks()
            others: list[Suspension] = []
            for raw, unit, suspended in mine:
                try:
                    look = self._look_at(tasks.get(unit), raw, unit, suspended, raw.operation not in drawn)
                except _TooEarly:
                    continue
                if look is not None and self._keep(look, raw, monitor):
                    drawn.add(raw.operation)
                    named += 1
                    others += self._others_of(raw) if look.own_tasks else ()
                self._done[raw.id, unit] = suspended
            for raw, unit, suspended in others:
                if self._done.get((raw.id, unit)) != suspended:
                    named += self._look_beside(tasks.get(unit), raw, unit, suspended, monitor)
            del tasks
        return named

    @staticmethod
    def _keep(look: AwaitLook, raw: RawRequest, monitor: LoopMonitor) -> bool:
        """Keep it if the same suspension still stands."""
        if raw.units.get(look.unit) != look.suspended_ns or _runs(monitor, look.unit):
            return False
        _add(raw, look)
        return True

    def _others_of(self, raw: RawRequest) -> list[Suspension]:
        """Its tasks: what they wait for is what ``raw`` waits for."""
        return [(raw, unit, since) for unit, since in list(raw.units.copy().items())[:MOST_OTHERS]]

    def _look_beside(self, task: Any, raw: RawRequest, unit: int, suspended: int, monitor: LoopMonitor) -> bool:
        try:
            look = self._look_at(task, raw, unit, suspended, False)
        except _TooEarly:
            return False
        self._done[raw.id, unit] = suspended
        return look is not None and self._keep(look, raw, monitor)

    def _running(self) -> list[Job]:
        jobs = [job for raw in list(self._live.values()) if raw.jobs for job in running_jobs(raw.jobs)]
        return list(dict.fromkeys(jobs))  # a job belongs to its request and to those that this one is part of

    def look_at_jobs(self, jobs: list[Job], most: int) -> None:
        """At most ``most`` looks at ``jobs``, all that run on worker threads now, and as many that end earlier ones."""
        self._jobs.forget(jobs)
        again = self._jobs.unsure(jobs)[:most]
        others = [job for job in jobs if job not in again] if again else jobs
        for job in (*again, *(others if len(others) <= most else random.sample(others, most))):
            self._jobs.look(job)

    def _due(self, most: int) -> list[Suspension]:
        """(request, unit, suspended_ns) of suspensions nobody has looked at, drawn at random."""
        found = []
        live = list(self._live.values())
        for raw in random.sample(live, min(len(live), 8 * most)):
            if raw.first_step_ns is None or raw.result_ns is not None or raw.ended:
                continue
            for unit, suspended in raw.units.copy().items():  # the loop's thread changes it meanwhile
                if self._done.get((raw.id, unit)) != suspended:
                    found.append((raw, unit, suspended))
        if len(self._done) > 8 * len(live) + 1024:
            self._done = {key: at for key, at in self._done.items() if key[0] in self._live}
        return found if len(found) <= most else random.sample(found, most)

    def _look_at(self, task: Any, raw: RawRequest, unit: int, suspended: int, drawn: bool) -> AwaitLook | None:
        coroutine = coroutine_of(task)
        if coroutine is None:
            return None
        links, awaited = chain_of(coroutine)
        if not links:
            return None
        if _is_task(awaited) and id(awaited) not in raw.units and not _has_begun(awaited):
            raise _TooEarly  # only once it has run is it known whose it is
        thing, where, for_tasks = self._names.of(links, awaited, raw.units)
        if for_tasks and len(raw.units) < 2 and now_ns() - suspended < YOUNG_NS:
            raise _TooEarly  # its tasks have not begun
        # The SDK may wait, without a line of the server's, for what another task of the request sends it.
        is_machinery = thing.kind == "other" or (thing.kind == "queue" and where is None)
        own_tasks = for_tasks or (unit == raw.handler and is_machinery)
        return AwaitLook(unit, suspended, thing, where, own_tasks, drawn)


def pause_after(took_s: float) -> float:
    """How long not to look after a round that used so much CPU."""
    return min(LONGEST_PAUSE_S, max(PAUSE_S, took_s / MOST_SHARE))


class _TooEarly(Exception):
    """A later look at the same suspension will know more."""


class StackNames:
    """What was looked at, by name. The same name is the same object, so that requests share it."""

    def __init__(self, awaits: Awaits) -> None:
        self._awaits = awaits
        self._known: dict[tuple[str, str], Awaited] = {}
        self._callees: dict[tuple[CodeType, int], tuple[str | None, str | None]] = {}
        self.search_ns = 0  # spent on what is done once for each object, and once for each line

    def search(self) -> None:
        """Name what somebody has begun to wait for: who needs it may be on a loop's thread, and must not search."""
        before = time.thread_time_ns()
        self._awaits.search()
        self.search_ns += time.thread_time_ns() - before

    def of(self, links: list[Link], awaited: Any, own: Mapping[int, int]) -> tuple[Awaited, str | None, bool]:
        """(what is awaited, file:line of the user's code, it is tasks) of a stack, innermost frame first."""
        place = place_among([frame for frame, _ in links])
        where = None if place is None else place[0]
        at = links if place is None else links[: place[1]]
        for_tasks = _is_gathered(awaited)
        for frame, owner in reversed(at):  # outermost first: what the user's line calls
            module, function = _function_of(frame)
            if waits_for_tasks(module, function):
                for_tasks = True
                continue
            kind = kind_of(module, function)
            if kind is not None:
                return self._named(kind, frame, owner, f"{module}.{function}", where), where, for_tasks
        if for_tasks:
            return self._known_as("task", "its own tasks"), where, True
        if _is_task(awaited):
            if id(awaited) in own:
                return self._known_as("task", "its own tasks"), where, True
            return self._known_as("task", f"task {_task_name(awaited)}"), where, False
        called = _function_of(at[-1][0]) if at else None
        label = (
            ".".join(called) if called else f"{type(awaited).__module__}.{type(awaited).__qualname__}".removeprefix("_")
        )
        return self._known_as("other", label), where, False

    def of_thread(self, frames: list[FrameType], called: str | None) -> tuple[Awaited, str | None]:
        """(what is awaited, file:line of the user's code) of a thread's stack, innermost frame first.

        ``called``: the function that runs where there is no frame at all.
        """
        place = place_among(frames)
        where = None if place is None else place[0]
        at = frames if place is None else frames[: place[1]]
        for frame in reversed(at):
            module, function = _function_of(frame)
            kind = kind_of(module, function)
            if kind is not None:
                return self._named(kind, frame, None, f"{module}.{function}", where), where
        called, lock = self.called(frames[0]) if frames else (called, None)
        if lock is not None:
            found = global_lock(frames[0], lock)
            if found is None:
                return self._known_as("lock", f"lock {lock}"), where
            return self._object("lock", *found, where), where
        kind = None if called is None else kind_of(*called.rpartition(".")[::2])
        if kind is not None:
            return self._known_as(kind, "sleep" if kind == "sleep" else str(called)), where
        label = ".".join(_function_of(at[-1])) if at else called
        return self._known_as("other", label or (_function_of(frames[0])[1] if frames else "a thread")), where

    def called(self, frame: FrameType) -> tuple[str | None, str | None]:
        """(function that it calls, lock that it takes) where no frame is of what it runs."""
        key = (frame.f_code, frame.f_lasti)
        if key not in self._callees:
            before = time.thread_time_ns()
            if len(self._callees) >= MAX_NAMES:
                self._callees.clear()
            path = path_of_callee(frame)
            self._callees[key] = callee_of(frame, path), lock_of(path)
            self.search_ns += time.thread_time_ns() - before
        return self._callees[key]

    def _named(self, kind: AwaitKind, frame: FrameType, owner: Any, label: str, where: str | None) -> Awaited:
        # From CPython 3.11 on a suspended coroutine has the locals, before its frame.
        for thing in map(_content_of, gc.get_referents(owner, frame) if kind in _OBJECTS else ()):
            state = getattr(thing, "_state", None) if kind == "queue" else None
            held = None if state is None else self._awaits.known(state)
            if held is not None:
                return held
            name = class_of(thing)
            if name is not None and (kind != "queue" or kind_of_class(name) == "queue"):
                kind = kind_of_class(name) or kind
                held = self._awaits.known(thing)
                return held if held is not None else self._object(kind, name, thing, where)
        return self._known_as(kind, "sleep" if kind == "sleep" else _short(label))

    def _object(self, kind: AwaitKind, label: str, thing: Any, where: str | None) -> Awaited:
        """An object without a name of its own is one of its class: a line may await a new one in each call."""
        key = (label, where or "")
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Awaited(kind, label, None, thing)
            before = time.thread_time_ns()
            known.search()  # now, while it is known to live; later ones at this line are not searched for
            self.search_ns += time.thread_time_ns() - before
            self._forget_some()
        if known.thing is not None and known.thing() is thing:
            return known
        return self._known_as(kind, label)

    def _known_as(self, kind: AwaitKind, label: str) -> Awaited:
        key = (kind, label)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Awaited(kind, label)
            self._forget_some()
        return known

    def _forget_some(self) -> None:
        while len(self._known) > MAX_NAMES:
            del self._known[next(iter(self._known))]


def _content_of(thing: Any) -> Any:
    """What a variable holds that an inner function uses, too."""
    if type(thing) is not CellType:
        return thing
    try:
        return thing.cell_contents
    except ValueError:
        return None


_OBJECTS = frozenset({"lock", "semaphore", "limiter", "condition", "event", "queue"})


Link = tuple[FrameType, Any]
"""A suspended frame, and the coroutine or generator that it is of."""


def chain_of(coroutine: Any) -> tuple[list[Link], Any]:
    """(frames of a suspended coroutine and of all it awaits, innermost first; what the innermost one awaits).

    ([], None) if any of them runs: nothing of it stands still.
    ``async for`` and ``anext`` hide what they run, and a future its iterator: the collector's references show them.
    """
    frames: list[Link] = []
    at: Any = coroutine
    while at is not None and len(frames) < MOST_DEEP:
        frame, inner = suspended(at, coroutine)
        if inner is RUNS:
            return [], None
        if frame is not None:
            if not is_own(frame.f_code.co_filename):
                frames.append((frame, at))
        elif inner is None:
            inner = _hidden_in(at)
            if inner is None:
                break
        if inner is None:
            at = None
            break
        at = inner
    frames.reverse()
    return frames, at


class Runs:
    """The type of :data:`RUNS`."""


RUNS = Runs()
"""What a coroutine or generator awaits that runs now."""


def suspended(at: Any, root: Any) -> tuple[FrameType | None, Any]:
    """(frame of ``at``, what it awaits), (None, None) if it is nothing that has a frame.

    ``root``: the coroutine whose await chain ``at`` is part of.

    Until CPython 3.13 whoever asks a coroutine *that runs* what it awaits may get what is no object, and the process
    ends. Its thread may go on whenever we call anything. So the question and whether it runs stand in one expression
    without a call. The frame comes first: making it may run the collector, and so other threads (3.11).
    """
    kind = type(at)
    if kind is CoroutineType:
        frame = at.cr_frame
        return frame, RUNS if at.cr_running or at.cr_frame is not frame else at.cr_await
    if kind is GeneratorType:
        frame = at.gi_frame
        return frame, RUNS if at.gi_running or at.gi_frame is not frame else at.gi_yieldfrom
    if kind is AsyncGeneratorType:  # ``ag_running`` is also true of one that is suspended
        frame = at.ag_frame
        if type(root) is CoroutineType:
            return frame, RUNS if root.cr_running or at.ag_frame is not frame else at.ag_await
        return frame, RUNS
    for name, inner in _DUCKS:  # as Cython compiles them: they can be asked at any time
        if hasattr(kind, inner):
            return getattr(at, name), getattr(at, inner)
    return None, None


_DUCKS = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))


def _hidden_in(at: Any) -> Any:
    if is_future(at):
        return None
    for one in gc.get_referents(at):
        if is_future(one) or any(hasattr(type(one), inner) for _, inner in _DUCKS):
            return one
    return None


def is_future(at: Any) -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(at, asyncio.Future)


def _is_task(at: Any) -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(at, asyncio.Task)


def _has_begun(task: Any) -> bool:
    coroutine = coroutine_of(task)
    frame, inner = suspended(coroutine, coroutine)
    return frame is None or (frame.f_lasti >= 0 and inner is not None)


def _is_gathered(at: Any) -> bool:
    return type(at).__name__ == "_GatheringFuture"


def _task_name(task: Any) -> str:
    coroutine = task.get_coro()
    return str(getattr(coroutine, "__qualname__", type(coroutine).__name__))


def coroutine_of(task: Any) -> Any:
    if task is None:
        return None
    get = getattr(task, "get_coro", None)
    return getattr(task, "coro", None) if get is None else get()


def _function_of(frame: FrameType) -> tuple[str, str]:
    code = frame.f_code
    return str(frame.f_globals.get("__name__", "?")), str(getattr(code, "co_qualname", code.co_name))


def _short(label: str) -> str:
    """``httpx.AsyncClient.get`` for ``httpx._client.AsyncClient.get``: private modules are nobody's business."""
    package, _, rest = label.partition(".")
    parts = rest.split(".")
    while len(parts) > 1 and (parts[0].startswith("_") or (len(parts) > 2 and parts[0].islower())):
        parts.pop(0)
    return ".".join([package, *parts])


def _runs(monitor: LoopMonitor, unit: int) -> bool:
    return monitor.since != 0 and monitor.unit == unit


def _add(raw: RawRequest, look: AwaitLook) -> None:
    looks = raw.looks
    if not isinstance(looks, list):
        raw.looks = [look]
    elif len(looks) < MAX_AWAITS:
        looks.append(look)
