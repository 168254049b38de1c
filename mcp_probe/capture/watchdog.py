"""Why a step was slow, and where: a thread that looks at the loop from outside.

It sleeps for as long as no step can be over the limit, then samples the loop thread's stack every
:data:`TICK_NS` until that step has ended. Each sample counts only if the step's id (its start)
is the same before and after. During a C call that holds the GIL no tick runs: the gap itself is
the evidence, and the location is an estimate (measurement.md section 3, "Why a step was slow").
At each tick it also looks at the pipes that wait for the loop; a second thread does so while it cannot.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from mcp_probe.capture.await_kinds import CallSite
from mcp_probe.capture.guard import Fail, Guard
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.capture.pipe_looks import PipeLooker, PipeLooks
from mcp_probe.capture.places import Place, frame_of, place_of
from mcp_probe.capture.proc_files import open_task
from mcp_probe.capture.readings import TICK_NS, Reading, Readings, park, wake
from mcp_probe.capture.worker import Worker
from mcp_probe.clock import now_ns
from mcp_probe.model import WITHOUT_GIL, Cause, Tag

HOOK = "watchdog"
LOOK_AROUND_NS = 100_000_000
"""How often the watchdog checks which loops run."""
MOST_THREADS = 32
"""Of which it is known whether they wait for a CPU."""
STOP_S = 1.0
"""Time for its thread to end; it needs about one tick."""
GIL_GAP_NS = 25_000_000
"""A tick this late while one step ran on means that nobody else got the GIL (workload: a 500 ms regex)."""

GIL_SLEEPS = 3
"""A call that blocks once sleeps twice: for what it waits for, and for the GIL afterwards."""
GIL_SLEEP_INTERVALS, DOUBTFUL_SLEEP_INTERVALS = 0.7, 1.4
"""A thread that waits for the GIL wakes at least once per switch interval, and again when it gets it. So its sleeps are
about half an interval long on average, or up to a whole one on a host without a spare CPU. Five blocking calls of 20 ms
beside a thread that computes also give about one (4.4-5.6 ms): between the two limits the cause is unknown."""
LONG_SLEEP_INTERVALS = 3
"""A sleep that lasts this many switch intervals at a stretch waits for something other than the GIL."""
IDLE_SHARE = 0.1
"""Other threads that used less CPU than this share of the step's sleep did not hold the GIL. On a host without a spare
CPU, threads that hold it get as little as 0.3 of it: between this and one half the cause is unknown."""


PROMPT_INTERVALS, PROMPT_SHARE, LEAST_TICKS = 0.2, 0.8, 2
"""Whoever waits for the GIL of a thread that computes gets it after a switch interval. A host without a free CPU makes
ticks late, too: then nothing is said of the GIL. Workload: mcp-server-sqlite, whose queries take 18 ms."""

_FUTEX = {"x86_64": b"202", "aarch64": b"98"}.get(platform.machine())
"""The system call in which a thread waits for a lock, the GIL among them. Source: Linux, syscall tables."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one slow step, in nanoseconds; ``None`` = unavailable on this platform."""

    cpu_ns: int | None
    run_queue_ns: int | None
    cause: Cause
    file: str | None
    line: int | None
    function: str | None
    library: str | None
    where: Tag
    called: CallSite | None = None  # instead of ``library``: the function of C that the line called
    sleeps: int | None = None  # how often its thread gave its CPU up

    def library_called(self) -> str | None:
        """What the line called. To name a function of C takes some 50 kB of memory for a moment: not within a step."""
        if self.library is not None or self.called is None:
            return self.library
        name = self.called.name()
        return name if name is None or self.cause != "cpu" else name + WITHOUT_GIL


@dataclass(slots=True)
class _Case:
    """An investigation of the step that began at ``since``."""

    since: int
    places: Counter[Place]
    gil_gap: bool
    slices: int | None = None
    woken_ns: int = 0  # when ``slices`` was seen to change
    asleep_ns: int = 0  # in sleeps that are too long for a wait for the GIL
    in_call: bool = False  # seen in a system call that waits for something other than a lock
    calls: dict[Place, CallSite] = field(default_factory=dict)  # where a place called a function of C
    ticks: int = 0
    prompt: int = 0  # of these, for which the GIL was free
    _asleep_before: int = 0  # without the sleep in progress

    def note_slices(self, slices: int | None, now: int) -> None:
        """How often the thread was put on a CPU so far, as seen now."""
        if slices is None or slices != self.slices:
            self.slices, self.woken_ns = slices, now
            self._asleep_before = self.asleep_ns
        elif now - self.woken_ns > LONG_SLEEP_INTERVALS * sys.getswitchinterval() * 1e9:
            self.asleep_ns = self._asleep_before + now - self.woken_ns

    def lets_others_run(self) -> bool:
        """Whether the GIL was free at nearly every tick: C code that gives it up, as sqlite3, zlib and numpy do."""
        return self.ticks >= LEAST_TICKS and self.prompt >= PROMPT_SHARE * self.ticks

    def place(self) -> Place | None:
        """The line seen most often, whatever it called, with the callee that was seen there most often."""
        places = dict(self.places)  # in one go: the watchdog may be adding to it
        lines: Counter[tuple[str, int]] = Counter()
        for place, count in places.items():
            lines[place.file, place.line] += count
        if not lines:
            return None
        [(line, _)] = lines.most_common(1)
        return max((place for place in places if (place.file, place.line) == line), key=places.__getitem__)


class Watch:
    """The watchdog's view of one monitor. ``evidence`` is called on the loop's thread, the rest on the watchdog's."""

    def __init__(self, monitor: LoopMonitor, starvation: Starvation | None = None) -> None:
        self._monitor = monitor
        self._clock = _thread_clock(monitor.thread_id)
        self._schedstat = open_task(monitor.thread_native_id, "schedstat")
        self._syscall = None if _FUTEX is None else open_task(monitor.thread_native_id, "syscall")
        self._starvation = starvation
        self.readings = Readings(monitor, self._clock, -1 if self._schedstat is None else self._schedstat)
        # The step in which the loop is first seen is often slow, and there was no tick before it.
        self.first = Reading(*self.readings.read(monitor.started_ns))
        self._case: _Case | None = None
        self._last_tick_ns = now_ns()

    def look(self, limit_ns: int, late_ns: int | None) -> None:
        """A step may be over the limit: look at what it does. ``late_ns``: how late, for want of the GIL, if known."""
        monitor = self._monitor
        since = monitor.since if monitor.is_running() else 0
        now = now_ns()
        late = now - self._last_tick_ns > GIL_GAP_NS
        self._last_tick_ns = now
        if since == 0 or now - since < limit_ns:
            return
        case = self._case
        prompt_ns = PROMPT_INTERVALS * sys.getswitchinterval() * 1e9
        if case is None or case.since != since:
            over_ns = now - since - limit_ns
            case = self._case = _Case(since, Counter(), over_ns > GIL_GAP_NS)
            late_ns = 0 if over_ns < prompt_ns else None  # else the sleep before this look may have been too long
        elif late:
            case.gil_gap = True
        if late_ns is not None:
            case.ticks += 1
            case.prompt += late_ns < prompt_ns
        case.note_slices(self._schedule()[1], now)
        case.in_call = case.in_call or self._is_in_call()
        frame = frame_of(monitor.thread_id)
        place = place_of(frame, of_request=monitor.owner is not None)
        if place is not None and monitor.since == since:
            case.places[place] += 1
            # What it calls has no frame if it stands innermost itself.
            if place.library is None and (frame.f_code.co_filename, frame.f_lineno) == (place.file, place.line):
                case.calls[place] = CallSite(frame.f_code, frame.f_lasti, frame.f_globals, frame.f_builtins)

    def running(self, limit_ns: int) -> tuple[int, int, int | None, int | None, Place | None] | None:
        """(start, now, CPU time, run queue, place) of a step that is over the limit and still running."""
        since = self._monitor.since if self._monitor.is_running() else 0
        now = now_ns()
        if since == 0 or now - since < limit_ns:
            return None
        case = self._case
        queue, slices = self._schedule()
        start, end = self._baseline(since), Reading(now, self.cpu_now(), queue, slices, 0)
        cpu, queued = self._used(start, end, since)
        case = case if case is not None and case.since == since else None
        off = now - since - (cpu or 0) - (queued or 0)
        if cpu is not None and self._is_host(case, since, off, _sleeps(start, end)):
            queued = now - since - cpu
        return since, now, cpu, queued, None if case is None else case.place()

    def evidence(self, monitor: LoopMonitor, since: int, now: int) -> Evidence:
        """Close the case of the step [since, now). Runs on the loop's thread at the step's end."""
        start = self._baseline(since)
        end = Reading(*self.readings.read(now))  # kept: the next step may be slow too, and begin before the next tick
        case = self._case if self._case is not None and self._case.since == since else None
        wall = now - since
        cpu, queued = self._used(start, end, since)
        if queued is not None and start is not None and start.slices is not None and start.slices == end.slices:
            queued = wall - (cpu or 0)  # it never gave its CPU up, and did not run: the hypervisor took it
        asleep = 0 if case is None else case.asleep_ns
        cause = self._cause(wall, cpu, queued, monitor.gc_ns_of(since), asleep, start, end)
        off, sleeps = wall - (cpu or 0) - (queued or 0), _sleeps(start, end)
        if cause in ("gil", "unknown") and 0 < off <= 2 * monitor.gc_elsewhere_ns(since):
            cause = "gc"  # a collection on another thread keeps the GIL as long as it lasts
        elif cause in ("blocking-call", "unknown") and cpu is not None and self._is_host(case, since, off, sleeps):
            cause, queued = "run-queue", wall - (cpu or 0)
        place = None if case is None else case.place()
        if case is None or place is None:
            return Evidence(cpu, queued, cause, None, None, None, None, "unavailable", sleeps=sleeps)
        where: Tag = "estimate" if case.gil_gap else "exact"
        # A thread that computes with the GIL hands it over just after a call: it was not in that for long.
        is_in_call = cause == "blocking-call" or (cause == "cpu" and case.lets_others_run())
        called = case.calls.get(place) if is_in_call else None
        at = (place.file, place.line, place.function, place.library)
        return Evidence(cpu, queued, cause, *at, where, called, sleeps)

    def _used(self, start: Reading | None, end: Reading, since: int) -> tuple[int | None, int | None]:
        """CPU time and run-queue wait of a step from ``since`` to ``end``; its baseline is ``start``."""
        wall = end.at_ns - since
        cpu = queued = None
        if start is not None and start.cpu_ns is not None and end.cpu_ns is not None:
            cpu = min(wall, max(0, end.cpu_ns - start.cpu_ns))
        if start is not None and start.run_queue_ns is not None and end.run_queue_ns is not None:
            queued = min(wall - (cpu or 0), max(0, end.run_queue_ns - start.run_queue_ns))
        return cpu, queued

    def cpu_now(self) -> int | None:
        """CPU time of the loop's thread, readable from any thread."""
        return self._clock_ns()

    def run_queue_now(self) -> int | None:
        """Run-queue wait of the loop's thread so far."""
        return self._schedule()[0]

    def close(self) -> None:
        """Release what was opened."""
        self._schedstat = None
        syscall, self._syscall = self._syscall, None
        if syscall is not None:
            os.close(syscall)
        self.readings.close()

    def _is_in_call(self) -> bool:
        """Whether the loop's thread waits in the system, for something other than a lock."""
        try:
            syscall = self._syscall  # it may be closed meanwhile
            call = b"" if syscall is None else os.pread(syscall, 16, 0).split()[0]
        except (AttributeError, OSError, IndexError):
            return True
        return call.isdigit() and call != _FUTEX

    def _is_host(self, case: _Case | None, since: int, off_ns: int, sleeps: int | None) -> bool:
        """The loop slept for ``off_ns`` for a lock, it seems, and another thread waited half of that for a CPU.

        So who was to give it the GIL, or the lock, could not run. If nobody could look at the step, as many sleeps as
        a wait for the GIL has tell it from a call that waits. Without that the thread that waited may be ours.
        """
        if self._starvation is None or self._syscall is None:
            return False
        if case is None:
            longest = LONG_SLEEP_INTERVALS * sys.getswitchinterval() * 1e9
            if sleeps is None or sleeps < GIL_SLEEPS or off_ns > sleeps * longest:
                return False
        elif case.in_call:
            return False
        return self._starvation.longest_ns(since, self._monitor.thread_native_id) * 2 >= off_ns

    def _clock_ns(self) -> int | None:
        if self._clock is None:
            return None
        try:
            return time.clock_gettime_ns(self._clock)
        except (AttributeError, OSError):
            return None

    def _schedule(self) -> tuple[int | None, int | None]:
        """(run-queue wait so far, how often it was put on a CPU)."""
        schedstat = self._schedstat  # it may be closed meanwhile
        if schedstat is None:
            return None, None
        try:
            _, queued, slices = os.pread(schedstat, 64, 0).split()
            return int(queued), int(slices)
        except (AttributeError, OSError, ValueError):
            return None, None

    def _baseline(self, since: int) -> Reading | None:
        """The last reading before the step: its error is bounded by one tick."""
        found = self.readings.before(since)
        return None if found is None or found[1] is None else Reading(*found)

    def _cause(
        self,
        wall: int,
        cpu: int | None,
        queued: int | None,
        gc_ns: int,
        asleep: int,
        start: Reading | None,
        end: Reading,
    ) -> Cause:
        if gc_ns * 2 >= wall:
            return "gc"
        if cpu is None or start is None:
            return "unknown"
        if queued and wall - queued < self._monitor.slow_step_ns:
            return "run-queue"  # else what is left is judged by itself
        off = wall - cpu - (queued or 0)
        if cpu >= off:
            return "cpu"
        if (asleep - (queued or 0)) * 2 >= off:
            return "blocking-call"
        return self._off_cpu_cause(off, wall, cpu, start, end)

    def _off_cpu_cause(self, off: int, wall: int, cpu: int, start: Reading, end: Reading) -> Cause:
        """The GIL, if the thread slept often and briefly while other threads used the CPU; else a blocking call."""
        sleeps = _sleeps(start, end)
        if sleeps is None or sleeps < GIL_SLEEPS:
            return "blocking-call"
        burned = end.process_ns - start.process_ns - cpu
        intervals = off / sleeps / (sys.getswitchinterval() * 1e9)
        if burned < off * IDLE_SHARE or intervals >= DOUBTFUL_SLEEP_INTERVALS:
            return "blocking-call"
        return "gil" if burned * 2 >= off and intervals < GIL_SLEEP_INTERVALS else "unknown"


def _sleeps(start: Reading | None, end: Reading) -> int | None:
    """How often the loop's thread gave its CPU up between the two; ``None`` where that is not known."""
    if start is None or start.slices is None or end.slices is None:
        return None
    return end.slices - start.slices


class Starvation:
    """How long threads of the process waited for a CPU. The watchdog's thread reads, any thread may ask."""

    def __init__(self) -> None:
        self._schedstats: dict[str, int] = {}  # thread -> descriptor, of at most MOST_THREADS
        self._readings: deque[tuple[int, dict[str, int]]] = deque(maxlen=8)

    def read(self) -> None:
        """Note what each thread has waited so far; at most about every :data:`LOOK_AROUND_NS`."""
        now = now_ns()
        if self._readings and now - self._readings[-1][0] < LOOK_AROUND_NS * 0.9:
            return
        try:
            threads = os.listdir("/proc/self/task")[:MOST_THREADS]
        except OSError:
            return
        known = self._schedstats
        opened = {
            thread: found
            for thread in threads
            if thread not in known and (found := open_task(int(thread), "schedstat")) is not None
        }
        gone = [thread for thread in known if thread not in threads]
        self._schedstats = {**{thread: known[thread] for thread in known if thread not in gone}, **opened}
        for thread in gone:
            os.close(known[thread])
        self._readings.append((now, self._queued()))

    def longest_ns(self, since: int, beside: int) -> int:
        """How long the thread that waited longest has waited since about ``since``; ``beside`` is not counted.

        It counts from the last reading before, or the first after if that is too old; 0 where there is neither.
        """
        before: dict[str, int] = {}
        for at, queued in reversed(list(self._readings)):
            if at < since - 3 * LOOK_AROUND_NS:
                break
            before = queued
            if at <= since:
                break
        before = {thread: ns for thread, ns in before.items() if thread != str(beside)}
        if not before:
            return 0
        return max((ns - before[thread] for thread, ns in self._queued().items() if thread in before), default=0)

    def close(self) -> None:
        """Release what was opened."""
        schedstats, self._schedstats = self._schedstats, {}
        for schedstat in schedstats.values():
            os.close(schedstat)

    def _queued(self) -> dict[str, int]:
        found = {}
        for thread, schedstat in self._schedstats.items():
            with suppress(AttributeError, OSError, ValueError, IndexError):  # it has ended
                found[thread] = int(os.pread(schedstat, 64, 0).split()[1])
        return found


class Watchdog:
    """One thread of ours for all monitors. A fault ends it.

    ``add``, ``remove`` and ``stop`` may be called on any thread at any time, and wait for nothing but each other.
    ``pipes`` gives what it looks at besides, while a loop is busy or a reader has no thread.
    """

    def __init__(
        self,
        limit_ns: int,
        fail: Fail = lambda hook, exc: None,
        pipes: Callable[[], tuple[PipeLooks, ...]] = tuple,
    ) -> None:
        self._limit_ns = limit_ns
        self._pipes = pipes
        self._guard = Guard(HOOK, fail)
        self._lock = Lock()  # for the two fields below
        self._watches: dict[int, tuple[LoopMonitor, Watch]] = {}
        self._worker: Worker | None = None
        self._looker = PipeLooker()
        self._starvation = Starvation()
        self._looking: Worker | None = None
        self._stop = False
        self.cpu_ns = 0

    def add(self, monitor: LoopMonitor) -> None:
        """Watch ``monitor`` from now on; not after :meth:`stop`."""
        watch = Watch(monitor, self._starvation)
        with self._lock:
            if self._stop:
                watch.close()
                return
            monitor.watch = watch
            self._watches = {**self._watches, monitor.ordinal: (monitor, watch)}
            if self._worker is None:
                self._worker = Worker("mcp-probe-watchdog", self._run)
                self._worker.start()
                return
        wake()

    @property
    def thread(self) -> Worker | None:
        """Its thread, while there is one."""
        return self._worker

    def watches(self) -> list[tuple[LoopMonitor, Watch]]:
        """What is watched now."""
        return list(self._watches.values())

    def remove(self, monitor: LoopMonitor) -> None:
        """``monitor``'s loop is over."""
        with self._lock:
            remaining = dict(self._watches)
            _, watch = remaining.pop(monitor.ordinal, (None, None))
            self._watches = remaining
        if watch is not None:
            monitor.watch = None
            watch.close()

    def stop(self, wait_s: float = STOP_S) -> None:
        """End the thread within a tick, for good, and wait for it for at most ``wait_s``."""
        with self._lock:
            self._stop = True
            worker, self._worker = self._worker, None
        for _, watch in self.watches():
            watch.readings.closed = True
        wake()
        if worker is not None and wait_s:
            worker.join(wait_s)
            if self._looking is not None:
                self._looking.join(wait_s)
        for monitor, _ in self.watches():
            self.remove(monitor)

    def abandon(self) -> None:
        """This is a forked child, which has no thread of ours; a lock may have been held at the fork."""
        self._lock = Lock()
        self._worker = self._looking = None

    def _run(self) -> None:
        self._guard.call(self._watch)
        self._looker.close()
        self._starvation.close()

    def _watch(self) -> None:
        over = False
        while not self._stop:
            if any(not monitor.idle for monitor, _ in self.watches()):  # an idle server costs nothing
                self._starvation.read()
            over = self._tick(TICK_NS if over else self._limit_ns)
            self.cpu_ns = time.thread_time_ns()

    def _tick(self, wait_ns: int) -> bool:
        """Wait until a step is over the limit, and look at it; False if none is. Keeps no loop alive afterwards."""
        running = [watch for monitor, watch in self.watches() if monitor.is_running()]
        readings = tuple(watch.readings for watch in running)
        pipes = self._pipes()
        self._looker.look_at(pipes)
        if pipes and self._looking is None:
            self._looking = Worker("mcp-probe-pipes", self._looker.run)
            self._looking.start()
        since = now_ns()
        over = park(readings, self._limit_ns, wait_ns, LOOK_AROUND_NS, self._looker)
        if over:
            # From a first tick on: before it the park may have slept for longer than was asked.
            late_ns = now_ns() - since - wait_ns if wait_ns == TICK_NS else None
            for watch in running:
                watch.look(self._limit_ns, late_ns)
        return over


def _thread_clock(thread_id: int) -> int | None:
    try:
        return time.pthread_getcpuclockid(thread_id)
    except (AttributeError, OSError):
        return None
