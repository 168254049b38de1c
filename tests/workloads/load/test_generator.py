"""The two loops against a peer that answers when it is told to: nothing here waits for a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mcp_probe.clock import now_ns
from mcp_probe.workloads.load import generator, lateness, loops
from mcp_probe.workloads.load.generator import Turns, closed_loop, open_loop
from mcp_probe.workloads.load.log import Log
from mcp_probe.workloads.load.mix import Call
from mcp_probe.workloads.load.result import phase_of
from mcp_probe.workloads.load.verdict import generator_behind
from mcp_probe.workloads.load.wire import Kind, Order, Reply

CALL = (Call("tools/call", ({"name": "a"}, {"name": "b"})),)
PATIENT_S = 60.0


class Told:
    """A peer whose answers are given by ``reply``; ``None`` = none ever."""

    modern = True
    protocol = "2026-07-28"
    server = "told"
    capabilities: Mapping[str, Any] = {}
    pid: int | None = None

    def __init__(self, reply: Callable[[int], Kind | None]) -> None:
        self.reply = reply
        self.sent: list[Order] = []
        self.futures: list[asyncio.Future[Reply]] = []
        self.away = ""

    def post(self, order: Order, *, stamped: bool = False) -> asyncio.Future[Reply]:
        now = now_ns()
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        kind = self.reply(len(self.sent))
        self.sent.append(order)
        self.futures.append(future)
        if kind is not None:
            future.set_result(Reply(now, now_ns(), kind, "" if kind == "ok" else "told to"))
        return future

    def notify(self, order: Order) -> asyncio.Future[Reply]:
        raise NotImplementedError

    def gone(self) -> str:
        return self.away

    async def last_words(self) -> str:
        return self.away


def due(count: int, every_ns: int) -> Iterator[tuple[int, int]]:
    return ((number * every_ns, 0) for number in range(count))


def opened(peer: Told, count: int, drain_s: float = PATIENT_S, every_ns: int = 1000) -> Log:
    async def whole() -> Log:
        return await open_loop(peer, Turns(CALL), due(count, every_ns), drain_s=drain_s, stop=asyncio.Event())

    return loops.run(whole())


def test_the_open_loop_sends_on_although_nothing_is_answered() -> None:
    peer = Told(lambda number: None)
    log = opened(peer, 50, drain_s=0.05)
    assert len(peer.sent) == 50
    assert log.tally().fates["cancelled"] == len(log) == 50
    assert log.outstanding_peak == 50
    assert all(future.cancelled() for future in peer.futures)


def test_every_request_has_one_fate() -> None:
    kinds: list[Kind] = ["ok", "tool error", "protocol error", "transport error"]
    log = opened(Told(lambda number: kinds[number % 4]), 100)
    assert [log.tally().fates[kind] for kind in kinds] == [25, 25, 25, 25]
    assert len(log) == 100
    assert sum(log.failures.values()) == 75


def test_variants_take_turns() -> None:
    peer = Told(lambda number: "ok")
    opened(peer, 5)
    assert [order.params["name"] for order in peer.sent] == ["a", "b", "a", "b", "a"]


def test_latency_is_counted_from_when_a_request_was_due() -> None:
    log = opened(Told(lambda number: "ok"), 20)
    assert all(due == log.begun_ns + 1000 * number for number, due in enumerate(log.due_ns))
    assert all(due <= sent <= done for due, sent, done in zip(log.due_ns, log.sent_ns, log.done_ns, strict=True))


def test_beyond_a_bound_requests_are_counted_as_not_sent(monkeypatch: Any) -> None:
    monkeypatch.setattr(generator, "MOST_OUTSTANDING", 7)
    peer = Told(lambda number: None)
    log = opened(peer, 20, drain_s=0.05)
    assert len(peer.sent) == 7
    assert (log.tally().fates["cancelled"], log.tally().fates["not sent"]) == (7, 13)


def test_a_server_that_has_gone_ends_the_load() -> None:
    peer = Told(lambda number: "ok")

    def leave(number: int) -> Kind:
        if number == 9:
            peer.away = "it crashed"
        return "ok"

    peer.reply = leave
    log = opened(peer, 1000)
    assert (len(log), log.interrupted) == (10, True)


def test_a_stopped_load_keeps_what_was_sent() -> None:
    async def whole() -> Log:
        stop = asyncio.Event()
        peer = Told(lambda number: None if number else stop.set())
        return await open_loop(peer, Turns(CALL), due(1000, 1000), drain_s=PATIENT_S, stop=stop)

    log = loops.run(whole())
    assert log.interrupted
    assert 1 <= len(log) < 1000
    assert log.tally().fates["cancelled"] == len(log)


def test_a_generator_that_stands_still_says_when_and_how_long() -> None:
    """Its tenth request holds its loop: what was due meanwhile is late, and the beat saw it without any request."""
    held: list[tuple[int, int]] = []

    def hold(number: int) -> Kind:
        if number == 10:
            began = now_ns()
            time.sleep(0.2)
            held.append((began, now_ns()))
        return "ok"

    log = opened(Told(hold), 50)
    ((began, ended),) = held
    assert any(start <= began and ended <= end for start, end in log.pauses)
    assert lateness.within(log.pauses, began, ended) == ended - began
    assert log.sent_ns[11] >= ended > log.due_ns[11]


def test_a_generator_too_slow_for_its_schedule_is_behind_by_its_own_clock() -> None:
    """Due 1,000 times a second; each sending takes at least 5 ms, so that 200 a second is the most it can do."""

    def slowly(number: int) -> Kind:
        time.sleep(0.005)
        return "ok"

    phase = phase_of(opened(Told(slowly), 200, every_ns=1_000_000), 5.0)
    assert phase.offered_per_s == 1000
    assert phase.sent_per_s <= 200 * 1.05  # the span of the schedule begins before the first request
    assert phase.late_at_end_s >= 199 * 0.004
    assert generator_behind(phase)


def test_requests_in_flight_are_integrated_though_their_ends_come_out_of_order() -> None:
    log = Log()
    gauge = generator._Gauge(log)
    start = now_ns() + 10**9
    gauge.change(0, start)
    log.outstanding_ns = 0
    for by, at in ((+1, 0), (+1, 100), (-1, 40), (+1, 120), (-1, 110), (-1, 130)):
        gauge.change(by, start + at)
    assert (log.outstanding_ns, gauge.now) == ((40 - 0) + (110 - 100) + (130 - 120), 0)


def test_the_closed_loop_never_has_more_in_flight_than_it_was_told() -> None:
    async def whole() -> tuple[Log, int]:
        peer = Told(lambda number: None)
        worst = 0

        async def answer_one_by_one() -> None:
            nonlocal worst
            done = 0
            while done < 60:
                while len(peer.sent) - done < min(3, 60 - done):
                    await asyncio.sleep(0)
                for _ in range(10):  # would it send one more?
                    await asyncio.sleep(0)
                worst = max(worst, len(peer.sent) - done)
                peer.futures[done].set_result(Reply(now_ns(), now_ns(), "ok"))
                done += 1

        answering = asyncio.ensure_future(answer_one_by_one())
        log = await closed_loop(peer, Turns(CALL), due(60, 1000), in_flight=3, window_s=PATIENT_S, stop=asyncio.Event())
        await answering
        return log, worst

    log, worst = loops.run(whole())
    assert worst == 3 == log.outstanding_peak
    assert log.tally().fates["ok"] == len(log) == 60


def test_the_closed_loop_counts_what_it_came_too_late_for() -> None:
    async def whole() -> Log:
        peer = Told(lambda number: "ok")
        every_second = ((number * 1_000_000_000, 0) for number in range(5))
        return await closed_loop(peer, Turns(CALL), every_second, in_flight=1, window_s=-1.0, stop=asyncio.Event())

    log = loops.run(whole())
    assert log.tally().fates["not sent"] == len(log) == 5
    assert not log.interrupted


def test_the_loop_is_left_clean() -> None:
    left: list[asyncio.Task[Any]] = []

    async def leaves_a_task() -> str:
        left.append(asyncio.ensure_future(asyncio.sleep(3600)))
        return "done"

    assert loops.run(leaves_a_task()) == "done"
    assert left[0].cancelled()
