"""Locks, semaphores and limiters of asyncio, anyio and trio: who waits for them, and who holds them.

Only what somebody can hold is wrapped. Events, queues, conditions and barriers have no holder: a look at the suspended
task names them (capture/await_looks.py), and they cost nothing.

Source: asyncio/locks.py (3.10-3.15), anyio/_backends/_asyncio.py and _trio.py (4.5-4.16), trio/_sync.py (0.30-0.35).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp_probe.adapters.hook import Hook
from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.capture.awaits import Awaits
from mcp_probe.model import AwaitKind

HOOK = "awaits (locks)"

_Names = tuple[tuple[str, AwaitKind], ...]
_ASYNCIO: _Names = (("Lock", "lock"), ("Semaphore", "semaphore"))
_ANYIO: _Names = (("Lock", "lock"), ("Semaphore", "semaphore"), ("CapacityLimiter", "limiter"))
_TRIO: _Names = (("_LockImpl", "lock"), ("Semaphore", "semaphore"), ("CapacityLimiter", "limiter"))


class LockHooks:
    """See the module's text."""

    def __init__(self, hub: Any, awaits: Awaits) -> None:
        self._awaits = awaits
        self._hub = hub
        self.guard = Hook(hub, HOOK)

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, and what is imported later."""
        for module, library, names in (
            ("asyncio.locks", "asyncio", _ASYNCIO),
            ("anyio._backends._asyncio", "anyio", _ANYIO),
            ("anyio._backends._trio", "anyio", _ANYIO),
            ("trio._sync", "trio", _TRIO),
        ):
            imports.when_imported(module, self.guard.guarded(self._wrapper(library, names)))

    def restore(self) -> list[str]:
        """Undo it."""
        return self.guard.restore()

    def _wrapper(self, library: str, names: _Names) -> Callable[[Any], None]:
        def wrap(module: Any) -> None:
            for name, kind in names:
                self._wrap(getattr(module, name), kind, f"{library}.{name.replace('_LockImpl', 'Lock')}")
            self._hub.working(HOOK)

        return wrap

    def _wrap(self, owner: type, kind: AwaitKind, label: str) -> None:
        awaits, guard = self._awaits, self.guard

        def begin(thing: Any, *args: object) -> Any:
            return awaits.begin(thing, kind, label)

        def end(state: Any, result: object, error: BaseException | None) -> None:
            awaits.end(state, error is None)

        def took(args: tuple[Any, ...], result: object, error: BaseException | None) -> None:
            if error is None:
                awaits.took(args[0], kind, label)

        def gave_back(args: tuple[Any, ...], result: object, error: BaseException | None) -> None:
            if error is None:
                awaits.gave_back(args[0])

        def made(thing: Any, *args: object, **kwargs: object) -> None:
            awaits.made(thing, kind, label)

        guard.wrap(owner, "__init__", before=made)
        suffix = "_on_behalf_of" if kind == "limiter" else ""
        guard.wrap(owner, f"acquire{suffix}", before=begin, after=end)
        guard.wrap(owner, f"release{suffix}", after=gave_back)
        if hasattr(owner, f"acquire{suffix}_nowait"):
            guard.wrap(owner, f"acquire{suffix}_nowait", after=took)
