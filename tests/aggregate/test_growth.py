"""From growth samples to verdicts, with literal samples: what is a leak, and what only looks like one."""

from __future__ import annotations

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.aggregate.growth import MAX_POINTS, LeakTally
from mcp_probe.model import Growth, GrowthSample, GrowthSites, LeakHunt
from tests.frames import make_header

Groups = tuple[tuple[int, int], ...]


def sample(calls: int, held: int, groups: Groups = (), **overrides: object) -> GrowthSample:
    values: dict[str, object] = {
        "at_ns": 1,
        "how": "native-shadow" if groups else "tracemalloc",
        "scope": "all",
        "rows": (("tools/call", "add", calls, held, groups),),
        "collections": 1,
        "collect_ns": 2_000_000,
        **overrides,
    }
    return GrowthSample(**values)  # type: ignore[arg-type]


def hunt_of(*frames: GrowthSample | GrowthSites) -> LeakHunt:
    tally = LeakTally()
    for frame in frames:
        tally.add(frame)
    found = tally.hunt()
    assert found is not None
    return found


def grouped(rates: list[float], calls: int = 160) -> Growth:
    """The row of calls of which each sixteenth keeps so many bytes a call, after a fourth look."""
    groups = tuple((calls // 16, round(rate * (calls // 16))) for rate in rates)
    (row,) = hunt_of(*(after(share, groups) for share in (4, 8, 12, 16))).operations
    return row


def after(share: int, groups: tuple[tuple[int, int], ...]) -> GrowthSample:
    """A look after the first ``share`` of ``groups``."""
    some = groups[:share]
    return sample(sum(calls for calls, _ in some), sum(size for _, size in some), some)


# --- with owners ------------------------------------------------------------------------------------


def test_a_leak_is_what_older_calls_still_hold() -> None:
    row = grouped([500.0] * 16)
    assert (row.verdict, row.bytes_per_call, row.quality.tag) == ("grows", 500.0, "lower")


def test_a_few_looks_must_find_twice_as_much() -> None:
    """Workload: ninety quick calls of an innocent, whose only looks found as much in each group."""
    rates = [900.0, *[280.0] * 13, 300.0, 700.0]
    groups = tuple((10, round(10 * rate)) for rate in rates)
    looks = [after(share, groups) for share in (4, 8, 12, 16)]
    verdicts = [hunt_of(*looks[first:]).operations[0].verdict for first in (3, 2, 1, 0)]
    assert verdicts == ["steady", "steady", "steady", "grows"]


def test_after_few_looks_the_calls_that_hold_least_must_hold_half_of_the_mean() -> None:
    """Workload: the same innocent: 168 B in its older calls, half of them at one line, where the mean is 580 B."""
    groups = ((10, 1_680),) * 8 + ((10, 9_920),) * 8
    sites = GrowthSites(2, (("add", "/srv/server.py", 7, "add", 160 * 100, 160),), (), ("/srv/server.py",), ())
    row = (("tools/call", "add", 160, sum(size for _, size in groups), groups),)
    looks = [sample(calls, 1, groups, are_lines_known=True) for calls in (8, 9, 10)]
    last = sample(160, 1, groups, rows=row, are_lines_known=True)
    few = hunt_of(*looks[:2], last, sites, last).operations[0]
    assert (
        few.verdict == "steady" and few.floor_bytes == few.bytes_per_call
    )  # a leak as large would be half of the mean
    assert hunt_of(*looks, last, sites, last).operations[0].verdict == "grows"


def test_above_what_free_lists_can_hide_the_rate_is_exact() -> None:
    assert grouped([5_000.0] * 16).quality.tag == "exact"


@pytest.mark.parametrize(
    "rates",
    [
        pytest.param([0.0] * 16, id="clean"),
        pytest.param([9e6] + [0.0] * 15, id="set up by the first calls"),
        pytest.param([0.0] * 8 + [900.0] * 8, id="a cache of half of the calls"),
        pytest.param([0.0] * 4 + [900.0] * 12, id="a cache of three quarters of the calls"),
        pytest.param([0.0] * 15 + [9e6], id="held by the calls of just now"),
        pytest.param([255.0] * 16, id="bookkeeping"),
        pytest.param([0.0, 0.0, 9e6] + [0.0] * 13, id="once, later"),
    ],
)
def test_what_only_looks_like_a_leak_is_steady(rates: list[float]) -> None:
    assert grouped(rates).verdict == "steady"


SMALL = 64.0
"""Bytes a call: more than a clean tool keeps, and less than some bookkeeping."""


def traced(
    rates: list[float],
    *,
    blocks: int,
    calls: int = 160,
    looked_at: int = 160,
    own: tuple[str, ...] = ("/srv/server.py",),
    looks: tuple[tuple[str, int, int], ...] = (),
) -> Growth:
    """:func:`grouped`, where tracemalloc is on and one line has allocated ``blocks`` of 64 bytes when it was looked."""
    groups = tuple((calls // 16, round(rate * (calls // 16))) for rate in rates)
    held = sum(size for _, size in groups)
    lines = (("add", "/srv/server.py", 7, "add", round(SMALL) * blocks, blocks),) if blocks else ()
    (row,) = hunt_of(
        *(sample(early, 1, groups) for early in (8, 9, 10)),
        sample(looked_at, 1, groups, rows=(("tools/call", "add", looked_at, held, groups),), are_lines_known=True),
        GrowthSites(2, lines, (), own, looks),
        sample(calls, held, groups, are_lines_known=True),
    ).operations
    return row


@pytest.mark.parametrize(("bytes_a_call", "verdict"), [(80, "steady"), (150, "grows")])
def test_after_few_looks_a_line_must_have_half_of_what_calls_seem_to_keep(bytes_a_call: int, verdict: str) -> None:
    """Workload: 80 B of weak references at a line of an innocent's own, beside 196 B of bookkeeping, seen once."""
    groups = ((10, 2_760),) * 16
    sites = GrowthSites(2, (("add", "/srv/server.py", 7, "add", 160 * bytes_a_call, 160),), (), ("/srv/server.py",), ())
    held = sum(size for _, size in groups)
    once = sample(160, held, groups, rows=(("tools/call", "add", 160, held, groups),), are_lines_known=True)
    assert hunt_of(once, sites, once).operations[0].verdict == verdict


def test_a_small_leak_is_told_where_one_line_allocates_it_in_nearly_every_call() -> None:
    row = traced([SMALL] * 16, blocks=150)
    assert (row.verdict, row.bytes_per_call, row.floor_bytes) == ("grows", SMALL, 32.0)


def test_lines_that_were_looked_for_after_half_of_the_calls_still_tell_a_small_leak() -> None:
    assert traced([SMALL] * 16, blocks=64, looked_at=80).verdict == "grows"
    assert traced([SMALL] * 16, blocks=63, looked_at=80).verdict == "steady", "a cache was full before that"


def test_a_line_tells_a_small_leak_in_nearly_every_call_of_those_that_a_look_had_the_time_for() -> None:
    row = traced([SMALL] * 16, blocks=26, looks=(("add", 160, 32),))
    assert (row.verdict, row.looked_at_calls, row.seen_calls) == ("grows", 160, 32)
    assert traced([SMALL] * 16, blocks=25, looks=(("add", 160, 32),)).verdict == "steady"
    assert traced([SMALL] * 16, blocks=150, looks=(("add", 160, 0),)).verdict == "steady", "no call was seen whole"
    assert traced([SMALL] * 16, blocks=75, looks=(("add", 79, 74),)).verdict == "steady", "an earlier look was told"


def test_a_line_tells_a_small_leak_though_most_of_its_bytes_came_from_free_lists() -> None:
    assert traced([250.0] * 16, blocks=157).verdict == "grows", "a quarter of what is held"
    assert traced([255.0] * 16, blocks=157).verdict == "steady"


def test_of_a_small_leak_the_rate_is_that_of_most_calls_and_not_what_was_set_up_once() -> None:
    row = traced([SMALL] * 10 + [2_000.0] + [SMALL] * 5, blocks=150)
    assert (row.verdict, row.bytes_per_call) == ("grows", SMALL)
    row = grouped([500.0] * 10 + [9_000.0] + [500.0] * 5)
    assert (row.verdict, row.bytes_per_call) == ("grows", 500.0)


@pytest.mark.parametrize(
    ("blocks", "looked_at"),
    [
        pytest.param(0, 160, id="of no line but the probe's"),
        pytest.param(100, 160, id="the links of a cache, which those that filled it seem to hold"),
        pytest.param(79, 79, id="looked for too long ago"),
    ],
)
def test_a_little_that_may_be_bookkeeping_is_steady_and_says_what_would_not_have_been_told(
    blocks: int, looked_at: int
) -> None:
    row = traced([SMALL] * 16, blocks=blocks, looked_at=looked_at)
    assert (row.verdict, row.floor_bytes) == ("steady", 256.0)


def test_what_the_sdk_or_python_allocates_is_no_small_leak() -> None:
    assert traced([SMALL] * 16, blocks=150, own=()).verdict == "steady"
    assert traced([500.0] * 16, blocks=150, own=()).verdict == "grows", "from 256 bytes on it is"


def test_where_next_to_nothing_is_held_a_smaller_leak_would_have_been_told_and_beside_a_cache_none() -> None:
    assert traced([6.0] * 16, blocks=0).floor_bytes == 32.0
    assert grouped([6.0] * 16).floor_bytes == 256.0, "lines are not known"
    cached = grouped([0.0] * 8 + [40_000.0] * 8)
    assert (cached.verdict, cached.floor_bytes) == ("steady", 20_000.0 / 3)
    beside = grouped([rate + 6_700.0 for rate in [0.0] * 8 + [40_000.0] * 8])
    assert beside.verdict == "grows", "that much beside the cache is told"
    assert grouped([rate + 6_600.0 for rate in [0.0] * 8 + [40_000.0] * 8]).verdict == "steady"


def test_what_the_first_and_the_newest_calls_hold_is_no_part_of_the_rate() -> None:
    assert grouped([9e6] + [500.0] * 14 + [9e6]).bytes_per_call == 500.0


def test_a_leak_in_every_fifth_call_is_named() -> None:
    assert grouped([1_000.0 * (index % 2) + 300 for index in range(16)]).verdict == "grows"


def test_of_fewer_than_fifty_calls_nothing_is_said() -> None:
    (row,) = hunt_of(sample(49, 49_000, tuple((3, 3_000) for _ in range(16)))).operations
    assert (row.verdict, row.bytes_per_call, row.quality.tag) == ("unknown", None, "unavailable")


# --- with totals only -------------------------------------------------------------------------------


def course(*points: tuple[int, int]) -> Growth:
    (row,) = hunt_of(*(sample(calls, held) for calls, held in points)).operations
    return row


def test_a_total_that_rises_to_the_end_is_a_leak() -> None:
    row = course(*((calls, 500 * calls) for calls in range(20, 201, 20)))
    assert (row.verdict, row.bytes_per_call, row.quality.tag) == ("grows", 500.0, "lower")


def test_a_total_that_levels_off_is_a_cache() -> None:
    assert course(*((calls, 500 * min(calls, 90)) for calls in range(20, 201, 20))).verdict == "steady"


def test_a_total_that_jumps_once_is_no_leak() -> None:
    assert course(*((calls, 100_000 * (calls > 150)) for calls in range(20, 201, 20))).verdict == "steady"


def test_three_looks_are_too_few() -> None:
    assert course((50, 25_000), (100, 50_000), (200, 100_000)).verdict == "unknown"


def test_a_long_course_is_thinned_out_and_says_the_same() -> None:
    row = course(*((calls, 500 * calls) for calls in range(1, 50 * MAX_POINTS)))
    assert (row.verdict, row.bytes_per_call) == ("grows", 500.0)


# --- what goes with it ------------------------------------------------------------------------------


def test_lines_and_types_go_to_their_operation_and_the_rest_to_the_process() -> None:
    sites = GrowthSites(
        2,
        lines=(("add", "/srv/server.py", 7, "add", 900, 9), ("", "/srv/other.py", 3, "", 50, 1)),
        types=(("add", "app.Entry", 9, 800, None), ("", "list", 40, None, None)),
    )
    found = hunt_of(sample(160, 1, ((10, 0),) * 16), sites)
    (row,) = found.operations
    assert [(line.file, line.line, line.bytes) for line in row.lines] == [("/srv/server.py", 7, 900)]
    assert [kind.name for kind in row.types] == ["app.Entry"]
    assert row.looked_at_calls == 160
    assert [line.file for line in found.lines] == ["/srv/other.py"]
    assert [kind.name for kind in found.types] == ["list"]


def test_how_much_slower_allocating_is_and_lines_of_peaks_are_told_of_the_hunt() -> None:
    peak = ("add", "/srv/server.py", 7, "add", 80, 90)
    found = hunt_of(sample(160, 1, ((10, 0),) * 16, allocation_ns=(40.0, 900.0), peaks=(peak,)))
    assert found.tracing_factor == 22.5
    assert [(line.operation, line.line, line.bytes, line.held_bytes) for line in found.peaks] == [("add", 7, 80, 90)]
    assert hunt_of(sample(160, 1, ((10, 0),) * 16)).tracing_factor is None
    assert [hunt_of(sample(1, 1, are_lines_known=known)).are_lines_known for known in (True, False)] == [True, False]


def test_those_that_grow_come_first_the_largest_rate_before_the_others() -> None:
    rows = (
        ("tools/call", "steady", 160, 0, ((10, 0),) * 16),
        ("tools/call", "small", 160, 1, ((10, 5_000),) * 16),
        ("tools/call", "large", 160, 1, ((10, 50_000),) * 16),
    )
    assert [row.name for row in hunt_of(sample(1, 1, rows=rows)).operations] == ["large", "small", "steady"]


def test_the_fold_tells_of_the_hunts_of_several_processes_and_of_none_where_there_was_none() -> None:
    first, second = Fold(), Fold()
    for fold in (first, second):
        fold.add(make_header())
    assert first.summary().leaks is None
    first.add(sample(160, 1, ((10, 6_000),) * 16))
    second.add(sample(160, 1, ((10, 0),) * 16))
    first.merge(second)
    found = first.summary().leaks
    assert found is not None
    assert ([row.verdict for row in found.operations], found.collections) == (["grows", "steady"], 2)
    assert "memory-growth" in {finding.code for finding in first.summary().findings}
