from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcp_probe.model import (
    LOOP_OPERATION,
    ArrivalDelay,
    AwaitSummary,
    BlockedBy,
    JobLine,
    LoopSummary,
    MemoryStats,
    OperationMemory,
    Quality,
    RequestCounts,
    SlowStep,
    Summary,
    WaitPercentiles,
)
from mcp_probe.report.console import render
from mcp_probe.report.fine import told_instead
from tests.report.summaries import make_budget, make_executor, make_finding, make_operation, make_summary

HELD = OperationMemory(
    MemoryStats(98_000, 102_000), MemoryStats(90_000, 98_000), MemoryStats(0, 0), method="native-hybrid"
)
SLEPT = AwaitSummary("sleep", "sleep", "/srv/app.py:4", 40, 30.0, 1.0, (), (), "exact")
STEP = SlowStep(LOOP_OPERATION, 11.0, "cpu", None, None, None, "unavailable")


def quiet(**operation: Any) -> Summary:
    """Forty calls of 25 ms: no table has news."""
    row = make_operation(
        "search", 40, 20.0, 30.0, 30.0, make_budget(busy=25.0), **{"memory": HELD, "awaits": (SLEPT,), **operation}
    )
    return make_summary(
        requests=RequestCounts(40, 0, 0, 0, 0),
        operations=(row,),
        blocked_by=(BlockedBy("search", "search", 3, 10.0, 40.0, "bounded"),),
        slow_steps=(STEP,),
        executors=(make_executor("anyio default limiter", wait_ms=WaitPercentiles(0.2, 2.0)),),
        loop=LoopSummary(0.08, ArrivalDelay(0.1, 0.0, 0.0, 0.3, 4.0), "exact"),
    )


def test_tables_without_news_are_one_paragraph() -> None:
    text = render(quiet(), width=100, color=False, ascii_only=False)
    fine = " ".join(text.partition("\nFine ")[2].partition("\nNotes")[0].split("\n", 1)[1].split())
    assert fine == (
        "Requests waited for others on the event loop at most 4% of their time. No call held the event loop for "
        "long at a stretch. Calls awaited something 3% of their time. No thread pool was full (at most 3 of "
        "40 threads in use). No call held more than 98 kB at once. The event loop was busy 8% of the time, and "
        "99 in a hundred requests would wait for it less than 1.0 ms."
    )
    for heading in ("Who waited", "Slow steps", "What they waited", "Thread pools", "Memory", "Event loop"):
        assert f"\n{heading}" not in text
        assert f"\n{heading}" in render(quiet(), width=100, color=False, ascii_only=False, whole=True)


def pool(**changed: Any) -> Summary:
    return replace(quiet(), executors=(make_executor("jobs", **changed),))


@pytest.mark.parametrize(
    ("section", "summary"),
    [
        ("blocked-by", replace(quiet(), blocked_by=(BlockedBy("search", "search", 3, 10.0, 50.0, "bounded"),))),
        ("slow-steps", replace(quiet(), slow_steps=(replace(STEP, tool="search"),))),
        ("slow-steps", replace(quiet(), findings=(make_finding("blocking-call", "info", LOOP_OPERATION, "s", "a"),))),
        ("awaits", quiet(awaits=(replace(SLEPT, total_ms=50.0),))),
        ("awaits", quiet(awaits_unnamed_ms=20.0)),
        ("executors", pool(borrowed_peak=40)),
        ("executors", pool(at_limit_share=0.01)),
        ("executors", pool(wait_ms=WaitPercentiles(1.0, 10.0))),
        ("executors", pool(wait_ms=WaitPercentiles(None, None), wait_max_ms=10.0)),
        ("executors", pool(abandoned=1)),
        ("executors", quiet(job_lines=(JobLine("/srv/app.py:4", "json.loads", 9.0, 0.9, 0.8, 1.0, 30),))),
        ("memory", quiet(memory=replace(HELD, peak=MemoryStats(0, 10_000_000)))),
        ("memory", quiet(quality={"peak_max": Quality("bounded", 0.0, 10_000_000.0)})),
        ("memory", quiet(memory=replace(HELD, method="native-shadow"))),
        ("memory", replace(quiet(), findings=(make_finding("memory-growth", "warn", "search", "s", "a"),))),
        ("loop", replace(quiet(), loop=LoopSummary(0.5, ArrivalDelay(0.1, 0.0, 0.0, 0.3, 4.0), "exact"))),
        ("loop", replace(quiet(), loop=LoopSummary(0.1, ArrivalDelay(0.1, 0.0, 0.0, 10.0, 40.0), "exact"))),
        ("loop", replace(quiet(), loop=LoopSummary(None, ArrivalDelay(None, None, None, None, None), "exact"))),
    ],
)
def test_a_table_in_which_something_is_wrong_or_somebody_waited_is_shown(section: str, summary: Summary) -> None:
    told = told_instead(summary)
    assert section in told_instead(quiet())
    assert section not in told


def test_nothing_is_fine_where_nothing_was_asked() -> None:
    summary = quiet()
    assert told_instead(replace(summary, requests=replace(summary.requests, count=0))) == {}
