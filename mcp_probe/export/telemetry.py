"""What a probe's frames are exported by: in the server's process, or in the parent of ``mcp-probe run --otlp``.

Nothing of OpenTelemetry is imported here: ``providers`` is, once ``otlp`` asks for it or the application has loaded
OpenTelemetry itself. The server of ``mcp-probe run`` needs nothing of OpenTelemetry: its spans keep the ids that its
requests had in there, and its process is the resource, so that a backend sees the server and not us.
"""

from __future__ import annotations

import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mcp_probe.export.delivery import missing_extra
from mcp_probe.export.exporters import TelemetrySettings, disabled, routes
from mcp_probe.model import Delivery, End, Frame, Header, RequestRecord
from mcp_probe.record.listeners import Listeners, OnFault

if TYPE_CHECKING:
    from mcp_probe.capture.tracing import Tracing
    from mcp_probe.export.pipeline import Pipeline
    from mcp_probe.export.providers import Exports


class Telemetry:
    """The :class:`mcp_probe.model.FrameListener` of one probe. ``take`` and ``close`` on one thread at a time.

    Args:
        trace: told how requests of this process are traced, at once or when the application has loaded OpenTelemetry.
        found: told when there is something to deliver to; whoever delivers at exit must do so before the providers
            shut down, and what registers last at exit is called first.
    """

    def __init__(
        self, settings: TelemetrySettings, *, trace: Callable[[Tracing], None], found: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._trace = trace
        self._found = found
        self._joined = False
        self._joining = threading.Lock()
        self._exports: Exports | None = None
        self._left: Exports | None = None
        self._told = 0
        self._header: Header | None = None
        self._patience_s = settings.exit_s

    def begin(self, server: str | None) -> None:
        """Set up what ``otlp`` asks for, under the name of ``server``; else look for the application's providers.

        Call it before the first request, on the thread that sets the server up. Idempotent.

        Raises: OptionError, MissingExtraError.
        """
        with self._joining:
            if not self._joined and (self._settings.otlp or "opentelemetry" in sys.modules):
                self._join(server)
        self._look()

    def take(self, frames: Sequence[Frame]) -> None:
        """Hand frames to the exports there are."""
        self._join_late()
        ended = False
        for frame in frames:
            if isinstance(frame, Header):
                self._header = frame
            elif isinstance(frame, RequestRecord) and frame.outcome != "unfinished":
                self._patience_s = self._settings.exit_s
            ended = ended or isinstance(frame, End)
        if self._exports is None:
            return
        self._look()
        self._exports.take(self, frames, self._header)
        if ended:
            self._exports.flush_soon()

    def idle(self) -> bool:
        """Whether there is nobody to deliver to at this time, so that a request's record is of no use."""
        if not self._joined and "opentelemetry" in sys.modules:
            return False
        self._look()
        return self._exports is None or not self._exports.ways

    def deliver(self) -> None:
        """The server has shut down, and a signal may end the process before anything at exit runs. Blocks.

        What it takes comes off what closing may take, unless the server turns out to serve on.
        """
        if self._exports is not None and self._settings.otlp:
            since = time.monotonic()
            self._exports.flush(self._patience_s)
            self._patience_s = max(0.0, self._patience_s - (time.monotonic() - since))

    def close(self, timeout_s: float) -> None:
        """Deliver what is left within ``timeout_s``; the last probe of the process closes the exporters."""
        exports, self._exports = self._exports, None
        if exports is not None:
            exports.leave(self, min(timeout_s, self._patience_s))
            self._left = exports
        self._joined = True  # nothing begins any more

    def deliveries(self) -> tuple[Delivery, ...]:
        """What went out through exporters of ours, and what did not; empty where there are none."""
        exports = self._exports or self._left
        return exports.deliveries() if exports is not None else ()

    def _join_late(self) -> None:
        """The application has loaded OpenTelemetry since.

        Exporters of ours are set up by :meth:`begin` alone, which may be at it on another thread: who joins twice would
        have to leave twice, and nothing would go out at exit.
        """
        if self._joined or self._settings.otlp or "opentelemetry" not in sys.modules:
            return
        if self._joining.acquire(blocking=False):
            try:
                if not self._joined:
                    self._join(None)
            finally:
                self._joining.release()

    def _join(self, server: str | None) -> None:
        try:
            from mcp_probe.export.providers import join, tracing_for

            if self._settings.exports:
                self._exports = join(self, self._settings, server)
        except ImportError as exc:
            if not self._settings.otlp:
                return  # half an OpenTelemetry: somebody's namespace package, or one that is being imported right now
            raise missing_extra(exc) from exc
        self._joined = True
        self._trace(tracing_for(self._settings))

    def _look(self) -> None:
        if self._exports is not None:
            self._exports.look()
            if self._exports.ways > self._told:
                self._told = self._exports.ways
                self._found()


# --- in the parent of `mcp-probe run --otlp` -----------------------------------------------------------


def ready(settings: TelemetrySettings) -> bool:
    """Loads the exporters and makes them once, so that what is wrong shows before anything runs.

    ``False`` where ``OTEL_SDK_DISABLED`` says that nothing is to be exported.

    Raises: OptionError, MissingExtraError.
    """
    if disabled():
        return False
    routes("traces", settings.otlp)
    routes("metrics", settings.otlp)
    from mcp_probe.export import pipeline, providers  # noqa: F401

    return True


class Relay:
    """The :class:`mcp_probe.model.FrameListener` of one serving process. Exporters are made when its header comes.

    ``on_fault`` hears why less is exported than there was.
    """

    def __init__(self, settings: TelemetrySettings, on_fault: OnFault) -> None:
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
        from mcp_probe.export.pipeline import Pipeline, resource_of
        from mcp_probe.export.providers import metric_export, span_export

        given = self._settings
        pipeline = self._pipeline = Pipeline(resource_of(header.server, about(header)), given.otlp, given.exit_s)
        if pipeline.tracer_provider is not None:
            self._listeners.add(span_export(pipeline.tracer_provider, given, pipeline.ids.give))
        if pipeline.meter_provider is not None:
            self._listeners.add(metric_export(pipeline.meter_provider, given, pipeline))
        pipeline.open()


def about(header: Header) -> dict[str, str | int]:
    """Resource attributes of the process that sent ``header``; it runs on this machine."""
    return {
        "host.name": platform.node(),
        "process.pid": header.pid,
        "process.runtime.version": header.python,
    }
