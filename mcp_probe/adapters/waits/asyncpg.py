"""asyncpg: its pools, new connections, and statements.

Source: asyncpg/pool.py, connection.py, prepared_stmt.py, cursor.py, connect_utils.py (0.27-0.32).
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakKeyDictionary

from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.waits.library import LibraryHooks, database_address
from mcp_probe.adapters.waits.pools import Asking, PoolWaits
from mcp_probe.capture.awaits import where_now
from mcp_probe.capture.outbound import Call

SCHEME = "postgresql"
_STATEMENTS = (
    "execute", "executemany", "fetch", "fetchval", "fetchrow", "prepare",
    "copy_from_table", "copy_from_query", "copy_to_table", "copy_records_to_table",
)  # fmt: skip
_PREPARED = ("_PreparedStatement__do_execute",)
_CURSORS = ("_bind_exec", "_bind", "_exec")


class _Pool:
    """Stands for a pool, which has no weak references, as long as the queue of its holders lives."""

    __slots__ = ("__weakref__",)


class AsyncpgHooks(LibraryHooks):
    """See the module's text."""

    hook = "awaits (asyncpg)"
    library = "asyncpg"

    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        self._pools = PoolWaits(hub.awaits, "asyncpg pool")
        self._known: WeakKeyDictionary[Any, _Pool] = WeakKeyDictionary()

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, and what is imported later."""
        imports.when_imported("asyncpg.pool", self.guard.guarded(self._wrap))

    def _wrap(self, module: Any) -> None:
        pool, holder, connection = module.Pool, module.PoolConnectionHolder, module.connection.Connection
        utils, prepared, cursor = (
            sys.modules[f"asyncpg.{name}"] for name in ("connect_utils", "prepared_stmt", "cursor")
        )
        if not (
            self.knows(pool, ("_initialize", "_acquire"), awaited=True)
            and self.knows(holder, ("acquire",), awaited=True)
            and self.knows(holder, ("_release",))
            and self.knows(connection, _STATEMENTS, awaited=True)
            and self.knows(prepared.PreparedStatement, _PREPARED, awaited=True)
            and self.knows(cursor.BaseCursor, _CURSORS, awaited=True)
            and self.knows(utils, ("_connect_addr",), awaited=True)
        ):
            return
        self.guard.wrap(pool, "_initialize", after=self._made)
        self.guard.wrap(pool, "_acquire", before=self._asks, after=self._pools_answer)
        self.guard.wrap(holder, "acquire", before=self._gets)
        self.guard.wrap(holder, "_release", before=self._gives_back)
        self.guard.wrap(utils, "_connect_addr", before=self._opens, after=self.over)
        self.calls(connection, _STATEMENTS, _name_of)
        self.calls(prepared.PreparedStatement, _PREPARED, _of_prepared)
        self.calls(cursor.BaseCursor, _CURSORS, _of_prepared)
        self._hub.working(self.hook)

    def _made(self, args: tuple[Any, ...], _: Any, error: BaseException | None) -> None:
        pool = args[0]
        if error is None:
            self._pools.made(self._of(pool), pool._maxsize, where_now())

    def _asks(self, pool: Any, *_: Any, **__: Any) -> Asking | None:
        return None if pool._queue is None else self._pools.asks(self._of(pool), pool._maxsize)

    def _of(self, pool: Any) -> _Pool:
        return self._known.get(pool._queue) or self._known.setdefault(pool._queue, _Pool())

    def _gets(self, holder: Any) -> None:
        self._pools.opens(holder)

    def _pools_answer(self, asking: Asking | None, connection: Any, error: BaseException | None) -> None:
        self._pools.answered(asking, None if connection is None else connection._holder)

    def _gives_back(self, holder: Any) -> None:
        self._pools.gave_back(self._of(holder._pool), holder)

    def _opens(self, *_: Any, addr: Any = None, **__: Any) -> Call | None:
        return self.opening(_of_address, addr, awaited=True)


def _name_of(connection: Any, *_: Any) -> str:
    return _of_address(connection._addr)


def _of_prepared(prepared: Any, *_: Any) -> str:
    return _of_address(prepared._connection._addr)


def _of_address(address_: Any) -> str:
    """Of (host, port), or of a Unix socket's path."""
    return database_address(SCHEME, *address_[:2]) if isinstance(address_, tuple) else SCHEME
