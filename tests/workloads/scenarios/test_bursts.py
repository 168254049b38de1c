"""Calls that are made together: in order, within their limit, and counted."""

from __future__ import annotations

import asyncio

import pytest

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.client import Call
from mcp_probe.workloads.scenarios.tables import Burst, Table, burst, calls_of


class Peer:
    """Counts who is inside; a call leaves once ``together`` of them are, or at once."""

    def __init__(self, together: int = 1) -> None:
        self._together = together
        self._open = asyncio.Event()
        self.inside = self.most = 0
        self.order: list[object] = []

    async def one(self, call: Call) -> float:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.order.append(call.arguments["delay_ms"])
        if self.inside >= self._together:
            self._open.set()
        await self._open.wait()
        await asyncio.sleep(0)
        self.inside -= 1
        return 2.0


def numbered(count: int) -> list[Call]:
    return [Call("wait", {"delay_ms": number}) for number in range(count)]


async def test_calls_at_once_are_all_inside_together() -> None:
    peer = Peer(together=20)
    await burst(peer.one, numbered(20))()
    assert peer.most == 20


async def test_calls_one_by_one_keep_their_order_and_never_meet() -> None:
    peer = Peer()
    await burst(peer.one, numbered(7), one_by_one=True)()
    assert (peer.most, peer.order) == (1, list(range(7)))


async def test_a_limit_is_reached_and_never_passed() -> None:
    peer = Peer(together=4)
    await burst(peer.one, numbered(9), in_flight=4)()
    assert peer.most == 4


async def test_a_round_says_when_each_call_was_answered() -> None:
    round_of = burst(Peer().one, numbered(3), one_by_one=True)
    wall_ms = await round_of()
    assert round_of.last_ms == sorted(round_of.last_ms)
    assert round_of.last_ms[0] > 0 and round_of.last_ms[-1] <= wall_ms


async def test_little_counts_all_rounds_and_knows_what_was_asked() -> None:
    round_of = burst(Peer().one, numbered(5), in_flight=2)
    await round_of()
    await round_of()
    law = round_of.little()
    assert law.asked == 2
    assert law.mean_in_flight == pytest.approx(10 * 2.0 / sum(round_of.wall_ms))
    assert not burst(Peer().one, numbered(5), one_by_one=True)._asked > 1


async def test_a_failing_call_ends_the_round() -> None:
    async def one(call: Call) -> float:
        raise LaunchError("it broke")

    with pytest.raises(LaunchError, match="it broke"):
        await Burst([(one, call) for call in calls_of("wait", 3, 0)])()


def test_rows_of_a_table_share_what_is_said_once_and_may_overrule_it() -> None:
    bench = Bench(quick=True)
    table = Table(bench, "001 §4", series="pool 4", note="half the delay")
    table.sub(metric="waves").put("20 calls", "waves", 5.0, 5, note="counted")
    table.put("20 calls", "ms", 260.0, 521, scale=0.5)
    first, second = bench.outcome().rows
    assert (first.table, first.metric, first.series, first.note) == ("001 §4", "waves", "pool 4", "counted")
    assert (second.metric, second.note, second.documented) == ("time", "half the delay", 521)
    assert second.ratio == pytest.approx(260 / 260.5)
