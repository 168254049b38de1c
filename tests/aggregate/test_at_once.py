"""How many requests awaited one thing at once, from literal records whose schedule is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from mcp_probe.aggregate.at_once import KEPT, MAX_THINGS
from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import Await, AwaitLoad, AwaitPhase, RequestRecord, Summary
from tests.frames import MS, make_end, make_header, make_request

HOST = "http://127.0.0.1:1"


def call(
    id: int,
    since: int,
    until: int,
    name: str = "ask",
    thing: str = HOST,
    phase: AwaitPhase = "first-byte",
    weight: int = 1,
) -> RequestRecord:
    """A call that awaits ``thing`` from ``since`` until ``until``, in ms, and does nothing else."""
    one = Await("http", thing, "a.py:3", since * MS, until * MS, (until - since) * MS, "exact", phase=phase, calls=1)
    length = (until - since) * MS
    return make_request(id, name, arrival_ns=since * MS, awaiting=length, awaits=(one,), weight=weight)


def folded(*records: RequestRecord) -> Fold:
    fold = Fold()
    fold.add_all([make_header(), *records, make_end()])
    return fold


def only(summary: Summary) -> AwaitLoad:
    (load,) = summary.await_loads
    return load


def levels(load: AwaitLoad) -> list[tuple[int, int, int, int]]:
    return [(level.least, level.most, level.count, round(level.p50_ms)) for level in load.levels]


def test_calls_that_begin_together_are_all_of_the_same_level() -> None:
    load = only(folded(*(call(n, 0, 100) for n in range(1, 9))).summary())
    assert levels(load) == [(5, 8, 8, 100)]
    assert load.mean_at_once == pytest.approx(8)


def test_quick_calls_at_another_line_make_no_level() -> None:
    """Each call sends a ping, and a query of 400 ms, of which three are under way at once."""
    queries = [call(n, 500 * (n // 3), 500 * (n // 3) + 400) for n in range(30)]
    pings = [call(100 + n, 500 * n + 450, 500 * n + 451) for n in range(20)]
    pings = [replace(one, awaits=tuple(replace(each, where="a.py:2") for each in one.awaits or ())) for one in pings]
    assert levels(only(folded(*queries, *pings).summary())) == [(3, 4, 30, 400)]


def test_lengths_are_told_apart_by_level() -> None:
    alone = [call(n, 1_000 * n, 1_000 * n + 20) for n in range(1, 11)]
    pairs = [call(100 + n, 20_000 + 1_000 * (n // 2), 20_040 + 1_000 * (n // 2)) for n in range(10)]
    load = only(folded(*alone, *pairs).summary())
    assert levels(load) == [(1, 1, 10, 20), (2, 2, 10, 40)]
    assert load.mean_at_once == pytest.approx((10 * 20 + 10 * 40) / (10 * 20 + 5 * 40))


def test_the_queue_of_a_pool_has_littles_mean_over_the_time_in_which_anybody_waits() -> None:
    """Twenty calls of 100 ms on a pool of five: 15 wait at first, then 10, then 5."""
    waits = [call(n, 0, 100 * (1 + n % 3)) for n in range(15)]
    pool = [
        make_request(
            record.id + 1,
            "ask",
            awaiting=one.ns,
            awaits=(Await("connection-pool", "pool", None, 0, one.to_ns, one.ns, "exact", limit=5, pending=15),),
        )
        for record in waits
        for one in record.awaits or ()
    ]
    load = only(folded(*pool).summary())
    assert (load.kind, load.object) == ("connection-pool", "pool")
    assert load.mean_at_once == pytest.approx((15 + 10 + 5) / 3)


def test_two_operations_share_the_level_and_have_lengths_of_their_own() -> None:
    summary = folded(call(1, 0, 40, "quick"), call(2, 0, 40, "slow"), call(3, 40, 80, "slow")).summary()
    assert [(load.operation, levels(load)) for load in summary.await_loads] == [
        ("quick", [(2, 2, 1, 40)]),
        ("slow", [(1, 1, 1, 40), (2, 2, 1, 40)]),
    ]


def test_a_record_that_stands_for_four_counts_as_four_at_once() -> None:
    load = only(folded(call(1, 0, 40, weight=4)).summary())
    assert levels(load) == [(3, 4, 4, 40)]


def test_bodies_and_sums_of_short_awaits_have_no_level() -> None:
    short = Await("http", HOST, None, 0, 9 * MS, 6 * MS, "exact", count=3)
    assert (
        folded(call(1, 0, 40, phase="body"), make_request(2, awaiting=9 * MS, awaits=(short,))).summary().await_loads
        == ()
    )


def test_processes_add_up_and_a_summary_changes_nothing() -> None:
    one, other = folded(call(1, 0, 40)), folded(call(1, 0, 40), call(2, 0, 40))
    assert one.summary() == one.summary()
    one.merge(other)
    load = only(one.summary())
    assert levels(load) == [(1, 1, 1, 40), (2, 2, 2, 40)]
    assert load.mean_at_once == pytest.approx(1.5)


def test_what_is_kept_is_bounded() -> None:
    def calls() -> Iterable[RequestRecord]:
        for number in range(2 * KEPT):
            yield call(number + 1, number, number + 1)
        for number in range(2 * MAX_THINGS):
            yield call(10_000 + number, 0, 10, thing=f"http://host{number}:1")

    loads = folded(*calls()).summary().await_loads
    assert len(loads) == MAX_THINGS
    assert sum(level.count for load in loads if load.object == HOST for level in load.levels) == KEPT
