"""What the probe says of the demo's blocking call, against the client's own clock."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.model import RequestRecord
from mcp_probe.record.file import read_recording
from mcp_probe.workloads import demo
from mcp_probe.workloads.client import Answer, Call, stdio_client_session

pytestmark = pytest.mark.slow

ROUNDS = 3
SEEN_BY_BOTH = 0.9
"""The client's own encoding and writing is in its time and not in the server's: some ms of 1,500 on a busy machine."""


async def test_the_wait_of_quick_calls_behind_the_blocking_one_lies_between_the_bounds_reported(
    tmp_path: Path,
) -> None:
    recording = tmp_path / "recording"
    async with stdio_client_session(demo.server_command(recording)) as session:
        for number in range(ROUNDS):
            async with anyio.create_task_group() as group:
                slow = Call("resize", {"image": f"photo-{number}", "width": 14_000})  # so long that none comes after it
                group.start_soon(session.pipelined, [slow])
                await anyio.sleep(0.02)
                await session.pipelined([Call("lookup", {"item": f"item-{n}"}) for n in range(6)])
        answers = session.answers
    fold = Fold()
    records: list[RequestRecord] = []
    for frame in read_recording(recording):
        fold.add(frame)
        if isinstance(frame, RequestRecord):
            records.append(frame)
    (row,) = (row for row in fold.summary().blocked_by if (row.victim, row.blocker) == ("lookup", "resize"))
    assert row.victims == 6 * ROUNDS
    truth = waited_behind(answers, "lookup", "resize", records)
    assert row.lo_ms <= truth
    assert row.hi_ms >= SEEN_BY_BOTH * truth


def waited_behind(answers: list[Answer], victim: str, blocker: str, records: list[RequestRecord]) -> float:
    """Sum over the calls of ``victim``, ms, from being sent to the end of the ``blocker`` call of their round.

    ``records`` only give the instant at which the blocker let the loop go; both processes read one clock.
    """
    released = sorted(record.result_ns or record.end_ns for record in records if record.name == blocker)
    total_ns = 0
    for answer in answers:
        if answer.operation == victim:
            end = next(ns for ns in released if ns > answer.sent_ns)
            total_ns += min(end, answer.answered_ns) - answer.sent_ns
    return total_ns / 1e6
