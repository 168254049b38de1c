from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.aggregate.process_health import ProcessTally, Slope
from mcp_probe.model import ProcessSample
from tests.frames import MS, SECOND, make_process


def tally_of(*samples: ProcessSample) -> ProcessTally:
    tally = ProcessTally()
    for sample in samples:
        tally.add(sample)
    return tally


def test_the_slope_of_a_growing_backlog_is_its_growth_per_second() -> None:
    growing = [make_process(at_ns=second * SECOND, outstanding=10 + 30 * second) for second in range(6)]

    assert tally_of(*growing).outstanding().slope_per_s == pytest.approx(30)


def test_four_samples_are_too_few_for_a_slope() -> None:
    growing = [make_process(at_ns=second * SECOND, outstanding=second) for second in range(4)]

    assert tally_of(*growing).outstanding().slope_per_s is None


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**6)), min_size=5, unique_by=lambda point: point[0]))
def test_the_slope_is_that_of_the_textbook_formula(points: list[tuple[int, int]]) -> None:
    slope = Slope()
    for at, level in points:
        slope.add(at, level)
    xs = [at / SECOND for at, _ in points]
    ys = [float(level) for _, level in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    xx = sum((x - mean_x) ** 2 for x in xs)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))

    if xx > 1e-6:
        assert slope.per_second == pytest.approx(xy / xx, rel=1e-4, abs=1e-4 * max(ys) + 1e-9)


def test_streams_with_other_clocks_and_levels_share_one_slope_when_merged() -> None:
    left, right = Slope(), Slope()
    for second in range(4):
        left.add(second * SECOND, 10 * second)
        right.add((1000 + second) * SECOND, 5000 + 10 * second)
    left.merge(right)

    assert left.per_second == pytest.approx(10)


def test_the_worst_second_counts_the_pauses_of_any_second_not_of_a_sample() -> None:
    def pause(start_ms: int, ms: int) -> tuple[int, int, int]:
        return (start_ms * MS, (start_ms + ms) * MS, 2)

    apart = tally_of(make_process(gc_pauses=(pause(0, 60), pause(2000, 60)), gc_ns=120 * MS))
    across = tally_of(
        make_process(gc_pauses=(pause(900, 60),), gc_ns=60 * MS),
        make_process(gc_pauses=(pause(1100, 70),), gc_ns=70 * MS),
    )

    assert apart.gc.worst_second_ns == 60 * MS
    assert across.gc.worst_second_ns == 130 * MS
    assert (across.gc.total_ns, across.gc.max_ns, across.gc.max_generation) == (130 * MS, 70 * MS, 2)


def test_a_pause_that_the_host_stretched_counts_with_its_cpu_time() -> None:
    pauses = ((0, 90 * MS, 2), (200 * MS, 260 * MS, 1), (300 * MS, 330 * MS, 0))
    gc = tally_of(make_process(gc_pauses=pauses, gc_pauses_cpu=(20 * MS, 61 * MS, None), gc_ns=180 * MS)).gc

    assert (gc.max_ns, gc.max_generation) == (60 * MS, 1), "no pause takes longer than it lasted"
    assert gc.worst_second_ns == (20 + 60 + 30) * MS, "where the CPU time is not known, all of it counts"
    assert (gc.total_ns, gc.stretched_ns) == (180 * MS, 70 * MS)


def test_pauses_older_than_a_second_are_not_remembered() -> None:
    tally = tally_of(*(make_process(gc_pauses=((n * SECOND, n * SECOND + MS, 0),)) for n in range(100)))

    assert len(tally.gc._second) <= 2


def test_a_pause_longer_than_a_second_fills_the_second_and_no_more() -> None:
    assert tally_of(make_process(gc_pauses=((0, 3 * SECOND, 2),))).gc.worst_second_ns == SECOND


def test_overhead_is_the_probes_share_of_the_cpu_and_unknown_before_any() -> None:
    assert tally_of(make_process(cpu_ns=900 * MS, probe_cpu_ns=18 * MS)).overhead_share == pytest.approx(0.02)
    assert tally_of(make_process()).overhead_share is None


def test_drops_of_whole_requests_and_of_marks_are_counted_apart() -> None:
    tally = tally_of(
        make_process(dropped=(("buffer full", 3), ("channel", 10))), make_process(dropped=(("buffer full", 1),))
    )

    assert (tally.dropped_requests, tally.dropped_marks) == (4, 10)


def test_work_after_its_requests_ended_adds_up_per_operation() -> None:
    tally = tally_of(make_process(detached=(("a", MS),)), make_process(detached=(("a", MS), ("b", MS))))

    assert tally.detached_ns == {"a": 2 * MS, "b": MS}


def test_what_one_sample_could_not_read_does_not_hide_what_another_could() -> None:
    tally = tally_of(make_process(throttled_ns=None, cpu_pressure=2.0, rss_bytes=5), make_process(throttled_ns=7))

    assert (tally.throttled_ns, tally.cpu_pressure, tally.rss_bytes_max) == (7, 2.0, 5)
    assert tally_of(make_process()).throttled_ns is None
