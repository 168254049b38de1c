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
from asyncio import base_events, events
from collections.abc import Callable
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any

from mcp_probe import native
from mcp_probe.adapters import asyncio_handles
from mcp_probe.adapters.hook import Hook, Inherited
from mcp_probe.adapters.loop_hooks import LoopHooks, asyncio_tasks, weakly
from mcp_probe.adapters.step_kinds import StepKinds
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.loop_monitor import EVERYTHING, LoopMonitor, StepSink
from mcp_probe.capture.socket_reads import readable_since
from mcp_probe.clock import now_ns
from mcp_probe.record.assemble import LATE_NS
from mcp_probe.record.raw import RING_NS, WAKE_SOCKET

HANDLES = ("Handle", "TimerHandle", "_ThreadSafeHandle")
"""Names in ``asyncio.events`` by which loops make their handles; the last one exists from CPython 3.14 on."""


class AsyncioMonitor(LoopMonitor):
    """Callbacks that are nobody's are not timed one by one: from stamp to stamp, as long as the loop does not poll."""

    __slots__ = ()

    def __init__(self, sink: StepSink, loop: Any) -> None:
        super().__init__(sink, "asyncio", EVERYTHING, weakly(loop, self._loop_died), AsyncioHooks.hook)
        self.loop_id = id(loop)
        self.stretches = True
        self.since = self.now  # what runs now is no step yet, but the loop is not idle

    def current_unit(self) -> int:
        """Of the loop that runs on this thread."""
        task = asyncio.current_task()
        return 0 if task is None else id(task)

    def tasks(self) -> dict[int, Any]:
        """asyncio keeps them."""
        return asyncio_tasks(self.loop())

    def _loop_died(self, _: object) -> None:
        """In the middle of anything: no lock is taken here."""
        self.alive = False
        asyncio_handles.unfollow(self)


class AsyncioHooks(LoopHooks[AsyncioMonitor]):
    """Hooks for the asyncio loops of the process; ``follow`` takes each running loop in."""

    hook = "steps (asyncio)"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._hook = Hook(hub, self.hook)
        self._polls = Hook(hub, "loop polls")
        self.installed = False

    def install(self) -> None:
        """Put our handles in the place of asyncio's, unless this interpreter lacks what we build on."""
        try:
            kinds = StepKinds()
            ours = {name: asyncio_handles.handle_class(vars(events)[name]) for name in HANDLES if name in vars(events)}
            asyncio_handles.configure(kinds)
            for name, cls in ours.items():
                self._hook.replace(events, name, partial(_instead_of, cls))
            _check_handles(ours["Handle"])
            self._hook.wrap(base_events.BaseEventLoop, "_add_callback", before=self._note_socket)
        except Exception as exc:  # noqa: BLE001 - an unknown interpreter must not stop the server
            self._hook.restore()
            self._hub.missing(self.hook, f"this asyncio is not known to us ({exc})")
            return
        self._hub.working(self.hook)
        self.installed = True

    def restore(self) -> list[str]:
        """Undo everything."""
        self.installed = False
        return super().restore() + self._polls.restore() + self._hook.restore()

    def release(self, key: int) -> list[str]:
        """Its handles stay ours, and pass through."""
        monitor = self._monitors.get(key)
        if monitor is None:
            return []
        asyncio_handles.unfollow(monitor)
        super().release(key)
        selector = _selector_of(monitor.loop())
        return [] if selector is None else self._polls.release(selector)

    def fits(self, loop: Any) -> bool:
        """Whether it is made as asyncio's own are."""
        return self.installed and isinstance(loop, base_events.BaseEventLoop)

    def begin(self, loop: Any) -> AsyncioMonitor | None:
        """Without its polls nothing is known of a loop: neither when it is idle, nor when a socket became ready."""
        selector = _selector_of(loop)
        if selector is None:
            self._hub.missing("loop polls", f"{type(loop).__name__} polls in a way that is not known to us")
            return None
        monitor = self._hub.add_monitor(lambda sink: AsyncioMonitor(sink, loop))
        self._polls.replace(selector, "select", lambda original: _noted_select(monitor, original, selector))
        self._hub.working("loop polls")
        asyncio_handles.follow(monitor)
        return monitor

    def _note_socket(self, loop: Any, handle: Any) -> None:
        """A socket's handle became ready between two polls; one that was made before we came has no place for that.

        If the polls lie far apart and data came, the kernel says since when they were there at the latest.
        """
        monitor = self._monitors.get(id(loop))
        if monitor is None or not monitor.alive or not hasattr(handle, "stamp"):
            return
        earliest, ready = monitor.event_earliest, monitor.event_ready
        if ready - earliest > LATE_NS:
            sock = _socket_read_by(getattr(handle, "_callback", None))
            since = None if sock is None else readable_since(sock)
            if since is not None and since < ready:
                ready = max(since, earliest)
        handle.stamp = (earliest, ready, WAKE_SOCKET)


def _socket_read_by(callback: Any) -> Any:
    """The socket that a transport's reading callback reads from; ``None`` for all others."""
    if type(callback) is not MethodType or callback.__func__.__name__ != "_read_ready":
        return None
    transport = callback.__self__
    return transport.get_extra_info("socket") if isinstance(transport, asyncio.Transport) else None


def _selector_of(loop: Any) -> Any:
    """What ``loop`` polls with; ``None`` where it has none, or a stand-in for one."""
    found = getattr(loop, "_selector", None)
    return found if issubclass(type(found), selectors.BaseSelector) else None


def _instead_of(ours: Any, _: Any) -> Any:
    return ours


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
    # What looks the method up at each call would hold the selector, and cost each poll a call more.
    function = getattr(select.found if isinstance(select, Inherited) else select, "__func__", None)
    return (lambda _, *args, **kwargs: select(*args, **kwargs)) if function is None else function


def _make_select(monitor: LoopMonitor, function: Any, selector: Callable[[], Any]) -> Any:
    """Twin of ``Poll`` in native/poll.h. ``selector``: a weak reference."""
    clock = now_ns

    def noted_select(*args: Any, **kwargs: Any) -> Any:
        if monitor.alive:
            try:
                monitor.may_wait = (args or (*kwargs.values(), None))[0] != 0
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
