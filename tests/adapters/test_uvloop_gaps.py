"""uvloop polls in C: what was read in a gap between two callbacks came at once only if the thread slept there.

On a busy machine a thread waits for a CPU as long as it would have slept in a poll. Then bytes that came long before
must not seem to have just come.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import closing

import pytest

from mcp_probe.adapters import uvloop_loop
from mcp_probe.adapters.uvloop_loop import Gap, Gaps
from mcp_probe.capture.context_switches import switches_so_far
from tests.adapters.test_loop_conformance import MS, UVLOOP, probing, spin, the_monitor
from tests.running import run_on

pytest.importorskip("uvloop")

BEGAN = 1_000 * MS


class Thread:
    """One whose context switches the test says."""

    voluntary = involuntary = 1

    def so_far(self) -> tuple[int, int]:
        return self.voluntary, self.involuntary


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Thread:
    thread = Thread()
    monkeypatch.setattr(uvloop_loop, "switches_so_far", thread.so_far)
    return thread


@pytest.mark.parametrize(
    ("voluntary", "involuntary", "ms", "polled", "ago_ms"),
    [
        pytest.param(1, 0, 10, True, 0, id="it slept"),
        pytest.param(3, 0, 1_000, True, 12.5, id="it slept, and may have waited for the GIL twice"),
        pytest.param(81, 0, 1_000, True, 500, id="it slept, and may have waited for the GIL for long"),
        pytest.param(0, 0, 10, False, None, id="its machine stood still"),
        pytest.param(0, 2, 10, False, None, id="others took its CPU"),
        pytest.param(1, 1, 10, True, None, id="it slept, or others took its CPU"),
        pytest.param(2, 0, 10, True, None, id="it may have waited for the GIL all the time"),
        pytest.param(99, 0, 500, True, None, id="so it may have where that woke it a bit late"),
        pytest.param(1, 0, 1, True, None, id="it may have found something at once"),
    ],
)
def test_only_a_thread_that_gave_its_cpu_away_polled(
    thread: Thread, voluntary: int, involuntary: int, ms: int, polled: bool, ago_ms: float | None
) -> None:
    gaps = Gaps()
    thread.voluntary, thread.involuntary = 50, 50  # in a step
    gaps.step_ended(BEGAN)
    thread.voluntary += voluntary
    thread.involuntary += involuntary
    gap = gaps.judge(BEGAN, BEGAN + ms * MS)
    assert gap == Gap(BEGAN, polled, None if ago_ms is None else BEGAN + round((ms - ago_ms) * MS))
    thread.voluntary += 7
    assert gaps.judge(BEGAN, BEGAN + (ms + 1) * MS) == gap, "whoever asks again is told the same"


def test_a_gap_too_short_for_a_poll_is_none(thread: Thread) -> None:
    gaps = Gaps()
    gaps.step_ended(BEGAN)
    thread.voluntary += 1
    assert gaps.judge(BEGAN, BEGAN + MS // 20) == Gap(BEGAN, False, None)
    assert gaps.judge(BEGAN, BEGAN + 10 * MS).came_ns == BEGAN + 10 * MS, "it was not over yet"


def test_where_the_system_does_not_count_long_gaps_are_polls(thread: Thread) -> None:
    thread.voluntary = thread.involuntary = 0
    gaps = Gaps()
    gaps.step_ended(BEGAN)
    assert gaps.judge(BEGAN, BEGAN + MS) == Gap(BEGAN, True, None)
    assert gaps.judge(BEGAN + 1, BEGAN + 10 * MS) == Gap(BEGAN + 1, True, BEGAN + 10 * MS)


class Reader(asyncio.Protocol):
    """Notes since when its bytes may have come, and then takes its time."""

    def __init__(self, since: list[int | None], asked: list[int], ask: object) -> None:
        self._since, self._asked, self._ask = since, asked, ask

    def data_received(self, data: bytes) -> None:
        self._asked.append(time.monotonic_ns())
        self._since.append(self._ask())  # type: ignore[operator]
        spin(0.02)


def send_later(far: socket.socket) -> None:
    time.sleep(0.3)
    far.send(b"x")


def test_what_came_during_a_block_did_not_just_come() -> None:
    """Three connections have bytes when a block ends. libuv hands them out one by one, each a long time after it."""
    since: list[int | None] = []
    asked: list[int] = []

    async def main() -> int:
        loop = asyncio.get_running_loop()
        with probing() as (probe, _):
            monitor = the_monitor(probe)
            far = []
            for _ in range(3):
                ours, theirs = socket.socketpair()
                await loop.create_connection(lambda: Reader(since, asked, monitor.read_since_ns), sock=ours)
                far.append(theirs)
            await asyncio.sleep(0.05)
            for each in far:
                each.send(b"x")
            sent = time.monotonic_ns()
            spin(0.1)
            await asyncio.sleep(0.2)
            for each in far:
                each.close()
        return sent

    sent = run_on(UVLOOP, main)
    assert len(since) == 3
    assert asked[0] - sent > 90 * MS
    assert asked[2] - asked[0] > 30 * MS
    assert all(each is not None and each <= sent for each in since)


def test_what_wakes_an_idle_loop_just_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or some waits for the GIL before. Here others never take the CPU: then nobody would know."""
    monkeypatch.setattr(uvloop_loop, "switches_so_far", lambda: (switches_so_far()[0], 1))
    for _ in range(6):
        since: list[int | None] = []
        asked: list[int] = []

        async def main(since: list[int | None] = since, asked: list[int] = asked) -> int:
            loop = asyncio.get_running_loop()
            with probing() as (probe, _):
                monitor = the_monitor(probe)
                ours, theirs = socket.socketpair()
                with closing(theirs):
                    await loop.create_connection(lambda: Reader(since, asked, monitor.read_since_ns), sock=ours)
                    await asyncio.sleep(0.05)
                    loop.run_in_executor(None, send_later, theirs)
                    await asyncio.sleep(0.6)
            return 0

        run_on(UVLOOP, main)
        assert len(since) == 1
        if since[0] is not None and asked[0] - since[0] < 100 * MS:
            return
    pytest.fail("in none of 6 rounds")
