"""aiosqlite: what its callers await while its own thread works. The file is not named.

Source: aiosqlite/core.py (0.17-0.22).
"""

from __future__ import annotations

from typing import Any

from mcp_probe.adapters.imports import ImportWatch
from mcp_probe.adapters.waits.library import LibraryHooks
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.outbound import Call

NAME = "sqlite"


class AiosqliteHooks(LibraryHooks):
    """See the module's text."""

    hook = "awaits (aiosqlite)"
    library = "aiosqlite"

    def install(self, imports: ImportWatch) -> None:
        """Wrap what is there, and what is imported later."""
        imports.when_imported("aiosqlite.core", self.guard.guarded(self._wrap))

    def _wrap(self, module: Any) -> None:
        if self.knows(module.Connection, ("_execute", "_connect"), awaited=True):
            self.guard.wrap(module.Connection, "_execute", before=self._begins, after=self.over)
            self.calls(module.Connection, ("_connect",), lambda _: NAME, kind="connect", sent=0)
            self._hub.working(self.hook)

    def _begins(self, connection: Any, function: Any, *_: Any, **__: Any) -> Call | None:
        """All calls come this way; only its name tells a statement from a fetch."""
        if CURRENT.get() is None:
            return None
        statement = getattr(function, "__name__", "").lstrip("_").startswith("execute")
        call: Call | None = self._outbound.begin("db", NAME, calls=int(statement))
        return call
