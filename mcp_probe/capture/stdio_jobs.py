"""The stdio transport's own calls, each a job on a worker thread: ``readline``, ``write``, ``flush``.

A :class:`TransportCall` stands in for the method of the transport's text stream. It notes when the job got
its thread and when it was done (the transport holds tokens of the same limiter as the tools do), and what
that says about the answer being written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from mcp_probe.capture.executor import TRANSPORT_FINISH, TRANSPORT_JOB, TRANSPORT_START
from mcp_probe.capture.guard import Guard, guarded
from mcp_probe.clock import now_ns
from mcp_probe.record.assemble import LATE_NS


class OwnMethod:
    """A method of one object. It keeps the object alive only from a call's submission to its end.

    The object has this in its ``__dict__``: a reference back would be a cycle, and only the garbage collector would
    close it. Works for objects that allow weak references. Raises ValueError, as a closed file, if the object is gone.
    """

    __slots__ = ("_function", "_held", "_owner")

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = ref(owner)
        self._function = getattr(type(owner), name)
        self._held: Any = None

    def hold(self) -> None:
        """A call follows, on another thread."""
        self._held = self._owner()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        owner, self._held = self._owner(), None
        if owner is None:
            raise ValueError("I/O operation on closed file.")
        return self._function(owner, *args, **kwargs)


READ, WRITE, FLUSH = range(3)
_RAISED = object()
CALLS = {"readline": READ, "write": WRITE, "flush": FLUSH}


class TransportCall:
    """Calls ``original`` and tells ``channel``. Once its ``guard`` is off it only calls."""

    __slots__ = ("__weakref__", "append", "channel", "found_full", "guard", "kind", "original", "pool", "submitted_ns")

    def __init__(self, kind: int, original: OwnMethod, channel: Any, guard: Guard) -> None:
        self.kind = kind
        self.original = original
        self.channel = channel
        self.guard = guard
        self.pool: Any = None
        self.append: Callable[[Any], None] | None = None  # of the pools' transitions, set with ``pool``
        self.submitted_ns = 0
        self.found_full = False

    @guarded
    def submit(self) -> None:
        """The transport hands the call to the executor. Loop's thread; never raises."""
        self.original.hold()
        if not self.guard.active:
            return
        self.submitted_ns = now = now_ns()
        self.found_full = self.pool is not None and self.pool.is_full()
        if self.kind != READ:
            self.channel.writer_left(now)
        elif self.channel.stamps is not None:
            self.channel.stamps.looks.unattended = self.found_full
        raw = self.channel.writing if self.kind == WRITE else None
        if raw is not None and raw.encode_ns is None and raw.write_taken_ns is not None:
            raw.encode_ns = now - raw.write_taken_ns

    def __call__(self, *args: Any) -> Any:
        """Worker thread."""
        if not self.guard.active:
            return self.original(*args)
        submitted, self.submitted_ns = self.submitted_ns, 0
        start = self._began(submitted)
        try:
            result = self.original(*args)
        except BaseException:
            self._ended(submitted, start, _RAISED)
            raise
        self._ended(submitted, start, result)
        return result

    @guarded
    def _began(self, submitted: int) -> int:
        now = now_ns()
        if self.kind == READ and self.found_full and self.channel.stamps is not None:
            self.channel.stamps.looks.unattended = False
        if submitted and self.found_full and now - submitted > LATE_NS:
            stage = "read" if self.kind == READ else "write"
            self.channel.starved.append((stage, submitted, now, self.pool.name, self.pool.holder(submitted, now)))
        elif submitted and self.kind != READ:
            self.channel.writer_got_thread(submitted, now)
        if submitted and self.kind == READ and self.append is not None:  # it may wait for ever
            self.append((now, TRANSPORT_START, self.pool, now - submitted))
        return now

    @guarded
    def _ended(self, submitted: int, start: int, result: Any) -> None:
        if not self.guard.active:
            return
        now = now_ns()
        if self.kind != READ:
            self.channel.writer_waits_ns = now
        if submitted and self.append is not None:
            if self.kind == READ:
                self.append((now, TRANSPORT_FINISH, self.pool, 0))
            else:
                self.append((now, TRANSPORT_JOB, self.pool, (start, start - submitted)))
        if result is _RAISED:
            return
        if self.kind == FLUSH:
            self.channel.flushed()
        elif self.kind == WRITE and self.channel.writing is not None:
            self.channel.writing.response_bytes = result
