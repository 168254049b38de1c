"""asyncio's handles, with the instant they became ready: a subclass each of ``Handle`` and its two subclasses.

What asyncio does in ``__init__`` and ``_run`` it does itself: both are called. A handle holds nothing of ours but
numbers, so whatever dies with a bare handle dies with ours. Twin of native/handle.h.

A wake-up inherits: a callback that is no task step (a timer, a socket reader, a report from another thread) passes on
when *it* became ready to whatever it wakes.

Source: asyncio/events.py, CPython 3.10-3.15.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable
from contextvars import Context
from threading import get_ident
from types import FunctionType
from typing import Any

from mcp_probe import native
from mcp_probe.adapters.step_kinds import StepKinds
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.capture.loop_steps import Inherited
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RING_NS, WAKE_LOOP, WAKE_THREAD

_running: dict[int, LoopMonitor] = {}
"""Thread -> the monitor of the loop that runs there."""
_loops: dict[int, LoopMonitor] = {}
"""``id(loop)`` -> its monitor, while it runs on some thread."""


_task_of: Callable[[Any, Any], Any] = lambda callback, args: None  # noqa: E731
"""Set by :func:`configure`."""


def configure(kinds: StepKinds) -> None:
    """Take over what was found out about this interpreter."""
    global _task_of
    _task_of = kinds.task_of
    if native.core is not None:
        native.core.configure(CURRENT, kinds.step_type, kinds.wakeup_type, asyncio.Task, FunctionType)


def follow(monitor: LoopMonitor) -> None:
    """The loop of ``monitor`` runs on its thread from now on."""
    if native.core is not None:
        native.core.follow(monitor)
        return
    unfollow(_running.get(monitor.thread_id))
    _running[monitor.thread_id] = _loops[monitor.loop_id] = monitor


def unfollow(monitor: LoopMonitor | None) -> None:
    """It runs there no longer."""
    if native.core is not None:
        native.core.unfollow(monitor)
    elif monitor is not None and _running.get(monitor.thread_id) is monitor:
        del _running[monitor.thread_id]
        _loops.pop(monitor.loop_id, None)


class _Known(type):
    """The class of our classes. While one stands in the place of asyncio's, what is an instance of that is of this.

    ``TimerHandle`` compares with instances of its own name only: else timers from before would be in no order.
    """

    __slots__ = ()

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._stands_for()) or type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls._stands_for()) or type.__subclasscheck__(cls, other)

    def _stands_for(cls) -> tuple[type, ...]:
        base = cls.__base__
        return (base,) if base is not None and _classes.get(base) is cls else ()  # else it is somebody's subclass


def _stamped(base: Any) -> Any:
    """A subclass of ``base`` whose handles know when they became ready."""

    class Stamped(base, metaclass=_Known):  # type: ignore[misc]
        __slots__ = ("stamp",)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            base.__init__(self, *args, **kwargs)
            if self._source_traceback:
                del self._source_traceback[-1]  # this frame
            monitor = _loops.get(id(self._loop))
            try:
                self.stamp = _stamp_now(monitor)
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                if monitor is not None:
                    monitor.broken(exc)

        def _run(self) -> None:
            _run(self, base._run)
            self = None  # type: ignore[assignment]  # see _run()

    return Stamped


def _stamped_timer(base: Any) -> Any:
    """The same for timers, which become ready at their deadline."""

    class Stamped(base, metaclass=_Known):  # type: ignore[misc]
        __slots__ = ()

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            base.__init__(self, *args, **kwargs)
            if self._source_traceback:
                del self._source_traceback[-1]

        @property
        def stamp(self) -> Inherited:
            # A timer runs up to a clock tick before its deadline. Anything may stand there: no number, no finite one.
            now, when = now_ns(), getattr(self, "_when", None)
            due = int(when * 1e9) if type(when) is float and 0 < when * 1e9 < now else now
            return due, due, WAKE_LOOP

        def _run(self) -> None:
            _run(self, base._run)
            self = None  # type: ignore[assignment]  # see _run()

    return Stamped


def _stamp_now(monitor: LoopMonitor | None) -> int | Inherited:
    """When a handle that is made now became ready; a tuple is passed on to what it wakes."""
    if monitor is None:
        return now_ns()
    if monitor.thread_id != get_ident():
        now = now_ns()
        return now, now, WAKE_THREAD
    return now_ns() if monitor.inherit is None else monitor.inherit


def _run(handle: Any, original: Callable[[Any], None]) -> None:
    """Run ``handle``. As asyncio's own ``_run`` it lets go of it: a traceback may keep this frame alive."""
    monitor = _running.get(get_ident())
    # Another loop, which is not followed, may run on the thread now. Any of a handle's slots may have been deleted.
    if monitor is None or not monitor.alive or id(getattr(handle, "_loop", None)) != monitor.loop_id:
        original(handle)
        handle = None
        return
    task, followed = None, False
    try:
        task, followed = _begin(monitor, handle, getattr(handle, "stamp", None))
    except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
        monitor.broken(exc)
    try:
        original(handle)
    finally:
        if monitor.alive:
            try:
                _end(monitor, task, followed)
            except Exception as exc:  # noqa: BLE001
                monitor.broken(exc)
        handle = task = None


def _begin(monitor: LoopMonitor, handle: Any, stamp: Any) -> tuple[Any, bool]:
    """(the task whose step begins, whether what begins is followed)."""
    now = now_ns()
    if monitor.owner is not None:  # a request began in a step that we did not see end
        monitor.close(now, False)
    elif now - monitor.now >= RING_NS:
        monitor.stretch(now)
    context, callback = getattr(handle, "_context", None), getattr(handle, "_callback", None)
    owner = context.get(CURRENT) if type(context) is Context else None
    if stamp is None:  # made without its __init__, or that failed
        stamp = now
    inherited = type(stamp) is tuple
    # Where a request's answer is out, what no task does is clean-up: not worth a mark.
    clean_up = owner is not None and owner.result_ns is not None and type(callback) is FunctionType
    if not inherited and (owner is None or clean_up):
        return None, False
    earliest, ready, wake = stamp if inherited else (stamp, stamp, WAKE_LOOP)
    task = _task_of(callback, getattr(handle, "_args", None))
    if task is None:
        monitor.inherit = (earliest, ready, wake)
    monitor.begin(owner, 0 if task is None else id(task), earliest, ready, wake, now)
    return task, True


def _end(monitor: LoopMonitor, task: Any, followed: bool) -> None:
    now = now_ns()
    if followed:
        monitor.inherit = None
        monitor.close(now, task is not None and task.done())
    elif monitor.owner is not None:  # a request began in the middle of this step
        monitor.close(now, False)
    elif now - monitor.now >= RING_NS:
        monitor.stretch(now)
    else:
        monitor.now = monitor.since = now


def handle_class(base: type) -> Any:
    """Our subclass of one of asyncio's classes of handles: one for each, of the same name.

    Raises: RuntimeError where ``base`` is not made as we know it.
    """
    if base not in _classes:
        if native.core is not None:
            made = native.core.handle_class(base, _Known)
        else:
            made = _stamped_timer(base) if issubclass(base, events.TimerHandle) else _stamped(base)
        made.__name__ = made.__qualname__ = base.__name__  # its repr and its errors show it
        _classes[base] = made
    return _classes[base]


_classes: dict[type, Any] = {}
