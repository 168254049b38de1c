"""fastmcp 3 on mcp 1.x opens SERVER spans of its own while ours is open: it gets ours instead.

So one request has one SERVER span, as with fastmcp 4, which joins its two places in the same way. Where our span is not
the current one any more (a tool that calls another tool in process, within a span of its own), fastmcp's stands.

Source: fastmcp/server/telemetry.py server_span and its callers in fastmcp/server/server.py, 3.4; telemetry.py of 4.1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

from mcp_probe.adapters.hook import Hook
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub

HOOK = "spans (fastmcp 3)"
_MODULE = "fastmcp.server.server"
_ATTRIBUTES = ("server.name", "component.type", "component.key")
_CONVENTIONS = {
    "resource_uri": "mcp.resource.uri",
    "tool_name": "gen_ai.tool.name",
    "prompt_name": "gen_ai.prompt.name",
}


class Seam:
    """The replacement of ``server_span``, process-wide: there from the first server that asks to the last."""

    def __init__(self) -> None:
        self._users = 0
        self._hook: Hook | None = None

    def install(self, hub: Hub) -> bool:
        """Whether fastmcp is here and opens spans of its own."""
        module = sys.modules.get(_MODULE)
        if getattr(module, "server_span", None) is None:
            return False
        if self._hook is None:
            self._hook = hook = Hook(hub, HOOK)
            hook.replace(module, "server_span", lambda original: _make_server_span(hook, original))
        self._users += 1
        return True

    def restore(self) -> list[str]:
        """One user less. Returns sentences for what the last user could not put back."""
        self._users -= 1
        if self._users or self._hook is None:
            return []
        hook, self._hook = self._hook, None
        return hook.restore()


SEAM = Seam()


def _make_server_span(hook: Hook, original: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
    @wraps(original)
    @contextmanager
    def server_span(
        name: str, method: str, server_name: str, component_type: str, component_key: str, *args: Any, **kwargs: Any
    ) -> Iterator[Any]:
        what = (server_name, component_type, component_key)
        span = None if args or not hook.active else hook.call(_ours, what, kwargs)
        if span is not None:
            yield span
            return
        with original(name, method, *what, *args, **kwargs) as theirs:
            yield theirs

    return server_span


def _ours(what: tuple[str, ...], kwargs: dict[str, Any]) -> Any:
    """Our open span with fastmcp's attributes on it, or ``None``."""
    raw = CURRENT.get()
    lend = None if raw is None or raw.ended else raw.lend_span
    if lend is None:
        return None
    found = {f"fastmcp.{key}": value for key, value in zip(_ATTRIBUTES, what, strict=True)}
    found |= {_CONVENTIONS[key]: value for key, value in kwargs.items() if key in _CONVENTIONS and value is not None}
    return lend(found)
