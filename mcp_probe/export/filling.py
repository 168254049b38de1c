"""Attributes on an open span of somebody else's provider, without most of what ``set_attributes`` costs on the loop.

The SDK's own span looks at each value and takes a lock for each; what the probe sets is known to be clean. Any other
span, one with a limit that may be reached, and one that has ended get ``set_attributes``.

Source: opentelemetry/sdk/trace/__init__.py (Span), opentelemetry/attributes/__init__.py (BoundedAttributes), 1.30-1.45.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Span

_known: dict[type, bool] = {}


def fill(span: Span, attributes: Mapping[str, str | bool | int | float]) -> None:
    """``span.set_attributes(attributes)``; the values must be of just these types, and the keys not empty."""
    kind = type(span)
    known = _known.get(kind)
    if known is None:
        known = _known[kind] = _is_known(span)
    if not known or not _filled(span, attributes):
        span.set_attributes(attributes)


def _filled(span: Any, attributes: Mapping[str, Any]) -> bool:
    kept = span._attributes
    with span._lock:
        if span._end_time is not None or kept.max_value_len is not None:
            return False
        with kept._lock:
            if kept.maxlen is not None and len(kept._dict) + len(attributes) > kept.maxlen:
                return False
            kept._dict.update(attributes)
    return True


def _is_known(span: Any) -> bool:
    sdk, bounded = sys.modules.get("opentelemetry.sdk.trace"), sys.modules.get("opentelemetry.attributes")
    if sdk is None or bounded is None:
        return False
    kept = getattr(span, "_attributes", None)
    parts = (span, "_lock"), (span, "_end_time"), (kept, "_lock"), (kept, "max_value_len"), (kept, "maxlen")
    return (
        getattr(type(span), "set_attributes", None) is sdk.Span.set_attributes
        and type(kept) is bounded.BoundedAttributes
        and type(getattr(kept, "_dict", None)) in (dict, OrderedDict)
        and getattr(kept, "_immutable", True) is False
        and all(hasattr(owner, name) for owner, name in parts)
    )
