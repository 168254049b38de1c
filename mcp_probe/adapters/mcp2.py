"""mcp 2.x: the server's middleware, its stream loop, and its streamable HTTP transport.

A message reaches us first where its transport hands it over (stdio.py, :class:`HttpHooks`,
``Server.run``'s streams); the middleware then claims it for the attached server. Where no transport
has seen it (2026-07-28 HTTP, in-process clients) the middleware opens it itself.

Source: mcp/server/runner.py, lowlevel/server.py, streamable_http.py, streamable_http_manager.py, 2.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from mcp_probe.adapters.asgi import HOOK as HTTP_HOOK
from mcp_probe.adapters.asgi import Gate
from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.patching import Patches
from mcp_probe.adapters.tracing import OuterNote, SpanMiddleware, names_caller, opener_in
from mcp_probe.capture.current import CURRENT, EXCHANGE, Exchange, reset_for_transport_task
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.queueing import Channel, Desk, name_of, note_result
from mcp_probe.capture.sent import KEY as SENT
from mcp_probe.capture.sent import sent_ns
from mcp_probe.capture.streams import FromServer, FromTransport
from mcp_probe.capture.tracing import Tracing
from mcp_probe.clock import now_ns
from mcp_probe.model import RequestKind
from mcp_probe.record.raw import RawRequest

HOOK = "middleware"


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


class PythonClaims:
    """The server middleware as the SDK calls it. Twin of ``Claims`` in native/claims.h."""

    if TYPE_CHECKING:
        claim: Callable[[Any, Any], Awaitable[Any]]

    def __new__(cls, desk: Desk, loops: Loops, session: Any) -> PythonClaims:
        """As the accelerator's, which needs these."""
        return super().__new__(cls)

    def __init__(self) -> None:
        self.active = True
        self.spans: SpanMiddleware | None = None
        self.outer: OuterNote | None = None
        self.deaf_until_ns = 0

    def __call__(self, ctx: Any, call_next: Any) -> Awaitable[Any]:
        return self.claim(ctx, call_next)


if TYPE_CHECKING:
    _Claims = PythonClaims
else:
    _Claims = PythonClaims


class ClaimingMiddleware(_Claims):
    """The server middleware: claims the request its transport opened, or opens it here.

    ``spans`` is set where this one stands inside of the SDK's own span, or there is none; until ``deaf_until_ns`` they
    have nothing to do. ``outer`` is set where whoever opens the SDK's span comes next. Inert unless ``active``.
    """

    def __new__(cls, hub: Hub, loops: Loops, session: Any) -> ClaimingMiddleware:
        """See the class."""
        return super().__new__(cls, hub.desk, loops, session)  # type: ignore[return-value]

    def __init__(self, hub: Hub, loops: Loops, session: Any) -> None:
        if isinstance(self, PythonClaims):
            super().__init__()
        self._hub = hub
        self._loops = loops
        self._session = session

    def claim(self, ctx: Any, call_next: Any) -> Awaitable[Any]:
        """Not a coroutine function: a claimed request costs no frame between the handler and its caller."""
        if not self.active:
            return call_next(ctx)  # type: ignore[no-any-return]
        claimed = False
        try:
            raw = CURRENT.get()
            if raw is not None and not raw.ended and raw.channel is not None and raw.request_id == ctx.request_id:
                session = raw.session
                # An in-process call made by a tool has its caller's request in its context, perhaps with the same id.
                mine = session is self._session or (session is None and _transport_of(ctx) != "memory")
                if mine and raw.protocol_version is None:
                    raw.session = self._session
                    raw.protocol_version = ctx.protocol_version
                    claimed = True
                    if (meta := ctx.meta) and SENT in meta:
                        raw.sent_ns = sent_ns(meta, raw.taken_ns or now_ns())
            if self.outer is None:
                call_next = self.through_spans(call_next)
            elif names_caller(ctx.meta):
                call_next = self.through_outer(call_next)
            if not claimed:
                return self._open_here(ctx, call_next)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self.failed(exc)
            return call_next(ctx)  # type: ignore[no-any-return]
        # Outside the guard: what the rest of the chain raises is the server's own.
        if self._loops.hooked or raw is None:
            return call_next(ctx)  # type: ignore[no-any-return]
        return self._loops.followed(call_next(ctx), raw)

    def through_outer(self, call_next: Any) -> Any:
        """What to call in place of ``call_next`` where the message names its caller's span."""
        return call_next if self.outer is None else partial(self.outer, call_next=call_next)

    def through_spans(self, call_next: Any) -> Any:
        """What to call in place of ``call_next``."""
        if self.spans is None:
            return call_next
        if self.spans.listens():
            return partial(self.spans.traced, call_next=call_next)
        self.deaf_until_ns = self.spans.deaf_until_ns
        return call_next

    async def _open_here(self, ctx: Any, call_next: Any) -> Any:
        """Twin of what ``Claims`` does for HTTP on loops that the accelerator knows."""
        raw, token = self._enter(ctx)
        try:
            if raw is None or (token is not None and token[0].closes_steps):
                result = await call_next(ctx)
            else:
                result = await self._loops.followed(call_next(ctx), raw)
        except BaseException as exc:
            self._leave(raw, token, None, exc)
            raise
        self._leave(raw, token, result, None)
        return result

    def failed(self, exc: Exception) -> None:
        """A fault of ours: everything passes through from now on."""
        self.active = False
        self._hub.fail(HOOK, exc)

    def _enter(self, ctx: Any) -> tuple[RawRequest | None, Any]:
        try:
            exchange = EXCHANGE.get()
            track = None if exchange is None else exchange.track
            if track is None or track.thread_id != get_ident():  # a context may have been taken to another thread
                track = self._loops.follow()
            kind: RequestKind = "notification" if ctx.request_id is None else "request"
            transport = _transport_of(ctx)
            if transport == "memory":
                exchange = None  # of whoever calls from within that exchange
            elif exchange is not None:
                transport = "http"
            raw = self._hub.begin(kind, ctx.method, name_of(ctx.method, ctx.params), transport, self._session)
            raw.request_id = ctx.request_id
            raw.protocol_version = ctx.protocol_version
            if exchange is not None:
                self._continue_exchange(raw, exchange)
            if (meta := ctx.meta) and SENT in meta:
                raw.sent_ns = sent_ns(meta, raw.taken_ns or now_ns())
            if track is None:
                return raw, None
            token = track.enter(raw)
            return raw, (track, token)
        except Exception as exc:  # noqa: BLE001
            self.failed(exc)
            return None, None

    def _continue_exchange(self, raw: RawRequest, exchange: Exchange) -> None:
        previous = exchange.raw
        if previous is not None and not previous.ended and previous.method == "tools/list":
            # The SDK lists tools itself to check headers before it dispatches: part of this request's queue.
            previous.session = None
            self._hub.desk.end(previous, now_ns())
        raw.arrival_ns = exchange.arrival_ns
        raw.arrival_earliest_ns = exchange.arrival_earliest_ns
        raw.request_bytes = exchange.body_bytes
        raw.taken_ns = now_ns()
        raw.write_seen = True
        exchange.raw = raw

    def _leave(self, raw: RawRequest | None, token: Any, result: Any, exc: BaseException | None) -> None:
        if raw is None:
            return
        try:
            if token is not None:
                token[0].leave(raw, token[1])
            now = now_ns()
            if exc is None:
                note_result(raw, result)
            else:
                _note_exception(raw, exc)
            self._hub.desk.finished(raw, now)
            if not raw.write_seen or raw.outcome == "cancelled":
                self._hub.desk.end(raw, now)
        except Exception as fault:  # noqa: BLE001
            self.failed(fault)


_transports: dict[type, str | None] = {}
"""What the ways to a client are the transport of; ``None``: they hold another one."""


def _transport_of(ctx: Any) -> str:
    """The transport of a message that no transport hook has seen: in process, or one that ran before we attached.

    Twin of ``transport_of`` in native/claims.h, as far as their kinds are known.
    """
    outbound = getattr(ctx.session, "_request_outbound", None)
    inner = getattr(outbound, "_inner", None)
    if inner is not None:
        _transports.setdefault(type(outbound), None)
        outbound = inner
    transport = _transports.get(type(outbound))
    if transport is None:
        kind = getattr(getattr(outbound, "transport", None), "kind", None)
        transport = _transports[type(outbound)] = "memory" if kind == "direct" else "unknown"
    return transport


def _note_exception(raw: RawRequest, exc: BaseException) -> None:
    if not isinstance(exc, Exception):
        raw.outcome = "cancelled"
        return
    raw.outcome = "error"
    code = getattr(getattr(exc, "error", None), "code", None)
    raw.error_code = None if code is None else str(code)
    raw.error = type(exc).__qualname__ if code is None else str(code)


class ServerHooks:
    """What attaching to one low-level server replaces on that server."""

    def __init__(self, hub: Hub, loops: Loops, gate: Gate, session: Any) -> None:
        self._hub = hub
        self._loops = loops
        self._gate = gate
        self._session = session
        self._patches = Patches()
        self._server: Any = None
        self._spans: list[OuterNote | SpanMiddleware] = []
        self.middleware = ClaimingMiddleware(hub, loops, session)

    def install(self, server: Any) -> None:
        """Attach to the low-level ``server``."""
        self._server = server
        server.middleware.insert(0, self.middleware)
        self._patches.replace(server, "run", self._make_run(server.run))
        if callable(getattr(server, "streamable_http_app", None)):
            self._patches.replace(server, "streamable_http_app", self._make_http_app(server.streamable_http_app))
        self._hub.working(HOOK)

    def trace(self, tracing: Tracing) -> None:
        """Put ``tracing`` directly inside of whoever opens the SERVER span; without a server, where we stand."""
        chain = [] if self._server is None else self._server.middleware
        place = opener_in(chain)
        opener = None if place is None else chain[place]
        spans = SpanMiddleware(self._hub, tracing, opener, opened_outside=self._server is None)
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
        self.middleware.active = False
        self.middleware.spans = self.middleware.outer = None
        for spans in self._spans:
            spans.stop()
        stuck = self._patches.restore()
        if self._server is not None:
            ours = [self.middleware, *self._spans]
            remaining = [item for item in self._server.middleware if not any(item is one for one in ours)]
            self._server.middleware[:] = remaining
        return stuck

    def _make_run(self, original: Any) -> Any:
        async def run(read_stream: Any, write_stream: Any, *args: Any, **kwargs: Any) -> None:
            reading, writing = self.streams(read_stream, write_stream)
            try:
                await original(reading, writing, *args, **kwargs)
            finally:
                self._hub.transport_closed()

        return run

    def streams(self, read_stream: Any, write_stream: Any, transport: str = "streams") -> tuple[Any, Any]:
        """The stream pair with every message noted; a pair that its transport already follows stays as it is."""
        if not self.middleware.active:
            return read_stream, write_stream
        try:
            channel = getattr(read_stream, "mcp_probe_channel", None)
            if channel is not None:
                channel.session = channel.session or self._session
                return read_stream, write_stream
            track = self._loops.follow()
            channel = Channel(self._hub.desk, transport, self._hub.ready)
            channel.track = track
            channel.session = self._session
            reading = FromTransport(read_stream, channel, self._hub.fail)
            reading.mcp_probe_channel = channel
            return reading, FromServer(write_stream, channel, self._hub.fail)
        except Exception as exc:  # noqa: BLE001
            self._hub.fail("streams", exc)
            return read_stream, write_stream

    def _make_http_app(self, original: Any) -> Any:
        def streamable_http_app(*args: Any, **kwargs: Any) -> Any:
            app = original(*args, **kwargs)
            if not self.middleware.active:
                return app
            try:
                from starlette.middleware import Middleware

                app.user_middleware.insert(0, Middleware(self._gate.entrance))
            except Exception as exc:  # noqa: BLE001
                self._hub.fail(HTTP_HOOK, exc)
            return app

        return streamable_http_app


class HttpHooks:
    """Process-wide hooks on the streamable HTTP transport, whoever mounts it."""

    def __init__(self, hub: Hub, gate: Gate) -> None:
        self._hub = hub
        self._gate = gate
        self._patches = Patches()

    def install(self, transport_module: Any, manager_module: Any) -> None:
        """Patch ``mcp.server.streamable_http`` and ``…_manager``."""
        transport = getattr(transport_module, "StreamableHTTPServerTransport", None)
        manager = getattr(manager_module, "StreamableHTTPSessionManager", None)
        if transport is None or manager is None or "connect" not in vars(transport):
            self._hub.missing(
                HTTP_HOOK, "this mcp's streamable HTTP is not known to us; queue and write are unavailable"
            )
            return
        self._patches.replace(transport, "connect", self._make_connect(vars(transport)["connect"]))
        self._patches.replace(manager, "handle_request", self._gate.entrance(vars(manager)["handle_request"]))
        self._patches.replace(manager, "run", self._make_run(vars(manager)["run"]))
        app = getattr(manager_module, "StreamableHTTPASGIApp", None)
        if app is not None and "__call__" in vars(app):  # goes past handle_request since 2.3
            self._patches.replace(app, "__call__", self._gate.entrance(vars(app)["__call__"]))
        self._hub.working(HTTP_HOOK)

    def restore(self) -> list[str]:
        """Undo it."""
        return self._patches.restore()

    def _make_connect(self, original: Any) -> Any:
        hub, gate = self._hub, self._gate

        @asynccontextmanager
        async def connect(transport: Any) -> Any:
            if gate.active:
                reset_for_transport_task()
            async with original(transport) as (read_stream, write_stream):
                if not gate.active:
                    yield read_stream, write_stream
                    return
                channel = Channel(hub.desk, "http", hub.ready)
                reading = FromTransport(read_stream, channel, hub.fail)
                reading.mcp_probe_channel = channel
                yield reading, FromServer(write_stream, channel, hub.fail)

        return connect

    def _make_run(self, original: Any) -> Any:
        hub = self._hub

        @asynccontextmanager
        async def run(manager: Any) -> Any:
            try:
                async with original(manager):
                    yield
            finally:
                hub.application_closed()

        return run
