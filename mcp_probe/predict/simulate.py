"""A workload run through one event loop, its pools, its locks and its transport: a discrete-event simulation.

The loop serves first come, first served; so does every pool and lock. Pure: no clock, nothing at random, so the same
workload gives the same outcome.

Source of the order of callbacks: asyncio runs what was ready at a poll, then polls again. Source of the GIL's rule:
CPython's ``ceval_gil.h``: who wants it asks for it after the switch interval of 5 ms, and the holder then gives it up.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

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
    Call,
    Step,
    Workload,
)

SWITCH_NS = 5_000_000
"""``sys.getswitchinterval()``, which hardly anybody changes."""

HTTP_TURNS_IN, CONNECTION_TURNS = 3, 3
"""Turns on the loop that a message takes over HTTP, up to the one before its handler's first: what reads the
connection, the task of its request, which writes the head of the response, and the reader of its session. That one
takes a single message in each turn, so the handlers of messages that came together begin one turn after the other.
A new connection has turns of its own before: it is accepted, its task makes a transport, and that begins to read.
Source: asyncio ``selector_events.py``, uvicorn 0.54 ``httptools_impl.py``, mcp 2.3 ``streamable_http.py``."""

HTTP_TURNS, ROUTER_TURNS = 5, 2
"""And an answer, from the handler's last step to the one that writes to the socket: the router of its session, the task
of its stream, those of the response. The router takes one answer after the other, each for two turns; one more turn
after the last ends the response.

Counted with mcp 2.3: where each turn has a handler of 20 ms, an answer leaves with every second of them. Of 480 calls
that came at random, on connections of their own, 88 % are simulated within 5 ms, 77 % with three turns in."""

STDIO_TURNS_IN = 5
"""And over stdio: what reads parses the line, and hands it on with a turn between; the session takes it, and starts a
task. Counted with mcp 1.30 and 2.3: the handler begins five turns after its line came, and the next line is asked for
after one."""

ASKING_TURNS = 2
"""From there to the thread that reads it, or that writes or flushes an answer. Source: anyio 4,
``run_sync_in_worker_thread``, which lets others run before it takes a place of its limiter, and after that."""

_BRIEFLY_NS = 10_000
_LEAST_REST_NS = 100_000

_Do = Callable[[Any, Any], None]
_Rests = tuple[int, int]
"""For how long a step lets the GIL go, and in how many pieces."""

_Resting = tuple[tuple[_Do, Any, Any], int, int, int]
"""A step that does so: what it does as it ends, with what; for how long it runs; in each piece, with the GIL and
without."""

_Callback = tuple[int, int, _Do | None, _Do, Any, Any, bool, _Rests | None]
"""Since when it could run, for how long it runs, what it does as it begins and as it ends, with what, whether it
writes to a socket, and when others have the GIL meanwhile."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a resource was used. ``used_ns`` is summed over its places."""

    name: str
    limit: int
    used_ns: int
    waited_ns: int
    full_ns: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """(arrival, end) of each call, ``None`` of one that never ended; what was used over ``span_ns``."""

    times: tuple[tuple[int, int] | None, ...]
    span_ns: int
    loop_ns: int
    late_ns: int  # waits for the loop, summed over all steps
    usages: tuple[Usage, ...]
    loop_run_ns: int  # what steps asked of the loop, and got


def simulate(workload: Workload) -> Outcome:
    """What comes out of ``workload``."""
    return _Simulation(workload).run()


class _Place:
    """A resource, while the simulation runs."""

    __slots__ = ("changed_ns", "full_ns", "held", "limit", "name", "queue", "used_ns", "waited_ns")

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.held = 0
        self.queue: deque[tuple[int, _Do, Any, Any]] = deque()
        self.used_ns = self.waited_ns = self.full_ns = self.changed_ns = 0

    def count(self, now: int) -> None:
        """Everything up to ``now`` was as it is."""
        since = now - self.changed_ns
        self.used_ns += since * self.held
        if self.held >= self.limit:
            self.full_ns += since
        self.changed_ns = now


class _Live:
    """A call, while the simulation runs."""

    __slots__ = ("arrived", "call", "ended", "jobs_done", "position", "signals", "waiting")

    def __init__(self, call: Call, position: int) -> None:
        self.call = call
        self.position = position
        self.arrived = self.ended = -1
        self.jobs_done: set[int] = set()
        self.signals: set[int] = set()
        self.waiting: dict[tuple[int, int], list[tuple[int, int]]] = {}


class _Simulation:
    def __init__(self, workload: Workload) -> None:
        self.now = 0
        self._workload = workload
        self._live = [_Live(call, position) for position, call in enumerate(workload.calls)]
        self._places = [_Place(one.name, one.limit) for one in workload.resources]
        self._is_serial = workload.transport == "one by one"
        self._pool = self._places[workload.transport_pool] if workload.transport_pool >= 0 else None
        self._events: list[tuple[int, int, _Do, Any, Any]] = []
        self._order = 0
        # the loop
        self._queue: deque[_Callback] = deque()
        self._found: list[_Callback] = []  # what came from outside since the last poll
        self._is_running = False
        self._batch = 0
        self._loop_ns = self._late_ns = self._run_ns = 0
        # the GIL: who waits for it
        self._has_cpu_jobs = any(job.cpu_ns for call in workload.calls for job in call.jobs)
        self._gil: deque[list[Any]] = deque()
        self._holder: list[Any] | None = None
        self._keeps_gil = False  # over the poll that comes
        self._turn = 0
        # the processors: who computes without the GIL
        self._processors = _Place("processors for C code without the GIL", workload.processors or sys.maxsize)
        # the transport
        self._pipe: deque[_Live] = deque()
        self._lines: deque[_Live] = deque()
        self._reader_waits = False
        self._answers: deque[_Live] = deque()
        self._writer_busy = False
        self._writer = _Place("the writer of answers", 1)
        self._readers: dict[int, deque[_Live]] = {}
        self._routers: dict[int, deque[_Live]] = {}
        # who sends when
        self._missing = [len(call.after) for call in workload.calls]
        self._followers: dict[int, list[int]] = {}

    def run(self) -> Outcome:
        for at, run_ns in self._workload.background:
            self._at(at, self._background, run_ns, None)
        for position, call in enumerate(self._workload.calls):
            for one in call.after:
                self._followers.setdefault(one, []).append(position)
            if not call.after:
                self._at(call.sent_ns, self._send, self._live[position], None)
        if self._is_serial:
            self._read(None, None)
        events = self._events
        while events:
            self.now, _, do, a, b = heappop(events)
            do(a, b)
        return self._outcome()

    def _outcome(self) -> Outcome:
        ends = [one.ended for one in self._live]
        span = max([*ends, 1]) - min([one.arrived for one in self._live if one.arrived >= 0], default=0)
        places = [*self._places, *([self._writer] if self._is_serial else [])]
        if self._workload.processors:
            places.append(self._processors)
        for place in places:
            place.count(self.now)
        return Outcome(
            tuple((one.arrived, one.ended) if one.ended >= 0 else None for one in self._live),
            max(span, 1),
            self._loop_ns,
            self._late_ns,
            tuple(Usage(one.name, one.limit, one.used_ns, one.waited_ns, one.full_ns) for one in places),
            self._run_ns,
        )

    def _at(self, at: int, do: _Do, a: Any, b: Any) -> None:
        self._order += 1
        heappush(self._events, (at, self._order, do, a, b))

    # --- the event loop ---

    def _ready(
        self,
        run_ns: int,
        begin: _Do | None,
        end: _Do,
        a: Any,
        b: Any,
        *,
        sends: bool = False,
        rests: _Rests | None = None,
    ) -> None:
        """A callback of ``run_ns`` can run from now on."""
        self._queue.append((self.now, run_ns, begin, end, a, b, sends, rests))
        self._wake()

    def _from_outside(self, live: _Live, at: tuple[int, int]) -> None:
        """A socket or a timer: the loop finds it at its next poll, runs its callback, and the task has the turn after
        that."""
        self._found.append((self.now, 0, None, self._queue_up, live, at, False, None))
        self._wake()

    def _wake(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._poll()

    def _background(self, run_ns: int, _: Any) -> None:
        self._ready(run_ns, None, _nothing, None, None)

    def _poll(self) -> None:
        """Everything that is ready now is run, one after the other, before the loop looks again."""
        self._queue.extend(self._found)
        self._found.clear()
        self._batch = len(self._queue)
        if self._has_cpu_jobs and not self._keeps_gil:
            self._want(["loop", 0, self._next, None, None])
        else:
            self._next(None, None)

    def _next(self, _: Any, __: Any) -> None:
        since, run_ns, begin, end, a, b, sends, rests = self._queue.popleft()
        self._batch -= 1
        self._late_ns += self.now - since
        self._run_ns += run_ns
        if begin is not None:
            begin(a, b)
        if not self._has_cpu_jobs:
            self._at(self.now + run_ns, self._ended, (end, a, b), run_ns)
            return
        assert self._holder is not None
        if rests is not None:
            idle_ns, parts = rests
            step = ((end, a, b), run_ns, (run_ns - idle_ns) // parts, idle_ns // parts)
            self._go_on(self._holder, step[2], self._rest, step, parts)
        else:
            self._go_on(self._holder, run_ns, self._sent if sends else self._ended, (end, a, b), run_ns)

    # A step that sleeps, or runs C code without the GIL, lets others have it, and goes on once it has it again.

    def _rest(self, step: _Resting, left: int) -> None:
        self._give_up()
        self._at(self.now + step[3], self._rested, step, left - 1)

    def _rested(self, step: _Resting, left: int) -> None:
        self._want(["loop", 0, self._resume, step, left])

    def _resume(self, step: _Resting, left: int) -> None:
        what, run_ns, held_ns, _ = step
        if left:
            assert self._holder is not None
            self._go_on(self._holder, held_ns, self._rest, step, left)
        else:
            self._ended(what, run_ns)

    def _sent(self, what: tuple[_Do, Any, Any], run_ns: int) -> None:
        self._give_up()
        self._want(["loop", 0, self._ended, what, run_ns])

    def _ended(self, what: tuple[_Do, Any, Any], run_ns: int) -> None:
        self._loop_ns += run_ns
        end, a, b = what
        end(a, b)
        if self._batch:
            self._next(None, None)
            return
        goes_on = bool(self._queue or self._found)
        if self._has_cpu_jobs:
            self._keeps_gil = goes_on and not self._keeps_gil
            if not self._keeps_gil:
                self._give_up()
        if goes_on:
            self._poll()
        else:
            self._is_running = False

    # --- the GIL: [who, ns left, do, a, b], where CPU-bound jobs share it with the loop ---
    # Measured with CPython 3.11 beside a thread that computes: a write to a socket loses it always (60 of 60), a poll
    # that does not wait about every second time (27 of 60).

    def _want(self, who: list[Any]) -> None:
        if self._holder is None:
            self._take(who)
            return
        self._gil.append(who)
        if len(self._gil) == 1:  # from now on somebody waits
            self._turn += 1
            self._at(self.now + SWITCH_NS, self._switch, self._turn, None)

    def _take(self, who: list[Any]) -> None:
        self._holder = who
        self._turn += 1
        if self._gil:
            self._at(self.now + SWITCH_NS, self._switch, self._turn, None)
        if who[1]:
            who[5:] = [self.now]
            self._at(self.now + who[1], self._worked, who, self._turn_of(who))
        else:
            do, a, b = who[2:5]
            do(a, b)

    def _turn_of(self, who: list[Any]) -> int:
        """A number that only this stretch of it has."""
        self._order += 1
        who[6:] = [self._order]
        return self._order

    def _go_on(self, who: list[Any], ns: int, do: _Do, a: Any, b: Any) -> None:
        """The holder works for ``ns`` more."""
        who[1:] = [ns, do, a, b, self.now]
        self._at(self.now + ns, self._worked, who, self._turn_of(who))

    def _worked(self, who: list[Any], stretch: int) -> None:
        if who is not self._holder or who[6:] != [stretch]:
            return  # it was interrupted
        who[1] = 0
        do, a, b = who[2:5]
        if who[0] == "loop":
            do(a, b)
        else:
            self._give_up()
            do(a, b)

    def _switch(self, turn: int, _: Any) -> None:
        who = self._holder
        if turn != self._turn or who is None or not self._gil:
            return
        left = who[1] - (self.now - who[5])
        if left <= 0:
            return  # it ends at this instant
        who[1] = left
        who[6:] = []
        self._gil.append(who)
        self._holder = None
        self._take(self._gil.popleft())

    def _give_up(self) -> None:
        self._holder = None
        if self._gil:
            self._take(self._gil.popleft())

    # --- what only so many can have ---

    def _acquire(self, place: _Place, do: _Do, a: Any, b: Any) -> bool:
        """Whether there is a place at once; else ``do`` follows once there is."""
        if place.held < place.limit and not place.queue:
            place.count(self.now)
            place.held += 1
            return True
        place.queue.append((self.now, do, a, b))
        return False

    def _release(self, place: _Place) -> None:
        place.count(self.now)
        place.held -= 1
        while place.queue and place.held < place.limit:
            since, do, a, b = place.queue.popleft()
            place.waited_ns += self.now - since
            place.held += 1
            do(a, b)

    # --- a request's tasks ---

    def _start(self, live: _Live, unit: int) -> None:
        self._follow(live, (unit, 0))

    def _follow(self, live: _Live, at: tuple[int, int]) -> None:
        """What the step at (unit, position) waits for."""
        unit, position = at
        steps = live.call.units[unit]
        if position >= len(steps):
            return
        step = steps[position]
        if step.after == DELAY:
            if step.arg:
                self._at(self.now + step.arg + step.late_ns, self._from_outside, live, at)
            else:
                self._runnable(live, at)
        elif step.after == HOLD:
            if self._acquire(self._places[step.arg], self._runnable, live, at):
                if step.run_ns or step.begins:
                    self._runnable(live, at)
                else:
                    self._act(live, step.ends)
                    self._follow(live, (unit, position + 1))
        elif (step.after == JOB and step.arg in live.jobs_done) or (
            step.after == SIGNALLED and step.arg in live.signals
        ):
            self._runnable(live, at)
        else:
            live.waiting.setdefault((step.after, step.arg), []).append(at)

    def _runnable(self, live: _Live, at: tuple[int, int]) -> None:
        late_ns = live.call.units[at[0]][at[1]].late_ns
        if late_ns:
            self._at(self.now + late_ns, self._queue_up, live, at)
        else:
            self._queue_up(live, at)

    def _queue_up(self, live: _Live, at: tuple[int, int]) -> None:
        step = live.call.units[at[0]][at[1]]
        idle_ns = step.run_ns if step.is_free else min(step.idle_ns, step.run_ns)
        rests = (idle_ns, max(1, step.stops)) if idle_ns >= _LEAST_REST_NS else None
        self._ready(step.run_ns, self._begun if step.begins else None, self._done, live, at, rests=rests)

    def _begun(self, live: _Live, at: tuple[int, int]) -> None:
        self._act(live, live.call.units[at[0]][at[1]].begins)

    def _done(self, live: _Live, at: tuple[int, int]) -> None:
        unit, position = at
        step: Step = live.call.units[unit][position]
        if step.ends:
            self._act(live, step.ends)
        self._follow(live, (unit, position + 1))
        if not live.call.answers and unit == 0 and position + 1 == len(live.call.units[0]):
            self._over(live)

    def _act(self, live: _Live, acts: tuple[Act, ...]) -> None:
        for what, number in acts:
            if what == SPAWN:
                self._start(live, number)
            elif what == SUBMIT:
                self._submit(live, number)
            elif what == RELEASE:
                self._release(self._places[number])
            elif what == SIGNAL:
                self._signal(live, SIGNALLED, number)
            elif what == ANSWER:
                self._answer(live)

    def _signal(self, live: _Live, kind: int, number: int) -> None:
        (live.jobs_done if kind == JOB else live.signals).add(number)
        for at in live.waiting.pop((kind, number), ()):
            self._runnable(live, at)

    # --- threads ---

    def _submit(self, live: _Live, number: int) -> None:
        work = live.call.jobs[number]
        if not work.claims or work.pool < 0 or self._acquire(self._places[work.pool], self._on_thread, live, number):
            self._on_thread(live, number)

    def _on_thread(self, live: _Live, number: int) -> None:
        work = live.call.jobs[number]
        first_ns = work.outside_ns // work.parts
        self._at(self.now + work.hop_ns + first_ns, self._computing, live, (number, work.free_ns))

    # Those that compute without the GIL share the processors by turns. The loop's own use of one is not counted.

    def _computing(self, live: _Live, at: tuple[int, int]) -> None:
        if not at[1]:
            self._compute(live, (at[0], live.call.jobs[at[0]].parts))
        elif self._acquire(self._processors, self._on_processor, live, at):
            self._on_processor(live, at)

    def _on_processor(self, live: _Live, at: tuple[int, int]) -> None:
        number, left_ns = at
        turn_ns = min(left_ns, SWITCH_NS)
        self._at(self.now + turn_ns, self._off_processor, live, (number, left_ns - turn_ns))

    def _off_processor(self, live: _Live, at: tuple[int, int]) -> None:
        self._release(self._processors)
        self._computing(live, at)

    def _compute(self, live: _Live, at: tuple[int, int]) -> None:
        work = live.call.jobs[at[0]]
        if work.cpu_ns:
            self._want(["job", work.cpu_ns // work.parts, self._computed, live, at])
        else:
            self._computed(live, at)

    def _computed(self, live: _Live, at: tuple[int, int]) -> None:
        number, left = at
        if left > 1:
            work = live.call.jobs[number]
            self._at(self.now + work.outside_ns // work.parts, self._compute, live, (number, left - 1))
        else:
            self._finished(live, number)

    def _finished(self, live: _Live, number: int) -> None:
        work = live.call.jobs[number]
        if work.claims and work.pool >= 0:
            self._release(self._places[work.pool])
        self._at(self.now + work.back_ns, self._handed_back, live, number)

    def _handed_back(self, live: _Live, number: int) -> None:
        """The loop runs the thread's callback, and the task that waits has the turn after that."""
        self._ready(0, None, self._returned, live, number)

    def _returned(self, live: _Live, number: int) -> None:
        self._signal(live, JOB, number)

    # --- the transport ---

    def _send(self, live: _Live, _: Any) -> None:
        live.arrived = self.now
        if not self._is_serial:
            self._at(self.now + live.call.way.in_ns, self._came, live, None)
            return
        self._pipe.append(live)
        if self._reader_waits:
            self._reader_waits = False
            self._at(self.now, self._reading, None, None)  # one read takes all that was sent at this instant

    def _ask(self, turns: int, _: Any) -> None:
        if turns:
            self._ready(0, None, self._ask, turns - 1, None)
        else:
            self._read(None, None)

    def _read(self, _: Any, __: Any) -> None:
        """The reader asks a thread for the next line."""
        if self._pool is None or self._acquire(self._pool, self._reading, None, None):
            self._reading(None, None)

    def _reading(self, _: Any, __: Any) -> None:
        if not self._lines:
            self._lines.extend(self._pipe)
            self._pipe.clear()
        if self._lines:
            live = self._lines.popleft()
            self._hop(live.call.way.in_ns, self._called_back, live, self._came)
        else:
            self._reader_waits = True

    def _hop(self, ns: int, do: _Do, a: Any, b: Any) -> None:
        """A thread of the transport's is done in ``ns``, once it has had the GIL."""
        if self._has_cpu_jobs:
            self._at(self.now + ns, self._want_briefly, (do, a, b), None)
        else:
            self._at(self.now + ns, do, a, b)

    def _called_back(self, live: _Live, do: _Do) -> None:
        """The loop runs the callback of a thread that is done."""
        self._ready(0, None, do, live, None)

    def _want_briefly(self, then: tuple[_Do, Any, Any], _: Any) -> None:
        self._want(["job", _BRIEFLY_NS, *then])

    def _step(self, run_ns: int, end: _Do, a: Any, b: Any, *, sends: bool = False) -> None:
        """A step of the transport's, where it takes one."""
        if run_ns:
            self._ready(run_ns, None, end, a, b, sends=sends)
        else:
            end(a, b)

    def _came(self, live: _Live, _: Any) -> None:
        if not self._is_serial:
            way = live.call.way
            if way.in_run_ns:
                turns = _turns_of_message(live) - 1
                self._found.append((self.now, _turn_in(live), None, self._turns_in, live, turns, False, None))
                self._wake()
            else:
                self._taken_off(live, None)
            return
        if self._pool is not None:
            self._release(self._pool)
        self._step(live.call.way.in_run_ns // STDIO_TURNS_IN, self._passed_on, live, STDIO_TURNS_IN - 1)

    def _passed_on(self, live: _Live, turns: int) -> None:
        run_ns = live.call.way.in_run_ns // STDIO_TURNS_IN
        if turns == STDIO_TURNS_IN - 1:
            self._ask(ASKING_TURNS if run_ns else 0, None)
        self._step(run_ns, self._passed_on if turns > 1 else self._taken_off, live, turns - 1)

    def _turns_in(self, live: _Live, turns: int) -> None:
        self._step(_turn_in(live), self._turns_in if turns > 2 else self._to_reader, live, turns - 1, sends=turns == 2)

    # A session has one reader, which takes one message after the other, and one router of answers.

    def _to_reader(self, live: _Live, _: Any) -> None:
        waiting = _line(self._readers, live)
        waiting.append(live)
        if len(waiting) == 1:
            self._step(_turn_in(live), self._took_one, waiting, None)

    def _took_one(self, waiting: deque[_Live], _: Any) -> None:
        self._taken_off(waiting.popleft(), None)
        if waiting:
            self._step(_turn_in(waiting[0]), self._took_one, waiting, None)

    def _to_router(self, live: _Live) -> None:
        waiting = _line(self._routers, live)
        waiting.append(live)
        if len(waiting) == 1:
            self._route(waiting, ROUTER_TURNS)

    def _route(self, waiting: deque[_Live], turns: int) -> None:
        self._step(_turn_out(waiting[0]), self._routed, waiting, turns - 1)

    def _routed(self, waiting: deque[_Live], turns: int) -> None:
        if turns:
            self._route(waiting, turns)
            return
        self._leave(waiting.popleft(), HTTP_TURNS - ROUTER_TURNS)
        if waiting:
            self._route(waiting, ROUTER_TURNS)

    def _leave(self, live: _Live, turns: int) -> None:
        self._step(_turn_out(live), self._leave if turns > 1 else self._wrote, live, turns - 1, sends=turns == 1)

    def _taken_off(self, live: _Live, _: Any) -> None:
        self._start(live, 0)

    def _answer(self, live: _Live) -> None:
        if not self._is_serial:
            self._to_router(live)
            self._signal(live, SIGNALLED, TAKEN)
            return
        if self._acquire(self._writer, self._take_answer, live, None):
            self._take_answer(live, None)

    def _wrote(self, live: _Live, _: Any) -> None:
        way = live.call.way
        if self._has_cpu_jobs or way.rest_run_ns:
            self._ready(way.rest_run_ns, None, _nothing, None, None, sends=True)  # the end of the response
        self._at(self.now + way.out_ns, self._over, live, None)

    # One writer: a step, a thread that writes, a step, a thread that flushes, a step.

    def _take_answer(self, live: _Live, _: Any) -> None:
        self._step(live.call.way.out_run_ns // 2, self._took, live, None)

    def _took(self, live: _Live, _: Any) -> None:
        self._signal(live, SIGNALLED, TAKEN)
        self._ask_for_thread(live, (self._asking_turns(live), self._write_returns))

    @staticmethod
    def _asking_turns(live: _Live) -> int:
        return ASKING_TURNS if live.call.way.out_run_ns else 0

    def _ask_for_thread(self, live: _Live, at: tuple[int, _Do]) -> None:
        turns, then = at
        if turns:
            self._ready(0, None, self._ask_for_thread, live, (turns - 1, then))
        else:
            self._to_thread(live, then)

    def _to_thread(self, live: _Live, then: _Do) -> None:
        if self._pool is None or self._acquire(self._pool, self._in_thread, live, then):
            self._in_thread(live, then)

    def _in_thread(self, live: _Live, then: _Do) -> None:
        self._hop(live.call.way.out_ns // 2, then, live, None)

    def _write_returns(self, live: _Live, _: Any) -> None:
        self._called_back(live, self._written)

    def _flush_returns(self, live: _Live, _: Any) -> None:
        self._over(live)
        self._called_back(live, self._flushed)

    def _written(self, live: _Live, _: Any) -> None:
        if self._pool is not None:
            self._release(self._pool)
        then = (self._asking_turns(live), self._flush_returns)
        self._step(live.call.way.out_run_ns // 4, self._ask_for_thread, live, then)

    def _flushed(self, live: _Live, _: Any) -> None:
        if self._pool is not None:
            self._release(self._pool)
        self._step(live.call.way.out_run_ns // 4, self._writer_free, None, None)

    def _writer_free(self, _: Any, __: Any) -> None:
        self._release(self._writer)

    def _over(self, live: _Live, _: Any = None) -> None:
        if live.ended >= 0:
            return
        live.ended = self.now
        for follower in self._followers.get(live.position, ()):
            self._missing[follower] -= 1
            if not self._missing[follower]:
                one = self._live[follower]
                self._at(self.now + one.call.sent_ns, self._send, one, None)


def _turns_of_message(live: _Live) -> int:
    """How many it has before its handler's first."""
    return HTTP_TURNS_IN + CONNECTION_TURNS * live.call.way.connects


def _turn_in(live: _Live) -> int:
    """What its message needs of the loop in each of its turns."""
    return live.call.way.in_run_ns // _turns_of_message(live)


def _turn_out(live: _Live) -> int:
    """And its answer."""
    return live.call.way.out_run_ns // HTTP_TURNS


def _line(lines: dict[int, deque[_Live]], live: _Live) -> deque[_Live]:
    """Who waits where ``live`` does: the others of its session, as far as that is known."""
    return lines.setdefault(live.call.session, deque()) if live.call.session else deque()


def _nothing(_: Any, __: Any) -> None:
    """Work of nobody ends."""
