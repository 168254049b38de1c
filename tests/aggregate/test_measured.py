"""Measures over the calls of an operation."""

from __future__ import annotations

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import MeasureStats, OperationSummary, Quality
from tests.frames import make_header, make_request


def row_of(*calls: tuple[tuple[str, int | None, str], ...], weight: int = 1) -> OperationSummary:
    fold = Fold()
    fold.add(make_header())
    for number, rows in enumerate(calls, 1):
        fold.add(make_request(number, measures=rows, weight=weight))
    (operation,) = fold.summary().operations
    return operation


def test_times_are_milliseconds_and_counts_are_as_they_are() -> None:
    row = row_of(
        (("dns_wait", 30_000_000, "exact"), ("context_switches_voluntary", 4, "exact")),
        (("dns_wait", 10_000_000, "exact"), ("context_switches_voluntary", 8, "exact")),
    )
    assert row.measures["dns_wait_ms"] == MeasureStats(20.0, 10.0, 30.0)
    assert row.measures["context_switches_voluntary"] == MeasureStats(6.0, 4.0, 8.0)
    assert not {"dns_wait_ms", "context_switches_voluntary"} & row.quality.keys()


def test_what_no_call_could_read_is_null_and_unavailable() -> None:
    row = row_of((("dns_wait", None, "unavailable"),))
    assert row.measures == {"dns_wait_ms": MeasureStats(None, None, None)}
    assert row.quality["dns_wait_ms"] == Quality("unavailable")


def test_one_lower_bound_makes_the_figure_one() -> None:
    row = row_of((("dns_wait", 1_000_000, "lower"),), (("dns_wait", 3_000_000, "exact"),))
    assert (row.quality["dns_wait_ms"].tag, row.quality["dns_wait_ms"].lo) == ("lower", 1.0)


def test_calls_that_stand_for_others_make_it_an_estimate() -> None:
    row = row_of((("context_switches_voluntary", 4, "exact"),), weight=10)
    assert (row.measures["context_switches_voluntary"].mean, row.quality["context_switches_voluntary"].tag) == (
        4.0,
        "estimate",
    )


def test_a_measure_of_a_newer_version_is_left_out_and_the_summary_says_so() -> None:
    later, known = Fold(), Fold()
    for fold, name in ((later, "of_tomorrow"), (known, "dns_wait")):
        fold.add(make_header())
        fold.add(make_request(1, measures=((name, 1, "exact"),)))
    assert not any("of_tomorrow" in note for note in known.summary().notes)

    known.merge(later)
    summary = known.summary()
    assert list(summary.operations[0].measures) == ["dns_wait_ms"]
    (note,) = (note for note in summary.notes if "does not know" in note)
    assert note.startswith("The recording has measures that this version of mcp_probe does not know: of_tomorrow.")


def test_processes_merge() -> None:
    first, second = Fold(), Fold()
    for fold, value in ((first, 2), (second, 4)):
        fold.add(make_header())
        fold.add(make_request(1, measures=(("context_switches_voluntary", value, "exact"),)))
    first.merge(second)
    assert first.summary().operations[0].measures["context_switches_voluntary"] == MeasureStats(3.0, 2.0, 4.0)
