"""What a reader sees of a row, and where what is said of it stands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.documents import by_document
from tests.workloads.bench.made import check, result, results, row, stats


def test_what_rows_apart_share_is_said_once_below_them() -> None:
    rows = [row(label) for label in "abcdef"]
    under, below = figures.placed(rows, ["own", "both", "shared", "both", "last", "last"])
    assert under == {0: "own", 2: "shared", 5: "last"}
    assert below == [("b; d", "both")]


@given(st.lists(st.sampled_from(["", "x", "y", "z"]), max_size=12))
def test_everything_is_said_once_and_nothing_is_lost(told: list[str]) -> None:
    rows = [row(f"{place}") for place in range(len(told))]
    under, below = figures.placed(rows, told)
    assert sorted([*under.values(), *(text for _, text in below)]) == sorted({text for text in told if text})
    assert all(told[place] == text for place, text in under.items())


def test_many_rows_are_listed_by_the_first_and_the_last() -> None:
    assert figures.listed(["a", "b", "c"]) == "a; b; c"
    assert figures.listed(["a", "b", "c", "d"]) == "a … d"


def test_claims_of_a_second_library_stand_behind_those_of_the_first() -> None:
    claims = ["004-10", "004-2 (httpx2)", "004-pool", "004-2", "004-1 (2026-07-28)", "004-1a", "004-1"]
    (page,) = by_document(results(result(checks=tuple(check(claim) for claim in claims))))
    assert [each.claim for each in page.checks] == [
        *("004-1", "004-1 (2026-07-28)", "004-1a", "004-2", "004-2 (httpx2)", "004-10", "004-pool"),
    ]


def test_a_row_s_own_halves_are_its_floor_where_no_control_ran() -> None:
    assert row(measured=stats(10.0, halves=1.2)).noise_floor == 1.2
    assert row(measured=stats(10.0, halves=1.2), floor=1.05).noise_floor == 1.05
    assert row(measured=10.0).noise_floor is None


def test_a_part_is_never_larger_than_its_whole() -> None:
    assert figures.share(65.0, 100.0) == "65 %"
    assert figures.share(100.0, 100.0) == "100 %"
    assert [figures.share(part, whole) for part, whole in ((579.0, 469.0), (-1.0, 10.0), (0.0, 0.0))] == ["", "", ""]
