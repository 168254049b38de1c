"""The kinds of leaks are as many as they should be, and what is told of them is judged by what they keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from benchmarks.memory_kinds import KINDS, Kind
from benchmarks.memory_leaks import PAGE, Row, groups, judged, rows_in, section, text_of
from benchmarks.page import filled


def summary(kind: Kind, verdict: str, line: int, remainder: int = 0, told: float = 0) -> dict[str, Any]:
    file, _ = kind.lines
    each = told or kind.call_bytes
    row = {"name": kind.name, "verdict": verdict, "bytes_per_call": each, "lines": [{"file": file, "line": line}]}
    part = {
        "kind": kind.owner,
        "verdict": "grows" if remainder else "steady",
        "bytes": remainder * 300,
        "bytes_per_call": float(remainder),
    }
    return {"leaks": {"operations": [row], "process": {"calls": 300, "remainders": [part]}}}


def is_right(kind: Kind, *args: Any) -> bool:
    (row,) = judged([kind], summary(kind, *args))
    return row.is_right


def test_fifteen_leak_and_eight_only_look_like_it_and_what_no_tool_owns_runs_alone() -> None:
    assert Counter(kind.owner for kind in KINDS.values()) == {"tool": 14, "native": 1, "none": 8}
    assert [len(kinds) for kinds in groups()] == [14, 1, 8]


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.owner == "tool"], ids=lambda kind: kind.name)
def test_a_leak_is_right_if_it_is_named_with_a_line_of_what_allocates_it(kind: Kind) -> None:
    _, lines = kind.lines
    assert is_right(kind, "grows", lines[-1])
    assert not is_right(kind, "grows", lines[-1] + 1)
    assert not is_right(kind, "steady", lines[-1])


@pytest.mark.parametrize("name", ["background_task", "queue_thread"])
def test_what_a_queue_feeds_is_right_within_a_quarter_of_its_bytes(name: str) -> None:
    kind = KINDS[name]
    _, lines = kind.lines
    assert is_right(kind, "grows", lines[-1], 0, 0.8 * kind.call_bytes)
    assert not is_right(kind, "grows", lines[-1], 0, 0.7 * kind.call_bytes)


def test_what_no_tool_owns_is_right_within_a_quarter_of_its_bytes() -> None:
    kind = KINDS["c_through_ctypes"]
    assert is_right(kind, "steady", 1, kind.call_bytes)
    assert is_right(kind, "steady", 1, round(0.8 * kind.call_bytes))
    assert not is_right(kind, "steady", 1, round(0.7 * kind.call_bytes))
    assert not is_right(kind, "steady", 1)


def test_an_innocent_is_right_if_nothing_grows() -> None:
    kind = KINDS["bounded_cache"]
    assert is_right(kind, "steady", 1)
    assert not is_right(kind, "grows", 1)
    assert not is_right(kind, "steady", 1, 100_000)


def test_a_state_keeps_every_row_and_the_table_counts_what_was_right_and_what_lost_its_end() -> None:
    rows = [Row(kind, "told", True, 90) for kind in KINDS.values()]
    rows[0] = Row(rows[0].kind, "steady", False, 90, has_end=False)
    assert rows_in(text_of(rows)) == rows
    text = section(rows, "2 CPUs")
    assert text in filled(PAGE.read_text("utf-8"), {"kinds": text})
    assert "90 calls of each kind" in text
    assert "13 named with tool and line; 9 of 9 others right. The hunts of 1 kinds lost their end." in text
    assert sum(line.startswith("| ") for line in text.splitlines()) == 1 + len(rows)
