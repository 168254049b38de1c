"""The workloads of documents 002, 003 and 004, run for real: every table is there, and what no load can change holds.

Nothing here asserts a time. A ratio stands only where the two differ by more than any machine could hide.
"""

from __future__ import annotations

import pytest

from mcp_probe.workloads.bench.registry import named
from mcp_probe.workloads.bench.runner import run_all
from mcp_probe.workloads.bench.shapes import Outcome, Row
from mcp_probe.workloads.scenarios.documents.doc002 import CLAIMS
from mcp_probe.workloads.scenarios.documents.doc003 import IO_BOUND

pytestmark = [pytest.mark.workloads, pytest.mark.timeout(600)]


def outcome_of(name: str) -> Outcome:
    """A quick run; its own limit bounds it."""
    (result,) = run_all(named((name,)), quick=True)
    assert result.error is None, result.error
    assert result.outcome.complete
    return result.outcome


def documented(outcome: Outcome, table: str) -> list[Row]:
    return [row for row in outcome.rows if row.table == table and row.documented is not None]


def verdict(outcome: Outcome, claim: str) -> str:
    (check,) = (check for check in outcome.checks if check.claim == claim)
    return check.verdict


def test_op_latency_has_six_tables_of_ten_lines_and_both_charts() -> None:
    outcome = outcome_of("op-latency")
    tables = sorted({row.table for row in outcome.rows if row.table.startswith("002 §")})
    assert [table.split()[1] for table in tables] == ["§1", "§2", "§3", "§4.1", "§4.2", "§4.3"]
    for table in tables:
        rows = documented(outcome, table)
        assert len(rows) == 10, table
        assert all(row.figure is not None for row in rows), table
        assert any(row.why for row in rows), table
    assert len(documented(outcome, "002 bars")) == 12
    assert {check.claim for check in outcome.checks} == {claim for claim in CLAIMS if claim not in ("002-5", "002-7")}
    # On one session many requests are under way at once, however slow the machine.
    assert verdict(outcome, "002-6") == "does not hold"


def test_op_latency_http_compares_three_transports() -> None:
    outcome = outcome_of("op-latency-http")
    rows = documented(outcome, "002 HTTP")
    assert {row.series for row in rows} == {"stdio", "HTTP, SSE answers", "HTTP, JSON answers"}
    assert {row.x for row in rows} == {"ping", "tool call", "resource read", "maximum throughput"}
    assert {check.claim for check in outcome.checks} == {"002-5", "002-7"}
    # Answers of an HTTP server that waits for acknowledgements would take 40 ms each.
    fastest = min(row.measured.min for row in rows if row.metric == "latency" and not isinstance(row.measured, float))  # type: ignore[union-attr]
    assert fastest < 40


def test_session_reuse_shows_what_a_session_and_a_process_cost() -> None:
    outcome = outcome_of("session-reuse")
    assert verdict(outcome, "004-1p") in ("holds", "cannot be told here")
    counts = {row.x: row.figure for row in outcome.rows if row.metric == "requests"}
    assert all((count or 0) > 1 for count in counts.values())  # the call is not all that a session sends
    assert set(counts) == {"legacy handshake", "2026-07-28"}


def test_cpu_models_have_three_tables_and_count_to_the_byte() -> None:
    outcome = outcome_of("cpu-models")
    rows = documented(outcome, "003 CPU-bound")
    for model in ("sync", "asyncio", "10 threads"):
        assert {row.series for row in rows if row.x == model} >= {"execution time", "process", "system"}
    assert verdict(outcome, "003-bytes") == "holds"
    assert verdict(outcome, "003-4a") in ("does not hold", "cannot be told here")


def test_cpu_tools_grow_with_the_calls_wherever_they_run() -> None:
    outcome = outcome_of("cpu-tools")
    grows = {(row.series, row.x): row.figure or 0.0 for row in outcome.rows if row.metric == "CPU tools"}
    for series in ("async tool", "tool in a thread"):
        # Seven more calls of 5 ms of CPU each, in one interpreter: no less than that, on any machine.
        assert grows[series, 8] >= 8 * 5 * 0.8, series
    assert {check.claim for check in outcome.checks} == {"003-tools", "003-tools-quick"}


def test_io_models_have_nine_tables_and_write_to_the_byte() -> None:
    outcome = outcome_of("io-models")
    rows = documented(outcome, "003 I/O-bound")
    for table in IO_BOUND.values():
        assert len([row for row in rows if row.x == table.x]) == len(table.figures), table.label
    missing = {row.x for row in rows if row.figure is None and row.metric == "time"}
    assert missing == {"asyncio 100k"}  # full runs only
    assert verdict(outcome, "003-io-bytes") == "holds"
    assert verdict(outcome, "003-12") in ("holds", "in shape", "cannot be told here")
    assert {check.claim for check in outcome.checks} == {
        *(f"003-{number}" for number in range(5, 14)),
        "003-7a",
        "003-io-bytes",
    }


def test_http_client_reads_the_protocol_and_the_limits() -> None:
    outcome = outcome_of("http-client")
    claims = {check.claim: check.verdict for check in outcome.checks}
    assert claims["004-6"] == "does not hold"
    assert claims["004-5"] == "cannot be told here"  # nothing negotiates HTTP/2
    for row in outcome.rows:
        if row.little is not None:
            assert row.little.fits, row.label


def test_http_sweep_has_the_sample_s_rows_and_never_more_in_flight_than_connections() -> None:
    outcome = outcome_of("http-sweep")
    rows = [row for row in documented(outcome, "004 sweep") if row.unit != "×"]
    assert {row.x for row in rows} == {"c100/l100", "c500/l200", "c1000/l500", "c3000/l1000"}
    assert len(rows) == 3 * 7 + 8
    assert len(documented(outcome, "004 tuning")) == 4
    pool = next(check for check in outcome.checks if check.claim == "004-pool")
    assert "at most 20 in flight" in pool.measured or int(pool.measured.split("at most ")[1].split()[0]) <= 20
