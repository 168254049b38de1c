"""Where spans meet the SDKs: a middleware inside the one that opens mcp 2.x's SERVER span, and a note taken outside it.

Without telemetry none of this is installed. A fault here turns tracing off for its server and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Mapping
from typing import Any

from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.tracing import ASK_AGAIN_NS, Message, Tracing
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RawRequest

HOOK = "spans"

_OPENERS = {"OpenTelemetryMiddleware": "mcp.", "FastMCPServerMiddleware": "fastmcp."}
"""Middleware of mcp 2.x and of fastmcp 4 that opens the SERVER span: class -> where it comes from."""


def opener_in(chain: list[Any]) -> int | None:
    """Where in a server's middleware its SERVER span is opened; ``None`` where it was taken out."""
    for place, item in enumerate(chain):
        home = _OPENERS.get(type(item).__name__)
        if home is not None and type(item).__module__.startswith(home):
            return place
    return None


def _opens_spans(middleware: Any) -> bool:
    """fastmcp can be told to open none (``telemetry_mode``)."""
    telemetry = sys.modules.get("fastmcp.telemetry")
    if type(middleware).__name__ != "FastMCPServerMiddleware" or telemetry is None:
        return True
    enabled = getattr(telemetry, "native_spans_enabled", None)
    return True if enabled is None else bool(enabled())


def names_caller(meta: Any) -> bool:
    """Whether a message names its caller's span; otherwise the one around it becomes the parent of the SDK's own."""
    return bool(meta) and "traceparent" in meta


class OuterNote:
    """Directly outside of the SDK's own span: notes the span that this hides (an HTTP instrumentation's)."""

    def __init__(self, hub: Hub, tracing: Tracing) -> None:
        self._hub = hub
        self._tracing: Tracing | None = tracing

    def __call__(self, ctx: Any, call_next: Any) -> Awaitable[Any]:
        tracing = self._tracing
        if tracing is not None:
            try:
                if names_caller(ctx.meta):
                    raw = CURRENT.get()
                    if raw is not None and raw.transport == "http" and not raw.ended:
                        tracing.note_ambient(raw)
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                self._tracing = None
                self._hub.fail(HOOK, exc)
        return call_next(ctx)  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Pass through from now on."""
        self._tracing = None


class SpanMiddleware:
    """Directly inside of the SDK's own span: adds to it before it ends, or opens one where there is none.

    ``opened_outside``: it stands among the application's own middleware, which the SDK's span encloses. Until
    ``deaf_until_ns`` no provider listens.
    """

    def __init__(self, hub: Hub, tracing: Tracing, opener: Any, *, opened_outside: bool = False) -> None:
        self._hub = hub
        self._tracing: Tracing | None = tracing
        self._opener = opener
        self._opens: bool | None = opened_outside if opener is None else None  # not asked yet
        self._hears_until_ns = 0
        self.deaf_until_ns = 0

    def __call__(self, ctx: Any, call_next: Any) -> Awaitable[Any]:
        return self.traced(ctx, call_next) if self.listens() else call_next(ctx)

    def listens(self) -> bool:
        """Whether a call is useful now. A change is noticed up to a fraction of a second late."""
        try:
            now = now_ns()
            if now < self.deaf_until_ns or self._tracing is None:
                return False
            if now < self._hears_until_ns:
                return True
            if self._tracing.listens():
                self._hears_until_ns = now + ASK_AGAIN_NS
                return True
            self.deaf_until_ns = now + ASK_AGAIN_NS
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self._failed(exc)
        return False

    def traced(self, ctx: Any, call_next: Any) -> Awaitable[Any]:
        """As a call, for whoever has asked :meth:`listens`."""
        try:
            raw = CURRENT.get()
            if raw is not None and not raw.ended and (raw.request_id, raw.method) == (ctx.request_id, ctx.method):
                return self._around(raw, ctx, call_next)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self._failed(exc)
        return call_next(ctx)  # type: ignore[no-any-return]

    async def _around(self, raw: RawRequest, ctx: Any, call_next: Any) -> Any:
        """``await call_next(ctx)``, with what is done for its span before and after."""
        scope = self._begin(raw, ctx)
        if scope is None:
            return await call_next(ctx)
        try:
            result = await call_next(ctx)
        except BaseException as exc:
            self._end(scope, None, exc)
            raise
        self._end(scope, result, None)
        return result

    def _begin(self, raw: RawRequest, ctx: Any) -> Any:
        """What to give to :meth:`_end`; ``None`` where there is nothing to end."""
        tracing = self._tracing
        if tracing is None:
            return None
        try:
            return tracing.begin(self._hub, raw, self._message_of(raw, ctx))
        except Exception as exc:  # noqa: BLE001
            self._failed(exc)
            return None

    def _end(self, scope: Any, result: Any, error: BaseException | None) -> None:
        """The call has returned ``result`` or raised ``error``."""
        tracing = self._tracing
        if tracing is None:
            return
        try:
            tracing.end(scope, result, error)
        except Exception as exc:  # noqa: BLE001
            self._failed(exc)

    def _message_of(self, raw: RawRequest, ctx: Any) -> Message:
        session_id = client = None
        if raw.transport == "http":
            # The SDK's session has no public name for its id; without ``_connection`` no span says it.
            session_id = getattr(getattr(ctx.session, "_connection", None), "session_id", None)
            client = client_of(ctx.request)
        if self._opens is None:
            self._opens = _opens_spans(self._opener)
        return Message(ctx.method, ctx.params, ctx.meta, session_id, client, None, self._opens)

    def _failed(self, exc: Exception) -> None:
        """A fault of ours: calls pass through from now on."""
        self.stop()
        self._hub.fail(HOOK, exc)

    def stop(self) -> None:
        """Pass through from now on."""
        self._tracing = None


def client_of(request: Any) -> tuple[str, int] | None:
    """Address and port of an HTTP request's peer. Source: ASGI, HTTP connection scope."""
    scope = getattr(request, "scope", None)
    client = scope.get("client") if isinstance(scope, Mapping) else None
    if not isinstance(client, (tuple, list)) or len(client) != 2:
        return None
    host, port = client
    return (host, port) if isinstance(host, str) and isinstance(port, int) else None
