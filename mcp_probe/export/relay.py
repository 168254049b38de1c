"""Exports what another process has seen: `mcp-probe run --otlp` exports from outside of the server.

The server's interpreter needs nothing of OpenTelemetry. Its spans keep the ids that its requests had in there, and its
process is the resource, so that a backend sees the server and not us.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mcp_probe.export.delivery import missing_extra
from mcp_probe.model import Delivery, End, Frame, Header
from mcp_probe.record.listeners import Listeners, OnFault

if TYPE_CHECKING:
    from mcp_probe.export.pipeline import Pipeline

SIGNALS: tuple[Literal["traces", "metrics"], ...] = ("traces", "metrics")


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """``otlp`` as in ``attach``: ``True`` for what the environment says, or a URL."""

    otlp: bool | str
    exit_s: float
    slow_step_ms: float = 10.0
    slow_request_ms: float | None = None
    detail: float = 0.0


def ready(settings: RelaySettings) -> bool:
    """Loads the exporters and makes them once, so that what is wrong shows before anything runs.

    ``False`` where ``OTEL_SDK_DISABLED`` says that nothing is to be exported.

    Raises: OptionError, MissingExtraError.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    try:
        from mcp_probe.export.exporters import routes
    except ImportError as exc:
        raise missing_extra(exc) from exc
    for signal in SIGNALS:
        routes(signal, settings.otlp)
    from mcp_probe.export import metrics, pipeline, spans  # noqa: F401

    return True


class Relay:
    """The :class:`mcp_probe.model.FrameListener` of one serving process. Exporters are made when its header comes.

    ``on_fault`` hears why less is exported than there was.
    """

    def __init__(self, settings: RelaySettings, on_fault: OnFault) -> None:
        self._settings = settings
        self._listeners = Listeners(on_fault)
        self._pipeline: Pipeline | None = None

    def take(self, frames: Sequence[Frame]) -> None:
        """Export ``frames``. Raises: what making the exporters raises."""
        if self._pipeline is None:
            header = next((frame for frame in frames if isinstance(frame, Header)), None)
            if header is None:
                return
            self._begin(header)
        self._listeners.take(frames)
        if any(isinstance(frame, End) for frame in frames):
            self.flush_soon()

    def flush_soon(self) -> None:
        """Deliver what there is; does not block."""
        if self._pipeline is not None:
            self._pipeline.flush_soon()

    def ask_to_close(self) -> None:
        """No more frames will come: begin the last delivery, without waiting for it."""
        self._listeners.close(0.0)
        if self._pipeline is not None:
            self._pipeline.ask_to_close()

    def close(self, timeout_s: float) -> None:
        """Deliver what is left within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        self._listeners.close(timeout_s)
        if self._pipeline is not None:
            self._pipeline.close(max(0.0, deadline - time.monotonic()))

    def deliveries(self) -> tuple[Delivery, ...]:
        """What was delivered and what was not, so far."""
        return self._pipeline.deliveries() if self._pipeline is not None else ()

    def _begin(self, header: Header) -> None:
        from mcp_probe.export.metrics import MetricExport
        from mcp_probe.export.pipeline import Pipeline, resource_of
        from mcp_probe.export.spans import SpanExport

        given = self._settings
        self._pipeline = Pipeline(resource_of(header.server, about(header)), given.otlp, given.exit_s)
        if self._pipeline.spans is not None:
            self._listeners.add(
                SpanExport(
                    self._pipeline.spans.provider,
                    slow_step_ms=given.slow_step_ms,
                    slow_request_ms=given.slow_request_ms,
                    detail=given.detail,
                )
            )
        if self._pipeline.metrics is not None:
            self._listeners.add(MetricExport(self._pipeline.metrics.provider, books=self._pipeline.metrics.books))
        self._pipeline.open()


def about(header: Header) -> dict[str, str | int]:
    """Resource attributes of the process that sent ``header``; it runs on this machine."""
    return {
        "host.name": platform.node(),
        "process.pid": header.pid,
        "process.runtime.version": header.python,
    }
