"""The stream pair that a server is run with: a transport's own, which is followed already, or anybody's.

Source: mcp/server/lowlevel/server.py, ``Server.run``, 1.6-1.30 and 2.0-2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mcp_probe.adapters.hook import guarded
from mcp_probe.adapters.loops import Loops
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.messages import Channel
from mcp_probe.capture.streams import FromServer, FromTransport, rejoined

Pair = tuple[Any, Any]


class ServerStreams:
    """Follows the pairs of one server for ``session``, as long as ``is_on`` says so."""

    def __init__(self, hub: Hub, loops: Loops, session: Any, is_on: Callable[[], bool]) -> None:
        self._hub = hub
        self._loops = loops
        self._session = session
        self._is_on = is_on
        self.guard = Guard("streams", hub.fail)

    def around_run(
        self,
        original: Any,
        begins: Callable[[], None] = lambda: None,
        within: Callable[[Pair], Pair] = lambda pair: pair,
    ) -> Any:
        """``original``, a server's ``run``: calls ``begins``; its pair is followed, then as ``within`` returns it."""

        @wraps(original)
        async def run(*args: Any, **kwargs: Any) -> Any:
            if self._is_on():
                begins()
            named = [name for name in ("read_stream", "write_stream") if name in kwargs]
            channel = None
            if len(args) + len(named) >= 2:
                first = args[: 2 - len(named)]
                pair = within(self.followed(*first, *(kwargs[name] for name in named)))
                channel = getattr(pair[0], "mcp_probe_channel", None)
                args = (*pair[: len(first)], *args[len(first) :])
                kwargs.update(zip(named, pair[len(first) :], strict=True))
            try:
                return await original(*args, **kwargs)
            finally:
                if channel is not None:
                    self.guard.call(channel.close)
                self._hub.transport_closed()

        return run

    def followed(self, read_stream: Any, write_stream: Any, transport: str = "streams") -> Pair:
        """The stream pair with every message noted; a pair that its transport already follows stays as it is."""
        found = self._follow(read_stream, write_stream, transport) if self._is_on() else None
        return found or (read_stream, write_stream)

    @guarded
    def _follow(self, read_stream: Any, write_stream: Any, transport: str) -> Pair | None:
        channel = getattr(read_stream, "mcp_probe_channel", None)
        if channel is not None:
            channel.session = channel.session or self._session
            wrapped = rejoined(read_stream, self._hub.fail)
            return None if wrapped is None else (wrapped, write_stream)
        self._loops.follow()
        channel = Channel(self._hub.requests, transport, self._hub.ready)
        channel.session = self._session
        reading = FromTransport(read_stream, channel, self._hub.fail)
        reading.mcp_probe_channel = channel
        return reading, FromServer(write_stream, channel, self._hub.fail)
