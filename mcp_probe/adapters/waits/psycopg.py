"""psycopg 3 and psycopg_pool: pools, new connections, and statements, in threads and on asyncio.

All that a connection sends waits in its ``wait``.

Source: psycopg/connection.py, connection_async.py, waiting.py (3.1-3.3); psycopg_pool/pool.py, pool_async.py (3.1-3.3).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.waits.library import LibraryHooks, database_address
from mcp_probe.adapters.waits.pools import Asking, PoolWaits
from mcp_probe.capture.awaits import where_now
from mcp_probe.capture.outbound import Call

SCHEME = "postgresql"


class PsycopgHooks(LibraryHooks):
    """See the module's text."""

    hook = "awaits (psycopg)"
    library = "psycopg"

    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        self._pools = PoolWaits(hub.awaits, "psycopg pool")
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # of connections

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, and what is imported later."""
        imports.when_imported("psycopg.waiting", self.guard.guarded(self._wrap_waiting))
        for awaited, suffix, prefix in ((False, "", ""), (True, "_async", "Async")):
            for name, owner, wrap in (
                ("psycopg.connection", "Connection", self._wrap),
                ("psycopg_pool.pool", "ConnectionPool", self._wrap_pool),
            ):
                install = partial(self._install, wrap, f"{prefix}{owner}", awaited)
                imports.when_imported(f"{name}{suffix}", self.guard.guarded(install))

    @staticmethod
    def _install(wrap: Callable[[Any, bool], None], owner: str, awaited: bool, module: Any) -> None:
        wrap(getattr(module, owner), awaited)

    def _wrap_waiting(self, module: Any) -> None:
        if self.knows(module, ("wait_conn",), awaited=False) and self.knows(module, ("wait_conn_async",), awaited=True):
            for name, awaited in (("wait_conn", False), ("wait_conn_async", True)):
                self.guard.wrap(module, name, before=partial(self._opens, awaited), after=self._opened)

    def _wrap(self, connection: Any, awaited: bool) -> None:
        if self.knows(connection, ("wait",), awaited=awaited):
            self.calls(connection, ("wait",), self._name_of)
            self._hub.working(self.hook)

    def _wrap_pool(self, pool: Any, awaited: bool) -> None:
        if self.knows(pool, ("getconn", "putconn"), awaited=awaited) and self.knows(pool, ("__init__",)):
            self.guard.wrap(pool, "__init__", after=self._made)
            self.guard.wrap(pool, "getconn", before=self._asks, after=self._pools.answered)
            self.guard.wrap(pool, "putconn", before=self._gives_back)
            self._hub.working(self.hook)

    def _made(self, args: tuple[Any, ...], _: Any, error: BaseException | None) -> None:
        if error is None:
            self._pools.made(args[0], _limit_of(args[0]), where_now())

    def _asks(self, pool: Any, *_: Any, **__: Any) -> Asking:
        return self._pools.asks(pool, _limit_of(pool))

    def _gives_back(self, pool: Any, conn: Any) -> None:
        self._pools.gave_back(pool, conn)

    def _opens(self, awaited: bool, *_: Any, **__: Any) -> Call | None:
        return self.opening(lambda: SCHEME, awaited=awaited)

    def _opened(self, call: Call | None, connection: Any, error: BaseException | None) -> None:
        if call is not None and error is None:
            call.name = self._name_of(connection)  # which of its hosts has answered
        self.over(call, connection, error)

    def _name_of(self, connection: Any, *_: Any) -> str:
        name = self._names.get(connection)
        if name is None:
            try:
                name = database_address(SCHEME, connection.info.host, connection.info.port)
            except Exception:  # noqa: BLE001 - psycopg's own, of a connection that is closed
                return SCHEME
            self._names[connection] = name
        return name


def _limit_of(pool: Any) -> int | None:
    return pool.max_size or None
