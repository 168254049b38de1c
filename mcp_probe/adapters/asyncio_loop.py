"""asyncio: every callback with its context, every wake-up with its instant, every poll.

Three names are used and tested once at start-up: ``Handle._run`` (all callbacks),
``BaseEventLoop._call_soon`` (wake-ups: the handle made there carries its stamp) and the selector's
``select`` (busy and idle). The hot paths are written out flat: one Python call costs as much as all
the work in it. Costs per callback are in docs/performance.md.

A wake-up inherits: a callback that is no task step (a timer, a socket reader, a report from a worker
thread) passes on when *it* became ready to whatever it wakes.

Source: asyncio/base_events.py and events.py, CPython 3.10-3.14.
"""

from __future__ import annotations

import asyncio
import math
import select
import selectors
import sys
import threading
from asyncio import base_events, events
from typing import Any

from mcp_probe.adapters.patching import Patches
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.steps import RING_NS, Inherited, Track
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import WAKE_LOOP, WAKE_SOCKET, WAKE_THREAD

HOOK = "steps (asyncio)"


class StampedHandle(events.Handle):
    """A callback scheduled through ``call_soon``, with the instant it became ready (or what it inherits)."""

    __slots__ = ("stamp", "track")

    track: Track
    stamp: int | Inherited


class StepKinds:
    """Tells task steps from other callbacks, by the types this interpreter uses for them.

    Found by running a task on a loop that only records, so no private name is guessed.
    """

    def __init__(self) -> None:
        class Recorder:
            def __init__(self) -> None:
                self.calls: list[tuple[Any, tuple[Any, ...], Any]] = []

            def call_soon(self, callback: Any, *args: Any, context: Any = None) -> None:
                self.calls.append((callback, args, context))

            def get_debug(self) -> bool:
                return False

            def is_running(self) -> bool:
                return False

        loop: Any = Recorder()
        future: asyncio.Future[None] = asyncio.Future(loop=loop)

        async def wait() -> None:
            await future

        task = asyncio.Task(wait(), loop=loop)
        step, _, context = loop.calls.pop()
        context.run(step)
        future.set_result(None)
        wakeup, args, context = loop.calls.pop()
        context.run(wakeup, *args)
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
    """Hooks for all asyncio loops of the process; ``follow`` takes each running loop in."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._patches = Patches()
        self._tracks: dict[Any, Track] = {}
        self._loop_patches: dict[Any, Patches] = {}
        self.installed = False

    def install(self) -> None:
        """Patch ``Handle._run``, unless this interpreter lacks what we build on."""
        try:
            kinds = StepKinds()
            for owner, name in ((events.Handle, "_run"), (base_events.BaseEventLoop, "_call_soon")):
                if not callable(vars(owner).get(name)):
                    raise RuntimeError(f"{owner.__name__}.{name} does not exist")
        except Exception as exc:  # noqa: BLE001 - an unknown interpreter must not stop the server
            self._hub.missing(HOOK, f"this asyncio is not known to us ({exc}); only handlers are followed")
            return
        self._patches.replace(events.Handle, "_run", self._make_run(vars(events.Handle)["_run"], kinds))
        self._hub.working(HOOK)
        self.installed = True

    def restore(self) -> list[str]:
        """Undo everything."""
        stuck = self._patches.restore()
        for loop in list(self._tracks):
            stuck += self.release(loop)
        self.installed = False
        return stuck

    def release(self, loop: Any) -> list[str]:
        """Stop following ``loop``."""
        track = self._tracks.pop(loop, None)
        if track is not None:
            self._hub.drop_track(track)
        patches = self._loop_patches.pop(loop, None)
        return patches.restore() if patches is not None else []

    def follow(self, loop: Any) -> Track | None:
        """Follow ``loop``, which runs on the calling thread. Idempotent."""
        track = self._tracks.get(loop)
        if track is not None or not self.installed:
            return track
        if not isinstance(loop, base_events.BaseEventLoop):
            return None
        for stale in [known for known in self._tracks if known.is_closed()]:
            self.release(stale)
        track = self._hub.add_track("asyncio")
        track.current_unit = lambda: id(asyncio.current_task(loop))
        patches = Patches()
        patches.replace(loop, "_call_soon", self._make_call_soon(loop, track))
        patches.replace(loop, "call_soon_threadsafe", _make_threadsafe(loop.call_soon_threadsafe, track))
        selector = getattr(loop, "_selector", None)
        if selector is not None and callable(getattr(selector, "select", None)):
            make = _make_epoll_select if _knows_epoll(selector) else _make_select
            patches.replace(selector, "select", make(selector, loop._ready, track))
            track.quality = "exact"
            self._hub.working("loop polls")
        else:
            self._hub.missing("loop polls", f"{type(loop).__name__} has no selector; loop health is an estimate")
        self._tracks[loop] = track
        self._loop_patches[loop] = patches
        self._take_over_running_step(track)
        return track

    def _take_over_running_step(self, track: Track) -> None:
        """We are inside a callback that began before us: it has no known beginning."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        now = now_ns()
        track.begin(CURRENT.get(), id(task) if task is not None else 0, now, now, WAKE_LOOP, now)

    def _make_call_soon(self, loop: Any, track: Track) -> Any:
        """``BaseEventLoop._call_soon`` that makes stamped handles."""
        append = loop._ready.append
        clock = now_ns

        def _call_soon(callback: Any, args: Any, context: Any) -> Any:
            handle = StampedHandle(callback, args, loop, context)
            if handle._source_traceback:  # type: ignore[attr-defined]
                del handle._source_traceback[-1]  # type: ignore[attr-defined]
            inherit = track.inherit
            handle.stamp = clock() if inherit is None else inherit
            handle.track = track
            append(handle)
            return handle

        return _call_soon

    def _make_run(self, original: Any, kinds: StepKinds) -> Any:
        """``Handle._run``. Task steps are run right here; all other callbacks go through the original."""
        hooks = self
        step_type, wakeup_type, task_type = kinds.step_type, kinds.wakeup_type, asyncio.Task
        clock = now_ns
        current = CURRENT
        ring_ns = RING_NS

        def _run(self: Any) -> None:
            if type(self) is not StampedHandle:
                return hooks._run_unstamped(self, original)
            track = self.track
            callback = self._callback
            kind = type(callback)
            if not track.alive or (
                kind is not step_type
                and not (kind is wakeup_type and self._args and isinstance(callback.__self__, task_type))
            ):
                return hooks._run_plain(self, original)
            try:
                owner = self._context.get(current)
                track.since = since = track.now
                if owner is not None:
                    stamp = self.stamp
                    if type(stamp) is int:
                        track.begin(owner, id(callback.__self__), stamp, stamp, 0, since)
                    else:
                        track.begin(owner, id(callback.__self__), *stamp, since)
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                hooks._broken(track, exc)
                return original(self)  # type: ignore[no-any-return]
            try:
                self._context.run(callback, *self._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as exc:  # noqa: BLE001 - as the original; a task step never raises anything else
                self._loop.call_exception_handler({"message": f"Exception in {self!r}", "exception": exc, "handle": self})
            try:
                now = clock()
                if track.owner is None and now - since < ring_ns:
                    track.now = now
                elif track.alive:
                    track.close(now, callback.__self__.done())
            except Exception as exc:  # noqa: BLE001
                hooks._broken(track, exc)

        return _run

    def _run_plain(self, handle: Any, original: Any) -> None:
        """A callback that is no task step: what it wakes inherits when it became ready."""
        track = handle.track
        if not track.alive:
            return original(handle)  # type: ignore[no-any-return]
        stamp = handle.stamp
        return self._run_inheriting(handle, original, track, (stamp, stamp, WAKE_LOOP) if type(stamp) is int else stamp)

    def _run_unstamped(self, handle: Any, original: Any) -> None:
        """Timers and sockets, whose handles asyncio makes itself: when they became ready is looked up."""
        track = self._tracks.get(handle._loop)
        if track is None or not track.alive or track.thread_id != threading.get_ident():
            return original(handle)  # type: ignore[no-any-return]
        if isinstance(handle, events.TimerHandle):
            due = min(round(handle._when * 1e9), track.now)  # type: ignore[attr-defined]
            return self._run_inheriting(handle, original, track, (due, due, WAKE_LOOP))
        return self._run_inheriting(handle, original, track, (track.prev_poll_end, track.poll_end, WAKE_SOCKET))

    def _run_inheriting(self, handle: Any, original: Any, track: Track, inherit: Inherited) -> None:
        try:
            track.inherit = inherit
            track.begin(handle._context.get(CURRENT), 0, *inherit, track.now)
        except Exception as exc:  # noqa: BLE001
            self._broken(track, exc)
            return original(handle)  # type: ignore[no-any-return]
        original(handle)
        try:
            track.inherit = None
            if track.alive:
                track.close(now_ns(), False)
        except Exception as exc:  # noqa: BLE001
            self._broken(track, exc)
        return None

    def _broken(self, track: Track, exc: Exception) -> None:
        track.alive = False
        track.since = 0
        self._hub.fail(HOOK, exc)
        for raw in list(self._hub.desk.live.values()):
            raw.partial = True


def _make_select(selector: Any, ready: Any, track: Track) -> Any:
    """``selector.select`` that times the poll and the iteration before it."""
    clock = now_ns
    original = selector.select
    counts, sums = track.iteration_counts, track.iteration_sums

    def select(timeout: Any = None) -> Any:
        if not track.alive:
            return original(timeout)
        began = track.now
        length = began - track.poll_end
        if length >= 16:
            shift = length.bit_length() - 5
            bucket = (shift << 4) + (length >> shift)
            counts[bucket] += 1
            sums[bucket] += length
            track.sum_sq += length * length
        track.callbacks += len(ready)
        track.since = 0
        track.owner = None
        track.idle = True
        found = original(timeout)
        track.idle = False
        track.prev_poll_end = track.poll_end
        track.poll_end = track.now = now = clock()
        track.poll_ns += now - began
        return found

    return select


def _make_epoll_select(selector: Any, ready: Any, track: Track) -> Any:
    """As :func:`_make_select`, with ``EpollSelector.select`` written into it: one call less per poll.

    Source: selectors.py, identical from CPython 3.10 to 3.13 but for a name.
    """
    clock = now_ns
    plain = selector.select
    epoll, key_of = selector._selector.poll, selector._fd_to_key
    readable, writable = selectors.EVENT_READ, selectors.EVENT_WRITE
    not_in, not_out = ~select.EPOLLIN, ~select.EPOLLOUT
    counts, sums = track.iteration_counts, track.iteration_sums

    def probed_select(timeout: Any = None) -> Any:
        if not track.alive:
            return plain(timeout)
        began = track.now
        length = began - track.poll_end
        if length >= 16:
            shift = length.bit_length() - 5
            bucket = (shift << 4) + (length >> shift)
            counts[bucket] += 1
            sums[bucket] += length
            track.sum_sq += length * length
        track.callbacks += len(ready)
        track.since = 0
        track.owner = None
        if timeout is None:
            timeout = -1
        elif timeout <= 0:
            timeout = 0
        else:
            timeout = math.ceil(timeout * 1e3) * 1e-3
        found: list[Any] = []
        track.idle = True
        try:
            for fd, event in epoll(timeout, len(key_of) or 1):
                key = key_of.get(fd)
                if key:
                    mask = (event & not_in and writable) | (event & not_out and readable)
                    found.append((key, mask & key.events))
        except InterruptedError:
            pass
        track.idle = False
        track.prev_poll_end = track.poll_end
        track.poll_end = track.now = now = clock()
        track.poll_ns += now - began
        return found

    return probed_select


def _knows_epoll(selector: Any) -> bool:
    epoll_selector = getattr(selectors, "EpollSelector", None)
    return (
        epoll_selector is not None
        and type(selector) is epoll_selector
        and (3, 10) <= sys.version_info < (3, 14)
        and isinstance(getattr(selector, "_fd_to_key", None), dict)
        and hasattr(getattr(selector, "_selector", None), "poll")
        and "select" not in vars(selector)
    )


def _make_threadsafe(original: Any, track: Track) -> Any:
    """``call_soon_threadsafe`` that stamps in the calling thread."""

    def call_soon_threadsafe(callback: Any, *args: Any, context: Any = None) -> Any:
        if not track.alive or threading.get_ident() == track.thread_id:
            return original(callback, *args, context=context)
        return original(_FromThread(callback, track), *args, context=context)

    return call_soon_threadsafe


class _FromThread:
    """A callback handed over by another thread: what it wakes has been ready since then."""

    __slots__ = ("_callback", "_stamp", "_track")

    def __init__(self, callback: Any, track: Track) -> None:
        self._callback = callback
        self._track = track
        now = now_ns()
        self._stamp = (now, now, WAKE_THREAD)

    def __call__(self, *args: Any) -> Any:
        self._track.inherit = self._stamp
        return self._callback(*args)

    def __repr__(self) -> str:
        return repr(self._callback)
