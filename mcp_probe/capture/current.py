"""Whose work is this? The request travels in a context variable, as measurement.md section 1 says.

asyncio and trio copy the context to child tasks, anyio and ``asyncio.to_thread`` to worker threads.
The value may belong to a request that has ended: readers check ``ended`` and call that *detached*.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from mcp_probe.capture.socket_reads import Delivery
from mcp_probe.record.raw import RawRequest

CURRENT: ContextVar[RawRequest | None] = ContextVar("mcp_probe_request", default=None)


DELIVERY: ContextVar[Delivery | None] = ContextVar("mcp_probe_delivery", default=None)
"""Of the bytes that an HTTP server has read; the task that it begins for them inherits it."""


class Exchange:
    """One HTTP exchange: when it began, how its bytes came, and the request that was found in its body."""

    __slots__ = (
        "_around",
        "_began_ns",
        "_body_bytes",
        "_delivery",
        "answer_leaves",
        "answers",
        "is_stream",
        "lent",
        "looked_up",
        "monitor",
        "raw",
        "sorter",
    )

    def __init__(self, began_ns: int, delivery: Delivery | None, body_bytes: int | None, monitor: Any = None) -> None:
        self._began_ns = began_ns
        self._delivery = delivery
        self._body_bytes = body_bytes
        self.raw: RawRequest | None = None
        self.looked_up: str | None = None  # the SDK lists the tools now, for the schema of this one
        self.monitor = monitor  # of the loop it is served on
        self.answers = True  # False: the answer goes out on another exchange (SSE)
        self.sorter: Any = None  # whose ``send`` tells the answer from other events; None: nobody's yet
        self.is_stream = False  # its response is a stream of events: others may come before the answer
        self.answer_leaves = False  # the answer, or the first part of it, is being sent
        self.lent = False  # the task that serves it works for its request
        self._around: RawRequest | None = None  # whose work that task did before

    def brought(self, raw: RawRequest) -> None:
        """``raw`` is the message that came in this exchange.

        If nobody knows since when it may have been there, how long it waited is unavailable.
        """
        arrival, earliest = self.arrival()
        raw.arrival_ns = arrival
        raw.arrival_earliest_ns = earliest
        raw.transport_seen = earliest is not None
        raw.new_connection = self._delivery is not None and self._delivery.is_first
        raw.request_bytes = self._body_bytes
        self.raw = raw

    def arrival(self) -> tuple[int, int | None]:
        """When its message came, at the latest and at the earliest (``None``: unknown).

        Call it once its body is complete: it arrived with its last byte.
        """
        return (self._began_ns, None) if self._delivery is None else self._delivery.arrival()

    def lend(self) -> None:
        """From here on the task that serves this exchange works for its request, and so do the tasks that it starts.

        Whoever calls this enters the request next, in the context of that task.
        """
        if not self.lent:
            self.lent = True
            self._around = CURRENT.get()

    def take_back(self) -> None:
        """What this task does from here on is the request's no more: its answer is being written, or it is over."""
        if self.lent:
            self.lent = False
            around = self._around
            if self.monitor is not None:
                self.monitor.hand_over(self.raw, around)
            CURRENT.set(around)


EXCHANGE: ContextVar[Exchange | None] = ContextVar("mcp_probe_exchange", default=None)


def reset_for_transport_task() -> None:
    """Forget the request in this context: a session's own task may be started from inside its first request."""
    CURRENT.set(None)
    EXCHANGE.set(None)
    DELIVERY.set(None)
