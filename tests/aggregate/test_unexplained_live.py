"""A wait that nothing names, on a real loop: it is told as such, and one that a hook names is not."""

from __future__ import annotations

import asyncio

from mcp_probe.aggregate.findings import findings_of, verdict_of
from mcp_probe.aggregate.thresholds import FindingOptions
from mcp_probe.model import Finding, Verdict
from mcp_probe.session import Probe
from tests.adapters.waits.test_on_the_loop import run

CALLS = 32
WAIT_S = 0.06
"""A fifth of a call must be the wait, also of those for which a busy machine had no CPU for 0.2 s."""
OPTIONS = FindingOptions(min_seconds=0.0)


def judged(*, looks: bool) -> tuple[dict[str, Finding], Verdict]:
    """``unexplained-wait`` by tool, of a server whose calls await a future of its own, or a lock; and the verdict."""

    async def future() -> None:
        waited = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(WAIT_S, waited.set_result, None)
        await waited

    async def lock() -> None:
        gate = asyncio.Lock()
        await gate.acquire()
        asyncio.get_running_loop().call_later(WAIT_S, gate.release)
        await gate.acquire()

    def blinded(probe: Probe) -> None:
        probe._hub.looks.stop(10)

    summary = run(CALLS, future, lock, first=(lambda probe: None) if looks else blinded)
    found = findings_of(summary, OPTIONS)
    named = {one.subject.rpartition(".")[2]: one for one in found if one.code == "unexplained-wait"}
    return named, verdict_of(summary, found)


def test_a_future_that_nobody_can_look_at_is_unexplained_and_a_lock_is_not() -> None:
    found, verdict = judged(looks=False)
    assert found.keys() == {"future"}
    evidence = found["future"].evidence
    assert (evidence["looks"], evidence["calls"], found["future"].severity) == (0, CALLS, "warn")
    assert isinstance(evidence["unnamed_ms"], float)
    assert evidence["unnamed_ms"] >= 0.5 * CALLS * WAIT_S * 1000  # the rest is the loop's, on a busy machine
    assert verdict.code != "healthy"


def test_a_future_that_is_looked_at_is_not_unexplained() -> None:
    """32 waits of 60 ms, and up to one look each 5 ms. Where a busy machine let nobody look often, that is said."""
    found, _ = judged(looks=True)
    assert all(one.evidence["looks"] for one in found.values()), found
