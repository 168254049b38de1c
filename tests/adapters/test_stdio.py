"""The stdio transport of a real server process, against what its client saw."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import anyio
import pytest

from mcp_probe.aggregate.blocking import StepIndex, blame, victim_of
from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import Frame, PoolSample, RequestRecord, StepRecord
from mcp_probe.workloads.client import Answer, Call
from tests.adapters.raw_stdio import RawClient, raw_client
from tests.adapters.serving import ROOT, frames_of, over_stdio

MS = 1_000_000
HELD_MS = 6000


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
    assert below.ping_ms < HELD_MS / 4
    assert below.transport_waited_ms < HELD_MS / 4
    assert above.ping_ms > HELD_MS / 3
    # The ping was sent some way into the tools' time, and was answered with the first of them.
    assert above.transport_waited_ms == pytest.approx(above.ping_ms, abs=HELD_MS / 5)
    assert above.transport_waited_ms > HELD_MS / 3
    for held in (below, above):
        assert max(sample.borrowed_peak for sample in held.pools) >= 39
        assert sum(sample.submitted for sample in held.pools) == sum(sample.finished for sample in held.pools)
    assert max(sample.active_peak for sample in below.pools) == 38
    assert max(sample.active_peak for sample in above.pools) == 39
    (pinged,) = [record for record in above.records if record.method == "ping"]
    writing = (pinged.budget.write_wait or 0) + (pinged.budget.write_flush or 0) + (pinged.budget.queue_transport or 0)
    assert writing / MS > HELD_MS / 3


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


def test_the_transports_own_tokens_are_not_looked_at_and_those_of_plain_tools_are(tmp_path: Path) -> None:
    async def run() -> None:
        async with over_stdio("asyncio", tmp_path / "few.jsonl") as session:
            assert (await session.call("holders")).text == "0"
            async with anyio.create_task_group() as group:
                group.start_soon(session.pipelined, [Call("hold", {"ms": HELD_MS})] * 3)
                with anyio.fail_after(HELD_MS / 1e3):
                    while (await session.call("holders")).text != "3":
                        await anyio.sleep(0.05)

    anyio.run(run)


def bounds_ms(record: RequestRecord) -> tuple[float, float]:
    """(lo, hi) of the whole time of ``record``: how long its bytes lay in the pipe may be known by its bounds only."""
    total = record.end_ns - record.arrival_ns
    for name, _, lo, hi in record.quality:
        if name == "queue_transport" and lo is not None and hi is not None:
            return total / MS, (total + hi - lo) / MS
    return total / MS, total / MS


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_what_a_request_waited_before_it_was_read_is_in_its_queue(loop: str, tmp_path: Path) -> None:
    """Five calls are sent while the loop is blocked for 2.5 seconds.

    Where a read is under way meanwhile, it stamps them as they come; else they pile up in the pipe, and only when
    it was last empty is known (on trio either may happen).
    """
    recording = tmp_path / "queued.jsonl"

    answers: list[Answer] = []

    async def run() -> None:
        async with over_stdio(loop, recording) as session:
            await session.call("quick")
            async with anyio.create_task_group() as group:
                group.start_soon(session.pipelined, [Call("block", {"ms": 2500})])
                await anyio.sleep(1)
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


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what the reader waits for")
SETTLED = 5_000  # the id of a call before the scene
BLOCKER = 6_000
DURING, AFTER = range(20), range(20, 120)
WIDTH_MS, WIDTH_SHARE = 20, 0.1
"""How far apart the bounds of a total may be: measured 5-16 ms on an idle machine."""


def lines_during_a_block_and_a_burst_afterwards(client: RawClient, how: str) -> None:
    """The loop is blocked for 500 ms, and then busy with many short steps. Lines come one by one all the time."""
    client.call(SETTLED, "quick")
    client.wait(SETTLED)
    client.call(BLOCKER, how, ms=500)
    for number in DURING:
        time.sleep(0.022)
        client.call(number, "quick")
    client.wait(BLOCKER, *DURING)
    for number in AFTER:
        client.call(number, "block", ms=5)
        time.sleep(0.002)
    client.wait(*DURING, *AFTER)


@pytest.mark.parametrize(
    ("how", "loop", "accelerator"),
    [
        *[("block", loop, accelerator) for loop in ("asyncio", "uvloop", "trio") for accelerator in "10"],
        *[pytest.param("keep", loop, "1", marks=ON_LINUX) for loop in ("asyncio", "trio")],
    ],
)
def test_each_line_in_the_pipe_came_between_two_looks_at_it(
    how: str, loop: str, accelerator: str, tmp_path: Path
) -> None:
    """The bounds hold whatever the machine does. That they are narrow takes a watchdog that gets a CPU: three runs."""
    for number in range(ROUNDS):
        recording = tmp_path / f"pipe{number}.jsonl"
        command = [sys.executable, "-m", "tests.adapters.truth_server", loop, str(recording)]
        with raw_client(command, {"PYTHONPATH": str(ROOT), "MCP_PROBE_NATIVE": accelerator}) as client:
            lines_during_a_block_and_a_burst_afterwards(client, how)
        frames = frames_of(recording)
        try:
            lines_are_bounded_closely(frames, client, lines_are_bounded(frames, client), how)
            return
        except TooWide:
            if number == ROUNDS - 1:
                raise


ROUNDS = 3


class TooWide(AssertionError):
    """Bounds hold, and are too far apart to be of use."""


def lines_are_bounded(frames: list[Frame], client: RawClient) -> list[RequestRecord]:
    calls = [frame for frame in frames if isinstance(frame, RequestRecord) and frame.method == "tools/call"]
    by_arrival = sorted(calls, key=lambda record: record.arrival_ns)[2:]
    assert len(by_arrival) == len(client.sent_ns) - 3
    for number, record in enumerate(by_arrival):
        lo, hi = bounds_ms(record)
        most, least = ((record.end_ns - at[number]) / MS for at in (client.sent_ns, client.written_ns))
        assert lo <= most + 1, (number, lo, most)
        assert least <= hi + 5, (number, least, hi)
    return by_arrival


def lines_are_bounded_closely(
    frames: list[Frame], client: RawClient, by_arrival: list[RequestRecord], how: str
) -> None:
    """Of those that came during the block. In the burst, steps of 5 ms keep the GIL: there bounds are all it asks."""
    steps = [frame for frame in frames if isinstance(frame, StepRecord) and frame.operation == how]
    block = max([step for step in steps if not step.running], key=lambda step: step.end_ns - step.start_ns)
    during = [number for number in DURING if client.sent_ns[number] < block.end_ns - 10 * MS]
    if len(during) < len(DURING) // 2:
        raise TooWide("the client got no CPU to send its calls during the block", during)
    bounds = [bounds_ms(by_arrival[number]) for number in during]
    wide = sum(hi - lo > max(WIDTH_MS, WIDTH_SHARE * hi) for lo, hi in bounds)
    waited = found = 0.0
    for number in during:
        sent = (max(at[number], block.start_ns) for at in (client.sent_ns, client.written_ns))  # it may begin late
        truth, least = ((block.end_ns - at) / MS for at in sent)
        lo, hi = blame_of(by_arrival[number], [block])[how]
        assert lo <= truth + 1 and least <= hi + 5, (number, lo, truth, least, hi)
        waited, found = waited + truth, found + lo
    if wide > len(bounds) // 10 or found < 0.9 * waited:
        raise TooWide(wide, sorted(hi - lo for lo, hi in bounds)[-10:], found / waited)
    mine = sorted(client.total_ms(number) for number in DURING)
    percentiles_hold(frames, "quick", {0.5: mine[len(mine) // 2], 0.95: mine[int(0.95 * len(mine))]})


def percentiles_hold(frames: list[Frame], tool: str, truth_ms: dict[float, float]) -> None:
    """The summary's percentiles are the client's, within 10 %, or the interval that it gives holds them."""
    fold = Fold()
    fold.add_all(frames)
    (operation,) = [each for each in fold.summary().operations if each.name == tool]
    for q, truth in truth_ms.items():
        name = f"p{round(100 * q)}"
        said = getattr(operation.total_ms, name)
        quality = operation.quality.get(f"total_ms_{name}")
        lo, hi = (said, said) if quality is None or quality.lo is None else (quality.lo, quality.hi or said)
        near = max(WIDTH_MS, WIDTH_SHARE * truth)
        if abs(said - truth) > near and not (lo <= truth <= hi and hi - lo <= near):
            raise TooWide(tool, name, truth, said, quality)


@pytest.mark.parametrize("accelerator", ["1", "0"], ids=["native", "pure"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])  # trio runs tasks in a random order
def test_an_answer_whose_writer_waited_for_the_loop_has_a_blocker(loop: str, accelerator: str, tmp_path: Path) -> None:
    recording = tmp_path / "written.jsonl"
    command = [sys.executable, "-m", "tests.adapters.truth_server", loop, str(recording)]
    with raw_client(command, {"PYTHONPATH": str(ROOT), "MCP_PROBE_NATIVE": accelerator}) as client:
        client.call(SETTLED, "answered_first")
        client.call(BLOCKER, "block_the_answer", ms=300)
        client.wait(SETTLED, BLOCKER)
    held_ms = int(client.answers[BLOCKER]["result"]["content"][0]["text"]) / MS
    frames = frames_of(recording)
    records = {frame.name: frame for frame in frames if isinstance(frame, RequestRecord) and frame.name}
    answered, blocking = records["answered_first"], records["block_the_answer"]
    assert answered.result_ns is not None
    waits = [wait for wait in answered.waits if wait.stage == "write"]  # one a turn that kept its writer waiting
    assert waits
    assert answered.result_ns <= waits[0].start_ns and waits[-1].end_ns <= answered.end_ns
    found = blame_of(answered, frames)["block_the_answer"]
    assert found[0] == found[1]  # the step has more than the sleep, and what the host takes there
    assert held_ms - 15 <= found[0] <= max(held_ms + 15, (blocking.end_ns - blocking.arrival_ns) / MS)
    assert "block_the_answer" not in blame_of(blocking, frames)
    # Its handler may have been held up, too, just before the answer was.
    held_up = (answered.budget.write_wait or 0) + (answered.budget.ready_wait or 0)
    assert held_up / MS >= found[0]


def blame_of(record: RequestRecord, frames: Sequence[Frame]) -> dict[str, tuple[float, float]]:
    """Blocker -> (lo, hi) in ms."""
    victim = victim_of(record)
    steps = StepIndex(frame for frame in frames if isinstance(frame, StepRecord))
    return {} if victim is None else {name: (lo / MS, hi / MS) for name, (lo, hi) in blame(victim, steps).rows.items()}
