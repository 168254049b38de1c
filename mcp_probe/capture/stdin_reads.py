"""Reading on stdio: when did each line's bytes come off the pipe, and how many wait behind them?

The SDK reads text lines on a worker thread, from a wrapper that pulls chunks off the pipe. Each raw
read is stamped here, in that thread. A read that had to wait gives the arrival exactly; one that
found bytes at once only bounds it: they came after the last read that emptied the pipe.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from mcp_probe.capture.guard import Guard, guarded
from mcp_probe.clock import now_ns

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

WAITED_NS = 50_000
"""A raw read that took less found its bytes already there (a pipe read of ready bytes takes ~2 us)."""

_LINE_END = re.compile(rb"\r\n|\n|\r")

LineStamp = tuple[int, int, int]
"""(arrival_ns, earliest_ns, bytes) of one complete line."""


class LineStamps:
    """Lines read raw and not yet consumed by the SDK. Appended on the reader's thread, popped on the loop.

    The pipe was empty at ``since_ns``, by default now: bytes from before the transport count as coming now.
    """

    def __init__(self, since_ns: int | None = None) -> None:
        self.waiting: deque[LineStamp] = deque()
        self.descriptor: int | None = None
        self.stopped = False
        self.waiting_bytes_peak = 0
        self._read_bytes = 0  # written by the reader's thread only
        self._consumed_bytes = 0  # written by the loop's thread only
        self._last_read_ns: int | None = None
        self._empty_ns = now_ns() if since_ns is None else since_ns  # when the pipe was last known empty
        self._partial = 0
        self._after_cr = False

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
        return self.ready_to_read() or 0

    def ready_to_read(self) -> int | None:
        """As :meth:`in_pipe`, ``None`` where the platform cannot tell."""
        if self.descriptor is None or fcntl is None:
            return None
        try:
            size = fcntl.ioctl(self.descriptor, termios.FIONREAD, b"\0" * 4)
        except OSError:
            return None
        return int.from_bytes(size, sys.byteorder)

    def read(self, chunk: bytes, asked: int, began_ns: int, ended_ns: int, ready_before: int | None = None) -> None:
        """One raw read returned ``chunk``; ``ready_before`` bytes were in the pipe when it began.

        Without that number a read that took long is believed to have waited; on a busy machine it may
        only have waited for the GIL.
        """
        waited = ended_ns - began_ns >= WAITED_NS if ready_before is None else ready_before == 0
        arrival = (ended_ns, ended_ns if waited else min(self._empty_ns, ended_ns))
        self._last_read_ns = ended_ns
        if len(chunk) < asked:
            self._empty_ns = ended_ns if waited else began_ns
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # second half of a line end that was counted already
            self._after_cr = False
        if not chunk:
            return
        self._read_bytes += len(chunk)
        self._after_cr = chunk.endswith(b"\r")
        done = -self._partial
        for end in _line_ends(chunk):
            self.waiting.append((*arrival, end - done))
            done = end
        self._partial = len(chunk) - done
        unread = self._read_bytes - self._consumed_bytes
        if unread > self.waiting_bytes_peak:
            self.waiting_bytes_peak = unread

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
    def _begin(self) -> tuple[int | None, int] | None:
        """(bytes ready to read, now)."""
        return None if self._stamps.stopped else (self._stamps.ready_to_read(), now_ns())

    @guarded
    def _end(self, began: tuple[int | None, int], chunk: Any, args: tuple[Any, ...]) -> None:
        if not self._stamps.stopped:
            asked = args[0] if args and isinstance(args[0], int) else -1
            self._stamps.read(chunk if type(chunk) is bytes else bytes(chunk), asked, began[1], now_ns(), began[0])
