"""One start for all callers, or one for each; and what the claims make of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import hold
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.client import LoadSession
from mcp_probe.workloads.scenarios.arms import Arm
from mcp_probe.workloads.scenarios.cold_start import Cold, ColdStart, Gate, Starting, _callers, starting


class Slow:
    """Starts that last until they are let go."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.go = asyncio.Event()
        self.starts = 0
        self._failure = failure

    async def start(self) -> LoadSession:
        self.starts += 1
        await self.go.wait()
        if self._failure is not None:
            raise self._failure
        return cast(LoadSession, f"session {self.starts}")


async def test_callers_of_a_gate_wait_for_one_start_and_share_what_it_gives() -> None:
    slow = Slow()
    gate = Gate(cast(Starting, slow))
    callers = [asyncio.create_task(gate.session()) for _ in range(20)]
    await asyncio.sleep(0)
    slow.go.set()
    assert set(map(str, await asyncio.gather(*callers))) == {"session 1"}
    assert str(await gate.session()) == "session 1"
    assert slow.starts == 1


async def test_all_callers_of_a_gate_hear_why_the_start_failed() -> None:
    slow = Slow(LaunchError("it broke"))
    gate = Gate(cast(Starting, slow))
    callers = [asyncio.create_task(gate.session()) for _ in range(3)]
    await asyncio.sleep(0)
    slow.go.set()
    heard = await asyncio.gather(*callers, return_exceptions=True)
    assert [str(one) for one in heard] == ["it broke"] * 3
    assert slow.starts == 1


async def test_a_server_that_starts_for_a_caller_who_has_gone_ends_in_good_order() -> None:
    let_go, over, ended = asyncio.Event(), asyncio.Event(), []

    @asynccontextmanager
    async def started() -> AsyncIterator[str]:
        await let_go.wait()
        yield "a session"
        ended.append(True)

    running: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    life = asyncio.create_task(hold(started(), running, over))
    running.cancel()
    let_go.set()
    over.set()
    await life
    assert ended == [True]


@pytest.mark.workloads
@pytest.mark.slow
@pytest.mark.parametrize(("gated", "starts"), [(True, 1), (False, 3)])
async def test_servers_count_their_own_starts(gated: bool, starts: int) -> None:
    async with starting(Bench(quick=True), 20.0) as servers:
        wall_ms = await _callers(servers, 3, gated=gated)
        assert servers.count() == starts
    assert wall_ms > 20 + 50


def warm(wall_ms: float) -> Arm:
    return Arm(describe([wall_ms] * 3), None, [wall_ms] * 3, None, "")


def cold(wall_ms: float, starts: int) -> Cold:
    return Cold(describe([wall_ms] * 2, first_apart=False), starts)


def measured(gated_ms: float, warm_ms: float, naive_ms: float, starts: int = 1) -> ColdStart:
    work = ColdStart(Bench(quick=True))
    for count in (1, 5, 10, 20):
        work.one_by_one[count] = warm(54.0 * count)
        work.at_once[count] = warm(warm_ms)
        work.gated[count] = cold(gated_ms, starts)
    work.naive[5] = cold(naive_ms, 5)
    return work


@pytest.mark.parametrize(
    ("work", "verdicts"),
    [
        (measured(1000, 58, 1900), ["holds", "does not hold", "holds", "holds"]),
        (measured(1000, 58, 1900, starts=2), ["does not hold", "does not hold", "holds", "holds"]),
        (measured(1000, 58, 900), ["holds", "does not hold", "does not hold", "holds"]),
        (measured(54, 58, 90), ["holds", "holds", "holds", "holds"]),
        (measured(1000, 500, 1900), ["holds", "does not hold", "holds", "in shape"]),
    ],
)
def test_claims_follow_from_starts_and_from_what_a_cold_call_takes(work: ColdStart, verdicts: list[str]) -> None:
    work.checks()
    checks = work.bench.outcome().checks
    assert [check.claim for check in checks] == ["001-6", "001-6a", "001-6b", "001-6c"]
    assert [check.verdict for check in checks] == verdicts
