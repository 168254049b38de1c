"""Pools of connections: who waits for one, who holds them meanwhile, and when a new one is opened.

A pool that may grow opens a connection for who asks. From then on its caller waits for the database, not for the pool.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any
from weakref import ref

from mcp_probe.capture.awaits import Awaits, Held, State, taken_here


class Asking:
    """A call that asks a pool for a connection: ``part`` is the one that is opened for it."""

    __slots__ = ("outer", "over", "part", "pool", "state")

    def __init__(self, pool: Any, state: State, outer: Asking | None) -> None:
        self.pool = pool
        self.state = state
        self.outer = outer
        self.part: object = None
        self.over = False  # tasks that were begun meanwhile still see it


ASKING: ContextVar[Asking | None] = ContextVar("mcp_probe_asking", default=None)


def pool_of(
    awaits: Awaits, pool: Any, label: str, made: str | None, limit: int | None, keeper: Any = None
) -> Held | None:
    """What is known of ``pool`` from now on. A variable may have its ``keeper`` instead; ``None``: too many are."""
    held = awaits.of(pool, "connection-pool", label, made)
    if held is None:
        return None
    if made is None and keeper is not None and type(keeper).__weakrefoffset__:
        held.thing = ref(keeper)
    held.limit = limit
    return held


class PoolWaits:
    """The pools of one library, ``label`` for reports. May raise; on the thread that asks."""

    def __init__(self, awaits: Awaits, label: str) -> None:
        self._awaits = awaits
        self._label = label

    def made(self, pool: Any, limit: int | None, where: str | None) -> None:
        """``pool`` was made at ``file:line``, and has at most ``limit`` connections; ``None``: any number."""
        pool_of(self._awaits, pool, self._label, where, limit)

    def asks(self, pool: Any, limit: int | None) -> Asking:
        """Somebody asks ``pool`` for a connection."""
        asking = Asking(pool, self._awaits.begin(pool, "connection-pool", self._label), ASKING.get())
        held = self._awaits.known(pool)
        if held is not None:
            held.limit = limit
        ASKING.set(asking)
        return asking

    def opens(self, part: object) -> None:
        """The pool opens ``part`` for who asks. It counts as held from now on."""
        asking = ASKING.get()
        if asking is not None and asking.part is None and not asking.over:
            asking.part = part
            self._awaits.end(asking.state, True, part, taken_here())

    def answered(self, asking: Asking | None, part: object, error: BaseException | None = None) -> None:
        """Who asked has got ``part``; ``None``: nothing, but maybe ``error``. For ``after`` of a hook on who asks."""
        if asking is None:
            return
        asking.over = True
        if ASKING.get() is asking:
            ASKING.set(asking.outer)
        if asking.part is None:
            self._awaits.end(asking.state, part is not None, part, None if part is None else taken_here())
        elif part is None:
            self._awaits.gave_back(asking.pool, asking.part)

    def gave_back(self, pool: Any, part: object) -> None:
        """``part`` goes back into ``pool``."""
        self._awaits.gave_back(pool, part)
