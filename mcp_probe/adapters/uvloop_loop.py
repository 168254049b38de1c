"""uvloop: its handles and its poll are in C, so callbacks are wrapped where they are scheduled.

``call_soon``, ``call_soon_threadsafe`` and ``call_later`` are replaced on the loop instance; tasks
schedule their steps through them, so every task step is seen. Not seen: libuv's own socket
callbacks (what they wake became ready at the earliest when the loop was last seen to wait) and the
poll, so utilization and arrival delay are estimates from busy stretches. A gap between two callbacks says
when something came if the thread gave its CPU away in it, where the system counts that (Linux); elsewhere if it was
long.

Source: uvloop/loop.pyx, 0.22-0.23.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Generator
from typing import Any, NamedTuple

from mcp_probe.adapters.hook import Hook, guarded
from mcp_probe.adapters.loop_hooks import LoopHooks, asyncio_tasks, weakly
from mcp_probe.adapters.step_kinds import StepKinds
from mcp_probe.capture.context_switches import NOT_COUNTED, switches_so_far, woken_since
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.loop_monitor import LoopMonitor, Sight, StepSink
from mcp_probe.capture.loop_steps import Inherited
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import WAKE_LOOP, WAKE_SOCKET, WAKE_THREAD, RawRequest

SIGHT = Sight(steps="exact", wake_ups="exact", sockets="bounded", polls="estimate")
SAME_STRETCH_NS = 100_000
"""Callbacks closer than this belong to one busy stretch; an idle poll costs more (epoll wake ~50-100 us)."""
LONGEST_TIMER_S = 86_400
"""Timers beyond it are left alone: ``anyio.sleep_forever`` is a timer of infinity, which no integer holds."""
SLEPT_NS = 5_000_000
"""Only in a gap this long is the loop known to have waited."""
COUNTED_NS = 1_000_000
"""Context switches are counted as a step ends if they were not for that long: its own are not those of the gap."""


class Gap(NamedTuple):
    """What is known of the time from one callback to the next."""

    began: int
    polled: bool  # the loop polled in it
    came_ns: int | None  # what that poll found came since then, if it is known to have waited


class Gaps:
    """Tells which gaps between two callbacks were polls. Loop's thread only.

    A thread that only has to wait for a CPU does not give one away. Where the system does not count that, each gap
    counts as a poll, and each long one as a poll that waited.
    """

    __slots__ = ("_counted_at", "_last", "_switches")

    def __init__(self) -> None:
        self._switches = NOT_COUNTED
        self._counted_at = 0
        self._last = Gap(0, False, None)

    def step_ended(self, now: int) -> None:
        """What the thread does from ``now`` on is part of a gap."""
        if now - self._counted_at >= COUNTED_NS:
            self._switches = switches_so_far()
            self._counted_at = now

    def judge(self, began: int, now: int) -> Gap:
        """The gap that began then, up to ``now``. Who asks again is told the same."""
        if self._last.began == began:
            return self._last
        if now - began < SAME_STRETCH_NS:
            return Gap(began, False, None)
        before, self._switches = self._switches, switches_so_far()
        self._counted_at = now
        polled = self._switches[0] > before[0] or self._switches == NOT_COUNTED
        came = woken_since(before, self._switches, began, now) if now - began >= SLEPT_NS else None
        self._last = Gap(began, polled, came)
        return self._last


class UvloopMonitor(LoopMonitor):
    """Hands each callback over with the instant it became ready, as an argument of :meth:`_run`."""

    __slots__ = ("_found_after", "_gaps", "_kinds")

    def __init__(self, sink: StepSink, loop: Any, kinds: StepKinds) -> None:
        super().__init__(sink, "uvloop", SIGHT, weakly(loop), UvloopHooks.hook)
        self._kinds = kinds
        self.may_wait = False  # its gaps say what came when, and not the polls that are made of them
        self._gaps = Gaps()
        self._found_after = self.now  # what a poll finds came later: the polls before it did not find it

    def current_unit(self) -> int:
        """Of the loop that runs on this thread."""
        task = asyncio.current_task()
        return 0 if task is None else id(task)

    def tasks(self) -> dict[int, Any]:
        """asyncio's."""
        return asyncio_tasks(self.loop())

    def followed(self, awaitable: Awaitable[Any], raw: RawRequest) -> Awaitable[Any]:
        """The loop may have come to be followed in the middle of this very step: then nothing else sees it end."""
        try:
            return Followed(awaitable, raw, self)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self.broken(exc)
            return awaitable

    def read_since_ns(self) -> int | None:
        """libuv reads between two of our callbacks: it came as a poll that has just ended found it, or before."""
        if self.since:
            return super().read_since_ns()
        came = self._gaps.judge(self.now, now_ns()).came_ns
        return self._found_after if came is None else came

    def around_call_soon(self, call_soon: Any) -> Any:
        """``call_soon``, whose callbacks became ready with the one that runs, or just now."""
        run = self._run

        def soon(callback: Any, *args: Any, context: Any = None) -> Any:
            stamp = (self.inherit or self._soon()) if self.alive else None
            if stamp is None:
                return call_soon(callback, *args, context=context)
            return call_soon(run, callback, stamp, args, context=context)

        return soon

    def around_call_soon_threadsafe(self, threadsafe: Any) -> Any:
        """``call_soon_threadsafe``, whose callbacks became ready as another thread handed them over."""
        run = self._run

        def soon_threadsafe(callback: Any, *args: Any, context: Any = None) -> Any:
            stamp = self._now() if self.alive and threading.get_ident() != self.thread_id else None
            if stamp is None:
                return threadsafe(callback, *args, context=context)
            return threadsafe(run, callback, stamp, args, context=context)

        return soon_threadsafe

    def around_call_later(self, call_later: Any) -> Any:
        """``call_later``, whose callbacks become ready at their deadline."""
        run = self._run

        def later(delay: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            stamp = self._due(delay) if self.alive else None
            if stamp is None:
                return call_later(delay, callback, *args, context=context)
            return call_later(delay, run, callback, stamp, args, context=context)

        return later

    @guarded
    def _soon(self) -> Inherited:
        """Between two of our callbacks it is libuv that wakes, for a socket.

        Just now where the loop slept until then, else at an unknown instant since its last poll.
        """
        now = now_ns()
        if self.since:
            return now, now, WAKE_LOOP
        came = self._gaps.judge(self.now, now).came_ns
        return self._found_after if came is None else came, now, WAKE_SOCKET

    @guarded
    def _now(self) -> Inherited:
        ready = now_ns()
        return ready, ready, WAKE_THREAD

    @guarded
    def _due(self, delay: Any) -> Inherited | None:
        """``None`` for delays that no integer holds: they are the loop's to judge."""
        if not isinstance(delay, (int, float)) or not -LONGEST_TIMER_S < delay < LONGEST_TIMER_S:
            return None
        due = now_ns() + max(0, round(delay * 1e9))
        return due, due, WAKE_LOOP

    def _run(self, callback: Any, stamp: Inherited, args: tuple[Any, ...]) -> Any:
        """Run ``callback``. As asyncio's handles it lets go of it: a traceback may keep this frame alive."""
        if not self.alive or threading.get_ident() != self.thread_id:
            try:
                return callback(*args)
            finally:
                del callback, args
        task = self._begin(callback, stamp, args)
        try:
            return callback(*args)
        finally:
            self.inherit = None
            if self.alive:
                self._end(task)
            del callback, args, task

    @guarded
    def _begin(self, callback: Any, stamp: Inherited, args: tuple[Any, ...]) -> Any:
        now = now_ns()
        self._note_gap(now)
        earliest, ready, wake = stamp
        if ready > now:  # a timer that libuv rounded down
            earliest = ready = now
        task = self._kinds.task_of(callback, args)
        self.inherit = (earliest, ready, wake) if task is None else None
        self.begin(CURRENT.get(), id(task) if task is not None else 0, earliest, ready, wake, now)
        return task

    def _note_gap(self, now: int) -> None:
        """A gap before this callback: the loop polled; the busy stretch before it counts as one iteration."""
        gap = self._gaps.judge(self.now, now)
        if now - gap.began >= SAME_STRETCH_NS:  # how busy the loop is stays an estimate
            self.begin_poll(gap.began)
            self.end_poll(now)
        if gap.polled:
            self._found_after = gap.began if gap.came_ns is None else gap.came_ns

    @guarded
    def _end(self, task: Any) -> None:
        ended = now_ns()
        if self.since:
            self.close(ended, task is not None and task.done())
        else:  # a request that began within this callback ended its step with its coroutine
            self.now = ended
        self._gaps.step_ended(ended)


class Followed:
    """An awaitable that runs ``awaitable`` and sees it suspended for the first time, which ends a step.

    Values, exceptions and cancellation pass through untouched.
    """

    gi_frame = None  # it has none: whoever walks a suspended stack goes on at ``gi_yieldfrom``

    def __init__(self, awaitable: Awaitable[Any], raw: RawRequest, monitor: UvloopMonitor) -> None:
        self._iterator: Any = awaitable.__await__()
        self._raw = raw
        self._monitor = monitor
        self.guard = monitor.guard

    @property
    def gi_yieldfrom(self) -> Any:
        """What it waits for, by the name that generators have for it."""
        return self._iterator

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> Followed:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """One step. Where it is the last one, whoever began the request sees it end."""
        result = self._iterator.send(value) if value is not None else next(self._iterator)
        self._suspended()
        return result

    def throw(self, *exc: Any) -> Any:
        """One step that starts with an exception."""
        result = self._iterator.throw(*exc)
        self._suspended()
        return result

    def close(self) -> None:
        """The coroutine is dropped."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

    @guarded
    def _suspended(self) -> None:
        monitor = self._monitor
        if monitor.alive and monitor.owner is self._raw:
            monitor.close(now_ns(), False)


class UvloopHooks(LoopHooks[UvloopMonitor]):
    """Replaces methods of each loop."""

    hook = "steps (uvloop)"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._hook = Hook(hub, self.hook)
        self._kinds: StepKinds | None = None

    def fits(self, loop: Any) -> bool:
        """Whether it is of uvloop, whatever its class is called."""
        return type(loop).__module__.partition(".")[0] == "uvloop"

    def begin(self, loop: Any) -> UvloopMonitor | None:
        """What runs now is a step whose beginning was not seen."""
        monitor = None
        try:
            kinds = self._kinds = self._kinds or StepKinds()
            monitor = self._hub.add_monitor(lambda sink: UvloopMonitor(sink, loop, kinds))
            self._hook.replace(loop, "call_soon", monitor.around_call_soon)
            self._hook.replace(loop, "call_soon_threadsafe", monitor.around_call_soon_threadsafe)
            self._hook.replace(loop, "call_later", monitor.around_call_later)
        except Exception as exc:  # noqa: BLE001 - an unknown uvloop must not stop the server
            if monitor is not None:
                self._hub.drop_monitor(monitor)
            self._hook.release(loop)
            self._hub.missing(self.hook, f"this uvloop is not known to us ({exc})")
            return None
        self._hub.working(self.hook)
        self._hub.hooks["loop polls"] = "active, as an estimate: uvloop polls in C"
        now = now_ns()
        monitor.begin(CURRENT.get(), monitor.current_unit(), now, now, WAKE_LOOP, now)
        return monitor

    def release(self, key: int) -> list[str]:
        """Its methods are its own again."""
        monitor = self._monitors.get(key)
        loop = None if monitor is None else monitor.loop()
        super().release(key)
        return [] if loop is None else self._hook.release(loop)

    def restore(self) -> list[str]:
        """Undo everything."""
        return super().restore() + self._hook.restore()
