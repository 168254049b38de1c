"""Calls in process, without streams (mcp 2.x): when the caller made its call, and when it got the answer.

A client in the same process awaits the server's handler in its own task. Its answer is there when the handler is over;
the caller goes on when the loop next runs its task, which may be long after.

Source: mcp/shared/direct_dispatcher.py, 2.0-2.3.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from mcp_probe.adapters.hook import Hook
from mcp_probe.capture.hub import Hub
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RawRequest

HOOK = "in-process calls"


class Call:
    """One call of a client, and the request that it became."""

    __slots__ = ("_began_ns", "_method", "raw")

    def __init__(self, method: str) -> None:
        self._began_ns = now_ns()
        self._method = method
        self.raw: RawRequest | None = None

    def take(self, raw: RawRequest) -> None:
        """The server's middleware has ``raw``, which is this call unless that is known already."""
        if self.raw is None and self._method == raw.method:
            self.raw = raw
            raw.arrival_ns = self._began_ns
            raw.taken_ns = now_ns()
            raw.write_seen = raw.kind == "request"


CALL: ContextVar[Call | None] = ContextVar("mcp_probe_call", default=None)


class InProcessHooks:
    """Process-wide hooks on the SDK's direct dispatcher."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.guard = Hook(hub, HOOK)

    def install(self, module: Any) -> None:
        """Patch ``mcp.shared.direct_dispatcher``."""
        dispatcher = getattr(module, "DirectDispatcher", None)
        if dispatcher is None or "send_raw_request" not in vars(dispatcher):
            self._hub.missing(HOOK, "this mcp calls in process another way; arrival and write are unavailable")
            return
        self.guard.wrap(dispatcher, "send_raw_request", before=self._called, after=self._returned)
        self._hub.working(HOOK)

    def restore(self) -> list[str]:
        """Undo it."""
        return self.guard.restore()

    def _called(self, dispatcher: Any, method: str, *args: Any, **kwargs: Any) -> Call:
        call = Call(method)
        CALL.set(call)
        return call

    def _returned(self, call: Call, _: Any, error: BaseException | None) -> None:
        CALL.set(None)
        raw = call.raw
        if raw is None or raw.ended or raw.result_ns is None:
            return
        now = now_ns()
        raw.write_waits = ((raw.result_ns, now),)
        raw.write_taken_ns = raw.flushed_ns = now
        self._hub.requests.end(raw, now)
