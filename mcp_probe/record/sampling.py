"""Which requests get a record when there are too many to make one of each, and how the others are counted.

A failed, cancelled or slow request always gets its record. Of an operation's other requests one in n is picked, at
random within each n, and has the weight n. Requests without a record are counted, with their durations, in
:class:`~mcp_probe.model.RequestGroup` frames. So counts and durations cover all requests, however many there are.
At the end of a process, requests for whose records there is no time are counted in the same way.

A request is slow if it took ``slow_request_ms``, or longer than 99 % of its operation's calls so far.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from threading import get_ident
from typing import Any

from mcp_probe.histogram import bucket_bounds, bucket_of, merge, quantile
from mcp_probe.model import QUEUE, WRITES, RequestGroup, RequestKind
from mcp_probe.record.raw import RawRequest

RECORDS_A_DRAIN = 2048
"""About how many records one drain makes of plain requests: 0.1 s of the collector's thread."""

RECORDS_A_SECOND = 1024
"""About how many come of them in the long run. A record takes some 50 us of the GIL: of a saturated
loop, these take 5 % (benchmarks/record_load.py)."""

FEWEST_RECORDS = 64
"""Of one drain, however many there have been before it."""

MAX_GROUPS = 1024
"""Kinds of requests counted separately; further ones are counted under the name ``other``."""

MIN_COUNT = 100
"""Calls of an operation before its 99th percentile means anything."""

DEFAULT_SLOW_NS = 1_000_000_000

GAP_NS = 1_000_000
"""A client that sends its next request this soon was only waiting for the answer (findings.md, serial-client)."""

HTTP_GAP_NS = 5_000_000
"""The same over HTTP, where the way from one to the other is in the gap, too. Of clients that sent at once, on two
cores: a bare one with a new connection a call 1.2 ms (its own part 0.2 ms), the SDK's 3.3 ms, nine in ten below 4.6."""

OTHER = "other"

NEVER_NS = (1 << 63) - 1

Key = tuple[Any, ...]
_values_of = attrgetter(
    "kind",
    "method",
    "name",
    "transport",
    "outcome",
    "error",
    "protocol_version",
    "seen",
    "transport_seen",
    "write_seen",
)
Picked = list[tuple[RawRequest, int]]
"""(request, weight) of those that get a record."""

_Rows = dict[int, tuple[int, int]]


class GroupTally:
    """Counts the requests of one key. One thread writes; rows only grow, so another thread may read differences."""

    __slots__ = (
        "closed",
        "first_ns",
        "last_ns",
        "longest",
        "max_longest_ns",
        "max_ns",
        "overlapping",
        "rows",
        "serial_gaps",
    )

    def __init__(self) -> None:
        self.rows: _Rows = {}  # bucket of the duration -> (count, sum)
        self.longest: _Rows | None = None  # the same from the earliest possible arrival, once that made a difference
        self.first_ns, self.last_ns = NEVER_NS, 0
        self.max_ns = self.max_longest_ns = 0
        self.serial_gaps = self.overlapping = 0
        self.closed: deque[int] = deque()  # ids of those that were reported as open

    def add(self, arrival: int, earliest: int | None, end: int) -> None:
        """Count one request; ``earliest`` is its earliest possible arrival."""
        duration = end - arrival if end > arrival else 0
        if self.longest is not None or (earliest is not None and earliest < arrival):
            self._add_longest(arrival if earliest is None else min(arrival, earliest), end)
        bucket = bucket_of(duration)
        count, total = self.rows.get(bucket, (0, 0))
        self.rows[bucket] = (count + 1, total + duration)
        if duration > self.max_ns:
            self.max_ns = duration
        if arrival < self.first_ns:
            self.first_ns = arrival
        if end > self.last_ns:
            self.last_ns = end

    def _add_longest(self, earliest: int, end: int) -> None:
        if self.longest is None:
            self.longest, self.max_longest_ns = dict(self.rows), self.max_ns
        bucket = bucket_of(end - earliest)
        count, total = self.longest.get(bucket, (0, 0))
        self.longest[bucket] = (count + 1, total + end - earliest)
        self.max_longest_ns = max(self.max_longest_ns, end - earliest)


_Flight = tuple[int, int, int, int, "GroupTally | None"]
"""(arrival, result, end, the gap that shows a waiting client, the tally that counts it)"""


class Groups:
    """Requests that get no record, counted by key. Any thread may add and never waits; one thread takes."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[int, Key], GroupTally] = {}  # by thread: each tally has one writer
        self._told: dict[tuple[int, Key], tuple[_Rows, _Rows, int, int]] = {}

    def tally_of(self, raw: RawRequest) -> GroupTally:
        """Where the calling thread counts requests like ``raw``."""
        key = (get_ident(), _key_of(raw))
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= MAX_GROUPS:
                values, came_unseen = key[1]
                others = (values[0], OTHER, OTHER, *values[3:5], None, None, *values[7:])
                key = (key[0], (others, came_unseen))
            tally = self._tallies.setdefault(key, GroupTally())
        return tally

    def add(self, raw: RawRequest) -> None:
        """Count a request that has ended."""
        arrival, _, end = span_of(raw)
        tally = self.tally_of(raw)
        if raw.seen_open:
            tally.closed.append(raw.id)  # before it is counted: a key of which nothing was counted is not told
        tally.add(arrival, raw.arrival_earliest_ns, end)

    def take(self) -> list[RequestGroup]:
        """What has been counted since the last call."""
        found = []
        for key, tally in self._tallies.copy().items():
            before, longest_before, gaps, overlapping = self._told.get(key, ({}, {}, 0, 0))
            rows = tally.rows.copy()
            longest = rows if tally.longest is None else tally.longest.copy()
            now = (rows, longest, tally.serial_gaps, tally.overlapping)
            durations = _grown(before, rows)
            if not durations and now[2:] == (gaps, overlapping):
                continue
            self._told[key] = now
            first, tally.first_ns = tally.first_ns, NEVER_NS
            (kind, method, name, transport, outcome, error, version, seen, queue, writes), came_unseen = key[1]
            found.append(
                RequestGroup(
                    kind=kind,
                    method=method,
                    name=name,
                    transport=transport,
                    outcome=outcome,
                    error=error,
                    protocol_version=version,
                    seen=seen_of(kind, seen, queue and not came_unseen, writes),
                    count=sum(count for _, count, _ in durations),
                    durations=durations,
                    longest=() if tally.longest is None else _grown(longest_before, longest),
                    max_ns=tally.max_ns,
                    max_longest_ns=max(tally.max_ns, tally.max_longest_ns),
                    first_ns=min(first, tally.last_ns),
                    last_ns=tally.last_ns,
                    serial_gaps=tally.serial_gaps - gaps,
                    overlapping=tally.overlapping - overlapping,
                    closes=tuple(tally.closed.popleft() for _ in range(len(tally.closed))),
                )
            )
        return found


def _grown(before: _Rows, now: _Rows) -> tuple[tuple[int, int, int], ...]:
    none = (0, 0)
    rows = ((bucket, row, before.get(bucket, none)) for bucket, row in now.items())
    return tuple((bucket, row[0] - old[0], row[1] - old[1]) for bucket, row, old in rows if row[0] > old[0])


class _Operation:
    """How the requests of one key are sampled."""

    __slots__ = ("left", "limit_ns", "slow", "tally", "until")

    def __init__(self, tally: GroupTally, limit_ns: int) -> None:
        self.tally = tally
        self.limit_ns = limit_ns  # a request that takes longer is slow
        self.slow: dict[int, int] = {}  # bucket of the duration -> number of slow ones; the tally does not count them
        self.until = 0  # requests from now to the next one picked
        self.left = 0  # requests of the same n that follow it

    def place_next(self, one_in: int, position: int) -> None:
        """The next one picked is at ``position`` of the next ``one_in``."""
        self.until = self.left + position + 1
        self.left = one_in - position - 1


class Allowance:
    """How many records may be made by now: :data:`RECORDS_A_SECOND`, and what a quiet time has left of them."""

    def __init__(self) -> None:
        self._left = float(RECORDS_A_DRAIN)
        self._at_ns: int | None = None

    def at(self, now_ns: int) -> int:
        """For a drain at this instant; at most :data:`RECORDS_A_DRAIN`."""
        passed_ns = 0 if self._at_ns is None else max(0, now_ns - self._at_ns)
        self._at_ns = now_ns
        self._left = min(RECORDS_A_DRAIN, self._left + passed_ns * RECORDS_A_SECOND / 1e9)
        return min(RECORDS_A_DRAIN, max(FEWEST_RECORDS, int(self._left)))

    def take(self, records: int) -> None:
        """So many were made."""
        self._left = max(0.0, self._left - records)


class Sampler:
    """Picks the requests of one session that get a record. Used by one thread.

    Args:
        slow_request_ms: Every request that takes this long gets one; ``None``: see the module's text.
    """

    def __init__(self, slow_request_ms: float | None = None, seed: int | None = None) -> None:
        self.one_in = 1
        self.groups = Groups()
        self._fixed_ns = None if slow_request_ms is None else round(slow_request_ms * 1e6)
        self._operations: dict[Key, _Operation] = {}
        self._last_end_ns: int | None = None
        self._random = random.Random(seed)

    def pick(self, batch: Sequence[RawRequest], live: Iterable[RawRequest], most: int | None = None) -> Picked:
        """Those of ``batch`` that get a record, with their weights; the others are counted.

        Args:
            batch: All that have ended since the last call, in the order of their ends.
            live: Those that have not ended yet.
            most: About how many records of plain requests; by default :data:`RECORDS_A_DRAIN`.
        """
        self._choose(len(batch), RECORDS_A_DRAIN if most is None else most)
        if self.one_in == 1:
            self._last_end_ns = None
            return [(raw, 1) for raw in batch]
        picked: Picked = []
        flights: list[_Flight] = []
        for raw in batch:
            arrival, result, end = span_of(raw)
            weight, tally = self._weight_of(raw, end - arrival)
            if weight:
                picked.append((raw, weight))
            elif tally is not None:
                tally.add(arrival, raw.arrival_earliest_ns, end)
            if raw.kind == "request":
                flights.append((arrival, result, end, gap_ns_of(raw.transport), None if weight == 1 else tally))
        self._note_gaps(flights, min((_arrival_of(raw) for raw in live if raw.kind == "request"), default=NEVER_NS))
        return picked

    def _choose(self, waiting: int, most: int) -> None:
        one_in = 1
        while waiting > one_in * most:
            one_in *= 2
        for operation in self._operations.values() if one_in > 1 else ():
            operation.limit_ns = self._limit_of(operation)
            if one_in != self.one_in:
                operation.left = 0
                operation.place_next(one_in, self._random.randrange(one_in))
        self.one_in = one_in

    def _limit_of(self, operation: _Operation) -> int:
        counts = {bucket: count for bucket, (count, _) in operation.tally.rows.items()}
        merge(counts, operation.slow)
        if sum(counts.values()) < MIN_COUNT:
            return operation.limit_ns
        limit = bucket_bounds(bucket_of(int(quantile(counts, 0.99) or 0)))[1]
        return limit if self._fixed_ns is None else min(limit, self._fixed_ns)

    def _weight_of(self, raw: RawRequest, duration: int) -> tuple[int, GroupTally | None]:
        """(weight, tally that counts it); weight 0 = no record."""
        if raw.outcome != "ok" or raw.seen_open:  # only its record says that a request known to be open has ended
            return 1, None
        key = _key_of(raw)
        operation = self._operations.get(key)
        if operation is None:
            return self._first_of(key, raw)
        if duration > operation.limit_ns:
            bucket = bucket_of(duration)
            operation.slow[bucket] = operation.slow.get(bucket, 0) + 1
            return 1, operation.tally
        operation.until -= 1
        if operation.until > 0:
            return 0, operation.tally
        operation.place_next(self.one_in, self._random.randrange(self.one_in))
        return self.one_in, operation.tally

    def _first_of(self, key: Key, raw: RawRequest) -> tuple[int, GroupTally | None]:
        """The first one is not like the others: it imports, connects and fills caches."""
        if len(self._operations) >= MAX_GROUPS:
            return 0, self.groups.tally_of(raw)
        limit_ns = DEFAULT_SLOW_NS if self._fixed_ns is None else self._fixed_ns
        operation = self._operations[key] = _Operation(self.groups.tally_of(raw), limit_ns)
        operation.place_next(self.one_in, self._random.randrange(self.one_in))
        return 1, operation.tally

    def _note_gaps(self, flights: list[_Flight], open_since_ns: int) -> None:
        """Count which requests overlapped others, and which came alone and right after an answer.

        Another request overlaps this one if it ended before it but after its arrival, or if it ended later and arrived
        earlier. So the loop runs backwards and keeps the earliest arrival of all that ended later.
        """
        earliest, last = open_since_ns, self._last_end_ns
        self._last_end_ns = flights[-1][2] if flights else last
        for index in range(len(flights) - 1, -1, -1):
            arrival, _, _, gap_ns, tally = flights[index]
            answered, ended = flights[index - 1][1:3] if index else (last, last)
            if answered is None or ended is None:
                break
            if tally is not None:
                if answered > arrival or earliest < arrival:
                    tally.overlapping += 1
                elif arrival - ended < gap_ns:
                    tally.serial_gaps += 1
            if arrival < earliest:
                earliest = arrival


def gap_ns_of(transport: str) -> int:
    """How soon after an answer the next request comes of a client that was only waiting for it."""
    return HTTP_GAP_NS if transport in ("http", "sse") else GAP_NS


def _key_of(raw: RawRequest) -> Key:
    return _values_of(raw), raw.arrival_ns is None


def span_of(raw: RawRequest) -> tuple[int, int, int]:
    """(arrival, result, end) of a request that has ended, as its record would have them."""
    end = raw.end_ns or 0
    result = raw.result_ns
    if result is None:
        result = end
    arrival = raw.arrival_ns
    if arrival is None:
        first = raw.first_step_ns
        arrival = result if first is None or first > result else first
    return arrival, result, end


def _arrival_of(raw: RawRequest) -> int:
    arrival = raw.first_step_ns if raw.arrival_ns is None else raw.arrival_ns
    return NEVER_NS if arrival is None else arrival


def seen_of(kind: RequestKind, seen: int, is_transport_seen: bool, is_write_seen: bool) -> int:
    """``seen`` without what the transport does not show."""
    if kind == "function":
        return seen
    if not is_transport_seen:
        seen &= ~QUEUE
    if kind == "request" and not is_write_seen:
        seen &= ~WRITES
    return seen
