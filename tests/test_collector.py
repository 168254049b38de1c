"""The end of a collector: what was seen last is handed on, unless its thread gets nowhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from importlib import metadata, util
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer

import mcp_probe
from mcp_probe import collector, header, session
from mcp_probe.collector import BUSY, BUSY_DRAIN_S, DRAIN_S, SOON_DRAIN_S, Collector
from mcp_probe.model import End, Frame, Header, RequestRecord
from mcp_probe.record.raw import RawRequest
from mcp_probe.session import Probe
from tests.kept import Listening, keep
from tests.native.twins import needs_the_accelerator


class BusyLock:
    """The collector's lock, refused ``refusals`` times; before each refusal its holder does ``work``."""

    def __init__(self, lock: Any, refusals: int, work: Callable[[], None]) -> None:
        self._lock = lock
        self._refusals = refusals
        self._work = work

    def acquire(self, timeout: float = -1) -> bool:
        if self._refusals:
            self._refusals -= 1
            self._work()
            return False
        taken: bool = self._lock.acquire(timeout=timeout)
        return taken

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def pretend_busy(collector: Collector, refusals: int, *, gets_on: bool) -> None:
    def work() -> None:
        collector._pace += gets_on

    collector._lock = BusyLock(collector._lock, refusals, work)  # type: ignore[assignment]


def test_detaching_waits_for_a_collector_that_is_slow_but_gets_on() -> None:
    """Three threads that compute leave it the GIL only now and then."""
    probe = Probe()
    kept = keep(probe)
    collector = probe._collector
    pretend_busy(collector, 4, gets_on=True)
    probe.detach()
    assert [frame.reason for frame in kept.frames if isinstance(frame, End)] == ["detached"]


def test_a_collector_that_gets_nowhere_is_given_up_and_the_loss_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    probe = Probe()
    kept = keep(probe)
    pretend_busy(probe._collector, 1, gets_on=False)
    with caplog.at_level(logging.WARNING, logger="mcp_probe"):
        probe.detach()
    assert not any(isinstance(frame, End) for frame in kept.frames)
    assert [record.message for record in caplog.records] == [
        "mcp_probe: what was seen last is lost: the collector's thread hangs, or got no CPU to end"
    ]


def test_a_batch_of_frames_does_not_look_for_packages_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a handful of system calls, and each of those a turn in the queue for the GIL."""
    probe = Probe()
    kept = keep(probe)

    async def work() -> None:
        pass

    async def call_and_look() -> None:
        await probe.profile(work)()
        probe.snapshot()

    looks: list[str] = []
    try:
        anyio.run(call_and_look)
        monkeypatch.setattr(metadata, "version", looks.append)
        monkeypatch.setattr(util, "find_spec", looks.append)
        anyio.run(call_and_look)
    finally:
        probe.detach()
    assert len(kept.requests(work.__qualname__, kind="function")) == 2
    assert looks == []
    assert header._version_of("mcp") == kept.header().sdk_version


def test_whoever_closes_a_transport_does_not_wait_for_a_collector_that_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise LookupError("ours")

    monkeypatch.setattr("mcp_probe.capture.drain.Drain.calibrate", fails)
    probe = Probe()
    collector = probe._collector
    assert collector._thread is not None
    collector._thread.join(100)
    collector.flush()
    assert not collector._flushes, "it would have waited in vain, on the loop's thread"
    probe.detach()


def adding_server() -> MCPServer:
    server = MCPServer("sums", log_level="ERROR")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    return server


@needs_the_accelerator
async def test_a_listener_hears_the_records_of_what_is_summed_up_and_it_counts_once() -> None:
    server = adding_server()
    probe = mcp_probe.attach(server)
    hearing = Listening()
    probe.add_listener(hearing)
    assert probe.fold is not None
    folded: list[Frame] = []
    add_all = probe.fold.add_all

    def noted(frames: Iterable[Frame]) -> None:
        batch = list(frames)
        folded.extend(batch)
        add_all(batch)

    probe.fold.add_all = noted  # type: ignore[method-assign]
    try:
        async with Client(InMemoryTransport(server)) as client:
            for number in range(20):
                await client.call_tool("add", {"a": 1, "b": 2} if number % 5 else {"a": "x"})
            row = next(row for row in probe.snapshot().operations if row.name == "add")
    finally:
        probe.detach()
    heard = [frame for frame in hearing.heard if isinstance(frame, RequestRecord) and frame.name == "add"]
    assert (row.count, row.errors) == (20, 4)
    assert sorted(record.outcome for record in heard) == ["ok"] * 16 + ["tool_error"] * 4
    assert isinstance(hearing.heard[0], Header)
    of_tool = [frame.outcome for frame in folded if isinstance(frame, RequestRecord) and frame.name == "add"]
    assert of_tool.count("tool_error") == 4
    # What says no more than its sum is not folded once more; a busy machine may make more of them say more.
    assert len(of_tool) < 20
    assert any(isinstance(frame, Header) for frame in folded)


@needs_the_accelerator
async def test_plain_requests_are_summed_up_and_have_records_only_where_somebody_wants_them() -> None:
    server = adding_server()
    probe = mcp_probe.attach(server)
    summed, told = [0], [0]
    sum_up = probe.sum_up

    def counted(batch: list[RawRequest]) -> tuple[list[RawRequest], list[RawRequest]]:
        telling, others = sum_up(batch)
        summed.append(len(batch) - len(telling))
        told.append(len(others))
        return telling, others

    probe.sum_up = counted  # type: ignore[method-assign]
    try:
        async with Client(InMemoryTransport(server)) as client:
            for _ in range(20):
                await client.call_tool("add", {"a": 1, "b": 2})
            row = next(row for row in probe.snapshot().operations if row.name == "add")
            assert (row.count, row.memory.measured, row.steps.mean > 0) == (20, 20, True)
            assert row.total_ms.p50 is not None and row.budget_ms.busy is not None and row.request_bytes_max is None
            assert (sum(summed) >= 20, sum(told)) == (True, 0)
            kept, before = keep(probe), sum(summed)
            await client.call_tool("add", {"a": 1, "b": 2})
            row = next(row for row in probe.snapshot().operations if row.name == "add")
            assert row.count == 21
            assert len(kept.requests("add")) == 1
            assert (sum(summed) - before, sum(told)) == (0, 0)
    finally:
        probe.detach()


@pytest.mark.parametrize(
    ("is_read", "pauses"),
    [(False, [DRAIN_S, DRAIN_S, BUSY_DRAIN_S]), (True, [BUSY_DRAIN_S, SOON_DRAIN_S, SOON_DRAIN_S])],
    ids=["nobody reads along", "a recording"],
)
def test_the_collector_sleeps_longer_where_nothing_hurries_it(is_read: bool, pauses: list[float]) -> None:
    probe = Probe()
    if is_read:
        keep(probe)
    found = []
    try:
        for taken in (0, BUSY, BUSY + 1):
            probe._collector._taken = taken
            found.append(probe._collector._pause_s())
    finally:
        probe.detach()
    assert found == pauses


async def test_what_a_drain_has_taken_is_counted() -> None:
    server = adding_server()
    probe = mcp_probe.attach(server)
    try:
        async with Client(InMemoryTransport(server)) as client:
            for _ in range(5):
                await client.call_tool("add", {"a": 1, "b": 2})
            probe.snapshot()
            assert probe._collector._taken >= 4  # the last may not be written yet
            probe.snapshot()
            assert probe._collector._taken <= 1
    finally:
        probe.detach()


@pytest.mark.parametrize("woken", [True, False], ids=["woken", "left alone"])
async def test_a_queue_that_fills_wakes_the_collector_before_it_is_full(
    monkeypatch: pytest.MonkeyPatch, woken: bool
) -> None:
    monkeypatch.setattr(session, "BUFFER", 64)
    for pause in ("DRAIN_S", "BUSY_DRAIN_S"):
        monkeypatch.setattr(collector, pause, 3600.0)
    if not woken:
        monkeypatch.setattr(Collector, "wake", lambda self: None)
    server = adding_server()
    probe = mcp_probe.attach(server)
    try:
        async with Client(InMemoryTransport(server)) as client:
            for _ in range(160):
                await client.call_tool("add", {"a": 1, "b": 2})
                with anyio.fail_after(20):
                    while woken and probe.backlog() >= 32:
                        await anyio.sleep(0.001)
        lost = probe.dropped().get("buffer full", 0)
        assert lost == 0 if woken else lost >= 96
    finally:
        monkeypatch.undo()
        probe.detach()
