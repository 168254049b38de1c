"""The clocks of one loop's thread, read tick by tick. The cause of a slow step is worked out from them.

A reading taken before a step began is its baseline, off by at most :data:`TICK_NS`. With the accelerator
readings are taken as a loop iteration begins. The watchdog sleeps for as long as no step can be over the
limit; while nothing is wrong it needs neither Python nor the GIL.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from mcp_probe import native
from mcp_probe.capture.pipe_looks import PipeLooker
from mcp_probe.clock import now_ns

if TYPE_CHECKING:
    from mcp_probe.capture.loop_monitor import LoopMonitor

KEPT = 64
TICK_NS = 5_000_000
LOOK_NS = 10_000_000
"""How often pipes are looked at while a loop is busy, at the least."""


class Reading(NamedTuple):
    """Totals so far, in nanoseconds; ``None`` = unavailable on this platform."""

    at_ns: int
    cpu_ns: int | None  # of the loop's thread
    run_queue_ns: int | None
    slices: int | None  # how often the thread was put on a CPU
    process_ns: int  # CPU time of the whole process


class PythonReadings:
    """A bounded ring of readings of ``monitor``'s thread. Twin of ``Readings`` in native/readings.h.

    ``clock`` is the thread's CPU clock, ``schedstat`` a descriptor of its ``/proc`` file, which it closes; ``None``
    and -1 where the platform has none.
    """

    def __init__(self, monitor: LoopMonitor, clock: int | None, schedstat: int) -> None:
        self.monitor = monitor
        self.schedstat = schedstat
        self.closed = False  # a thread that parks over it must return
        self._clock = clock
        self._ring: deque[tuple[int, int | None, int | None, int | None, int]] = deque(maxlen=KEPT)
        self._read_while_idle = 0  # an idle loop burns nothing: one reading per poll is enough

    def read(self, now: int) -> tuple[int, int | None, int | None, int | None, int]:
        """Take a reading and keep it."""
        cpu = queued = slices = None
        try:
            if self._clock is not None:
                cpu = time.clock_gettime_ns(self._clock)
            if self.schedstat >= 0:
                _, waited, turns = os.pread(self.schedstat, 64, 0).split()
                queued, slices = int(waited), int(turns)
        except (AttributeError, OSError, ValueError):
            pass
        reading = (now, cpu, queued, slices, time.process_time_ns())
        self._ring.append(reading)
        return reading

    def before(self, at: int) -> tuple[int, int | None, int | None, int | None, int] | None:
        """The last reading taken at or before ``at``; ``None`` where none is kept."""
        return next((reading for reading in reversed(list(self._ring)) if reading[0] <= at), None)

    def close(self) -> None:
        """The loop is no longer watched."""
        if self.schedstat >= 0:
            os.close(self.schedstat)
            self.schedstat = -1

    def is_over(self, limit_ns: int) -> bool:
        """One tick: whether a step has run for ``limit_ns``; if not, a reading is taken."""
        if self.closed:
            return True
        since, now = self.monitor.since, now_ns()
        if since and now - since >= limit_ns:
            return True
        idle_at = self.monitor.now if since == 0 else 0
        if since or self._read_while_idle != idle_at:
            self._read_while_idle = idle_at
            self.read(now)
        return False


def _park(watched: tuple[PythonReadings, ...], limit_ns: int, wait_ns: int, most_ns: int, looker: PipeLooker) -> bool:
    until = now_ns() + most_ns
    while True:
        busy = any([not readings.monitor.idle for readings in watched])
        time.sleep(min(wait_ns, TICK_NS if busy else LOOK_NS) / 1e9)
        busy = busy or not all([readings.monitor.idle for readings in watched])
        for pipe in looker.pipes:
            if busy or pipe.unattended:
                pipe.look()
        if any([readings.is_over(limit_ns) for readings in watched]):
            return True
        if now_ns() >= until:
            return False


if TYPE_CHECKING:
    Readings = PythonReadings
else:
    Readings = PythonReadings if native.core is None else native.core.Readings


def park(watched: tuple[Readings, ...], limit_ns: int, wait_ns: int, most_ns: int, looker: PipeLooker) -> bool:
    """Sleep for ``wait_ns``, then until a step is over the limit (True), or for ``most_ns`` (False).

    It looks at the pipes of ``looker`` while a loop is busy or their reader has no thread, at least every
    :data:`LOOK_NS`.
    """
    parking = _park if native.core is None else native.core.park
    return parking(watched, limit_ns, wait_ns, most_ns, looker)


def wake() -> None:
    """End a :func:`park` that waits for a loop to begin something."""
    if native.core is not None:
        native.core.wake()
