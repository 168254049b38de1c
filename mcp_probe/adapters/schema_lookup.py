"""What the SDK asks a server itself: the tools, for the schema of the one that is called.

mcp 2.x checks the `Mcp-Param-*` headers of each `tools/call` of a stateless HTTP client. Without a schema at hand it
sends `tools/list` through the server's middleware, page by page. No client has sent that: it is part of the call.

Source: mcp/server/_streamable_http_modern.py, 2.0-2.3.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mcp_probe.adapters.hook import Hook
from mcp_probe.capture.current import EXCHANGE, Exchange
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.live_requests import MAX_NAME
from mcp_probe.capture.measuring import Add
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RawRequest

HOOK = "schema look-ups"
MEASURE, ON_LOOP = "schema_lookup", "schema_lookup_busy"
_NAMES = ("_tool_input_schema", "_mcp_param_rejection")


class SchemaLookupHook:
    """Marks an exchange while the SDK looks up a schema for it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.guard = Hook(hub, HOOK)

    def install(self, module: ModuleType) -> None:
        """Patch ``mcp.server._streamable_http_modern``."""
        if not all(hasattr(module, name) for name in _NAMES):
            self._hub.missing(HOOK, "this mcp looks up schemas in a way that is not known to us")
            return
        self.guard.wrap(module, _NAMES[0], before=self._begin, after=self._end)
        self.guard.wrap(module, _NAMES[1], after=self._judged)
        self._hub.working(HOOK)

    def restore(self) -> list[str]:
        """Undo it."""
        return self.guard.restore()

    def _begin(self, app: Any, request: Any, request_id: Any, verdict: Any, state: Any, name: str) -> Any:
        exchange = EXCHANGE.get()
        if exchange is not None:
            exchange.looked_up = name[:MAX_NAME]
        return exchange, now_ns()

    def _end(self, begun: tuple[Exchange | None, int], _: Any, error: BaseException | None) -> None:
        exchange, began = begun
        if exchange is None:
            return
        exchange.looked_up = None
        now, raw = now_ns(), exchange.raw
        self._hub.measuring.charge(raw, MEASURE, now - began)
        if raw is not None:
            self._hub.measuring.charge(raw, ON_LOOP, self._on_loop_ns(raw, began, now))

    def _on_loop_ns(self, raw: RawRequest, began: int, now: int) -> int:
        """Time in which the loop ran ``raw`` since ``began``: it runs at this moment. The handler has not begun."""
        monitor = self._hub.monitor()
        ended = sum(end - max(start, began) for *_, start, end, _ in raw.marks if end > began)
        runs = 0 if monitor is None or monitor.owner is not raw else now - max(monitor.since, began)
        return ended + runs

    def _judged(self, _: Any, rejection: Any, error: BaseException | None) -> None:
        """If the headers do not fit the schema, the SDK answers the call, and no handler gets it."""
        exchange = EXCHANGE.get()
        raw = None if exchange is None else exchange.raw
        if rejection is not None and raw is not None and not raw.ended:
            raw.outcome = "error"
            raw.error = raw.error_code = str(rejection.code)
            self._hub.requests.finished(raw, now_ns())


class SchemaLookups:
    """Reads ``schema_lookup`` and ``schema_lookup_busy``: the hook adds what it takes."""

    def __init__(self, hub: Hub, add: Add) -> None:
        self._hub = hub

    def is_complete(self) -> bool:
        """Whether the hook works, or the SDK has no such look-up."""
        return self._hub.hooks.get(HOOK, "active") == "active"

    def restore(self) -> list[str]:
        """Nothing to undo."""
        return []
