"""What this process exports: one span export and one metric export, however many probes are attached.

A signal goes through the application's global provider where it has set one, else, with ``otlp``, through exporters of
ours. Ours then become the global providers, so that the SDK's own server span and what the handlers trace goes the
same way. The frames of loops, executors and the process reach every probe; only the first one's are exported.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from opentelemetry import metrics, trace

from mcp_probe.export.lots import TakesLots, lots_of
from mcp_probe.export.server_spans import ServerSpans
from mcp_probe.model import Delivery, Frame, Header, RequestRecord
from mcp_probe.record.listeners import Listeners
from mcp_probe.record.raw import Measured, RawRequest

if TYPE_CHECKING:
    from mcp_probe.export.auto import Settings, Telemetry
    from mcp_probe.export.pipeline import Pipeline

logger = logging.getLogger("mcp_probe")

_lock = threading.RLock()
_exports: Exports | None = None
_pipeline: Pipeline | None = None


def join(user: Telemetry, settings: Settings, server: str | None) -> Exports:
    """The exports of this process with ``user`` among those who feed it. Raises: OptionError, MissingExtraError."""
    global _exports
    with _lock:
        if settings.otlp and not disabled():
            _open_pipeline(settings, server)
        if _exports is None:
            _exports = Exports(settings)
        _exports.users.append(user)
        return _exports


def tracing_for(settings: Settings) -> ServerSpans:
    """How requests are traced on the loop: with the global tracer provider of the moment."""
    return ServerSpans(opens=settings.exports, capture_content=settings.capture_content, redact=settings.redact)


def disabled() -> bool:
    """Whether ``OTEL_SDK_DISABLED`` switches telemetry off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def application_tracer_provider() -> trace.TracerProvider | None:
    """The global tracer provider, if one has been set and it does anything."""
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider


def application_meter_provider() -> metrics.MeterProvider | None:
    """The global meter provider, if one has been set and it does anything."""
    provider = metrics.get_meter_provider()
    # The proxy that stands in until one is set has no public name.
    proxy = type(provider).__name__ == "_ProxyMeterProvider"
    return None if proxy or isinstance(provider, metrics.NoOpMeterProvider) else provider


def _open_pipeline(settings: Settings, server: str | None) -> None:
    """Our exporters for what the application has not set up; the first probe's destination stays the process's."""
    global _pipeline
    if _pipeline is None:
        traces, meters = application_tracer_provider() is None, application_meter_provider() is None
        if not traces or not meters:
            _say_whose(traces, meters)
        if not traces and not meters:
            return
        from mcp_probe.export.pipeline import Pipeline, resource_of

        resource = resource_of(server, about_this_process())
        _pipeline = Pipeline(resource, settings.otlp, settings.exit_s, traces=traces, metrics=meters)
        if _pipeline.spans is not None:
            trace.set_tracer_provider(_pipeline.spans.provider)
        if _pipeline.metrics is not None:
            metrics.set_meter_provider(_pipeline.metrics.provider)
    _pipeline.open()


def about_this_process() -> dict[str, str | int]:
    """Resource attributes of the process that runs this."""
    return {
        "host.name": platform.node(),
        "process.pid": os.getpid(),
        "process.runtime.name": sys.implementation.name,
        "process.runtime.version": platform.python_version(),
    }


def _say_whose(traces: bool, meters: bool) -> None:
    signals = " and ".join(name for name, ours in (("spans", traces), ("metrics", meters)) if not ours)
    logger.info("mcp_probe: %s go through the application's own OpenTelemetry provider, not where otlp says", signals)


class Exports:
    """Where the frames of every probe of this process go. Frames come on one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        self.users: list[Telemetry] = []
        self._settings = settings
        self._spans = self._metrics = False
        self._listeners = Listeners(self._fault)
        self._failed = False

    @property
    def ways(self) -> int:
        """How many signals have somewhere to go."""
        return self._spans + self._metrics

    def look(self) -> None:
        """Export what has got a provider since the last look."""
        if self.ways == 2:
            return
        tracer_provider = None if self._spans else application_tracer_provider()
        meter_provider = None if self._metrics else application_meter_provider()
        if (tracer_provider is None and meter_provider is None) or disabled():
            return
        with _lock:
            if not self._spans and tracer_provider is not None:
                self._spans = True
                self._export_spans(tracer_provider)
            if not self._metrics and meter_provider is not None:
                self._metrics = True
                self._export_metrics(meter_provider)

    def _export_spans(self, provider: trace.TracerProvider) -> None:
        from mcp_probe.export.spans import SpanExport

        given = self._settings
        self._listeners.add(
            SpanExport(
                provider,
                slow_step_ms=given.slow_step_ms,
                slow_request_ms=given.slow_request_ms,
                detail=given.detail,
            )
        )

    def _export_metrics(self, provider: metrics.MeterProvider) -> None:
        from mcp_probe.export.metrics import MetricExport

        ours = _pipeline.metrics if _pipeline is not None else None
        books = ours.books if ours is not None and ours.provider is provider else ()
        self._listeners.add(MetricExport(provider, books=books, replay=self._settings.replay_histograms))

    def take(self, user: Telemetry, frames: Sequence[Frame], header: Header | None) -> None:
        """Export ``frames``; of all probes but the first only what the first does not see, its requests."""
        if user is not self.users[0]:
            frames = [frame for frame in frames if isinstance(frame, RequestRecord)]
        elif self._listeners.header is None and header is not None and header not in frames:
            frames = [header, *frames]
        if frames:
            self._listeners.take(frames)

    def take_plain(self, batch: list[RawRequest], measured: Measured) -> list[RawRequest]:
        """Export plain requests that have ended; returns those that must come as records instead."""
        exporters = self._listeners.hearing
        if not exporters:
            return batch
        takers = [one for one in exporters if isinstance(one, TakesLots)]
        if len(takers) < len(exporters):
            return batch
        rest, lots = lots_of(batch, min(one.record_from_ns for one in takers), measured)
        if lots:
            for one in takers:
                self._listeners.tell(one, partial(one.take_lots, lots))
        return rest

    def flush_soon(self) -> None:
        """Deliver what there is; does not block."""
        if _pipeline is not None:
            _pipeline.flush_soon()

    def flush(self, timeout_s: float) -> None:
        """Deliver what there is, within ``timeout_s``."""
        if _pipeline is not None:
            _pipeline.flush(timeout_s)

    def leave(self, user: Telemetry, timeout_s: float) -> None:
        """``user`` has no more frames. The last one's leaving delivers what is left, within ``timeout_s``."""
        global _exports
        deadline = time.monotonic() + timeout_s
        with _lock:
            if user in self.users:
                self.users.remove(user)
            if self.users:
                return
            if _exports is self:
                _exports = None
            self._listeners.close(max(0.0, deadline - time.monotonic()))
            if _pipeline is not None:
                _pipeline.close(max(0.0, deadline - time.monotonic()))

    def deliveries(self) -> tuple[Delivery, ...]:
        """What went out through exporters of ours."""
        return _pipeline.deliveries() if _pipeline is not None else ()

    def _fault(self, exc: Exception) -> None:
        if not self._failed:
            self._failed = True
            logger.warning("mcp_probe: a part of telemetry is switched off", exc_info=exc)


def _forget_parent() -> None:
    """After a fork, in the child: the probes that feed these exports are the parent's."""
    global _exports, _lock
    _exports, _lock = None, threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
