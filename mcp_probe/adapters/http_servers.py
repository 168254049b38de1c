"""HTTP servers: each read of a connection is stamped where the server hands it to its parser.

An ASGI call has no socket, and comes when the server gets round to it. uvicorn's protocols are called by the loop with
what it has read; hypercorn reads in a task of the connection. What was read is put into the context of that call, and
the task that the server begins for the request inherits it.

Source: uvicorn/protocols/http/httptools_impl.py and h11_impl.py, 0.30-0.54; hypercorn/protocol/__init__.py and h11.py,
asyncio/tcp_server.py and trio/tcp_server.py, 0.17-0.18.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary, ref

from mcp_probe.adapters.hook import Hook
from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.loops import Loops
from mcp_probe.capture.current import DELIVERY
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.socket_reads import SocketReads

HOOK = "http reads"


class HttpServerHooks:
    """Stamps what uvicorn and hypercorn read, from their import on."""

    def __init__(self, hub: Hub, loops: Loops) -> None:
        self._hub = hub
        self._loops = loops
        self.guard = Hook(hub, HOOK)
        self._reads: WeakKeyDictionary[Any, SocketReads] = WeakKeyDictionary()  # of each connection's protocol

    def install(self, imports: ImportWatch) -> None:
        """Patch the servers that are imported, and those that will be."""
        for name, patch in (
            ("uvicorn.protocols.http.httptools_impl", self._patch_httptools),
            ("uvicorn.protocols.http.h11_impl", self._patch_h11),
            ("hypercorn.protocol", self._patch_hypercorn),
        ):
            imports.when_imported(name, self.guard.guarded(patch))

    def restore(self) -> list[str]:
        """Undo it."""
        return self.guard.restore()

    def _patch_httptools(self, module: ModuleType) -> None:
        self.guard.wrap(module.HttpToolsProtocol, "data_received", before=self._httptools_read)
        self._hub.working(HOOK)

    def _patch_h11(self, module: ModuleType) -> None:
        self.guard.wrap(module.H11Protocol, "data_received", before=self._h11_read)
        self._hub.working(HOOK)

    def _patch_hypercorn(self, module: ModuleType) -> None:
        self.guard.wrap(module.ProtocolWrapper, "handle", before=self._hypercorn_read)
        self._hub.working(HOOK)

    def _httptools_read(self, protocol: Any, data: bytes) -> None:
        scope, cycle = protocol.scope, protocol.cycle
        begun = scope is not None and (cycle is None or cycle.scope is not scope)
        goes_on = begun or (cycle is not None and cycle.more_body and not cycle.response_complete)
        self._read(protocol, protocol.transport, len(data), _more_in_httptools, goes_on=goes_on)

    def _h11_read(self, protocol: Any, data: bytes) -> None:
        self._read(protocol, protocol.transport, len(data), _more_in_h11, goes_on=_goes_on(protocol.conn))

    def _hypercorn_read(self, wrapper: Any, event: Any) -> None:
        data = getattr(event, "data", None)
        if not data:  # the connection was closed
            return
        server = wrapper.send.__self__  # a TCPServer
        reader = getattr(server, "reader", None)
        if reader is None:
            transport, held = _OfTrio(server.stream), False
        else:
            transport, held = server.writer.transport, bool(getattr(reader, "_buffer", True))
        connection = _h11_of(wrapper)
        if connection is None:
            # While a stream is open, its answer or its body may have kept the server from reading.
            more = {"interleaves": True, "is_reading": not wrapper.protocol.streams}
        else:
            more = {"goes_on": _goes_on(connection)}
        self._read(wrapper, transport, len(data), _more_in_hypercorn, held=held, **more)

    def _read(
        self,
        protocol: Any,
        transport: Any,
        size: int,
        more: Callable[[Any], bool],
        *,
        goes_on: bool = False,
        held: bool = False,
        interleaves: bool = False,
        is_reading: bool = True,
    ) -> None:
        reads = self._reads.get(protocol)
        if reads is None:
            reads = self._reads[protocol] = SocketReads(self.guard, _asked_of(ref(protocol), more))
        reads.interleaves = interleaves
        monitor = self._loops.follow()
        since = None if monitor is None or not is_reading else monitor.read_since_ns()
        is_plain = transport.get_extra_info("sslcontext") is None
        encrypted = 0 if is_plain else _undeciphered(transport)
        delivery = reads.read(
            transport.get_extra_info("socket"),
            size,
            since,
            goes_on=goes_on,
            is_plain=is_plain,
            held=held or bool(encrypted),
            is_partial=encrypted is None,
        )
        DELIVERY.set(delivery)


class _OfTrio:
    """What an asyncio transport says, of a trio stream."""

    def __init__(self, stream: Any) -> None:
        self._ssl_protocol = stream
        inner = getattr(stream, "transport_stream", None)
        self._said = {"socket": (stream if inner is None else inner).socket, "sslcontext": inner}

    def get_extra_info(self, name: str) -> Any:
        return self._said[name]


def _undeciphered(transport: Any) -> int | None:
    """Bytes of TLS records that were read and not deciphered; ``None``: unknown, as on uvloop."""
    incoming = getattr(getattr(transport, "_ssl_protocol", None), "_incoming", None)
    return getattr(incoming, "pending", None)


def _goes_on(connection: Any) -> bool:
    """Whether a request has begun and is not complete, by the server's ``h11.Connection``."""
    return connection.their_state is sys.modules["h11"].SEND_BODY or bool(connection.trailing_data[0])


def _asked_of(protocol: Callable[[], Any], more: Callable[[Any], bool]) -> Callable[[], bool]:
    def has_more() -> bool:
        found = protocol()
        return found is None or more(found)

    return has_more


def _more_in_httptools(protocol: Any) -> bool:
    return bool(protocol.pipeline) or protocol.cycle.scope is not protocol.scope


def _more_in_h11(protocol: Any) -> bool:
    return bool(protocol.conn.trailing_data[0])


def _h11_of(wrapper: Any) -> Any:
    """The ``h11.Connection`` of hypercorn's protocol; ``None``: it speaks HTTP/2, which interleaves requests."""
    connection = getattr(wrapper.protocol, "connection", None)
    return connection if hasattr(connection, "trailing_data") else None


def _more_in_hypercorn(wrapper: Any) -> bool:
    connection = _h11_of(wrapper)
    return connection is None or bool(connection.trailing_data[0])
