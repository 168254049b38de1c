"""Recordings and reports against each other: what differs, which part moved, and what nobody can know."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.compare.judge import compared
from mcp_probe.compare.reading import check_kinds, read, reading_of
from mcp_probe.compare.samples import recorded
from mcp_probe.compare.shapes import Comparison, Difference, Reading
from mcp_probe.errors import OptionError, RecordingError
from mcp_probe.model import Finding, Frame
from mcp_probe.report import jsonfile
from mcp_probe.workloads.bench.results import write_results
from tests.compare.recordings import MS, calls, write
from tests.frames import make_group, make_request
from tests.workloads.bench.made import full


def reading(frames: list[Frame], name: str = "a") -> Reading:
    return reading_of(recorded(frames), name)


def row_of(comparison: Comparison, operation: str, measure: str) -> Difference:
    [found] = [row for row in comparison.rows if (row.operation, row.measure) == (operation, measure)]
    return found


def test_what_got_slower_is_found_with_the_part_that_moved() -> None:
    found = compared([reading(calls())], [reading(calls(awaiting_ms=30.0, seed=2))])
    median = row_of(found, "search", "p50")
    assert median.judgement == "more than noise"
    assert median.low is not None and median.high is not None
    assert median.low < 31 / 21 < median.high
    moved = row_of(found, "search", "awaiting")
    assert moved.judgement == "more than noise"
    assert moved.low is not None and moved.high is not None and moved.low < 10.0 < moved.high
    assert row_of(found, "search", "busy").judgement == "within noise"


def test_what_did_not_change_says_what_it_could_have_seen() -> None:
    found = compared([reading(calls())], [reading(calls(seed=2))])
    assert {row.judgement for row in found.rows} == {"within noise"}
    visible = row_of(found, "search", "p50").visible
    assert visible is not None and 0 < visible < 0.05


def test_a_part_that_is_hardly_there_is_not_looked_at() -> None:
    found = compared([reading(calls())], [reading(calls(seed=2))])
    assert {row.measure for row in found.rows if not row.is_nothing} == {"p50", "p95", "mean", "busy", "awaiting"}
    assert row_of(found, "search", "errors").judgement == "within noise"


def test_a_recording_against_itself_differs_in_nothing() -> None:
    one = reading(calls())
    found = compared([one], [one])
    assert {row.judgement for row in found.rows} == {"within noise"}
    assert row_of(found, "search", "mean").change == 1.0


def test_too_few_calls_are_not_judged() -> None:
    found = compared([reading(calls(count=15))], [reading(calls(count=15, awaiting_ms=90.0))])
    assert {row.judgement for row in found.rows} == {"too few calls"}


def test_an_operation_of_one_side_only_is_said() -> None:
    found = compared([reading(calls("old"))], [reading(calls("new"))])
    assert row_of(found, "old", "p50").judgement == "only before"
    assert row_of(found, "new", "p50").judgement == "only after"


def test_times_of_a_contended_side_show_nothing_either_way() -> None:
    pressure = Finding("host-pressure", "warn", "exact", "server", "Others had the CPU.", "", {})
    slow = replace(reading(calls(awaiting_ms=90.0)), contended="others", findings=(pressure,))
    found = compared([reading(calls())], [slow])
    assert {row.judgement for row in found.rows if row.unit == "ms"} == {"contended"}
    assert found.contended == ("others",)


def test_calls_without_a_record_count_in_the_quantiles() -> None:
    groups: list[Frame] = [
        make_group([(0, 300, 300 * 80 * MS)], "search", first_ns=at * MS, last_ns=at * MS)
        for at in range(0, 20_000, 100)
    ]
    found = recorded([*calls(count=100), *groups]).figures
    assert found["search", "p50", ""].value == pytest.approx(80.0)
    assert found["search", "awaiting", ""].value == pytest.approx(20.0, rel=0.05)


def test_a_failing_share_is_a_row() -> None:
    broken: list[Frame] = [
        make_request(number, "search", arrival_ns=number * 50 * MS, busy=MS, outcome="error" if number % 3 else "ok")
        for number in range(1, 300)
    ]
    found = compared([reading(calls())], [reading(broken)])
    errors = row_of(found, "search", "errors")
    assert errors.judgement == "more than noise"
    assert errors.change == pytest.approx(2 / 3, abs=0.01)


def test_runs_of_one_side_that_differ_among_themselves_widen_the_interval() -> None:
    """Two runs of the same server were 20 and 26 ms: then 23 is no difference, however sure each run is of itself."""
    before = [reading(calls(awaiting_ms=20.0)), reading(calls(awaiting_ms=26.0, seed=2))]
    after = [reading(calls(awaiting_ms=22.0, seed=3)), reading(calls(awaiting_ms=28.0, seed=4))]
    assert row_of(compared(before, after), "search", "p50").judgement == "within noise"
    assert row_of(compared(before[:1], after[:1]), "search", "p50").judgement == "more than noise"


def summary_file(path: Path, frames: list[Frame]) -> Path:
    fold = Fold()
    fold.add_all(frames)
    with path.open("w") as stream:
        jsonfile.write(fold.summary(), stream)
    return path


def test_reports_are_judged_by_how_their_sides_vary(tmp_path: Path) -> None:
    sides = [
        [read(summary_file(tmp_path / f"{ms}{seed}.json", calls(awaiting_ms=ms, seed=seed))) for seed in (1, 2, 3)]
        for ms in (20.0, 40.0)
    ]
    assert row_of(compared(*sides), "search", "p50").judgement == "more than noise"
    assert row_of(compared(sides[0][:1], sides[1][:1]), "search", "p50").judgement == "noise unknown"


def test_findings_that_came_and_went_are_told() -> None:
    blocking = Finding("blocking-call", "warn", "exact", "search", "It blocks.", "", {"file": "s.py", "line": 3})
    moved = replace(blocking, evidence={"file": "s.py", "line": 30})
    before = replace(reading(calls()), findings=(blocking,))
    after = replace(before, findings=(moved, replace(blocking, subject="other")))
    found = compared([before], [after])
    assert ([each.subject for each in found.came], found.went) == (["other"], ())
    assert [each.subject for each in compared([after], [before]).went] == ["other"]


def test_the_first_line_says_what_a_file_is(tmp_path: Path) -> None:
    write_results(full(), tmp_path / "bench.json")
    kinds = {
        "recording": write(tmp_path / "r.jsonl", calls(count=3)),
        "summary": summary_file(tmp_path / "s.json", calls(count=3)),
        "bench": tmp_path / "bench.json",
    }
    found = {kind: read(path) for kind, path in kinds.items()}
    assert {kind: each.kind for kind, each in found.items()} == {kind: kind for kind in kinds}
    with pytest.raises(OptionError, match="both kinds"):
        check_kinds([found["recording"], found["bench"]])
    check_kinds([found["recording"], found["summary"]])


@pytest.mark.parametrize(
    "text",
    ["", "not json\n", "[1]\n", json.dumps({"format": "other/1"}), "{}", "[" * 200_000],
    ids=["empty", "words", "list", "other", "object", "nested"],
)
def test_what_is_none_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(RecordingError, match=r"x\.json .*Expected a recording"):
        read(path)
