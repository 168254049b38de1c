"""Verdicts on document 003's CPU claims, from literal runs."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.shapes import Check
from mcp_probe.workloads.models.model_process import ModelRun
from mcp_probe.workloads.models.urls import expected_bytes
from mcp_probe.workloads.scenarios import cpu_models
from mcp_probe.workloads.scenarios.cpu_models import AGAIN, AWAIT, SYNC, TEN, Model, Runs

URLS = 16_000


def runs(model: Model, *seconds: float, contended: bool = False, cpu: float | None = None, **said: Any) -> Runs:
    """Runs of so many seconds, all of it on the CPU unless ``cpu`` seconds of it are."""
    usual = {"bytes": expected_bytes(URLS, model.threads), "gil": True}
    made = [
        ModelRun(
            said={**usual, **said},
            seconds=each,
            cpu_seconds=cpu or each,
            cpu_percent=100 * (cpu or each) / each,
            cpu_percent_max=None,
            system_percent=None,
            system_percent_max=None,
            rss_mb=14.0,
            rss_max_mb=14.0,
            switches=1,
        )
        for each in seconds
    ]
    return Runs(model, made, [0.0] * len(made), contended)


def taken(*changed: Runs) -> dict[str, Runs]:
    usual = [runs(SYNC, 1.0, 1.02, 0.98), runs(AGAIN, 1.01), runs(AWAIT, 1.02, 1.02), runs(TEN, 1.12, 1.12)]
    return {each.model.x: each for each in (*usual, *changed)}


def verdicts(found: dict[str, Runs], floor: float = 1.02) -> dict[str, Check]:
    bench = Bench(quick=True)
    cpu_models._claims(bench, found, floor, {})
    cpu_models._byte_check(bench, list(found.values()), URLS)
    return {check.claim: check for check in bench.outcome().checks}


def test_the_reproduction_s_figures_give_its_verdicts() -> None:
    assert {claim: check.verdict for claim, check in verdicts(taken()).items()} == {
        "003-1": "holds",
        "003-2": "holds",
        "003-3": "holds",
        "003-bytes": "holds",
    }


@pytest.mark.parametrize(
    ("claim", "changed", "verdict"),
    [
        ("003-1", runs(AWAIT, 1.5), "does not hold"),
        ("003-1", runs(AWAIT, 0.6), "does not hold"),
        ("003-2", runs(TEN, 0.5), "does not hold"),
        ("003-2", runs(TEN, 0.95), "does not hold"),
        ("003-2", runs(TEN, 2.5), "in shape"),
        ("003-3", runs(TEN, 1.12, 1.12, cpu=1.8), "does not hold"),
        ("003-3", runs(TEN, 1.12, 1.12, cpu=1.12 * 1.2), "in shape"),
        ("003-3", runs(TEN, 1.12), "cannot be told here"),
        ("003-2", runs(TEN, 0.55, gil=False), "does not hold"),
        ("003-3", runs(TEN, 0.55, gil=False), "cannot be told here"),
        ("003-bytes", runs(TEN, 1.12, bytes=1), "does not hold"),
    ],
)
def test_one_other_figure_is_another_verdict(claim: str, changed: Runs, verdict: str) -> None:
    assert verdicts(taken(changed))[claim].verdict == verdict


def test_threads_that_lose_less_than_the_noise_are_not_told() -> None:
    check = verdicts(taken(runs(TEN, 1.01)), floor=1.05)["003-2"]
    assert check.verdict == "cannot be told here"
    assert "1.05×" in check.why


def test_where_others_used_the_machine_cpu_time_of_the_least_disturbed_run_is_judged() -> None:
    found = taken(runs(AWAIT, 3.0, 2.5, contended=True, cpu=1.03))
    check = verdicts(found)["003-1"]
    assert check.verdict == "holds"
    assert "CPU time" in check.why


@pytest.mark.parametrize("changed", [runs(SYNC, 1.0, 2.0), runs(AGAIN, 2.0)])
def test_cpu_time_that_differs_between_two_runs_of_the_same_tells_no_more_than_a_quiet_machine(changed: Runs) -> None:
    check = verdicts(taken(runs(AWAIT, 3.0, 2.5, contended=True, cpu=1.03), changed))["003-1"]
    assert check.verdict == "cannot be told here"
    assert "Two runs of the same thing differ by 2" in check.why


def test_a_wrong_count_is_said_with_both_numbers() -> None:
    check = verdicts(taken(runs(AWAIT, 1.0, bytes=5)))["003-bytes"]
    assert check.measured == f"asyncio: 5 instead of {expected_bytes(URLS):,}"
