"""HTTP: the ASGI call is the arrival, the ``send`` of the answer is the write.

The bytes may have waited in the socket since a poll that did not find them, so arrival is bounded. An
answer counts as taken at the first ``send`` after its result, and as flushed when the ``send`` of its
body returns (handed to the server's transport buffer, not acknowledged by the peer).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from typing import Any

from mcp_probe.adapters.loops import Loops
from mcp_probe.capture.current import EXCHANGE, Exchange
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.steps import Track
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import WAKE_SOCKET, RawRequest

HOOK = "http transport"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class ProbedApp:
    """An ASGI app whose HTTP exchanges are followed. Everything passes through unchanged.

    Servers look whether an app is a coroutine function. Twin of ``Entrance`` in native/entrance.h, which is none.
    """

    def __init__(self, app: App, gate: Gate) -> None:
        self.app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = self._gate.open(scope)
        if exchange is None:
            await self.app(scope, receive, send)
            return
        token = EXCHANGE.set(exchange)
        try:
            await self.app(scope, receive, self._gate.sender(exchange, send))
        finally:
            EXCHANGE.reset(token)
            raw = exchange.raw
            if raw is not None and not raw.ended:
                self._gate.close(raw)

    def __getattr__(self, name: str) -> Any:
        if name == "app":  # a copy being made has no app yet
            raise AttributeError(name)
        return getattr(self.app, name)


def exchange_of(headers: Iterable[tuple[bytes, bytes]], track: Track | None) -> Exchange:
    """The exchange of an ASGI call with these headers. Twin of ``exchange_of`` in native/exchange.h."""
    size = None
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and len(value) < 19:  # a client may write anything
            size = int(value)
    arrival, earliest = _arrival(track)
    return Exchange(arrival, earliest, size, track)


def _arrival(track: Track | None) -> tuple[int, int | None]:
    """When the bytes came: at the latest, at the earliest (``None``: cannot be known).

    The server read them in a callback of its socket, and the task it began for them inherits when that became
    ready: between the poll that did not find the bytes and the one that did.
    """
    now = now_ns()
    if track is None:
        return now, None
    if track.since and track.wake == WAKE_SOCKET:
        return min(now, track.ready), track.earliest
    return now, track.event_earliest if track.quality == "exact" else track.poll_end


class Gate:
    """Opens and closes exchanges; inert after :meth:`shut`."""

    def __init__(self, hub: Hub, loops: Loops) -> None:
        self._hub = hub
        self._loops = loops
        self.active = True

    def shut(self) -> None:
        """From now on every app passes through."""
        self.active = False

    def entrance(self, app: App) -> Any:
        """``app`` with its exchanges followed, where nobody asks whether it is a coroutine function.

        It may also be a method of a class that is one: its last arguments are ``scope, receive, send``.
        """

        def enter(*args: Any) -> Awaitable[None]:
            outer = EXCHANGE.get()
            if outer is not None and outer.raw is None:  # an outer app has opened it
                return app(*args)
            return self.enter(app, args)

        return enter

    def enter(self, app: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> Awaitable[None]:
        """One call of ``app``, or of a method that is one, with ``args``."""
        return ProbedApp(partial(app, *args[:-3]), self)(*args[-3:])

    def follow(self) -> Track | None:
        """The track of the loop that runs here."""
        return self._loops.follow()

    def open(self, scope: Scope) -> Exchange | None:
        """The exchange of this ASGI call; ``None`` where it is no HTTP request or an outer app has opened it."""
        outer = EXCHANGE.get()
        if not self.active or scope.get("type") != "http" or (outer is not None and outer.raw is None):
            return None
        try:
            track = self._loops.follow()
            headers = scope.get("headers", ())
            return exchange_of(headers, track)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self.failed(exc)
            return None

    def sender(self, exchange: Exchange, send: Send) -> Send:
        """``send`` that notes when the answer is taken and flushed. Twin of ``Send`` in native/send.h."""
        gate = self
        clock = now_ns

        async def probed_send(message: MutableMapping[str, Any]) -> None:
            raw = exchange.raw
            if raw is None or raw.result_ns is None or not gate.active:
                await send(message)
                return
            try:
                if raw.write_taken_ns is None:
                    raw.write_taken_ns = clock()
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                gate.failed(exc)
            await send(message)
            if not raw.ended and message.get("type") == "http.response.body":
                gate._flushed(raw, message)

        return probed_send

    def _flushed(self, raw: RawRequest, message: MutableMapping[str, Any]) -> None:
        try:
            body = message.get("body", b"")
            if body:
                raw.response_bytes = (raw.response_bytes or 0) + len(body)
                raw.flushed_ns = now = now_ns()
                self._hub.desk.end(raw, now)
        except Exception as exc:  # noqa: BLE001
            self.failed(exc)

    def close(self, raw: RawRequest) -> None:
        """The ASGI call is over; a request that was not answered on it was cancelled or lost its client."""
        if raw.kind != "request":
            return
        try:
            if raw.result_ns is not None or raw.channel is None:
                self._hub.desk.end(raw, now_ns(), "cancelled")
            else:
                # The session goes on with it; its answer can be seen no further than the session's stream.
                raw.write_seen = False
        except Exception as exc:  # noqa: BLE001
            self.failed(exc)

    def failed(self, exc: Exception) -> None:
        """A fault of ours: every app passes through from now on."""
        self.active = False
        self._hub.fail(HOOK, exc)
