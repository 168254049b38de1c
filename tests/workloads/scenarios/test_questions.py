"""The comparisons of no document, each for real in its quick size: what holds however busy the machine is.

Counts, bytes and orders are asserted; no time is.
"""

from __future__ import annotations

from functools import cache

import pytest

from mcp_probe.workloads.bench.charts import charts_of
from mcp_probe.workloads.bench.registry import QUESTIONS, TODAY, named
from mcp_probe.workloads.bench.runner import run_all
from mcp_probe.workloads.bench.shapes import Check, Result, Results, Workload

pytestmark = pytest.mark.comparisons


@cache
def ran(name: str) -> Result:
    """One run of each is enough for all tests."""
    [result] = run_all(named((name,)), quick=True)
    return result


def check(name: str, claim: str) -> Check:
    outcome = ran(name).outcome
    found = [each for each in outcome.checks if each.claim == claim]
    if not found and outcome.missing:
        pytest.skip("; ".join(outcome.missing))
    assert len(found) == 1, outcome
    return found[0]


@pytest.mark.parametrize("workload", QUESTIONS, ids=lambda each: each.name)
def test_it_runs_to_its_end_with_figures_reasons_and_a_chart(workload: Workload) -> None:
    result = ran(workload.name)
    assert result.error is None
    if result.outcome.missing and not result.outcome.rows:
        pytest.skip("; ".join(result.outcome.missing))
    rows = result.outcome.rows
    assert [row.label for row in rows if row.figure is None and not row.note] == []
    assert [row.label for row in rows if not row.why and not row.note] == []
    assert {row.table[:3] for row in rows} == {TODAY}
    assert result.outcome.checks
    assert [each.claim for each in result.outcome.checks if not each.why] == []
    charts = charts_of(Results({}, "quick", (result,)))
    assert charts
    assert [chart.name for chart in charts if not chart.plot.x_name or not chart.unit] == []


def test_results_are_counted_to_the_byte_and_copied_on_their_way() -> None:
    assert check("result-size", "now-1").verdict == "holds"
    assert check("result-size", "now-2").verdict in ("holds", "cannot be told here")


def test_a_server_s_loop_is_named_as_it_names_itself() -> None:
    assert check("event-loops", "now-7").verdict == "holds"


def test_calls_and_handshakes_are_counted_with_sessions_and_without() -> None:
    assert check("stateless", "now-10").verdict == "holds"


def test_as_many_calls_are_inside_as_there_are_clients_and_sessions_outlive_their_clients() -> None:
    assert check("many-clients", "now-11").verdict == "holds"
    assert check("many-clients", "now-13").verdict == "holds"


def test_every_notification_is_counted_and_arrives() -> None:
    assert check("notifications", "now-14").verdict == "holds"


def test_waits_for_a_client_lie_between_what_it_took_and_the_call() -> None:
    assert check("round-trips", "now-17").verdict == "holds"
    assert check("round-trips", "now-19").verdict == "holds"


def test_each_worker_counts_its_own_calls_and_knows_its_own_sessions_only() -> None:
    assert check("workers", "now-21").verdict == "holds"
    assert check("workers", "now-22").verdict == "holds"


def test_the_sdk_and_its_version_are_named() -> None:
    assert check("sdks", "now-23").verdict == "holds"


def test_versions_of_cpython_answer_alike_and_are_named() -> None:
    assert check("pythons", "now-31").verdict == "holds"
    assert check("pythons", "now-32").verdict == "holds"


def test_a_call_that_is_read_on_from_another_connection_comes_whole() -> None:
    assert check("resumption", "now-26").verdict == "holds"


def test_http_2_is_spoken_where_tls_negotiates_it_and_over_one_connection() -> None:
    assert check("tls", "now-28").verdict == "holds"
    assert check("tls", "now-29").verdict == "holds"
