"""Real servers whose width is known, swept as a user's own: told within 15 %, or said to be unknown. Some minutes."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.own.command import PATIENCE_QUICK_S
from mcp_probe.workloads.bench.own.comparison import compare
from mcp_probe.workloads.bench.own.operations import OwnServer
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.load.peer import Target
from tests.hogs import hogs

SERVER = Path(__file__).with_name("width_server.py")

WIDTHS = {"1": 1, "2": 2, "8": 8, "13": 13, "40": 40, "pool": 39, "blocking": 1}
"""What the server is told -> calls handled at once. The SDK's pool has 40 threads, of which its reader has one."""

LIMITS = {"8": "Semaphore", "pool": "Pool", "blocking": "event loop"}


def call_ms(kind: str) -> int:
    """So long that the width is the limit. The SDK writes a few hundred answers a second beside a busy loop, and 40
    calls of 100 ms would be as many."""
    return 400 if WIDTHS[kind] > 20 else 50


def swept(kind: str, wait_ms: int) -> Outcome:
    async def run() -> Outcome:
        target = Target(command=(sys.executable, str(SERVER), kind, str(wait_ms)))
        return await compare(OwnServer(target), Bench(quick=True, patience_s=PATIENCE_QUICK_S))

    return anyio.run(run)


def recommended(outcome: Outcome) -> float | None:
    (check,) = (check for check in outcome.checks if check.claim == "004-3")
    assert (check.value is None) == (check.verdict == "cannot be told here")
    assert (check.value is None) == outcome.advice.startswith("No limit is recommended: ")
    return check.value


@pytest.mark.knees
@pytest.mark.parametrize("kind", WIDTHS)
def test_a_known_width_is_told_or_not_told(kind: str) -> None:
    outcome = swept(kind, call_ms(kind))
    found = recommended(outcome)
    if found is None:
        return  # a busy machine; what must never happen is another number
    assert abs(found - WIDTHS[kind]) <= 0.15 * WIDTHS[kind], outcome.advice
    assert LIMITS.get(kind, "") in outcome.advice


@pytest.mark.knees
@pytest.mark.parametrize("kind", ["1", "8", "40", "blocking"])
def test_beside_a_cpu_hog_it_is_told_right_or_not_at_all(kind: str) -> None:
    with hogs(2):
        outcome = swept(kind, call_ms(kind))
    found = recommended(outcome)
    assert found is None or abs(found - WIDTHS[kind]) <= 0.15 * WIDTHS[kind], outcome.advice


@pytest.mark.knees
def test_without_a_width_no_width_is_made_up() -> None:
    """What limits is the loop, if anything; a number below what it bears would be a made-up one."""
    outcome = swept("none", 50)
    found = recommended(outcome)
    rates = {row.x: row.figure or 0.0 for row in outcome.rows if row.metric == "throughput" and row.little is not None}
    if found is not None:
        near = min(rates, key=lambda x: abs(float(x or 0) - found))
        assert rates[near] >= 0.85 * max(rates.values()), outcome.advice
        assert "lets in" not in outcome.advice
