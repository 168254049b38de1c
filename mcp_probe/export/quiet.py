"""Calls to a backend that no instrumentation of the process turns into spans of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context

# The key is how the SDK's own processors say it; it has no public name.
_SUPPRESS = getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")


@contextmanager
def not_instrumented() -> Iterator[None]:
    """Within this block, on this thread, instrumented HTTP and gRPC clients make no spans."""
    token = context.attach(context.set_value(_SUPPRESS, True))
    try:
        yield
    finally:
        context.detach(token)
