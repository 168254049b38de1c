"""The server's middleware on mcp 2.x: it claims the request that a transport opened, or opens it itself.

Source: mcp/server/runner.py, 2.3.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from threading import get_ident
from typing import Any

from mcp_probe.adapters.hook import Hook, guarded
from mcp_probe.adapters.in_process import CALL
from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.span_middleware import OuterNote, SpanMiddleware, names_caller
from mcp_probe.capture.current import CURRENT, EXCHANGE, Exchange
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.messages import name_of, note_result
from mcp_probe.capture.sent import KEY as SENT
from mcp_probe.capture.sent import sent_ns
from mcp_probe.clock import now_ns
from mcp_probe.model import RequestKind
from mcp_probe.record.raw import RawRequest

HOOK = "middleware"


class ServerMiddleware:
    """The server middleware as the SDK calls it. ``guard`` is the hook of its server, which is inert once restored.

    ``spans`` is set where this one stands inside of the SDK's own span, or there is none. ``outer`` is set if the
    middleware that opens the SDK's span comes next.
    """

    def __init__(self, hub: Hub, loops: Loops, session: Any) -> None:
        self.guard = Hook(hub, HOOK)
        self.spans: SpanMiddleware | None = None
        self.outer: OuterNote | None = None
        self._hub = hub
        self._loops = loops
        self._session = session

    def __call__(self, ctx: Any, call_next: Any) -> Awaitable[Any]:
        """Not a coroutine function: a claimed request costs no frame between the handler and its caller."""
        if not self.guard.active:
            return call_next(ctx)  # type: ignore[no-any-return]
        found = self._claim(ctx, call_next)
        if found is None:
            return call_next(ctx)
        claimed, call_next = found
        # Outside the guard: what the rest of the chain raises is the server's own.
        if claimed is None:
            exchange = EXCHANGE.get()
            if exchange is not None and exchange.looked_up is not None and _is_look_up(ctx):
                return self._look_up(ctx, call_next, exchange)
            return self._open_here(ctx, call_next)
        return call_next(ctx)  # type: ignore[no-any-return]

    @guarded
    def _claim(self, ctx: Any, call_next: Any) -> tuple[RawRequest | None, Any]:
        """(the request that its transport has opened, ``None`` where it must be opened here; what to call next)."""
        raw = CURRENT.get()
        claimed = None
        if raw is not None and not raw.ended and raw.channel is not None and raw.request_id == ctx.request_id:
            session = raw.session
            # An in-process call made by a tool has its caller's request in its context, perhaps with the same id.
            mine = session is self._session or (session is None and _transport_of(ctx) != "memory")
            if mine and raw.protocol_version is None:
                raw.session = self._session
                raw.protocol_version = ctx.protocol_version
                claimed = raw
                if raw.first_step_ns is None and (monitor := self._hub.monitor()) is not None:
                    monitor.handler_began(raw)
                if (meta := ctx.meta) and SENT in meta:
                    raw.sent_ns = sent_ns(meta, raw.taken_ns or now_ns())
        if self.outer is not None:
            if names_caller(ctx.meta):
                call_next = partial(self.outer, call_next=call_next)
        elif self.spans is not None and self.spans.listens():
            call_next = partial(self.spans.traced, call_next=call_next)
        return claimed, call_next

    async def _look_up(self, ctx: Any, call_next: Any, exchange: Exchange) -> Any:
        """The SDK lists the tools before it dispatches a call, for the schema: there the call's handling begins.

        What this task does afterwards is the call's too, and it may start another task for the handler.
        """
        entered = self._begin_look_up(ctx, exchange)
        if entered is None:
            return await call_next(ctx)
        raw, monitor = entered
        awaitable = call_next(ctx)
        return await (awaitable if monitor is None else monitor.followed(awaitable, raw))

    @guarded
    def _begin_look_up(self, ctx: Any, exchange: Exchange) -> tuple[RawRequest, Any]:
        monitor = exchange.monitor = self._monitor_of(exchange)
        raw = exchange.raw
        if raw is None or raw.ended:
            raw = self._hub.begin("request", "tools/call", exchange.looked_up, "http", self._session)
            self._brought_by(exchange, raw, ctx)
        exchange.lend()
        if monitor is None:
            CURRENT.set(raw)
        else:
            monitor.enter(raw)
        return raw, monitor

    async def _open_here(self, ctx: Any, call_next: Any) -> Any:
        entered = self._enter(ctx)
        if entered is None:
            return await call_next(ctx)
        raw, monitor, token = entered
        try:
            awaitable = call_next(ctx)
            result = await (awaitable if monitor is None else monitor.followed(awaitable, raw))
        except BaseException as exc:
            self._leave(raw, monitor, token, None, exc)
            raise
        self._leave(raw, monitor, token, result, None)
        return result

    @guarded
    def _enter(self, ctx: Any) -> tuple[RawRequest, Any, Any]:
        exchange = EXCHANGE.get()
        monitor = self._monitor_of(exchange)
        kind: RequestKind = "notification" if ctx.request_id is None else "request"
        transport = _transport_of(ctx)
        if transport == "memory":
            exchange = None  # of whoever calls from within that exchange
        elif exchange is not None:
            transport = "http"
        raw = None if exchange is None else self._looked_up(exchange, ctx)
        if raw is None:
            raw = self._hub.begin(kind, ctx.method, name_of(ctx.method, ctx.params), transport, self._session)
            if exchange is None:
                raw.request_id, raw.protocol_version = ctx.request_id, ctx.protocol_version
                if transport == "memory" and (call := CALL.get()) is not None:
                    call.take(raw)
            else:
                self._brought_by(exchange, raw, ctx)
        if (meta := ctx.meta) and SENT in meta:
            raw.sent_ns = sent_ns(meta, raw.taken_ns or now_ns())
        return raw, monitor, None if monitor is None else monitor.enter(raw)

    def _monitor_of(self, exchange: Exchange | None) -> Any:
        monitor = None if exchange is None else exchange.monitor
        if monitor is None or monitor.thread_id != get_ident():  # a context may have been taken to another thread
            monitor = self._loops.follow()
        return monitor

    def _looked_up(self, exchange: Exchange, ctx: Any) -> RawRequest | None:
        """The request for which the SDK has looked up a schema, if this is it."""
        raw = exchange.raw
        if raw is None or raw.ended or raw.result_ns is not None or raw.session is not self._session:
            return None
        return raw if raw.request_id == ctx.request_id and raw.method == ctx.method else None

    def _brought_by(self, exchange: Exchange, raw: RawRequest, ctx: Any) -> None:
        raw.request_id = ctx.request_id
        raw.protocol_version = ctx.protocol_version
        exchange.brought(raw)
        raw.taken_ns = now_ns()
        raw.write_seen = True

    @guarded
    def _leave(self, raw: RawRequest, monitor: Any, token: Any, result: Any, exc: BaseException | None) -> None:
        if monitor is not None:
            monitor.leave(raw, token)
        now = now_ns()
        if exc is None:
            note_result(raw, result)
        else:
            _note_exception(raw, exc)
        self._hub.requests.finished(raw, now)
        if not raw.write_seen or raw.outcome == "cancelled":
            self._hub.requests.end(raw, now)


def _is_look_up(ctx: Any) -> bool:
    """Whether the SDK's own listing comes; what is listed may ask other servers in this process for theirs."""
    return ctx.method == "tools/list" and _transport_of(ctx) != "memory"


_transports: dict[type, str | None] = {}
"""What the ways to a client are the transport of; ``None``: they hold another one."""


def _transport_of(ctx: Any) -> str:
    """The transport of a message that no transport hook has seen: in-process, or one that ran before we attached."""
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
