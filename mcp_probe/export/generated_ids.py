"""Span ids for requests of a process that has no OpenTelemetry of its own: another process makes the spans.

The child of ``mcp-probe run`` uses it in a foreign interpreter. Nothing of OpenTelemetry is imported here. Where the
application has loaded its API, what a handler sends out continues the trace through the span that will be made; where
it records a SERVER span itself, that one is added to instead.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcp_probe.capture.hub import Hub
from mcp_probe.capture.tracing import Message, parent_of, text_of, uri_of
from mcp_probe.record.raw import RawRequest

if TYPE_CHECKING:
    from mcp_probe.export.server_spans import ServerSpans

_API = "opentelemetry.trace"


class GeneratedIds:
    """A :class:`~mcp_probe.capture.tracing.Tracing` that only decides on ids; options as of ``ServerSpans``."""

    def __init__(
        self, *, capture_content: tuple[str, ...] = (), redact: Callable[[str, Any], Any] | None = None
    ) -> None:
        self._content = capture_content
        self._redact = redact
        self._application: ServerSpans | None = None
        self._ids = random.SystemRandom()  # a forked child must not go on with its parent's numbers

    def listens(self) -> bool:
        """Every request gets ids."""
        return True

    def note_ambient(self, raw: RawRequest) -> None:
        """As ``ServerSpans``, where the application has spans at all."""
        if _API in sys.modules:
            self._theirs().note_ambient(raw)

    def begin(self, hub: Hub, raw: RawRequest, message: Message) -> Any:
        """Ids for ``raw``, or the application's own span."""
        if raw.span_id is not None:
            return None
        theirs = self._theirs() if _API in sys.modules else None
        if theirs is not None:
            scope = theirs.begin(hub, raw, message)
            if scope is not None or raw.span_id is not None:
                return scope
        self._generate(raw, message)
        return None if theirs is None else theirs.continue_unrecorded(hub, raw, message)

    def end(self, scope: Any, result: Any, error: BaseException | None) -> None:
        """As ``ServerSpans``."""
        self._theirs().end(scope, result, error)

    def carry(self) -> Callable[..., Any] | None:
        """As ``ServerSpans``, where the application has spans at all."""
        return self._theirs().carry() if _API in sys.modules else None

    def _theirs(self) -> ServerSpans:
        if self._application is None:
            from mcp_probe.export.server_spans import ServerSpans

            self._application = ServerSpans(opens=False, capture_content=self._content, redact=self._redact)
        return self._application

    def _generate(self, raw: RawRequest, message: Message) -> None:
        caller = parent_of(message.meta)
        if caller is None:
            raw.trace_id, raw.trace_flags = self._ids.getrandbits(128) | 1, 1
        else:
            raw.trace_id, raw.trace_flags = caller.trace_id, caller.flags
            raw.parent_span_id, raw.trace_state = caller.span_id, caller.state
        raw.span_id = self._ids.getrandbits(64) | 1
        if raw.transport == "http":
            raw.session_id = text_of(message.session_id)
        if message.method.startswith("resources/"):
            raw.resource_uri = uri_of(message)
