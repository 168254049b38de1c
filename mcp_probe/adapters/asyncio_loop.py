"""asyncio: every callback with its context, every wake-up with its instant, every poll.

Three private names are used and tested once at start-up: ``Handle._run`` (all callbacks),
``BaseEventLoop._call_soon`` (wake-ups: the handle made there carries its stamp) and the selector's
``select`` (busy and idle). Costs per callback are in docs/performance.md.

A wake-up inherits: a callback that is no task step (a timer, a socket reader, a report from a worker
thread) passes on when *it* became ready to whatever it wakes.

Source: asyncio/base_events.py and events.py, CPython 3.10-3.14.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import base_events, events
from contextvars import copy_context
from typing import Any

from mcp_probe.adapters.patching import Patches
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.steps import Track
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import WAKE_LOOP, WAKE_SOCKET, WAKE_THREAD

HOOK = "steps (asyncio)"


class StampedHandle(events.Handle):
    """A callback scheduled through ``call_soon``, with the instant it became ready."""

    __slots__ = ("earliest_ns", "ready_ns", "track", "wake")

    track: Track
    earliest_ns: int
    ready_ns: int
    wake: int


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
        self.names = {getattr(step, "__name__", None), getattr(wakeup, "__name__", None)} - {None}

    def task_of(self, callback: Any) -> Any:
        """The task whose step ``callback`` is, or ``None``."""
        kind = type(callback)
        if kind is self.step_type and kind is not self.wakeup_type:
            return callback.__self__
        if kind is self.wakeup_type and callback.__name__ in self.names:
            task = callback.__self__
            return task if isinstance(task, asyncio.Future) else None
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
        patches = Patches()
        patches.replace(loop, "_call_soon", self._make_call_soon(loop, track))
        selector = getattr(loop, "_selector", None)
        if selector is not None and callable(getattr(selector, "select", None)):
            patches.replace(selector, "select", _make_select(selector.select, track))
            track.polls_seen = True
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
        ready_queue = loop._ready
        get_ident = threading.get_ident
        thread_id = track.thread_id

        def _call_soon(callback: Any, args: Any, context: Any) -> Any:
            if context is None:
                context = copy_context()
            handle = StampedHandle(callback, args, loop, context)
            if handle._source_traceback:  # type: ignore[attr-defined]
                del handle._source_traceback[-1]  # type: ignore[attr-defined]
            if get_ident() != thread_id:
                handle.earliest_ns = handle.ready_ns = now_ns()
                handle.wake = WAKE_THREAD
            elif track.inheriting:
                handle.earliest_ns = track.inherit_earliest
                handle.ready_ns = track.inherit_ready
                handle.wake = track.inherit_wake
            else:
                handle.earliest_ns = handle.ready_ns = now_ns()
                handle.wake = WAKE_LOOP
            handle.track = track
            ready_queue.append(handle)
            return handle

        return _call_soon

    def _make_run(self, original: Any, kinds: StepKinds) -> Any:
        """``Handle._run``: stamped handles tell when they became ready, timers and sockets are looked up."""
        hooks = self
        tracks = self._tracks
        task_of = kinds.task_of
        clock = now_ns
        current = CURRENT
        get_ident = threading.get_ident

        def _run(self: Any) -> None:
            stamped = type(self) is StampedHandle
            track = self.track if stamped else tracks.get(self._loop)
            if track is None or not track.alive or (not stamped and track.thread_id != get_ident()):
                return original(self)  # type: ignore[no-any-return]
            task = None
            try:
                if stamped:
                    earliest, ready, wake = self.earliest_ns, self.ready_ns, self.wake
                    task = task_of(self._callback)
                else:
                    earliest, ready, wake = hooks._readiness(self, track)
                if task is None:
                    unit = 0
                    track.inheriting = True
                    track.inherit_earliest = earliest
                    track.inherit_ready = ready
                    track.inherit_wake = wake
                else:
                    unit = id(task)
                track.begin(self._context.get(current), unit, earliest, ready, wake, track.now)
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                hooks._broken(track, exc)
            try:
                original(self)
            finally:
                track.inheriting = False
                if track.alive:
                    try:
                        track.close(clock(), task is not None and task.done())
                    except Exception as exc:  # noqa: BLE001
                        hooks._broken(track, exc)

        return _run

    @staticmethod
    def _readiness(handle: Any, track: Track) -> tuple[int, int, int]:
        """(earliest, ready, wake) of a handle asyncio made: a timer knows its deadline, a socket two polls."""
        if isinstance(handle, events.TimerHandle):
            due = min(round(handle._when * 1e9), track.now)  # type: ignore[attr-defined]
            return due, due, WAKE_LOOP
        return track.prev_poll_end, track.poll_end, WAKE_SOCKET

    def _broken(self, track: Track, exc: Exception) -> None:
        track.alive = False
        track.since = 0
        self._hub.fail(HOOK, exc)
        for raw in list(self._hub.desk.live.values()):
            raw.partial = True


def _make_select(original: Any, track: Track) -> Any:
    """``selector.select`` that times the poll and the iteration before it."""
    clock = now_ns
    iterations = track.iterations

    def select(timeout: Any = None) -> Any:
        if not track.alive:
            return original(timeout)
        began = track.now
        length = began - track.poll_end
        if length > 0:
            if length < 16:
                bucket = length
            else:
                shift = length.bit_length() - 5
                bucket = (shift << 4) + (length >> shift)
            entry = iterations.get(bucket)
            if entry is None:
                iterations[bucket] = [1, length]
            else:
                entry[0] += 1
                entry[1] += length
            track.sum_sq += length * length
            if length > track.iterations_max_ns:
                track.iterations_max_ns = length
        track.idle = True
        track.since = 0
        try:
            return original(timeout)
        finally:
            track.idle = False
            now = clock()
            track.prev_poll_end = track.poll_end
            track.poll_end = track.now = now
            track.poll_ns += now - began

    return select
