"""Claims on a user's own server are data that the one grader judges: noise takes verdicts away, and makes none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.grader import OTHERS, UNTOLD
from mcp_probe.workloads.bench.own.claims import (
    CLAIMS,
    Found,
    between_transports,
    fanned_out,
    held_up,
    kneed,
    not_held_up,
    pipelined,
)
from mcp_probe.workloads.bench.own.knee import Burst, Level, Repeated, knee_of
from mcp_probe.workloads.bench.own.waves import waves_of
from mcp_probe.workloads.bench.shapes import Check, Stats, Verdict
from mcp_probe.workloads.bench.statistics import describe
from tests.workloads.bench.own.simulated import Host, disturbed, levels_around, told
from tests.workloads.bench.test_grader import may_become

ALONE_MS = 50.0


def checked(found: Found) -> Check:
    return Bench(quick=True).claim(found.claim, *found.figures, said=found.said, untold=found.untold, value=found.value)


def verdict(found: Found) -> Verdict:
    return checked(found).verdict


def noisier(stats: Stats, factor: float, contended: bool) -> Stats:
    """The same medians, known less well."""
    assert stats.ci_low is not None and stats.ci_high is not None
    wider = replace(stats, ci_low=stats.mean - factor * (stats.mean - stats.ci_low))
    wider = replace(wider, ci_high=stats.mean + factor * (stats.ci_high - stats.mean))
    halves = None if stats.halves is None else factor * stats.halves
    return replace(wider, halves=halves, contended=stats.contended or contended)


rounds = st.lists(st.floats(5, 1_000), min_size=2, max_size=8)
times = rounds.map(lambda values: describe(values, first_apart=False))
factors = st.floats(1.0, 10.0)


@given(times, times, times, factors, factors, st.booleans())
def test_a_wait_that_is_known_less_well_is_told_less(
    quick: Stats, beside: Stats, slow: Stats, one: float, other: float, contended: bool
) -> None:
    before = held_up(quick, beside, slow, "tool nap")
    after = held_up(noisier(quick, one, contended), noisier(beside, other, False), slow, "tool nap")
    assert may_become(verdict(before), verdict(after))


@given(times, times, factors, factors, st.booleans())
def test_transports_that_are_known_less_well_are_told_apart_less(
    stdio: Stats, http: Stats, one: float, other: float, contended: bool
) -> None:
    before = between_transports(stdio, http)
    after = between_transports(noisier(stdio, one, contended), noisier(http, other, False))
    assert may_become(verdict(before), verdict(after))


def lengthened(values: Sequence[float], factor: float) -> list[float]:
    """Others' work lengthened every other round, but not the quickest."""
    quickest = min(range(len(values)), key=lambda place: values[place])
    return [value * factor if place % 2 != quickest % 2 else value for place, value in enumerate(values)]


@given(rounds, rounds, factors, st.booleans())
def test_rounds_that_others_lengthened_only_take_away(
    alone: list[float], together: list[float], factor: float, contended: bool
) -> None:
    longer = lengthened(together, factor)
    before = pipelined(alone, together, contended=False)
    assert may_become(verdict(before), verdict(pipelined(alone, longer, contended=contended)))
    waves = waves_of(min(alone), [min(together)] * 40)
    quiet = fanned_out(alone, together, 40, waves, contended=False)
    noisy = fanned_out(alone, longer, 40, waves, contended=contended)
    for one, other in zip(quiet, noisy, strict=True):
        assert may_become(verdict(one), verdict(other))


# --- the knee -------------------------------------------------------------------------------------

IN_FLIGHT = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 24)


def measured(rates: Mapping[int, float], noise: Mapping[int, float]) -> list[Repeated]:
    """Three repeats of each level; their mean is ``rates`` whatever the ``noise``, and their latencies are, too."""
    made = []
    for n, rate in rates.items():
        took_ms = 1e3 * n / rate if n > 1 else ALONE_MS
        repeats = (rate * (1 - noise[n]), rate, rate * (1 + noise[n]))
        made.append(Repeated(n, tuple(Level(n, 40 / each, (took_ms,) * 40) for each in repeats)))
    return made


@st.composite
def servers(draw: st.DrawFn) -> tuple[dict[int, float], list[Burst]]:
    """Throughput by calls in flight, and bursts: sometimes of the same server, and sometimes of two."""
    places = draw(st.sampled_from([1, 2, 4, 6, 8, 13]))
    bend = draw(st.sampled_from([0.0, 0.0, 0.05, 0.2, 0.5]))
    share = {n: (1 - bend) * min(n, places) + bend * n / (1 + n / places) for n in IN_FLIGHT}
    rates = {n: 1e3 / ALONE_MS * share[n] / share[1] * draw(st.floats(0.97, 1.03)) for n in IN_FLIGHT}
    seen = draw(st.sampled_from([places, places, 3, 7, None]))
    apart = ALONE_MS / places if seen is None else 0.1
    width = seen or 20
    return rates, [Burst(tuple(ALONE_MS * (each // width + 1) + apart * (each % width) for each in range(20)))] * 5


@settings(deadline=None, max_examples=300)
@given(servers(), st.lists(st.floats(0, 0.04), min_size=11, max_size=11), st.floats(1, 2.2), st.booleans())
def test_more_noise_never_turns_a_refusal_into_a_number(
    server: tuple[dict[int, float], list[Burst]], noise: list[float], factor: float, contended: bool
) -> None:
    rates, bursts = server
    little = dict(zip(IN_FLIGHT, noise, strict=True))
    before = knee_of(measured(rates, little), bursts)
    more = {n: factor * each for n, each in little.items()}
    after = knee_of(disturbed(measured(rates, more)) if contended else measured(rates, more), bursts)
    if before.recommended is None:
        assert after.recommended is None
    assert may_become(verdict(kneed(before)), verdict(kneed(after)))


@pytest.mark.parametrize(("at_8", "at_10"), [(0.0, 0.0156), (0.0312, 0.0078)])
def test_a_level_that_grows_beyond_a_width_refuses_it_however_much_it_varies(at_8: float, at_10: float) -> None:
    """Eight end together, and ten in flight bring more than eight: found by the test above, once in 3,000 servers."""
    rates = dict(zip(IN_FLIGHT, (20.0, 38.1, 54.9, 70.6, 85.5, 99.8, 130.5, 129.7, 137.1, 141.2, 148.2), strict=True))
    bursts = [Burst(tuple(ALONE_MS * (each // 8 + 1) + 0.1 * (each % 8) for each in range(20)))] * 5
    for factor in (0, 1, 2, 3):
        noise = dict.fromkeys(IN_FLIGHT, 0.0) | {8: factor * at_8, 10: factor * at_10}
        assert knee_of(measured(rates, noise), bursts).recommended is None, factor


@pytest.mark.parametrize("places", [1, 8, None])
def test_the_knee_is_told_in_the_graders_words(places: int | None) -> None:
    """Without a width the machine must be quiet; with one others can hide it, and cannot make it."""
    for contended in (False, True):
        knee = told(Host(places, wait_ms=20, work_ms=0.8), 1, levels_around(places or 25), contended=contended)
        check = checked(kneed(knee))
        assert (check.verdict, check.value) == (
            ("holds", knee.recommended) if knee.recommended is not None else (UNTOLD, None)
        )
        assert (check.verdict == UNTOLD) == (contended and places is None), knee
        assert bool(check.why) == (check.verdict == UNTOLD)


def test_a_knee_of_nothing_says_why() -> None:
    check = checked(kneed(knee_of((), ())))
    assert (check.verdict, check.why) == (UNTOLD, "Too few levels of the sweep were answered without failures.")


# --- what each comparison hands over --------------------------------------------------------------


def steady(value: float, *, contended: bool = False) -> Stats:
    return replace(
        describe([value * (1 + share / 1000) for share in range(-2, 3)], first_apart=False), contended=contended
    )


@pytest.mark.parametrize(
    ("late_ms", "contended", "expected"),
    [
        (3.0, False, "holds"),
        (3.0, True, "holds"),  # others can only have made it longer
        (80.0, False, "does not hold"),
        (80.0, True, UNTOLD),
        (41.0, False, UNTOLD),  # on both sides of two fifths
    ],
)
def test_a_quick_call_waits_for_a_slow_one_or_does_not(late_ms: float, contended: bool, expected: Verdict) -> None:
    found = held_up(steady(1.0), steady(late_ms, contended=contended), steady(100.0), "tool nap")
    assert verdict(found) == expected
    assert checked(found).contended == contended


def test_without_a_slow_call_nothing_is_said_of_waiting() -> None:
    check = checked(not_held_up("tool add", 1.25, 20.0))
    assert check.verdict == UNTOLD and check.value is None
    assert check.why == "No call takes 20 ms or more, to send another beside it; name a slow tool with --call."


def burst_of(width: int) -> tuple[Found, Found]:
    ends = [ALONE_MS * (number // width + 1) for number in range(40)]
    return fanned_out([ALONE_MS] * 4, [max(ends)] * 4, 40, waves_of(ALONE_MS, ends), contended=False)


@pytest.mark.parametrize(
    ("width", "flat", "steps"), [(1, "does not hold", "holds"), (8, "does not hold", "holds"), (40, "holds", UNTOLD)]
)
def test_a_burst_is_flat_or_comes_in_waves(width: int, flat: Verdict, steps: Verdict) -> None:
    first, second = map(checked, burst_of(width))
    assert (first.verdict, second.verdict, second.value) == (flat, steps, width)


def test_a_last_wave_that_comes_late_is_in_shape() -> None:
    waves = waves_of(ALONE_MS, [ALONE_MS * (number // 8 + 1) for number in range(40)])
    _, steps = fanned_out([ALONE_MS] * 4, [ALONE_MS * 6.0] * 4, 40, waves, contended=False)
    assert verdict(steps) == "in shape"


def test_calls_that_are_too_short_decide_nothing() -> None:
    for found in fanned_out([2.0] * 4, [60.0] * 4, 40, waves_of(2.0, [60.0] * 40), contended=False):
        check = checked(found)
        assert check.verdict == UNTOLD and check.why.startswith("A call takes 2.0 ms: too short")


def test_others_on_the_machine_are_the_reason_where_they_are() -> None:
    check = checked(pipelined([100.0] * 4, [50.0] * 4, contended=True))
    assert (check.verdict, check.why, check.contended) == (UNTOLD, OTHERS, True)
    assert verdict(pipelined([100.0] * 4, [50.0] * 4, contended=False)) == "holds"
    assert verdict(pipelined([50.0] * 4, [100.0] * 4, contended=False)) == "does not hold"


@pytest.mark.parametrize(("http_ms", "expected"), [(9.0, "holds"), (3.0, "in shape"), (1.0, "does not hold")])
def test_stdio_is_as_much_faster_as_documented_or_in_that_direction(http_ms: float, expected: Verdict) -> None:
    assert verdict(between_transports(steady(1.0), steady(http_ms))) == expected


def test_every_claim_asks_something() -> None:
    assert all(claim.asked for claim in CLAIMS.values())
