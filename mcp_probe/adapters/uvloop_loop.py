"""uvloop: its handles and its poll are in C, so callbacks are wrapped where they are scheduled.

``call_soon``, ``call_soon_threadsafe`` and ``call_later`` are replaced on the loop instance; tasks
schedule their steps through them, so every task step is seen. Not seen: libuv's own socket
callbacks (what they wake became ready at the earliest when the loop was last seen to wait) and the
poll, so utilization and arrival delay are estimates from busy stretches.

Source: uvloop/loop.pyx, 0.22-0.23.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from mcp_probe.adapters.asyncio_loop import StepKinds
from mcp_probe.adapters.hook import Hook, guarded
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.loop_monitor import Inherited, LoopMonitor
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import WAKE_LOOP, WAKE_SOCKET, WAKE_THREAD

HOOK = "steps (uvloop)"
SAME_STRETCH_NS = 100_000
"""Callbacks closer than this belong to one busy stretch; an idle poll costs more (epoll wake ~50-100 us)."""
LONGEST_TIMER_S = 86_400
"""Timers beyond it are left alone: ``anyio.sleep_forever`` is a timer of infinity, which no integer holds."""
SLEPT_NS = 5_000_000
"""A gap this long between two callbacks was a poll that waited, and no mere moment without the CPU."""


class UvloopHooks:
    """As AsyncioHooks, for uvloop loops."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._monitors: dict[Any, LoopMonitor] = {}
        self._hook = Hook(hub, HOOK)
        self._kinds: StepKinds | None = None

    def follow(self, loop: Any) -> LoopMonitor | None:
        """Follow ``loop``, which runs on the calling thread. Idempotent."""
        monitor = self._monitors.get(loop)
        if monitor is not None:
            return monitor if monitor.alive else None
        try:
            self._kinds = self._kinds or StepKinds()
            for name in ("call_soon", "call_soon_threadsafe", "call_later"):
                if not callable(getattr(loop, name, None)):
                    raise RuntimeError(f"{name} does not exist")
            monitor = self._hub.add_monitor("uvloop")
            monitor.current_unit = lambda: id(asyncio.current_task(loop))
            monitor.is_running = loop.is_running
            self._install(loop, monitor)
        except Exception as exc:  # noqa: BLE001 - an unknown uvloop must not stop the server
            if monitor is not None:
                self._hub.drop_monitor(monitor)
            self._hub.missing(HOOK, f"this uvloop is not known to us ({exc}); only handlers are followed")
            return None
        for stale in [known for known in self._monitors if known.is_closed()]:
            self.release(stale)
        self._monitors[loop] = monitor
        self._hub.working(HOOK)
        self._hub.hooks["loop polls"] = "active, as an estimate: uvloop polls in C"
        task = asyncio.current_task()
        now = now_ns()
        monitor.begin(CURRENT.get(), id(task) if task is not None else 0, now, now, WAKE_LOOP, now)
        return monitor

    def release(self, loop: Any) -> list[str]:
        """Stop following ``loop``."""
        monitor = self._monitors.pop(loop, None)
        if monitor is not None:
            self._hub.drop_monitor(monitor)
        return self._hook.release(loop)

    def restore(self) -> list[str]:
        """Undo everything."""
        for monitor in list(self._monitors.values()):
            self._hub.drop_monitor(monitor)
        self._monitors.clear()
        return self._hook.restore()

    def _install(self, loop: Any, monitor: LoopMonitor) -> None:
        assert self._kinds is not None
        stamps = _Stamps(monitor, self._kinds.task_of, Guard(HOOK, self._hub.fail, lambda: self._broken(monitor)))
        self._hook.replace(loop, "call_soon", stamps.around_call_soon)
        self._hook.replace(loop, "call_soon_threadsafe", stamps.around_call_soon_threadsafe)
        self._hook.replace(loop, "call_later", stamps.around_call_later)

    def _broken(self, monitor: LoopMonitor) -> None:
        monitor.alive = False
        monitor.since = 0
        for raw in list(self._hub.requests.live.values()):
            raw.partial = True


class _Stamps:
    """Hands each callback of one loop over with the instant it became ready, as an argument of :meth:`_run`."""

    def __init__(self, monitor: LoopMonitor, task_of: Callable[[Any, Any], Any], guard: Guard) -> None:
        self._monitor = monitor
        self._task_of = task_of
        self._sleep = _Sleep(monitor)
        self.guard = guard

    def around_call_soon(self, call_soon: Any) -> Any:
        monitor, run = self._monitor, self._run

        def soon(callback: Any, *args: Any, context: Any = None) -> Any:
            stamp = (monitor.inherit or self._soon()) if monitor.alive else None
            if stamp is None:
                return call_soon(callback, *args, context=context)
            return call_soon(run, callback, stamp, args, context=context)

        return soon

    def around_call_soon_threadsafe(self, threadsafe: Any) -> Any:
        monitor, run = self._monitor, self._run

        def soon_threadsafe(callback: Any, *args: Any, context: Any = None) -> Any:
            stamp = self._now() if monitor.alive and threading.get_ident() != monitor.thread_id else None
            if stamp is None:
                return threadsafe(callback, *args, context=context)
            return threadsafe(run, callback, stamp, args, context=context)

        return soon_threadsafe

    def around_call_later(self, call_later: Any) -> Any:
        monitor, run = self._monitor, self._run

        def later(delay: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            stamp = self._due(delay) if monitor.alive else None
            if stamp is None:
                return call_later(delay, callback, *args, context=context)
            return call_later(delay, run, callback, stamp, args, context=context)

        return later

    @guarded
    def _soon(self) -> Inherited:
        return self._sleep.stamp()

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
        monitor = self._monitor
        if not monitor.alive or threading.get_ident() != monitor.thread_id:
            return callback(*args)
        task = self._begin(callback, stamp, args)
        try:
            return callback(*args)
        finally:
            monitor.inherit = None
            if monitor.alive:
                self._end(task)

    @guarded
    def _begin(self, callback: Any, stamp: Inherited, args: tuple[Any, ...]) -> Any:
        monitor = self._monitor
        now = now_ns()
        self._sleep.before_callback(now)
        earliest, ready, wake = stamp
        if ready > now:  # a timer that libuv rounded down
            earliest = ready = now
        task = self._task_of(callback, args)
        monitor.inherit = (earliest, ready, wake) if task is None else None
        monitor.begin(CURRENT.get(), id(task) if task is not None else 0, earliest, ready, wake, now)
        return task

    @guarded
    def _end(self, task: Any) -> None:
        monitor = self._monitor
        ended = now_ns()
        if monitor.since:
            monitor.close(ended, task is not None and task.done())
        else:  # a request that began within this callback ended its step with its coroutine
            monitor.now = ended


class _Sleep:
    """When the loop was last seen to sleep in its poll."""

    __slots__ = ("ended_ns", "monitor")

    def __init__(self, monitor: LoopMonitor) -> None:
        self.monitor = monitor
        self.ended_ns = monitor.now

    def stamp(self) -> Inherited:
        """When what is woken now became ready.

        Between two of our callbacks it is libuv that wakes, for a socket: just now where the loop slept until then,
        else at an unknown instant since it last slept.
        """
        monitor = self.monitor
        now = now_ns()
        if monitor.since or now - monitor.now >= SLEPT_NS:
            return now, now, WAKE_LOOP
        return self.ended_ns, now, WAKE_SOCKET

    def before_callback(self, now: int) -> None:
        """A gap before this callback: the loop polled; the busy stretch before it counts as one iteration."""
        monitor = self.monitor
        gap = now - monitor.now
        if gap >= SAME_STRETCH_NS:
            monitor.begin_poll(monitor.now)
            monitor.end_poll(now)
            if gap >= SLEPT_NS:
                self.ended_ns = now
