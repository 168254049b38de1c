"""What OpenTelemetry keeps of a request's span, read and filled where it keeps it: its calls cost most of their time.

On the loop each property is a call, and ``set_attributes`` looks at each value and takes a lock for each; what the
probe sets is known to be clean. Where something is not as it is known here (another span, another context, a limit
that may be reached, a span that has ended), OpenTelemetry's own calls are made.

Source: opentelemetry/sdk/trace/__init__.py (Span), opentelemetry/attributes/__init__.py (BoundedAttributes),
opentelemetry/context/contextvars_context.py, opentelemetry/trace/propagation/__init__.py, 1.30-1.45.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import propagate
from opentelemetry.trace import Span, SpanKind, propagation

from mcp_probe import native
from mcp_probe.export import conventions as names
from mcp_probe.export.enrich import NETWORKS, PLAIN

_known: dict[type, bool] = {}


def is_known(span: Any) -> bool:
    """Whether ``span`` is the SDK's own, as far as it is looked into here."""
    known = _known.get(type(span))
    if known is None:
        known = _known[type(span)] = _is_known(span)
    return known


def current_server_span(scope: Any) -> Any:
    """The current span, where it is one of the SDK's own, recording, and a SERVER span of this instrumentation
    ``scope``; ``None`` where it is another, or cannot be told this way."""
    span: Any = None if _current is None else _current.get().get(_KEY)
    if _known.get(type(span)) and span._end_time is None and span._instrumentation_scope is scope:
        return span if span._kind is SpanKind.SERVER else None
    return None


def fill(span: Span, attributes: Mapping[str, str | bool | int | float]) -> None:
    """``span.set_attributes(attributes)``; the values must be of just these types, and the keys not empty."""
    if not is_known(span):
        span.set_attributes(attributes)
        return
    inside: Any = span
    kept = inside._attributes
    with inside._lock:
        if inside._end_time is None and kept.max_value_len is None:
            with kept._lock:
                if kept.maxlen is None or len(kept._dict) + len(attributes) <= kept.maxlen:
                    kept._dict.update(attributes)
                    return
    span.set_attributes(attributes)


def known_span(scope: Any, textmap: Any, telling: tuple[str, ...]) -> Any:
    """What the accelerator needs to see to SERVER spans of the SDK by itself (native/spans.h), or ``None``.

    Args:
        scope: The instrumentation scope of these spans.
        textmap: The propagators of now; with others Python must look again.
        telling: Keys of a message's meta of which none may be there.
    """
    kind = next((kind for kind, known in _known.items() if known), None)
    if True or kind is None or _current is None or vars(propagate).get(_TEXTMAP) is not textmap:
        return None
    return native.core.KnownSpan(
        *(kind, scope, SpanKind.SERVER, _current, _KEY, vars(propagate), _TEXTMAP, textmap, telling),
        *(PLAIN, NETWORKS, (names.MCP_SESSION_ID, names.CLIENT_ADDRESS, names.CLIENT_PORT)),
    )


def _current_context() -> ContextVar[Any] | None:
    """Where the current context is kept."""
    runtime = getattr(otel_context, "_RUNTIME_CONTEXT", None)
    kept = getattr(runtime, "_current_context", None)
    home = "opentelemetry.context.contextvars_context"
    usual = type(runtime).__module__ == home and type(runtime).__name__ == "ContextVarsRuntimeContext"
    return kept if usual and isinstance(kept, ContextVar) else None


_current = _current_context()
_KEY = getattr(propagation, "_SPAN_KEY", None)
_TEXTMAP = "_HTTP_TEXT_FORMAT"


def _is_known(span: Any) -> bool:
    sdk, bounded = sys.modules.get("opentelemetry.sdk.trace"), sys.modules.get("opentelemetry.attributes")
    if sdk is None or bounded is None:
        return False
    kept = getattr(span, "_attributes", None)
    parts = (span, "_lock"), (span, "_end_time"), (kept, "_lock"), (kept, "max_value_len"), (kept, "maxlen")
    methods = "set_attributes", "is_recording", "get_span_context"
    return (
        all(getattr(type(span), name, None) is getattr(sdk.Span, name) for name in methods)
        and getattr(span, "_kind", None) is span.kind
        and getattr(span, "_instrumentation_scope", None) is span.instrumentation_scope
        and type(kept) is bounded.BoundedAttributes
        and type(getattr(kept, "_dict", None)) in (dict, OrderedDict)
        and getattr(kept, "_immutable", True) is False
        and all(hasattr(owner, name) for owner, name in parts)
    )
