"""What waits unread in the pipe while the loop is held: the client's own clock says for how long it must have."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from mcp_probe.aggregate.fold import Fold
from mcp_probe.capture import sent
from mcp_probe.clock import now_ns
from mcp_probe.model import RequestRecord
from mcp_probe.record.file import read_recording
from mcp_probe.report.console import render
from mcp_probe.workloads.load.peer import Peer, Target
from mcp_probe.workloads.load.running import LoadOptions, run_load
from mcp_probe.workloads.load.wire import Era, Reply
from tests.workloads.load.raw import mix_of, talk, tool

pytestmark = pytest.mark.skipif(sent.CLOCK is None, reason="clocks of two processes cannot be compared here")

SERVER = Path(__file__).with_name("blocking_server.py")


def probed(recording: Path, era: Era) -> Target:
    run = [sys.executable, "-m", "mcp_probe", "run", "--record", str(recording), "--output", str(recording) + ".txt"]
    return Target(command=(*run, "--", sys.executable, str(SERVER)), era=era)


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_the_wait_in_the_pipe_is_what_the_client_knows_it_was(tmp_path: Path, era: Era) -> None:
    async def conversation(peer: Peer) -> tuple[list[Reply], int]:
        holding = peer.post(tool("hold", folder=str(tmp_path)).order(0), stamped=True)
        while not (tmp_path / "held").exists():
            await asyncio.sleep(0.005)
        # The loop is held. The reader's thread takes what comes first; whatever comes later stays in the pipe.
        waiting = []
        for _ in range(3):
            waiting.append(peer.post(tool("quick").order(0), stamped=True))
            await asyncio.sleep(0.1)
        let_go_ns = now_ns()
        (tmp_path / "go").touch()
        await holding
        return [await each for each in waiting], let_go_ns

    recording = tmp_path / "recording.jsonl"
    replies, let_go_ns = talk(probed(recording, era), conversation)
    frames = list(read_recording(recording))
    quick = [each for each in frames if isinstance(each, RequestRecord) and each.name == "quick"]
    assert [each.sent_ns for each in quick] == [reply.sent_ns for reply in replies]
    for place, (record, reply) in enumerate(zip(quick, replies, strict=True)):
        assert record.sent_ns is not None and record.budget.queue_transport is not None
        assert record.sent_ns <= record.arrival_ns <= reply.answered_ns
        if place:  # it arrived in the pipe, where a look has found it: what it waited there unread is its queue
            assert record.budget.queue_transport >= let_go_ns - record.arrival_ns
    fold = Fold()
    fold.add_all(frames)
    wait = next(row for row in fold.summary().operations if row.name == "quick").pipe_wait_ms
    assert wait.max == pytest.approx(max(each.arrival_ns - (each.sent_ns or 0) for each in quick) / 1e6)


def test_a_client_that_says_nothing_leaves_it_unknown(tmp_path: Path) -> None:
    async def conversation(peer: Peer) -> Reply:
        return await peer.post(tool("quick").order(0))

    recording = tmp_path / "recording.jsonl"
    talk(probed(recording, "auto"), conversation)
    fold = Fold()
    fold.add_all(read_recording(recording))
    summary = fold.summary()
    wait = next(row for row in summary.operations if row.name == "quick").pipe_wait_ms
    assert (wait.p50, wait.max) == (None, None)
    assert "waited unread" not in render(summary, width=100, color=False)


def test_a_profiled_load_says_what_the_probe_saw_of_its_requests() -> None:
    target = Target(command=(sys.executable, str(SERVER)))
    result = run_load(target, mix_of(tool("quick"), rate=100, count=60, seconds=None), LoadOptions(profile=True))
    side = result.server_side
    assert side is not None
    assert result.target == target.name
    assert side.count == result.open.fates["ok"] == 60
    assert side.pipe_wait.max is not None
    assert 0 <= side.pipe_wait.max <= (result.open.sent_to_answer.max or 0)
    assert side.handling_p50 is not None
    assert side.handling_p50 <= (result.open.sent_to_answer.max or 0)
