"""What a step asked of the allocator, without the accelerator: counters read before and after each step, in Python.

Two back ends. :class:`TracemallocMeter` reads totals of the *process*: they belong to a request only if no other
thread works meanwhile. If another thread worked during a step, the figures of the step's request are unavailable.
:class:`~mcp_probe.capture.jemalloc.JemallocMeter` reads counters of the *thread*, where jemalloc was preloaded.

Neither knows the owner of a block that is freed: if a request frees another's
block, its own figure goes down, and if another frees its block, the block stays counted. Peak and retained are
estimates for that reason.
"""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from mcp_probe.capture.worker import Worker, workers_alive
from mcp_probe.clock import now_ns
from mcp_probe.model import MemoryMethod, MemoryUse, Tag
from mcp_probe.record.raw import RawRequest

OTHERS_CPU_NS = 30_000
"""If other threads use more CPU time than this in a step, one of them may have allocated: waking up and getting the GIL
alone takes them 10-20 us."""

WAITERS_SHARE, WAITERS_MOST_NS = 200, 100_000
"""A thread waiting for the GIL wakes once per switch interval: 1/n of the step, up to the second value, is no work."""

Row = tuple[str, Tag, "int | None", "int | None"]
_FIGURES = ("requested", "allocations", "peak", "retained")
UNKNOWN: tuple[Row, ...] = tuple((name, "unavailable", None, None) for name in _FIGURES)


class Metered:
    """What the steps of one request add up to, in bytes. Steps on the loop write it, and jobs on their threads."""

    __slots__ = ("held", "peak", "requested", "spoilt")

    def __init__(self) -> None:
        self.held = 0
        self.peak = 0
        self.requested = 0
        self.spoilt = False  # some of what was read was not the request's

    def add(self, requested: int, net: int, rise: int) -> None:
        """A step asked for ``requested``, held at most ``rise`` more than at its start, and ``net`` more at its end."""
        self.requested += requested
        self.peak = max(self.peak, self.held + rise)
        self.held = max(0, self.held + net)  # below 0: it freed what was not its own


class Meter(Protocol):
    """A back end that reads counters around steps and jobs. ``begin`` and ``end`` run on the loop's thread."""

    method: MemoryMethod
    scope: str

    def begin(self) -> Any:
        """What the counters say as a step begins."""

    def end(self, reading: Any, owner: RawRequest) -> None:
        """The step has ended, and was ``owner``'s."""

    def enter(self, raw: RawRequest | None) -> Any:
        """A job of ``raw`` begins on the calling thread. Returns the token for :meth:`leave`."""

    def leave(self, token: Any) -> None:
        """The job has ended."""

    def use_of(self, raw: RawRequest) -> MemoryUse | None:
        """What is known of ``raw``; ``None`` where nothing was measured."""


class TracedReading(NamedTuple):
    """The process as a step begins."""

    held: int
    others_ns: int
    jobs: int
    at_ns: int


class TracemallocMeter:
    """Python's own tracing, one frame a block. See the module's text for what spoils a reading."""

    method: MemoryMethod = "tracemalloc"
    scope = "all Python allocations"

    def __init__(self, own_thread: Callable[[], Worker | None] = lambda: None) -> None:
        """``own_thread``: a thread of ours that allocates almost nothing, so its CPU time is left out."""
        self._own_thread = own_thread
        self._own_clock: tuple[Worker, int] | None = None
        self._running = 0  # jobs of requests that run on threads now
        self._begun = 0  # jobs that ever began

    def begin(self) -> TracedReading:
        others, jobs, at = self._others_ns(), -1 if self._running else self._begun, now_ns()
        tracemalloc.reset_peak()
        return TracedReading(tracemalloc.get_traced_memory()[0], others, jobs, at)

    def end(self, reading: TracedReading, owner: RawRequest) -> None:
        held, peak = tracemalloc.get_traced_memory()
        others_ns = self._others_ns() - reading.others_ns
        idle_ns = OTHERS_CPU_NS + min(WAITERS_MOST_NS, (now_ns() - reading.at_ns) // WAITERS_SHARE)
        alone = reading.jobs == self._begun and others_ns <= idle_ns
        rise = max(0, peak - reading.held)
        for metered in metered_up_from(owner):
            metered.add(rise, held - reading.held, rise)
            metered.spoilt = metered.spoilt or not alone

    def enter(self, raw: RawRequest | None) -> None:
        self._running += 1
        self._begun += 1
        for metered in metered_up_from(raw):
            metered.spoilt = True

    def leave(self, token: None) -> None:
        self._running -= 1

    def use_of(self, raw: RawRequest) -> MemoryUse | None:
        """Requested is the sum of the rises in its steps, which may have asked for more."""
        found: Metered | None = raw.metered
        if found is None:
            return None
        if found.spoilt:
            return MemoryUse(self.method, self.scope, None, None, None, None, UNKNOWN)
        rows: tuple[Row, ...] = (("requested", "lower", found.requested, None), UNKNOWN[1])
        return MemoryUse(self.method, self.scope, found.requested, None, found.peak, found.held, (*rows, *ESTIMATES))

    def _others_ns(self) -> int:
        """CPU time of all threads except this one and our own one."""
        return time.process_time_ns() - time.thread_time_ns() - self._own_ns()

    def _own_ns(self) -> int:
        thread = self._own_thread()
        if thread is None or thread.ident is None or not thread.is_alive():
            return 0
        try:
            if self._own_clock is None or self._own_clock[0] is not thread:
                self._own_clock = (thread, time.pthread_getcpuclockid(thread.ident))
            return time.clock_gettime_ns(self._own_clock[1])
        except (AttributeError, OSError):  # not on macOS and Windows; or it ended just now
            return 0


ESTIMATES: tuple[Row, ...] = (("peak", "estimate", None, None), ("retained", "estimate", None, None))


def why_not_tracemalloc() -> str:
    """Why tracemalloc must not be started now; empty where it may, or already traces.

    Switching it while another thread allocates without the GIL ends the process with a segmentation fault.
    Source: CPython gh-128679, fixed in 3.12.9 and 3.13.2; seen on 3.10.13, 3.11.7, 3.12.1 and 3.13.0.
    """
    named = sum(thread.name.startswith("mcp-probe") for thread in threading.enumerate())
    ours = named + workers_alive()  # they sleep, or hold the GIL
    if tracemalloc.is_tracing() or switchable() or threads_here() - ours <= 1:
        return ""
    version = ".".join(map(str, sys.version_info[:3]))
    return (
        f"tracemalloc must not be started beside other threads on Python {version} (CPython gh-128679): "
        "start the server with PYTHONTRACEMALLOC=1, or attach before it starts threads"
    )


def switchable() -> bool:
    """Whether this interpreter's tracemalloc may be started and stopped at any time."""
    version = sys.version_info[:3]
    return version >= (3, 13, 2) or (3, 12, 9) <= version < (3, 13)


def threads_here() -> int:
    """Threads of this process. Includes those that Python does not know, if the system tells."""
    try:
        with open("/proc/self/status", "rb") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(b"Threads:"))
    except (OSError, StopIteration, ValueError):
        return threading.active_count()


def metered_up_from(raw: RawRequest | None) -> list[Metered]:
    """The tallies of ``raw`` and of the requests it is part of, those that have ended left out."""
    found = []
    while raw is not None:
        if not raw.ended:
            if raw.metered is None:
                raw.metered = Metered()
            found.append(raw.metered)
        raw = raw.parent
    return found
