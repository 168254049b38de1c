"""Spans on their way out: what the server feels of it, and what is counted."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import Tracer

from mcp_probe.export.batch_span_queue import BatchSpanQueue
from mcp_probe.export.delivery import Once, Tally
from mcp_probe.export.exporters import number_from_environment
from mcp_probe.model import Delivery
from tests.export.gated import LONG_S, Gate, GatedSpans


class Sending:
    """A tracer whose spans go through a queue to a gated exporter."""

    def __init__(self, gate: Gate, sampler: object = None) -> None:
        self.exporter = GatedSpans(gate)
        self.queue = BatchSpanQueue(lambda: self.exporter, Tally("spans", "http://there", Once()), exit_s=LONG_S)
        self.provider = TracerProvider(shutdown_on_exit=False, sampler=sampler)  # type: ignore[arg-type]
        self.provider.add_span_processor(self.queue)
        self.tracer: Tracer = self.provider.get_tracer("test")
        self.queue.open()

    def spans(self, *names: str) -> None:
        for name in names:
            self.tracer.start_span(name).end()

    def counts(self) -> tuple[int, int]:
        found = self.queue.delivery()
        return found.delivered, found.undelivered


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


@pytest.fixture(autouse=True)
def small_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")


def test_a_full_batch_goes_out_without_waiting_for_the_schedule(gate: Gate) -> None:
    sending = Sending(gate)
    sending.spans("a", "b")
    assert gate.entered.acquire(timeout=LONG_S)
    sending.queue.close(LONG_S)
    assert sending.exporter.taken == ["a", "b"]
    assert gate.shut.is_set()


def test_shutting_the_provider_down_delivers_what_is_queued(gate: Gate) -> None:
    sending = Sending(gate)
    sending.spans("a")
    sending.provider.shutdown()
    assert sending.exporter.taken == ["a"]
    assert sending.queue.delivery() == Delivery("spans", "http://there", 1, 0, None)


def test_force_flush_delivers_what_is_queued(gate: Gate) -> None:
    sending = Sending(gate)
    sending.spans("a")
    assert sending.provider.force_flush(60_000)
    assert sending.exporter.taken == ["a"]
    sending.queue.close(LONG_S)


def test_a_backend_that_hangs_neither_blocks_nor_logs_where_spans_end(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    sending = Sending(gate)
    gate.open.clear()
    sending.spans("a", "b")
    assert gate.entered.acquire(timeout=LONG_S)
    with caplog.at_level(logging.DEBUG):
        sending.spans(*"cdefgh")  # two in flight, four queued, two over
    assert caplog.records == []
    assert sending.counts() == (0, 2)
    assert "queue was full" in (sending.queue.delivery().reason or "")
    gate.open.set()
    sending.queue.close(LONG_S)
    assert sending.exporter.taken == list("abcdef")
    assert sending.counts() == (6, 2)


def test_a_last_delivery_that_is_not_answered_in_time_is_counted_and_not_counted_twice(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    sending = Sending(gate)
    gate.open.clear()
    sending.spans("a", "b")
    assert gate.entered.acquire(timeout=LONG_S)
    sending.spans("c")
    sending.queue.close(0.0)
    assert sending.counts() == (0, 3)
    assert "no answer" in (sending.queue.delivery().reason or "")
    gate.open.set()
    assert gate.shut.wait(LONG_S)
    assert sending.counts() == (0, 3)


def test_refusals_are_counted_with_the_first_reason_and_said_once(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    sending = Sending(gate)
    gate.answer = "400: told to refuse"
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            sending.spans("a")
            sending.queue.force_flush(60_000)
        sending.queue.close(LONG_S)
    assert sending.queue.delivery() == Delivery("spans", "http://there", 0, 3, "400: told to refuse")
    (said,) = caplog.records
    assert (said.name, said.levelname) == ("mcp_probe", "WARNING")
    assert "http://there" in said.getMessage() and "400: told to refuse" in said.getMessage()


def test_an_exporter_that_raises_does_not_end_the_thread(gate: Gate) -> None:
    sending = Sending(gate)
    gate.fault = ValueError("broken")
    sending.spans("a")
    sending.queue.force_flush(60_000)
    gate.fault = None
    sending.spans("b")
    sending.queue.close(LONG_S)
    assert sending.exporter.taken == ["b"]
    assert sending.queue.delivery() == Delivery("spans", "http://there", 1, 1, "ValueError: broken")


def test_at_the_end_one_failed_attempt_is_enough(gate: Gate) -> None:
    sending = Sending(gate)
    gate.open.clear()
    sending.spans("a", "b")
    assert gate.entered.acquire(timeout=LONG_S)
    sending.spans(*"cdef")
    gate.answer = "down"
    sending.queue.ask_to_close()
    gate.open.set()
    sending.queue.close(LONG_S)
    assert sending.counts() == (0, 6)
    assert len(gate.suppressed) <= 3  # not one for each batch


def test_spans_that_are_not_sampled_or_come_too_late_are_not_taken(gate: Gate) -> None:
    unsampled = Sending(gate, ALWAYS_OFF)
    unsampled.spans("a")
    unsampled.queue.close(LONG_S)
    late = Sending(gate)
    late.queue.close(LONG_S)
    late.spans("b")
    assert unsampled.exporter.taken == late.exporter.taken == []
    assert late.counts() == (0, 0)


def test_an_outbox_can_be_opened_again(gate: Gate) -> None:
    sending = Sending(gate)
    sending.spans("a")
    sending.queue.close(LONG_S)
    sending.queue.open()
    sending.spans("b")
    sending.queue.close(LONG_S)
    assert sending.exporter.taken == ["a", "b"]


def test_what_the_exporter_sends_makes_no_spans_of_its_own(gate: Gate) -> None:
    sending = Sending(gate)
    sending.spans("a")
    sending.queue.close(LONG_S)
    assert gate.suppressed == [True]


@pytest.mark.parametrize(("text", "value"), [("", 7.0), ("2.5", 2.5), ("soon", 7.0), ("-1", 7.0)])
def test_numbers_of_the_environment_that_make_no_sense_are_the_default(
    text: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", text)
    assert number_from_environment("OTEL_BSP_SCHEDULE_DELAY", 7.0, 1.0) == value
