"""Providers of our own with exporters behind them, for signals for which the application has set none.

Invariants: what closing takes is bounded by the caller, whatever a backend does; a provider that has become the
process's global one stays it (OpenTelemetry lets nobody replace it), takes nothing while no probe is attached, and
serves the next probe again.
"""

from __future__ import annotations

import os
import time
import uuid
import weakref
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from mcp_probe import __version__
from mcp_probe.export.batch_span_queue import BatchSpanQueue
from mcp_probe.export.delivery import OVERHEARD, Once, Tally
from mcp_probe.export.exporters import routes
from mcp_probe.export.histogram_set import HistogramSet
from mcp_probe.export.metric_push import MetricPush
from mcp_probe.model import Delivery, RequestRecord


def resource_of(server: str | None, about: Mapping[str, str | int]) -> Resource:
    """Who is profiled: ``about`` and our own name, then what ``OTEL_RESOURCE_ATTRIBUTES`` and the detectors say.

    ``service.name`` is ``OTEL_SERVICE_NAME`` where given, else the name of the server. ``service.instance.id`` is
    new for each process: without it the counters of two workers would be one series that jumps.
    """
    found = Resource.create()
    ours: dict[str, Any] = {
        **about,
        "service.instance.id": str(uuid.uuid4()),
        "telemetry.distro.name": "mcp-probe-profiler",
        "telemetry.distro.version": __version__,
    }
    named = dict(found.attributes)
    if server and str(named.get("service.name", "unknown_service")).startswith("unknown_service"):
        named["service.name"] = server
    return Resource({**ours, **named}, found.schema_url)


class GivenIds(RandomIdGenerator):
    """Ids for spans, that can be told what to say next. For a provider that one thread at a time makes spans with."""

    def __init__(self) -> None:
        self._record: RequestRecord | None = None

    def give(self, record: RequestRecord | None) -> None:
        """The next span is the SERVER span of ``record``; with ``None``, none that is known."""
        self._record = record

    def generate_span_id(self) -> int:
        """See ``IdGenerator``."""
        return super().generate_span_id() if self._record is None else int(self._record.span_id or "0", 16)

    def generate_trace_id(self) -> int:
        """See ``IdGenerator``."""
        return super().generate_trace_id() if self._record is None else int(self._record.trace_id or "0", 16)


class Pipeline:
    """The signals of one resource that go out through exporters of ours. Not thread-safe; closed at first.

    Args:
        traces: whether spans are ours to export; the application may have a provider of its own.
        metrics: likewise.

    Raises: OptionError, MissingExtraError as :func:`routes` does.
    """

    def __init__(
        self, resource: Resource, otlp: bool | str, exit_s: float, *, traces: bool = True, metrics: bool = True
    ) -> None:
        say = Once()
        self.ids = GivenIds()
        self.tracer_provider: TracerProvider | None = None
        self.meter_provider: MeterProvider | None = None
        self._ways: list[BatchSpanQueue | MetricPush] = []
        if traces:
            provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self.ids)
            for route in routes("traces", otlp):
                queue = BatchSpanQueue(route.make, Tally("spans", route.destination, say), exit_s)
                provider.add_span_processor(queue)
                self._ways.append(queue)
            self.tracer_provider = provider
        if metrics:
            readers: list[MetricReader] = []
            for route in routes("metrics", otlp):
                if route.pulled:
                    readers.append(route.make())
                    continue
                push = MetricPush(route.make, Tally("metric exports", route.destination, say), resource, exit_s)
                readers.append(push)
                self._ways.append(push)
            self.meter_provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        if hasattr(os, "register_at_fork"):
            this = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forget(this))

    @property
    def histograms(self) -> list[HistogramSet]:
        """For :class:`MetricExport`: each push sends one of them as exponential histograms."""
        return [way.histograms for way in self._ways if isinstance(way, MetricPush)]

    def open(self) -> None:
        """Start the threads that deliver."""
        for way in self._ways:
            way.open()

    def flush_soon(self) -> None:
        """Deliver what there is; does not block."""
        for way in self._ways:
            way.flush_soon()

    def flush(self, timeout_s: float) -> None:
        """Deliver what there is, within ``timeout_s``, all signals at once; what has no answer by then is said."""
        deadline = time.monotonic() + timeout_s
        for way, wait in [(way, way.begin_flush()) for way in self._ways]:
            if not wait(max(0.0, deadline - time.monotonic())):
                way.say_unanswered()

    def ask_to_close(self) -> None:
        """Begin the last delivery of every signal, without waiting for any."""
        for way in self._ways:
            way.ask_to_close()

    def close(self, timeout_s: float) -> None:
        """Deliver what is left within ``timeout_s``, all signals at once; what is not is counted as undelivered."""
        deadline = time.monotonic() + timeout_s
        self.ask_to_close()
        for way in self._ways:
            way.close(max(0.0, deadline - time.monotonic()))

    def deliveries(self) -> tuple[Delivery, ...]:
        """What each signal has delivered and lost so far."""
        return tuple(way.delivery() for way in self._ways)

    def forget(self) -> None:
        """This is a forked child."""
        OVERHEARD.forget()
        for way in self._ways:
            if isinstance(way, BatchSpanQueue):
                way.forget(self.open)
            else:
                way.forget()


def _forget(reference: weakref.ref[Pipeline]) -> None:
    pipeline = reference()
    if pipeline is not None:
        pipeline.forget()
