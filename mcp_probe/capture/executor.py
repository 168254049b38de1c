"""Executors: every job's submit, start, finish and return, and the occupancy that follows from them.

Occupancy is integrated from transitions, never sampled. A timer on the loop stops when the loop blocks, and
a gauge that is read at submit shows no wait for jobs that then wait 200 ms (measurement.md section 3).
Transitions are appended from any thread to one deque, and integrated by :meth:`Pool.sample` on the
collector's thread, in time order.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from functools import partial
from itertools import accumulate
from math import ceil
from types import BuiltinFunctionType, FunctionType
from typing import Any

from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.guard import Fail, Guard, guarded
from mcp_probe.capture.proc_files import native_id
from mcp_probe.clock import now_ns
from mcp_probe.histogram import bucket_of
from mcp_probe.model import PoolSample
from mcp_probe.record.raw import Job, give_up

HOOK = "executor jobs"
SUBMIT, START, FINISH, RESUME, ABANDON, CANCEL, TRANSPORT_START, TRANSPORT_FINISH, TRANSPORT_JOB = range(9)
Transition = tuple[int, int, "Pool", "Job | int | tuple[int, int]"]
"""(at_ns, kind, pool, job). For the transport's own jobs the last item is their wait; for one that is noted as a whole,
at its end, it is (start_ns, wait_ns)."""

Limit = Callable[[Any], "tuple[float | None, int]"]
"""Reads (max, borrowed) of an executor at any time."""

TRANSPORT_OPERATION = "(transport)"
NO_REQUEST_OPERATION = "(no request)"
MAX_TRANSITIONS = 200_000
MAX_HOLDERS = 64
MAX_OVER = 256
"""Ended jobs that are remembered, to tell who held the threads."""

RAN_ON_NS = 100_000_000
"""A job that runs on for less after its result was wanted no more is not told."""


class Pools:
    """All executors of the process, and the transitions not yet integrated."""

    def __init__(self, fail: Fail = lambda hook, exc: None) -> None:
        self.guard = Guard(HOOK, fail)  # once it is off, jobs run without stamps
        self._lending = Guard(HOOK, fail, self._lend_no_more)
        self._ids = itertools.count(1)
        self._by_key: dict[int, Pool] = {}
        self.transitions: deque[Transition] = deque(maxlen=MAX_TRANSITIONS)
        self.dropped = 0
        self.carry: Callable[[], Callable[..., Any] | None] | None = None  # set where telemetry is on
        self.lenders: tuple[Any, ...] = ()  # each has ``enter`` and ``leave``, called around a job on its thread
        self.charge: Callable[[Any], Any] | None = None  # charge this thread to another owner; returns the previous one

    def known(self, owner: Any) -> Pool | None:
        """The row of ``owner``, if it has had a job."""
        pool = self._by_key.get(id(owner))
        return pool if pool is not None and pool.owner() is owner else None

    def pool_of(self, owner: Any, name: str, made_at: str | None, limit: Limit) -> Pool:
        """The row of ``owner``, made at its first job. ``limit(owner)`` reads (max, borrowed) at any time."""
        pool = self.known(owner)
        if pool is None:
            pool = Pool(next(self._ids), owner, name, made_at, limit)
            self._by_key[id(owner)] = pool
        return pool

    def submit(self, pool: Pool, operation: str | None = None, transport: bool = False) -> Job:
        """A job is handed to ``pool`` by the current request."""
        charge = self.charge
        if charge is None:
            return self._submitted(pool, operation, transport)
        before = charge(None)  # what we keep of the job is not the request's memory
        try:
            return self._submitted(pool, operation, transport)
        finally:
            charge(before)

    def _submitted(self, pool: Pool, operation: str | None, transport: bool) -> Job:
        raw = CURRENT.get()
        if operation is None:
            operation = raw.operation if raw is not None else NO_REQUEST_OPERATION
        job = Job(pool, raw, TRANSPORT_OPERATION if transport else operation, now_ns())
        job.transport = transport
        while raw is not None:
            if not raw.ended:
                jobs = raw.jobs
                if isinstance(jobs, list):
                    jobs.append(job)
                else:
                    raw.jobs = [job]
            raw = raw.parent
        pool.follow(job)
        self._note(job.submit_ns, SUBMIT, job)
        return job

    def _note(self, at: int, kind: int, job: Job) -> None:
        if len(self.transitions) >= MAX_TRANSITIONS:
            self.dropped += 1
        self.transitions.append((at, kind, job.pool, job))

    def run(self, job: Job, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``function`` as ``job`` on the calling (worker) thread."""
        cpu = self._began(job, function, args)
        lenders = self.lenders  # one charges what this thread allocates to the job's request
        lent = [self._lending.call(lender.enter, None if job.transport else job.raw) for lender in lenders]
        try:
            return function(*args, **kwargs)
        finally:
            for lender, token in zip(reversed(lenders), reversed(lent), strict=True):
                self._lending.call(lender.leave, token)
            if cpu is not None:
                self._ended(job, cpu)

    @guarded
    def _began(self, job: Job, function: Callable[..., Any], args: tuple[Any, ...]) -> int | None:
        """Stamp the start. Returns the thread's CPU time, or ``None`` if our code fails."""
        if not self.guard.active:
            return None
        cpu = job.start_cpu_ns = time.thread_time_ns()
        job.thread_id = threading.get_ident()
        job.native_id = native_id()
        if type(function) is not FunctionType:
            job.called = _without_frame(function, args)
        job.start_ns = now_ns()
        self._note(job.start_ns, START, job)
        return cpu

    @guarded
    def _ended(self, job: Job, cpu: int) -> None:
        finish = now_ns()
        job.cpu_ns = time.thread_time_ns() - cpu
        job.finish_ns = finish
        job.pool.let_go(job)
        self._note(finish, FINISH, job)

    def _lend_no_more(self) -> None:
        self.lenders = ()

    def run_for(self, job: Job, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`run`, on a thread without the request in its context: sets the request for the call."""
        token = CURRENT.set(job.raw)
        try:
            if job.carried is not None:
                return self.run(job, job.carried, function, *args, **kwargs)
            return self.run(job, function, *args, **kwargs)
        finally:
            CURRENT.reset(token)

    def resumed(self, job: Job) -> None:
        """The job's waiter runs again."""
        charge = self.charge
        if charge is None:
            return self._resumed(job)
        before = charge(None)
        try:
            return self._resumed(job)
        finally:
            charge(before)

    def _resumed(self, job: Job) -> None:
        job.resumed_ns = now_ns()
        if job.finish_ns is None:
            job.cancelled = job.start_ns is None
            if job.cancelled:
                job.pool.let_go(job)
            elif job.raw is not None:
                give_up((job,), job.resumed_ns)
            self._note(job.resumed_ns, CANCEL if job.cancelled else ABANDON, job)
        else:
            self._note(job.resumed_ns, RESUME, job)

    def rows(self) -> list[Pool]:
        """Every executor that has had a job, as long as it lives. Any thread."""
        return list(self._by_key.values())

    def samples(self, now: int) -> Iterable[PoolSample]:
        """Integrate every transition up to ``now``; one sample per pool that has had a job."""
        batches: dict[Pool, list[Transition]] = {}
        while self.transitions:
            transition = self.transitions.popleft()
            batch = batches.get(transition[2])
            if batch is None:
                batches[transition[2]] = [transition]
            else:
                batch.append(transition)
        for pool, batch in batches.items():
            pool.take(batch)
        rows = self._by_key.copy()
        # An executor that is made for each call often has the address, and so the key, of the one before.
        for pool in dict.fromkeys((*batches, *rows.values())):
            yield pool.sample(now)
        for key, pool in rows.items():
            if pool.owner() is None and pool.idle and self._by_key.get(key) is pool:
                self._by_key.pop(key, None)


def _without_frame(function: Any, args: tuple[Any, ...]) -> str | None:
    """``time.sleep`` for a function that is not written in Python; ``None`` for those that have a frame.

    Only types are looked at: a proxy may refuse to be asked for anything on this thread.
    """
    while True:
        if type(function) is partial:
            function, args = function.func, (*function.args, *args)
        elif type(function) is not BuiltinFunctionType:
            return None
        elif type(function.__self__) is Context and args:
            function, args = args[0], args[1:]
        else:
            return f"{function.__module__ or type(function.__self__).__module__}.{function.__qualname__}"


class Pool:
    """One executor's row: integrals since the last sample, and the level they start from."""

    def __init__(self, number: int, owner: Any, name: str, made_at: str | None, limit: Limit) -> None:
        self.id = number
        self.name = name
        self.made_at = made_at
        self._limit = limit
        try:
            self.owner: Callable[[], Any] = weakref.ref(owner)
        except TypeError:
            self.owner = lambda: owner
        self._open: dict[Job, None] = {}
        self._over: deque[tuple[str, int, int]] = deque(maxlen=MAX_OVER)
        self._pending = 0
        self._active = 0
        self._max: float | None = limit(owner)[0]
        self._last = now_ns()
        self._since = self._last
        self._transport_level = 0
        self._reset()

    # --- who has its threads: any thread ---

    def follow(self, job: Job) -> None:
        """``job`` was submitted."""
        if not job.transport:
            self._open[job] = None

    def let_go(self, job: Job) -> None:
        """``job`` is over, or will not run."""
        self._open.pop(job, None)
        if job.start_ns is not None and job.finish_ns is not None and not job.transport:
            self._over.append((job.operation, job.start_ns, job.finish_ns))

    def is_full(self) -> bool:
        """Whether jobs have all of its threads now. Costs next to nothing where there are none."""
        owner = self.owner() if self._open else None
        if owner is None:
            return False
        most, taken = self._limit(owner)
        return most is not None and taken >= most

    def jobs(self) -> list[Job]:
        """Those of requests that have not ended, the oldest first."""
        return list(self._open)

    def level(self) -> tuple[float | None, int]:
        """(max, taken) now, of its threads or tokens, the transport's among them; (None, 0) where its owner is gone."""
        owner = self.owner()
        return (None, 0) if owner is None else self._limit(owner)

    def holder(self, since_ns: int, until_ns: int) -> str:
        """The operation whose jobs ran longest between the two, summed over threads."""
        held: dict[str, int] = {}
        running = [(job.operation, job.start_ns, until_ns) for job in list(self._open) if job.start_ns is not None]
        for operation, start, end in (*running, *list(self._over)):
            held[operation] = held.get(operation, 0) + max(0, min(end, until_ns) - max(start, since_ns))
        return max(held, key=held.__getitem__, default=NO_REQUEST_OPERATION)

    # --- the collector's thread ---

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return self._pending == 0 and self._active == 0

    def _reset(self) -> None:
        self._borrowed_peak = self._active + self._transport_level
        self._active_peak = self._active
        self._pending_peak = self._pending
        self._queued_peak = 0
        self._queue()
        self._active_ns = self._pending_ns = self._at_limit_ns = 0
        self._submitted = self._finished = self._abandoned = self._returned = 0
        self._run_ns = self._cpu_ns = self._return_ns = 0
        self._wait: dict[int, list[int]] = {}
        self._transport_waits: dict[int, list[int]] = {}
        self._transport_wait_max = 0
        self._holders: dict[str, list[int]] = {}
        self._ran_on: dict[str, list[int]] = {}

    def _advance(self, at: int) -> None:
        span = at - self._last
        if span <= 0:
            return
        self._last = at
        self._active_ns += span * self._active
        self._pending_ns += span * self._pending
        taken = self._active + self._transport_level
        if self._max is not None and taken >= self._max:
            self._at_limit_ns += span

    def take(self, batch: list[Transition]) -> None:
        """Integrate what happened since the last call, in any order."""
        if self.idle and self._take_transport(batch):
            return
        edges: list[tuple[int, int, Job | int]] = []
        for at, kind, _, job in batch:
            if isinstance(job, tuple):
                edges.append((job[0], TRANSPORT_START, job[1]))
                edges.append((at, TRANSPORT_FINISH, 0))
            else:
                edges.append((at, kind, job))
        edges.sort(key=lambda edge: edge[0])
        for at, kind, job in edges:
            self.apply(at, kind, job)

    def _take_transport(self, batch: list[Transition]) -> bool:
        """As :meth:`take`, if only the transport uses the pool and never fills it; otherwise returns False."""
        deltas: list[tuple[int, int]] = []
        waits: list[int] = []
        for at, kind, _, job in batch:
            if isinstance(job, tuple):
                deltas += ((job[0], 1), (at, -1))
                waits.append(job[1])
            elif kind == TRANSPORT_START and isinstance(job, int):
                deltas.append((at, 1))
                waits.append(job)
            elif kind == TRANSPORT_FINISH:
                deltas.append((at, -1))
            else:
                return False
        deltas.sort()
        levels = list(accumulate((delta for _, delta in deltas), initial=self._transport_level))
        if self._max is not None and max(levels) >= self._max:
            return False
        self._last = max(self._last, deltas[-1][0])
        self._transport_level = levels[-1]
        for wait in waits:
            self._count_transport(wait)
        self._borrowed_peak = max(self._borrowed_peak, *levels)
        return True

    def apply(self, at: int, kind: int, job: Job | int) -> None:
        """Account for one transition. A late one (another thread was slower to append) counts from ``_last`` on."""
        self._advance(at)
        if isinstance(job, int):
            self._apply_transport(kind == TRANSPORT_START, job)
        elif job.transport:
            if kind in (START, FINISH):
                self._apply_transport(kind == START, max(0, (job.start_ns or 0) - job.submit_ns))
        elif kind == SUBMIT:
            self._submitted += 1
            self._pending += 1
            self._pending_peak = max(self._pending_peak, self._pending)
            self._queue()
        elif kind == START:
            self._start(job, at)
        elif kind == FINISH:
            self._finish(job)
        elif kind == RESUME:
            self._returned += 1
            self._return_ns += max(0, (job.resumed_ns or at) - (job.finish_ns or at))
        elif kind == ABANDON:
            self._abandoned += 1
        elif kind == CANCEL:
            self._pending = max(0, self._pending - 1)

    def _queue(self) -> None:
        """What waits, and cannot have a thread, is queued. Anything else waits for the event loop to hand it on."""
        if self._max is not None:
            wanted = self._active + self._transport_level + self._pending
            self._queued_peak = max(self._queued_peak, ceil(min(self._pending, max(0.0, wanted - self._max))))

    def _start(self, job: Job, at: int) -> None:
        started = at if job.start_ns is None else job.start_ns
        if job.cancelled:
            self._abandoned += 1  # cancelled while it waited, but started anyway
        else:
            self._pending = max(0, self._pending - 1)
        self._active += 1
        self._active_peak = max(self._active_peak, self._active)
        self._borrowed_peak = max(self._borrowed_peak, self._active + self._transport_level)
        wait = max(0, started - job.submit_ns)
        entry = self._wait.setdefault(bucket_of(wait), [0, 0])
        entry[0] += 1
        entry[1] += wait

    def _finish(self, job: Job) -> None:
        self._active = max(0, self._active - 1)
        self._finished += 1
        run = (job.finish_ns or 0) - (job.start_ns or 0)
        self._run_ns += run
        self._cpu_ns += job.cpu_ns or 0
        if job.operation in self._holders or len(self._holders) < MAX_HOLDERS:
            entry = self._holders.setdefault(job.operation, [0, 0])
            entry[0] += 1
            entry[1] += run
        self._run_on(job, job.finish_ns or 0)

    def _run_on(self, job: Job, now: int) -> None:
        """``job`` has run up to ``now``, for a while perhaps for nobody."""
        if job.unwanted_ns is None or job.start_ns is None:
            return
        since_ns = max(job.unwanted_ns, job.start_ns)
        ran_on = now - since_ns
        if ran_on < RAN_ON_NS or (job.operation not in self._ran_on and len(self._ran_on) >= MAX_HOLDERS):
            return
        entry = self._ran_on.setdefault(job.operation, [0, 0, 0])
        entry[0] += job.ran_on_ns == 0
        entry[1] += ran_on - job.ran_on_ns
        entry[2] = max(entry[2], ran_on)
        job.ran_on_ns = ran_on

    def _apply_transport(self, begins: bool, wait_ns: int) -> None:
        """The transport's own jobs hold tokens (the stdio reader for ever) but are no work of the pool."""
        if not begins:
            self._transport_level -= 1
            return
        self._transport_level += 1
        self._queue()
        self._count_transport(wait_ns)
        self._borrowed_peak = max(self._borrowed_peak, self._active + self._transport_level)

    def _count_transport(self, wait_ns: int) -> None:
        self._transport_wait_max = max(self._transport_wait_max, wait_ns)
        entry = self._transport_waits.setdefault(bucket_of(wait_ns), [0, 0])
        entry[0] += 1
        entry[1] += wait_ns

    def sample(self, now: int) -> PoolSample:
        """What happened since the previous sample."""
        self._advance(now)
        owner = self.owner()
        if owner is not None:
            self._max = self._limit(owner)[0]
        for job in list(self._open):
            if job.finish_ns is None:  # else its end is told with its transition
                self._run_on(job, now)
        sample = PoolSample(
            at_ns=now,
            span_ns=now - self._since,
            pool=self.id,
            name=self.name,
            made_at=self.made_at,
            max=self._max,
            borrowed_peak=self._borrowed_peak,
            active_peak=self._active_peak,
            pending_peak=self._pending_peak,
            active_ns=self._active_ns,
            pending_ns=self._pending_ns,
            at_limit_ns=self._at_limit_ns,
            submitted=self._submitted,
            finished=self._finished,
            abandoned=self._abandoned,
            wait=tuple((bucket, count, total) for bucket, (count, total) in self._wait.items()),
            run_ns=self._run_ns,
            cpu_ns=self._cpu_ns,
            return_ns=self._return_ns,
            returned=self._returned,
            transport_jobs=sum(count for count, _ in self._transport_waits.values()),
            transport_wait_max_ns=self._transport_wait_max,
            transport_wait_ns=sum(total for _, total in self._transport_waits.values()),
            holders=tuple((name, jobs, ns) for name, (jobs, ns) in self._holders.items()),
            transport_waits=tuple((bucket, count, total) for bucket, (count, total) in self._transport_waits.items()),
            ran_on=tuple((name, jobs, ns, longest) for name, (jobs, ns, longest) in self._ran_on.items()),
            queued_peak=self._queued_peak,
        )
        self._since = now
        self._reset()
        return sample
