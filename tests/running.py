"""Running an async function on the loop that a test was given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

T = TypeVar("T")
Backend = str | tuple[str, dict[str, Any]]
"""As ``anyio_backend`` of ``tests.loops``."""


def run_on(backend: Backend, function: Callable[[], Awaitable[T]]) -> T:
    """Result of ``function()`` on a loop of its own."""
    name, options = (backend, {}) if isinstance(backend, str) else backend
    return anyio.run(function, backend=name, backend_options=options)


def kind_of(backend: Backend) -> str:
    """asyncio, uvloop or trio."""
    if isinstance(backend, str):
        return backend
    return "uvloop" if backend[1].get("use_uvloop") else backend[0]
