"""mcp 1.x (and fastmcp 2 and 3 on it), every release from 1.6 to 1.30.

A message reaches us first where its transport hands it over (stdio.py, http_transports.py, ``Server.run``'s streams).
The session's receive loop takes it next; ``initialize`` is answered there, and so are requests that are malformed. All
others go to ``Server._handle_message`` and ``Server._handle_request``, in a task of their own, which claim the request
that the transport has opened. Where no transport has seen it (attached while the server ran) it is opened there, and
what came before and comes after cannot be seen.

Source: mcp/server/lowlevel/server.py, mcp/server/session.py and mcp/shared/session.py, 1.6-1.30.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any
from weakref import ref

from mcp_probe.adapters.fastmcp3 import SEAM
from mcp_probe.adapters.hook import Hook, guarded
from mcp_probe.adapters.loops import Loops
from mcp_probe.adapters.probe_resources import HOOK as RESOURCES
from mcp_probe.adapters.probe_resources import LegacyHandlers, ProbeResources
from mcp_probe.adapters.server_streams import Pair, ServerStreams
from mcp_probe.adapters.span_middleware import client_of
from mcp_probe.capture.current import EXCHANGE
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.live_requests import MAX_NAME
from mcp_probe.capture.memory_tier import HOOK as MEMORY
from mcp_probe.capture.messages import Channel, message_in
from mcp_probe.capture.sent import KEY as SENT
from mcp_probe.capture.sent import sent_ns
from mcp_probe.capture.streams import IntoSession
from mcp_probe.capture.tracing import Message, Tracing, param_of
from mcp_probe.clock import now_ns
from mcp_probe.record.raw import RawRequest

HOOK = "request handler (mcp 1.x)"
SPANS_HOOK = "spans (mcp 1.x)"
_NAMED = ("tools/call", "prompts/get")
_VERSION_HEADER = "mcp-protocol-version"


def is_imported() -> bool:
    """Whether the SDK here is mcp 1.x."""
    return hasattr(sys.modules.get("mcp.shared.session"), "RequestResponder")


def lowlevel_of(server: Any) -> Any:
    """The low-level mcp 1.x server behind ``server`` (FastMCP, fastmcp 2/3, or itself), or ``None``."""
    for candidate in (server, getattr(server, "_mcp_server", None)):
        if candidate is not None and hasattr(candidate, "request_handlers") and hasattr(candidate, "_handle_request"):
            return candidate
    return None


def _request_of(message: Any) -> Any:
    """The HTTP request that a message came in, or ``None``."""
    metadata = getattr(message, "message_metadata", None) or getattr(message, "metadata", None)
    return getattr(metadata, "request_context", None)


def _message_of(raw: RawRequest, message: Any, params: Any) -> Message:
    meta = param_of(params, "meta") or param_of(params, "_meta")
    more = meta if isinstance(meta, Mapping) else getattr(meta, "model_extra", None)
    session_id = client = headers = None
    request = _request_of(message) if raw.transport == "http" else None
    if request is not None:
        client = client_of(request)
        # The session's task, and so the context around each handler, is its first request's.
        found = getattr(request, "headers", None)
        headers = found if isinstance(found, Mapping) else {}
        session_id = headers.get("mcp-session-id")
    return Message(raw.method, params, more if isinstance(more, Mapping) else None, session_id, client, headers)


def _protocol_of(raw: RawRequest, message: Any, others: tuple[Any, ...]) -> str | None:
    """The version the session speaks: as negotiated, or the one that its client asked for or names in its requests."""
    channel: Channel | None = raw.channel
    if channel is not None and channel.protocol_version is not None:
        return channel.protocol_version
    asked = getattr(getattr(others[0] if others else None, "client_params", None), "protocolVersion", None)
    if asked is None:
        headers = getattr(_request_of(message), "headers", None)
        asked = headers.get(_VERSION_HEADER) if isinstance(headers, Mapping) else None
    supported = getattr(sys.modules.get("mcp.shared.version"), "SUPPORTED_PROTOCOL_VERSIONS", ())
    return asked if asked in supported else None


class _Unanswered(BaseException):
    """Its handler is over and gave no answer: the SDK swallows a cancellation that the client asked for."""


class _ReceiveLoop:
    """What a session's receive loop does with each message. Called on its task."""

    def __init__(self, hooks: HandlerHooks, channel: Channel) -> None:
        self.forwarded: deque[RawRequest] = deque()  # notifications on their way to a handler
        self._hooks = hooks
        self._channel = channel
        self._notice: RawRequest | None = None
        self._item: Any = None
        self._answering: tuple[RawRequest, Any, Any, Any] | None = None

    def takes(self, raw: RawRequest, item: Any) -> None:
        """The loop works on ``raw`` from now on."""
        self._item = item
        if raw.kind == "notification":
            raw.protocol_version = self._channel.protocol_version or _protocol_of(raw, item, ())
            self._notice = raw
        elif raw.method == "initialize":
            self._answering = self._hooks.enter_receiving(raw, item, None)

    def rejects(self, raw: RawRequest, error: Any) -> None:
        """It answers ``raw`` itself: the request is malformed."""
        if self._item is not None:
            self._answering = self._hooks.enter_receiving(raw, self._item, error)

    def forwards(self) -> None:
        """It hands what it works on to a task of its own."""
        self._item = None
        if self._notice is not None:
            self.forwarded.append(self._notice)
            self._notice = None

    def waits(self) -> None:
        """It is done with it."""
        self._item = None
        answering, self._answering = self._answering, None
        if answering is not None:
            self._hooks.leave_receiving(*answering)
        notice, self._notice = self._notice, None
        if notice is not None:
            self._channel.requests.end(notice, now_ns())


def _receiver_of(session: Any) -> _ReceiveLoop | None:
    return getattr(getattr(session, "_read_stream", None), "receiver", None)


class SessionHooks:
    """Process-wide: which notifications a session hands to handlers; it handles the others itself."""

    def __init__(self, hub: Hub) -> None:
        self.guard = Hook(hub, "notifications (mcp 1.x)")

    def install(self, module: Any) -> None:
        """Patch ``mcp.server.session``."""
        session = getattr(module, "ServerSession", None)
        if session is not None and "_handle_incoming" in vars(session):
            self.guard.wrap(session, "_handle_incoming", before=_forwards)

    def restore(self) -> list[str]:
        """Undo it."""
        return self.guard.restore()


def _forwards(session: Any, *args: Any, **kwargs: Any) -> None:
    receiver = _receiver_of(session)
    if receiver is not None:
        receiver.forwards()


class HandlerHooks:
    """What attaching to one mcp 1.x server replaces on that server."""

    def __init__(self, hub: Hub, loops: Loops, session: Any) -> None:
        self._hub = hub
        self._loops = loops
        self._session = session
        self.guard = Hook(hub, HOOK)
        self._memory = Guard(MEMORY, hub.fail)
        self._resources = Hook(hub, RESOURCES)
        self._stand_in: Callable[[Any], None] | None = None  # before the server looks for a handler
        self._streams = ServerStreams(hub, loops, session, lambda: self.guard.active)
        self._tracing_guard = Guard(SPANS_HOOK, hub.fail, self._trace_no_more)
        self._tracing: Tracing | None = None
        self._scopes: dict[int, Any] = {}  # request -> its open span
        self._shares = False  # fastmcp was told to use it

    def install(self, server: Any) -> None:
        """Attach to the low-level ``server``."""
        self.guard.replace(server, "_handle_request", self._make_handle)
        if hasattr(server, "_handle_message"):
            self.guard.replace(server, "_handle_message", self._make_handle_message)
        if hasattr(server, "run"):
            self.guard.replace(
                server, "run", lambda original: self._streams.around_run(original, self._begins, self._within)
            )
        self._hub.working(HOOK)
        tell = self._session.tell
        if tell is not None:
            self._resources.call(self._add_resources, server, ProbeResources(tell))

    def _add_resources(self, server: Any, resources: ProbeResources) -> None:
        handlers, known = LegacyHandlers(self._resources, self._hub, resources), ref(server)
        handlers.install(server)
        self._stand_in = lambda req: handlers.stand_in(known(), req)

    def trace(self, tracing: Tracing) -> None:
        """Open a SERVER span for each request: mcp 1.x opens none, and fastmcp 3 gets ours."""
        self._tracing = tracing
        self._shares = SEAM.install(self._hub)

    def restore(self) -> list[str]:
        """Put it back."""
        self._tracing = None
        stuck = SEAM.restore() if self._shares else []
        self._shares = False
        self._stand_in = None
        return stuck + self._resources.restore() + self.guard.restore()

    # --- the session's receive loop ---

    def _begins(self) -> None:
        """Before the transport's first step: tracemalloc begins while there are no threads."""
        if self._memory.active:
            self._memory.call(self._hub.memory.loop_begins)

    def _within(self, pair: Pair) -> Pair:
        return self.guard.call(self._into_session, pair) or pair

    def _into_session(self, pair: Pair) -> Pair | None:
        channel: Channel | None = getattr(pair[0], "mcp_probe_channel", None)
        if channel is None or not self.guard.active:
            return None
        if EXCHANGE.get() is not None:  # a handler of HTTP runs the server: no message of it came in that exchange
            EXCHANGE.set(None)
        if channel.handed is None:
            channel.handed = {}
        receiver = _ReceiveLoop(self, channel)
        channel.rejects = receiver.rejects
        return IntoSession(pair[0], channel, self._hub.fail, receiver), pair[1]

    @guarded
    def enter_receiving(self, raw: RawRequest, item: Any, error: Any) -> tuple[RawRequest, Any, Any, Any]:
        """The receive loop answers ``raw`` itself, with ``error`` or as it should."""
        monitor = self._loops.follow()
        raw.protocol_version = _protocol_of(raw, item, ())
        self._begin_span(raw, item, message_in(item)[0].params)
        return raw, error, monitor, None if monitor is None else monitor.enter(raw)

    @guarded
    def leave_receiving(self, raw: RawRequest, error: Any, monitor: Any, token: Any) -> None:
        """It has answered ``raw``."""
        self._end_span(raw, error, None if raw.result_ns is not None else _Unanswered())
        if monitor is not None:
            monitor.leave(raw, token)
        if raw.result_ns is None:
            self._hub.requests.end(raw, now_ns(), "cancelled")

    # --- handlers ---

    def _make_handle(self, original: Any) -> Any:
        hooks = self

        @wraps(original)
        async def _handle_request(message: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
            entered = hooks._enter(message, req, args) if hooks.guard.active else None
            if hooks._stand_in is not None and hooks._resources.active:
                hooks._resources.call(hooks._stand_in, req)
            if entered is None:
                return await original(message, req, *args, **kwargs)
            raw, monitor, token = entered
            hooks._begin_span(raw, message, getattr(req, "params", None))
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
    def _enter(self, message: Any, req: Any, others: tuple[Any, ...]) -> tuple[RawRequest, Any, Any]:
        monitor = self._loops.follow()
        raw = self._claimed(message) or self._opened(message, req)
        raw.protocol_version = _protocol_of(raw, message, others)
        meta = getattr(getattr(getattr(req, "params", None), "meta", None), "model_extra", None)
        if meta and SENT in meta:
            raw.sent_ns = sent_ns(meta, raw.taken_ns or now_ns())
        self._watch_answer(raw, message)
        return raw, monitor, None if monitor is None else monitor.enter(raw)

    def _claimed(self, message: Any) -> RawRequest | None:
        """The request that its transport has opened."""
        stream = getattr(getattr(message, "_session", None), "_read_stream", None)
        channel: Channel | None = getattr(stream, "mcp_probe_channel", None)
        claimed = None
        for raw in () if channel is None else channel.of_id(message.request_id):
            if raw.ended or raw.first_step_ns is not None or raw.session is not self._session:
                break
            claimed = raw  # handlers begin in the order in which their requests came
        return claimed

    def _opened(self, message: Any, req: Any) -> RawRequest:
        method = getattr(req, "method", type(req).__name__)
        name = getattr(getattr(req, "params", None), "name", None) if method in _NAMED else None
        tool = name[:MAX_NAME] if isinstance(name, str) else None
        transport = "unknown" if _request_of(message) is None else "http"
        raw = self._hub.begin("request", method, tool, transport, self._session)
        raw.request_id = getattr(message, "request_id", None)
        return raw

    def _watch_answer(self, raw: RawRequest, message: Any) -> None:
        """Note when the handler answers, and when its client cancels it."""
        respond, cancel = message.respond, getattr(message, "cancel", None)

        async def probed_respond(response: Any) -> None:
            self._end_span(raw, response, None)
            if raw.channel is None:
                self._result(raw, response)
            await respond(response)

        async def probed_cancel() -> None:
            if raw.result_ns is None:
                raw.outcome = "cancelled"
            await cancel()  # type: ignore[misc]

        message.respond = probed_respond
        if cancel is not None:
            message.cancel = probed_cancel

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
        if raw.result_ns is None:
            self._hub.requests.end(raw, now, "cancelled" if raw.outcome == "ok" else None)
        elif raw.channel is None:
            raw.write_taken_ns = now
            self._hub.requests.end(raw, now)

    # --- notifications ---

    def _make_handle_message(self, original: Any) -> Any:
        hooks = self

        @wraps(original)
        async def _handle_message(message: Any, *args: Any, **kwargs: Any) -> Any:
            is_notice = hooks.guard.active and not hasattr(message, "respond") and not isinstance(message, Exception)
            entered = hooks._enter_notice(args) if is_notice else None
            if entered is None:
                return await original(message, *args, **kwargs)
            raw, monitor, token = entered
            try:
                awaitable = original(message, *args, **kwargs)
                return await (awaitable if monitor is None else monitor.followed(awaitable, raw))
            finally:
                hooks._leave_notice(raw, monitor, token)

        return _handle_message

    @guarded
    def _enter_notice(self, others: tuple[Any, ...]) -> tuple[RawRequest, Any, Any] | None:
        receiver = _receiver_of(others[0] if others else None)
        if receiver is None or not receiver.forwarded or receiver.forwarded[0].session is not self._session:
            return None
        raw = receiver.forwarded.popleft()
        monitor = self._loops.follow()
        return raw, monitor, None if monitor is None else monitor.enter(raw)

    @guarded
    def _leave_notice(self, raw: RawRequest, monitor: Any, token: Any) -> None:
        if monitor is not None:
            monitor.leave(raw, token)
        self._hub.requests.end(raw, now_ns())

    # --- spans ---

    def _begin_span(self, raw: RawRequest, message: Any, params: Any) -> None:
        if self._tracing is not None:
            self._tracing_guard.call(self._open_span, self._tracing, raw, message, params)

    def _open_span(self, tracing: Tracing, raw: RawRequest, message: Any, params: Any) -> None:
        scope = tracing.begin(self._hub, raw, _message_of(raw, message, params))
        if scope is not None:
            self._scopes[raw.id] = scope

    def _end_span(self, raw: RawRequest, response: Any, error: BaseException | None) -> None:
        """On the task that began it, before the answer is written. A request without answer ends with its handler."""
        scope = self._scopes.pop(raw.id, None)
        if scope is not None and self._tracing is not None:
            self._tracing_guard.call(self._tracing.end, scope, response, error)

    def _trace_no_more(self) -> None:
        self._tracing = None
        self._scopes.clear()
