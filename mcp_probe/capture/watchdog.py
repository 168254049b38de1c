"""Why a step was slow, and where: a thread that looks at the loop from outside.

Every :data:`TICK_S` it reads the loop thread's CPU clock and run-queue wait, and once a step is over
the limit it samples the loop thread's stack. Each sample counts only if the step's id (its start)
is the same before and after. During a C call that holds the GIL no tick runs: the gap itself is
the evidence, and the location is an estimate (measurement.md section 3, "Why a step was slow").
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp_probe.capture.steps import Track
from mcp_probe.clock import now_ns
from mcp_probe.model import Cause, Tag

TICK_S = 0.005
IDLE_TICK_S = 0.01
IDLE_PARK_S = 0.1
GIL_GAP_NS = 25_000_000
"""A tick this late while one step ran on means that nobody else got the GIL (workload: a 500 ms regex)."""

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep + "capture" + os.sep
GIL_SLEEPS = 3
"""A call that blocks once sleeps twice: for what it waits for, and for the GIL afterwards."""
GIL_SLEEP_INTERVALS = 0.7
"""Who waits for the GIL wakes at least once per switch interval, and again when it gets it: its sleeps are about half
an interval long on average. Five blocking calls of 20 ms beside a thread that computes make it one (4.4-5.6 ms)."""

_STDLIB = os.path.dirname(os.__file__)
_INFRASTRUCTURE = (
    "mcp", "mcp_types", "fastmcp", "anyio", "asyncio", "trio", "uvloop", "starlette", "uvicorn", "pydantic",
    "pydantic_core", "sse_starlette", "mcp_probe", "opentelemetry", "outcome", "sniffio", "h11", "httptools",
)  # fmt: skip

_LOOP_FILES = (
    "asyncio/base_events.py", "asyncio/events.py", "asyncio/runners.py", "trio/_core/_run.py",
    "mcp_probe/adapters/asyncio_loop.py", "mcp_probe/adapters/uvloop_loop.py", "uvloop/__init__.py",
)  # fmt: skip

_LOOP_FUNCTIONS = frozenset({"_run", "_run_inheriting", "_run_once", "run", "run_forever", "unrolled_run"})
"""The functions in these files that run steps; steps call others of them (``run_in_executor``, ``checkpoint``)."""

Place = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one slow step, in nanoseconds; ``None`` = unavailable on this platform."""

    cpu_ns: int | None
    run_queue_ns: int | None
    cause: Cause
    file: str | None
    line: int | None
    function: str | None
    where: Tag


@dataclass(slots=True)
class _Reading:
    at_ns: int
    cpu_ns: int
    run_queue_ns: int | None
    slices: int | None  # how often the thread was put on a CPU


@dataclass(slots=True)
class _Case:
    """An investigation of the step that began at ``since``."""

    since: int
    places: Counter[Place]
    gil_gap: bool


class Watch:
    """The watchdog's view of one track. ``evidence`` is called on the loop's thread, the rest on the watchdog's."""

    def __init__(self, track: Track) -> None:
        self._track = track
        self._clock = _thread_clock(track.thread_id)
        self._schedstat = _open_schedstat(track.thread_native_id)
        self._readings: deque[_Reading] = deque(maxlen=64)
        self._process: deque[tuple[int, int]] = deque(maxlen=64)  # (at, CPU time of the whole process)
        self._case: _Case | None = None
        self._read_while_idle = 0  # an idle loop burns nothing: one reading per poll is enough
        self._last_tick_ns = now_ns()

    def look(self, limit_ns: int) -> None:
        """One tick."""
        track = self._track
        since = track.since if track.is_running() else 0
        now = now_ns()
        late = now - self._last_tick_ns > GIL_GAP_NS
        self._last_tick_ns = now
        self._process.append((now, time.process_time_ns()))
        if since == 0 or now - since < limit_ns:
            if not (track.idle and self._read_while_idle == track.now):
                self._read_while_idle = track.now if track.idle else 0
                self._readings.append(self._read(now))
            return
        case = self._case
        if case is None or case.since != since:
            case = self._case = _Case(since, Counter(), late)
        elif late:
            case.gil_gap = True
        place = _place_of(sys._current_frames().get(track.thread_id))
        if place is not None and track.since == since:
            case.places[place] += 1

    def running(self, limit_ns: int) -> tuple[int, int, Place | None] | None:
        """(start, now, place) of a step that is over the limit and still running."""
        since = self._track.since if self._track.is_running() else 0
        now = now_ns()
        if since == 0 or now - since < limit_ns:
            return None
        case = self._case
        place = case.places.most_common(1)[0][0] if case is not None and case.since == since and case.places else None
        return since, now, place

    def evidence(self, track: Track, since: int, now: int) -> Evidence:
        """Close the case of the step [since, now). Runs on the loop's thread at the step's end."""
        end = _Reading(now, time.thread_time_ns(), *self._schedule())
        start = self._baseline(since)
        self._readings.append(end)  # the next step may be slow too, and begin before the next tick
        case = self._case if self._case is not None and self._case.since == since else None
        wall = now - since
        cpu = min(wall, max(0, end.cpu_ns - start.cpu_ns)) if start is not None else None
        queued = None
        if start is not None and start.run_queue_ns is not None and end.run_queue_ns is not None:
            queued = min(wall - (cpu or 0), max(0, end.run_queue_ns - start.run_queue_ns))
        cause = self._cause(wall, cpu, queued, track.gc_ns_of(since), start, end)
        file = function = None
        line = None
        where: Tag = "unavailable"
        if case is not None and case.places:
            (file, line, function), _ = case.places.most_common(1)[0]
            where = "estimate" if case.gil_gap else "exact"
        return Evidence(cpu, queued, cause, file, line, function, where)

    def cpu_now(self) -> int | None:
        """CPU time of the loop's thread, readable from any thread."""
        return self._clock_ns()

    def run_queue_now(self) -> int | None:
        """Run-queue wait of the loop's thread so far."""
        return self._schedule()[0]

    def close(self) -> None:
        """Release what was opened."""
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None

    def _read(self, now: int) -> _Reading:
        return _Reading(now, self._clock_ns() or 0, *self._schedule())

    def _clock_ns(self) -> int | None:
        if self._clock is None:
            return None
        try:
            return time.clock_gettime_ns(self._clock)
        except OSError:
            return None

    def _schedule(self) -> tuple[int | None, int | None]:
        """(run-queue wait so far, how often it was put on a CPU)."""
        if self._schedstat is None:
            return None, None
        try:
            _, queued, slices = os.pread(self._schedstat, 64, 0).split()
            return int(queued), int(slices)
        except (OSError, ValueError):
            return None, None

    def _baseline(self, since: int) -> _Reading | None:
        """The last reading before the step: its error is bounded by one tick."""
        if self._clock is None:
            return None
        for reading in reversed(tuple(self._readings)):
            if reading.at_ns <= since:
                return reading
        return None

    def _cause(
        self, wall: int, cpu: int | None, queued: int | None, gc_ns: int, start: _Reading | None, end: _Reading
    ) -> Cause:
        if gc_ns * 2 >= wall:
            return "gc"
        if cpu is None or start is None:
            return "unknown"
        if queued is not None and queued * 2 >= wall:
            return "run-queue"
        off = wall - cpu - (queued or 0)
        if cpu >= off:
            return "cpu"
        return "gil" if self._waited_for_the_gil(off, wall, cpu, start, end) else "blocking-call"

    def _waited_for_the_gil(self, off: int, wall: int, cpu: int, start: _Reading, end: _Reading) -> bool:
        """Many short sleeps while other threads burned the CPU that this one wanted."""
        if start.slices is None or end.slices is None:
            return False
        before = next((burned for at, burned in reversed(tuple(self._process)) if at <= end.at_ns - wall), None)
        if before is None:
            return False
        others = time.process_time_ns() - before - cpu
        sleeps = end.slices - start.slices
        longest_ns = GIL_SLEEP_INTERVALS * sys.getswitchinterval() * 1e9  # on average
        return sleeps >= GIL_SLEEPS and others * 2 >= off and off < sleeps * longest_ns


class Watchdog:
    """One daemon thread for all tracks; slower while every loop is idle. ``fail`` is told of a fault, which ends it."""

    def __init__(self, limit_ns: int, fail: Callable[[Exception], None] = lambda exc: None) -> None:
        self._limit_ns = limit_ns
        self._fail = fail
        self._watches: dict[int, tuple[Track, Watch]] = {}
        self._stop = False
        self._thread: threading.Thread | None = None
        self.cpu_ns = 0

    def add(self, track: Track) -> None:
        """Watch ``track`` from now on."""
        watch = Watch(track)
        track.watch = watch
        self._watches = {**self._watches, track.ordinal: (track, watch)}
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mcp-probe-watchdog", daemon=True)
            self._thread.start()

    def watches(self) -> list[tuple[Track, Watch]]:
        """What is watched now."""
        return list(self._watches.values())

    def remove(self, track: Track) -> None:
        """``track``'s loop is over."""
        remaining = dict(self._watches)
        _, watch = remaining.pop(track.ordinal, (None, None))
        self._watches = remaining
        if watch is not None:
            track.watch = None
            watch.close()

    def stop(self) -> None:
        """End the thread within a tick."""
        self._stop = True
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(IDLE_PARK_S + 0.1)
        for track, _ in self.watches():
            self.remove(track)

    def _run(self) -> None:
        try:
            idle_since = now_ns()
            while not self._stop:
                now = now_ns()
                if self._look():
                    idle_since = now
                self.cpu_ns = time.thread_time_ns()
                time.sleep(TICK_S if now - idle_since < IDLE_PARK_S * 1e9 else IDLE_TICK_S)
        except Exception as exc:  # noqa: BLE001 - costs locations and causes of slow steps, never the server
            self._fail(exc)

    def _look(self) -> bool:
        """Look at every loop; returns whether one is busy."""
        watches = self.watches()
        for _, watch in watches:
            watch.look(self._limit_ns)
        return any(not track.idle for track, _ in watches)


def _thread_clock(thread_id: int) -> int | None:
    try:
        return time.pthread_getcpuclockid(thread_id)
    except (AttributeError, OSError):
        return None


def _open_schedstat(native_id: int) -> int | None:
    try:
        return os.open(f"/proc/self/task/{native_id}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _place_of(frame: Any) -> Place | None:
    """The innermost frame that is the user's own; else the innermost outside the plumbing; else the innermost."""
    best: tuple[int, Place] | None = None
    depth = 0
    while frame is not None and depth < 200:
        code = frame.f_code
        if code.co_name in _LOOP_FUNCTIONS and code.co_filename.endswith(_LOOP_FILES):
            break  # below this frame stands whoever started the loop, not the step
        if code.co_filename.startswith(_OWN):
            frame = frame.f_back
            continue
        rank = _rank(code.co_filename)
        if best is None or rank < best[0]:
            best = (rank, (code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)))
            if rank == 0:
                break
        frame = frame.f_back
        depth += 1
    return None if best is None else best[1]


def place_of_caller() -> str | None:
    """``file:line`` of the user's own code that is calling, for naming what it makes or uses first."""
    place = _place_of(sys._getframe(1))
    return None if place is None else f"{place[0]}:{place[1]}"


_ranks: dict[str, int] = {}


def _rank(filename: str) -> int:
    """0 the user's own code, 1 an installed package, 2 the standard library, 3 the server's plumbing."""
    rank = _ranks.get(filename)
    if rank is None:
        rank = _ranks[filename] = _classify(filename)
    return rank


def _classify(filename: str) -> int:
    path = filename.replace("\\", "/")
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in path:
            package = path.rsplit(marker, 1)[1].split("/", 1)[0].removesuffix(".py")
            return 3 if package in _INFRASTRUCTURE else 1
    if path.startswith("<frozen") or ("/mcp_probe/" in path and "/mcp_probe/workloads/" not in path):
        return 3
    if path.startswith(_STDLIB):
        return 3 if "/asyncio/" in path else 2
    return 0
