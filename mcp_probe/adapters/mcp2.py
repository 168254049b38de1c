"""mcp 2.x: the server's middleware, its stream loop, and its streamable HTTP transport.

A message reaches us first where its transport hands it over (stdio.py, :class:`HttpHooks`,
``Server.run``'s streams); the middleware (server_middleware.py) then claims it for the attached server. Where no
transport has seen it (2026-07-28 HTTP, in-process clients) the middleware opens it itself.

Source: mcp/server/lowlevel/server.py, streamable_http.py, streamable_http_manager.py, 2.3.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

from mcp_probe.adapters.asgi import HOOK as HTTP_HOOK
from mcp_probe.adapters.asgi import AsgiHooks, ProbedApp
from mcp_probe.adapters.hook import guarded
from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.server_middleware import HOOK, ServerMiddleware
from mcp_probe.adapters.span_middleware import OuterNote, SpanMiddleware, opener_in
from mcp_probe.capture.current import reset_for_transport_task
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.messages import Channel
from mcp_probe.capture.streams import FromServer, FromTransport
from mcp_probe.capture.tracing import Tracing


def lowlevel_of(server: Any) -> Any:
    """The low-level mcp 2.x server behind ``server`` (MCPServer, fastmcp 4, or itself), or ``None``."""
    for candidate in (server, getattr(server, "_lowlevel_server", None), getattr(server, "_mcp_server", None)):
        if (
            candidate is not None
            and isinstance(getattr(candidate, "middleware", None), list)
            and hasattr(candidate, "get_request_handler")
        ):
            return candidate
    return None


class ServerHooks:
    """What attaching to one low-level server replaces on that server."""

    def __init__(self, hub: Hub, loops: Loops, asgi: AsgiHooks, session: Any) -> None:
        self._hub = hub
        self._loops = loops
        self._asgi = asgi
        self._session = session
        self._server: Callable[[], Any] = lambda: None  # a weak reference
        self._spans: list[OuterNote | SpanMiddleware] = []
        self.middleware = ServerMiddleware(hub, loops, session)
        self._hook = self.middleware.guard
        self.guard = Guard("streams", hub.fail)

    def install(self, server: Any) -> None:
        """Attach to the low-level ``server``."""
        self._server = weakref.ref(server)
        server.middleware.insert(0, self.middleware)
        self._hook.replace(server, "run", self._make_run)
        if callable(getattr(server, "streamable_http_app", None)):
            self._hook.wrap(server, "streamable_http_app", after=self._app_made)
        self._hub.working(HOOK)

    def trace(self, tracing: Tracing) -> None:
        """Put ``tracing`` directly inside the middleware that opens the SERVER span, or else in our own place."""
        server = self._server()
        chain = [] if server is None else server.middleware
        place = opener_in(chain)
        opener = None if place is None else chain[place]
        spans = SpanMiddleware(self._hub, tracing, opener, opened_outside=server is None)
        self._spans.append(spans)
        if place is None:
            self.middleware.spans = spans
            return
        note = OuterNote(self._hub, tracing)
        self._spans.append(note)
        chain.insert(place + 1, spans)
        if place and chain[place - 1] is self.middleware and self.middleware.outer is None:
            self.middleware.outer = note  # one middleware less for each call: 2 us
        else:
            chain.insert(place, note)

    def restore(self) -> list[str]:
        """Put everything back; sentences for what could not be."""
        stuck = self._hook.restore()
        self.middleware.spans = self.middleware.outer = None
        for spans in self._spans:
            spans.stop()
        server = self._server()
        if server is not None:
            ours = [self.middleware, *self._spans]
            server.middleware[:] = [item for item in server.middleware if not any(item is one for one in ours)]
        return stuck

    def _make_run(self, original: Any) -> Any:
        @wraps(original)
        async def run(read_stream: Any, write_stream: Any, *args: Any, **kwargs: Any) -> None:
            reading, writing = self.streams(read_stream, write_stream)
            try:
                await original(reading, writing, *args, **kwargs)
            finally:
                self._hub.transport_closed()

        return run

    def streams(self, read_stream: Any, write_stream: Any, transport: str = "streams") -> tuple[Any, Any]:
        """The stream pair with every message noted; a pair that its transport already follows stays as it is."""
        found = self._followed(read_stream, write_stream, transport) if self._hook.active else None
        return found or (read_stream, write_stream)

    @guarded
    def _followed(self, read_stream: Any, write_stream: Any, transport: str) -> tuple[Any, Any] | None:
        channel = getattr(read_stream, "mcp_probe_channel", None)
        if channel is not None:
            channel.session = channel.session or self._session
            return None
        self._loops.follow()
        channel = Channel(self._hub.requests, transport, self._hub.ready)
        channel.session = self._session
        reading = FromTransport(read_stream, channel, self._hub.fail)
        reading.mcp_probe_channel = channel
        return reading, FromServer(write_stream, channel, self._hub.fail)

    def _app_made(self, _: Any, app: Any, error: BaseException | None) -> None:
        if error is None:
            from starlette.middleware import Middleware

            app.user_middleware.insert(0, Middleware(ProbedApp, hooks=self._asgi))


class HttpHooks:
    """Process-wide hooks on the streamable HTTP transport, in whatever app it is mounted."""

    def __init__(self, hub: Hub, asgi: AsgiHooks) -> None:
        self._hub = hub
        self._asgi = asgi
        self._hook = asgi.guard

    def install(self, transport_module: Any, manager_module: Any) -> None:
        """Patch ``mcp.server.streamable_http`` and ``…_manager``."""
        transport = getattr(transport_module, "StreamableHTTPServerTransport", None)
        manager = getattr(manager_module, "StreamableHTTPSessionManager", None)
        if transport is None or manager is None or "connect" not in vars(transport):
            self._hub.missing(
                HTTP_HOOK, "this mcp's streamable HTTP is not known to us; queue and write are unavailable"
            )
            return
        self._hook.replace(transport, "connect", self._make_connect)
        self._hook.replace(manager, "handle_request", self._asgi.around)
        self._hook.replace(manager, "run", self._make_run)
        app = getattr(manager_module, "StreamableHTTPASGIApp", None)
        if app is not None and "__call__" in vars(app):  # goes past handle_request since 2.3
            self._hook.replace(app, "__call__", self._asgi.around)
        self._hub.working(HTTP_HOOK)

    def restore(self) -> list[str]:
        """Undo it."""
        return self._hook.restore()

    def _make_connect(self, original: Any) -> Any:
        hook = self._hook

        @wraps(original)
        @asynccontextmanager
        async def connect(transport: Any) -> Any:
            if hook.active:
                reset_for_transport_task()
            async with original(transport) as (read_stream, write_stream):
                pair = hook.call(self._followed, read_stream, write_stream) if hook.active else None
                yield pair or (read_stream, write_stream)

        return connect

    def _followed(self, read_stream: Any, write_stream: Any) -> tuple[Any, Any]:
        channel = Channel(self._hub.requests, "http", self._hub.ready)
        reading = FromTransport(read_stream, channel, self._hub.fail)
        reading.mcp_probe_channel = channel
        return reading, FromServer(write_stream, channel, self._hub.fail)

    def _make_run(self, original: Any) -> Any:
        hub = self._hub

        @wraps(original)
        @asynccontextmanager
        async def run(manager: Any) -> Any:
            try:
                async with original(manager):
                    yield
            finally:
                hub.application_closed()

        return run
