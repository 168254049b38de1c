"""Steps: who is on the loop, since when, and since when it could have been.

A :class:`Track` follows one loop on its own thread. The loop hooks (adapters/loops) call
:meth:`Track.begin` and :meth:`Track.close` around each callback or task step; :meth:`enter` and
:meth:`leave` split a step where a request begins or ends in the middle of it.

Invariant: while a step runs, ``since`` is its start; on a loop with ``stretches`` it is otherwise the
last stamp; it is 0 inside the poll call, and elsewhere between steps. The watchdog reads it from its own
thread, and again after reading anything else: it doubles as the step's id.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from mcp_probe.capture.current import CURRENT
from mcp_probe.clock import now_ns
from mcp_probe.model import Tag
from mcp_probe.record.assemble import spill
from mcp_probe.record.raw import MAX_MARKS, WAKE_LOOP, WAKE_SPLIT, Job, RawRequest

RING_NS = 500_000
"""Steps at least this long are kept one by one for blame; shorter ones only as sums (section 3)."""

MAX_POLLS = 1 << 17
"""Instants of polls kept for the collector, two a poll: more than a second of the busiest loop."""

Inherited = tuple[int, int, int]
"""(earliest_ns, ready_ns, wake) that a plain callback passes on to what it wakes."""

SlowEntry = tuple[int, int, RawRequest | None, int, "object | None"]
"""(start_ns, end_ns, request, gc_ns, evidence) of one step of at least RING_NS."""


class Track:
    """One event loop seen from its own thread. Not thread-safe; other threads only read."""

    __slots__ = (
        "_gc_step",
        "alive",
        "broken",
        "current_unit",
        "detached",
        "earliest",
        "gc_ns",
        "inherit",
        "is_running",
        "jobs",
        "name",
        "now",
        "ordinal",
        "owner",
        "poll_end",
        "polls",
        "prev_poll_end",
        "quality",
        "ready",
        "settle",
        "since",
        "slow",
        "slow_step_ns",
        "started_ns",
        "steps",
        "stretches",
        "suspended",
        "task_of",
        "thread_id",
        "thread_native_id",
        "unit",
        "wake",
        "watch",
    )

    def __init__(
        self,
        ordinal: int,
        name: str,
        slow: deque[Any],
        slow_step_ns: int,
        settle: Callable[[RawRequest, int], None],
    ) -> None:
        now = now_ns()
        self.alive = True
        self.ordinal = ordinal
        self.name = name
        self.thread_id = threading.get_ident()
        self.thread_native_id = threading.get_native_id()
        self.slow = slow
        self.slow_step_ns = slow_step_ns
        self.watch: Any = None
        self.settle = settle
        self.is_running: Callable[[], bool] = lambda: True  # whether the loop still runs; any thread may ask
        self.current_unit: Callable[[], int] = lambda: 1  # id of the task that runs now; set by the loop's hooks
        self.jobs: dict[int, Job] = {}  # unit -> the thread job it waits for (trio)
        self.detached: dict[str, int] = {}  # operation -> step time after the request's end
        self.started_ns = now
        self.now = now  # end of the previous callback, or of the poll
        self.poll_end = now
        self.prev_poll_end = now
        self.polls: deque[int] = deque(maxlen=MAX_POLLS)  # began, ended, began, ended, …
        self.stretches = False  # work of no request is timed from stamp to stamp, not callback by callback
        self.task_of: Callable[[Any, Any], Any] = lambda callback, args: None
        self.broken: Callable[[Exception], None] = lambda exc: None
        self.steps = 0
        self.quality: Tag = "estimate"  # of its loop health: exact where the poll is seen
        self.owner: RawRequest | None = None
        self.unit = 0
        self.since = 0  # 0: no step is running
        self.suspended = self.earliest = self.ready = now
        self.wake = WAKE_LOOP
        self.gc_ns = 0
        self._gc_step = 0
        self.inherit: Inherited | None = None  # a plain callback runs: what it wakes inherits this

    @property
    def idle(self) -> bool:
        """The loop is in its poll, or nothing is known to run on it."""
        return self.since == 0

    def begin_poll(self, now: int) -> None:
        """The loop polls from ``now`` on."""
        self.polls.append(now)
        self.now = now
        self.since = 0

    def end_poll(self, now: int) -> None:
        """The poll returned."""
        self.polls.append(now)
        self.prev_poll_end = self.poll_end
        self.poll_end = self.now = now

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

    def close(self, now: int, done: bool) -> None:
        """The running step ends at ``now``; ``done``: its task will not run again."""
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
                    owner.units[unit] = now
        if now - since >= RING_NS:
            self._keep(owner, since, now)
        self.steps += 1
        self.owner = None
        self.since = now if self.stretches else 0

    def stretch(self, now: int) -> None:
        """The loop's own work since the last stamp took at least RING_NS and ends at ``now``."""
        self._keep(None, self.now, now)
        self.now = self.since = now

    def _keep(self, owner: RawRequest | None, since: int, now: int) -> None:
        evidence = None
        if now - since >= self.slow_step_ns and self.watch is not None:
            evidence = self.watch.evidence(self, since, now)
        self.slow.append((self.ordinal, since, now, owner, self.gc_ns_of(since), evidence))

    def _charge(self, owner: RawRequest | None, since: int, now: int, done: bool) -> None:
        unit = self.unit
        suspended = self.suspended
        while owner is not None:
            if owner.ended:
                name = owner.operation
                self.detached[name] = self.detached.get(name, 0) + now - since
            else:
                marks = owner.marks
                marks.append((unit, suspended, self.earliest, self.ready, since, now, self.wake))
                if unit:
                    if done:
                        owner.units.pop(unit, None)
                        if owner.settles and unit == owner.handler and owner.result_ns is None:
                            self.settle(owner, now)
                    else:
                        owner.units[unit] = now
                if len(marks) > MAX_MARKS:
                    spill(owner, now)
            owner = owner.parent
            if owner is not None:
                suspended = owner.units.get(unit, suspended)

    def split(self, owner: RawRequest | None, now: int) -> None:
        """From ``now`` on the running step belongs to ``owner``."""
        unit = self.unit
        if self.owner is not None or (self.since and not self.stretches):
            self.close(now, False)
        elif self.stretches and now - self.now >= RING_NS:
            self.stretch(now)
        self.begin(owner, unit, now, now, WAKE_SPLIT, now)

    def enter(self, raw: RawRequest) -> object:
        """``raw`` begins here, in the middle of a step. Returns the token for :meth:`leave`."""
        now = now_ns()
        self.unit = self.current_unit()
        self.split(raw, now)
        return CURRENT.set(raw)

    def leave(self, raw: RawRequest, token: Any) -> None:
        """``raw`` ends here, in the middle of a step."""
        self.unit = self.current_unit()
        self.split(raw.parent, now_ns())
        CURRENT.reset(token)

    def gc_ns_of(self, since: int) -> int:
        """Collector pauses inside the step that began at ``since``."""
        return self.gc_ns if self._gc_step == since else 0

    def pause(self, start: int, end: int) -> None:
        """A collector pause ran on this thread in [start, end)."""
        owner = self.owner
        self.gc_ns = self.gc_ns_of(self.since) + end - start
        self._gc_step = self.since
        while owner is not None:
            if not owner.ended:
                owner.pauses = [*owner.pauses, (start, end)]
            owner = owner.parent
