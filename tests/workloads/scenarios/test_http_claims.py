"""Verdicts on document 004's claims, from literal figures; and what excuses a row from Little's law."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Check
from mcp_probe.workloads.models.http_load import Level, Pattern
from mcp_probe.workloads.scenarios import http_client, http_sweep
from mcp_probe.workloads.scenarios.http_runs import Found, Told, repeat_floor

SEEN = {
    "requests": 0,
    "connections": 50,
    "connections_peak": 50,
    "in_flight_peak": 20,
    "received_bytes": 0,
    "sent_bytes": 0,
    "cpu_ms": 10.0,
    "seconds": 1.0,
}


def made(rps: float, level: Level | None = None, library: str = "httpx", **said: Any) -> Found:
    """A level that lasted one second and as long as it was meant to."""
    level = level or Level(seconds=1.0)
    mean_ms = 1000 * level.concurrency / rps if rps else None
    usual = {
        "answered": round(rps),
        "errors": {},
        "cancelled": 0,
        "started": level.concurrency,
        "seconds": 1.0,
        "cpu_seconds": 0.8,
        "rps": rps,
        "mean_ms": mean_ms,
        "cycle_mean_ms": mean_ms,
        "p50_ms": mean_ms,
        "p99_ms": mean_ms,
        "max_ms": mean_ms,
        "versions": ["HTTP/1.1"],
        "server": SEEN,
    }
    return Found(library, level, {**usual, **said}, (rps,), contended=False)


MADE = {
    "construction_ms": {"per_request": 18.0, "unverified": 0.28, "one_context": 0.08},
    "default_limits": {"max_connections": 100, "max_keepalive_connections": 20, "keepalive_expiry": 5.0},
}


def client_verdicts(made_of: dict[str, Any] = MADE, **rates: float) -> dict[str, Check]:
    patterns: tuple[Pattern, ...] = ("per_request", "default", "limits", "http2", "unverified", "one_context")
    found = {name: made(rates.get(name, 1000.0)) for name in (*patterns, "no_keepalive", "again")}
    bench = Bench(quick=True)
    http_client._claims(bench, "httpx", found, made_of)
    return {check.claim: check for check in bench.outcome().checks}


def test_the_reproduction_s_figures_give_its_verdicts() -> None:
    checks = client_verdicts(per_request=44.5, default=773, again=770, limits=234, http2=248, one_context=736)
    assert {claim: check.verdict for claim, check in checks.items()} == {
        "004-1": "holds",
        "004-1a": "does not hold",
        "004-2": "does not hold",
        "004-5": "cannot be told here",
        "004-6": "does not hold",
    }
    assert checks["004-1"].value == pytest.approx(17.4, abs=0.1)
    assert checks["004-1a"].value == pytest.approx(0.003, abs=0.001)
    assert checks["004-2"].value == pytest.approx(3.3, abs=0.01)


def test_a_pattern_that_got_no_answer_is_said_and_not_judged() -> None:
    bench = Bench(quick=True)
    found = {name: made(1000.0) for name in ("per_request", "default", "limits", "http2", "one_context", "again")}
    found["per_request"] = made(0.0, cycle_mean_ms=None, p50_ms=None)
    http_client._claims(bench, "httpx", found, MADE)
    outcome = bench.outcome()
    assert {check.claim for check in outcome.checks} == {"004-5", "004-6"}
    assert outcome.notes == ("httpx: nothing was answered in time with per_request; claims on it are not judged.",)


def test_a_client_per_request_that_costs_little_is_not_slower() -> None:
    assert client_verdicts(per_request=900)["004-1"].verdict == "does not hold"
    assert client_verdicts(per_request=400)["004-1"].verdict == "in shape"


def test_where_sharing_the_context_changes_nothing_the_connections_are_to_blame() -> None:
    assert client_verdicts(per_request=50, one_context=55)["004-1a"].verdict == "holds"


def test_a_part_that_does_not_fit_its_whole_is_refused() -> None:
    """Sharing the context alone cannot be quicker than sharing the client as well, but by noise."""
    check = client_verdicts(per_request=50, one_context=1300, again=990)["004-1a"]
    assert check.verdict == "cannot be told here"
    assert "not in the order of their work" in check.why
    assert "%" not in check.measured
    within = client_verdicts(per_request=50, one_context=1020, again=950)["004-1a"]
    assert within.verdict == "does not hold"


def test_limits_that_cost_nothing_are_no_reproach() -> None:
    assert client_verdicts(per_request=50, limits=1000)["004-2"].verdict == "holds"
    assert client_verdicts(per_request=50, limits=300)["004-2"].verdict == "does not hold"
    # A wide floor is no proof of the same: nothing is said then.
    assert client_verdicts(per_request=50, limits=700, again=200)["004-2"].verdict == "cannot be told here"


def test_a_claim_about_http_2_needs_the_version_read_from_the_answers() -> None:
    bench = Bench(quick=True)
    http_client._http2(bench, "httpx", made(1000, versions=["HTTP/1.1", "HTTP/2"]))
    (check,) = bench.outcome().checks
    assert check.verdict == "cannot be told here"


def sweep_verdicts(*rates: tuple[int, int, float, float], **said: Any) -> dict[str, Check]:
    """Of (workers, connections, requests per second, P99)."""
    sweep = [
        made(rps, http_sweep.swept(workers, connections), p99_ms=p99, **said)
        for workers, connections, rps, p99 in rates
    ]
    bench = Bench(quick=len(rates) == 3)
    http_sweep._sweep_claims(bench, "httpx", sweep, 1.02)
    return {check.claim: check for check in bench.outcome().checks}


FULL = [
    *((10, 50, 362, 34), (50, 100, 877, 90), (100, 100, 965, 150), (200, 200, 176, 1800), (500, 200, 92, 6120)),
    *((500, 500, 69, 6000), (1000, 500, 69, 6000), (1000, 1000, 60, 6000), (2000, 1000, 60, 6000)),
    (3000, 1000, 60, 6000),
]


def test_a_sweep_with_its_best_in_the_middle_and_a_tail_that_explodes_holds() -> None:
    checks = sweep_verdicts(*FULL)
    assert checks["004-3"].verdict == "in shape"
    assert checks["004-4"].verdict == "in shape"
    assert checks["004-3"].value == pytest.approx(965 / 60)


def test_a_sweep_that_only_rises_does_not_hold() -> None:
    checks = sweep_verdicts((100, 100, 100, 50), (500, 200, 200, 51), (1000, 500, 300, 52))
    assert checks["004-3"].verdict == "does not hold"
    assert checks["004-4"].verdict == "does not hold"


def test_a_sweep_that_others_disturbed_refutes_nothing() -> None:
    """Which level is the best is as noisy as the rates are: on a busy machine the highest may win."""
    rates = ((100, 100, 100.0), (500, 200, 110.0), (1000, 500, 120.0))
    sweep = [replace(made(rps, http_sweep.swept(c, n)), contended=True) for c, n, rps in rates]
    bench = Bench(quick=True)
    http_sweep._sweep_claims(bench, "httpx", sweep, 1.02)
    assert {check.claim: check.verdict for check in bench.outcome().checks}["004-3"] == "cannot be told here"


def test_three_levels_can_show_only_a_part_of_the_tail() -> None:
    checks = sweep_verdicts((100, 100, 900, 150), (500, 200, 400, 600), (1000, 500, 300, 1500))
    assert checks["004-4"].verdict == "in shape"


def test_a_level_without_an_answer_is_no_division_by_zero() -> None:
    nothing: dict[str, Any] = {"p50_ms": None, "p99_ms": None, "max_ms": None, "mean_ms": None, "cycle_mean_ms": None}
    silent = made(0.0, http_sweep.swept(1000, 500), **nothing, cancelled=1000)
    assert silent.cpu_ms is None
    assert silent.little is None
    assert silent.success_percent is None
    bench = Bench(quick=True)
    http_sweep._sweep_claims(bench, "httpx", [made(900, http_sweep.swept(100, 100)), silent], None)
    sweep = [made(900, http_sweep.swept(100, 100)), silent]
    for one in sweep:
        http_sweep._level_rows(bench, one, Told())
    http_sweep._fall_row(bench, "httpx", sweep, repeat_floor(silent, silent))
    assert {check.claim for check in bench.outcome().checks} == {"004-3", "004-4"}
    rows = bench.outcome().rows
    assert len(rows) == 15 and {row.table for row in rows} == {"004 sweep"}
    assert [row.label for row in rows if row.figure is None and not row.note] == []


def test_a_sweep_s_headline_has_its_a_a_from_a_level_that_ran_twice() -> None:
    bench = Bench(quick=True)
    first, last = made(900, http_sweep.swept(100, 100)), made(150, http_sweep.swept(1000, 500))
    http_sweep._fall_row(bench, "httpx", [first, last], repeat_floor(first, made(1000, http_sweep.swept(100, 100))))
    (row,) = bench.outcome().rows
    assert row.figure == 6.0
    assert row.noise_floor == pytest.approx(10 / 9)
    assert row.documented == pytest.approx(5.98, abs=0.01)


# --- Little's law ---------------------------------------------------------------------------------


def test_a_closed_loop_that_fits_needs_no_excuse() -> None:
    found = made(1000)
    assert found.excuse == ""
    little = found.little
    assert little is not None
    assert little.mean_in_flight == pytest.approx(50)
    assert little.fits


def test_a_row_that_does_not_fit_is_refused_unless_it_says_why() -> None:
    wrong = made(1000, cycle_mean_ms=5.0).little  # 5 in flight of 50
    assert wrong is not None
    assert not wrong.fits
    cancelled = made(1000, cycle_mean_ms=5.0, cancelled=12)
    assert cancelled.excuse == "12 were cancelled in the drain"
    assert cancelled.little is not None
    assert cancelled.little.fits


def test_workers_that_never_sent_and_a_long_drain_are_said() -> None:
    found = made(1000, started=30, seconds=2.0)
    assert found.excuse == "20 workers sent nothing before the time was over; the drain took 1.0 s of 2.0"


def test_rows_of_one_library_are_never_shown_as_the_other_s() -> None:
    bench = Bench(quick=True)
    for library in ("httpx", "httpx2"):
        http_sweep._level_rows(bench, made(900, http_sweep.swept(100, 100), library), Told())
    rows = [row for row in bench.outcome().rows if row.measured is not None and row.metric == "throughput"]
    assert [(row.table, row.series, row.documented is None) for row in rows] == [
        ("004 sweep", "httpx", False),
        ("004 sweep, httpx2", "httpx2", True),
    ]
