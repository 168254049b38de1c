"""Tests of code that reads what mcp_probe says, without a server. All pass: `python -m pytest THIS_FILE`."""

import json
import subprocess
import sys

import pytest

from mcp_probe.testing import ManualClock, make_record, summary_of, write_recording


def worst(summary):
    """What a dashboard of your own shows: the operation that clients wait for most, and its longest part."""
    row = max(summary["operations"], key=lambda row: row["count"] * row["total_ms"]["p50"])
    parts = {part: ms for part, ms in row["budget_ms"].items() if ms}
    return row["name"], max(parts, key=parts.get)


def test_the_dashboard_names_the_tool_that_clients_wait_for():
    clock = ManualClock()
    records = [make_record("price", clock=clock, busy_ms=2) for _ in range(30)]
    records += [make_record("search", clock=clock, queue_dispatch_ms=40, busy_ms=10) for _ in range(5)]
    assert clock.seconds() == pytest.approx(0.31)
    assert worst(summary_of(records).to_json()) == ("search", "queue_dispatch")


def test_a_script_of_yours_reads_the_report_of_a_recording(tmp_path):
    clock = ManualClock()
    records = []
    for _ in range(20):
        records += [make_record("search", arrival_ns=clock(), awaiting_ms=300) for _ in range(3)]  # three at once
        clock.advance(s=1)
    records.append(make_record("search", arrival_ns=clock(), awaiting_ms=5, outcome="error"))
    write_recording(tmp_path / "calls.jsonl", records)
    command = [sys.executable, "-m", "mcp_probe", "report", str(tmp_path / "calls.jsonl"), "--json", "-"]
    summary = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert summary["requests"]["count"] == 61 and summary["requests"]["errors"] == 1
    assert summary["signals"]["max_in_flight"] == 3


# mypy: ignore-errors
