"""Steps: who is on the loop, since when, and since when it could have been.

A :class:`Track` follows one loop on its own thread. The loop hooks (adapters/loops) call
:meth:`Track.begin` and :meth:`Track.close` around each callback or task step; :meth:`enter` and
:meth:`leave` split a step where a request begins or ends in the middle of it.

Invariant: between ``begin`` and ``close``, ``since`` is the start of the step; ``idle`` is true only
inside the poll call. The watchdog reads both from its own thread, and checks ``since`` again after
reading anything else: it doubles as the step's id.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from mcp_probe.capture.current import CURRENT
from mcp_probe.clock import now_ns
from mcp_probe.record.assemble import spill
from mcp_probe.record.raw import MAX_MARKS, WAKE_LOOP, WAKE_SPLIT, Job, RawRequest

RING_NS = 500_000
"""Steps at least this long are kept one by one for blame; shorter ones only as sums (section 3)."""

SlowEntry = tuple[int, int, RawRequest | None, int, "object | None"]
"""(start_ns, end_ns, request, gc_ns, evidence) of one step of at least RING_NS."""


class Track:
    """One event loop seen from its own thread. Not thread-safe; other threads only read."""

    __slots__ = (
        "alive",
        "callbacks",
        "detached",
        "earliest",
        "gc_ns",
        "idle",
        "inherit_earliest",
        "inherit_ready",
        "inherit_wake",
        "inheriting",
        "iterations",
        "iterations_max_ns",
        "jobs",
        "loop_small_count",
        "loop_small_ns",
        "marked",
        "name",
        "now",
        "ordinal",
        "owner",
        "poll_end",
        "poll_ns",
        "polls_seen",
        "prev_poll_end",
        "ready",
        "settle",
        "since",
        "slow",
        "slow_step_ns",
        "started_ns",
        "sum_sq",
        "suspended",
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
        self.jobs: dict[int, Job] = {}  # unit -> the thread job it waits for (trio)
        self.detached: dict[str, int] = {}  # operation -> step time after the request's end
        self.started_ns = now
        self.now = now  # end of the previous callback, or of the poll
        self.poll_end = now
        self.prev_poll_end = now
        self.poll_ns = 0
        self.polls_seen = False
        self.iterations: dict[int, list[int]] = {}  # bucket -> [count, sum_ns], cumulative
        self.iterations_max_ns = 0
        self.sum_sq = 0
        self.callbacks = 0
        self.marked = 0
        self.loop_small_count = 0
        self.loop_small_ns = 0
        self.owner: RawRequest | None = None
        self.unit = 0
        self.since = 0  # 0: no step is running
        self.suspended = self.earliest = self.ready = now
        self.wake = WAKE_LOOP
        self.gc_ns = 0
        self.idle = False
        self.inheriting = False
        self.inherit_earliest = self.inherit_ready = 0
        self.inherit_wake = WAKE_LOOP

    def begin(
        self, owner: RawRequest | None, unit: int, earliest: int, ready: int, wake: int, since: int
    ) -> None:
        """A step starts at ``since``; it has been ready since ``ready``, at the earliest since ``earliest``."""
        self.owner = owner
        self.unit = unit
        self.since = since
        self.earliest = earliest
        self.ready = ready
        self.wake = wake
        self.gc_ns = 0
        if owner is not None and not owner.ended:
            self.suspended = owner.units.get(unit, earliest)
            if owner.first_step_ns is None:
                owner.first_step_ns = since
                owner.handler = unit

    def close(self, now: int, done: bool) -> None:
        """The running step ends at ``now``; ``done``: its task will not run again."""
        since = self.since
        owner = self.owner
        length = now - since
        self.now = now
        self.callbacks += 1
        if owner is None:
            if length < RING_NS:
                self.loop_small_ns += length
                self.loop_small_count += 1
        else:
            self._charge(owner, since, now, done)
        if length >= RING_NS:
            evidence = None
            if length >= self.slow_step_ns and self.watch is not None:
                evidence = self.watch.evidence(self, since, now)
            self.slow.append((self.ordinal, since, now, owner, self.gc_ns, evidence))
        self.owner = None
        self.since = 0

    def _charge(self, owner: RawRequest | None, since: int, now: int, done: bool) -> None:
        unit = self.unit
        suspended = self.suspended
        while owner is not None:
            if owner.ended:
                name = owner.operation
                self.detached[name] = self.detached.get(name, 0) + now - since
            else:
                self.marked += 1
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
        since, unit = self.since, self.unit
        if since:
            self.close(now, False)
        self.begin(owner, unit, now, now, WAKE_SPLIT, now)

    def enter(self, raw: RawRequest) -> object:
        """``raw`` begins here, in the middle of a step. Returns the token for :meth:`leave`."""
        now = now_ns()
        if not self.unit:
            self.unit = 1
        self.split(raw, now)
        return CURRENT.set(raw)

    def leave(self, raw: RawRequest, token: Any) -> None:
        """``raw`` ends here, in the middle of a step."""
        self.split(raw.parent, now_ns())
        CURRENT.reset(token)

    def pause(self, start: int, end: int) -> None:
        """A collector pause ran on this thread in [start, end)."""
        owner = self.owner
        if self.since:
            self.gc_ns += end - start
        while owner is not None:
            if not owner.ended:
                owner.pauses.append((start, end))
            owner = owner.parent
