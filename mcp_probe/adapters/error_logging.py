"""What logging a traceback costs the event loop, whichever handlers format and write it.

Where rich can be imported, the SDK logs a failing tool through a handler of rich's that renders the traceback with its
source: 200 ms and more on the loop. `Logger.handle` is where every record of Python's logging passes on its way to the
handlers. Loggers that are not Python's (loguru) are not seen.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from mcp_probe.adapters.hook import Hook
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.measuring import Add
from mcp_probe.clock import now_ns

HOOK = "measure (error logging)"
TIME, COUNT = "error_logging", "errors_logged"


class ErrorLogging:
    """Reads ``error_logging`` and ``errors_logged``."""

    def __init__(self, hub: Hub, add: Add) -> None:
        self._hub = hub
        self._add = add
        self._handling = threading.local()
        self._hook = Hook(hub, HOOK)
        self._hook.wrap(logging.Logger, "handle", before=self._begin, after=self._end)

    def _begin(self, logger: Any, record: Any, *_: Any, **__: Any) -> int | None:
        """When it began, of a record with a traceback; ``None`` for others, off the loop, and inside of a handler."""
        error = record.exc_info
        if not error or error[0] is None or getattr(self._handling, "is_on", False):
            return None
        raw = CURRENT.get()
        if raw is None or self._hub.awaits.is_job(raw):
            return None
        self._handling.is_on = True
        return now_ns()

    def _end(self, began_ns: int | None, _: Any, error: BaseException | None) -> None:
        if began_ns is not None:
            self._handling.is_on = False
            self._add(TIME, now_ns() - began_ns)
            self._add(COUNT, 1)

    def is_complete(self) -> bool:
        """Whether the hook still works."""
        return self._hook.active

    def restore(self) -> list[str]:
        """Undo it."""
        return self._hook.restore()
