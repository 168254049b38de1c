"""How many requests were in flight at once, and whether the client sent them one by one.

A request is *in flight* from its arrival to its result; its writing is left out, since a client may
read an answer, and send the next request, before our write call has returned.

Records come about in the order of their ends, so the last :data:`REORDER` of them are kept in the order of
their arrivals before they are looked at. One that comes later than that was overtaken by all of
them: it says "at least two at once" and nothing else. Long requests that are still open are known from
their :class:`~mcp_probe.model.OpenRequest`, and count as in flight from their arrival on.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mcp_probe.model import OpenRequest, RequestRecord

REORDER = 1024
MAX_ACTIVE = 65_536
GAP_NS = 1_000_000
"""A client that sends its next request this soon was only waiting for the answer (findings.md, serial-client)."""


NEVER_NS = (1 << 63) - 1
"""An arrival or end later than all others."""

Flown = tuple[int, int, int]
"""(arrival, result, end)"""
SweepState = tuple[list[Flown], list[int], int | None, int | None, tuple[int, int, int, int]]
"""(waiting, active, last arrival, last end, figures of :class:`FlightTotals`)"""


@dataclass(slots=True)
class FlightTotals:
    """What the sweep over arrivals sums up to. Merging is addition; the maximum stays a maximum."""

    max_in_flight: int = 0
    serial_gaps: int = 0
    total_ns: int = 0
    awaiting_ns: int = 0

    def merge(self, other: FlightTotals) -> None:
        """Add ``other``."""
        self.max_in_flight = max(self.max_in_flight, other.max_in_flight)
        self.serial_gaps += other.serial_gaps
        self.total_ns += other.total_ns
        self.awaiting_ns += other.awaiting_ns

    @property
    def awaiting_share(self) -> float | None:
        """Share of all requests' time in which they awaited something outside or a thread's work."""
        return min(1.0, self.awaiting_ns / self.total_ns) if self.total_ns else None


class PythonSweep:
    """The sweep. Twin of ``Sweep`` in native/flight.h; made of what its ``state`` says, or empty."""

    def __init__(
        self,
        waiting: list[Flown] | None = None,
        active: list[int] | None = None,
        last_arrival_ns: int | None = None,
        last_end_ns: int | None = None,
        totals: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> None:
        self.waiting = waiting or []  # sorted
        self.active = active or []  # heap of results
        self.last_arrival_ns = last_arrival_ns
        self.last_end_ns = last_end_ns
        self.totals = FlightTotals(*totals)

    def state(self) -> SweepState:
        """What another one is made of."""
        totals = self.totals
        figures = (totals.max_in_flight, totals.serial_gaps, totals.total_ns, totals.awaiting_ns)
        return list(self.waiting), list(self.active), self.last_arrival_ns, self.last_end_ns, figures

    def count(self, arrival: int, result: int, end: int, awaiting_ns: int, open_since_ns: int) -> None:
        """One finished request; ``open_since_ns`` is the arrival of the oldest one known to be unanswered."""
        totals = self.totals
        if end > arrival:
            totals.total_ns += end - arrival
        totals.awaiting_ns += awaiting_ns
        insort(self.waiting, (arrival, result, end))
        if len(self.waiting) > REORDER:
            self.take(self.waiting.pop(0), open_since_ns)

    def take(self, request: Flown, open_since_ns: int) -> None:
        """The next one in the order of arrivals."""
        arrival, result, end = request
        if self.last_arrival_ns is not None and arrival < self.last_arrival_ns:
            self.totals.max_in_flight = max(self.totals.max_in_flight, 2)
        else:
            self.last_arrival_ns = arrival
        while self.active and self.active[0] <= arrival:
            heapq.heappop(self.active)
        alone = not self.active and arrival <= open_since_ns
        if alone and self.last_end_ns is not None and arrival - self.last_end_ns < GAP_NS:
            self.totals.serial_gaps += 1
        if len(self.active) < MAX_ACTIVE:
            heapq.heappush(self.active, result)
        self.totals.max_in_flight = max(self.totals.max_in_flight, len(self.active))
        self.last_end_ns = end if self.last_end_ns is None else max(self.last_end_ns, end)


class Flight:
    """Which requests overlapped. Only requests count: notifications and profiled calls are not sent one by one."""

    def __init__(self) -> None:
        self.sweep: Any = PythonSweep()

    def add(self, record: RequestRecord, open_since_ns: int) -> None:
        """One finished request; ``open_since_ns`` as in :meth:`PythonSweep.count`."""
        if record.kind != "request":
            return
        end, result = record.end_ns, record.result_ns
        awaiting_ns = (record.budget.awaiting or 0) + (record.budget.executor_run or 0)
        self.sweep.count(record.arrival_ns, end if result is None else result, end, awaiting_ns, open_since_ns)

    def totals(self, open_requests: Iterable[OpenRequest]) -> FlightTotals:
        """As if no more would come; changes nothing."""
        opened = [request for request in open_requests if request.kind == "request"]
        rest = PythonSweep(*self.sweep.state())
        never = [(request.arrival_ns, NEVER_NS, NEVER_NS) for request in opened]
        open_since_ns = min((request.arrival_ns for request in opened), default=NEVER_NS)
        for request in sorted([*rest.waiting, *never]):
            rest.take(request, open_since_ns)
        return rest.totals
