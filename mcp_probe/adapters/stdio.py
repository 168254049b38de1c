"""The SDK's stdio transport (mcp 2.x): raw reads, lines, the writer, its writes and flushes.

Two private names of ``mcp.server.stdio`` are substituted while it builds a transport: the text
wrapper (its raw reads and flushes happen in worker threads) and the stream pairs between transport
and server. Passing own ``stdin``/``stdout`` instead would lose the SDK's claim of fd 0 and 1.

Source: mcp/server/stdio.py and mcp/shared/_context_streams.py, 2.0-2.3.
"""

from __future__ import annotations

import threading
from contextvars import Context
from functools import partial
from importlib import metadata
from typing import Any

from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.patching import Patches
from mcp_probe.capture.current import reset_for_transport_task
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.queueing import Channel
from mcp_probe.capture.read import LineStamps, StampedBuffer
from mcp_probe.capture.streams import FromServer, IntoServer, IntoTransport
from mcp_probe.capture.transport import CALLS, TransportCall
from mcp_probe.model import DOES_NOT_APPLY

HOOK = "stdio transport"


async def send_in(inner: Any, item: Any, context: Context) -> None:
    """Send on a ``ContextSendStream`` as if from ``context``."""
    await inner._inner.send((context, item))


class StdioHooks:
    """Substitutes for ``mcp.server.stdio``'s private parts."""

    def __init__(self, hub: Hub, loops: Loops) -> None:
        self._hub = hub
        self._loops = loops
        self._patches = Patches()
        self._building = threading.local()
        self._calls: list[TransportCall] = []
        self.active = False

    def install(self, module: Any) -> None:
        """Patch ``module`` (``mcp.server.stdio``), if it is shaped as we know it."""
        wrapper = vars(module).get("_UnownedTextWrapper")
        streams = vars(module).get("create_context_streams")
        if wrapper is None and metadata.version("mcp").startswith("1."):
            self._hub.hooks[HOOK] = f"{DOES_NOT_APPLY}: mcp 1.x shows neither its queue nor its flush"
            return
        if wrapper is None or streams is None:
            self._hub.missing(HOOK, "this mcp builds its stdio transport another way; queue and write are unavailable")
            return
        self.active = True
        self._patches.replace(module, "_UnownedTextWrapper", self._wrapper_class(wrapper))
        self._patches.replace(module, "create_context_streams", _StreamFactory(self, streams))
        self._hub.working(HOOK)

    def restore(self) -> list[str]:
        """Undo it; transports that are open pass through from now on."""
        self.active = False
        for call in self._calls:
            call.alive = False
        self._calls.clear()
        return self._patches.restore()

    def _channel(self) -> Channel:
        channel: Channel | None = getattr(self._building, "channel", None)
        if channel is None:
            channel = Channel(self._hub.desk, "stdio", self._hub.ready)
            self._building.channel = channel
            self._building.pairs = 0
        return channel

    def _wrapper_class(self, base: Any) -> Any:
        hooks = self

        class ProbedTextWrapper(base):  # type: ignore[misc]
            def __init__(self, buffer: Any, *args: Any, **kwargs: Any) -> None:
                channel = None
                if hooks.active:
                    try:
                        channel = hooks._channel()
                        if buffer.readable():
                            channel.stamps = channel.stamps or LineStamps()
                            buffer = StampedBuffer(buffer, channel.stamps, lambda exc: hooks._hub.fail(HOOK, exc))
                        else:
                            channel.writer_seen = True
                    except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                        hooks._hub.fail(HOOK, exc)
                super().__init__(buffer, *args, **kwargs)
                if channel is not None:
                    hooks._stand_in(self, channel)

        ProbedTextWrapper.__name__ = base.__name__
        ProbedTextWrapper.__qualname__ = base.__qualname__
        return ProbedTextWrapper

    def _stand_in(self, wrapper: Any, channel: Channel) -> None:
        """Put our own calls before the methods that the transport runs on worker threads."""
        names = ("readline",) if wrapper.readable() else ("write", "flush")
        for name in names:
            original = getattr(wrapper, name)
            call = TransportCall(CALLS[name], original, channel, partial(self._hub.fail, HOOK))
            setattr(wrapper, name, call)
            self._calls.append(call)

    def pair(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        """Wrap the next stream pair of the transport being built: first the reader's, then the writer's."""
        if not self.active:
            return pair
        try:
            track = self._loops.follow()
            reset_for_transport_task()
            channel = self._channel()
            channel.track = track
            self._building.pairs += 1
            if self._building.pairs == 1:
                if not hasattr(pair[0], "_inner"):
                    raise TypeError(f"{type(pair[0]).__name__} carries its context in another way than we know")
                return IntoServer(pair[0], channel, self._hub.fail, send_in), OfChannel(pair[1], channel)
            self._building.channel = None
            self._hub.channels.append(channel)
            return FromServer(pair[0], channel, self._hub.fail), IntoTransport(pair[1], channel, self._hub.fail)
        except Exception as exc:  # noqa: BLE001
            self._building.channel = None
            self._hub.fail(HOOK, exc)
            return pair


class OfChannel:
    """The read stream handed to the server, saying which channel it belongs to; all else is the SDK's own."""

    def __init__(self, inner: Any, channel: Channel) -> None:
        self._inner = inner
        self.mcp_probe_channel = channel

    def __aiter__(self) -> Any:
        return self._inner.__aiter__()

    async def __anext__(self) -> Any:
        return await self._inner.__anext__()

    async def __aenter__(self) -> Any:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:
        return await self._inner.__aexit__(*exc)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _StreamFactory:
    """Stands for ``create_context_streams``, its subscript included."""

    def __init__(self, hooks: StdioHooks, original: Any) -> None:
        self._hooks = hooks
        self._original = original

    def __getitem__(self, item: Any) -> _StreamFactory:
        return self

    def __call__(self, max_buffer_size: float = 0) -> tuple[Any, Any]:
        return self._hooks.pair(self._original(max_buffer_size))
