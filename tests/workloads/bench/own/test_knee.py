"""The knee of servers whose width is known: told right, or not told; never told wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_probe.workloads.bench.own.knee import Burst, Level, Repeated, at_usual_speed, knee_of
from tests.workloads.bench.own.simulated import Host, disturbed, levels_around, told


def level(in_flight: int, *rates: float, alone_ms: float = 100.0, cores: float = 0.0, late_ms: float = 0.0) -> Repeated:
    """A level at these throughputs; calls take what Little's law makes of it, and never less than alone."""
    return Repeated(
        in_flight,
        tuple(
            Level(
                in_flight,
                1.0,
                (max(alone_ms, 1000 * in_flight / rate),) * max(1, round(rate)),
                client_cores=cores,
                client_late_ms=late_ms,
            )
            for rate in rates
        ),
    )


def of_width(
    width: int, counts: tuple[int, ...] = (1, 2, 4, 6, 7, 8, 9, 12, 16, 32), noise: float = 0.0
) -> list[Repeated]:
    """100 ms a call and so many places; repeats differ by ``noise`` up and down."""
    return [level(n, *(10 * min(n, width) * factor for factor in (1 - noise, 1.0, 1.0, 1 + noise))) for n in counts]


def waves(width: int, count: int = 20, alone_ms: float = 100.0) -> list[Burst]:
    return [Burst(tuple(alone_ms * (number // width + 1) + number / 10 for number in range(count)))] * 5


@pytest.mark.parametrize("places", [1, 2, 8, 13, 40])
def test_a_width_is_told_exactly_on_a_quiet_machine(places: int) -> None:
    found = told(Host(places, wait_ms=50, jitter=0.05, drift=0.03), seed=places, levels=levels_around(places))
    assert found.recommended == places, found.advice
    assert [reading.name for reading in found.readings] == ["throughput", "latency", "burst"]
    assert f"at most {places} call" in found.advice


@pytest.mark.parametrize("places", [1, 2, 8, 13, 40])
@pytest.mark.parametrize(("jitter", "drift"), [(0.3, 0.1), (0.3, 0.3), (1.0, 0.5)])
def test_noise_may_take_the_answer_and_never_moves_it(places: int, jitter: float, drift: float) -> None:
    for seed in range(3):
        host = Host(places, wait_ms=20, jitter=jitter, drift=drift)
        found = told(host, seed, levels_around(places), contended=drift > 0.2)
        assert found.recommended is None or abs(found.recommended - places) <= 0.15 * places, found
        assert (found.recommended is None) == bool(found.why)


@pytest.mark.parametrize("places", [1, 2, 8, 13])
def test_a_machine_that_is_now_quicker_and_now_slower_hides_no_knee(places: int) -> None:
    """By up to 40 % from round to round: a round's levels are compared with each other."""
    host = Host(places, wait_ms=20, jitter=0.3, drift=0.15, weather=0.4)
    for seed in range(3):
        found = told(host, seed, levels_around(places), repeats=12)
        assert found.recommended is not None and abs(found.recommended - places) <= 0.15 * places, found


def test_a_level_that_something_happened_to_leaves_the_others_of_its_round_alone() -> None:
    usual = Level(4, 1.0, (100.0,) * 40)
    levels = [Repeated(n, tuple(replace(usual, in_flight=n, round=number) for number in range(4))) for n in range(1, 7)]
    struck = replace(levels[2].levels[1], times_ms=(100.0,) * 10)
    levels[2] = replace(levels[2], levels=(levels[2].levels[0], struck, *levels[2].levels[2:]))
    assert {level.speed for each in at_usual_speed(levels) for level in each.levels} == {1.0}


def test_one_lucky_measurement_of_a_level_is_no_plateau() -> None:
    """136/s, once, where twelve repeats of each other level gave 100: their curve is seen."""
    levels = [*of_width(1, (1, 2, 3, 8)), level(4, 13.6)]
    found = knee_of(levels, waves(1))
    assert found.recommended == 1, found.advice


def test_32_is_not_recommended_for_8_because_one_level_was_lucky() -> None:
    """The best level of a noisy sweep stood four times above the knee: the old answer was 32."""
    levels = [*of_width(8, noise=0.1)[:-1], level(32, 84, 88, 90, 86)]
    found = knee_of(disturbed(levels), waves(8))
    assert found.recommended == 8


def test_a_burst_that_shows_another_width_than_the_sweep_is_a_contradiction() -> None:
    found = knee_of(of_width(8), waves(4))
    assert found.recommended is None
    assert "two readings do not agree: of 20 calls sent at once 4 ended together" in found.advice
    assert "80/s of calls that take 100.0 ms alone are 8.0 in flight" in found.advice


def test_without_a_width_a_busy_machine_tells_nothing() -> None:
    host = Host(None, wait_ms=20, work_ms=0.8)
    levels = levels_around(25)
    assert told(host, 1, levels).recommended in range(22, 30)
    busy = told(host, 1, levels, contended=True)
    assert busy.recommended is None
    assert "others used this machine" in busy.advice


def test_one_at_a_time_is_told_on_a_busy_machine_even_if_answers_come_in_pairs() -> None:
    """A blocked loop writes two answers at a time: there are no waves of one, but 20 calls take as long as 20."""
    pairs = [Burst(tuple(100.0 * 2 * (number // 2 + 1) for number in range(20)))] * 5
    found = knee_of(disturbed(of_width(1)), pairs)
    assert found.recommended == 1, found.advice


def test_a_throughput_that_still_grows_has_no_knee_yet() -> None:
    found = knee_of([level(n, *[10 * n] * 4) for n in (1, 2, 4, 8)], ())
    assert found.recommended is None
    assert "throughput still grows at 8 in flight (80/s)" in found.advice


def test_the_generator_is_blamed_for_its_own_limit() -> None:
    levels = [level(n, *[10.0 * min(n, 8)] * 4, cores=0.97) for n in (1, 2, 4, 6, 7, 8, 9, 12, 16, 32)]
    found = knee_of(levels, waves(8))
    assert found.recommended is None
    assert "the client was the limit, not the server: it used 0.97 of one core" in found.advice
    late = [level(n, *[10.0 * min(n, 8)] * 4, late_ms=30.0) for n in (1, 2, 4, 6, 7, 8, 9, 12, 16, 32)]
    assert "its own timers were 30.0 ms late" in knee_of(late, waves(8)).advice


def test_a_repeat_that_contradicts_itself_counts_for_nothing() -> None:
    """Answers that came in a heap after the client had stood still: 160/s of 100 ms are 16 in flight, not 8."""
    heap = Level(8, 1.0, (100.0,) * 160)
    assert not heap.fits
    levels = of_width(8)
    spoilt = [Repeated(each.in_flight, (*each.levels, heap)) if each.in_flight == 8 else each for each in levels]
    assert knee_of(disturbed(spoilt), waves(8)) == knee_of(disturbed(levels), waves(8))
    only = [*levels[:3], *(Repeated(each.in_flight, (replace(heap, in_flight=1),)) for each in levels[3:])]
    assert knee_of(disturbed(only), waves(8)).recommended is None


def test_of_four_repeats_the_slowest_is_left_out() -> None:
    levels = [
        level(n, *(10.0 * min(n, 8) * factor for factor in (0.4, 1.0, 1.0, 0.99))) for n in (1, 2, 4, 6, 7, 8, 16)
    ]
    assert knee_of(disturbed(levels), waves(8)).recommended == 8


def test_a_curve_with_a_gap_where_the_knee_is_recommends_no_number_in_it() -> None:
    levels = [level(n, *[10.0 * min(n, 11)] * 4) for n in (1, 2, 4, 32, 64)]
    found = knee_of(levels, [Burst(tuple(100 + 9.0 * number for number in range(20)))] * 5)
    assert found.recommended is None
    assert "throughput grows up to 4 in flight, and no more from 32 on: too coarse" in found.advice


def test_failed_calls_recommend_nothing() -> None:
    broken = [Repeated(n, (Level(n, 1.0, (1.0,), failed=2),)) for n in (1, 2, 4)]
    assert knee_of(broken, ()).recommended is None
    assert knee_of([], ()).recommended is None


def test_throughput_is_not_moved_by_the_last_wave_that_was_cut() -> None:
    """Eight places of 100 ms for 0.69 s: 48 answers, and the next wave is 10 ms away; 48 / 0.69 s are 70/s."""
    ends = tuple(100.0 * (number // 8 + 1) for number in range(48))
    assert Level(8, 0.69, (100.0,) * 48, ends).per_s == pytest.approx(80, rel=0.03)


def test_repeats_that_others_disturbed_count_only_without_quiet_ones() -> None:
    quiet = of_width(8)
    (spoilt,) = disturbed([level(8, 30.0, 35.0)])
    mixed = [
        Repeated(each.in_flight, (*spoilt.levels, *each.levels)) if each.in_flight == 8 else each for each in quiet
    ]
    assert knee_of(mixed, waves(8)) == knee_of(quiet, waves(8))
    only = [spoilt if each.in_flight == 8 else each for each in quiet]
    assert knee_of(only, waves(8)).contended
    assert knee_of(quiet, [replace(burst, contended=True) for burst in waves(8)]).contended
