from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_probe.aggregate.saturation import MAX_HOLDERS, MAX_POOLS, Pools
from mcp_probe.model import AbandonedWork, ExecutorSummary, PoolSample
from tests.frames import MS, SECOND, make_pool


def only_row(*samples: PoolSample) -> ExecutorSummary:
    pools = Pools()
    for sample in samples:
        pools.add(sample)
    (row,) = pools.summaries()
    return row


def test_six_jobs_of_100_ms_on_two_threads_wait_0_100_and_200_ms() -> None:
    row = only_row(
        make_pool(
            [0, 0, 100 * MS, 100 * MS, 200 * MS, 200 * MS],
            max=2.0,
            run_ns=600 * MS,
            return_ns=6 * 99 * MS,
            at_limit_ns=300 * MS,
            pending_peak=4,
            active_peak=2,
            borrowed_peak=2,
        )
    )

    assert row.wait_ms.p50 == 100
    assert row.wait_ms.p99 == 200
    assert row.wait_max_ms == 200
    assert row.wait_total_ms == 600
    assert row.run_ms == 100
    assert row.return_ms == 99
    assert row.at_limit_share == pytest.approx(0.3)
    assert (row.max, row.pending_peak, row.active_peak, row.borrowed_peak, row.jobs) == (2, 4, 2, 2, 6)


def test_how_many_were_queued_is_known_where_every_sample_says_so() -> None:
    assert only_row(make_pool(queued_peak=0), make_pool(queued_peak=3), make_pool(queued_peak=1)).queued_peak == 3
    assert only_row(make_pool(queued_peak=0)).queued_peak == 0
    assert only_row(make_pool(queued_peak=3), make_pool(queued_peak=None)).queued_peak is None


def test_tokens_needed_is_arrival_rate_times_mean_run() -> None:
    steady = make_pool(submitted=10, finished=10, run_ns=10 * 500 * MS)

    assert only_row(*[steady] * 5).tokens_needed == pytest.approx(5)


def test_silence_does_not_dilute_the_tokens_that_a_busy_time_needed() -> None:
    busy = make_pool(submitted=10, finished=10, run_ns=10 * 500 * MS)

    assert only_row(busy, *[make_pool()] * 100).tokens_needed == pytest.approx(5)


def test_tokens_needed_is_unknown_before_the_first_job_finished() -> None:
    row = only_row(make_pool(submitted=3, finished=0))

    assert row.tokens_needed is None
    assert row.run_ms is None
    assert row.wait_ms.p50 is None


def test_the_transports_own_jobs_are_a_line_of_their_own() -> None:
    row = only_row(
        make_pool(transport_jobs=2, transport_wait_ns=90 * MS, transport_wait_max_ns=80 * MS),
        make_pool(transport_jobs=1, transport_wait_ns=10 * MS, transport_wait_max_ns=10 * MS),
    )

    assert row.jobs == 0
    assert (row.transport_jobs, row.transport_wait_ms, row.transport_wait_max_ms) == (3, 100, 80)


def test_the_transport_is_starved_only_by_a_pool_that_is_full_then() -> None:
    """It waits for the GIL and for the loop, too: that the pool was full at another time does not matter."""
    full = make_pool(max=40.0, borrowed_peak=40, at_limit_ns=100 * MS)
    idle = make_pool(max=40.0, borrowed_peak=2)
    late = replace(idle, transport_jobs=1, transport_wait_ns=90 * MS, transport_wait_max_ns=90 * MS)
    starved = replace(full, transport_jobs=1, transport_wait_ns=60 * MS, transport_wait_max_ns=60 * MS)

    assert only_row(full, idle, late).transport_starved_max_ms == 0
    assert only_row(late, full).transport_starved_max_ms == 0
    assert only_row(late, starved).transport_starved_max_ms == 60
    assert only_row(full, late).transport_starved_max_ms == 90, "it may have been full until the wait ended"


def test_holders_stand_in_order_of_the_thread_time_they_took() -> None:
    row = only_row(
        make_pool(holders=(("quick", 100, 10 * MS), ("slow", 1, 500 * MS))), make_pool(holders=(("quick", 1, MS),))
    )

    assert row.holders == ("slow", "quick")


def test_a_raised_limit_is_shown_once_it_holds_whatever_the_order_of_samples() -> None:
    early, late = make_pool(at_ns=SECOND, max=2.0), make_pool(at_ns=2 * SECOND, max=8.0)

    assert only_row(early, late).max == only_row(late, early).max == 8


def test_pools_made_at_one_place_are_one_row_and_others_stay_apart() -> None:
    pools = Pools()
    for number in range(3):
        pools.add(make_pool([MS], pool=number, name="CapacityLimiter", made_at="server.py:10"))
    pools.add(make_pool([MS], pool=7, name="CapacityLimiter", made_at=None))
    pools.add(make_pool([MS], pool=8, name="CapacityLimiter", made_at=None))

    assert sorted(row.jobs for row in pools.summaries()) == [1, 1, 3]


def test_the_number_of_rows_and_holders_is_bounded() -> None:
    pools = Pools()
    for number in range(MAX_POOLS + 10):
        holders = tuple((f"tool {number} {other}", 1, MS) for other in range(2 * MAX_HOLDERS))
        pools.add(make_pool([MS], pool=number, holders=holders))

    assert len(pools.by_key) == MAX_POOLS + 1
    assert sum(row.jobs for row in pools.summaries()) == MAX_POOLS + 10
    assert max(len(tally.holders) for tally in pools.by_key.values()) == MAX_HOLDERS


def test_merged_pools_tell_what_one_pool_of_both_streams_would() -> None:
    samples = [
        make_pool([MS, 5 * MS], run_ns=9 * MS, cpu_ns=2 * MS, return_ns=4 * MS),
        make_pool([0], at_limit_ns=MS, holders=(("a", 1, MS),)),
    ]
    one, left, right = Pools(), Pools(), Pools()
    for sample in samples:
        one.add(sample)
    left.add(samples[0])
    right.add(samples[1])
    left.merge(right)

    assert left.summaries() == one.summaries()


def test_work_for_nobody_is_added_up_by_operation_the_most_first() -> None:
    frames = [
        make_pool(active_ns=10 * SECOND, ran_on=(("a", 1, SECOND, SECOND), ("b", 2, 3 * SECOND, 2 * SECOND))),
        make_pool(active_ns=10 * SECOND, ran_on=(("a", 0, 4 * SECOND, 5 * SECOND),)),
    ]
    left, right = Pools(), Pools()
    left.add(frames[0])
    right.add(frames[1])
    left.merge(right)
    [row] = left.summaries()
    assert row.abandoned_work == (
        AbandonedWork("a", 1, 5_000.0, 5_000.0, 0.25),
        AbandonedWork("b", 2, 3_000.0, 2_000.0, 0.15),
    )
