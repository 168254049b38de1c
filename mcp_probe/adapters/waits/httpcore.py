"""Calls of httpx and httpcore, and of httpx2 and httpcore2: their pool, their phases, the connections they open.

A call waits for its pool until httpcore first tells its public ``trace`` extension of a connection or of HTTP. From
then on that extension tells the phases. The pool is asked a copy of the request with our extension in it. The caller's
own extension is called by ours, and what it returns is returned. The stream of a response is wrapped: each read of it
is a wait of its own, for the reader may await something else in between.

A connection is held until httpcore says ``response_closed``. HTTP/2 connections are shared: who holds such a pool, and
how many can, is not known. Names are scheme, host and port; neither path, query nor header is looked at.

Source: httpcore/_async/connection_pool.py, connection.py, http11.py, http2.py, http_proxy.py (1.0), httpcore2 (2.16).
"""

from __future__ import annotations

import copy
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any

from mcp_probe.adapters.hook import Hook
from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.waits.pooled import PooledCall, async_reads, line_of, reads
from mcp_probe.adapters.waits.pools import pool_of
from mcp_probe.capture.awaits import Awaits, Held
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.outbound import DEFAULT_PORTS, NOT_ASKED, READ_NS, Call, Outbound, address
from mcp_probe.capture.places import calling_frame
from mcp_probe.clock import now_ns

LIBRARIES = ("httpcore", "httpcore2")
PACKAGES = frozenset({"httpx", "httpx2", "httpx_sse", "httpcore", "httpcore2"})
"""Whose frames are not the user's."""

UNLIMITED = sys.maxsize
"""What a pool has as its limit if it has none."""

_NEEDED = (("AsyncConnectionPool", "handle_async_request"), ("ConnectionPool", "handle_request"))


class HttpcoreHooks:
    """See the module's text."""

    def __init__(self, hub: Any) -> None:
        self._hub = hub
        self._guards = {library: Hook(hub, f"awaits ({library})") for library in LIBRARIES}

    def install(self, imports: ImportWatch) -> None:
        """Wrap the pools of what is there, and of what is imported later."""
        for library, guard in self._guards.items():
            imports.when_imported(library, guard.guarded(self._wrapper(guard)))

    def restore(self) -> list[str]:
        """Undo it."""
        return [stuck for guard in self._guards.values() for stuck in guard.restore()]

    def _wrapper(self, guard: Hook) -> Callable[[Any], None]:
        def wrap(library: Any) -> None:
            for name, method in _NEEDED:
                if not callable(getattr(getattr(library, name, None), method, None)):
                    version = getattr(library, "__version__", "?")
                    self._hub.missing(
                        guard.name, f"{library.__name__} {version} has no {name}.{method}: looks name its calls"
                    )
                    return
            seam = _Seam(self._hub.awaits, self._hub.outbound, guard)
            for name, method in _NEEDED:
                pool = getattr(library, name)
                guard.replace(pool, "__init__", seam.making)
                guard.replace(pool, method, seam.handling_async if name.startswith("Async") else seam.handling)
            self._hub.working(guard.name)

        return wrap


class _Seam:
    """What is put around the methods of one library's pools."""

    def __init__(self, awaits: Awaits, outbound: Outbound, guard: Hook) -> None:
        self.awaits = awaits
        self.outbound = outbound
        self.guard = guard

    def making(self, original: Any) -> Any:
        guard = self.guard

        @wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if guard.active:
                guard.call(made, self, sys._getframe(1))

        made = self._made
        return __init__

    def handling_async(self, original: Any) -> Any:
        seam, guard = self, self.guard

        @wraps(original)
        async def handle_async_request(self: Any, request: Any) -> Any:
            flight = guard.call(seam.begin, self, request, sys._getframe(1)) if guard.active else None
            if flight is None:
                return await original(self, request)
            ours = guard.call(flight.asking, request, True) or request
            try:
                response = await original(self, ours)
            except BaseException:
                guard.call(flight.failed)
                raise
            guard.call(flight.wrap, response)
            return response

        return handle_async_request

    def handling(self, original: Any) -> Any:
        seam, guard = self, self.guard

        @wraps(original)
        def handle_request(self: Any, request: Any) -> Any:
            flight = guard.call(seam.begin, self, request, sys._getframe(1)) if guard.active else None
            if flight is None:
                return original(self, request)
            ours = guard.call(flight.asking, request, False) or request
            try:
                response = original(self, ours)
            except BaseException:
                guard.call(flight.failed)
                raise
            guard.call(flight.wrap, response)
            return response

        return handle_request

    def _made(self, pool: Any, frame: Any) -> None:
        self._remember(pool, frame, line_of(calling_frame(frame, PACKAGES)))

    def _remember(self, pool: Any, frame: Any, made: str | None) -> Held | None:
        library, keeper = _maker_of(frame)
        most = getattr(pool, "_max_connections", None)
        limit = most if isinstance(most, int) and most != UNLIMITED else None
        return pool_of(self.awaits, pool, f"{library} pool", made, limit, keeper)

    def begin(self, pool: Any, request: Any, frame: Any) -> Flight | None:
        """A request is handed to ``pool``; ``None`` if that is one too many."""
        held = self.awaits.known(pool) or self._remember(pool, frame, None)
        return None if held is None else Flight(self, pool, held, request, calling_frame(frame, PACKAGES))


class Flight(PooledCall):
    """One request on its way through a pool, until its response is closed. Its methods may raise.

    It does not keep the request alive, which has it as its extension.
    """

    __slots__ = ("_method", "_origin", "_read_at", "_theirs", "guard")

    def __init__(self, seam: _Seam, pool: Any, held: Held, request: Any, caller: Any) -> None:
        url = request.url
        scheme = url.scheme.decode("ascii", "replace")
        name = address(scheme, url.host.decode("ascii", "replace"), url.port)
        library = None if hasattr(pool, "handle_async_request") else held.label.partition(" ")[0]
        super().__init__(seam.awaits, seam.outbound, pool, held, name, caller, library)
        self.guard = seam.guard
        self._method = request.method
        self._origin = url.host, DEFAULT_PORTS.get(scheme) if url.port is None else url.port
        self._read_at: str | None = NOT_ASKED
        self._theirs = request.extensions.get("trace")

    def asking(self, request: Any, is_async: bool) -> Any:
        """What the pool is asked instead of ``request``. From now on it waits for the pool."""
        ours = copy.copy(request)
        trace = self._trace if self._theirs is not None or not is_async else self._trace_async
        ours.extensions = {**request.extensions, "trace": trace}
        self.asks()
        return ours

    def _trace(self, name: str, info: Any) -> Any:
        """For httpcore, which awaits what the user's own callback returns."""
        if self.guard.active:
            self.guard.call(self._told, name, info)
        return None if self._theirs is None else self._theirs(name, info)

    async def _trace_async(self, name: str, info: Any) -> None:
        if self.guard.active:
            self.guard.call(self._told, name, info)

    def _told(self, name: str, info: Any) -> None:
        layer, _, what = name.partition(".")
        self.arrives()
        if layer == "http2":
            self.shares()
        step = _STEPS.get(what)
        if step is not None:
            step(self, layer, info)

    def _connecting(self, _: str, info: Any) -> None:
        host, port = info.get("host"), info.get("port")
        by_tcp = isinstance(host, str)
        proxied = by_tcp and (host.encode(), port) != self._origin
        self.turns("connect", "tcp" if by_tcp else None, address("proxy", host, port) if proxied else self.name)

    def _connected(self, *_: Any) -> None:
        self.opened()

    def _securing(self, layer: str, _: Any) -> None:
        self.turns("connect", "tls", None if layer == "connection" else self.name)  # else: on the way through a proxy

    def _retrying(self, *_: Any) -> None:
        self.turns("connect")

    def _sending(self, _: str, info: Any) -> None:
        if info["request"].method == b"CONNECT" != self._method:
            self.turns("connect")  # a proxy is asked for the way
        else:
            self.turns("http", "first-byte", self.name, calls=1)

    def _closed(self, *_: Any) -> None:
        self.gives_back()

    def wrap(self, response: Any) -> None:
        """Its headers have come."""
        self.answered()
        if CURRENT.get() is not None and self.guard.active:
            stream = response.stream
            response.stream = (_AsyncBody if hasattr(stream, "__aiter__") else _Body)(stream, self)

    def read_begins(self) -> Call | None:
        """A part of the body is asked for."""
        return self._outbound.begin("http", self.name, "body", where=self._read_at, library=self.library)

    def read_ends(self, call: Call | None) -> None:
        """It has come, or will not come. Who reads is only asked where the read was a wait: that takes some 10 us."""
        if call is not None and self._read_at is NOT_ASKED and now_ns() - call.began_ns >= READ_NS:
            self._read_at = call.where = line_of(calling_frame(sys._getframe(1), PACKAGES))
        self._outbound.end(call)


_STEPS: dict[str, Callable[[Flight, str, Any], None]] = {
    "connect_tcp.started": Flight._connecting,
    "connect_tcp.complete": Flight._connected,
    "connect_unix_socket.started": Flight._connecting,
    "connect_unix_socket.complete": Flight._connected,
    "start_tls.started": Flight._securing,
    "retry.started": Flight._retrying,
    "send_request_headers.started": Flight._sending,
    "response_closed.complete": Flight._closed,
    "response_closed.failed": Flight._closed,
}


class _Stream:
    """The stream of a response; in everything but its reads it is the original."""

    def __init__(self, stream: Any, flight: Flight) -> None:
        self._stream = stream
        self._flight = flight

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _AsyncBody(_Stream):
    def __aiter__(self) -> AsyncIterator[bytes]:
        flight = self._flight
        return async_reads(self._stream.__aiter__(), flight.guard, flight.read_begins, flight.read_ends)


class _Body(_Stream):
    def __iter__(self) -> Iterator[bytes]:
        flight = self._flight
        return reads(iter(self._stream), flight.guard, flight.read_begins, flight.read_ends)


def _maker_of(frame: Any) -> tuple[str, Any]:
    """(httpx where that uses the pool, else httpcore; the outermost object of theirs that does)."""
    library, keeper = "httpcore", None
    while frame is not None:
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name not in PACKAGES:
            break
        library = name
        keeper = frame.f_locals.get("self", keeper)
        frame = frame.f_back
    return library, keeper
