"""Stand-ins for the SDK's memory streams: everything passes through, messages are noted on the way.

A stand-in that fails once becomes a plain pass-through (measurement.md, "It must not hurt").

Others wrap these streams, too, inside or outside of ours. Their wrapper may iterate in a way of its own, and may show
another context than the sender's (OpenInference). Messages are read as it gives them. Its context gets what ours has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context, copy_context
from typing import Any, Protocol

from mcp_probe.capture.current import CURRENT, EXCHANGE
from mcp_probe.capture.guard import Fail, Guard, guarded
from mcp_probe.capture.messages import Channel, message_in
from mcp_probe.record.raw import RawRequest

SendIn = Callable[[Any, Any, Context], Awaitable[None]]
"""Send an item on a context-carrying stream as if from the given context."""


class _Passing:
    """A stream that passes everything on to ``inner``."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aenter__(self) -> Any:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:
        return await self._inner.__aexit__(*exc)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _StandIn(_Passing):
    hook = "queueing"

    def __init__(self, inner: Any, channel: Channel, fail: Fail) -> None:
        super().__init__(inner)
        self._channel: Channel | None = channel
        self.guard = Guard(self.hook, fail)  # no reference to this object: a cycle would wait for the garbage collector

    def _let_go(self) -> None:
        self._channel = None

    def _followed(self) -> Channel | None:
        """The channel; ``None`` once a part of ours has failed or the probe was detached."""
        channel = self._channel
        if channel is not None:
            session = channel.session
            if not self.guard.active or channel.requests.closed or (session is not None and not session.attached):
                self._let_go()
                return None
        return channel


class _Receiving(_StandIn):
    def __init__(self, inner: Any, channel: Channel, fail: Fail) -> None:
        super().__init__(inner, channel, fail)
        self._items = inner

    async def receive(self) -> Any:
        item = await self._inner.receive()
        self._note(item)
        return item

    def _note(self, item: Any) -> None:
        raise NotImplementedError

    def __aiter__(self) -> Any:
        self._items = self._inner.__aiter__()
        return self

    async def __anext__(self) -> Any:
        item = await self._items.__anext__()
        self._note(item)
        return item


class FromTransport(_Receiving):
    """The read stream handed to a server: opens a request for each message that leaves it.

    ``last_context`` is the context the SDK runs the message's handler in; it carries the request.
    """

    last_context: Context | None = None
    mcp_probe_channel: Channel | None = None

    @guarded
    def _note(self, item: Any) -> None:
        context = getattr(self._inner, "last_context", None)
        self.last_context = context
        channel = self._followed()
        if channel is None:
            return
        if hasattr(self._inner, "__wrapped__"):
            context = _with_exchange(self._inner, context)
        carrying = channel.received(item, copy_context() if context is None else context)
        if carrying is not None:
            self.last_context = carrying
            _size(channel, carrying.get(CURRENT), item)


class Rejoining(_Receiving):
    """The read stream of a followed transport, wrapped by somebody else: their context gets the request again."""

    last_context: Context | None = None

    def __init__(self, inner: Any, channel: Channel, fail: Fail) -> None:
        super().__init__(inner, channel, fail)
        self.mcp_probe_channel = channel

    @guarded
    def _note(self, item: Any) -> None:
        context = self.last_context = getattr(self._inner, "last_context", None)
        channel = self._followed()
        if channel is None or context is None:
            return
        request_id = getattr(message_in(item)[0], "id", None)
        for carried in contexts_of(self._inner):
            raw = carried.get(CURRENT)
            if raw is not None and raw.channel is channel and raw.request_id == request_id:
                if carried is not context:
                    self.last_context = context = context.copy()
                    context.run(CURRENT.set, raw)
                    context.run(EXCHANGE.set, carried.get(EXCHANGE))
                return


class WithChannel(_Passing):
    """The read stream handed to the server, saying which channel it belongs to; all else is the SDK's own."""

    def __init__(self, inner: Any, channel: Channel | None = None) -> None:
        super().__init__(inner)
        self.mcp_probe_channel = channel

    def __aiter__(self) -> Any:
        return self._inner.__aiter__()

    async def __anext__(self) -> Any:
        return await self._inner.__anext__()


class IntoServer(_StandIn):
    """The send end a transport's reader uses: opens a request as its line leaves the transport.

    ``send_in`` carries the request to its handler; streams that carry no context (mcp 1.x) have none. ``ended`` is
    awaited before the stream is closed: the transport's input has ended, and the server will.
    """

    def __init__(
        self,
        inner: Any,
        channel: Channel,
        fail: Fail,
        send_in: SendIn | None = None,
        ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(inner, channel, fail)
        self._send_in = send_in
        self._ended = ended

    async def __aexit__(self, kind: Any, *exc: Any) -> Any:
        try:
            if kind is None:
                await self.guard.wait_for(self._end)
        finally:
            closed = await super().__aexit__(kind, *exc)
        return closed

    async def _end(self) -> None:
        if self._ended is not None and self._followed() is not None:
            await self._ended()

    def _let_go(self) -> None:
        if self._channel is not None and self._channel.stamps is not None:
            self._channel.stamps.stop()  # nobody else consumes them
        super()._let_go()

    async def send(self, item: Any) -> None:
        context = self._note(item)
        if context is None or self._send_in is None:
            await self._inner.send(item)
        else:
            await self._send_in(self._inner, item, context)

    @guarded
    def _note(self, item: Any) -> Context | None:
        channel = self._followed()
        if channel is None:
            return None
        carrying = channel.received(item, None if self._send_in is None else copy_context())
        if carrying is not None:
            _size(channel, carrying.get(CURRENT), item)
        elif channel.handed is not None:
            _size(channel, channel.handed.get(id(item)), item)
        return carrying


class Receiver(Protocol):
    """Whoever follows what a session's receive loop does with a message (mcp 1.x)."""

    def takes(self, raw: RawRequest, item: Any) -> None:
        """The loop works on ``raw`` from now on, on the calling task."""

    def waits(self) -> None:
        """The loop is done with it: handled, answered, or handed to a task of its own."""


class IntoSession(_Receiving):
    """The read stream as a session of mcp 1.x reads it: says when its receive loop takes a message, and is done."""

    def __init__(self, inner: Any, channel: Channel, fail: Fail, receiver: Receiver) -> None:
        super().__init__(inner, channel, fail)
        self.mcp_probe_channel = channel
        self.receiver = receiver

    async def receive(self) -> Any:
        self._wait()
        return await super().receive()

    async def __anext__(self) -> Any:
        self._wait()
        return await super().__anext__()

    @guarded
    def _wait(self) -> None:
        self.receiver.waits()

    @guarded
    def _note(self, item: Any) -> None:
        channel = self._followed()
        raw = None if channel is None or channel.handed is None else channel.handed.pop(id(item), None)
        if raw is not None:
            self.receiver.takes(raw, item)


class FromServer(_StandIn):
    """The write stream handed to a server: recognises each answer on its way out."""

    hook = "write"

    async def send(self, item: Any) -> None:
        channel = self._channel
        if channel is None:
            await self._inner.send(item)
            return
        raw = self._sending(channel, item)
        try:
            await self._inner.send(item)
        except BaseException:
            self._not_sent(channel, item, raw)
            raise
        if raw is not None and not raw.write_seen:
            self._handed_over(channel, raw)

    @guarded
    def _sending(self, channel: Channel, item: Any) -> RawRequest | None:
        raw = channel.sending(item)
        sizer = channel.requests.sizer
        if sizer is not None and raw is not None:
            sizer.result(raw, message_in(item)[0])
        return raw

    @guarded
    def _not_sent(self, channel: Channel, item: Any, raw: RawRequest | None) -> None:
        channel.not_sent(item, raw)

    @guarded
    def _handed_over(self, channel: Channel, raw: RawRequest) -> None:
        channel.handed_over(raw)


class IntoTransport(_Receiving):
    """The receive end a transport's writer uses: knows when each answer is taken."""

    hook = "write"

    @guarded
    def _note(self, item: Any) -> None:
        if self._channel is not None:
            self._channel.taken(item)


def rejoined(stream: Any, fail: Fail) -> Rejoining | None:
    """A stand-in for ``stream`` where somebody else has wrapped a transport's stream that is followed."""
    channel = getattr(stream, "mcp_probe_channel", None)
    if channel is None or channel.handed is not None or type(stream) is Rejoining:
        return None
    inner = stream
    while issubclass(type(inner), _Passing):  # a proxy of wrapt passes for an instance of what it wraps
        inner = inner._inner
    return Rejoining(stream, channel, fail) if hasattr(inner, "__wrapped__") else None


def contexts_of(stream: Any) -> Iterator[Context]:
    """The contexts that ``stream`` and each stream inside it show for their last message."""
    while stream is not None:
        context = getattr(stream, "last_context", None)
        if context is not None:
            yield context
        stream = stream._inner if issubclass(type(stream), _Passing) else getattr(stream, "__wrapped__", None)


def _with_exchange(stream: Any, context: Context | None) -> Context | None:
    """``context`` with the HTTP exchange that the sender's has."""
    *_, sender = (context, *contexts_of(stream))
    if context is None or sender is None or sender is context:
        return sender
    context = context.copy()
    context.run(EXCHANGE.set, sender.get(EXCHANGE))
    return context


def _size(channel: Channel, raw: RawRequest | None, item: Any) -> None:
    """Size the arguments of ``item``, which is ``raw``, if the tier (detailed) does so."""
    sizer = channel.requests.sizer
    if sizer is not None and raw is not None:
        sizer.arguments(raw, message_in(item)[0])
