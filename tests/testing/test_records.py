"""Made-up records: their times are those that were given, and what reads recordings says the same of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mcp_probe.errors import OptionError
from mcp_probe.model import BUDGET_PARTS
from mcp_probe.record.file import read_recording
from mcp_probe.testing import ManualClock, make_record, summary_of, write_recording
from tests.testing.test_plugin import ROOT, run

MS = 1_000_000


def test_the_clock_moves_only_when_told_and_never_back() -> None:
    clock = ManualClock(5)
    assert (clock(), clock(), clock.seconds()) == (5, 5, 5e-9)
    assert clock.advance(s=1, ms=2.5, us=3, ns=4) == clock() == 5 + 1_002_503_004
    with pytest.raises(OptionError, match="never goes back"):
        clock.advance(ms=-1)
    assert clock() == 1_002_503_009


def test_a_record_lasts_as_long_as_its_parts_and_moves_the_clock_to_its_end() -> None:
    clock = ManualClock(7 * MS)
    lengths = {part: number for number, part in enumerate(BUDGET_PARTS, 1)}
    record = make_record("add", clock=clock, **{f"{part}_ms": ms for part, ms in lengths.items()})
    assert record.arrival_ns == 7 * MS
    assert record.end_ns == clock() == (7 + sum(lengths.values())) * MS
    assert {part: getattr(record.budget, part) for part in BUDGET_PARTS} == {p: ms * MS for p, ms in lengths.items()}
    queued, written = (1 + 2) * MS, (9 + 10) * MS
    assert (record.first_step_ns, record.result_ns) == (7 * MS + queued, record.end_ns - written)
    assert make_record("add", clock=clock).arrival_ns == record.end_ns


def test_records_have_ids_of_their_own_and_fields_can_be_given() -> None:
    records = [make_record() for _ in range(3)]
    assert len({record.id for record in records}) == 3 and all(record.id > 0 for record in records)
    given = make_record(None, id=9, method="prompts/get", outcome="error", arrival_ns=3, end_ns=8)
    assert (given.id, given.name, given.method, given.outcome) == (9, None, "prompts/get", "error")
    assert (given.arrival_ns, given.end_ns) == (3, 8)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"buzy_ms": 3}, "A record has nothing called 'buzy_ms'. Did you mean busy_ms?"),
        ({"xyz": 3}, r"nothing called 'xyz'. Expected a part of the budget \(queue_transport_ms, "),
        ({"busy_ms": -1}, "busy_ms is -1; expected a length of 0 or more"),
    ],
)
def test_what_is_no_part_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        make_record(**given)


def test_a_part_that_was_not_seen_is_unknown_in_the_summary() -> None:
    (row,) = summary_of([make_record("add", busy_ms=3, write_flush_ms=None) for _ in range(3)]).operations
    assert (row.budget_ms.busy, row.budget_ms.write_flush, row.total_ms.max) == (3.0, None, 3.0)


def test_a_recording_gives_back_its_records_and_their_summary(tmp_path: Path) -> None:
    clock = ManualClock(10**9)
    records = [make_record("add", clock=clock, busy_ms=ms) for ms in (1, 4, 2)]
    write_recording(tmp_path / "made.jsonl", reversed(records))
    _, *read, _ = read_recording(tmp_path / "made.jsonl")
    assert read == records
    summary = summary_of(read)  # type: ignore[arg-type]
    assert summary == summary_of(records)
    assert summary.complete and not summary.notes
    assert (summary.requests.count, summary.window.seconds) == (3, 0.007)
    assert [row.total_ms.max for row in summary.operations] == [4.0]


def test_the_documents_example_passes(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "testing" / "test_made_records.py", tmp_path)
    _, found = run(tmp_path, "test_made_records.py")
    assert list(found.values()) == ["passed", "passed"], found
