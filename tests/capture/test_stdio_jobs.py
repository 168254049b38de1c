"""Calls of the stdio transport on worker threads: when the writer of an answer waited, and for what."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest

from mcp_probe.capture.guard import Guard
from mcp_probe.capture.live_requests import LiveRequests
from mcp_probe.capture.messages import Channel
from mcp_probe.capture.stdio_jobs import FLUSH, OwnMethod, TransportCall
from mcp_probe.record.assemble import LATE_NS

LATE_S = 3 * LATE_NS / 1e9


class Output(io.StringIO):
    """Slow where told to be."""

    seconds = 0.0

    def flush(self) -> None:
        time.sleep(self.seconds)


class Pool:
    """One whose threads are all taken."""

    name = "pool"

    def is_full(self) -> bool:
        return True

    def holder(self, since: int, until: int) -> str:
        return "a tool"


@pytest.fixture
def channel() -> Any:
    return Channel(LiveRequests(), "stdio", lambda: (0, 0, 0))


def flushed(
    channel: Any, *, thread_after_s: float = 0.0, takes_s: float = 0.0, pool: Any = None
) -> list[tuple[int, int]]:
    """Waits of the writer since a flush was submitted; the call gets its thread after some time."""
    output = Output()
    output.seconds = takes_s
    call = TransportCall(FLUSH, OwnMethod(output, "flush"), channel, Guard("write", lambda hook, exc: None))
    call.pool, call.append = pool, [].append
    channel.writer_waits_ns = time.monotonic_ns() + 60_000_000_000  # on the loop it has waited for nothing
    call.submit()
    time.sleep(thread_after_s)
    call()
    return list(channel._writer_waits)


def test_a_writer_whose_free_thread_comes_late_waited_for_it(channel: Any) -> None:
    before = time.monotonic_ns()
    ((start, end),) = flushed(channel, thread_after_s=LATE_S)
    assert before <= start and end - start >= LATE_S * 1e9 and end <= time.monotonic_ns()


def test_a_writer_that_waits_for_a_thread_of_a_full_pool_waits_for_its_holder(channel: Any) -> None:
    assert flushed(channel, thread_after_s=LATE_S, pool=Pool()) == []
    assert [wait[3:] for wait in channel.starved] == [("pool", "a tool")]


def test_a_flush_that_takes_long_waits_for_its_client(channel: Any) -> None:
    waits = flushed(channel, takes_s=20 * LATE_S)
    assert sum(end - start for start, end in waits) < 10 * LATE_S * 1e9
