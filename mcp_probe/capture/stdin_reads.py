"""Reading on stdio: when did each line's bytes come off the pipe, and how many wait behind them?

The SDK reads text lines on a worker thread, from a wrapper that pulls chunks off the pipe. Each raw
read is stamped here, in that thread. A read that had to wait gives the arrival exactly. Bytes that it found at once
came between two looks at the pipe (``pipe_looks.py``): of the reader as each read begins, and of the watchdog. On a
loop whose steps are not seen nobody knows when it is busy, so the watchdog looks from the end of each read to the next.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from mcp_probe.capture.guard import Guard, guarded
from mcp_probe.capture.pipe_looks import Look, PipeLooks
from mcp_probe.capture.readings import wake
from mcp_probe.clock import now_ns

WAITED_NS = 50_000
"""A raw read that took less found its bytes already there (a pipe read of ready bytes takes ~2 us)."""

MAX_LOOKS = 512
"""Looks kept of bytes that have come and are not read; the bounds of some lines get wider beyond."""

GIL_SLEEPS = 3
"""Sleeps of a read that waited for the GIL for longer than a switch interval: one before the bytes came, two after."""

GIL_SLEEP_INTERVALS = 1.5
"""A thread that waits for the GIL wakes once per switch interval, or later; waits for a CPU are counted apart."""

QUEUED_NS = 1_000_000
"""A reader that waited less for a CPU was not late: its arrivals are exact to this."""

_LINE_END = re.compile(rb"\r\n|\n|\r")

LineStamp = tuple[int, int, int]
"""(arrival_ns, earliest_ns, bytes) of one complete line."""


class LineStamps:
    """Lines read raw and not yet consumed by the SDK. Appended on the reader's thread, popped on the loop.

    The pipe was empty at ``since_ns``, by default now: bytes from before the transport count as coming now.
    """

    def __init__(self, since_ns: int | None = None) -> None:
        self.waiting: deque[LineStamp] = deque()
        self.looks = PipeLooks()
        self.stopped = False
        self.loop_is_seen = True  # else the watchdog must be told that nobody reads
        self.waiting_bytes_peak = 0
        self.ended_ns: int | None = None  # the pipe's other end was closed by then
        self._read_bytes = 0  # written by the reader's thread only
        self._consumed_bytes = 0  # written by the loop's thread only
        self._last_read_ns: int | None = None
        self._offset = 0  # as the looks count: with second halves of line ends
        self._absent_ns = now_ns() if since_ns is None else since_ns  # no byte behind the offset had come by then
        self._seen: list[Look] = []  # of bytes behind the offset
        self._partial = 0
        self._after_cr = False

    @property
    def descriptor(self) -> int | None:
        """The pipe's end, if it can be looked at."""
        return None if self.looks.descriptor < 0 else self.looks.descriptor

    @descriptor.setter
    def descriptor(self, descriptor: int) -> None:
        self.looks.descriptor = descriptor

    def stop(self) -> None:
        """Nobody takes stamps any more: keep none."""
        self.stopped = True
        self.waiting.clear()

    @property
    def waiting_bytes(self) -> int:
        """Bytes read off the pipe and not consumed as lines."""
        return max(0, self._read_bytes - self._consumed_bytes)

    def in_pipe(self) -> int:
        """Bytes still in the pipe, unread; 0 where the platform cannot tell."""
        return self.looks.ready() or 0

    def read(
        self,
        chunk: bytes,
        asked: int,
        began_ns: int,
        ended_ns: int,
        ready_before: int | None = None,
        looked_ns: int | None = None,
        late_ns: int = 0,
    ) -> None:
        """One raw read returned ``chunk``; ``ready_before`` bytes were in the pipe between its begin and ``looked_ns``.

        Without that number a read that took long is believed to have waited; on a busy machine it may
        only have waited for the GIL. A read that waited may have been ``late_ns`` in coming back.
        """
        waited = ended_ns - began_ns >= WAITED_NS if ready_before is None else ready_before == 0
        came_ns = max(began_ns, ended_ns - late_ns)
        self._last_read_ns = ended_ns
        start = self._offset
        self._offset = start + len(chunk)
        self._note(self.looks.take())
        if any(offset > start and seen_ns < came_ns for offset, seen_ns, _ in self._seen):
            came_ns = began_ns  # a look saw some of it before: the read came back later than it could know
        if ready_before is not None:
            self._note([(start + ready_before, began_ns if looked_ns is None else looked_ns, began_ns)])
        if not chunk and self.ended_ns is None:
            self.ended_ns = came_ns if waited else ended_ns
        if chunk:
            self._stamp(chunk, start, ended_ns, came_ns if waited else None)
        self._forget_until(self._offset)
        if len(chunk) < asked:  # it has emptied the pipe
            self._absent_ns = max(self._absent_ns, came_ns if waited else began_ns)

    def _stamp(self, chunk: bytes, start: int, ended_ns: int, came_ns: int | None) -> None:
        """Queue the lines that ``chunk`` completes; none of it had come by ``came_ns``, if that is known."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # second half of a line end that was counted already
            start += 1
        self._after_cr = chunk.endswith(b"\r")
        self._read_bytes += len(chunk)
        done = -self._partial
        for end in _line_ends(chunk):
            self.waiting.append((*self._arrival_of(start + end, ended_ns, came_ns), end - done))
            done = end
        self._partial = len(chunk) - done
        unread = self._read_bytes - self._consumed_bytes
        if unread > self.waiting_bytes_peak:
            self.waiting_bytes_peak = unread

    def _arrival_of(self, offset: int, read_ns: int, came_ns: int | None) -> tuple[int, int]:
        """(latest, earliest) time at which ``offset`` bytes had come. Offsets must not go down from call to call."""
        self._forget_until(offset - 1)
        latest = min(read_ns, self._seen[0][1]) if self._seen else read_ns
        return latest, min(self._absent_ns if came_ns is None else max(self._absent_ns, came_ns), latest)

    def _note(self, looks: list[Look]) -> None:
        seen = self._seen
        for look in looks:
            newest = seen[-1] if seen else None
            if newest is None or look[0] > newest[0]:
                seen.append(look)
                if len(seen) > MAX_LOOKS:
                    del seen[-2::-2]
            elif look[0] == newest[0]:
                seen[-1] = (look[0], newest[1], max(look[2], newest[2]))

    def _forget_until(self, offset: int) -> None:
        """Looks that saw no more than ``offset`` bytes only say that the others had not come."""
        seen = self._seen
        known = 0
        while known < len(seen) and seen[known][0] <= offset:
            self._absent_ns = max(self._absent_ns, seen[known][2])
            known += 1
        del seen[:known]

    def consumed(self) -> LineStamp | None:
        """The stamp of the line the SDK has just taken; ``None`` where no read was seen."""
        if self.waiting:
            stamp = self.waiting.popleft()
            self._consumed_bytes += stamp[2]
            return stamp
        if self._partial and self._last_read_ns is not None:
            size, self._partial = self._partial, 0
            self._consumed_bytes += size
            return (self._last_read_ns, self._last_read_ns, size)
        return None


def _line_ends(chunk: bytes) -> list[int]:
    """Offsets behind each line end: universal newlines, as the SDK's text wrapper splits."""
    if b"\r" in chunk:
        return [end.end() for end in _LINE_END.finditer(chunk)]
    ends = []
    end = chunk.find(b"\n") + 1  # four times as fast as the pattern; every message comes here
    while end:
        ends.append(end)
        end = chunk.find(b"\n", end) + 1
    return ends


class StampedRead:
    """A reading method of a transport's binary input: each chunk that it returns is told to ``stamps``."""

    __slots__ = ("__weakref__", "_read", "_stamps", "guard")

    def __init__(self, read: Callable[..., Any], stamps: LineStamps, guard: Guard) -> None:
        self._read = read
        self._stamps = stamps
        self.guard = guard

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Reader's thread."""
        began = self._begin()
        chunk = self._read(*args, **kwargs)
        if began is not None and chunk is not None:
            self._end(began, chunk, args)
        return chunk

    @guarded
    def _begin(self) -> tuple[int | None, int, int] | None:
        """(Bytes ready to read, just before they were counted, just after)."""
        stamps = self._stamps
        if stamps.stopped:
            return None
        if not stamps.loop_is_seen:
            stamps.looks.unattended = False
        return stamps.looks.begin()

    @guarded
    def _end(self, began: tuple[int | None, int, int], chunk: Any, args: tuple[Any, ...]) -> None:
        ended = now_ns()
        ready, before, after = began
        sleeps, queued = self._stamps.looks.end(len(chunk))
        if not self._stamps.stopped:
            asked = args[0] if args and isinstance(args[0], int) else -1
            read = chunk if type(chunk) is bytes else bytes(chunk)
            late = queued if queued >= QUEUED_NS else 0
            if sleeps >= GIL_SLEEPS:
                late += round((sleeps - 1) * GIL_SLEEP_INTERVALS * sys.getswitchinterval() * 1e9)
            self._stamps.read(read, asked, before, ended, ready, after, late)
            if chunk and not self._stamps.loop_is_seen:
                self._stamps.looks.unattended = True
                wake()
