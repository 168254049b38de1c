"""mcp 1.x (and fastmcp 2 and 3 on it): the one seam that served every release from 1.6 to 1.30.

``Server._handle_request`` runs in a task of its own per request. What happens before it (transport,
dispatch) and after its answer is handed to the writer cannot be seen there: unavailable.

Source: mcp/server/lowlevel/server.py and mcp/shared/session.py, 1.30.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import wraps
from typing import Any

from mcp_probe.adapters.fastmcp3 import SEAM
from mcp_probe.adapters.hook import Hook, guarded
from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.span_middleware import client_of
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.live_requests import MAX_NAME
from mcp_probe.capture.memory_tier import HOOK as MEMORY
from mcp_probe.capture.sent import KEY as SENT
from mcp_probe.capture.sent import sent_ns
from mcp_probe.capture.tracing import Message, Tracing
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RawRequest

HOOK = "request handler (mcp 1.x)"
SPANS_HOOK = "spans (mcp 1.x)"
_NAMED = ("tools/call", "prompts/get")


def lowlevel_of(server: Any) -> Any:
    """The low-level mcp 1.x server behind ``server`` (FastMCP, fastmcp 2/3, or itself), or ``None``."""
    for candidate in (server, getattr(server, "_mcp_server", None)):
        if candidate is not None and hasattr(candidate, "request_handlers") and hasattr(candidate, "_handle_request"):
            return candidate
    return None


def _reads_stdin() -> bool:
    """Whether the SDK's stdio transport runs on this loop: stdio and in-process streams look alike from a handler."""
    from anyio import get_running_tasks

    names = [task.name or "" for task in get_running_tasks()]
    return any(name.startswith("mcp.server.stdio.") and name.endswith(".stdin_reader") for name in names)


def _message_of(raw: RawRequest, message: Any, req: Any) -> Message:
    params = getattr(req, "params", None)
    meta = getattr(params, "meta", None)
    more = getattr(meta, "model_extra", None)
    session_id = client = headers = None
    if raw.transport == "http":
        request = message.message_metadata.request_context
        client = client_of(request)
        # The session's task, and so the context around each handler, is its first request's.
        found = getattr(request, "headers", None)
        headers = found if isinstance(found, Mapping) else {}
        session_id = headers.get("mcp-session-id")
    return Message(raw.method, params, more if isinstance(more, Mapping) else None, session_id, client, headers)


def _protocol_of(others: tuple[Any, ...]) -> str | None:
    """The version the session speaks: the one its client asked for, where this SDK supports it."""
    asked = getattr(getattr(others[0] if others else None, "client_params", None), "protocolVersion", None)
    supported = getattr(sys.modules.get("mcp.shared.version"), "SUPPORTED_PROTOCOL_VERSIONS", ())
    return asked if asked in supported else None


class _Unanswered(BaseException):
    """Its handler is over and gave no answer: the SDK swallows a cancellation that the client asked for."""


class HandlerHooks:
    """What attaching to one mcp 1.x server replaces on that server."""

    def __init__(self, hub: Hub, loops: Loops, session: Any) -> None:
        self._hub = hub
        self._loops = loops
        self._session = session
        self.guard = Hook(hub, HOOK)
        self._memory = Hook(hub, MEMORY)
        self._tracing_guard = Guard(SPANS_HOOK, hub.fail, self._trace_no_more)
        self._tracing: Tracing | None = None
        self._scopes: dict[int, Any] = {}  # request -> its open span
        self._shares = False  # fastmcp was told to use it
        self._local: str | None = None  # its transport, where that is not HTTP

    def install(self, server: Any) -> None:
        """Attach to the low-level ``server``."""
        self.guard.replace(server, "_handle_request", self._make_handle)
        if hasattr(server, "run"):  # before the transport's first step: tracemalloc begins while there are no threads
            self._memory.wrap(server, "run", before=lambda *args, **kwargs: self._hub.memory.loop_begins())
        self._hub.working(HOOK)

    def trace(self, tracing: Tracing) -> None:
        """Open a SERVER span for each request: mcp 1.x opens none, and fastmcp 3 gets ours."""
        self._tracing = tracing
        self._shares = SEAM.install(self._hub)

    def restore(self) -> list[str]:
        """Put it back."""
        self._tracing = None
        stuck = SEAM.restore() if self._shares else []
        self._shares = False
        return stuck + self._memory.restore() + self.guard.restore()

    def _make_handle(self, original: Any) -> Any:
        hooks = self

        @wraps(original)
        async def _handle_request(message: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
            entered = hooks._enter(message, req) if hooks.guard.active else None
            if entered is None:
                return await original(message, req, *args, **kwargs)
            raw, monitor, token = entered
            hooks._begin_span(raw, message, req, args)
            try:
                awaitable = original(message, req, *args, **kwargs)
                return await (awaitable if monitor is None else monitor.followed(awaitable, raw))
            except BaseException as exc:
                if raw.result_ns is None:
                    raw.outcome = "error" if isinstance(exc, Exception) else "cancelled"
                hooks._end_span(raw, None, exc)
                raise
            finally:
                hooks._end_span(raw, None, _Unanswered())
                hooks._leave(raw, monitor, token)

        return _handle_request

    @guarded
    def _enter(self, message: Any, req: Any) -> tuple[RawRequest, Any, Any]:
        monitor = self._loops.follow()
        method = getattr(req, "method", type(req).__name__)
        name = getattr(getattr(req, "params", None), "name", None) if method in _NAMED else None
        tool = name[:MAX_NAME] if isinstance(name, str) else None
        raw = self._hub.begin("request", method, tool, self._transport_of(message), self._session)
        raw.request_id = getattr(message, "request_id", None)
        raw.protocol_version = None
        meta = getattr(getattr(getattr(req, "params", None), "meta", None), "model_extra", None)
        if meta and SENT in meta:
            raw.sent_ns = sent_ns(meta, now_ns())
        respond = message.respond

        async def probed_respond(response: Any) -> None:
            self._end_span(raw, response, None)
            self._result(raw, response)
            await respond(response)

        message.respond = probed_respond
        return raw, monitor, None if monitor is None else monitor.enter(raw)

    def _transport_of(self, message: Any) -> str:
        metadata = getattr(message, "message_metadata", None)
        if getattr(metadata, "request_context", None) is not None:
            return "http"
        if self._local is None:
            self._local = "stdio" if _reads_stdin() else "unknown"
        return self._local

    @guarded
    def _result(self, raw: RawRequest, response: Any) -> None:
        self._hub.requests.finished(raw, now_ns())
        root = getattr(response, "root", response)
        code = getattr(root, "code", None)
        if code is not None:
            raw.outcome, raw.error, raw.error_code = "error", str(code), str(code)
        elif getattr(root, "isError", None) is True:
            raw.outcome, raw.error = "tool_error", "tool_error"

    @guarded
    def _leave(self, raw: RawRequest, monitor: Any, token: Any) -> None:
        if monitor is not None:
            monitor.leave(raw, token)
        now = now_ns()
        if raw.result_ns is None and raw.outcome == "ok":
            raw.outcome = "cancelled"
        if raw.result_ns is not None:
            raw.write_taken_ns = now
        self._hub.requests.end(raw, now)

    # --- spans ---

    def _begin_span(self, raw: RawRequest, message: Any, req: Any, others: tuple[Any, ...]) -> None:
        if self._tracing is not None:
            self._tracing_guard.call(self._open_span, self._tracing, raw, message, req, others)

    def _open_span(self, tracing: Tracing, raw: RawRequest, message: Any, req: Any, others: tuple[Any, ...]) -> None:
        raw.protocol_version = _protocol_of(others)
        scope = tracing.begin(self._hub, raw, _message_of(raw, message, req))
        if scope is not None:
            self._scopes[raw.id] = scope

    def _end_span(self, raw: RawRequest, response: Any, error: BaseException | None) -> None:
        """On the task that began it, before the answer is written; what never answers ends with its handler."""
        scope = self._scopes.pop(raw.id, None)
        if scope is not None and self._tracing is not None:
            self._tracing_guard.call(self._tracing.end, scope, response, error)

    def _trace_no_more(self) -> None:
        self._tracing = None
        self._scopes.clear()
