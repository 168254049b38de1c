"""mcp 2.x: the server's middleware, and its stream loop.

A message reaches us first where its transport hands it over (stdio.py, http_transports.py, ``Server.run``'s streams);
the middleware (server_middleware.py) then claims it for the attached server. Where no transport has seen it
(2026-07-28 HTTP, in-process clients) the middleware opens it itself.

Source: mcp/server/lowlevel/server.py, 2.3.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any

from mcp_probe.adapters.asgi import AsgiHooks, ProbedApp
from mcp_probe.adapters.hook import Hook
from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.probe_resources import HOOK as RESOURCES
from mcp_probe.adapters.probe_resources import ModernHandlers, ProbeResources
from mcp_probe.adapters.server_middleware import HOOK, ServerMiddleware
from mcp_probe.adapters.server_streams import ServerStreams
from mcp_probe.adapters.span_middleware import OuterNote, SpanMiddleware, opener_in
from mcp_probe.capture.hub import Hub
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
        self._chain = _Chain()
        self.middleware = ServerMiddleware(hub, loops, session)
        self._hook = self.middleware.guard
        self.streams = ServerStreams(hub, loops, session, lambda: self._hook.active)
        self._resources = Hook(hub, RESOURCES)

    def install(self, server: Any) -> None:
        """Attach to the low-level ``server``."""
        self._server = weakref.ref(server)
        self._chain.put(server, [self.middleware, *server.middleware])
        self._hook.replace(server, "run", self.streams.around_run)
        if callable(getattr(server, "streamable_http_app", None)):
            self._hook.wrap(server, "streamable_http_app", after=self._app_made)
        self._hub.working(HOOK)
        tell = self._session.tell
        if tell is not None:
            handlers = ModernHandlers(self._resources, self._hub, ProbeResources(tell))
            self._resources.call(handlers.install, server)

    def trace(self, tracing: Tracing) -> None:
        """Put ``tracing`` directly inside the middleware that opens the SERVER span, or else in our own place."""
        server = self._server()
        chain = [] if server is None else list(server.middleware)
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
        self._chain.put(server, chain)

    def restore(self) -> list[str]:
        """Put everything back; sentences for what could not be."""
        stuck = self._resources.restore() + self._hook.restore()
        self.middleware.spans = self.middleware.outer = None
        for spans in self._spans:
            spans.stop()
        server = self._server()
        if server is not None:
            ours = [self.middleware, *self._spans]
            self._chain.give_back(server, [item for item in server.middleware if not any(item is one for one in ours)])
        return stuck

    def _app_made(self, _: Any, app: Any, error: BaseException | None) -> None:
        if error is None:
            from starlette.middleware import Middleware

            app.user_middleware.insert(0, Middleware(ProbedApp, hooks=self._asgi))


class _Chain:
    """The list of middleware that a server's messages go through.

    The SDK goes through it for each message, last one first, and passes one by if the list changes meanwhile. So where
    its loop may run beside this thread another list stands in for it; else it is the same one, for others may hold it.
    """

    def __init__(self) -> None:
        self._stands_in: list[Any] = []  # for the server's own, while it is the server's
        self._own: list[Any] = []
        self._before: list[Any] = []  # what was in its own

    def put(self, server: Any, chain: list[Any]) -> None:
        """``chain`` is what the next message goes through."""
        own = server.middleware
        if own is self._stands_in:
            self._stands_in = server.middleware = chain
        elif threading.current_thread() is threading.main_thread() or asyncio._get_running_loop() is not None:
            own[:] = chain
        else:
            self._own, self._before = own, list(own)
            self._stands_in = server.middleware = chain

    def give_back(self, server: Any, chain: list[Any]) -> None:
        """``chain`` is what is left: in the server's own list, if it is not that one already."""
        own, stood_in, before = self._own, self._stands_in, self._before
        self._own, self._stands_in, self._before = [], [], []
        if server.middleware is not stood_in:
            self.put(server, chain)
            return
        if [*map(id, chain)] != [*map(id, before)]:  # somebody has changed what stood in
            own[:] = chain  # no message goes through it now
        server.middleware = own
