"""The SDK's HTTP transports, streamable HTTP and SSE: a message comes in one exchange, its answer leaves there or on
another one.

Streams of mcp 2.x carry the context of the exchange that a message came in. Those of mcp 1.x do not: there a message is
noted where its exchange's own task hands it to the session.

Source: mcp/server/streamable_http.py, streamable_http_manager.py, sse.py; 1.6-1.30 and 2.0-2.3.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

from mcp_probe.adapters.asgi import HOOK as HTTP_HOOK
from mcp_probe.adapters.asgi import AsgiHooks, Send
from mcp_probe.adapters.hook import guarded
from mcp_probe.capture.current import reset_for_transport_task
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.messages import Channel
from mcp_probe.capture.streams import FromServer, FromTransport, IntoServer, WithChannel, rejoined

Pair = tuple[Any, Any]


class HttpHooks:
    """Process-wide hooks on the HTTP transports, in whatever app they are mounted."""

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
        dispatcher = getattr(sys.modules.get("mcp.shared.jsonrpc_dispatcher"), "JSONRPCDispatcher", None)
        if dispatcher is not None:  # mcp 2.x
            self._hook.replace(dispatcher, "__init__", self._make_init)
        self._hub.working(HTTP_HOOK)

    def install_sse(self, module: Any) -> None:
        """Patch ``mcp.server.sse``."""
        transport = getattr(module, "SseServerTransport", None)
        if transport is None or not {"connect_sse", "handle_post_message"} <= vars(transport).keys():
            self._hub.missing(f"{HTTP_HOOK}: SSE", "this mcp's SSE is not known to us; queue and write are unavailable")
            return
        self._hook.replace(transport, "connect_sse", self._make_connect_sse)
        self._hook.replace(transport, "handle_post_message", self._asgi.around_post)

    def restore(self) -> list[str]:
        """Undo it."""
        return self._hook.restore()

    def _make_connect(self, original: Any) -> Any:
        hook = self._hook

        @wraps(original)
        @asynccontextmanager
        async def connect(transport: Any) -> Any:
            if hook.active:
                hook.call(reset_for_transport_task)
            async with original(transport) as pair:
                followed = hook.call(self._followed, transport, pair) if hook.active else None
                try:
                    yield followed or pair
                finally:
                    hook.call(_close, followed)

        return connect

    def _make_init(self, original: Any) -> Any:
        hook, fail = self._hook, self._hub.fail

        @wraps(original)
        def init(dispatcher: Any, read_stream: Any, *args: Any, **kwargs: Any) -> None:
            wrapped = hook.call(rejoined, read_stream, fail) if hook.active else None
            original(dispatcher, read_stream if wrapped is None else wrapped, *args, **kwargs)

        return init

    def _followed(self, transport: Any, pair: Pair) -> Pair:
        channel = Channel(self._hub.requests, "http", self._hub.ready)
        if not carries_context(pair[0]):
            transport._read_stream_writer = _into(self._hub, transport._read_stream_writer, channel)
        return _pair(self._hub, pair, channel)

    def _make_connect_sse(self, original: Any) -> Any:
        hook = self._hook

        @wraps(original)
        @asynccontextmanager
        async def connect_sse(transport: Any, scope: Any, receive: Any, send: Any) -> Any:
            events = hook.call(self._events, send) if hook.active else None
            async with original(transport, scope, receive, send if events is None else events.send) as pair:
                if events is None:
                    yield pair
                    return
                try:
                    yield hook.call(self._followed_events, transport, pair, events.channel) or pair
                finally:
                    hook.call(events.channel.close)

        return connect_sse

    def _events(self, send: Send) -> _Events:
        reset_for_transport_task()
        channel = Channel(self._hub.requests, "http", self._hub.ready)
        channel.writer_seen, channel.events = True, {}
        return _Events(self._hub, channel, send)

    def _followed_events(self, transport: Any, pair: Pair, channel: Channel) -> Pair:
        if not carries_context(pair[0]):
            writers = transport._read_stream_writers
            state = pair[0]._state  # a send end and its receive end share it
            for session_id, writer in list(writers.items()):
                if getattr(writer, "_state", None) is state:
                    writers[session_id] = _into(self._hub, writer, channel)
        return _pair(self._hub, pair, channel)

    def _make_run(self, original: Any) -> Any:
        hub = self._hub

        @wraps(original)
        @asynccontextmanager
        async def run(manager: Any) -> Any:
            try:
                async with original(manager):
                    yield
                    await Guard("leak hunt", hub.fail).wait_for(hub.input_ended)
            finally:
                hub.application_closed()

        return run


def carries_context(read_stream: Any) -> bool:
    """Whether messages on this stream come with the context of whoever sent them (mcp 2.x).

    OpenInference's wrapper has the attribute on mcp 1.x, too: the SDK's own stream is asked.
    """
    while hasattr(read_stream, "__wrapped__"):
        read_stream = read_stream.__wrapped__
    return hasattr(read_stream, "last_context")


def _into(hub: Hub, writer: Any, channel: Channel) -> IntoServer:
    channel.handed = {}
    return IntoServer(writer, channel, hub.fail)


def _close(pair: Pair | None) -> None:
    if pair is not None:
        pair[0].mcp_probe_channel.close()


def _pair(hub: Hub, pair: Pair, channel: Channel) -> Pair:
    reading: Any = FromTransport(pair[0], channel, hub.fail) if channel.handed is None else WithChannel(pair[0])
    reading.mcp_probe_channel = channel
    return reading, FromServer(pair[1], channel, hub.fail)


class _Events:
    """The ``send`` of an SSE stream: knows when each answer is taken and flushed."""

    def __init__(self, hub: Hub, channel: Channel, inner: Send) -> None:
        self.guard = Guard(f"{HTTP_HOOK}: SSE", hub.fail, channel.no_more_events)
        self.channel = channel
        self._inner = inner

    async def send(self, message: MutableMapping[str, Any]) -> None:
        raw = self._begins(message)
        await self._inner(message)
        if raw is not None:
            self._sent(raw)

    @guarded
    def _begins(self, message: MutableMapping[str, Any]) -> Any:
        is_body = message.get("type") == "http.response.body"
        return self.channel.event_begins(message.get("body", b"")) if is_body else None

    @guarded
    def _sent(self, raw: Any) -> None:
        self.channel.event_sent(raw)
