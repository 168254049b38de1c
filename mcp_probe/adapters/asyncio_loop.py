"""asyncio: every step of a request with its instants, every wake-up of it, every poll.

Handles are made by the names in ``asyncio.events``: ours stand there (asyncio_handles.py), each a subclass that calls
asyncio's own. ``_add_callback`` tells that a socket's handle became ready between two polls, the selector's ``select``
when a loop is busy and when idle. Nothing is set on the loop itself: an instance with more than 30 attributes loses
CPython's inline values, which slowed every access to the loop and cost 6 us a call. No loop is held on to.

Source: asyncio/base_events.py, selector_events.py and events.py, CPython 3.10-3.15.
"""

from __future__ import annotations

import asyncio
import selectors
import weakref
from asyncio import base_events, events, tasks
from collections import deque
from collections.abc import Callable
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

from mcp_probe import native
from mcp_probe.adapters import asyncio_handles
from mcp_probe.adapters.hook import Hook
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RING_NS, WAKE_SOCKET

HOOK = "steps (asyncio)"
HANDLES = ("Handle", "TimerHandle", "_ThreadSafeHandle")
"""Names in ``asyncio.events`` by which loops make their handles; the last one exists from CPython 3.14 on."""


class StepKinds:
    """Tells task steps from other callbacks, by the types this interpreter uses for them.

    Found by running a task on a loop that only records, so no private name is guessed. Since CPython 3.14 a task may
    only step on the running loop, and not inside another task: for the moment of the check that loop stands for the
    running one, and the caller's task is left.
    """

    class Recorder:
        """As much of a loop as a future and a task ask for."""

        def __init__(self) -> None:
            self.calls: list[tuple[Any, tuple[Any, ...], Any]] = []

        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> None:
            self.calls.append((callback, args, context))

        def get_debug(self) -> bool:
            return False

    def __init__(self) -> None:
        loop: Any = self.Recorder()
        future: asyncio.Future[None] = asyncio.Future(loop=loop)

        async def wait() -> None:
            await future

        coroutine = wait()
        task = asyncio.Task(coroutine, loop=loop, name="a task of mcp_probe")  # a name, or it takes the server's next
        running = events._get_running_loop()
        caller = None if running is None else asyncio.current_task(running)
        if running is not None and caller is not None:
            tasks._leave_task(running, caller)
        try:
            events._set_running_loop(loop)
            step, _, context = loop.calls.pop()
            context.run(step)
            future.set_result(None)
            wakeup, args, context = loop.calls.pop()
            context.run(wakeup, *args)
        finally:
            events._set_running_loop(running)
            if running is not None and caller is not None:
                tasks._enter_task(running, caller)
            coroutine.close()  # one that could not be stepped is dropped without a word on the server's stderr
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        if step.__self__ is not task or wakeup.__self__ is not task or not task.done():
            raise RuntimeError("task steps of this interpreter do not carry their task")
        self.step_type = type(step)
        self.wakeup_type = type(wakeup)

    def task_of(self, callback: Any, args: Any) -> Any:
        """The task whose step ``callback(*args)`` is, or ``None``."""
        kind = type(callback)
        if kind is self.step_type and kind is not self.wakeup_type:
            return callback.__self__
        if kind is self.wakeup_type and args:  # a wake-up is called with the future that is done
            task = callback.__self__
            return task if isinstance(task, asyncio.Task) else None
        return None


class _Followed:
    """One loop that is followed, and its poll. Holds on to neither."""

    def __init__(self, loop: Any, monitor: LoopMonitor, forget: Callable[[Any], None]) -> None:
        self.loop = weakref.ref(loop, forget)
        self.monitor = monitor

    def is_running(self) -> bool:
        loop = self.loop()
        return loop is not None and loop.is_running()

    def is_closed(self) -> bool:
        loop = self.loop()
        return loop is None or loop.is_closed()

    @property
    def selector(self) -> Any:
        """What its loop polls with; ``None`` where it has none, or a stand-in for one."""
        found = getattr(self.loop(), "_selector", None)
        return found if issubclass(type(found), selectors.BaseSelector) else None


class AsyncioHooks:
    """Hooks for the asyncio loops of the process; ``follow`` takes each running loop in."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._hook = Hook(hub, HOOK)
        self._polls = Hook(hub, "loop polls")
        self._followed: dict[int, _Followed] = {}  # by id(loop)
        self._gone: deque[LoopMonitor] = deque()  # of loops that have died
        self._kinds: StepKinds | None = None
        self.installed = False

    def install(self) -> None:
        """Put our handles in the place of asyncio's, unless this interpreter lacks what we build on."""
        try:
            kinds = StepKinds()
            ours = {name: asyncio_handles.handle_class(vars(events)[name]) for name in HANDLES if name in vars(events)}
            if native.core is not None:
                native.core.configure(CURRENT, kinds.step_type, kinds.wakeup_type, asyncio.Task, FunctionType)
            for name, cls in ours.items():
                self._hook.replace(events, name, partial(_instead_of, cls))
            _check_handles(ours["Handle"])
            self._hook.wrap(base_events.BaseEventLoop, "_add_callback", before=self._note_socket)
        except Exception as exc:  # noqa: BLE001 - an unknown interpreter must not stop the server
            self._hook.restore()
            self._hub.missing(HOOK, f"this asyncio is not known to us ({exc}); only handlers are followed")
            return
        self._kinds = kinds
        self._hub.working(HOOK)
        self.installed = True

    def restore(self) -> list[str]:
        """Undo everything."""
        self.installed = False
        stuck = [sentence for key in list(self._followed) for sentence in self._release(key)]
        self._drop_gone()
        return stuck + self._polls.restore() + self._hook.restore()

    def _release(self, key: int) -> list[str]:
        """Stop following a loop."""
        followed = self._followed.pop(key, None)
        if followed is None:
            return []
        asyncio_handles.unfollow(followed.monitor)
        self._hub.drop_monitor(followed.monitor)
        selector = followed.selector
        return [] if selector is None else self._polls.release(selector)

    def _drop_gone(self) -> None:
        while self._gone:
            self._hub.drop_monitor(self._gone.popleft())

    def follow(self, loop: Any) -> LoopMonitor | None:
        """Follow ``loop``, which runs on the calling thread. Idempotent; ``None`` where it can't be."""
        known = self._followed.get(id(loop))
        if known is not None and known.loop() is loop:
            return known.monitor if known.monitor.alive else None
        if not self.installed or not isinstance(loop, base_events.BaseEventLoop) or self._kinds is None:
            return None
        for key in [key for key, other in self._followed.items() if other.is_closed()]:
            self._release(key)
        self._drop_gone()
        monitor = self._hub.add_monitor("asyncio")
        followed = _Followed(loop, monitor, partial(_forget, self._followed, self._gone, id(loop)))
        monitor.loop_id = id(loop)
        monitor.stretches = monitor.closes_steps = True
        monitor.since = monitor.now  # what runs now is no step yet, but the loop is not idle
        monitor.task_of = self._kinds.task_of
        monitor.current_unit = _current_unit
        monitor.is_running = followed.is_running
        monitor.broken = partial(self._broken, monitor)
        selector = followed.selector
        if selector is not None:
            self._polls.replace(selector, "select", lambda original: _noted_select(monitor, original, selector))
            monitor.quality = "exact"
            self._hub.working("loop polls")
        else:
            self._hub.missing("loop polls", f"{type(loop).__name__} has no selector; loop health is an estimate")
        self._followed[id(loop)] = followed
        asyncio_handles.follow(monitor)
        return monitor

    def _broken(self, monitor: LoopMonitor, exc: Exception) -> None:
        monitor.alive = False
        monitor.since = 0
        self._hub.fail(HOOK, exc)
        for raw in list(self._hub.requests.live.values()):
            raw.partial = True

    def _note_socket(self, loop: Any, handle: Any) -> None:
        """A socket's handle became ready between two polls; one that was made before we came has no place for that."""
        followed = self._followed.get(id(loop))
        if followed is not None and followed.monitor.alive and hasattr(handle, "stamp"):
            monitor = followed.monitor
            handle.stamp = (monitor.event_earliest, monitor.event_ready, WAKE_SOCKET)


def _forget(followed: dict[int, _Followed], gone: deque[LoopMonitor], key: int, _: object) -> None:
    """A loop has died, in the middle of anything: no lock is taken here."""
    found = followed.pop(key, None)
    if found is not None:
        found.monitor.alive = False
        asyncio_handles.unfollow(found.monitor)
        gone.append(found.monitor)


def _instead_of(ours: Any, _: Any) -> Any:
    return ours


def _current_unit() -> int:
    return id(asyncio.current_task())


def _check_handles(ours: Any) -> None:
    """Raises: RuntimeError where loops make their handles by other names than :data:`HANDLES`."""
    loop: Any = SimpleNamespace(_ready=[], get_debug=lambda: False)
    base_events.BaseEventLoop._call_soon(loop, print, (), None)  # type: ignore[attr-defined]
    if [type(handle) for handle in loop._ready] != [ours]:
        raise RuntimeError("its loops do not make their handles by the name in asyncio.events")


def _noted_select(monitor: LoopMonitor, original: Any, selector: Any) -> Any:
    """``selector.select`` that notes when each poll began and ended. Holds on to no selector."""
    function = _without_self(original)
    if native.core is not None:
        return native.core.Poll(monitor, function, selector)
    return _make_select(monitor, function, weakref.ref(selector))


def _without_self(select: Any) -> Any:
    """The function of the selector's class; or what somebody has put on the instance, called as that one."""
    function = getattr(select, "__func__", None)
    return (lambda _, *args, **kwargs: select(*args, **kwargs)) if function is None else function


def _make_select(monitor: LoopMonitor, function: Any, selector: Callable[[], Any]) -> Any:
    """Twin of ``Poll`` in native/poll.h. ``selector``: a weak reference."""
    clock = now_ns

    def noted_select(*args: Any, **kwargs: Any) -> Any:
        if monitor.alive:
            try:
                _begin_poll(monitor, clock())
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                monitor.broken(exc)
        try:
            return function(selector(), *args, **kwargs)
        finally:
            if monitor.alive:
                try:
                    now = clock()
                    monitor.end_poll(now)
                    monitor.since = now
                except Exception as exc:  # noqa: BLE001
                    monitor.broken(exc)

    return noted_select


def _begin_poll(monitor: LoopMonitor, now: int) -> None:
    if monitor.owner is not None:  # a request began in a step that we did not see end
        monitor.close(now, False)
    elif now - monitor.now >= RING_NS:
        monitor.stretch(now)
    monitor.begin_poll(now)
    asyncio_handles.follow(monitor)  # loops may take turns on a thread
