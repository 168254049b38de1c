"""What others write to ``sys.stdout`` while the SDK serves stdio.

mcp 1.x writes its messages to ``sys.stdout.buffer``, so a ``print`` gets between them. mcp 2.x claims the descriptor
and serves a duplicate of it: a ``print`` goes to stderr meanwhile. Where it cannot, it serves the buffer as 1.x does.

Seen is what goes through ``sys.stdout.write``, as ``print`` does. The SDK has text wrappers of its own. What goes to
the buffer or the descriptor directly (C code, child processes) is not seen.

Source: mcp/server/stdio.py, 1.6-1.30 and 2.0-2.3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import ref

from mcp_probe.adapters.hook import Hook
from mcp_probe.capture.awaits import where_now
from mcp_probe.capture.hub import Hub

HOOK = "writes to stdout"


class StdoutHook:
    """Counts what is written to ``sys.stdout`` as long as a stdio transport's writer is alive."""

    def __init__(self, hub: Hub) -> None:
        self._stdout = hub.stdout
        self._missing = hub.missing
        self.guard = Hook(hub, HOOK)
        self._writer: Callable[[], Any] = lambda: None

    def follow(self, writer: Any) -> None:
        """``writer`` is the transport's text wrapper from now on."""
        stdout = sys.stdout
        self._writer = ref(writer)
        self._stdout.is_wire = writer.buffer is getattr(stdout, "buffer", None)
        self.guard.release(stdout)
        try:
            self.guard.wrap(stdout, "write", before=self._written)
        except (AttributeError, TypeError) as exc:  # somebody's own object
            self._missing(HOOK, f"this sys.stdout cannot be followed ({type(exc).__name__})")

    def _written(self, text: Any, *_: Any) -> None:
        if text and isinstance(text, str) and self._writer() is not None:
            self._stdout.written(len(text) if text.isascii() else len(text.encode("utf-8", "replace")), where_now)

    def restore(self) -> list[str]:
        """Undo it."""
        return self.guard.restore()
