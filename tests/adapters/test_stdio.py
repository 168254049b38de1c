"""The stdio transport of a real server process, against what its client saw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

import anyio
import pytest

from mcp_probe.model import PoolSample, RequestRecord
from mcp_probe.workloads.client import Answer, Call
from tests.adapters.serving import frames_of, over_stdio

MS = 1_000_000
HELD_MS = 2000


@dataclass
class Round:
    """One run: what the client saw of a ping among busy tools, and what the probe says of the threads."""

    ping_ms: float
    pools: list[PoolSample]
    records: list[RequestRecord]

    @property
    def transport_waited_ms(self) -> float:
        return max(sample.transport_wait_max_ns for sample in self.pools) / MS


def round_with(busy: int, recording: Path) -> Round:
    """A ping while ``busy`` plain tools hold threads."""

    async def run() -> float:
        async with over_stdio("asyncio", recording) as session:
            await session.call("quick")
            async with anyio.create_task_group() as group:
                group.start_soon(session.pipelined, [Call("hold", {"ms": HELD_MS})] * busy)
                await anyio.sleep(1)  # for 39 threads to start
                ping = await session.ping()
            return ping.total_ms

    ping_ms = anyio.run(run)
    frames = frames_of(recording)
    pools = [frame for frame in frames if isinstance(frame, PoolSample) and frame.name == "anyio default limiter"]
    return Round(ping_ms, pools, [frame for frame in frames if isinstance(frame, RequestRecord)])


def test_thirty_eight_busy_tools_leave_the_transport_its_threads_and_thirty_nine_do_not(tmp_path: Path) -> None:
    """Reader and writer take their threads from the same forty as plain tools: measurement.md's starvation cliff."""
    below, above = round_with(38, tmp_path / "38.jsonl"), round_with(39, tmp_path / "39.jsonl")
    assert below.ping_ms < 450
    assert below.transport_waited_ms < 450
    assert above.ping_ms > 500
    # The ping was sent some way into the tools' time, and was answered with the first of them.
    assert above.transport_waited_ms == pytest.approx(above.ping_ms, abs=450)
    assert above.transport_waited_ms > 500
    for held in (below, above):
        assert max(sample.borrowed_peak for sample in held.pools) >= 39
        assert sum(sample.submitted for sample in held.pools) == sum(sample.finished for sample in held.pools)
    assert max(sample.active_peak for sample in below.pools) == 38
    assert max(sample.active_peak for sample in above.pools) == 39
    (pinged,) = [record for record in above.records if record.method == "ping"]
    writing = (pinged.budget.write_wait or 0) + (pinged.budget.write_flush or 0) + (pinged.budget.queue_transport or 0)
    assert writing / MS > 500


def test_the_transports_own_jobs_are_no_work_of_the_pool(tmp_path: Path) -> None:
    recording = tmp_path / "few.jsonl"

    async def run() -> None:
        async with over_stdio("asyncio", recording) as session:
            await session.one_by_one([Call("quick", {})] * 5 + [Call("hold", {"ms": 20})] * 3)

    anyio.run(run)
    pools = [frame for frame in frames_of(recording) if isinstance(frame, PoolSample)]
    assert {sample.name for sample in pools} == {"anyio default limiter"}
    assert sum(sample.submitted for sample in pools) == 3
    assert {name for sample in pools for name, _, _ in sample.holders} == {"hold"}
    # Each answer is written and flushed, each line read: three jobs for any request.
    assert sum(sample.transport_jobs for sample in pools) >= 3 * 8
    assert 60 <= sum(sample.run_ns for sample in pools) / MS <= 600


def bounds_ms(record: RequestRecord) -> tuple[float, float]:
    """(lo, hi) of the whole time of ``record``: how long its bytes lay in the pipe may be known by its bounds only."""
    total = record.end_ns - record.arrival_ns
    for name, _, lo, hi in record.quality:
        if name == "queue_transport" and lo is not None and hi is not None:
            return total / MS, (total + hi - lo) / MS
    return total / MS, total / MS


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_what_a_request_waited_before_it_was_read_is_in_its_queue(loop: str, tmp_path: Path) -> None:
    """Five calls are sent while the loop is blocked for a second.

    Where a read is under way meanwhile, it stamps them as they come; else they pile up in the pipe, and only when
    it was last empty is known (on trio either may happen).
    """
    recording = tmp_path / "queued.jsonl"

    answers: list[Answer] = []

    async def run() -> None:
        async with over_stdio(loop, recording) as session:
            await session.call("quick")
            async with anyio.create_task_group() as group:
                group.start_soon(session.pipelined, [Call("block", {"ms": 1000})])
                await anyio.sleep(0.05)
                answers.extend(await session.pipelined([Call("quick", {})] * 5))

    anyio.run(run)
    recorded = [frame for frame in frames_of(recording) if isinstance(frame, RequestRecord)]
    records = [record for record in recorded if record.name == "quick"][1:]
    assert len(records) == 5
    seen = median(answer.total_ms for answer in answers)
    assert seen > 100, "the scene went wrong: the calls were not held up"
    assert median(bounds_ms(record)[0] for record in records) <= seen
    # What its client waits for a turn itself stands between the two.
    assert median(bounds_ms(record)[1] for record in records) >= seen - 250
    for record in records:
        budget = record.budget
        assert sum(getattr(budget, name) for name in budget.__slots__) == record.end_ns - record.arrival_ns
        (wait,) = [wait for wait in record.waits if wait.stage == "queue"]
        assert wait.start_ns == record.arrival_ns
        assert (wait.end_ns - wait.earliest_ns) / MS > 80
