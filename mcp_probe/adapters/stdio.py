"""The SDK's stdio transport: raw reads, lines, the writer, its writes and flushes.

Two private names of ``mcp.server.stdio`` are wrapped: what makes its text wrappers (their reads and flushes happen in
worker threads) and what makes the stream pairs between transport and server. Passing own ``stdin``/``stdout``
instead would lose the SDK's claim of fd 0 and 1.

mcp 2.x has a text wrapper of its own there, and pairs that carry the sender's context. mcp 1.x has the names
``TextIOWrapper`` and ``anyio``; both stand for something that passes everything on.

Source: mcp/server/stdio.py, 1.6-1.30 and 2.0-2.3; mcp/shared/_context_streams.py, 2.0-2.3.
"""

from __future__ import annotations

import io
import sys
import threading
from contextvars import Context
from functools import partial
from typing import Any

from mcp_probe.adapters.hook import Hook, guarded
from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.stdout import StdoutHook
from mcp_probe.capture.current import reset_for_transport_task
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.messages import Channel
from mcp_probe.capture.stdin_reads import LineStamps, StampedRead
from mcp_probe.capture.stdio_jobs import CALLS, OwnMethod, TransportCall
from mcp_probe.capture.streams import FromServer, IntoServer, IntoTransport, WithChannel
from mcp_probe.model import STEPS

HOOK = "stdio transport"


async def send_in(inner: Any, item: Any, context: Context) -> None:
    """Send on a ``ContextSendStream`` as if from ``context``: it copies the context that its first step runs in."""
    await _BeginningIn(context, inner.send(item))


class _BeginningIn:
    """Runs a coroutine whose first step is made in ``context``, and the others as they come."""

    __slots__ = ("_begin", "_coroutine")

    def __init__(self, context: Context, coroutine: Any) -> None:
        self._begin: Any = context.run
        self._coroutine = coroutine

    def __await__(self) -> _BeginningIn:
        return self

    def __iter__(self) -> _BeginningIn:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        begin, self._begin = self._begin, None
        return self._coroutine.send(value) if begin is None else begin(self._coroutine.send, value)

    def throw(self, *exc: Any) -> Any:
        return self._coroutine.throw(*exc)

    def close(self) -> None:
        self._coroutine.close()


def _instead(ours: Any, original: Any) -> Any:
    return ours


def _own_method(method: Any, owner: Any) -> Any:
    """``method``, without keeping ``owner`` alive if it is one of its class's."""
    if getattr(method, "__self__", None) is not owner:
        return method
    try:
        return OwnMethod(owner, method.__name__)
    except (AttributeError, TypeError):  # somebody's own object, which allows no weak reference
        return method


class StdioHooks:
    """Hooks on ``mcp.server.stdio``'s private parts."""

    def __init__(self, hub: Hub, loops: Loops) -> None:
        self._hub = hub
        self._loops = loops
        self.guard = Hook(hub, HOOK)
        self._stdout = StdoutHook(hub)
        self._building = threading.local()

    def install(self, module: Any) -> None:
        """Patch ``module`` (``mcp.server.stdio``), if it is shaped as we know it."""
        names = vars(module)
        wrapper = names.get("_UnownedTextWrapper")
        if wrapper is not None and "create_context_streams" in names:
            self.guard.wrap(wrapper, "__init__", after=self._initialized)
            self.guard.replace(module, "create_context_streams", lambda original: _StreamFactory(self, original))
        elif names.keys() >= {"TextIOWrapper", "anyio"} and "create_context_streams" not in names:  # mcp 1.x
            self.guard.replace(module, "TextIOWrapper", lambda original: _WrapperFactory(self, original))
            streams = _StreamFactory(self, names["anyio"].create_memory_object_stream)
            self.guard.replace(module, "anyio", lambda original: _With(original, create_memory_object_stream=streams))
        else:
            self._hub.missing(HOOK, "this mcp builds its stdio transport another way; queue and write are unavailable")
            return
        self._hub.working(HOOK)

    def restore(self) -> list[str]:
        """Undo it; transports that are open pass through from now on."""
        return [*self._stdout.restore(), *self.guard.restore()]

    def _channel(self) -> Channel:
        channel: Channel | None = getattr(self._building, "channel", None)
        if channel is None:
            channel = Channel(self._hub.requests, "stdio", self._hub.ready)
            self._building.channel = channel
            self._building.pairs = 0
        return channel

    def _initialized(self, args: tuple[Any, ...], _: Any, error: BaseException | None) -> None:
        if error is None:
            self.wrapped(args[0])

    def wrapped(self, wrapper: Any) -> None:
        """A text wrapper of the transport has been made."""
        channel = self._channel()
        # What stands for stdout may be readable, too (an io.BytesIO); the SDK serves such a one in place.
        if wrapper.readable() and wrapper.buffer is not getattr(sys.stdout, "buffer", None):
            self._stamp_reads(wrapper.buffer, channel)
            names = ["readline"]
        else:
            channel.writer_seen = channel.times_writes = True
            self._stdout.guard.call(self._stdout.follow, wrapper)
            names = ["write", "flush"]
        for name in names:
            call = TransportCall(CALLS[name], OwnMethod(wrapper, name), channel, self.guard)
            self.guard.replace(wrapper, name, partial(_instead, call))

    def _stamp_reads(self, buffer: Any, channel: Channel) -> None:
        """Stamp each read of the text wrapper's binary ``buffer``, of whatever type it is.

        The method is the one that ``io.TextIOWrapper`` calls. An object that does not let us is left as it is; when
        its lines came off the pipe is unavailable then.
        """
        stamps = LineStamps()
        reading = Guard(HOOK, self._hub.fail, stamps.stop)
        try:
            name = "read1" if hasattr(buffer, "read1") else "read"
            self.guard.replace(buffer, name, lambda own: StampedRead(_own_method(own, buffer), stamps, reading))
        except Exception as exc:  # noqa: BLE001 - somebody's own object: whatever it raises, it is served as it is
            self._hub.missing(f"{HOOK}: reads", f"this stdin cannot be followed ({type(exc).__name__})")
            return
        if type(buffer) in (io.BufferedReader, io.FileIO):  # others may hold bytes that are in no pipe any more
            stamps.descriptor = buffer.fileno()
        channel.stamps = stamps

    def pair(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        """Wrap the next stream pair of the transport being built: first the reader's, then the writer's."""
        return (self._pair(pair) if self.guard.active else None) or pair

    @guarded
    def _pair(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        monitor = self._loops.follow()
        reset_for_transport_task()
        channel = self._channel()
        if channel.stamps is not None:
            channel.stamps.loop_is_seen = monitor is not None and bool(monitor.shows & STEPS)
        self._building.pairs += 1
        if self._building.pairs == 1:
            carries = hasattr(pair[1], "last_context")
            if carries and not hasattr(pair[0], "_inner"):
                raise TypeError(f"{type(pair[0]).__name__} carries its context in an unknown way")
            if not carries:
                channel.handed = {}
            into = IntoServer(pair[0], channel, self._hub.fail, send_in if carries else None, self._hub.input_ended)
            return into, WithChannel(pair[1], channel)
        self._building.channel = None
        self._hub.add_channel(channel)
        return FromServer(pair[0], channel, self._hub.fail), IntoTransport(pair[1], channel, self._hub.fail)


class _With:
    """Stands for ``module``, with some names of its own."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _WrapperFactory:
    """Stands for ``io.TextIOWrapper`` where the transport makes its text wrappers."""

    def __init__(self, hooks: StdioHooks, original: Any) -> None:
        self._hooks = hooks
        self._original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        wrapper = self._original(*args, **kwargs)
        if self._hooks.guard.active:
            self._hooks.guard.call(self._hooks.wrapped, wrapper)
        return wrapper

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _StreamFactory:
    """Stands for what makes stream pairs, its subscript included."""

    def __init__(self, hooks: StdioHooks, original: Any) -> None:
        self._hooks = hooks
        self._original = original

    def __getitem__(self, item: Any) -> _StreamFactory:
        return _StreamFactory(self._hooks, self._original[item])

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return self._hooks.pair(self._original(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
