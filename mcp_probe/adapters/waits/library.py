"""What hooks on one library have in common: they come with its import, name what a call waits for, and go again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from mcp_probe.adapters.hook import Hook
from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.outbound import Call, located
from mcp_probe.model import AwaitKind

NameOf = Callable[..., str]
"""The name of the backend that a call waits for, of its arguments."""


class LibraryHooks:
    """Hooks on one library. A version that lacks a name they need is left alone: looks name what its callers await."""

    hook: ClassVar[str]
    library: ClassVar[str]

    def __init__(self, hub: Any) -> None:
        self._hub = hub
        self._awaits = hub.awaits
        self._outbound = hub.outbound
        self.guard = Hook(hub, self.hook)

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, and what is imported later."""
        raise NotImplementedError

    def restore(self) -> list[str]:
        """Undo it."""
        return self.guard.restore()

    def knows(self, owner: Any, names: Iterable[str], *, awaited: bool | None = None) -> bool:
        """Whether ``owner`` has all ``names`` itself, as coroutine functions or not. Says once what it has not."""
        for name in names:
            found = vars(owner).get(name)
            function = getattr(found, "__func__", found)
            if not callable(function) or awaited not in (None, inspect.iscoroutinefunction(function)):
                what = f"{getattr(owner, '__qualname__', owner.__name__)}.{name}"
                self._hub.missing(self.hook, f"{what} is not as in the versions of {self.library} that are known to us")
                return False
        return True

    def calls(
        self, owner: Any, names: Iterable[str], name_of: NameOf, *, kind: AwaitKind = "db", sent: int = 1
    ) -> None:
        """While ``owner.name`` runs, its caller waits for ``name_of(its arguments)``."""

        def around(awaited: bool) -> Callable[..., Call | None]:
            library = None if awaited else self.library

            def begin(*args: Any, **kwargs: Any) -> Call | None:
                if CURRENT.get() is None:
                    return None
                call: Call | None = self._outbound.begin(kind, name_of(*args), calls=sent, library=library)
                return call

            return begin

        for name in names:
            begin = around(inspect.iscoroutinefunction(getattr(owner, name)))
            self.guard.wrap(owner, name, before=begin, after=self.over)

    def opening(self, name_of: NameOf, *args: Any, awaited: bool) -> Call | None:
        """A connection to ``name_of(*args)`` is opened, by a coroutine or not; :meth:`over` ends it."""
        if CURRENT.get() is None:
            return None
        library = None if awaited else self.library
        call: Call | None = self._outbound.begin("connect", name_of(*args), library=library)
        if call is not None:
            call.opened = 1
        return call

    def over(self, call: Call | None, result: Any, error: BaseException | None) -> None:
        """``call`` is over. For ``after`` of a hook whose ``before`` has begun it."""
        self._outbound.end(call)


def database_address(scheme: str, host: object, port: object = None) -> str:
    """``scheme://host:port``; the scheme alone for files and Unix sockets."""
    if not isinstance(host, str) or not host or "/" in host or "@" in host:
        return scheme
    return located(scheme, host, port or None)
