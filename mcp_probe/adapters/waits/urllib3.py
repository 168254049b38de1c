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

from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.waits.library import LibraryHooks
from mcp_probe.adapters.waits.pooled import reads
from mcp_probe.capture.awaits import OPEN
from mcp_probe.capture.outbound import Call, address
from mcp_probe.clock import now_ns

AT_ONCE_NS = 1_000_000
"""A connection that is made within this time after the call has begun was not waited for before."""


class Urllib3Hooks(LibraryHooks):
    """See the module's text."""

    hook = "awaits (urllib3)"
    library = "urllib3"

    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        self._backends: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # of responses whose body may be read yet

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, or what is imported later."""
        imports.when_imported("urllib3.connectionpool", self.guard.guarded(self._wrap))

    def _wrap(self, module: Any) -> None:
        pool = getattr(module, "HTTPConnectionPool", None)
        if not callable(getattr(pool, "urlopen", None)):
            self._hub.missing(self.hook, "this urllib3 has no HTTPConnectionPool.urlopen: looks name its calls")
            return
        self.guard.wrap(pool, "urlopen", before=self._begins, after=self._answered)
        for name in ("HTTPConnection", "HTTPSConnection"):
            connection = getattr(module, name, None)
            if "connect" in vars(connection or object):
                self.guard.wrap(connection, "connect", before=self._connects, after=self._connected)
        response = getattr(sys.modules.get("urllib3.response"), "HTTPResponse", None)
        if "read" in vars(response or object):
            self.guard.wrap(response, "read", before=self._read_begins, after=self.over)
        if "read_chunked" in vars(response or object):
            self.guard.replace(response, "read_chunked", self._reading_chunks)
        self._hub.working(self.hook)

    def _answered(self, call: Call | None, response: Any, error: BaseException | None) -> None:
        self.over(call, response, error)
        if call is not None and error is None:
            self._backends[response] = call.name

    def _reading_chunks(self, original: Any) -> Any:
        guard, begins, ends = self.guard, self._read_begins, self._outbound.end

        @wraps(original)
        def read_chunked(self: Any, *args: Any, **kwargs: Any) -> Any:
            parts = original(self, *args, **kwargs)
            if not guard.active:
                return parts
            return reads(parts, guard, lambda: begins(self), ends)

        return read_chunked

    def _read_begins(self, response: Any, *_: Any, **__: Any) -> Call | None:
        name = self._backends.get(response)
        call: Call | None = None if name is None else self._outbound.begin("http", name, "body", library=self.library)
        return call

    def _begins(self, pool: Any, *_: Any, **__: Any) -> Call | None:
        by_proxy = getattr(pool, "proxy", None) is not None and pool.host == pool.proxy.host
        name = address("proxy" if by_proxy else str(pool.scheme), str(pool.host).strip("[]"), pool.port)
        around = OPEN.get()
        if isinstance(around, Call) and not around.over and around.kind in ("http", "connect"):
            self._outbound.turn(around, "http", calls=1)  # tried again, or redirected
            around.name = name
            return None
        call: Call | None = self._outbound.begin("http", name, calls=1, library=self.library)
        return call

    def _connects(self, *_: Any) -> tuple[Call, int] | None:
        """Within a call: (that call, the requests that it sends once there is a connection)."""
        call = OPEN.get()
        if not isinstance(call, Call) or call.over or call.kind != "http":
            return None
        calls, call.calls = call.calls, 0
        if now_ns() - call.began_ns < AT_ONCE_NS:
            call.kind = "connect"
        else:
            self._outbound.turn(call, "connect")  # it has waited for its pool
        return call, calls

    def _connected(self, connecting: tuple[Call, int] | None, _: Any, error: BaseException | None) -> None:
        if connecting is None:
            return
        call, calls = connecting
        call.opened = int(error is None)
        if error is None:
            self._outbound.turn(call, "http", calls=calls)
