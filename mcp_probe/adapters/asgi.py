"""HTTP: the ASGI call is the arrival, the ``send`` of the answer is the write.

The bytes may have waited in the socket since a poll that did not find them, so arrival is bounded. An
answer counts as taken at the first ``send`` after its result, and as flushed when the ``send`` of its
body returns (handed to the server's transport buffer, not acknowledged by the peer). In a stream of events that is the
``send`` of the event with the answer: the events before it, such as notifications, may leave after the result, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from functools import partial, wraps
from typing import Any

from mcp_probe.adapters.hook import Hook, guarded
from mcp_probe.adapters.loops import Loops
from mcp_probe.capture.current import DELIVERY, EXCHANGE, Exchange
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.capture.messages import answer_in
from mcp_probe.clock import now_ns
from mcp_probe.record.assemble import LATE_NS
from mcp_probe.record.raw import RawRequest

HOOK = "http transport"

OF_A_PROXY = frozenset((b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"))
"""Headers that proxies add. Their values are not looked at. Source: RFC 7239, RFC 9110 7.6.3; the others by custom."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[..., Awaitable[None]]


class AsgiHooks:
    """Follows the exchanges of ASGI apps; ``guard`` is the one hook of all HTTP, inert once restored."""

    def __init__(self, hub: Hub, loops: Loops) -> None:
        self._hub = hub
        self._loops = loops
        self.guard = Hook(hub, HOOK)
        self.events = Guard(f"{HOOK}: events", hub.fail)  # off: nobody knows which event of a stream is an answer
        self.sending = 0  # calls of servers' ``send`` under way
        self.slow_send_ns = 0  # the last one that was not over at once ended then: its client may not have read

    def around(self, app: App) -> App:
        """``app``, or a method of a class that is one, with its exchanges followed: for a class's own attribute.

        Its last arguments are ``scope, receive, send``; a call that names them is not followed. A coroutine function,
        as the SDK's own are.
        """

        return self._around(app, answers=True)

    def around_post(self, app: App) -> App:
        """As :meth:`around`, of an app that takes messages whose answers leave elsewhere (SSE)."""
        return self._around(app, answers=False)

    def _around(self, app: App, *, answers: bool) -> App:
        @wraps(app)
        async def followed(*args: Any, **kwargs: Any) -> None:
            exchange = None if kwargs else self.open(args[-3])
            if not answers and (mine := exchange or EXCHANGE.get()) is not None and mine.raw is None:
                mine.answers = False
            if exchange is not None:
                await self.serve(exchange, partial(app, *args[:-1]), args[-1], innermost=True)
            elif answers and not kwargs and (sorting := self._sorting(args[-1])) is not None:
                await app(*args[:-1], sorting)
            else:
                await app(*args, **kwargs)

        return followed

    async def serve(
        self, exchange: Exchange, app: Callable[[Send], Awaitable[None]], send: Send, *, innermost: bool = False
    ) -> None:
        """Run ``app(send)`` as ``exchange``. ``innermost``: ``app`` is the SDK's, whose events come as it made them."""
        token = EXCHANGE.set(exchange)
        try:
            sending = self._sending(exchange, send, innermost)
            await app(send if sending is None else sending)
        finally:
            with suppress(ValueError):  # a collection closes it, in the context of whoever collects
                EXCHANGE.reset(token)
            if exchange.lent:
                self._take_back(exchange)
            raw = exchange.raw
            if raw is not None and not raw.ended and exchange.answers:
                self._close(raw)

    @guarded
    def open(self, scope: Scope) -> Exchange | None:
        """The exchange of this ASGI call; ``None`` where it is no HTTP request or an outer app has opened it."""
        outer = EXCHANGE.get()
        if not self.guard.active or scope.get("type") != "http" or (outer is not None and outer.raw is None):
            return None
        return exchange_of(scope.get("headers", ()), self._loops.follow(), self._hub)

    @guarded
    def _sending(self, exchange: Exchange, send: Send, innermost: bool) -> Send | None:
        sending = _Sending(self, self._hub, exchange, send)
        if innermost:
            exchange.sorter = sending
        return sending.send

    @guarded
    def _sorting(self, send: Send) -> Send | None:
        """``send`` of the SDK's app below an app that changes events on their way, perhaps; ``None``: it is sorted."""
        exchange = EXCHANGE.get()
        if exchange is None or exchange.raw is not None or exchange.sorter is not None or not self.guard.active:
            return None
        exchange.sorter = sorting = _Sorting(self, exchange, send)
        return sorting.send

    def sort(self, exchange: Exchange, message: MutableMapping[str, Any]) -> None:
        """Note whether ``message``, which leaves now, is the answer or a part of it."""
        if message.get("type") == "http.response.start":
            exchange.is_stream = is_event_stream(message.get("headers", ()))
        raw = exchange.raw
        if raw is None or raw.result_ns is None or raw.ended or exchange.answer_leaves:
            return
        if not exchange.is_stream:
            exchange.answer_leaves = True
        elif self.events.active:
            body = message.get("body", b"")
            exchange.answer_leaves = bool(body) and answer_in(body) is not None

    @guarded
    def _take_back(self, exchange: Exchange) -> None:
        exchange.take_back()

    @guarded
    def _close(self, raw: RawRequest) -> None:
        """The ASGI call is over; a request that was not answered on it was cancelled or lost its client."""
        if raw.kind != "request":
            return
        if raw.result_ns is not None or raw.channel is None:
            self._hub.requests.end(raw, now_ns(), "cancelled")
        else:
            # The session goes on with it; beyond the session's stream its answer cannot be seen.
            raw.write_seen = False
            raw.gone_ns = now_ns()


class ProbedApp:
    """An ASGI app whose HTTP exchanges are followed. Everything passes through unchanged.

    Its ``__call__`` is a coroutine function, because servers check for one.
    """

    def __init__(self, app: App, hooks: AsgiHooks) -> None:
        self.app = app
        self._hooks = hooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = self._hooks.open(scope)
        if exchange is None:
            await self.app(scope, receive, send)
        else:
            await self._hooks.serve(exchange, partial(self.app, scope, receive), send)

    def __getattr__(self, name: str) -> Any:
        if name == "app":  # a copy being made has no app yet
            raise AttributeError(name)
        return getattr(self.app, name)


def exchange_of(headers: Iterable[tuple[bytes, bytes]], monitor: LoopMonitor | None, hub: Hub) -> Exchange:
    """The exchange of an ASGI call with these headers; ``hub`` is told if a proxy has added to them."""
    size = None
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and len(value) < 19:  # a client may write anything
            size = int(value)
        elif name in OF_A_PROXY:
            hub.behind_proxy = True
    delivery = DELIVERY.get()
    if delivery is not None:
        delivery.claims += 1
    return Exchange(now_ns(), delivery, size, monitor)


def is_event_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a response with these headers is a stream of events."""
    return any(name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)


class _Sorting:
    """The ``send`` of the SDK's own app inside of another app: notes which event is the answer."""

    __slots__ = ("_exchange", "_hooks", "_inner", "guard")

    def __init__(self, hooks: AsgiHooks, exchange: Exchange, inner: Send) -> None:
        self.guard = hooks.events
        self._hooks = hooks
        self._exchange = exchange
        self._inner = inner

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.guard.call(self._hooks.sort, self._exchange, message)
        await self._inner(message)


class _Sending:
    """The ``send`` of one exchange: notes when the answer is taken and flushed."""

    __slots__ = ("_exchange", "_hooks", "_hub", "_inner", "guard")

    def __init__(self, hooks: AsgiHooks, hub: Hub, exchange: Exchange, inner: Send) -> None:
        self.guard = hooks.guard
        self._hooks = hooks
        self._hub = hub
        self._exchange = exchange
        self._inner = inner

    async def send(self, message: MutableMapping[str, Any]) -> None:
        exchange = self._exchange
        if exchange.sorter is None or exchange.sorter is self:
            self._hooks.events.call(self._hooks.sort, exchange, message)
        raw = exchange.raw
        if raw is None or raw.result_ns is None or not self.guard.active or not exchange.answers:
            await self._pass_on(message)
            return
        if not exchange.answer_leaves:
            if exchange.is_stream and not self._hooks.events.active:
                self._lose(raw)
            await self._pass_on(message)
            return
        if raw.write_taken_ns is None:
            self._taken(raw)
        await self._pass_on(message)
        if not raw.ended and message.get("type") == "http.response.body":
            self._flushed(raw, message)

    async def _pass_on(self, message: MutableMapping[str, Any]) -> None:
        began = self._send_begins()
        try:
            await self._inner(message)
        finally:
            self._send_ended(began)

    @guarded
    def _send_begins(self) -> int:
        self._hooks.sending += 1
        return now_ns()

    @guarded
    def _send_ended(self, began: int | None) -> None:
        if began is not None:
            self._hooks.sending -= 1
            if (now := now_ns()) - began > LATE_NS:
                self._hooks.slow_send_ns = now

    @guarded
    def _lose(self, raw: RawRequest) -> None:
        """Nobody can tell when the answer leaves."""
        self._hub.requests.lose_write(raw)
        self._hub.requests.end(raw, now_ns())

    @guarded
    def _taken(self, raw: RawRequest) -> None:
        raw.write_taken_ns = now = now_ns()
        if self._exchange.lent:
            self._exchange.take_back()
        result = raw.result_ns or now
        if not self._hooks.sending and self._hooks.slow_send_ns < result:
            # No answer waited for its client meanwhile, so this one waited for the loop.
            raw.write_waits = ((result, now),)

    @guarded
    def _flushed(self, raw: RawRequest, message: MutableMapping[str, Any]) -> None:
        body = message.get("body", b"")
        if body:
            raw.response_bytes = (raw.response_bytes or 0) + len(body)
            raw.flushed_ns = now = now_ns()
            self._hub.requests.end(raw, now)
