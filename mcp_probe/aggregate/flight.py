"""How many requests were in flight at once, and whether the client sent them one by one.

A request is *in flight* from its arrival to its result; its writing is left out, since a client may
read an answer, and send the next request, before our write call has returned.

Records come roughly in the order in which requests end, so the last :data:`REORDER` of them are sorted by
arrival before they are counted. If a record comes even later, all of those have overtaken it: it only says
"at least two at once". Long requests that are still open are known from their
:class:`~mcp_probe.model.OpenRequest`, and count as in flight from their arrival on.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mcp_probe.model import OpenRequest, RequestGroup, RequestRecord
from mcp_probe.record.sampling import NEVER_NS, gap_ns_of

REORDER = 1024
MAX_ACTIVE = 65_536
_Flown = tuple[int, int, int, int]
"""(arrival, result, end, the gap before it that shows a waiting client)"""


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


class Flight:
    """Which requests overlapped. Only requests count: notifications and profiled calls are not sent one by one."""

    def __init__(self) -> None:
        self._waiting: list[_Flown] = []  # sorted
        self._active: list[int] = []  # heap of results
        self._last_arrival_ns: int | None = None
        self._last_end_ns: int | None = None
        self._totals = FlightTotals()

    def add(self, record: RequestRecord, open_since_ns: int) -> None:
        """One finished request; ``open_since_ns`` is the arrival of the oldest one known to be unanswered.

        A record that stands for others only adds to the sums. Without those others it is not known what it overlapped;
        their group says it.
        """
        if record.kind != "request":
            return
        arrival, result, end, totals = record.arrival_ns, record.result_ns, record.end_ns, self._totals
        awaiting = record.budget.awaiting
        if awaiting is not None:
            totals.total_ns += max(0, end - arrival) * record.weight
            totals.awaiting_ns += (awaiting + (record.budget.executor_run or 0)) * record.weight
        if record.weight > 1:
            return
        insort(self._waiting, (arrival, end if result is None else result, end, gap_ns_of(record.transport)))
        if len(self._waiting) > REORDER:
            self._take(self._waiting.pop(0), open_since_ns)

    def add_group(self, group: RequestGroup) -> None:
        """Requests without a record. The group also knows what the records that stand for them overlapped."""
        if group.kind != "request":
            return
        self._totals.serial_gaps += group.serial_gaps
        at_once = 2 if group.overlapping else 1
        self._totals.max_in_flight = max(self._totals.max_in_flight, at_once)

    def _take(self, request: _Flown, open_since_ns: int) -> None:
        """The next one in the order of arrivals."""
        arrival, result, end, gap_ns = request
        if self._last_arrival_ns is not None and arrival < self._last_arrival_ns:
            self._totals.max_in_flight = max(self._totals.max_in_flight, 2)
        else:
            self._last_arrival_ns = arrival
        while self._active and self._active[0] <= arrival:
            heapq.heappop(self._active)
        alone = not self._active and arrival <= open_since_ns
        if alone and self._last_end_ns is not None and arrival - self._last_end_ns < gap_ns:
            self._totals.serial_gaps += 1
        if len(self._active) < MAX_ACTIVE:
            heapq.heappush(self._active, result)
        self._totals.max_in_flight = max(self._totals.max_in_flight, len(self._active))
        self._last_end_ns = end if self._last_end_ns is None else max(self._last_end_ns, end)

    def totals(self, open_requests: Iterable[OpenRequest]) -> FlightTotals:
        """The totals if no more requests come; changes nothing."""
        opened = [request for request in open_requests if request.kind == "request"]
        rest = Flight()
        rest._active = list(self._active)
        rest._last_arrival_ns, rest._last_end_ns = self._last_arrival_ns, self._last_end_ns
        rest._totals = replace(self._totals)
        never = [(request.arrival_ns, NEVER_NS, NEVER_NS, 0) for request in opened]
        open_since_ns = min((request.arrival_ns for request in opened), default=NEVER_NS)
        for request in sorted([*self._waiting, *never]):
            rest._take(request, open_since_ns)
        return rest._totals
