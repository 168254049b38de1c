"""Sends spans to a backend: a bounded queue in the server, and a worker thread that empties it.

The SDK's own batch processor would do, but for three things: it logs a line, on the thread that ended the span, for
each span it drops; its shutdown waits for as long as an exporter retries; and it does not count what is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mcp_probe.export.delivery import AT_EXIT, OVERHEARD, Tally
from mcp_probe.export.export_worker import Line, Sender, suppress_instrumentation
from mcp_probe.export.exporters import number_from_environment
from mcp_probe.export.rejections import hear_grpc
from mcp_probe.model import Delivery

_QUEUE_FULL = "the queue was full: the backend takes spans more slowly than the server makes them"


class BatchSpanQueue(Sender, SpanProcessor):
    """Hands ended spans to the exporter in batches; never blocks the thread that ends them, and never logs on it.

    Queue, batch and delay are those of ``OTEL_BSP_*``. ``open`` and ``close`` may follow each other; in between
    spans are not taken.

    Args:
        make_exporter: called on the worker's thread, and again after a fork. Where it raises the spans are lost.
        exit_s: what ``shutdown`` may take.
    """

    def __init__(self, make_exporter: Callable[[], SpanExporter], tally: Tally, exit_s: float) -> None:
        self._make_exporter = make_exporter
        self._tally = tally
        self._exit_s = exit_s
        self._limit = int(number_from_environment("OTEL_BSP_MAX_QUEUE_SIZE", 2048, 1))
        self._batch = min(int(number_from_environment("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, 1)), self._limit)
        self._delay_s = number_from_environment("OTEL_BSP_SCHEDULE_DELAY", 5000, 1) / 1e3
        self._line: _Line | None = None
        self._after_fork: Callable[[], None] | None = None

    def open(self) -> None:
        """Take spans from now on."""
        if self._line is None:
            self._line = _Line(self._make_exporter, self._tally, self._batch, self._delay_s)

    # --- what the SDK calls, on any thread ---

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing happens at a span's start."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue ``span``, or count it where the queue is full."""
        context = span.context
        if context is None or not context.trace_flags.sampled:
            return
        if self._after_fork is not None:
            wake, self._after_fork = self._after_fork, None
            try:
                wake()
            except Exception:  # noqa: BLE001 - this thread is the server's
                self._tally.overflowed()
                return
        line = self._line
        if line is None:
            return
        waiting = len(line.queue)
        if waiting >= self._limit:
            self._tally.overflowed()
            return
        line.queue.append(span)
        if waiting + 1 == self._batch:
            line.worker.wake()

    def shutdown(self) -> None:
        """Deliver what is queued, within ``exit_s``; spans that end later are not taken."""
        self.close(self._exit_s)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Whether everything queued was attempted within ``timeout_millis``. Blocks."""
        return self._flush(timeout_millis / 1e3)

    # --- what the pipeline calls, besides what every sender has ---

    def delivery(self) -> Delivery:
        """What was delivered and what was not, so far."""
        return self._tally.value(_QUEUE_FULL)

    def forget(self, wake: Callable[[], None]) -> None:
        """This is a forked child: what is queued is the parent's. ``wake`` is called with the first span of its own."""
        if self._line is not None:
            self._after_fork = wake
        self._line = None
        self._tally.forget()


class _Line(Line):
    """A queue, and an exporter that is made on the worker's thread."""

    def __init__(self, make_exporter: Callable[[], SpanExporter], tally: Tally, batch: int, delay_s: float) -> None:
        self.queue: deque[ReadableSpan] = deque()
        self._make_exporter = make_exporter
        self._exporter: SpanExporter | None = None
        self._batch = batch
        super().__init__("mcp-probe-spans", tally, delay_s)

    def _unanswered(self) -> int:
        return self._in_flight + len(self.queue)

    def _deliver(self, last: bool) -> bool:
        went_well = True
        with suppress_instrumentation():
            while went_well and self.queue and not self._given_up:
                batch = [self.queue.popleft() for _ in range(min(self._batch, len(self.queue)))]
                self._in_flight = len(batch)
                went_well = self._settle(self._export(batch))
        if last and not self._given_up:
            self._in_flight = len(self.queue)
            self.queue.clear()
            self._settle(AT_EXIT)
        return went_well

    def _export(self, batch: list[ReadableSpan]) -> str | None:
        """Why ``batch`` could not be delivered, or ``None``."""
        try:
            if self._exporter is None:
                self._exporter = self._make_exporter()
                OVERHEARD.listen()
            hear_grpc(self._exporter)
            result = self._exporter.export(batch)
        except Exception as exc:  # noqa: BLE001 - an exporter's fault is counted; it must not end the thread
            return f"{type(exc).__name__}: {exc}"
        reason = OVERHEARD.take_reason()
        return None if result is SpanExportResult.SUCCESS else reason or "the exporter did not say why"
