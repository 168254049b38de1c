"""The thread that delivers, and what it may cost those who wait for it."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator

import pytest

from mcp_probe.export.export_worker import ExportWorker

LONG_S = 60.0
MARK: contextvars.ContextVar[str] = contextvars.ContextVar("MARK", default="none")


class Deliveries:
    """What a worker was made to do; each delivery waits while ``gate`` is closed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.calls: list[str] = []
        self.well = True
        self.begun = threading.Semaphore(0)
        self.released = threading.Event()

    def deliver(self, last: bool) -> bool:
        self.begun.release()
        self.gate.wait(LONG_S)
        self.calls.append("last" if last else MARK.get())
        return self.well

    def release(self) -> None:
        self.released.set()


@pytest.fixture
def work() -> Iterator[Deliveries]:
    made = Deliveries()
    yield made
    made.gate.set()


def worker(work: Deliveries, interval_s: float = LONG_S) -> ExportWorker:
    return ExportWorker("test-worker", interval_s, work.deliver, work.release)


def test_it_delivers_when_its_interval_has_passed(work: Deliveries) -> None:
    made = worker(work, 0.001)
    assert work.begun.acquire(timeout=LONG_S) and work.begun.acquire(timeout=LONG_S)
    assert made.close(LONG_S)


def test_flush_waits_for_a_delivery_that_began_after_it_was_called(work: Deliveries) -> None:
    made = worker(work)
    work.gate.clear()
    made.wake()
    assert work.begun.acquire(timeout=LONG_S)  # this one is too early to count
    assert not made.flush(0.0)
    work.gate.set()
    assert made.flush(LONG_S)
    assert len(work.calls) >= 2
    assert made.close(LONG_S)


def test_after_a_failure_it_is_not_woken_but_still_flushed_and_closed(
    work: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_probe.export.export_worker.FIRST_PAUSE_S", LONG_S)
    made = worker(work, 0.001)
    work.well = False
    assert made.flush(LONG_S)
    before = len(work.calls)
    made.wake()
    assert made.flush(LONG_S)
    assert len(work.calls) == before + 1  # the one that was flushed; neither the interval nor being woken counted
    work.well = True
    assert made.flush(LONG_S)
    made.wake()
    assert work.begun.acquire(timeout=LONG_S)
    assert made.close(LONG_S)


def test_closing_delivers_a_last_time_and_then_releases(work: Deliveries) -> None:
    made = worker(work)
    assert made.close(LONG_S)
    assert work.calls == ["last"]
    assert work.released.is_set()
    assert not made.flush(0.0)


def test_a_delivery_that_hangs_holds_up_nobody_and_still_releases_when_it_returns(work: Deliveries) -> None:
    made = worker(work)
    work.gate.clear()
    made.wake()
    assert work.begun.acquire(timeout=LONG_S)
    assert not made.close(0.0)
    assert not work.released.is_set()
    work.gate.set()
    assert work.released.wait(LONG_S)
    assert work.calls[-1] == "last"


def test_its_thread_belongs_to_no_request(work: Deliveries) -> None:
    token = MARK.set("a request")
    try:
        made = worker(work)
    finally:
        MARK.reset(token)
    assert made.flush(LONG_S)
    assert work.calls == ["none"]
    assert made.close(LONG_S)
