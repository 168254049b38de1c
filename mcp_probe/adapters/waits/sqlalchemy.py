"""SQLAlchemy: its pools, new connections, and statements; in worker threads, and in the greenlets of its async engines.

Of an engine's URL only the scheme, the host and the port are read. No ``__init__`` is wrapped: SQLAlchemy reads their
arguments' names. Nor is a listener added to its events: that would make every statement slower, and outlive us.

Source: sqlalchemy/pool/base.py, pool/impl.py, engine/base.py (1.4-2.1).
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

_CONNECT = "_ConnectionRecord__connect"


class SqlAlchemyHooks(LibraryHooks):
    """See the module's text."""

    hook = "awaits (SQLAlchemy)"
    library = "SQLAlchemy"

    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        self._pools = PoolWaits(hub.awaits, "SQLAlchemy pool")
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # pool -> its database
        self._places: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()  # engine -> where it was made

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, and what is imported later."""
        imports.when_imported("sqlalchemy.pool.impl", self.guard.guarded(self._wrap_pools))
        imports.when_imported("sqlalchemy.engine.base", self.guard.guarded(self._wrap_engines))

    def _wrap_pools(self, module: Any) -> None:
        base: Any = sys.modules["sqlalchemy.pool.base"]
        queued, pool, record, checked_out = (
            module.QueuePool, base.Pool, base._ConnectionRecord, base._ConnectionFairy,
        )  # fmt: skip
        if not (
            self.knows(queued, ("_do_get", "size"))
            and self.knows(pool, ("_return_conn",))
            and self.knows(record, (_CONNECT,))
            and self.knows(checked_out, ("_reset", "detach"))
        ):
            return
        self.guard.wrap(queued, "_do_get", before=self._asks, after=self._pools.answered)
        self.guard.wrap(pool, "_return_conn", before=self._gives_back)
        self.guard.wrap(checked_out, "detach", before=self._takes_out)
        self.guard.wrap(record, _CONNECT, before=self._opens, after=self.over)
        self.calls(checked_out, ("_reset",), self._of_pool, sent=0)
        self._hub.working(self.hook)

    def _wrap_engines(self, module: Any) -> None:
        statements = ("_execute_context", "_commit_impl", "_rollback_impl")
        dialect: Any = sys.modules["sqlalchemy.engine.interfaces"].Dialect
        if not (
            self.knows(module.Engine, ("raw_connection",))
            and self.knows(module.Connection, statements)
            and self.knows(dialect, ("engine_created",))
        ):
            return
        self.guard.wrap(dialect, "engine_created", after=self._made)
        self.guard.wrap(module.Engine, "raw_connection", before=self._note_engine)
        self.calls(module.Connection, statements[:1], _of_connection)
        self.calls(module.Connection, statements[1:], _of_connection, sent=0)
        self._hub.working(self.hook)

    def _made(self, args: tuple[Any, ...], _: Any, error: BaseException | None) -> None:
        engine = args[1]
        self._places[engine] = where_now()
        self._note_engine(engine)

    def _asks(self, pool: Any) -> Asking:
        return self._pools.asks(pool, _limit_of(pool))

    def _gives_back(self, pool: Any, record: Any) -> None:
        self._pools.gave_back(pool, record)

    def _takes_out(self, checked_out: Any) -> None:
        record = checked_out._connection_record
        if record is not None:
            self._pools.gave_back(checked_out._pool, record)

    def _opens(self, record: Any) -> Call | None:
        self._pools.opens(record)
        return self.opening(self._of_record, record, awaited=False)

    def _note_engine(self, engine: Any) -> None:
        pool = engine.pool
        if pool not in self._names:
            self._names[pool] = _name_of(engine.url)
            if hasattr(pool, "_max_overflow"):
                self._pools.made(pool, _limit_of(pool), self._places.get(engine))

    def _of_record(self, record: Any) -> str:
        return self._names.get(record._ConnectionRecord__pool, "database")

    def _of_pool(self, checked_out: Any, *_: Any) -> str:
        return self._names.get(checked_out._pool, "database")


def _of_connection(connection: Any, *_: Any) -> str:
    return _name_of(connection.engine.url)


def _name_of(url: Any) -> str:
    return database_address(url.drivername.partition("+")[0], url.host, url.port)


def _limit_of(pool: Any) -> int | None:
    overflow = pool._max_overflow
    return pool.size() + overflow if overflow >= 0 else None
