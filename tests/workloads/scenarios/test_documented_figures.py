"""The documents' figures were copied right: each table's own arithmetic, which the documents state nowhere."""

from __future__ import annotations

import pytest

from mcp_probe.workloads.scenarios import http_sweep
from mcp_probe.workloads.scenarios.documents.doc002 import COUNT, HTTP, OPERATIONS, THROUGHPUT
from mcp_probe.workloads.scenarios.documents.doc003 import CPU_BOUND, IO_BOUND, IO_METRICS
from mcp_probe.workloads.scenarios.documents.doc004 import LEVELS, SWEEP


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_s_total_mean_and_throughput_agree(name: str) -> None:
    table = OPERATIONS[name]
    assert table.mean == pytest.approx(table.total / COUNT, abs=0.0006)
    assert table.throughput == pytest.approx(1000 * COUNT / table.total, abs=1.01)
    assert table.min < table.median < table.mean < table.p95 < table.p99 < table.max
    assert table.sd < table.mean


def test_the_http_comparison_divides_to_what_it_prints() -> None:
    for name, line in HTTP.items():
        assert line.stdio == OPERATIONS[name].mean
        assert line.ratio == pytest.approx(line.http / line.stdio, abs=0.05)
    assert THROUGHPUT.ratio == pytest.approx(THROUGHPUT.stdio / THROUGHPUT.http, abs=0.05)


@pytest.mark.parametrize("name", IO_BOUND)
def test_an_io_table_s_speeds_follow_from_its_bytes_and_its_time(name: str) -> None:
    figures = IO_BOUND[name].figures
    assert list(figures) == [metric for metric in IO_METRICS if metric in figures]
    for direction in ("download", "upload"):
        speed = figures[f"{direction}ed"] / figures["time"] / 1000
        assert figures[f"{direction} speed"] == pytest.approx(speed, rel=0.001)
    assert figures["written"] < figures["downloaded"]
    assert figures["CPU"] < figures["CPU max"]
    assert figures["system CPU"] < figures["system CPU max"]


def test_nine_io_tables_of_twelve_or_thirteen_lines() -> None:
    assert {name: len(table.figures) for name, table in IO_BOUND.items()} == {
        name: 12 if name.startswith("sync") else 13 for name in IO_BOUND
    }
    assert len(IO_BOUND) == 9


def test_three_cpu_tables() -> None:
    assert [table["time"] for table in CPU_BOUND.values()] == [9.77, 9.78, 12.35]
    for figures in CPU_BOUND.values():
        assert figures["CPU"] < figures["CPU max"]
        assert figures["system CPU"] < figures["system CPU max"]


def test_of_the_sweep_s_rows_all_but_the_best_fit_little_s_law() -> None:
    in_flight = {concurrency: row["throughput"] * row["mean"] / 1000 for (concurrency, _), row in SWEEP.items()}
    assert in_flight[500] == pytest.approx(497, abs=1)
    assert in_flight[1000] == pytest.approx(979, abs=1)
    assert in_flight[3000] == pytest.approx(2478, abs=2)
    assert in_flight[100] == pytest.approx(9.8, abs=0.1)


def test_the_sweep_s_sample_run_is_among_its_levels() -> None:
    assert set(SWEEP) < set(LEVELS)
    assert set(http_sweep.QUICK_LEVELS) < set(LEVELS)
    kept = [http_sweep.swept(*level).keepalive for level in LEVELS]
    assert kept == [5, 25, 50, 100, 100, 250, 250, 500, 500, 500]
