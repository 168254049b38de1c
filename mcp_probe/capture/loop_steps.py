"""What every step and every poll of a loop writes: who runs on it, since when, and since when it was ready to.

In C if the accelerator is there (native/steps.h), else in Python. :mod:`~mcp_probe.capture.loop_monitor` builds on
either.

Invariant: while a step runs, ``since`` is its start. Inside the poll call it is 0. Between steps it is 0,
too, or the last stamp on a loop with ``stretches``. The watchdog reads it from its own thread, and again
after reading anything else, because it is also the step's id.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcp_probe import native
from mcp_probe.capture.context_switches import GIL_NS, NOT_COUNTED, switches_so_far, woken_since
from mcp_probe.clock import now_ns
from mcp_probe.histogram import bucket_of
from mcp_probe.model import ALL_SEEN
from mcp_probe.record.raw import MAX_MARKS, RING_NS, WAKE_LOOP, WAKE_SPLIT, RawRequest

MAX_POLLS = 1 << 17
"""Instants of polls kept for the collector, two a poll: more than a second of the busiest loop."""

WAITED_NS, WORK_NS = 200_000, 1_000_000
"""A poll of the first length found nothing when it began (an epoll that finds something at once takes 2-5 us), but not
after work of the second length, nor if it was told not to wait. Where it was longer than a wait for the GIL, its thread
is known to have slept, or nothing is: what came before is found at once, but on a busy or emulated host, or beside a
thread that computes, even that takes time. Workloads: the cell of HTTP on aarch64 under qemu, where three requests that
had waited 0.5 s seemed to have just come; threads that compute, or hold the GIL (tests/native/test_poll.py)."""

Inherited = tuple[int, int, int]
"""(earliest_ns, ready_ns, wake) that a plain callback passes on to what it wakes."""


class PythonSteps:
    """The state of one loop that every step and poll writes. Twin of ``Steps`` in native/steps.h."""

    __slots__ = (
        "_counted_ns",
        "_counting",
        "_metering",
        "_noted",
        "_switches",
        "alive",
        "earliest",
        "event_earliest",
        "event_ready",
        "inherit",
        "looked",
        "loop_id",
        "may_wait",
        "meter",
        "now",
        "ordinal",
        "owner",
        "poll_began",
        "poll_end",
        "ready",
        "shows",
        "since",
        "steps",
        "stretches",
        "suspended",
        "thread_id",
        "unit",
        "wake",
    )

    if TYPE_CHECKING:
        settle: Callable[[RawRequest, int], None]

        def _keep(self, owner: RawRequest | None, since: int, now: int) -> None: ...
        def _charge(self, owner: RawRequest | None, since: int, now: int, done: bool) -> None: ...

    def __init__(self) -> None:
        now = now_ns()
        self.alive = True
        self.ordinal = 0
        self.thread_id = threading.get_ident()
        self.now = now  # end of the previous callback, or of the poll
        self.poll_began: int | None = None
        self.poll_end = now
        self.may_wait = True  # the poll in progress was told to wait for something
        self.loop_id = 0  # id() of the loop, while it is followed
        self.looked = now  # what the next poll finds came since then
        self.event_earliest = self.event_ready = now  # when what the last poll found became ready: earliest, latest
        self.shows = ALL_SEEN  # what can be seen of a request that steps here, bits of model.py
        self.stretches = False  # work outside requests is timed from stamp to stamp, not per callback
        self.steps = 0
        self.owner: RawRequest | None = None
        self.unit = 0
        self.since = 0  # 0: no step is running
        self.suspended = self.earliest = self.ready = now
        self.wake = WAKE_LOOP
        self.inherit: Inherited | None = None  # a plain callback runs: what it wakes inherits this
        self.meter: Any = None  # a capture.measuring.Around: reads counters around steps of requests
        self._metering: Any = None  # to be called with the owner as the running step ends
        self._noted: deque[int] = deque(maxlen=MAX_POLLS)  # polls: began, ended, began, ended, …
        self._switches = NOT_COUNTED  # of its thread, as the poll in progress began
        self._counting: int | None = None  # the poll in progress is counted up to here
        self._counted_ns = now  # end of the last poll that was counted

    @property
    def polling(self) -> bool:
        """A poll is under way, as far as polls have been counted."""
        return self._counting is not None

    def begin_poll(self, now: int) -> None:
        """The loop polls from ``now`` on."""
        self._noted.append(now)
        if self.may_wait:
            self._switches = switches_so_far()
        self.poll_began = self.now = now
        self.since = 0

    def end_poll(self, now: int) -> None:
        """The poll returned. What it finds came since the previous poll looked; if this one had to wait, just now."""
        self._noted.append(now)
        began = self.poll_began
        since = None if began is None or not self.may_wait else self._came_since(began, now)
        self.event_earliest = self.looked if since is None else since
        if began is not None:
            self.looked = began if since is None else since
        self.poll_began = None
        self.poll_end = self.now = self.event_ready = now

    def _came_since(self, began: int, now: int) -> int | None:
        """Since when at the earliest what it finds may have come, if the poll had to wait."""
        if now - began < WAITED_NS:
            return None
        if now - began < GIL_NS:
            return now if began - self.poll_end < WORK_NS else None
        return woken_since(self._switches, switches_so_far(), began, now)

    def take_poll_counts(self, until: int | None) -> tuple[int, int, list[tuple[int, int, int]], int, int, int]:
        """See ``loop_monitor.PollCounts``; ``sum_sq`` is in two halves. A poll under way counts up to ``until``."""
        noted, iterations = self._noted, {}  # type: ignore[var-annotated]
        polls = poll_ns = sum_sq = longest = 0
        while noted:
            at = noted.popleft()
            if self._counting is not None:
                poll_ns += at - self._counting
                self._counting = None
                self._counted_ns = at
                polls += 1
                continue
            self._counting = at
            length = at - self._counted_ns
            if length > 0:
                entry = iterations.setdefault(bucket_of(length), [0, 0])
                entry[0] += 1
                entry[1] += length
                sum_sq += length * length
                longest = max(longest, length)
        if until is not None and self._counting is not None and until > self._counting:
            poll_ns += until - self._counting
            self._counting = until
        rows = [(bucket, count, total) for bucket, (count, total) in iterations.items()]
        return polls, poll_ns, rows, sum_sq >> 64, sum_sq & (1 << 64) - 1, longest

    def begin(self, owner: RawRequest | None, unit: int, earliest: int, ready: int, wake: int, since: int) -> None:
        """A step starts at ``since``; it has been ready since ``ready``, at the earliest since ``earliest``."""
        self.owner = owner
        self.unit = unit
        self.since = since
        self.earliest = earliest
        self.ready = ready
        self.wake = wake
        if owner is not None and not owner.ended:
            self.suspended = owner.units.get(unit, earliest)
            if owner.first_step_ns is None:
                owner.first_step_ns = since
                owner.handler = unit
                owner.loop = self.ordinal
                owner.seen = self.shows
            if self.meter is not None:
                self._metering = self.meter.begin()

    def close(self, now: int, done: bool) -> None:
        """The running step ends at ``now``; ``done``: its task will not run again."""
        if self._metering is not None:
            metering, self._metering = self._metering, None
            if self.owner is not None:
                metering(self.owner)
        since = self.since
        owner = self.owner
        self.now = now
        if owner is not None:
            if done or owner.ended or owner.parent is not None or len(owner.marks) >= MAX_MARKS:
                self._charge(owner, since, now, done)
            else:
                unit = self.unit
                owner.marks.append((unit, self.suspended, self.earliest, self.ready, since, now, self.wake))
                if unit:
                    owner.set_unit(unit, now)
        if now - since >= RING_NS:
            self._keep(owner, since, now)
        self.steps += 1
        self.owner = None
        self.since = now if self.stretches else 0

    def stretch(self, now: int) -> None:
        """The loop's own work since the last stamp took at least RING_NS and ends at ``now``."""
        self._keep(None, self.now, now)
        self.now = self.since = now

    def split(self, owner: RawRequest | None, now: int) -> None:
        """From ``now`` on the running step belongs to ``owner``."""
        unit = self.unit
        if self.owner is not None or (self.since and not self.stretches):
            self.close(now, False)
        elif self.stretches and now - self.now >= RING_NS:
            self.stretch(now)
        self.begin(owner, unit, now, now, WAKE_SPLIT, now)


if TYPE_CHECKING:
    Steps = PythonSteps
else:
    Steps = PythonSteps if native.core is None else native.core.Steps
