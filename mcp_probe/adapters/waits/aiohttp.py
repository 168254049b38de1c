"""Calls of aiohttp: sessions that are made from now on get a ``TraceConfig`` of ours, after the user's own.

A session that is older than the probe has none: looks name its calls. A connection is held until aiohttp calls what was
left at it with ``Connection.add_callback``. How a connection to https is made is one phase: aiohttp does not tell TLS
from TCP. Names are scheme, host and port; neither path, query nor header is looked at.

Source: aiohttp/tracing.py, client.py, connector.py (3.9-3.14).
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.waits.library import LibraryHooks
from mcp_probe.adapters.waits.pooled import PooledCall, line_of
from mcp_probe.adapters.waits.pools import pool_of
from mcp_probe.capture.awaits import Held
from mcp_probe.capture.outbound import Call, address
from mcp_probe.capture.places import calling_frame

PACKAGES = frozenset({"aiohttp", "aiosignal"})

_SIGNALS = (
    "on_request_start", "on_connection_queued_start", "on_connection_create_start", "on_connection_create_end",
    "on_connection_reuseconn", "on_dns_resolvehost_start", "on_dns_resolvehost_end", "on_request_redirect",
    "on_request_end", "on_request_exception",
)  # fmt: skip


class _Told(NamedTuple):
    """What aiohttp gives a callback; ``context`` is ours alone."""

    session: Any
    context: Any
    params: Any


class AiohttpHooks(LibraryHooks):
    """See the module's text."""

    hook = "awaits (aiohttp)"
    library = "aiohttp"

    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        self._made: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()  # connector: file:line of its session
        self._hosts: WeakKeyDictionary[Any, dict[str, _Host]] = WeakKeyDictionary()  # of connectors with a limit a host

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, or what is imported later."""
        imports.when_imported("aiohttp", self.guard.guarded(self._wrap))

    def _wrap(self, aiohttp: Any) -> None:
        ours = aiohttp.TraceConfig()
        lacking = [name for name in _SIGNALS if not hasattr(ours, name)]
        if lacking:
            version = getattr(aiohttp, "__version__", "?")
            self._hub.missing(self.hook, f"aiohttp {version} has no TraceConfig.{lacking[0]}: looks name its calls")
            return
        for name in _SIGNALS:
            getattr(ours, name).append(self._callback(name))
        ours.freeze()
        guard, made = self.guard, self._session_made

        def making(original: Any) -> Any:
            @wraps(original)
            def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
                if guard.active:
                    kwargs["trace_configs"] = [*(kwargs.get("trace_configs") or ()), ours]
                original(self, *args, **kwargs)
                if guard.active:
                    guard.call(made, self, sys._getframe(1))

            return __init__

        guard.replace(aiohttp.ClientSession, "__init__", making)
        guard.wrap(aiohttp.ClientResponse, "read", before=self._read_begins, after=self.over)
        self._hub.working(self.hook)

    def _callback(self, signal: str) -> Any:
        """What aiohttp awaits; it never waits."""
        guard = self.guard
        act = getattr(self, signal.removeprefix("on"), None)  # None: of the first one

        async def callback(session: Any, context: Any, params: Any) -> None:
            told = _Told(session, context, params)
            if not guard.active:
                return
            if act is None:
                guard.call(self._begin, told, params.url)
                return
            call = getattr(context, "mcp_probe", None)
            if call is not None:
                guard.call(act, call, told)

        return callback

    def _session_made(self, session: Any, frame: Any) -> None:
        connector = session.connector
        if connector is not None and connector not in self._made:
            self._made[connector] = line_of(calling_frame(frame, PACKAGES))

    # --- what aiohttp tells ---

    def _begin(self, told: _Told, url: Any) -> None:
        connector, name = told.session.connector, _address(url)
        pool, held = self._pool(connector, name, told.session)
        if held is not None:
            caller = calling_frame(sys._getframe(1), PACKAGES)
            told.context.mcp_probe = PooledCall(self._awaits, self._outbound, pool, held, name, caller)

    def _pool(self, connector: Any, name: str, session: Any) -> tuple[Any, Held | None]:
        """What calls of ``name`` wait for: all connections, or those of its host if these have a limit of their own."""
        pool, limit = connector, connector.limit
        label = "aiohttp pool"
        if connector.limit_per_host:
            hosts = self._hosts.setdefault(connector, {})
            pool = hosts.setdefault(name, _Host())
            limit, label = connector.limit_per_host, f"aiohttp pool of {self._outbound.shown('http', name)}"
        held = self._awaits.known(pool)
        return pool, held or pool_of(self._awaits, pool, label, self._made.get(connector), limit or None, session)

    def _connection_queued_start(self, call: PooledCall, told: _Told) -> None:
        call.asks()

    def _connection_create_start(self, call: PooledCall, told: _Told) -> None:
        call.arrives()
        call.turns("connect", _phase_of(call.name))

    def _dns_resolvehost_start(self, call: PooledCall, told: _Told) -> None:
        call.turns("connect", "dns")

    def _dns_resolvehost_end(self, call: PooledCall, told: _Told) -> None:
        call.turns("connect", _phase_of(call.name))

    def _connection_create_end(self, call: PooledCall, told: _Told) -> None:
        call.opened()
        call.turns("http", "first-byte", calls=1)

    def _connection_reuseconn(self, call: PooledCall, told: _Told) -> None:
        call.arrives()
        call.turns("http", "first-byte", calls=1)

    def _request_redirect(self, call: PooledCall, told: _Told) -> None:
        call.failed()
        headers, url = told.params.response.headers, told.params.url
        try:
            target = url.join(type(url)(headers.get("Location") or headers.get("URI") or ""))
        except ValueError:
            return  # aiohttp will not go there either
        self._begin(told, target)

    def _request_end(self, call: PooledCall, told: _Told) -> None:
        call.answered()
        connection = told.params.response.connection
        if connection is None:
            call.gives_back()  # all of the body has come, too
        else:
            connection.add_callback(self.guard.guarded(call.gives_back))

    def _request_exception(self, call: PooledCall, told: _Told) -> None:
        call.failed()

    # --- the body ---

    def _read_begins(self, response: Any) -> Call | None:
        where = line_of(calling_frame(sys._getframe(1), PACKAGES))
        call: Call | None = self._outbound.begin("http", _address(response.url), "body", where=where)
        return call


class _Host:
    """Stands for the connections to one host."""

    __slots__ = ("__weakref__",)


def _phase_of(name: str) -> Any:
    return "tcp" if name.startswith("http:") else None


def _address(url: Any) -> str:
    return address(url.scheme, url.host or "", url.port)
