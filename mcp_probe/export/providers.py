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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opentelemetry import metrics, trace

from mcp_probe.export.exporters import TelemetrySettings, disabled
from mcp_probe.export.metrics import MetricExport
from mcp_probe.export.phase_spans import SpanExport
from mcp_probe.export.server_spans import ServerSpans
from mcp_probe.model import Delivery, Frame, Header, RequestGroup, RequestRecord
from mcp_probe.record.listeners import Listeners

if TYPE_CHECKING:
    from mcp_probe.export.pipeline import Pipeline

logger = logging.getLogger("mcp_probe")

_lock = threading.RLock()
_exports: Exports | None = None
_pipeline: Pipeline | None = None


def join(user: object, settings: TelemetrySettings, server: str | None) -> Exports:
    """The exports of this process, with ``user`` (a probe's telemetry) among those who feed them.

    Raises: OptionError, MissingExtraError.
    """
    global _exports
    with _lock:
        if settings.otlp and not disabled():
            _open_pipeline(settings, server)
        if _exports is None:
            _exports = Exports(settings)
        _exports.users.append(user)
        return _exports


def tracing_for(settings: TelemetrySettings) -> ServerSpans:
    """How requests are traced on the loop: with the global tracer provider of the moment."""
    return ServerSpans(opens=settings.exports, capture_content=settings.capture_content, redact=settings.redact)


def application_tracer_provider() -> trace.TracerProvider | None:
    """The global tracer provider, if one has been set and it does anything."""
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider


def application_meter_provider() -> metrics.MeterProvider | None:
    """The global meter provider, if one has been set and it does anything."""
    provider = metrics.get_meter_provider()
    # The stand-in that the API gives until one is set has no public name; no provider of the API's own does anything.
    stand_in = isinstance(provider, metrics.NoOpMeterProvider) or type(provider).__module__.startswith(metrics.__name__)
    return None if stand_in else provider


def span_export(
    provider: trace.TracerProvider,
    settings: TelemetrySettings,
    give_ids: Callable[[RequestRecord | None], None] | None = None,
) -> SpanExport:
    """What makes spans of frames with ``provider``."""
    return SpanExport(
        provider,
        slow_step_ms=settings.slow_step_ms,
        slow_request_ms=settings.slow_request_ms,
        detail=settings.detail,
        give_ids=give_ids,
    )


def metric_export(
    provider: metrics.MeterProvider, settings: TelemetrySettings, pipeline: Pipeline | None
) -> MetricExport:
    """What makes metrics of frames with ``provider``, which may be that of ``pipeline``."""
    ours = pipeline.histograms if pipeline is not None and pipeline.meter_provider is provider else ()
    return MetricExport(provider, histograms=ours, replay=settings.replay_histograms, await_hosts=settings.await_hosts)


def _open_pipeline(settings: TelemetrySettings, server: str | None) -> None:
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
        if _pipeline.tracer_provider is not None:
            trace.set_tracer_provider(_pipeline.tracer_provider)
        if _pipeline.meter_provider is not None:
            metrics.set_meter_provider(_pipeline.meter_provider)
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

    def __init__(self, settings: TelemetrySettings) -> None:
        self.users: list[object] = []
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
                self._listeners.add(span_export(tracer_provider, self._settings))
            if not self._metrics and meter_provider is not None:
                self._metrics = True
                self._listeners.add(metric_export(meter_provider, self._settings, _pipeline))

    def take(self, user: object, frames: Sequence[Frame], header: Header | None) -> None:
        """Export ``frames``; of all probes but the first only what the first does not see, its requests."""
        if user is not self.users[0]:
            frames = [frame for frame in frames if isinstance(frame, (RequestRecord, RequestGroup))]
        elif self._listeners.header is None and header is not None and header not in frames:
            frames = [header, *frames]
        if frames:
            self._listeners.take(frames)

    def flush_soon(self) -> None:
        """Deliver what there is; does not block."""
        if _pipeline is not None:
            _pipeline.flush_soon()

    def flush(self, timeout_s: float) -> None:
        """Deliver what there is, within ``timeout_s``."""
        if _pipeline is not None:
            _pipeline.flush(timeout_s)

    def leave(self, user: object, timeout_s: float) -> None:
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
