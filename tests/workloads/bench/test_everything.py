"""All workloads for real, in their quick sizes: everything runs, and every claim gets a verdict.

What holds on a loaded machine is asserted with each workload's own tests; here only what load cannot change.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mcp_probe.workloads.bench.charts import charts_of
from mcp_probe.workloads.bench.registry import DOCUMENTS, GROUPS, WORKLOADS
from mcp_probe.workloads.bench.results import read_results
from mcp_probe.workloads.bench.shapes import VERDICTS, Results, Stats

LIMIT_S = 1800
CLAIMS = {"000": 8, "001": 10, "002": 8, "003": 13, "004": 6}
"""How many numbered claims each document makes."""

pytestmark = [pytest.mark.workloads, pytest.mark.timeout(LIMIT_S + 60)]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Results:
    target = tmp_path_factory.mktemp("bench") / "all.json"
    command = [sys.executable, "-m", "mcp_probe", "bench", "--all", "--quick", "--json", str(target)]
    with Path(target.parent, "page.txt").open("w") as page:
        subprocess.run(command, stdout=page, check=False, timeout=LIMIT_S)
    return read_results(target)


def test_every_workload_runs_to_its_end(everything: Results) -> None:
    ended = {result.name: result.error for result in everything.results}
    assert ended == dict.fromkeys((workload.name for workload in WORKLOADS), None)


def test_every_claim_of_every_document_has_a_verdict(everything: Results) -> None:
    checks = {check.claim: check for result in everything.results for check in result.outcome.checks}
    wanted = {f"{document}-{number}" for document, count in CLAIMS.items() for number in range(1, count + 1)}
    assert wanted - checks.keys() == set()
    assert {check.verdict for check in checks.values()} <= set(VERDICTS)
    assert [claim for claim, check in checks.items() if check.verdict == "cannot be told here" and not check.why] == []


def test_every_document_has_rows_beside_its_figures_and_charts(everything: Results) -> None:
    rows = [row for result in everything.results for row in result.outcome.rows]
    beside = {row.table[:3] for row in rows if row.documented is not None and row.figure is not None}
    assert beside == set(DOCUMENTS)
    assert {chart.document for chart in charts_of(everything)} == set(GROUPS)


def test_a_row_without_a_figure_says_why(everything: Results) -> None:
    rows = [(result.name, row) for result in everything.results for row in result.outcome.rows]
    assert [(name, row.label) for name, row in rows if row.figure is None and not row.note] == []


def test_every_ratio_has_an_a_a_floor_beside_it(everything: Results) -> None:
    rows = [(result.name, row) for result in everything.results for row in result.outcome.rows]
    ratios = [(name, row) for name, row in rows if row.unit == "×" and row.figure is not None]
    assert [(name, row.label) for name, row in ratios if row.noise_floor is None] == []
    # Of counts and of what a probe read there is none; of what is timed every workload has some.
    assert {name for name, row in rows if row.noise_floor is not None} == {each.name for each in everything.results}


def test_every_server_workload_has_reasons(everything: Results) -> None:
    without = {result.name for result in everything.results if not any(row.why for row in result.outcome.rows)}
    assert without == set()


def test_every_row_beside_a_documented_figure_has_a_reason(everything: Results) -> None:
    rows = [row for result in everything.results for row in result.outcome.rows]
    beside = [row for row in rows if row.documented is not None and row.figure is not None]
    arithmetic = [row for row in beside if row.metric in ("Little's law", "cores")]  # nothing ran for these
    assert [(row.table, row.label) for row in beside if not row.why and row not in arithmetic] == []


def test_statistics_agree_with_themselves(everything: Results) -> None:
    found = [row.measured for result in everything.results for row in result.outcome.rows]
    for stats in found:
        if isinstance(stats, Stats):
            assert stats.min <= stats.median <= stats.p95 <= stats.p99 <= stats.max
