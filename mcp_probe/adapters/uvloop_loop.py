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
from typing import Any

from mcp_probe.adapters.asyncio_loop import StepKinds
from mcp_probe.adapters.patching import Patches
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.steps import Inherited, Track
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
        self._tracks: dict[Any, Track] = {}
        self._patches: dict[Any, Patches] = {}
        self._kinds: StepKinds | None = None

    def follow(self, loop: Any) -> Track | None:
        """Follow ``loop``, which runs on the calling thread. Idempotent."""
        track = self._tracks.get(loop)
        if track is not None:
            return track if track.alive else None
        try:
            self._kinds = self._kinds or StepKinds()
            for name in ("call_soon", "call_soon_threadsafe", "call_later"):
                if not callable(getattr(loop, name, None)):
                    raise RuntimeError(f"{name} does not exist")
            track = self._hub.add_track("uvloop")
            track.current_unit = lambda: id(asyncio.current_task(loop))
            track.is_running = loop.is_running
            self._install(loop, track)
        except Exception as exc:  # noqa: BLE001 - an unknown uvloop must not stop the server
            if track is not None:
                self._hub.drop_track(track)
            self._hub.missing(HOOK, f"this uvloop is not known to us ({exc}); only handlers are followed")
            return None
        for stale in [known for known in self._tracks if known.is_closed()]:
            self.release(stale)
        self._tracks[loop] = track
        self._hub.working(HOOK)
        self._hub.hooks["loop polls"] = "active, as an estimate: uvloop polls in C"
        task = asyncio.current_task()
        now = now_ns()
        track.begin(CURRENT.get(), id(task) if task is not None else 0, now, now, WAKE_LOOP, now)
        return track

    def release(self, loop: Any) -> list[str]:
        """Stop following ``loop``."""
        track = self._tracks.pop(loop, None)
        if track is not None:
            self._hub.drop_track(track)
        patches = self._patches.pop(loop, None)
        return patches.restore() if patches is not None else []

    def restore(self) -> list[str]:
        """Undo everything."""
        return [sentence for loop in list(self._tracks) for sentence in self.release(loop)]

    def _install(self, loop: Any, track: Track) -> None:
        sleep = _Sleep(track)
        run = self._make_run(track, sleep)
        call_soon, threadsafe, call_later = loop.call_soon, loop.call_soon_threadsafe, loop.call_later

        def soon(callback: Any, *args: Any, context: Any = None) -> Any:
            if track.alive:
                try:
                    stamp = track.inherit or sleep.stamp()
                except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                    self._broken(track, exc)
                else:
                    return call_soon(run, callback, stamp, args, context=context)
            return call_soon(callback, *args, context=context)

        def soon_threadsafe(callback: Any, *args: Any, context: Any = None) -> Any:
            if track.alive and threading.get_ident() != track.thread_id:
                try:
                    ready = now_ns()
                except Exception as exc:  # noqa: BLE001
                    self._broken(track, exc)
                else:
                    return threadsafe(run, callback, (ready, ready, WAKE_THREAD), args, context=context)
            return threadsafe(callback, *args, context=context)

        def later(delay: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            if track.alive and isinstance(delay, (int, float)) and delay < LONGEST_TIMER_S:
                try:
                    due = now_ns() + max(0, round(delay * 1e9))
                except Exception as exc:  # noqa: BLE001
                    self._broken(track, exc)
                else:
                    return call_later(delay, run, callback, (due, due, WAKE_LOOP), args, context=context)
            return call_later(delay, callback, *args, context=context)

        patches = Patches()
        for name, ours in (("call_soon", soon), ("call_soon_threadsafe", soon_threadsafe), ("call_later", later)):
            patches.replace(loop, name, ours)
        self._patches[loop] = patches

    def _make_run(self, track: Track, sleep: _Sleep) -> Any:
        assert self._kinds is not None
        task_of = self._kinds.task_of
        hooks = self

        def run(callback: Any, stamp: Inherited, args: tuple[Any, ...]) -> Any:
            if not track.alive or threading.get_ident() != track.thread_id:
                return callback(*args)
            task = None
            try:
                now = now_ns()
                sleep.before_callback(now)
                earliest, ready, wake = stamp
                if ready > now:  # a timer that libuv rounded down
                    earliest = ready = now
                task = task_of(callback, args)
                track.inherit = (earliest, ready, wake) if task is None else None
                track.begin(CURRENT.get(), id(task) if task is not None else 0, earliest, ready, wake, now)
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                hooks._broken(track, exc)
            try:
                return callback(*args)
            finally:
                track.inherit = None
                if track.alive:
                    try:
                        ended = now_ns()
                        if track.since:
                            track.close(ended, task is not None and task.done())
                        else:  # a request that began within this callback ended its step with its coroutine
                            track.now = ended
                    except Exception as exc:  # noqa: BLE001
                        hooks._broken(track, exc)

        return run

    def _broken(self, track: Track, exc: Exception) -> None:
        track.alive = False
        track.since = 0
        self._hub.fail(HOOK, exc)
        for raw in list(self._hub.desk.live.values()):
            raw.partial = True


class _Sleep:
    """When the loop was last seen to sleep in its poll."""

    __slots__ = ("ended_ns", "track")

    def __init__(self, track: Track) -> None:
        self.track = track
        self.ended_ns = track.now

    def stamp(self) -> Inherited:
        """When what is woken now became ready.

        Between two of our callbacks it is libuv that wakes, for a socket: just now where the loop slept until then,
        else at an unknown instant since it last slept.
        """
        track = self.track
        now = now_ns()
        if track.since or now - track.now >= SLEPT_NS:
            return now, now, WAKE_LOOP
        return self.ended_ns, now, WAKE_SOCKET

    def before_callback(self, now: int) -> None:
        """A gap before this callback: the loop polled; the busy stretch before it counts as one iteration."""
        track = self.track
        gap = now - track.now
        if gap >= SAME_STRETCH_NS:
            track.begin_poll(track.now)
            track.end_poll(now)
            if gap >= SLEPT_NS:
                self.ended_ns = now
