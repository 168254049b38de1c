"""Operations of the last seconds, and the health of loops, against figures made by hand."""

from __future__ import annotations

import pytest

from mcp_probe.histogram import bucket_of
from mcp_probe.live.recent import MAX_OPERATIONS, WINDOW_S, Recent, health_of
from mcp_probe.model import RequestRecord
from tests.frames import MS, SECOND, make_group, make_loop_sample, make_request


def ended(name: str, at_s: float, ms: float = 10, outcome: str = "ok") -> RequestRecord:
    end = round(at_s * SECOND)
    return make_request(name=name, arrival_ns=end - round(ms * MS), end_ns=end, outcome=outcome)


def test_nothing_is_counted_while_nobody_watches() -> None:
    recent = Recent()
    recent.take([ended("search", 100.0)])
    assert recent.operations(101 * SECOND) == ([], 0.0)
    recent.begin(102 * SECOND)
    recent.take([ended("search", 101.9), ended("search", 102.1)])
    recent.stop()
    recent.take([ended("search", 102.2)])
    recent.begin(103 * SECOND)
    assert recent.operations(104 * SECOND)[0] == []


def test_rates_errors_and_percentiles_are_of_the_window() -> None:
    recent = Recent()
    recent.begin(100 * SECOND)
    for second in range(4):
        calls = [ended("search", 100.5 + second, ms=10) for _ in range(9)]
        failed = ended("search", 100.6 + second, ms=200, outcome="tool_error")
        recent.take([*calls, failed, ended("list", 100.7 + second, ms=1)])
    rows, covered = recent.operations(104 * SECOND)
    assert covered == 4.0
    assert [(row.name, row.count, row.errors, row.rate_per_s) for row in rows] == [
        ("search", 40, 4, 10.0),
        ("list", 4, 0, 1.0),
    ]
    assert rows[0].p50_ms == pytest.approx(10, rel=0.07)
    assert rows[0].p95_ms == pytest.approx(200, rel=0.07)
    assert rows[0].max_ms == 200.0


def test_what_ended_before_the_window_is_forgotten() -> None:
    recent = Recent()
    recent.begin(100 * SECOND)
    recent.take([ended("old", 100.5)])
    recent.take([ended("new", 100.5 + WINDOW_S)])
    assert [row.name for row in recent.operations((101 + WINDOW_S) * SECOND)[0]] == ["new"]


def test_requests_without_a_record_count_too() -> None:
    recent = Recent()
    recent.begin(0)
    recent.take([make_group([(bucket_of(5 * MS), 30, 150 * MS)], name="search", last_ns=SECOND)])
    [row] = recent.operations(2 * SECOND)[0]
    assert (row.name, row.count, row.rate_per_s) == ("search", 30, 15.0)


def test_invented_names_have_a_bound() -> None:
    recent = Recent()
    recent.begin(0)
    recent.take([ended(f"tool {number}", 0.5) for number in range(2 * MAX_OPERATIONS)])
    rows, _ = recent.operations(SECOND)
    assert len(rows) == MAX_OPERATIONS + 1
    assert sum(row.count for row in rows) == 2 * MAX_OPERATIONS


def test_health_of_a_loop_with_one_block() -> None:
    block = 500 * MS
    found = health_of([make_loop_sample([block])])
    assert found.utilization == pytest.approx(0.5)
    assert found.arrival_delay_ms == pytest.approx(0.5**2 / 2 * 1000)  # of one second, half waits 250 ms on average
    assert found.longest_ms == 500.0


def test_an_iteration_longer_than_the_window_delays_only_what_comes_in_it() -> None:
    sample = make_loop_sample([60 * SECOND])
    assert health_of([sample]).arrival_delay_ms == pytest.approx(500.0)
