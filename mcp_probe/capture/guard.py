"""What keeps a fault of ours away from the server: every hook has one guard.

A guard catches ``Exception`` and nothing wider: cancellation, ``KeyboardInterrupt`` and ``SystemExit`` pass through.
The first fault switches its hook off. It is logged once, and the report names it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
Fail = Callable[[str, Exception], None]


class Guard:
    """Whether one hook works.

    Args:
        name: the hook, as the report calls it.
        fail: told the name and the fault, which it logs once.
        off: called at each fault, after ``active`` became false. It must not raise.
    """

    __slots__ = ("__weakref__", "_fail", "_off", "active", "faults", "name")

    def __init__(self, name: str, fail: Fail, off: Callable[[], None] | None = None) -> None:
        self.name = name
        self.active = True
        self.faults = 0
        self._fail = fail
        self._off = off

    def fault(self, exc: Exception) -> None:
        """A part of the hook has raised ``exc``: the hook is off from now on."""
        self.active = False
        self.faults += 1
        if self._off is not None:
            self._off()
        self._fail(self.name, exc)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``; ``None`` where it has raised. Calls it while the hook is off, too."""
        try:
            return function(*args)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self.fault(exc)
            return None

    async def wait_for(self, function: Callable[[], Awaitable[None]]) -> None:
        """``await function()``, as :meth:`call` calls; what cancels the caller passes through."""
        try:
            await function()
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self.fault(exc)

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, as :meth:`call` calls it."""
        return partial(self.call, function)


def guarded(method: F) -> F:
    """A method of an object with a ``guard``. If the method raises, the guard is told and ``None`` is returned.

    It takes no keyword arguments.
    """

    @wraps(method)
    def call(self: Any, *args: Any) -> Any:
        try:
            return method(self, *args)
        except Exception as exc:  # noqa: BLE001 - a fault of ours never reaches the server
            self.guard.fault(exc)
            return None

    return call  # type: ignore[return-value]
