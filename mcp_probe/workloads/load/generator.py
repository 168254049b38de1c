"""Sends requests when they are due, whatever the server makes of them, and notes what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from mcp_probe.clock import now_ns
from mcp_probe.workloads.load.lateness import Beat
from mcp_probe.workloads.load.log import Log
from mcp_probe.workloads.load.mix import Call
from mcp_probe.workloads.load.peer import Peer, reply_within
from mcp_probe.workloads.load.wire import Reply

LEAD_S = 0.05
"""Between the order to begin and the first request that is due."""

MOST_OUTSTANDING = 20_000
"""Requests in flight at most; what is due beyond is counted as not sent. Keeps a dead server from eating our memory."""

_GRACE_S = 5.0
"""An answer that comes so long after the window of the closed loop still counts."""


class _Gauge:
    """Requests in flight and their integral over time; not taken from the log, so that it can check the log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._since_ns = now_ns()
        self.now = 0

    def change(self, by: int, at_ns: int) -> None:
        if at_ns >= self._since_ns:
            self._log.outstanding_ns += self.now * (at_ns - self._since_ns)
            self._since_ns = at_ns
        else:  # the answer was read before the last request was sent, and its callback ran after that
            self._log.outstanding_ns += by * (self._since_ns - at_ns)
        self.now += by
        self._log.outstanding_peak = max(self._log.outstanding_peak, self.now)


class Turns:
    """Gives each call its variants one after the other; one for all phases of a load."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        self.calls = calls
        self._turns = [0] * len(calls)

    def post(self, peer: Peer, call: int) -> asyncio.Future[Reply]:
        """Sends the next of that call."""
        order = self.calls[call].order(self._turns[call])
        self._turns[call] += 1
        return peer.post(order, stamped=True)


async def open_loop(
    peer: Peer,
    turns: Turns,
    schedule: Iterable[tuple[int, int]],
    *,
    drain_s: float,
    stop: asyncio.Event,
    show: Callable[[int, int], None] | None = None,
    window_s: float | None = None,
) -> Log:
    """Sends each request at the instant it is due, however many are still unanswered.

    ``stop`` ends it early; ``show`` is told (sent, outstanding) now and then. With ``window_s``, how long
    requests shall be due, a long load needs no more memory than a short one. Never raises for what the server does.
    """
    with Beat() as beat:
        log = await _opened(peer, turns, schedule, drain_s, stop, show, window_s)
    log.pauses = beat.pauses
    return log


async def _opened(
    peer: Peer,
    turns: Turns,
    schedule: Iterable[tuple[int, int]],
    drain_s: float,
    stop: asyncio.Event,
    show: Callable[[int, int], None] | None,
    window_s: float | None,
) -> Log:
    log = Log(now_ns() + round(LEAD_S * 1e9), None if window_s is None else round(window_s * 1e9))
    gauge = _Gauge(log)
    waiting: dict[asyncio.Future[Reply], tuple[int, int, int]] = {}

    def done(future: asyncio.Future[Reply]) -> None:
        call, due, sent = waiting.pop(future)
        if future.cancelled():
            now = now_ns()
            log.add(call, due, sent, now, "cancelled")
            log.silences.ended(future, now, given_up=True)
            gauge.change(-1, now)
        else:
            reply = future.result()
            log.add_reply(call, due, reply)
            log.silences.ended(future, reply.answered_ns)
            gauge.change(-1, reply.answered_ns)

    number = 0
    for after_ns, call in schedule:
        due = log.begun_ns + after_ns
        await _until(due, stop)
        if stop.is_set() or peer.gone():
            log.interrupted = True
            break
        log.offered_until_ns = due
        if len(waiting) >= MOST_OUTSTANDING:
            log.add(call, due, 0, 0, "not sent")
            continue
        now = now_ns()
        future = turns.post(peer, call)
        waiting[future] = (call, due, now)
        log.silences.sent(future, call, now)
        gauge.change(1, now)
        future.add_done_callback(done)
        number += 1
        if show is not None:
            show(number, len(waiting))
    await _drained(waiting, drain_s, stop)
    log.ended_ns = log.last_done_ns or now_ns()
    return log


async def _until(due_ns: int, stop: asyncio.Event) -> None:
    """Until then, or until stopped; gives the loop one turn in any case, so that answers are read in a burst, too."""
    ahead = (due_ns - now_ns()) / 1e9
    if ahead <= 0:
        await asyncio.sleep(0)
    elif ahead < 0.5:
        await asyncio.sleep(ahead)
    else:
        waiter = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((waiter,), timeout=ahead)
        finally:
            waiter.cancel()


async def _drained(
    waiting: dict[asyncio.Future[Reply], tuple[int, int, int]], limit_s: float, stop: asyncio.Event
) -> None:
    """Waits for the answers that are still to come, then gives up the rest."""
    end = now_ns() + round((0 if stop.is_set() else limit_s) * 1e9)
    while waiting and (left := end - now_ns()) > 0 and not stop.is_set():
        await asyncio.wait(list(waiting), timeout=min(left / 1e9, 0.25))
    left_over = list(waiting)
    for future in left_over:
        future.cancel()
    if left_over:
        await asyncio.wait(left_over, timeout=5.0)
        await asyncio.sleep(0)  # their callbacks


async def closed_loop(
    peer: Peer,
    turns: Turns,
    schedule: Iterator[tuple[int, int]],
    *,
    in_flight: int,
    window_s: float,
    stop: asyncio.Event,
) -> Log:
    """The same schedule by clients that wait: each sends its next request once it is due *and* the last is answered.

    So a slow answer keeps the requests behind it from being sent, and from being timed: that is coordinated omission.
    What is due and was not sent within ``window_s`` seconds is not sent at all. ``due_ns`` is kept as in the open loop.
    """
    log = Log(now_ns() + round(LEAD_S * 1e9), round(window_s * 1e9))
    gauge = _Gauge(log)
    end = log.begun_ns + round(window_s * 1e9)

    async def client() -> None:
        for after_ns, call in schedule:  # one iterator for all: each takes the next
            due = log.begun_ns + after_ns
            if now_ns() >= end:
                log.add(call, due, 0, max(due, end), "not sent")  # it would have waited so long at least
                continue
            await _until(due, stop)
            if stop.is_set() or peer.gone():
                log.interrupted = True
                return
            log.offered_until_ns = max(log.offered_until_ns, due)
            gauge.change(1, now_ns())
            future = turns.post(peer, call)
            sent = now_ns()
            reply = await reply_within(future, (end - now_ns()) / 1e9 + _GRACE_S)
            if reply is None:
                now = now_ns()
                log.add(call, due, sent, now, "cancelled")
                gauge.change(-1, now)
            else:
                log.add_reply(call, due, reply)
                gauge.change(-1, reply.answered_ns)

    await asyncio.gather(*(client() for _ in range(in_flight)))
    log.ended_ns = log.last_done_ns or now_ns()
    return log
