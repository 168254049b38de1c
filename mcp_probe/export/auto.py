"""A probe's telemetry: through the application's providers as soon as there are any, or through exporters of ours.

Nothing of OpenTelemetry is imported here: ``setup`` is, once ``otlp`` asks for it or the application has loaded
OpenTelemetry itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_probe.export.delivery import missing_extra
from mcp_probe.model import Delivery, End, Frame, Header, RequestRecord
from mcp_probe.record.raw import Measured, RawRequest

if TYPE_CHECKING:
    from mcp_probe.capture.tracing import Tracing
    from mcp_probe.export.setup import Exports


@dataclass(frozen=True, slots=True)
class Settings:
    """What the options of a probe say about telemetry, and who is profiled."""

    otlp: bool | str = False
    exports: bool = True  # False: only add to spans that are open anyway
    exit_s: float = 1.0
    slow_step_ms: float = 10.0
    slow_request_ms: float | None = None
    detail: float = 0.0
    replay_histograms: bool = False
    capture_content: tuple[str, ...] = ()
    redact: Callable[[str, object], object] | None = None


class Telemetry:
    """The :class:`mcp_probe.model.FrameListener` of one probe. ``take`` and ``close`` on one thread at a time.

    Args:
        trace: told how requests of this process are traced, at once or when the application has loaded OpenTelemetry.
        found: told when there is something to deliver to; whoever delivers at exit must do so before the providers
            shut down, and what registers last at exit is called first.
    """

    def __init__(self, settings: Settings, *, trace: Callable[[Tracing], None], found: Callable[[], None]) -> None:
        self._settings = settings
        self._trace = trace
        self._found = found
        self._joined = False
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
        if not self._joined and (self._settings.otlp or "opentelemetry" in sys.modules):
            self._join(server)
        self._look()

    def take(self, frames: Sequence[Frame]) -> None:
        """Hand frames to the exports there are."""
        if not self._joined and "opentelemetry" in sys.modules:
            self._join(None)
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

    def take_plain(self, batch: list[RawRequest], measured: Measured) -> list[RawRequest]:
        """Hand on plain requests that have ended; returns those that must come as records. After :meth:`idle`."""
        if self._exports is None:
            return batch
        self._patience_s = self._settings.exit_s
        return self._exports.take_plain(batch, measured)

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

    def _join(self, server: str | None) -> None:
        try:
            from mcp_probe.export.setup import join, tracing_for

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
