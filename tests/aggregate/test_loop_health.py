from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.aggregate.loop_health import MAX_LOOPS, Loops, LoopTally, arrival_delay_ns
from mcp_probe.histogram import bucket_bounds, bucket_of
from tests.frames import MS, SECOND, make_histogram, make_loop_sample, make_step


def tally_of(*samples: object) -> LoopTally:
    tally = LoopTally()
    for sample in samples:
        tally.add(sample)  # type: ignore[arg-type]
    return tally


def delays_by_brute_force(lengths: list[int], span: int, step: int) -> list[float]:
    """What arrivals every ``step`` ns would wait, iterations packed one after the other, the poll at the end."""
    ends, at = [], 0
    for length in lengths:
        ends.append((at, at + length))
        at += length
    delays = []
    for arrival in range(step // 2, span, step):
        delays.append(next((end - arrival for start, end in ends if start <= arrival < end), 0))
    return sorted(delays)


def test_blocks_of_500_ms_every_2_s_delay_a_random_arrival_by_480_ms_at_p99() -> None:
    lengths = [500 * MS] * 5
    truth = delays_by_brute_force(lengths, 10 * SECOND, step=MS)
    by_definition = truth[int(0.99 * len(truth))] / MS

    summary = tally_of(make_loop_sample(lengths, span_ns=10 * SECOND)).summary()

    assert by_definition == pytest.approx(480, abs=1)
    assert summary.arrival_delay_ms.p99 == pytest.approx(by_definition, abs=1)
    assert summary.arrival_delay_ms.p50 == 0
    assert summary.arrival_delay_ms.mean == pytest.approx(sum(truth) / len(truth) / MS, rel=0.01)
    assert summary.arrival_delay_ms.max == 500
    assert summary.utilization == pytest.approx(0.25)


def test_the_busiest_second_is_seen_beside_quiet_ones_and_a_short_sample_is_none() -> None:
    tally = tally_of(
        make_loop_sample([450 * MS, 480 * MS], span_ns=1_000 * MS),
        make_loop_sample([], span_ns=9_000 * MS),
        make_loop_sample([499 * MS], span_ns=499 * MS),
    )
    assert tally.busiest_share == pytest.approx(0.93)
    tally.merge(tally_of(make_loop_sample([600 * MS], span_ns=600 * MS)))
    assert tally.busiest_share == 1.0


def test_a_loop_that_never_polls_delays_half_of_all_arrivals_by_half_an_iteration() -> None:
    summary = tally_of(make_loop_sample([100 * MS] * 10)).summary()

    assert summary.utilization == 1
    assert summary.arrival_delay_ms.p50 == pytest.approx(50)
    assert summary.arrival_delay_ms.p90 == pytest.approx(90)


def test_an_idle_loop_delays_nobody() -> None:
    delay = tally_of(make_loop_sample([])).summary().arrival_delay_ms

    assert (delay.mean, delay.p50, delay.p99, delay.max) == (0, 0, 0, 0)


def test_a_loop_whose_polls_cannot_be_seen_is_unavailable_and_not_idle() -> None:
    summary = tally_of(make_loop_sample([], poll_ns=0, quality="unavailable")).summary()

    assert summary.utilization is None
    assert summary.arrival_delay_ms.p99 is None
    assert summary.quality == "unavailable"


def test_a_loop_that_was_blocked_from_start_to_end_is_busy_and_not_unavailable() -> None:
    assert tally_of(make_loop_sample([], poll_ns=0)).summary().utilization == 1


def test_the_worst_tag_of_a_loops_samples_is_its_own() -> None:
    assert tally_of(make_loop_sample([MS]), make_loop_sample([MS], quality="estimate")).summary().quality == "estimate"


@given(
    st.lists(st.integers(1, 5_000) | st.sampled_from([1_000, 1_001, 1_063]), min_size=1, max_size=12),
    st.integers(0, 20_000),
    st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]) | st.floats(0, 1),
)
def test_a_quantile_of_arrival_delay_is_off_by_less_than_its_buckets_width(
    lengths: list[int], poll: int, q: float
) -> None:
    span = sum(lengths) + poll
    delays = delays_by_brute_force(lengths, span, step=1)
    truth = delays[min(len(delays) - 1, int(q * len(delays)))]

    got = arrival_delay_ns(Buckets(make_histogram(lengths)), span, q)

    low, high = bucket_bounds(bucket_of(int(max(got, truth))))
    assert abs(got - truth) <= (high - low) + 2  # 2: the brute force stands on whole nanoseconds


@given(st.lists(st.integers(1, 10**10), min_size=1), st.integers(0, 10**10))
def test_quantiles_of_arrival_delay_never_fall_as_q_grows(lengths: list[int], poll: int) -> None:
    iterations = Buckets(make_histogram(lengths))
    got = [arrival_delay_ns(iterations, sum(lengths) + poll, q / 20) for q in range(21)]

    assert all(a <= b * (1 + 1e-9) + 1e-6 for a, b in pairwise(got))
    assert got[0] >= 0
    assert got[-1] <= bucket_bounds(bucket_of(max(lengths)))[1]


@given(st.lists(st.integers(1, 10**8), min_size=2), st.data())
def test_two_samples_tell_what_one_of_both_would(lengths: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(lengths) - 1))
    first = make_loop_sample(lengths[:cut], span_ns=sum(lengths[:cut]) + 7)
    second = make_loop_sample(lengths[cut:], span_ns=sum(lengths[cut:]) + 9)
    whole = make_loop_sample(lengths, span_ns=sum(lengths) + 16)
    merged = tally_of(first)
    merged.merge(tally_of(second))

    assert tally_of(first, second).summary() == tally_of(whole).summary() == merged.summary()


def test_the_loop_that_was_there_longest_is_the_main_one_and_the_number_of_loops_is_bounded() -> None:
    loops = Loops()
    for ordinal in range(1, 3 * MAX_LOOPS):
        loops.tally(ordinal).add(make_loop_sample([MS], span_ns=2 * SECOND if ordinal == 2 else SECOND))

    assert loops.main() is loops.by_ordinal[2]
    assert len(loops.by_ordinal) == MAX_LOOPS + 1


# --- who had the CPU ---


def contended(**overrides: int) -> LoopTally:
    """One second, 800 ms busy, of which 300 ms on a CPU; another thread burned 450 ms."""
    values = {"poll_ns": 200 * MS, "cpu_ns": 300 * MS, "run_queue_ns": 0, "other_threads_cpu_ns": 450 * MS}
    return tally_of(make_loop_sample([800 * MS], **{**values, **overrides}))


def test_who_had_the_cpus_is_told_by_the_samples_in_which_the_loop_waited_for_one() -> None:
    waiting = make_loop_sample(cpu_ns=0, run_queue_ns=300 * MS, other_threads_cpu_ns=1_800 * MS)
    half = make_loop_sample(cpu_ns=0, run_queue_ns=100 * MS, other_threads_cpu_ns=1_000 * MS)
    idle = make_loop_sample(cpu_ns=0, run_queue_ns=0, other_threads_cpu_ns=0)

    assert tally_of(waiting, *[idle] * 20).queued_beside_cpus == pytest.approx(1.8), "an idle hour changes nothing"
    assert tally_of(waiting, half).queued_beside_cpus == pytest.approx((300 * 1.8 + 100 * 1.0) / 400)
    merged = tally_of(waiting)
    merged.merge(tally_of(half))
    assert merged.queued_beside_cpus == tally_of(waiting, half).queued_beside_cpus
    assert tally_of(idle).queued_beside_cpus is None
    assert tally_of(make_loop_sample(run_queue_ns=300 * MS)).queued_beside_cpus is None


def test_off_cpu_busy_time_beside_a_burning_thread_is_the_gil_estimate_capped_by_that_threads_cpu() -> None:
    assert contended().off_cpu_ns == 500 * MS
    assert contended().gil_wait_ns == 450 * MS


def test_off_cpu_time_of_a_blocking_call_is_not_the_gils() -> None:
    tally = contended()
    tally.add_step(make_step(0, 400 * MS, cause="blocking-call", cpu_ns=0))

    assert tally.gil_wait_ns == 100 * MS


def test_off_cpu_time_without_another_thread_at_work_is_not_the_gils() -> None:
    assert contended(other_threads_cpu_ns=0).gil_wait_ns == 0


def test_run_queue_wait_is_the_hosts_and_not_the_gils() -> None:
    assert contended(run_queue_ns=500 * MS).gil_wait_ns == 0


def test_without_thread_clocks_the_gil_estimate_is_unknown() -> None:
    assert tally_of(make_loop_sample([800 * MS])).gil_wait_ns is None
