"""The one interface between the hooks of an event loop and everything else.

A :class:`LoopMonitor` stands for one loop that is followed. Each kind of loop has one file in adapters, with a subclass
of it and of ``adapters.loop_hooks.LoopHooks``, which makes one for every loop it meets. This covers asyncio, uvloop,
trio and unknown loops; ``tests/adapters/test_loop_conformance.py`` checks that each of them does what it declares.

On the loop's thread its hooks call what is inherited from ``Steps``: ``begin`` and ``close`` around each step, and
``begin_poll`` and ``end_poll`` around each poll. They call ``broken`` if they fail. As a step begins they say when it
became ready, at the earliest and at the latest, and who woke it.

What the rest of the probe asks, and each kind of loop answers in its own way, is under "what each kind of loop says".
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.guard import Fail, Guard
from mcp_probe.capture.loop_steps import Steps
from mcp_probe.capture.proc_files import native_id
from mcp_probe.clock import now_ns
from mcp_probe.model import ALL_SEEN, STEPS, WAKE_UPS, Tag
from mcp_probe.record.assemble import spill
from mcp_probe.record.raw import MAX_MARKS, WAKE_SOCKET, Job, RawRequest


class Sight(NamedTuple):
    """What the hooks of a loop show, and how exactly."""

    steps: Tag  # each run of a task or callback
    wake_ups: Tag  # by another task, a timer, a thread
    sockets: Tag  # wake-ups by a socket: they lie between two polls
    polls: Tag  # when the loop is idle

    @property
    def bits(self) -> int:
        """The same as bits of ``RequestRecord.seen``."""
        hidden = (STEPS if self.steps == "unavailable" else 0) | (WAKE_UPS if self.wake_ups == "unavailable" else 0)
        return ALL_SEEN & ~hidden


EVERYTHING = Sight(steps="exact", wake_ups="exact", sockets="bounded", polls="exact")
NOTHING = Sight("unavailable", "unavailable", "unavailable", "unavailable")


class StepSink(NamedTuple):
    """Where a monitor puts what it sees. The hub makes one for each."""

    ordinal: int  # of the loop, in the order in which they were met
    slow: deque[Any]  # steps of at least RING_NS: (ordinal, start, end, request, gc ns, evidence)
    slow_step_ns: int  # evidence is taken of steps at least this long
    settle: Callable[[RawRequest, int], None]  # the handler of a request is over
    fail: Fail = lambda hook, exc: None
    lost: Callable[[int], None] = lambda ordinal: None  # the hooks of this loop have failed
    kept_marks: int = 0  # of a request that has many: so many stay for its timeline


class PollCounts(NamedTuple):
    """Polls and loop iterations since they were last taken."""

    polls: int  # that ended
    poll_ns: int
    iterations: list[tuple[int, int, int]]  # (bucket, count, total ns)
    sum_sq: int
    longest_ns: int


class LoopMonitor(Steps):
    """One event loop seen from its own thread. Not thread-safe; other threads only read.

    Args:
        sink: where it puts what it sees.
        name: the kind of loop, as reports call it.
        sees: what the hooks of this loop show.
        loop: the loop while it exists, else ``None``; nothing of ours holds on to it.
        hook: the hooks, as reports call them.
    """

    __slots__ = (
        "_gc_elsewhere",
        "_gc_step",
        "_sink",
        "detached",
        "gc_ns",
        "guard",
        "loop",
        "name",
        "sees",
        "settle",
        "slow",
        "slow_step_ns",
        "started_ns",
        "thread_native_id",
        "watch",
    )

    def __init__(
        self, sink: StepSink, name: str, sees: Sight, loop: Callable[[], Any] = lambda: None, hook: str = "steps"
    ) -> None:
        super().__init__()
        self.ordinal = sink.ordinal
        self.name = name
        self.sees = sees
        self.shows = sees.bits
        self.loop = loop
        self.thread_native_id = native_id()
        self.guard = Guard(hook, sink.fail, self._turn_off)
        self.slow = sink.slow
        self.slow_step_ns = sink.slow_step_ns
        self.settle = sink.settle
        self.watch: Any = None
        self.detached: dict[str, int] = {}  # operation -> step time after the request's end
        self.started_ns = self.now
        self.gc_ns = 0
        self._gc_step = 0
        self._gc_elsewhere = (0, 0)  # (step, ns of pauses on other threads in it)
        self._sink = sink

    # --- what each kind of loop says ---

    def is_running(self) -> bool:
        """Whether the loop runs. Any thread may ask."""
        loop = self.loop()
        return loop is not None and bool(loop.is_running())

    def is_over(self) -> bool:
        """Whether the loop will never run again."""
        loop = self.loop()
        return loop is None or bool(loop.is_closed())

    def current_unit(self) -> int:
        """Id of the task that runs now; 0: none does."""
        return 0

    def handler_began(self, raw: RawRequest) -> None:
        """The handler of ``raw`` runs now, in a task of its own, and no step of it was seen to begin."""

    def followed(self, awaitable: Awaitable[Any], raw: RawRequest) -> Awaitable[Any]:
        """``awaitable``, the handler of ``raw``, which has begun in the middle of a step.

        It is wrapped if the hooks may not see that step end.
        """
        return awaitable

    def read_since_ns(self) -> int | None:
        """What the running callback has read from a socket came later than this; ``None``: unknown.

        It came after the poll that did not find it. If that poll had to wait, it came as the poll returned.
        """
        return self.earliest if self.since and self.wake == WAKE_SOCKET else None

    def tasks(self) -> dict[int, Any]:
        """Its tasks that have not ended, by id: units of requests are among them. Any thread; drop it soon."""
        return {}

    def is_scheduled(self, unit: int) -> bool:
        """Whether the loop is known to have scheduled this suspended task. Any thread."""
        return False

    def waits_for(self, job: Job) -> None:
        """The running task waits for a worker thread from now on."""

    def waits_no_more(self) -> None:
        """The running task no longer waits for a worker thread."""

    # --- the same for every kind ---

    def broken(self, exc: Exception) -> None:
        """The hooks have raised ``exc``: they are off, and the program runs on."""
        self.guard.fault(exc)

    def _turn_off(self) -> None:
        self.alive = False
        self.since = 0
        self._sink.lost(self.ordinal)

    @property
    def idle(self) -> bool:
        """The loop is in its poll, or nothing is known to run on it."""
        return self.since == 0

    def take_polls(self, until: int | None = None) -> PollCounts:
        """Polls since the last call, one under way only up to ``until``. Collector's thread."""
        polls, poll_ns, iterations, high, low, longest = self.take_poll_counts(until)
        return PollCounts(polls, poll_ns, iterations, (high << 64) + low, longest)

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
                owner.add_mark((unit, suspended, self.earliest, self.ready, since, now, self.wake))
                if unit:
                    if done:
                        owner.drop_unit(unit)
                        if owner.settles and unit == owner.handler and owner.result_ns is None:
                            self.settle(owner, now)
                    else:
                        owner.set_unit(unit, now)
                if owner.mark_count > MAX_MARKS:
                    spill(owner, now, self._sink.kept_marks)
            owner = owner.parent
            if owner is not None:
                suspended = owner.units.get(unit, suspended)

    def enter(self, raw: RawRequest) -> object:
        """``raw`` begins here, in the middle of a step. Returns the token for :meth:`leave`."""
        now = now_ns()
        if self.alive:
            unit = self.current_unit()
            if self.owner is not None and self.unit != unit:
                self.close(now, False)  # another task's step, which had begun before the loop was followed
            self.unit = unit
            self.split(raw, now)
        return CURRENT.set(raw)

    def leave(self, raw: RawRequest, token: Any) -> None:
        """``raw`` ends here, in the middle of a step; not where a collection closes a handler that nobody runs."""
        try:
            CURRENT.reset(token)
        except ValueError:  # this is the context of whoever collects
            return
        if self.alive:
            self.unit = self.current_unit()
            self.split(raw.parent, now_ns())

    def hand_over(self, raw: RawRequest | None, owner: RawRequest | None) -> None:
        """What is left of the running step, if it is one of ``raw``, is the work of ``owner``. Any thread may call."""
        if self.alive and self.thread_id == threading.get_ident() and raw is not None and self.owner is raw:
            self.unit = self.current_unit()
            self.split(owner, now_ns())

    def work_for(self, owner: RawRequest | None) -> None:
        """What is left of the running step is the work of ``owner``, if steps of this loop are seen."""
        if self.alive and (self.since or self.stretches):
            self.unit = self.current_unit()
            self.split(owner, now_ns())

    def gc_ns_of(self, since: int) -> int:
        """Collector pauses inside the step that began at ``since``."""
        return self.gc_ns if self._gc_step == since else 0

    def gc_elsewhere_ns(self, since: int) -> int:
        """Long pauses of the collector on other threads inside the step that began at ``since``: they keep the GIL."""
        step, ns = self._gc_elsewhere
        return ns if step == since else 0

    def pause_elsewhere(self, start: int, end: int) -> None:
        """A collector pause ran on another thread, which is this one, in [start, end)."""
        since = self.since
        if 0 < since < end:
            self._gc_elsewhere = (since, self.gc_elsewhere_ns(since) + end - max(start, since))

    def pause(self, start: int, end: int) -> None:
        """A collector pause ran on this thread in [start, end)."""
        owner = self.owner
        self.gc_ns = self.gc_ns_of(self.since) + end - start
        self._gc_step = self.since
        while owner is not None:
            if not owner.ended:
                owner.pauses = [*owner.pauses, (start, end)]
            owner = owner.parent
