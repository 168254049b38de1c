"""What telemetry does around a handler, as adapters see it; and the caller's trace context, read without OpenTelemetry.

Adapters know the SDK and call a :class:`Tracing`; the implementations live in ``export`` and know OpenTelemetry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mcp_probe.record.raw import RawRequest

if TYPE_CHECKING:
    from mcp_probe.capture.hub import Hub

RECENT = 512
"""Slow steps among which spans of requests look for their blockers; older ones show in the linked span."""

ASK_AGAIN_NS = 100_000_000
"""How long it is assumed that there still is no provider: asking costs 2 us, on the server's loop."""

MAX_TEXT = 128
MAX_URI = 256
MAX_STATE = 512
"""Characters of a ``tracestate`` that are kept; the format allows dropping a longer one."""

_SECRET_IN_URI = re.compile(r"^([^/?#]*//)[^/?#]*@|[?#].*", re.DOTALL)
"""User and password, or everything from the query on. Source: RFC 3986, appendix B."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)


class Message(NamedTuple):
    """One message to the server, as its SDK hands it over."""

    method: str
    params: Any  # a mapping, or the SDK's model of it
    meta: Mapping[str, Any] | None
    session_id: str | None = None
    client: tuple[str, int] | None = None  # address and port of an HTTP peer
    headers: Mapping[str, str] | None = None  # of its HTTP request, if the handler runs in another request's context
    opener: bool = False  # the SDK opens a SERVER span itself: if none is recorded, a sampler has refused it


class Parent(NamedTuple):
    """The caller's span, as ``params._meta`` names it."""

    trace_id: int
    span_id: str
    flags: int
    state: str | None


class Tracing(Protocol):
    """Spans around handlers. Called on the request's own task, except for :meth:`carry`'s result; callers guard."""

    def listens(self) -> bool:
        """Whether :meth:`begin` is worth a call. Cheap; notices a change a fraction of a second late."""

    def note_ambient(self, raw: RawRequest) -> None:
        """Outside of the SDK's own span: remember the span that is current there."""

    def begin(self, hub: Hub, raw: RawRequest, message: Message) -> Any:
        """Called before the handler. Returns what to give to :meth:`end`; ``None`` if there is nothing to end."""

    def end(self, scope: Any, result: Any, error: BaseException | None) -> None:
        """The handler has returned ``result`` or raised ``error``; the SDK's own span is still open."""

    def carry(self) -> Callable[..., Any] | None:
        """A function that calls ``function(*args, **kwargs)`` in the present trace context, on any thread."""


def parent_of(meta: Mapping[str, Any] | None) -> Parent | None:
    """The caller's span in ``meta``, or ``None`` where it is missing or malformed.

    Source: W3C Trace Context, sections 3.2 and 3.3.
    """
    if not meta:
        return None
    text = meta.get("traceparent")
    found = _TRACEPARENT.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    state = meta.get("tracestate")
    kept = state if isinstance(state, str) and len(state) <= MAX_STATE else None
    return Parent(int(trace_id, 16), span_id, int(flags, 16) & 3, kept or None)


def text_of(value: Any, most: int = MAX_TEXT) -> str | None:
    """``value`` where it is a string, cut to ``most`` characters."""
    return value[:most] if isinstance(value, str) and value else None


def param_of(params: Any, name: str) -> Any:
    """Parameter ``name`` of a message, whether its parameters are a mapping or a model."""
    if isinstance(params, Mapping):
        return params.get(name)
    return getattr(params, name, None)


def uri_of(message: Message) -> str | None:
    """The message's resource URI, length-capped, without what may be secret: user, password, query and fragment."""
    uri = param_of(message.params, "uri")
    return None if uri is None else text_of(_SECRET_IN_URI.sub(r"\1", str(uri)), MAX_URI)
