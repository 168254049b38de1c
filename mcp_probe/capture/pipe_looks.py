"""How many bytes have come through a pipe, and when: looks at what waits in it, between its reads.

At each look the bytes read so far and those that wait are all that have come. So a byte came between the last
look that did not find it and the first that did. The reader's thread looks as each read begins; the watchdog looks
while a loop is busy or the reader has no thread, for then nobody reads. Where the loop's steps are not seen, it
looks between any two reads. A look that a read may have crossed does not count.

A C call that keeps the GIL stops the reader behind its read, and the watchdog too. With the accelerator a
:class:`PipeLooker` looks then, and asks Linux what the reader's thread waits for: the pipe, or the GIL with the
bytes of its read in hand.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import TYPE_CHECKING

from mcp_probe import native
from mcp_probe.capture.context_switches import switches_so_far
from mcp_probe.capture.proc_files import native_id, open_task
from mcp_probe.clock import now_ns

try:
    from fcntl import ioctl
    from termios import FIONREAD
except ImportError:  # Windows
    ioctl = None  # type: ignore[assignment]

KEPT = 1024
"""65,536 bytes, a pipe's capacity, in messages of 64 bytes."""

Look = tuple[int, int, int]
"""(bytes that had come, when that was seen first, when last)."""


class PythonPipeLooks:
    """Looks at one pipe. Twin of ``PipeLooks`` in native/pipe_looks.h.

    ``descriptor`` is the pipe's end, -1 where there is none; ``unattended`` says that its reader waits for a
    thread, or that nobody can tell. :meth:`look` is called on one thread, :meth:`begin`, :meth:`end` and :meth:`take`
    on another.
    """

    def __init__(self) -> None:
        self.descriptor = -1
        self.unattended = False
        self._reads = 0  # odd while a read is under way
        self._read_bytes = 0
        self._slept = 0
        self._queued = 0
        self._run_queue = _RunQueue()
        self._ring: deque[list[int]] = deque()

    def ready(self) -> int | None:
        """Bytes in the pipe now; ``None`` where the platform cannot tell."""
        if self.descriptor < 0 or ioctl is None:
            return None
        try:
            size = ioctl(self.descriptor, FIONREAD, b"\0" * 4)
        except OSError:
            return None
        return int.from_bytes(size, sys.byteorder)

    def look(self) -> None:
        """Look now; nothing is kept if a read is under way."""
        reads = self._reads
        if reads & 1:
            return
        offset, before = self._read_bytes, now_ns()
        ready = self.ready()
        after = now_ns()
        if ready is None or self._reads != reads:
            return
        offset += ready
        ring = self._ring
        newest = ring[-1] if ring else None
        if newest is not None and newest[0] == offset:
            newest[2] = before
        elif len(ring) < KEPT:  # a full ring leaves wider bounds, and still true ones
            ring.append([offset, after, before])

    def begin(self) -> tuple[int | None, int, int]:
        """A read begins. (Bytes ready to read, just before they were counted, just after)."""
        self._reads = (self._reads + 2) | 1
        self._slept = switches_so_far()[0]
        self._queued = self._run_queue.waited_ns()
        before = now_ns()
        ready = self.ready()
        return ready, before, now_ns()

    def end(self, size: int) -> tuple[int, int]:
        """The read has brought ``size`` bytes. Returns how often its thread slept, and for how many ns it had no CPU.

        0 where unknown.
        """
        slept = switches_so_far()[0] - self._slept
        queued = self._run_queue.waited_ns() - self._queued
        self._read_bytes += size
        self._reads = (self._reads | 1) + 1
        return slept, max(0, queued)

    def take(self) -> list[Look]:
        """What the looks have found since the last call, oldest first."""
        popleft = self._ring.popleft
        return [tuple(popleft()) for _ in range(len(self._ring))]  # type: ignore[misc]


class PythonPipeLooker:
    """Who looks at pipes while a loop is busy. Twin of ``PipeLooker`` in native/watch.h.

    Its :meth:`run` is for a thread of its own, which needs no GIL: it looks while the watchdog is not parked, until
    :meth:`close`. Python has no such thread; only the watchdog looks here.
    """

    def __init__(self) -> None:
        self.pipes: tuple[PythonPipeLooks, ...] = ()

    def look_at(self, pipes: tuple[PythonPipeLooks, ...]) -> None:
        """These pipes from now on."""
        self.pipes = pipes

    def run(self) -> None:
        """Nothing that a thread of Python could see."""

    def close(self) -> None:
        """End :meth:`run`."""


class _RunQueue:
    """How long a thread has waited for a CPU so far: Linux says it in a file, which stays open from read to read."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._thread: int | None = None

    def waited_ns(self) -> int:
        """Of the calling thread; 0 where unknown."""
        if not sys.platform.startswith("linux"):
            return 0
        try:
            thread = native_id()
            if thread != self._thread:
                self._close()
                self._thread = thread
                self._file = open_task(thread, "schedstat")
            return 0 if self._file is None else int(os.pread(self._file, 64, 0).split()[1])
        except (AttributeError, OSError, IndexError, ValueError):
            return 0

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self._close()


if TYPE_CHECKING:
    PipeLooks = PythonPipeLooks
    PipeLooker = PythonPipeLooker
else:
    PipeLooks = PythonPipeLooks if native.core is None else native.core.PipeLooks
    PipeLooker = PythonPipeLooker if native.core is None else native.core.PipeLooker
