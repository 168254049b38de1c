"""Whose work is this? The request travels in a context variable, as measurement.md section 1 says.

asyncio and trio copy the context to child tasks, anyio and ``asyncio.to_thread`` to worker threads.
The value may belong to a request that has ended: readers check ``ended`` and call that *detached*.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from mcp_probe.record.raw import RawRequest

CURRENT: ContextVar[RawRequest | None] = ContextVar("mcp_probe_request", default=None)


class Exchange:
    """One HTTP exchange: its arrival, and the request that was found in its body."""

    __slots__ = ("answers", "arrival_earliest_ns", "arrival_ns", "body_bytes", "monitor", "raw")

    def __init__(
        self, arrival_ns: int, arrival_earliest_ns: int | None, body_bytes: int | None, monitor: Any = None
    ) -> None:
        self.arrival_ns = arrival_ns
        self.arrival_earliest_ns = arrival_earliest_ns
        self.body_bytes = body_bytes
        self.raw: RawRequest | None = None
        self.monitor = monitor  # of the loop it is served on
        self.answers = True  # False: the answer goes out on another exchange (SSE)


EXCHANGE: ContextVar[Exchange | None] = ContextVar("mcp_probe_exchange", default=None)


def reset_for_transport_task() -> None:
    """Forget the request in this context: a session's own task may be started from inside its first request."""
    CURRENT.set(None)
    EXCHANGE.set(None)
