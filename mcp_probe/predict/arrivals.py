"""When clients send: at times of their own (open), or once they have answers (closed).

A client that waits for answers before it sends again makes fewer requests while the server is slow; one that does not
makes a queue. What a change gives depends on which of the two it is, so it is inferred, said, and can be overruled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from statistics import median

from mcp_probe.model import RequestRecord

_SAME_BURST_NS = 5_000_000
"""Requests that come within this of each other, with no answer between, were sent together."""

_MOSTLY = 0.8
_LOOK_BACK = 512
"""Requests before one that it may have waited for. More at once are not looked through."""
_CLEARLY = 5.0
"""By how much the logarithm of a likelihood has to be larger. Of 60 or 240 open requests at 20 to 80 % of what a server
can do, so simulated, 95 of 100 stay below it; of 240 from 1 to 4 clients who think, nearly all are above."""
_SHORTENS = -0.7
"""Milliseconds of a pause for each of the service before it; -1 where requests come at even times."""
_AFTER_ANSWERS = 0.25
"""Of a time between two sendings: a client that sends again within this share of it after an answer waited for that."""


@dataclass(frozen=True, slots=True)
class Sending:
    """Who sends when. ``after``: positions of requests whose answers came before; ``sent_ns`` counts from the last."""

    after: tuple[int, ...]
    sent_ns: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    sendings: tuple[Sending, ...]
    is_closed: bool
    sentence: str


def sent_ns(record: RequestRecord) -> int:
    """When its client sent it, as far as that is known: no later than it arrived."""
    return record.arrival_ns if record.sent_ns is None else min(record.sent_ns, record.arrival_ns)


def _vague_ns(record: RequestRecord) -> int:
    """By how much earlier it may have been sent: a socket is looked at now and then only."""
    if record.sent_ns is not None:
        return 0
    return next(
        (hi - lo for part, _, lo, hi in record.quality if part == "queue_transport" and lo is not None and hi), 0
    )


def left_ns(record: RequestRecord) -> int:
    """From when on its client may have had the answer. The flush of it may be seen to return later than that."""
    return record.end_ns if record.result_ns is None else record.result_ns


def arrivals_of(order: Sequence[RequestRecord], assumed: str | None = None) -> Arrivals:
    """The sendings of ``order`` (by arrival). ``assumed``: "open" or "closed", whatever it looks like."""
    if not order:
        return Arrivals((), False, "Nothing arrived.")
    times = _times(order)
    bursts = _bursts(order, times)
    is_closed = _looks_closed(order, times, bursts) if assumed is None else assumed == "closed"
    start = times[0]
    if not is_closed:
        found = tuple(Sending((), at - start) for at in times)
        return Arrivals(found, False, _said(order, times, "at times of their own (open)", assumed))
    sendings: list[Sending] = []
    for burst in bursts:
        sendings += _closed(order, times, burst, start)
    users = max(_in_flight(order, times))
    return Arrivals(
        tuple(sendings), True, _said(order, times, f"once answers had come (closed, {users} at once)", assumed)
    )


def _said(order: Sequence[RequestRecord], times: Sequence[int], how: str, assumed: str | None) -> str:
    whether = "Clients sent" if assumed is None else "As asked, clients are taken to send"
    return f"{whether} {len(order):,} messages in {(max(r.end_ns for r in order) - times[0]) / 1e9:,.1f} s {how}."


def _times(order: Sequence[RequestRecord]) -> list[int]:
    """When each was sent, in order."""
    found: list[int] = []
    for record in order:
        at = sent_ns(record)
        found.append(max(at, found[-1]) if found else at)
    return found


def _bursts(order: Sequence[RequestRecord], times: Sequence[int]) -> list[list[int]]:
    """Positions of requests that were sent together."""
    ends = sorted(record.end_ns for record in order)
    found: list[list[int]] = []
    for position, at in enumerate(times):
        if found:
            before = times[found[-1][-1]]
            no_answer = bisect_right(ends, at) == bisect_right(ends, before)
            if no_answer and at - _vague_ns(order[position]) - before <= _SAME_BURST_NS:
                found[-1].append(position)
                continue
        found.append([position])
    return found


def _in_flight(order: Sequence[RequestRecord], times: Sequence[int]) -> list[int]:
    """How many were under way as each was sent, itself included."""
    ends = sorted(record.end_ns for record in order)
    return [position + 1 - bisect_right(ends, at) for position, at in enumerate(times)]


def _looks_closed(order: Sequence[RequestRecord], times: Sequence[int], bursts: Sequence[Sequence[int]]) -> bool:
    """Whether sendings follow answers closely, or come more seldom the more requests are under way.

    Open arrivals come at their times whatever the answers do: if at even times, a longer service shortens the pause
    after it. Closed ones leave the pause as it is.
    """
    answers = sorted((left_ns(record), record.end_ns) for record in order)
    pauses, services, gaps = [], [], []
    without = known = answer = 0
    for before, burst in pairwise(bursts):
        at, last = times[burst[0]], times[before[0]]
        while known < len(answers) and answers[known][0] <= at:
            answer = max(answer, min(answers[known][1], at))
            known += 1
        if answer <= times[before[-1]]:
            without += 1  # sent while nothing had been answered since the one before
            continue
        pauses.append(at - answer)
        services.append(answer - last)
        gaps.append(at - last)
    follow = bool(pauses) and len(pauses) >= _MOSTLY * (len(pauses) + without)
    if follow and median(pauses) < _AFTER_ANSWERS * median(gaps):
        return True
    return not (follow and _slope(services, pauses) <= _SHORTENS) and _keeps_clear(order, times, bursts)


def _keeps_clear(order: Sequence[RequestRecord], times: Sequence[int], bursts: Sequence[Sequence[int]]) -> bool:
    """Whether fewer sendings come while more are under way, as from so many clients who wait for answers.

    Open clients send alike often, however many are under way: each number of them sees as many sendings as it lasted.
    Of N clients who wait, those who have an answer send, N - k while k are under way. Each is a Poisson process whose
    only unknown is one rate; its maximum is put in. N is the most that were under way, which no sending exceeds by its
    meaning: so the second has to be clearly likelier. Source: D. Cox, P. Lewis, The Statistical Analysis of Series of
    Events (1966), chapter 3.
    """
    edges = []
    for burst in bursts:
        since = times[burst[0]]
        edges += [(since, 1), (max(since, *(order[position].end_ns for position in burst)), -1)]
    edges.sort()
    lasted: Counter[int] = Counter()
    sent: Counter[int] = Counter()
    now = most = 0
    before = edges[0][0]
    for at, change in edges:
        lasted[now] += at - before
        sent[now] += change > 0
        now, before = now + change, at
        most = max(most, now)
    whole = sum(lasted.values())
    free = sum(ns * (most - count) for count, ns in lasted.items())
    if not whole or not free:
        return True
    sendings = sum(sent.values())
    gained = sum(often * log(most - count) for count, often in sent.items() if count < most)
    return gained - sendings * log(free / whole) > _CLEARLY


def _slope(xs: Sequence[int], ys: Sequence[int]) -> float:
    """Of the line through the points; 0 where all ``xs`` are much alike."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    if spread < len(xs) * (0.05 * mean_x) ** 2:
        return 0.0
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread


def _closed(order: Sequence[RequestRecord], times: Sequence[int], burst: Sequence[int], start: int) -> list[Sending]:
    at, first = times[burst[0]], burst[0]
    earlier = range(max(0, first - _LOOK_BACK), first)
    over = sorted((p for p in earlier if left_ns(order[p]) <= at), key=lambda p: order[p].end_ns)
    if not over:
        return [Sending((), times[position] - start) for position in burst]
    if len(over) == len(earlier):  # all of what went before is answered
        last = over[-1]
        since = times[first - 1]
        recent = tuple(position for position in over if order[position].end_ns >= since)
        return [Sending(recent or (last,), max(0, times[p] - order[last].end_ns)) for p in burst]
    # Each of several clients goes on as its own answer comes: the latest answers, one each.
    found = []
    for number, position in enumerate(burst):
        answer = over[max(0, len(over) - len(burst) + number)]
        found.append(Sending((answer,), max(0, times[position] - order[answer].end_ns)))
    return found
