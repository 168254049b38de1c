"""Calls of known libraries on the event loop's own thread: each is short, and the sum of them is a fault.

Truth: the backend waits 3 ms before each answer, so calls on the loop keep it for at least as long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import urllib3

from mcp_probe.aggregate.findings import findings_of
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Summary
from mcp_probe.session import Probe
from tests.adapters.waits.backend import serving
from tests.kept import keep

CALLS = 40
ANSWER_S = 0.003
OWN_S = 0.01
OPTIONS = FindingOptions(min_seconds=0.0, slow_step_ms=1e9, critical_step_ms=1e9)
"""No step is slow, however busy the machine is: this is about the sum."""


def run(calls: int, *tools: Callable[[], Any], first: Callable[[Probe], object] = lambda probe: None) -> Summary:
    """``calls`` of each tool, a profiled function, one after the other; ``first`` is called on the loop before them."""
    probe = Probe()
    kept = keep(probe)

    async def main() -> None:
        first(probe)
        for tool in tools:
            profiled = probe.profile(tool)
            for _ in range(calls):
                await profiled()

    try:
        asyncio.run(main())
        summary = probe.snapshot()
    finally:
        probe.detach()
    assert kept.requests(kind="function")
    return summary


@pytest.mark.parametrize("library", ["urllib3", "httpx"])
def test_short_blocking_calls_are_named_by_library_line_count_and_sum_and_not_in_a_thread(library: str) -> None:
    with serving(first_byte=ANSWER_S) as backend, urllib3.PoolManager() as pool, httpx.Client() as client:

        def ask() -> None:
            if library == "urllib3":
                pool.request("GET", f"{backend.address}/")
            else:
                client.get(f"{backend.address}/")

        async def on_the_loop() -> None:
            ask()

        async def in_a_thread() -> None:
            await asyncio.to_thread(ask)

        async def now_and_then() -> None:
            time.sleep(OWN_S)
            if not asked:
                asked.append(now_and_then)
                ask()

        asked: list[Any] = []
        summary = run(CALLS, on_the_loop, in_a_thread, now_and_then)
    rows = {row.name.rpartition(".")[2]: row for row in summary.operations}
    blocking = [one for one in rows["on_the_loop"].awaits if one.stage == "busy"]
    assert {one.library for one in blocking} == {library}
    assert {one.object for one in blocking} == {backend.address}
    assert sum(one.calls for one in blocking) == CALLS
    assert sum(one.total_ms for one in blocking) >= 0.95 * CALLS * ANSWER_S * 1000
    busy = rows["on_the_loop"].budget_ms.busy
    assert busy is not None and sum(one.total_ms for one in blocking) <= busy * CALLS * 1.001
    assert [one for one in rows["in_a_thread"].awaits if one.stage == "busy"] == []
    found = [finding for finding in findings_of(summary, OPTIONS) if finding.code == "blocking-call"]
    assert [finding.subject.rpartition(".")[2] for finding in found] == ["on_the_loop"]
    evidence = found[0].evidence
    assert (evidence["library"], evidence["count"], evidence["backend"]) == (library, CALLS, backend.address)
    assert str(evidence["where"]).startswith("test_on_the_loop.py:")
    assert found[0].severity == "warn"


def test_a_coroutine_on_the_loop_blocks_nothing() -> None:
    with serving(first_byte=ANSWER_S) as backend:

        async def awaits() -> None:
            async with httpx.AsyncClient() as client:
                await client.get(f"{backend.address}/")

        summary = run(3, awaits)
    assert [one.stage for row in summary.operations for one in row.awaits if one.stage == "busy"] == []
