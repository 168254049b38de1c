"""The SERVER span of a request while it is open: it gets what the probe knows; where nobody has opened one, ours is it.

Everything runs on the request's own task, so its cost is on the server's loop; benchmarks/overhead.py measures it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from threading import get_ident
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TracerProvider

from mcp_probe.capture.drain import record_of, step_record
from mcp_probe.capture.hub import Hub
from mcp_probe.capture.loop_monitor import LoopMonitor
from mcp_probe.capture.messages import agreed_version
from mcp_probe.capture.tracing import MAX_TEXT, Message, parent_of, text_of, uri_of
from mcp_probe.clock import now_ns
from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.span_attributes import (
    Attributes,
    Content,
    Redact,
    blocked_by,
    blocker_name,
    budget_attributes,
    error_attributes,
    network_attributes,
    operation_attributes,
    span_name,
    starved,
    waited_for,
)
from mcp_probe.model import RequestRecord, StepRecord
from mcp_probe.record.raw import RawRequest, StepMark

MAX_CARRIED = 8192
"""Characters of one propagated field of ``params._meta``; longer ones are not read. Source: W3C Baggage, 3.3."""

LEAST_SHARE = 20
"""A blocker has one step of at least this part (1/20) of what its victim waited, to be named on the victim's span."""

_PARENT_FIELDS = frozenset({"traceparent", "tracestate"})
"""What a span that was opened as the caller's child stands for already."""

_LINK_BLOCKED_BY: Attributes = {names.LINK_KIND: "blocked_by"}
_LINK_WAITED_FOR: Attributes = {names.LINK_KIND: "waited_for"}
_LINK_CALLER: Attributes = {names.LINK_KIND: "caller"}
_LINK_AMBIENT: Attributes = {names.LINK_KIND: "ambient"}


class _Scope:
    """One request whose SERVER span is open."""

    __slots__ = ("hub", "message", "own", "raw", "span", "token")

    def __init__(self, hub: Hub, raw: RawRequest, span: Span, message: Message, own: bool, token: Any) -> None:
        self.hub = hub
        self.raw = raw
        self.span = span
        self.message = message
        self.own = own
        self.token = token


class ServerSpans:
    """A :class:`~mcp_probe.capture.tracing.Tracing` for a process that has OpenTelemetry.

    Args:
        provider: Where spans of ours are made; ``None``: the application's global one, as soon as there is one.
        opens: Whether to open a SERVER span where nobody has.
        capture_content: Kinds of content to show; empty: none.
        redact: Applied to content before it is shown.
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        *,
        opens: bool = True,
        capture_content: tuple[str, ...] = (),
        redact: Redact | None = None,
    ) -> None:
        self._given = provider
        self._opens = opens
        self._content = Content(capture_content, redact)
        self._tracer: Any = None
        self._tracer_of: Any = None  # the provider it is of
        self._textmap: Any = None  # the propagators that ``_fields`` are of
        self._fields: frozenset[str] = frozenset()

    # --- what adapters call ---

    def listens(self) -> bool:
        """A span is open here, or could be opened."""
        return self._provider() is not None or trace.get_current_span().is_recording()

    def note_ambient(self, raw: RawRequest) -> None:
        """Remember the span (an HTTP instrumentation's) that the SDK's own will hide."""
        span = trace.get_current_span()
        if span is not trace.INVALID_SPAN and (found := span.get_span_context()).is_valid:
            raw.ambient = found

    def begin(self, hub: Hub, raw: RawRequest, message: Message) -> _Scope | None:
        """Find the SERVER span, or open it."""
        if raw.span_id is not None:
            return None  # attached twice: it has been seen to
        span = trace.get_current_span()
        if span.is_recording() and _is_of_mcp(span):
            return self._join(hub, raw, message, span)
        provider = self._provider()
        if provider is None:
            return None
        if message.opener and self._decides_for_sdk(provider):
            _note_span(raw, span.get_span_context(), "app")
            return None
        return self._open(hub, raw, message, provider) if self._opens else None

    def end(self, scope: _Scope, result: Any, error: BaseException | None) -> None:
        """Put on the span what is known now, and close it where it is ours."""
        try:
            self._finish(scope, result, error)
        finally:
            if scope.token is not None:
                otel_context.detach(scope.token)
            if scope.own:
                scope.raw.lend_span = None
                scope.span.end()

    def continue_unrecorded(self, hub: Hub, raw: RawRequest, message: Message) -> _Scope:
        """What the handler sends out names ``raw``'s ids as its parent, though nobody records that span here."""
        carrier = self._carrier(message.meta) if message.meta else None
        current = otel_context.get_current()
        parent = _extract_meta(carrier, current) if carrier else current
        caller = trace.get_current_span(parent).get_span_context()
        span = trace.NonRecordingSpan(
            SpanContext(
                raw.trace_id or 0,
                raw.span_id or 0,
                is_remote=False,
                trace_flags=TraceFlags(raw.trace_flags or 0),
                trace_state=caller.trace_state if caller.trace_id == raw.trace_id else None,
            )
        )
        token = otel_context.attach(trace.set_span_in_context(span, parent))
        return _Scope(hub, raw, span, message, False, token)

    def carry(self) -> Callable[..., Any] | None:
        """The trace context of now, for a thread that would not get it."""
        current = otel_context.get_current()
        return partial(_call_in, current) if current else None

    # --- finding and opening ---

    def _provider(self) -> TracerProvider | None:
        if self._given is not None:
            return self._given
        provider = trace.get_tracer_provider()
        return provider if _is_real(provider) else None

    def _decides_for_sdk(self, provider: TracerProvider) -> bool:
        """The SDK's spans come from this provider: one that is not recorded was refused by its sampler."""
        return provider is trace.get_tracer_provider()

    def _join(self, hub: Hub, raw: RawRequest, message: Message, span: Span) -> _Scope:
        _note_span(raw, span.get_span_context(), "app")
        meta = message.meta
        token = self._continue_meta(raw, meta, span) if meta and self._tells_more(meta) else None
        if message.session_id is not None and raw.transport == "http":
            raw.session_id = text_of(message.session_id)
        return _Scope(hub, raw, span, message, False, token)

    def _continue_meta(self, raw: RawRequest, meta: Mapping[str, Any], span: Span) -> Any:
        """What the SDK leaves out: baggage, and links to a caller or an ambient span that is not the parent."""
        caller = parent_of(meta)
        if caller is not None:
            raw.parent_span_id, raw.trace_state = caller.span_id, caller.state
            parent = getattr(span, "parent", None)
            named = None if parent is None else f"{parent.span_id:016x}"
            if named != caller.span_id:
                span.add_link(_context_of(caller.trace_id, int(caller.span_id, 16), caller.flags), _LINK_CALLER)
            elif raw.ambient is not None and raw.ambient.span_id != parent.span_id:  # type: ignore[union-attr]
                span.add_link(raw.ambient, _LINK_AMBIENT)
        if (self._propagated() - _PARENT_FIELDS).isdisjoint(meta):
            return None
        extracted = _extract_meta(self._carrier(meta), otel_context.get_current())
        return otel_context.attach(trace.set_span_in_context(span, extracted))

    def _open(self, hub: Hub, raw: RawRequest, message: Message, provider: TracerProvider) -> _Scope | None:
        ambient = self._around(message)
        parent = ambient
        links = []
        caller = parent_of(message.meta)
        carrier = self._carrier(message.meta) if message.meta else None
        if carrier:
            parent = _extract_meta(carrier, ambient)
        outer = trace.get_current_span(ambient).get_span_context()
        if caller is not None:
            raw.parent_span_id, raw.trace_state = caller.span_id, caller.state
            if outer.is_valid and outer.span_id != int(caller.span_id, 16):
                links.append(Link(outer, _LINK_AMBIENT))
        if raw.transport == "http":
            raw.session_id = text_of(message.session_id)
        if provider is not self._tracer_of:
            self._tracer_of, self._tracer = provider, provider.get_tracer(names.SCOPE)
        attributes = {**operation_attributes(raw.method, raw.name), **_request_attributes(raw, message)}
        span = self._tracer.start_span(
            span_name(raw.method, raw.name), parent, kind=SpanKind.SERVER, attributes=attributes, links=links
        )
        _note_span(raw, span.get_span_context(), "probe")
        raw.lend_span = partial(_lend, span)
        return _Scope(hub, raw, span, message, True, otel_context.attach(trace.set_span_in_context(span, parent)))

    def _around(self, message: Message) -> Context:
        """The context around ``message``: the current one, or what its own HTTP request says."""
        current = otel_context.get_current()
        if message.headers is None:
            return current
        own = trace.set_span_in_context(trace.INVALID_SPAN, current)
        carrier = self._carrier(message.headers)
        return propagate.extract(carrier, context=own) if carrier else own

    def _tells_more(self, meta: Mapping[str, Any]) -> bool:
        """Whether a caller or a propagator may have put something into ``meta``."""
        return not (_PARENT_FIELDS.isdisjoint(meta) and self._propagated().isdisjoint(meta))

    def _propagated(self) -> frozenset[str]:
        """Names under which the configured propagators look."""
        textmap = propagate.get_global_textmap()
        if textmap is not self._textmap:
            self._textmap, self._fields = textmap, frozenset(textmap.fields)
        return self._fields

    def _carrier(self, meta: Mapping[str, Any]) -> dict[str, str]:
        """What propagators may read: a client can put anything of any length under their names."""
        values = ((field, meta.get(field)) for field in self._propagated())
        return {field: value for field, value in values if isinstance(value, str) and len(value) <= MAX_CARRIED}

    # --- finishing ---

    def _finish(self, scope: _Scope, result: Any, error: BaseException | None) -> None:
        span, raw, message = scope.span, scope.raw, scope.message
        if not span.is_recording():
            return
        found = _budget_now(scope)
        if raw.method == "initialize":
            _add_version(found, raw, result)
        if not scope.own:
            _add_missing(found, span, raw, message)
        if error is not None or _failed(message, result):
            self._note_failure(scope, found, result, error)
        if raw.blocked_others_ns:
            found[names.BLOCKED_OTHERS] = raw.blocked_others_ns / 1e9
        if self._content:
            found.update(self._content.of_request(message))
            if error is None:
                found.update(self._content.of_result(message, result))
        span.set_attributes(found)

    def _note_failure(self, scope: _Scope, found: Attributes, result: Any, error: BaseException | None) -> None:
        """On a span that is somebody else's only what its owner leaves out: the code, and that it was cancelled."""
        outcome, kind, code = _failure_of(result, error)
        failure = error_attributes(outcome, kind, code)
        if not scope.own and outcome != "cancelled":
            if code is not None:
                found[names.RPC_RESPONSE_STATUS_CODE] = code
            return
        found.update(failure)
        if names.ERROR_TYPE in failure:
            scope.span.set_status(Status(StatusCode.ERROR))


def _budget_now(scope: _Scope) -> Attributes:
    """Where its time went up to this instant, and who held it up."""
    raw, hub, now = scope.raw, scope.hub, now_ns()
    running = _running_mark(hub.monitors.get(get_ident()), raw, now)
    record = record_of(hub, raw, now, running)
    found = budget_attributes(record)
    if record.waits:
        _add_blockers(scope, record, found)
    if record.awaits:
        _add_holders(scope.span, record)
    for row in starved(record):
        scope.span.add_event(names.EVENT_STARVED, row.event())
    return found


def _add_holders(span: Span, record: RequestRecord) -> None:
    """Events and links for those who held what this request awaited."""
    linked = set()
    for row in waited_for(record):
        span.add_event(names.EVENT_WAITED_FOR, row.event())
        if row.trace_id is not None and row.span_id is not None and row.span_id not in linked:
            linked.add(row.span_id)
            span.add_link(_context_of(int(row.trace_id, 16), int(row.span_id, 16), 1), _LINK_WAITED_FOR)


def _running_mark(monitor: LoopMonitor | None, raw: RawRequest, now: int) -> StepMark | None:
    """The step that this thread's loop is on, where it is ``raw``'s."""
    if monitor is None or monitor.owner is not raw or not monitor.since:
        return None
    return (monitor.unit, monitor.suspended, monitor.earliest, monitor.ready, monitor.since, now, monitor.wake)


def _lend(span: Span, attributes: Attributes) -> Span | None:
    """``span`` with more ``attributes``, as long as it is the current one and recorded."""
    if trace.get_current_span() is not span:
        return None
    if span.is_recording():
        span.set_attributes(attributes)
    return span


def _note_span(raw: RawRequest, context: SpanContext, opened_by: Any) -> None:
    if context.is_valid:
        raw.trace_id, raw.span_id, raw.trace_flags = context.trace_id, context.span_id, context.trace_flags
        raw.server_span = opened_by


def _extract_meta(carrier: dict[str, str], context: Context) -> Context:
    """``context`` with what ``params._meta`` carries.

    Logfire puts a propagator around the application's that warns of a trace context that came from elsewhere, once.
    It takes what ``params._meta`` carries without the warning: a caller of MCP puts it there on purpose. So do we.
    Source: logfire/propagate.py and logfire/_internal/integrations/mcp.py @5.4.0.
    """
    textmap = propagate.get_global_textmap()
    if type(textmap).__name__ == "WarnOnExtractTraceContextPropagator":
        textmap = getattr(textmap, "wrapped", textmap)
    return textmap.extract(carrier, context)


def _is_of_mcp(span: Span) -> bool:
    """Whether it is the SERVER span of an MCP request, whoever opened it."""
    attributes = getattr(span, "attributes", None)
    is_server = getattr(span, "kind", None) is SpanKind.SERVER
    return is_server and attributes is not None and attributes.get(names.MCP_METHOD_NAME) is not None


def _is_real(provider: Any) -> bool:
    """Somebody has set it: before that, the API hands out a stand-in."""
    return not isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider))


def _context_of(trace_id: int, span_id: int, flags: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))


def _call_in(context: Context, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    token = otel_context.attach(context)
    try:
        return function(*args, **kwargs)
    finally:
        otel_context.detach(token)


def _request_attributes(raw: RawRequest, message: Message) -> Attributes:
    """What the conventions want of any request, besides what was called."""
    found: Attributes = dict(network_attributes(raw.transport))
    if raw.request_id is not None:
        found[names.JSONRPC_REQUEST_ID] = str(raw.request_id)[:MAX_TEXT]
    if raw.protocol_version is not None:
        found[names.MCP_PROTOCOL_VERSION] = raw.protocol_version
    _add_peer(found, raw, message)
    return found


def _add_peer(found: Attributes, raw: RawRequest, message: Message) -> None:
    if raw.session_id is not None:
        found[names.MCP_SESSION_ID] = raw.session_id
    if message.client is not None:
        found[names.CLIENT_ADDRESS], found[names.CLIENT_PORT] = message.client
    if message.method.startswith("resources/"):
        uri = uri_of(message)
        if uri is not None:
            found[names.MCP_RESOURCE_URI] = uri


def _add_missing(found: Attributes, span: Span, raw: RawRequest, message: Message) -> None:
    """What whoever opened ``span`` has left out; what is there stays as it is."""
    there: Any = getattr(span, "attributes", None) or {}
    wanted = {**operation_attributes(raw.method, raw.name), **_request_attributes(raw, message)}
    found.update((key, value) for key, value in wanted.items() if there.get(key) is None)


def _add_version(found: Attributes, raw: RawRequest, result: Any) -> None:
    """The version both have agreed on. Where the answer is out of sight here, it was seen as it left the session."""
    version = agreed_version(result)
    if version is not None:
        raw.protocol_version = version
    if raw.protocol_version is not None:
        found[names.MCP_PROTOCOL_VERSION] = raw.protocol_version


def _failed(message: Message, result: Any) -> bool:
    if type(result) is dict:
        return message.method == "tools/call" and result.get("isError") is True
    if message.method != "tools/call":
        return _code_of(result) is not None
    root = getattr(result, "root", result)
    if isinstance(root, Mapping):
        return root.get("isError") is True
    return (
        getattr(root, "isError", None) is True or getattr(root, "is_error", None) is True or _code_of(root) is not None
    )


def _code_of(result: Any) -> str | None:
    """The code of an error that an mcp 1.x handler answers with as a value."""
    if isinstance(result, Mapping) or result is None:
        return None
    root = getattr(result, "root", result)
    code = getattr(root, "code", None)
    return str(code) if isinstance(code, int) and hasattr(root, "message") else None


def _failure_of(result: Any, error: BaseException | None) -> tuple[str, str | None, str | None]:
    """(outcome, error type, JSON-RPC code)."""
    if error is None:
        code = _code_of(result)
        return ("tool_error", None, None) if code is None else ("error", code, code)
    if not isinstance(error, Exception):
        return "cancelled", None, None
    code = getattr(getattr(error, "error", None), "code", None)
    if isinstance(code, int):
        return "error", str(code), str(code)
    if type(error).__name__ == "ValidationError" and type(error).__module__.startswith("pydantic"):
        return "error", "-32602", "-32602"  # as the SDK answers it
    return "error", type(error).__qualname__, None


def _add_blockers(scope: _Scope, record: RequestRecord, found: Attributes) -> None:
    """Events and links for those who held this request up, as far as their steps are remembered."""
    hub, span = scope.hub, scope.span
    since = min(wait.earliest_ns for wait in record.waits)
    until = max(wait.end_ns for wait in record.waits)
    # On a saturated loop a request waits behind hundreds of steps: only those that can matter are looked at here.
    least = min(until - since, sum(wait.end_ns - wait.earliest_ns for wait in record.waits)) // LEAST_SHARE
    entries: list[Any] = []
    for ring in (hub.recent, hub.slow):
        steps_seen = [] if ring is None else list(ring)  # the collector moves them from one to the other meanwhile
        first = bisect_right(steps_seen, since, key=itemgetter(2))
        entries += [one for one in steps_seen[first:] if one[2] - one[1] >= least and one[1] < until]
    if not entries:
        return
    steps: list[StepRecord] = [step_record(*entry) for entry in entries]
    owners = {entry[3].id: entry[3] for entry in entries if entry[3] is not None}
    rows = blocked_by(record, steps)
    if not rows:
        return
    found[names.BLOCKED_BY] = blocker_name(rows[0].blocker)
    for row in rows:
        span.add_event(names.EVENT_BLOCKED_BY, row.event())
        owner = owners.get(row.step.request)
        if owner is not None:
            owner.blocked_others_ns += row.lo_ns
            if owner.span_id is not None and owner.trace_id is not None:
                span.add_link(_context_of(owner.trace_id, owner.span_id, owner.trace_flags or 0), _LINK_BLOCKED_BY)
