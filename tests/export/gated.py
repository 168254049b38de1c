"""Exporters that answer when and how a test says."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

LONG_S = 60.0
LOGGER = logging.getLogger("opentelemetry.exporter.test")


class Gate:
    """Where an exporter's call waits, and what becomes of it."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Semaphore(0)
        self.answer: str | None = None  # what it logs before it refuses
        self.fault: Exception | None = None
        self.suppressed: list[bool] = []
        self.shut = threading.Event()

    def passed(self) -> bool:
        """Whether the call is taken, once it may be answered."""
        self.suppressed.append(not is_instrumentation_enabled())
        self.entered.release()
        self.open.wait(LONG_S)
        if self.fault is not None:
            raise self.fault
        if self.answer is not None:
            LOGGER.error(self.answer)
        return self.answer is None


class GatedSpans(SpanExporter):
    """Keeps names of what it took."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.taken: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if not self.gate.passed():
            return SpanExportResult.FAILURE
        self.taken += [span.name for span in spans]
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.gate.shut.set()


class GatedMetrics(MetricExporter):
    """Keeps what it took."""

    def __init__(self, gate: Gate, **preferences: Any) -> None:
        super().__init__(**preferences)
        self.gate = gate
        self.taken: list[MetricsData] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **unused: Any) -> MetricExportResult:
        if not self.gate.passed():
            return MetricExportResult.FAILURE
        self.taken.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **unused: Any) -> None:
        self.gate.shut.set()
