"""Calls of urllib3, and so of requests: they block their thread, most often one on which a tool runs as a job.

urllib3 does not show its phases, but its connections can be seen to be made. A call that is repeated or redirected is
another call of the same wait. Names are scheme, host and port; neither path, query nor header is looked at.

Source: urllib3/connectionpool.py, connection.py (1.26, 2.0-2.8).
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from mcp_probe.adapters.hook import Hook
from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.waits.pooled import reads
from mcp_probe.capture.awaits import OPEN
from mcp_probe.capture.outbound import Call, address
from mcp_probe.clock import now_ns

HOOK = "awaits (urllib3)"
AT_ONCE_NS = 1_000_000
"""A connection that is made within this time after the call has begun was not waited for before."""


class Urllib3Hooks:
    """See the module's text."""

    def __init__(self, hub: Any) -> None:
        self._hub = hub
        self._outbound = hub.outbound
        self._guard = Hook(hub, HOOK)
        self._backends: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # of responses whose body may be read yet

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, or what is imported later."""
        imports.when_imported("urllib3.connectionpool", self._guard.guarded(self._wrap))

    def restore(self) -> list[str]:
        """Undo it."""
        return self._guard.restore()

    def _wrap(self, module: Any) -> None:
        pool = getattr(module, "HTTPConnectionPool", None)
        if not callable(getattr(pool, "urlopen", None)):
            self._hub.missing(HOOK, "this urllib3 has no HTTPConnectionPool.urlopen: looks name its calls")
            return
        self._guard.replace(pool, "urlopen", self._opening)
        for name in ("HTTPConnection", "HTTPSConnection"):
            connection = getattr(module, name, None)
            if "connect" in vars(connection or object):
                self._guard.replace(connection, "connect", self._connecting)
        response = getattr(sys.modules.get("urllib3.response"), "HTTPResponse", None)
        for name, wrap in (("read", self._reading), ("read_chunked", self._reading_chunks)):
            if name in vars(response or object):
                self._guard.replace(response, name, wrap)
        self._hub.working(HOOK)

    def _opening(self, original: Any) -> Any:
        guard, begins, ends = self._guard, self._begins, self._outbound.end

        @wraps(original)
        def urlopen(self: Any, *args: Any, **kwargs: Any) -> Any:
            call = guard.call(begins, self) if guard.active else None
            if call is None:
                return original(self, *args, **kwargs)
            try:
                response = original(self, *args, **kwargs)
            finally:
                guard.call(ends, call)
            guard.call(answered, response, call.name)
            return response

        answered = self._backends.__setitem__
        return urlopen

    def _reading(self, original: Any) -> Any:
        guard, begins, ends = self._guard, self._read_begins, self._outbound.end

        @wraps(original)
        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            call = guard.call(begins, self) if guard.active else None
            if call is None:
                return original(self, *args, **kwargs)
            try:
                return original(self, *args, **kwargs)
            finally:
                guard.call(ends, call)

        return read

    def _reading_chunks(self, original: Any) -> Any:
        guard, begins, ends = self._guard, self._read_begins, self._outbound.end

        @wraps(original)
        def read_chunked(self: Any, *args: Any, **kwargs: Any) -> Any:
            parts = original(self, *args, **kwargs)
            if not guard.active:
                return parts
            return reads(parts, guard, lambda: begins(self), ends)

        return read_chunked

    def _read_begins(self, response: Any) -> Call | None:
        name = self._backends.get(response)
        call: Call | None = None if name is None else self._outbound.begin("http", name, "body")
        return call

    def _begins(self, pool: Any) -> Call | None:
        by_proxy = getattr(pool, "proxy", None) is not None and pool.host == pool.proxy.host
        name = address("proxy" if by_proxy else str(pool.scheme), str(pool.host).strip("[]"), pool.port)
        around = OPEN.get()
        if isinstance(around, Call) and not around.over and around.kind in ("http", "connect"):
            self._outbound.turn(around, "http", calls=1)  # tried again, or redirected
            around.name = name
            return None
        call: Call | None = self._outbound.begin("http", name, calls=1)
        return call

    def _connecting(self, original: Any) -> Any:
        guard, outbound = self._guard, self._outbound

        @wraps(original)
        def connect(self: Any) -> Any:
            around = OPEN.get()
            outer = around if isinstance(around, Call) and around.kind == "http" and guard.active else None
            if outer is None:
                return original(self)
            calls = guard.call(begins, outer)
            opened = False
            try:
                result = original(self)
                opened = True
                return result
            finally:
                guard.call(ends, outer, opened, calls)

        def begins(call: Call) -> int:
            calls, call.calls = call.calls, 0  # it is sent once there is a connection
            if now_ns() - call.began_ns < AT_ONCE_NS:
                call.kind = "connect"
            else:
                outbound.turn(call, "connect")  # it has waited for its pool
            return calls

        def ends(call: Call, opened: bool, calls: int) -> None:
            call.opened = int(opened)
            if opened:
                outbound.turn(call, "http", calls=calls)

        return connect
