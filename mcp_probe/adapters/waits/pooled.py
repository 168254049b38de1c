"""One call of a backend by a client that has a pool: it waits for a connection, then for the backend, by phases.

It holds its connection from when it gets one until the library says that it is free again. Invariant: nothing here
keeps the pool's other users, or what is sent, alive.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from mcp_probe.capture.awaits import Awaits, Held, State, Taken
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.outbound import Call, Outbound
from mcp_probe.model import AwaitKind, AwaitPhase


class PooledCall:
    """See the module's text. Its methods are called on the thread that makes the call, and may raise."""

    __slots__ = (
        "_arrived",
        "_at",
        "_awaits",
        "_call",
        "_held",
        "_outbound",
        "_part",
        "_pool",
        "_state",
        "library",
        "name",
        "where",
    )

    def __init__(
        self,
        awaits: Awaits,
        outbound: Outbound,
        pool: Any,
        held: Held,
        name: str,
        caller: Any,
        library: str | None = None,
    ) -> None:
        self._awaits = awaits
        self._outbound = outbound
        self._pool = pool
        self._held = held
        self._call: Call | None = None
        self._arrived = False
        self._part = object()  # stands for its connection; whoever keeps this keeps nothing else
        self._state: State = None
        self._at: Taken = (None, 0) if caller is None else (caller.f_code, caller.f_lasti)
        self.name = name  # of the backend
        self.where = line_of(caller)
        self.library = library  # whose call keeps its thread; None: it is a coroutine

    def asks(self) -> None:
        """It asks its pool for a connection. Idempotent."""
        if self._state is None and not self._arrived:
            self._state = self._awaits.begin(self._pool, self._held.kind, self._held.label)

    def arrives(self, got: bool = True) -> None:
        """It has got a connection, or may open one; or it will not. Idempotent."""
        if not self._arrived:
            if got:
                self.asks()
            self._arrived = True
            state, self._state = self._state, None
            self._awaits.end(state, got, self._part, self._at)

    def shares(self) -> None:
        """Its connection has room for others: that it is in use keeps nobody waiting."""
        self._held.limit = None
        self.gives_back()

    def gives_back(self) -> None:
        """Its connection is free again, or closed."""
        self._awaits.gave_back(self._pool, self._part)

    def turns(
        self, kind: AwaitKind, phase: AwaitPhase | None = None, name: str | None = None, *, calls: int = 0
    ) -> None:
        """It waits for this from now on; of ``name`` if it is not the backend it named before."""
        if self._call is None:
            self._call = self._outbound.begin(
                kind, name or self.name, phase, calls=calls, where=self.where, library=self.library
            )
            return
        self._outbound.turn(self._call, kind, phase, calls=calls)
        self._call.name = name or self._call.name

    def opened(self) -> None:
        """It has opened a connection."""
        if self._call is not None:
            self._call.opened = 1

    def answered(self) -> None:
        """Headers have come."""
        self.arrives(False)  # unless it has: the library has told nothing
        self._outbound.end(self._call)

    def failed(self) -> None:
        """It was cancelled, or there is no answer."""
        self.answered()
        self.gives_back()


def line_of(frame: Any) -> str | None:
    """``file:line``."""
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


async def async_reads(
    parts: Any, guard: Guard, begins: Callable[[], Call | None], ends: Callable[[Call | None], None]
) -> AsyncIterator[Any]:
    """``parts``, each with a call of ``begins`` and ``ends`` around it."""
    while True:
        call = guard.call(begins) if guard.active else None
        try:
            part = await parts.__anext__()
        except StopAsyncIteration:
            return
        finally:
            guard.call(ends, call)
        try:
            yield part
        except BaseException:
            if hasattr(parts, "aclose"):
                await parts.aclose()  # its reader stops early: it learns of that as without us
            raise


def reads(
    parts: Any, guard: Guard, begins: Callable[[], Call | None], ends: Callable[[Call | None], None]
) -> Iterator[Any]:
    """As :func:`async_reads`."""
    while True:
        call = guard.call(begins) if guard.active else None
        try:
            part = next(parts)
        except StopIteration:
            return
        finally:
            guard.call(ends, call)
        try:
            yield part
        except BaseException:
            if hasattr(parts, "close"):
                parts.close()
            raise
