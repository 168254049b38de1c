"""The collector: one thread that turns what the hub has seen into frames, for every attached session.

Steps, loops, executors and the process are seen once and told to all sessions; requests go to the
session that owns them, after the steps, so that a request finds its blockers already there.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from mcp_probe.adapters.exits import HeldSignal
from mcp_probe.capture.drain import Drain, open_request, record_of, running_mark
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.places import frame_of
from mcp_probe.capture.worker import Worker
from mcp_probe.clock import now_ns
from mcp_probe.model import TRANSPORT_CLOSED, End, Frame, RequestGroup, Timeline
from mcp_probe.record.raw import RawRequest, StepMark
from mcp_probe.record.sampling import Allowance, Sampler
from mcp_probe.record.timeline import timeline_of

if TYPE_CHECKING:
    from mcp_probe.capture.leak_hunt import LeakHunt

logger = logging.getLogger("mcp_probe")

SLICE, SLICE_NS = 4, 200_000
"""Frames of requests that are made and told at once, at most, and how long that may take: fewer where each has many
steps and awaits. A call asks for the GIL some ten times, and each time waits so long for it while the collector works.
"""
RESTS = 8
"""Then it lets others have the GIL, for at most so many times as long as it worked. After a rest of 0 it would have it
again before a thread that waits for it is awake."""
LONGEST_REST_S = 0.005
"""Whoever waits for a drain from then on waits so long for it to go on."""
RESTS_S, READ_RESTS_S = 1.0, 0.35
"""One drain is to be over by then, its rests included; the second while frames are sent out of the process. Rests are
shorter where it has more to do."""
BACKLOG = 1024
"""If more requests wait, the collector does not rest: on a saturated loop every release of the GIL costs 5 ms."""
DRAIN_S = 2.0
"""A drain costs 0.5 ms or more, even if it finds nothing."""
BUSY_DRAIN_S = 1.0
"""After a drain of more than :data:`BUSY` requests and steps, which cost memory while they wait."""
BUSY = 1024
READ_DRAIN_S = 0.4
"""While frames are sent out of the process, after a drain that found no request."""
SOON_DRAIN_S = 0.1
"""The same while requests come: so rests and pauses are about as long, and no call has more of the work than another. A
SIGKILL costs a recording less than a second."""
SAMPLE_S = 0.95  # a drain comes a little early now and then
IDLE_SAMPLE_S = 1.95
"""While no request ends and no step is long, samples have little to say."""
OPEN_AFTER_NS = 300_000_000
EXIT_BUDGET_S = 0.5
RECORDS_SHARE = 0.4
"""Of the exit's budget: after this the collector's thread only counts what :data:`ALWAYS_RECORDED` leaves."""
ALWAYS_RECORDED = 256
"""Of one drain, late or not: a starved machine takes long to begin, but this many need only 13 ms of CPU."""
DETACH_BUDGET_S = 3.0
"""If the server goes on, and that thread gets on: beside others that compute, it rarely gets the GIL (15 ms a turn)."""

GOODBYE_S = 0.7
"""A client sends a SIGKILL 2 s after SIGTERM, and `mcp-probe run` has to report before that. On a machine with ten
times as much work as CPUs 0.6 s were too short for the report."""

TURN_S = 0.05
"""Whoever takes over asks for the lock so often."""
DETACH_PATIENCE_S = 1.5
"""Without any progress of that thread: on a starved machine one part of a drain has taken 0.5 s."""


class Listener(Protocol):
    """A session as the collector sees it."""

    @property
    def slow_request_ms(self) -> float | None:
        """Requests that take this long are slow; ``None``: compared with others."""

    @property
    def wants_timelines(self) -> bool:
        """Each request's record is to be followed by what it did, one by one."""

    def emit(self, frames: Iterable[Frame]) -> None:
        """Take frames, on the collector's thread or on the one that flushes."""

    def take_finished(self) -> list[RawRequest]:
        """Finished requests, oldest first."""

    def take_groups(self) -> list[RequestGroup]:
        """Finished requests that are only counted: there was no room for them."""

    def backlog(self) -> int:
        """Finished requests not yet taken."""

    def live(self) -> list[RawRequest]:
        """Requests that have not ended."""

    def newly_dropped(self) -> tuple[tuple[str, int], ...]:
        """Losses since the last call, by reason."""

    def note_transport(self, transport: str) -> None:
        """A request came over ``transport``."""

    def is_read(self) -> bool:
        """Whether frames are sent out of the process as they come."""

    def close_sinks(self) -> None:
        """No more frames will come."""


@dataclass(frozen=True, slots=True)
class _Flush:
    """Somebody wants all that has ended to be handed on; an ``End`` too, where a transport has ``closed``."""

    done: threading.Event
    closed: bool = True


class Collector:
    """One per hub. Each slice of its work is bounded in time, and a fault stays inside."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._drain = Drain(hub, self._used_cpu_ns)
        self._listeners: tuple[Listener, ...] = ()
        self._timelines = Guard("timelines", hub.fail)  # a fault in one costs timelines, and no record
        self._samplers: dict[Listener, Sampler] = {}
        self._allowances: dict[Listener, Allowance] = {}
        self._lock = threading.Lock()
        self._changing = threading.RLock()  # of who listens, and whether the thread runs
        self._wakes: SimpleQueue[None] = SimpleQueue()  # a finalizer may wake this thread from within its own wait
        self._thread: Worker | None = None
        self._sampled_ns = now_ns()
        self._cpu_ns = 0
        self._idle = True  # nothing was seen since the last sample
        self._taken = 0  # requests and steps, by the last drain
        self._pace = 0  # grows with every part of a drain
        self._slice = SLICE
        self._asking: deque[None] = deque()  # threads that wait for the end of a drain
        self._flushes: deque[_Flush] = deque()  # asked for
        self._last_flush: threading.Event | None = None
        self._leaving: deque[tuple[Listener, str]] = deque()  # sessions that the thread has to remove
        self._records_until: float | None = None  # the process ends: no more records after this time

    def add(self, listener: Listener) -> None:
        """``listener`` hears everything from now on; the first one starts the thread."""
        with self._changing:
            self._samplers[listener] = Sampler(listener.slow_request_ms)
            if not listener.wants_timelines:  # who asks for them pays for a record of each request
                self._allowances[listener] = Allowance()
            self._listeners = (*self._listeners, listener)
            if self._thread is None:
                self._thread = thread = Worker("mcp-probe-collector", lambda: self._run(thread))
                thread.start()

    def remove(self, listener: Listener, reason: str) -> None:
        """Drain once more, tell ``listener`` the end, and forget it; the last one stops the thread.

        On a loop's thread it only waits for a drain in progress. If that takes longer than :data:`EXIT_BUDGET_S`,
        the collector's thread does the rest as soon as it can. As the process ends, requests for whose records the
        budget is too short are only counted.
        """
        if listener not in self._listeners:
            return
        began = time.monotonic()
        self._hurry_hunt()
        if reason == "exit":
            self._records_until = began + RECORDS_SHARE * EXIT_BUDGET_S
        with self._asked():
            self._remove(listener, reason, began)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Somebody waits for the end of a drain meanwhile."""
        self._asking.append(None)
        try:
            yield
        finally:
            self._asking.pop()

    def _remove(self, listener: Listener, reason: str, began: float) -> None:
        waits = not self._hub.runs_loop()
        if not waits and not self._lock.acquire(timeout=EXIT_BUDGET_S):
            self._leaving.append((listener, reason))
            self.wake()
            return
        with self._changing:
            last = self._listeners == (listener,)
            thread = self._thread
            if last:
                self._thread = None
        if last:
            self.wake()
            if thread is not None and waits:
                thread.join(self._exit_budget_s / 2)
        if waits and not self._take_over(leaving_process=reason == "exit"):
            self._forget(listener)
            why = "the collector's thread hangs, or got no CPU"
            logger.warning("mcp_probe: the latest requests are lost: %s%s", why, _whereabouts(thread))
            return
        try:
            if reason == "exit":
                self._records_until = began + EXIT_BUDGET_S
            self._let_go(listener, reason)
        finally:
            self._records_until = None
            self._lock.release()

    def _let_go(self, listener: Listener, reason: str) -> None:
        try:
            self._drain_all(samples=True, leaving=listener)
        except Exception as exc:  # noqa: BLE001 - must not disturb detaching or the server's exit
            self._hub.fail("collector", exc)
        try:
            listener.emit([End(now_ns(), reason)])
            listener.close_sinks()
        except Exception as exc:  # noqa: BLE001 - must not disturb detaching or the server's exit
            self._hub.fail("collector", exc)
        finally:
            self._forget(listener)

    def _forget(self, listener: Listener) -> None:
        with self._changing:
            self._listeners = tuple(known for known in self._listeners if known is not listener)
            self._samplers.pop(listener, None)
            self._allowances.pop(listener, None)
            if not self._listeners and self._thread is not None:
                self._thread = None
                self.wake()

    def _take_over(self, *, leaving_process: bool) -> bool:
        """Get the lock for the last drain; False if the thread makes no progress (a sink hangs), or not soon enough."""
        own_s = self._exit_budget_s
        budget_s = own_s / 2 if leaving_process else max(own_s, DETACH_BUDGET_S)
        patience_s = budget_s if leaving_process else max(own_s, DETACH_PATIENCE_S)
        pace, turns, idle = self._pace, 0, 0
        while not self._lock.acquire(timeout=TURN_S):
            # Counted in turns: a collection on that thread keeps the GIL for seconds, and this one from its clock.
            turns += 1
            idle = idle + 1 if self._pace == pace else 0
            pace = self._pace
            if idle * TURN_S >= patience_s or turns * TURN_S >= budget_s:
                return False
        return True

    def wake(self) -> None:
        """Let the thread drain soon. Any thread may call it at any time; never waits."""
        self._wakes.put(None)

    def catch_up(self) -> None:
        """Drain now, samples included. Any thread; never raises, and gives up where the thread hangs in a sink."""
        self._hurry_hunt()
        with self._asked():
            if not self._lock.acquire(timeout=self._exit_budget_s):
                return
        try:
            self._drain_all(samples=True)
        except Exception as exc:  # noqa: BLE001 - the collector's fault costs data, never the server
            self._hub.fail("collector", exc)
        finally:
            self._lock.release()

    def look_before_threads_end(self) -> None:
        """The process ends: have a hunt take its last look while threads still hold what is theirs. Waits for it."""
        hunt, done, thread = self._hub.hunt, self._last_flush, self._thread
        if hunt is None or thread is None or thread.is_current():
            return
        with HeldSignal() as told:
            if done is None or done.is_set():
                self.catch_up()
                return
            turns = hunt.exit_patience_s / TURN_S
            while turns > 0 and thread.is_alive() and not done.wait(TURN_S):
                turns = min(turns - 1, GOODBYE_S / TURN_S) if told.came else turns - 1

    def flush(self) -> None:
        """A transport has closed: the thread hands on all that has ended, then an ``End``. Any thread; never waits."""
        if self._thread is None or not self._thread.is_alive():  # it may have failed
            return
        self._hurry_hunt()
        self._last_flush = done = threading.Event()
        self._flushes.append(_Flush(done))
        self.wake()

    def look_before_server_ends(self) -> threading.Event | None:
        """A server's input has ended: have a hunt take its last look while the server still holds what is its own.

        Any thread; never waits. Returns what is set when it is over; ``None`` where no hunt is on.
        """
        if self._hub.hunt is None or self._thread is None or not self._thread.is_alive():
            return None
        self._hurry_hunt()
        done = threading.Event()
        self._flushes.append(_Flush(done, closed=False))
        self.wake()
        return done

    def hand_over(self, seconds: float) -> None:
        """The process is about to end: wait until the last :meth:`flush` is done, for at most ``seconds``."""
        thread, done = self._thread, self._last_flush
        if thread is not None and done is not None and thread.is_alive() and not thread.is_current():
            self._records_until = time.monotonic() + RECORDS_SHARE * seconds
            done.wait(seconds)
            self._records_until = None

    def _run(self, own: Worker) -> None:
        try:
            if self._thread is own:  # else it was let go before it began, and the hooks may be another probe's by now
                self._drain.calibrate()
            while self._thread is own:
                self._wait()
                if self._thread is not own:
                    return
                flushed = self._drain_locked()
                self._hub.deliver()
                for done in flushed:
                    done.set()
                self._cpu_ns = time.thread_time_ns()
        except Exception as exc:  # noqa: BLE001 - the collector's fault costs data, never the server
            self._hub.fail("collector", exc)
        finally:
            for flush in list(self._flushes):
                flush.done.set()

    def _drain_locked(self) -> list[threading.Event]:
        """One drain; then removes sessions that could not wait for it. Returns the flushes that were asked for."""
        with self._lock:
            flushed = self._drain_once()
            while self._leaving:
                self._let_go(*self._leaving[0])
                self._leaving.popleft()  # until then this thread does not rest
            self._cpu_ns = time.thread_time_ns()  # who takes the lock next tells our time from the server's
            return flushed

    def _wait(self) -> None:
        with suppress(Empty):
            self._wakes.get(timeout=self._pause_s())
            while True:
                self._wakes.get_nowait()

    def _pause_s(self) -> float:
        if not self._is_read():
            return BUSY_DRAIN_S if self._taken > BUSY else DRAIN_S
        return SOON_DRAIN_S if self._taken or self._hub.requests.live else READ_DRAIN_S

    def _is_read(self) -> bool:
        return any(listener.is_read() for listener in self._listeners)

    def _drain_once(self) -> list[threading.Event]:
        flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]
        self._drain_all(
            samples=bool(flushes),
            closed=any(flush.closed for flush in flushes),
            ends=any(not flush.closed for flush in flushes),
        )
        return [flush.done for flush in flushes]

    def _drain_all(
        self, *, samples: bool = False, closed: bool = False, ends: bool = False, leaving: Listener | None = None
    ) -> None:
        """One drain; with an ``End`` if a transport has ``closed``. A server ``ends``: what it holds is let go of."""
        self._hub.memory.check()
        hunt = self._hub.hunt
        if hunt is not None:
            self._hunting(lambda: hunt.settle(waiting=self._waiting(), final=samples))
        with nullcontext() if hunt is None else hunt.on_own_account():
            self._drain_parts(hunt, samples=samples, closed=closed, ends=ends, leaving=leaving)

    def _drain_parts(
        self, hunt: LeakHunt | None, *, samples: bool, closed: bool, ends: bool, leaving: Listener | None
    ) -> None:
        steps: list[Frame] = list(self._drain.steps())
        self._tell_all(steps)
        self._taken = len(steps)
        rests_until = now_ns() + round((READ_RESTS_S if self._is_read() else RESTS_S) * 1e9)
        for listener in self._listeners:
            self._tell_finished(listener, rests_until)
            now = now_ns()
            self._tell_open(listener, now, everything=samples)
            if listener is leaving:
                self._tell_unfinished(listener, now)
            self._pace += 1
        self._idle = self._idle and not self._taken
        stopping = self._thread is None  # whoever stops the thread waits for it, and takes the last sample
        due_s = IDLE_SAMPLE_S if self._idle else SAMPLE_S
        now = now_ns()  # what the sample counts goes on while requests are told
        if samples or (now - self._sampled_ns >= due_s * 1e9 and not stopping):
            self._sampled_ns = now
            self._idle = True
            self._tell_samples(now, final=leaving is not None and len(self._listeners) == 1)
        # The hunt comes after the samples: they free some memory that requests allocated.
        growth: Iterator[Frame] = iter(()) if hunt is None else hunt.frames(now_ns(), final=samples, stands=ends)
        self._hunting(lambda: self._tell_all([*islice(growth, 1)]))
        if closed:
            self._tell_all([End(now_ns(), TRANSPORT_CLOSED)])
        # Lines and types take long. If the process ends meanwhile, those of the look before stand, and no more is lost.
        self._hunting(lambda: self._tell_each(growth))

    def _tell_each(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self._tell_all([frame])

    def _hurry_hunt(self) -> None:
        hunt = self._hub.hunt
        if hunt is not None:
            self._hunting(hunt.hurry)

    def _waiting(self) -> int:
        return sum(listener.backlog() for listener in self._listeners)

    def _hunting(self, part: Callable[[], None]) -> None:
        """One part of the leak hunt, which looks at objects of the server: a fault ends the hunt, and nothing else."""
        try:
            part()
        except Exception as exc:  # noqa: BLE001 - see above
            self._hub.hunt = None
            self._hub.fail("leak hunt", exc)

    @property
    def _exit_budget_s(self) -> float:
        hunt = self._hub.hunt
        return EXIT_BUDGET_S if hunt is None else EXIT_BUDGET_S + hunt.exit_patience_s

    def _tell_all(self, frames: list[Frame]) -> None:
        for listener in self._listeners:
            listener.emit(frames)

    def _tell_finished(self, listener: Listener, rests_until_ns: int = 0) -> None:
        """Tell the requests that have ended; those that end meanwhile are left for the next drain."""
        batch = listener.take_finished()
        overflow = listener.take_groups()
        self._taken += len(batch)
        self._drain.note_ended(len(batch) + sum(group.count for group in overflow))
        for transport in {raw.transport for raw in batch} | {group.transport for group in overflow}:
            listener.note_transport(transport)
        sampler = self._samplers.get(listener)
        if sampler is None:
            return  # it was forgotten meanwhile: its last drain could not wait
        allowance = self._allowances.get(listener)
        picked = sampler.pick(batch, listener.live(), None if allowance is None else allowance.at(now_ns()))
        if allowance is not None:
            allowance.take(len(picked))
        first = 0
        while first < len(picked):
            if first >= ALWAYS_RECORDED and self._is_late():
                for raw, _ in picked[first:]:
                    sampler.groups.add(raw)
                break
            self._drain.take_polls()
            some = picked[first : first + SLICE]
            first += len(some)
            self._drain.note_small_steps(some)
            self._tell_slices(listener, some, len(picked) - first, rests_until_ns)
        listener.emit([*sampler.groups.take(), *overflow])
        if self._hub.hunt is not None:
            self._hub.hunt.take(batch)

    def _tell_slices(self, listener: Listener, some: list[tuple[RawRequest, int]], more: int, until_ns: int) -> None:
        """Tell ``some``, after which ``more`` are left, with rests that end by ``until_ns``."""
        full = listener.wants_timelines
        left = (len(some) + more) * (1 + full)
        frames = chain.from_iterable(self._frames(raw, weight, full=full) for raw, weight in some)
        began = time.thread_time_ns()
        while part := [*islice(frames, self._slice)]:
            listener.emit(part)
            left -= len(part)
            worked_ns = time.thread_time_ns() - began
            each_ns = max(1, worked_ns // len(part))
            self._slice = max(1, min(SLICE, SLICE_NS // each_ns))
            if not self._is_waited_for and listener.backlog() < BACKLOG:
                spare_ns = until_ns - now_ns() - left * each_ns
                rests = min(RESTS, spare_ns / ((left + len(part)) * each_ns))
                if rests > 0:
                    time.sleep(min(rests * worked_ns / 1e9, LONGEST_REST_S))
            began = time.thread_time_ns()

    @property
    def _is_waited_for(self) -> bool:
        flush, thread = self._last_flush, self._thread
        if thread is None or not thread.is_current() or self._records_until is not None:
            return True
        return bool(self._asking or self._leaving) or not (flush is None or flush.is_set())

    def _frames(self, raw: RawRequest, weight: int, *, full: bool) -> Iterator[Frame]:
        self._pace += 1  # a record may search for the name of what was awaited
        end = raw.end_ns or now_ns()
        yield record_of(self._hub, raw, end, weight=weight)
        if full:
            yield from self._timeline(raw, end)

    def _tell_open(self, listener: Listener, now: int, *, everything: bool) -> None:
        """Name requests that have been in flight for a while; in a snapshot, all that are."""
        old = now if everything else now - OPEN_AFTER_NS
        fresh = []
        for raw in listener.live():
            if not raw.seen_open and (raw.arrival_ns or raw.first_step_ns or now) <= old:
                raw.seen_open = True
                if not raw.ended:  # else it may have been counted already, and no record would close it
                    fresh.append(open_request(raw, now))
        listener.emit(fresh)

    def _tell_samples(self, now: int, *, final: bool) -> None:
        drain = self._drain
        shared: list[Frame] = [*drain.loops(now, final=final), *drain.pools(now)]
        self._pace += 1
        process = drain.process(now)
        self._pace += 1
        for listener in self._listeners:
            listener.emit([*shared, replace(process, dropped=listener.newly_dropped())])

    def _used_cpu_ns(self) -> int:
        """CPU time of the collector's thread so far; to another thread, as it was after its last drain."""
        is_own = self._thread is not None and self._thread.is_current()
        return time.thread_time_ns() if is_own else self._cpu_ns

    def _is_late(self) -> bool:
        until = self._records_until
        return until is not None and time.monotonic() >= until

    def _tell_unfinished(self, listener: Listener, now: int) -> None:
        """Records of requests that will not end; those without one are known to be open (:meth:`_tell_open`)."""
        live = listener.live()
        for first in range(0, len(live), SLICE):
            if first >= ALWAYS_RECORDED and self._is_late():
                return
            some = live[first : first + SLICE]
            listener.emit(frame for raw in some for frame in self._unfinished(raw, now, full=listener.wants_timelines))

    def _unfinished(self, raw: RawRequest, now: int, *, full: bool) -> Iterator[Frame]:
        raw.outcome = "unfinished"
        running = running_mark(self._hub, raw, now)
        yield record_of(self._hub, raw, now, running)
        if full:
            yield from self._timeline(raw, now, running)

    def _timeline(self, raw: RawRequest, end: int, running: StepMark | None = None) -> Iterable[Timeline]:
        timeline = self._timelines.call(self._timeline_with_holds, raw, end, running)
        return () if timeline is None else (timeline,)

    def _timeline_with_holds(self, raw: RawRequest, end: int, running: StepMark | None) -> Timeline:
        return timeline_of(raw, end, running, self._hub.awaits.holds_of(raw))


def _whereabouts(thread: Worker | None) -> str:
    """Where ``thread`` is now, as the end of a sentence."""
    frame = None if thread is None or thread.ident is None else frame_of(thread.ident)
    if frame is None:
        return ""
    return f" (it is in {frame.f_code.co_name}, {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno})"
