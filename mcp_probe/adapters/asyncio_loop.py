"""asyncio: every step of a request with its instants, every wake-up of it, every poll.

Handles that carry a request (by their context) are made as :class:`StampedHandle`; everything else
stays asyncio's own and costs nothing when it runs: what lies between two of our stamps is the loop's
own work. Replaced, and tested once at start-up: ``_call_soon`` (wake-ups), ``call_soon_threadsafe``
(stamped in the calling thread), ``call_at`` (timers know their deadline), ``_add_callback`` (sockets lie
between two polls), all on their classes, and the selector's ``select`` (busy and idle). The accelerator, where it is,
writes out ``_run_once``, too: a loop that turns in C wins back most of what the rest costs. Nothing is set on the
loop itself: an instance with more than 30 attributes loses CPython's inline values, which slowed
every access to the loop and cost 6 us a call.

A wake-up inherits: a callback that is no task step (a timer, a socket reader, a report from a worker
thread) passes on when *it* became ready to whatever it wakes.

Source: asyncio/base_events.py, selector_events.py and events.py, CPython 3.10-3.14.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import sys
import threading
import time
from asyncio import base_events, events, format_helpers, selector_events, tasks
from collections import deque
from contextvars import Context, copy_context
from types import BuiltinFunctionType, FunctionType
from typing import Any

from mcp_probe import native
from mcp_probe.adapters.patching import Patches
from mcp_probe.capture.current import CURRENT, WORKER
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.steps import Inherited, Track
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RING_NS, WAKE_LOOP, WAKE_SOCKET, WAKE_THREAD

HOOK = "steps (asyncio)"


class StampedHandle(events.Handle):
    """A callback of a request, with the instant it became ready (or what it inherits)."""

    __slots__ = ("stamp", "track")

    track: Track
    stamp: int | Inherited

    def _run(self) -> None:
        track = self.track
        if not track.alive:
            return _run_original(self)
        task = None
        try:
            task = track.task_of(self._callback, self._args)  # type: ignore[attr-defined]
            stamp = self.stamp
            now = now_ns()
            if now - track.now >= RING_NS:
                track.stretch(now)
            if type(stamp) is not int:
                earliest, ready, wake = stamp  # type: ignore[misc]
            else:
                earliest = ready = stamp
                wake = WAKE_LOOP
            if task is None:
                track.inherit = (earliest, ready, wake)
            owner = self._context.get(CURRENT)  # type: ignore[attr-defined]
            track.begin(owner, 0 if task is None else id(task), earliest, ready, wake, now)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            track.broken(exc)
        events.Handle._run(self)  # looked up each time: others may have wrapped it
        if track.alive:
            try:
                track.inherit = None
                track.close(now_ns(), task is not None and task.done())
            except Exception as exc:  # noqa: BLE001
                track.broken(exc)
        return None


def _run_original(handle: events.Handle) -> None:
    events.Handle._run(handle)


class StampedTimer(events.TimerHandle):
    """A timer of a request: it became ready at its deadline. Same layout, so a timer can become one."""

    __slots__ = ()

    def _run(self) -> None:
        due = round(self._when * 1e9)  # type: ignore[attr-defined]
        _run_inheriting(self, _run_original, self._loop, self._context, (due, due, WAKE_LOOP))  # type: ignore[attr-defined]


class SocketReady:
    """Stands in the ready queue for a socket's handle, which became ready between two polls."""

    __slots__ = ("_handle", "_track")

    def __init__(self, handle: Any, track: Track) -> None:
        self._handle = handle
        self._track = track

    @property
    def _cancelled(self) -> bool:
        cancelled: bool = self._handle._cancelled
        return cancelled

    def _run(self) -> None:
        handle, track = self._handle, self._track
        inherit = (track.event_earliest, track.event_ready, WAKE_SOCKET)
        _run_inheriting(handle, _run_own, handle._loop, handle._context, inherit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)  # asyncio's debug mode looks at more of a handle than at ``_run``

    def __repr__(self) -> str:
        return repr(self._handle)


def _run_own(handle: Any) -> None:
    handle._run()


def _run_inheriting(handle: Any, run: Any, loop: Any, context: Any, inherit: Inherited) -> None:
    """Run a handle that is no task step; what it wakes inherits."""
    track = _tracks.get(loop)
    if track is None or not track.alive:
        return run(handle)  # type: ignore[no-any-return]
    try:
        now = now_ns()
        if inherit[0] > now:  # a timer runs up to a clock tick before its deadline
            inherit = (now, now, inherit[2])
        track.inherit = inherit
        if now - track.now >= RING_NS:
            track.stretch(now)
        track.begin(context.get(CURRENT), 0, *inherit, now)
    except Exception as exc:  # noqa: BLE001
        track.broken(exc)
    run(handle)
    if track.alive:
        try:
            track.inherit = None
            track.close(now_ns(), False)
        except Exception as exc:  # noqa: BLE001
            track.broken(exc)
    return None


_tracks: dict[Any, Track] = {}
_scheduled: dict[Any, Track] = {}
"""Loops whose ``call_soon`` the accelerator may write out; a part of :data:`_tracks`."""
_turned: dict[Any, Track] = {}
"""Loops whose ``_run_once`` it may write out, too; a part of :data:`_scheduled`."""
_wake_up_pipes: dict[Any, Any] = {}


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


class AsyncioHooks:
    """Hooks for the asyncio loops of the process; ``follow`` takes each running loop in."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._patches = Patches()
        self._polls: dict[Any, Patches] = {}
        self._kinds: StepKinds | None = None
        self._schedules: list[Any] = []
        self.installed = False

    def install(self) -> None:
        """Patch the loops' classes, unless this interpreter lacks what we build on."""
        try:
            self._kinds = StepKinds()
            for owner, name in _SEAMS:
                if not callable(vars(owner).get(name)):
                    raise RuntimeError(f"{owner.__name__}.{name} does not exist")
        except Exception as exc:  # noqa: BLE001 - an unknown interpreter must not stop the server
            self._hub.missing(HOOK, f"this asyncio is not known to us ({exc}); only handlers are followed")
            return
        if native.core is not None:
            self._configure(self._kinds)
        accelerate = native.core is not None and _is_stock()
        for owner, name in _SEAMS:
            hook = _MAKERS[name](vars(owner)[name])
            self._patches.replace(owner, name, self._schedule(hook, name) if accelerate else hook)
        if accelerate:
            owner = base_events.BaseEventLoop
            self._patches.replace(owner, "call_soon", self._schedule(vars(owner)["call_soon"], "call_soon"))
            if _is_known_turn(vars(owner)["_run_once"]):
                self._patches.replace(owner, "_run_once", self._turn(vars(owner)["_run_once"]))
        self._hub.working(HOOK)
        self.installed = True

    def _schedule(self, hook: Any, name: str) -> Any:
        """``hook``, or what the accelerator does in its place on loops that it knows."""
        if name == "call_at":
            if not _are_known_timers(hook.__wrapped__):
                return hook
            cancelled = vars(base_events.BaseEventLoop)["_timer_handle_cancelled"]
            parts = (events.TimerHandle, StampedTimer, heapq.heappush, cancelled)
            timers = native.core.Timers(hook.__wrapped__, _tracks, *parts)
            self._schedules.append(timers)
            return timers
        if not name.startswith("call_soon"):
            return hook
        schedule = native.core.Schedule(hook, _scheduled, name, name == "call_soon_threadsafe")
        self._schedules.append(schedule)
        return schedule

    def _turn(self, original: Any) -> Any:
        add_callback = vars(base_events.BaseEventLoop)["_add_callback"]
        parts = (deque.popleft, heapq.heappop, add_callback, _wake_up_pipes, _own_clock())
        turn = native.core.Turn(original, _turned, *parts)
        self._schedules.append(turn)
        return turn

    def _configure(self, kinds: StepKinds) -> None:
        """Tell the accelerator what this interpreter's tasks and handles are."""
        native.core.configure(
            CURRENT,
            kinds.step_type,
            kinds.wakeup_type,
            asyncio.Task,
            FunctionType,
            events.Handle,
            events.Handle._run,
            deque.append,
            _report_exception,
            _describe,
        )

    def restore(self) -> list[str]:
        """Undo everything."""
        stuck = [sentence for loop in list(self._polls) for sentence in self.release(loop)]
        self.installed = False
        return stuck + self._patches.restore()

    def release(self, loop: Any) -> list[str]:
        """Stop following ``loop``."""
        track = _tracks.pop(loop, None)
        _wake_up_pipes.pop(loop, None)
        _scheduled.pop(loop, None)
        _turned.pop(loop, None)
        for schedule in self._schedules:
            schedule.forget()
        if track is not None:
            self._hub.drop_track(track)
        patches = self._polls.pop(loop, None)
        return patches.restore() if patches is not None else []

    def follow(self, loop: Any) -> Track | None:
        """Follow ``loop``, which runs on the calling thread. Idempotent; ``None`` where it can't be."""
        track = _tracks.get(loop)
        if track is not None:
            return track if track.alive else None
        if not self.installed or not isinstance(loop, base_events.BaseEventLoop) or self._kinds is None:
            return None
        for stale in [known for known in self._polls if known.is_closed()]:
            self.release(stale)
        track = self._hub.add_track("asyncio")
        track.stretches = True
        track.since = track.now  # what runs now is no step yet, but the loop is not idle
        track.task_of = self._kinds.task_of
        track.current_unit = lambda: id(asyncio.current_task(loop))
        track.is_running = loop.is_running
        track.broken = lambda exc: self._broken(track, exc)
        self._polls[loop] = self._patch_poll(loop, track)
        _wake_up_pipes[loop] = _wake_up_pipe_of(loop)
        _tracks[loop] = track
        if self._schedules and _is_stock_loop(loop):
            _scheduled[loop] = track
            track.closes_steps = not loop.get_debug()
            if _takes_stock_turns(loop):
                _turned[loop] = track
        return track

    def _patch_poll(self, loop: Any, track: Track) -> Patches:
        patches = Patches()
        selector = getattr(loop, "_selector", None)
        if selector is not None and callable(getattr(selector, "select", None)):
            patches.replace(selector, "select", _make_select(selector, track))
            track.quality = "exact"
            self._hub.working("loop polls")
        else:
            self._hub.missing("loop polls", f"{type(loop).__name__} has no selector; loop health is an estimate")
        return patches

    def _broken(self, track: Track, exc: Exception) -> None:
        track.alive = False
        track.since = 0
        self._hub.fail(HOOK, exc)
        for raw in list(self._hub.desk.live.values()):
            raw.partial = True


def _is_stock() -> bool:
    """Whether what the accelerator writes out is asyncio's own: nobody has replaced it before us."""
    loop, handle = vars(base_events.BaseEventLoop), vars(events.Handle)
    return _are_asyncios(
        *(loop.get(name) for name in ("call_soon", "_call_soon", "call_soon_threadsafe")), handle.get("_run")
    )


def _are_asyncios(*parts: Any) -> bool:
    """Whether they are functions of asyncio's loops and handles, and nobody has replaced them."""
    own = (base_events.__name__, events.__name__)
    return all(type(part) is FunctionType and part.__module__ in own for part in parts)


def _is_stock_loop(loop: Any) -> bool:
    """Whether its queue and how it is filled are asyncio's own."""
    own = vars(base_events.BaseEventLoop)
    return type(loop)._call_soon is own["_call_soon"] and type(getattr(loop, "_ready", None)) is deque


def _are_known_timers(call_at: Any) -> bool:
    """Whether they are asyncio's own, and what the accelerator's stand for."""
    timer = vars(events.TimerHandle)
    cancelled = vars(base_events.BaseEventLoop).get("_timer_handle_cancelled")
    return _are_asyncios(call_at, cancelled, *(timer.get(name) for name in ("__init__", "__lt__", "cancel")))


def _is_known_turn(run_once: Any) -> bool:
    """Whether it is asyncio's own, and does what the accelerator writes out."""
    names = ("_MIN_SCHEDULED_TIMER_HANDLES", "_MIN_CANCELLED_TIMER_HANDLES_FRACTION", "MAXIMUM_SELECT_TIMEOUT")
    return (
        type(run_once) is FunctionType
        and run_once.__module__ == base_events.__name__
        and sys.version_info < (3, 16)
        and [vars(base_events).get(name) for name in names] == [100, 0.5, 24 * 3600]
    )


def _own_clock() -> tuple[Any, dict[str, Any], Any, dict[str, Any], Any]:
    """``BaseEventLoop.time`` and its clock: (itself, its globals, the time module, that one's names, ``monotonic``).

    ``None`` for itself where that clock is not the one the accelerator reads, so that no loop's is taken for it.
    """
    own = vars(base_events.BaseEventLoop)["time"]
    is_known = (
        _are_asyncios(own)
        and type(time.monotonic) is BuiltinFunctionType
        and time.get_clock_info("monotonic").implementation == "clock_gettime(CLOCK_MONOTONIC)"
    )
    return own if is_known else None, vars(base_events), time, vars(time), time.monotonic


def _takes_stock_turns(loop: Any) -> bool:
    """Whether what its turns consist of is asyncio's own."""
    own = vars(selector_events.BaseSelectorEventLoop)
    return (
        type(loop)._run_once is vars(base_events.BaseEventLoop)["_run_once"]
        and type(loop)._process_events is own["_process_events"]
        and type(getattr(loop, "_scheduled", None)) is list
    )


def _report_exception(handle: Any, exc: BaseException) -> None:
    """What ``Handle._run`` does with an exception of its callback."""
    tell = format_helpers._format_callback_source
    debug = {"debug": handle._loop.get_debug()} if "debug" in (tell.__kwdefaults__ or ()) else {}  # since 3.13
    callback = tell(handle._callback, handle._args, **debug)
    context = {"message": f"Exception in callback {callback}", "exception": exc, "handle": handle}
    handle._loop.call_exception_handler(context)


def _describe(handle: Any) -> str:
    """As ``repr`` of asyncio's own handle."""
    parts = (handle._callback, handle._args, handle._loop, handle._context)
    when = getattr(handle, "_when", None)
    twin = events.Handle(*parts) if when is None else events.TimerHandle(when, *parts)
    twin._cancelled, twin._repr = handle._cancelled, handle._repr  # type: ignore[attr-defined]
    twin._source_traceback = handle._source_traceback  # type: ignore[attr-defined]
    return repr(twin)


def _make_call_soon(original: Any) -> Any:
    """``_call_soon``: a stamped handle for work of a request, asyncio's own for all else.

    What asyncio's own does is written out here (four lines), unless somebody has replaced it before us.
    """
    current = CURRENT
    clock = now_ns
    track_of = _tracks.get
    function = FunctionType
    plain = events.Handle if getattr(original, "__module__", None) == base_events.__name__ else None

    def _call_soon(self: Any, callback: Any, args: Any, context: Any) -> Any:
        track = track_of(self)
        if track is None:
            return original(self, callback, args, context)
        if context is None:
            context = copy_context()
        elif type(context) is not Context:  # asyncio only calls its run()
            return original(self, callback, args, context)
        inherit = track.inherit
        if inherit is None and (
            (raw := context.get(current)) is None
            or (raw.result_ns is not None and type(callback) is function)  # clean-up after an answer, no step
        ):
            if plain is None:
                return original(self, callback, args, context)
            handle = plain(callback, args, self, context)
        else:
            handle = stamped = StampedHandle(callback, args, self, context)
            stamped.track = track
            try:
                stamped.stamp = clock() if inherit is None else inherit
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                track.broken(exc)
        if handle._source_traceback:  # type: ignore[attr-defined]
            del handle._source_traceback[-1]  # type: ignore[attr-defined]
        self._ready.append(handle)
        return handle

    return _call_soon


def _make_call_at(original: Any) -> Any:
    """``call_at``: a request's timer remembers that its deadline is when it became ready."""

    def call_at(self: Any, when: Any, callback: Any, *args: Any, context: Any = None) -> Any:
        timer = original(self, when, callback, *args, context=context)
        if self in _tracks and type(timer) is events.TimerHandle:
            kept = timer._context  # type: ignore[attr-defined]
            if type(kept) is Context and kept.get(CURRENT) is not None:
                timer.__class__ = StampedTimer
        return timer

    call_at.__wrapped__ = original  # type: ignore[attr-defined]
    return call_at


def _make_add_callback(original: Any) -> Any:
    """``_add_callback``: a ready socket's handle, but not the loop's own wake-up pipe."""

    ready = SocketReady if native.core is None else native.core.SocketReady

    def _add_callback(self: Any, handle: Any) -> Any:
        track = _tracks.get(self)
        if track is None or not track.alive or handle._cancelled or handle is _wake_up_pipes.get(self):
            return original(self, handle)
        self._ready.append(ready(handle, track))
        return None

    return _add_callback


def _wake_up_pipe_of(loop: Any) -> Any:
    try:
        return loop._selector.get_key(loop._ssock).data[0]
    except (AttributeError, KeyError, TypeError, IndexError):
        return None


def _make_threadsafe(original: Any) -> Any:
    """``call_soon_threadsafe`` that stamps in the calling thread."""

    def call_soon_threadsafe(self: Any, callback: Any, *args: Any, context: Any = None) -> Any:
        if WORKER.transport:
            WORKER.transport = False
            return original(self, callback, *args, context=context)
        track = _tracks.get(self)
        if track is None or not track.alive or threading.get_ident() == track.thread_id:
            return original(self, callback, *args, context=context)
        try:
            stamped = _FromThread(callback, track)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            track.broken(exc)
            return original(self, callback, *args, context=context)
        return original(self, stamped, *args, context=context)

    return call_soon_threadsafe


def _make_select(selector: Any, track: Track) -> Any:
    """``selector.select`` that notes when each poll began and ended; what follows from that is the collector's work.

    The accelerator writes the standard ``EpollSelector``'s own ``select`` out besides.
    Source of that part: selectors.py, the same from CPython 3.10 to 3.13 but for a name.
    """
    original = selector.select
    if native.core is not None and _is_known_epoll(selector):
        return native.core.Poll(track, original, selector._selector.poll, selector._fd_to_key)
    clock = now_ns
    ring_ns = RING_NS
    watched = getattr(selector, "get_map", dict)

    def noted_select(timeout: Any = None) -> Any:
        if not track.alive:
            return original(timeout)
        try:
            began = clock()
            if began - track.now >= ring_ns:
                track.stretch(began)
            track.begin_poll(began)
            # Not for the pipe that other threads wake the loop by: those leave stamps of their own.
            asks_first = timeout != 0 and len(watched() or ()) > 1
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            asks_first = False
            track.broken(exc)
        found = original(0) if asks_first else None
        waited = asks_first and not found  # what it finds then came just as it returns
        if not found:
            found = original(timeout)
        if track.alive:
            try:
                now = clock()
                track.end_poll(now)
                if waited:
                    track.event_earliest = now
                track.since = now
            except Exception as exc:  # noqa: BLE001
                track.broken(exc)
        return found

    return noted_select


def _is_known_epoll(selector: Any) -> bool:
    return (
        type(selector) is getattr(selectors, "EpollSelector", None)
        and selector.select.__module__ == selectors.__name__  # nobody has replaced it before us
        and sys.version_info < (3, 16)
        and isinstance(getattr(selector, "_fd_to_key", None), dict)
        and hasattr(getattr(selector, "_selector", None), "poll")
    )


class _FromThread:
    """A callback handed over by another thread: what it wakes has been ready since then."""

    __slots__ = ("_callback", "_stamp", "_track")

    def __init__(self, callback: Any, track: Track) -> None:
        self._callback = callback
        self._track = track
        now = now_ns()
        self._stamp = (now, now, WAKE_THREAD)

    def __call__(self, *args: Any) -> Any:
        track = self._track
        track.inherit = self._stamp
        try:
            return self._callback(*args)
        finally:
            track.inherit = None

    def __repr__(self) -> str:
        return repr(self._callback)


_SEAMS: tuple[tuple[Any, str], ...] = (
    (base_events.BaseEventLoop, "_call_soon"),
    (base_events.BaseEventLoop, "call_soon_threadsafe"),
    (base_events.BaseEventLoop, "call_at"),
    (base_events.BaseEventLoop, "_add_callback"),
)
_MAKERS = {
    "_call_soon": _make_call_soon,
    "call_soon_threadsafe": _make_threadsafe,
    "call_at": _make_call_at,
    "_add_callback": _make_add_callback,
}
