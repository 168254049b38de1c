"""redis-py, in threads and on asyncio: answers, new connections, and the pools whose callers wait.

A command waits in its connection's ``read_response``; so does each node of a cluster, and a subscriber.

Source: redis/connection.py, redis/client.py, redis/asyncio/connection.py, redis/asyncio/client.py (5.0-8.1).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.waits.library import LibraryHooks, database_address
from mcp_probe.adapters.waits.pools import Asking, PoolWaits
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.outbound import Call

_BATCHES = ("_execute_transaction", "_execute_pipeline")


class RedisHooks(LibraryHooks):
    """See the module's text."""

    hook = "awaits (redis)"
    library = "redis"

    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        self._pools = PoolWaits(hub.awaits, "redis pool")

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, and what is imported later."""
        for prefix, awaited in (("redis", False), ("redis.asyncio", True)):
            for name, wrap in (("connection", self._wrap), ("client", self._wrap_batches)):
                imports.when_imported(f"{prefix}.{name}", self.guard.guarded(partial(wrap, awaited)))

    def _wrap(self, awaited: bool, module: Any) -> None:
        connection, pool = module.AbstractConnection, module.BlockingConnectionPool
        if not (
            self.knows(connection, ("connect", "read_response"), awaited=awaited)
            and self.knows(pool, ("get_connection", "release"), awaited=awaited)
        ):
            return
        self.guard.wrap(connection, "connect", before=partial(self._opens, awaited), after=self.over)
        self.calls(connection, ("read_response",), _name_of)
        self.guard.wrap(pool, "get_connection", before=self._asks, after=self._pools.answered)
        self.guard.wrap(pool, "release", before=self._gives_back)
        self._hub.working(self.hook)

    def _wrap_batches(self, awaited: bool, module: Any) -> None:
        """Of a pipeline the answers are one wait: what is sent is sent at once."""
        if self.knows(module.Pipeline, _BATCHES, awaited=awaited):
            self.calls(module.Pipeline, _BATCHES, lambda _, connection, *__: _name_of(connection))

    def _asks(self, pool: Any, *_: Any, **__: Any) -> Asking:
        return self._pools.asks(pool, pool.max_connections)

    def _gives_back(self, pool: Any, connection: Any) -> None:
        self._pools.gave_back(pool, connection)

    def _opens(self, awaited: bool, connection: Any, *_: Any, **__: Any) -> Call | None:
        """Called for each command; most find it open."""
        self._pools.opens(connection)
        if CURRENT.get() is None or _is_open(connection):
            return None
        return self.opening(_name_of, connection, awaited=awaited)


def _is_open(connection: Any) -> bool:
    return getattr(connection, "_sock", None) is not None or getattr(connection, "_writer", None) is not None


def _name_of(connection: Any, *_: Any) -> str:
    scheme = "rediss" if hasattr(connection, "ssl_context") or hasattr(connection, "cert_reqs") else "redis"
    return database_address(scheme, getattr(connection, "host", None), getattr(connection, "port", None))
