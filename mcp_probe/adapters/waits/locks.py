"""Locks, semaphores and limiters of asyncio, anyio and trio: who waits for them, and who holds them.

Only what somebody can hold is wrapped whole. Events, queues, conditions and barriers have no holder: of them only the
line that makes them is noted, and a look at the suspended task names them by it (capture/await_looks.py).

Source: asyncio/locks.py (3.10-3.15), anyio/_backends/_asyncio.py and _trio.py (4.5-4.16), trio/_sync.py (0.30-0.35).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from mcp_probe.adapters.hook import Hook
from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.capture.awaits import Awaits
from mcp_probe.capture.makers import Makers
from mcp_probe.model import AwaitKind

HOOK = "awaits (locks)"

_Names = tuple[tuple[str, AwaitKind], ...]
_ASYNCIO: _Names = (("Lock", "lock"), ("Semaphore", "semaphore"))
_ANYIO: _Names = (("Lock", "lock"), ("Semaphore", "semaphore"), ("CapacityLimiter", "limiter"))
_TRIO: _Names = (("_LockImpl", "lock"), ("Semaphore", "semaphore"), ("CapacityLimiter", "limiter"))


_MADE: tuple[tuple[str, str, _Names], ...] = (
    ("asyncio.locks", "asyncio", (("Event", "event"), ("Condition", "condition"), ("Barrier", "event"))),
    ("asyncio.queues", "asyncio", (("Queue", "queue"),)),
    ("anyio._core._synchronization", "anyio", (("Condition", "condition"), ("EventAdapter", "event"))),
    ("anyio._backends._asyncio", "anyio", (("Event", "event"),)),
    ("anyio._backends._trio", "anyio", (("Event", "event"),)),
    ("anyio.streams.memory", "anyio", (("_MemoryObjectStreamState", "queue"),)),
    ("trio._sync", "trio", (("Event", "event"), ("Condition", "condition"))),
    ("trio._channel", "trio", (("MemoryChannelState", "queue"),)),
)
"""What has no holder. A class that a version does not have is left out: its objects are named by other means."""

_SHOWN = {"_LockImpl": "Lock", "_MemoryObjectStreamState": "memory object stream", "EventAdapter": "Event",
          "MemoryChannelState": "memory channel"}  # fmt: skip


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
        for module, library, names in _MADE:
            imports.when_imported(module, self.guard.guarded(self._maker(library, names)))

    def restore(self) -> list[str]:
        """Undo it."""
        return self.guard.restore()

    def _wrapper(self, library: str, names: _Names) -> Callable[[Any], None]:
        def wrap(module: Any) -> None:
            for name, kind in names:
                self._wrap(getattr(module, name), kind, f"{library}.{_SHOWN.get(name, name)}")
            self._hub.working(HOOK)

        return wrap

    def _maker(self, library: str, names: _Names) -> Callable[[Any], None]:
        def wrap(module: Any) -> None:
            for name, kind in names:
                owner = getattr(module, name, None)
                if owner is not None:
                    label = f"{library}.{_SHOWN.get(name, name)}"
                    self.guard.replace(owner, "__init__", _Wrappers(self._awaits, self.guard, kind, label).making)

        return wrap

    def _wrap(self, owner: type, kind: AwaitKind, label: str) -> None:
        is_limiter = kind == "limiter"
        suffix = "_on_behalf_of" if is_limiter else ""
        wrap = (_ForBorrowers if is_limiter else _Wrappers)(self._awaits, self.guard, kind, label)
        self.guard.replace(owner, "__init__", wrap.making)
        self.guard.replace(owner, f"acquire{suffix}", wrap.acquiring)
        self.guard.replace(owner, f"release{suffix}", wrap.releasing)
        if hasattr(owner, f"acquire{suffix}_nowait"):
            self.guard.replace(owner, f"acquire{suffix}_nowait", wrap.taking)


def _takes_nothing(function: Any) -> bool:
    return list(signature(function, follow_wrapped=False).parameters) == ["self"]


class _Wrappers:
    """What is put around the methods of one class. Written out, not by ``Hook.wrap``: a lock may cost 1 us more."""

    def __init__(self, awaits: Awaits, guard: Hook, kind: AwaitKind, label: str) -> None:
        self._awaits = awaits
        self._guard = guard
        self._kind = kind
        self._label = label

    def making(self, original: Any) -> Any:
        awaits, guard, kind, label = self._awaits, self._guard, self._kind, self._label
        makers, frame_at = Makers(kind, label), sys._getframe
        nameless = makers.nameless

        def note(thing: Any, maker: Any) -> None:
            try:
                made = makers.line_of(maker)
                if made is not None:
                    awaits.made(thing, kind, label, made)
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                guard.fault(exc)

        @wraps(original)
        def make_empty(self: Any) -> None:
            if id(frame_at(1).f_code) not in nameless and guard.active:
                note(self, frame_at(1))
            original(self)

        @wraps(original)
        def make(self: Any, *args: Any, **kwargs: Any) -> None:
            if id(frame_at(1).f_code) not in nameless and guard.active:
                note(self, frame_at(1))
            original(self, *args, **kwargs)

        return make_empty if _takes_nothing(original) else make  # the SDK makes a dozen events for each call

    def acquiring(self, original: Any) -> Any:
        awaits, guard, kind, label = self._awaits, self._guard, self._kind, self._label

        @wraps(original)
        async def acquire(self: Any, *borrower: Any) -> Any:
            if not guard.active:
                return await original(self, *borrower)
            state = None
            try:
                state = awaits.begin(self, kind, label)
            except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                guard.fault(exc)
            got = False
            try:
                result = await original(self, *borrower)
                got = True
                return result
            finally:
                try:
                    awaits.end(state, got)
                except Exception as exc:  # noqa: BLE001
                    guard.fault(exc)

        return acquire

    def releasing(self, original: Any) -> Any:
        awaits, guard = self._awaits, self._guard

        @wraps(original)
        def release(self: Any, *borrower: Any) -> Any:
            result = original(self, *borrower)
            if guard.active:
                try:
                    awaits.gave_back(self)
                except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                    guard.fault(exc)
            return result

        return release

    def taking(self, original: Any) -> Any:
        awaits, guard, kind, label = self._awaits, self._guard, self._kind, self._label

        @wraps(original)
        def acquire_nowait(self: Any, *borrower: Any) -> Any:
            result = original(self, *borrower)
            if guard.active:
                try:
                    awaits.took(self, kind, label)
                except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
                    guard.fault(exc)
            return result

        return acquire_nowait


class _ForBorrowers(_Wrappers):
    """Of a limiter, whose tokens somebody takes on behalf of a borrower: of a task, for what runs in a thread.

    The tasks of the stdio transport take one for each line they read or write. They are passed by.
    """

    def acquiring(self, original: Any) -> Any:
        """No coroutine function, so that the transport has no frame of ours."""
        return self._passing(original, super().acquiring(original))

    def releasing(self, original: Any) -> Any:
        return self._passing(original, super().releasing(original))

    def taking(self, original: Any) -> Any:
        return self._passing(original, super().taking(original))

    def _passing(self, original: Any, followed: Any) -> Any:
        passed = self._awaits.passed

        @wraps(original)
        def on_behalf_of(self: Any, borrower: Any) -> Any:
            return original(self, borrower) if id(borrower) in passed else followed(self, borrower)

        return on_behalf_of
