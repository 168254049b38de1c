"""One function decides every claim: noise takes verdicts away and makes none, and one kind has one tolerance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.workloads import scenarios
from mcp_probe.workloads.bench import own
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.grader import OTHERS, TOLERANCES, UNTOLD, allowed, grade
from mcp_probe.workloads.bench.shapes import VERDICTS, Asked, Claim, Kind, Load, Measured, Part, Verdict
from mcp_probe.workloads.scenarios.documents import doc000, doc001, doc002, doc003, doc004

EVERY = (doc000.CLAIMS, doc001.CLAIMS, doc002.CLAIMS, doc003.CLAIMS, doc004.CLAIMS)
KINDS: tuple[Kind, ...] = tuple(TOLERANCES)
LOADS: tuple[Load, ...] = ("up", "down", "both", "blurs", "not")

amounts = st.floats(0.001, 10_000)
floors = st.floats(1.0, 20.0)
asked = st.builds(
    Asked, st.sampled_from(KINDS), st.lists(amounts, max_size=2).map(tuple), st.sampled_from(LOADS), st.just("")
)


@st.composite
def found(draw: st.DrawFn) -> Measured:
    value = draw(amounts)
    interval = draw(st.booleans())
    low = value * draw(st.floats(0.1, 1.0)) if interval else None
    high = value * draw(st.floats(1.0, 10.0)) if interval else None
    return Measured(value, low, high, draw(st.none() | floors), draw(st.booleans()))


parts = st.builds(Part, asked, found())


def verdict(kind: Kind, value: float, *documented: float, load: Load = "both", **noise: float | bool) -> Verdict:
    known = {"floor": 1.0, **noise}
    return grade([Part(Asked(kind, documented, load), Measured(value, **known))]).verdict  # type: ignore[arg-type]


def may_become(before: Verdict, after: Verdict) -> bool:
    """Noise weakens what is said, and never says the opposite or more."""
    return after in (before, UNTOLD) or (before, after) == ("holds", "in shape")


@given(parts, st.floats(1.0, 10.0), st.floats(1.0, 10.0))
def test_a_wider_interval_only_takes_away(part: Part, down: float, up: float) -> None:
    low, high = part.measured.low, part.measured.high
    if low is not None and high is not None:
        wider = replace(part, measured=replace(part.measured, low=low / down, high=high * up))
        assert may_become(grade([part]).verdict, grade([wider]).verdict)


@given(parts, st.floats(1.0, 10.0))
def test_a_wider_floor_only_takes_away(part: Part, factor: float) -> None:
    if part.measured.floor is not None:
        wider = replace(part, measured=replace(part.measured, floor=part.measured.floor * factor))
        assert may_become(grade([part]).verdict, grade([wider]).verdict)


@given(parts)
def test_others_on_the_machine_only_take_away(part: Part) -> None:
    quiet, busy = (replace(part, measured=replace(part.measured, contended=each)) for each in (False, True))
    assert may_become(grade([quiet]).verdict, grade([busy]).verdict)


@given(parts)
def test_what_was_measured_once_decides_nothing(part: Part) -> None:
    once = replace(part, measured=Measured(part.measured.value, contended=part.measured.contended))
    assert grade([once]).verdict == UNTOLD


@given(st.lists(parts, max_size=4), parts, st.floats(1.0, 10.0))
def test_noise_of_one_part_only_takes_away_from_the_whole(others: list[Part], part: Part, factor: float) -> None:
    floor = (part.measured.floor or 1.0) * factor
    noisier = replace(part, measured=replace(part.measured, floor=floor, contended=True))
    if part.measured.floor is not None or part.measured.low is not None:
        assert may_become(grade([*others, part]).verdict, grade([*others, noisier]).verdict)


@given(st.lists(parts, max_size=4), parts)
def test_one_more_thing_asked_never_makes_a_claim_better(others: list[Part], part: Part) -> None:
    ranks = {"holds": 3, "in shape": 2, UNTOLD: 1, "does not hold": 0}
    if others:
        assert ranks[grade([*others, part]).verdict] <= ranks[grade(others).verdict]


@given(parts)
def test_whatever_cannot_be_told_says_why_and_nothing_else_does(part: Part) -> None:
    found_of_it = grade([part])
    assert found_of_it.verdict in VERDICTS
    assert bool(found_of_it.reason) == (found_of_it.verdict == UNTOLD)


@given(asked)
def test_what_holds_also_holds_in_shape(one: Asked) -> None:
    holds, shape = allowed(one)
    assert shape[0] <= holds[0] and holds[1] <= shape[1]


@given(st.sampled_from(["figure", "same", "at most"]), amounts, amounts, st.floats(0.01, 100), floors)
def test_only_the_distance_from_the_documented_figure_counts(
    kind: Kind, value: float, documented: float, unit: float, floor: float
) -> None:
    in_ms = verdict(kind, value, documented, floor=floor)
    near = any(
        abs(value * shift / documented / bound - 1) < 1e-9
        for shift in (1.0, floor, 1 / floor)
        for bound in (1.15, 1.3, 1.5, 3.0, 1 / 1.15, 1 / 1.3, 1 / 1.5, 1 / 3.0)
    )
    assert near or in_ms == verdict(kind, value * unit, documented * unit, floor=floor)


@given(st.floats(1.01, 5_000), st.floats(0.01, 5_000), floors)
def test_how_many_times_faster_is_how_many_times_slower(documented: float, value: float, floor: float) -> None:
    faster = verdict("times", value, documented, floor=floor)
    slower = verdict("times", 1 / value, 1 / documented, floor=floor)
    nudged = {verdict("times", value * nudge, documented, floor=floor) for nudge in (1 - 1e-9, 1 + 1e-9)}
    assert slower in {faster, *nudged}


@pytest.mark.parametrize(
    ("kind", "value", "documented", "expected"),
    [
        ("times", 684, 130, "in shape"),
        ("times", 3766, 2061, "in shape"),  # as above: larger than documented, in the same direction
        ("times", 15.6, 20, "holds"),
        ("times", 1.05, 20, "does not hold"),
        ("times", 0.95, 1.26, "does not hold"),  # near the figure, but in the other direction
        ("times", 0.05, 1 / 20, "holds"),
        ("limit", 1.14, 1.0, "does not hold"),
        ("limit", 0.99, 1.0, "holds"),
        ("same", 1.1, 1.0, "holds"),
        ("same", 1.2, 1.0, "in shape"),
        ("same", 1.4, 1.0, "does not hold"),
        ("exact", 4, 4, "holds"),
        ("exact", 5, 4, "does not hold"),
    ],
)
def test_verdicts_that_readers_were_surprised_by(
    kind: Kind, value: float, documented: float, expected: Verdict
) -> None:
    assert verdict(kind, value, documented) == expected


def test_a_wide_floor_is_no_proof_that_two_things_are_alike() -> None:
    assert verdict("same", 1.0, floor=5.36) == UNTOLD
    assert verdict("at most", 0.7, floor=5.36) == UNTOLD
    assert verdict("same", 3.1, floor=1.02) == "does not hold"


def test_an_overhead_that_is_below_the_noise_is_not_within_five_percent() -> None:
    assert verdict("free", 0.68, floor=1.219) == UNTOLD
    assert verdict("free", 1.01, floor=1.02) == "holds"
    assert verdict("free", 1.2, floor=1.02) == "does not hold"


def test_others_work_takes_away_only_what_it_can_have_made() -> None:
    slow = {"value": 2.0, "contended": True}
    assert verdict("at most", load="up", **slow) == UNTOLD
    assert verdict("at most", load="not", **slow) == "does not hold"
    assert verdict("at most", 1.05, load="up", contended=True) == "holds"
    assert verdict("same", 1.0, load="blurs", contended=True) == "holds"
    assert verdict("same", 2.0, load="blurs", contended=True) == UNTOLD


@pytest.mark.parametrize(
    ("kind", "documented", "low", "high", "told"),
    [
        ("same", (), 0.9, 1.5, ", on both sides of what is asked"),
        ("same", (), 0.8, 1.5, ", on both sides of what is asked"),
        ("at most", (), 1.2, 1.5, ": it does not hold, and may be in shape, which ends at 1.300"),
        ("times", (2.0, 4.0), 0.9, 1.2, ": it does not hold, and may be in shape, which begins at 1.149"),
        ("times", (2.0, 4.0), 0.9, 1.8, ", on both sides of what is asked"),
    ],
)
def test_what_lies_on_both_sides_says_of_which_bound(
    kind: Kind, documented: tuple[float, ...], low: float, high: float, told: str
) -> None:
    found = grade([Part(Asked(kind, documented), Measured((low + high) / 2, low, high, floor=1.0))])
    assert (found.verdict, found.reason) == (UNTOLD, f"It lies between {low:.3f} and {high:.3f}{told}.")


def test_a_claim_prints_the_reasons_of_its_verdict_alone() -> None:
    claim = Claim(
        "001-2",
        "flat",
        "108-112 ms",
        (Asked("at most", (1.0,), "up"),),
        why="what was read",
        why_holds="it is flat",
        why_shape="nearly",
        why_not="it is steep",
    )
    bench = Bench(quick=True)
    for value, floor, contended in ((1.0, 1.0, False), (1.2, 1.0, False), (2.0, 1.0, False), (2.0, 1.0, True)):
        bench.claim(claim, Measured(value, floor=floor, contended=contended), said="-")
    bench.claim(claim, said="-", untold="no file")
    assert [(check.verdict, check.why) for check in bench.outcome().checks] == [
        ("holds", "It is flat. What was read."),
        ("in shape", "It is flat. Nearly. What was read."),
        ("does not hold", "It is steep. What was read."),
        (UNTOLD, f"{OTHERS} What was read."),
        (UNTOLD, "No file. What was read."),
    ]


def test_nothing_that_measures_decides_a_verdict_of_its_own() -> None:
    """Neither a workload nor the comparisons on a user's own server: none of their files has the word of a verdict."""
    folders = [Path(folder) for package in (scenarios, own) for folder in package.__path__]
    texts = {path: path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py")}
    assert len(texts) > 50
    words = (*(f'"{verdict}"' for verdict in VERDICTS), "verdict=", "Verdict", "Check(")
    assert [(path.name, word) for path, text in texts.items() for word in words if word in text] == []


def test_every_claim_of_a_document_asks_something_that_can_be_graded_or_says_nothing() -> None:
    numbers = [claim.claim for document in EVERY for claim in document.values()]
    assert len(numbers) == len(set(numbers))
    without = [claim.claim for document in EVERY for claim in document.values() if not claim.asked]
    assert without == ["004-5"]  # no workload here negotiates HTTP/2
    for document in EVERY:
        for claim in document.values():
            for one in claim.asked:
                holds, shape = allowed(one)
                assert holds[0] <= holds[1] and shape[0] <= shape[1], claim.claim
