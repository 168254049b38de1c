"""A loop of asyncio's with the probe's hooks on it, with or without the accelerator's part of them, or bare."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.adapters import asyncio_loop
from mcp_probe.adapters.asyncio_loop import AsyncioHooks
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub

Handle: Any = None if native.core is None else native.core.Handle


@contextmanager
def loop_of(kind: type[asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop) -> Iterator[Any]:
    """A new loop, closed at the end."""
    loop = kind()
    try:
        yield loop
    finally:
        loop.close()


@contextmanager
def followed(loop: Any, hub: Hub | None = None) -> Iterator[Any]:
    """``loop`` with the hooks installed and followed; gives its track."""
    hub = Hub() if hub is None else hub
    hooks = AsyncioHooks(hub)
    hooks.install()
    try:
        track = hooks.follow(loop)
        assert track is not None
        yield track
    finally:
        assert hooks.restore() == []
        hub.watchdog.stop()


def run_ready(loop: Any) -> None:
    """Run what is in the queue now, and what that puts there for the same turn."""
    loop.call_soon(loop.stop)
    loop.run_forever()


@contextmanager
def python_only() -> Iterator[None]:
    """Hooks installed inside use the Python twins of the loop's part; requests and steps stay as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio_loop, "native", SimpleNamespace(core=None))
        yield


def nothing(*_: Any) -> None:
    """A callback that does nothing."""


def open_request(hub: Hub) -> Any:
    """A request that has just begun."""
    return hub.desk.open("request", "tools/call", "t", "stdio")


def same_as_bare(scenario: Callable[[Any], Any]) -> Any:
    """What ``scenario`` sees on a bare loop, on one that is followed with or without the accelerator, in a request."""
    with loop_of() as loop:
        expected = scenario(loop)
    with loop_of() as loop, followed(loop):
        assert type(loop.call_soon(nothing)) is Handle
        run_ready(loop)
        assert scenario(loop) == expected
    with loop_of() as loop, python_only(), followed(loop):
        assert type(loop.call_soon(nothing)) is asyncio.Handle
        run_ready(loop)
        assert scenario(loop) == expected
    hub = Hub()
    with loop_of() as loop, followed(loop, hub):
        context = contextvars.copy_context()
        context.run(CURRENT.set, open_request(hub))
        assert context.run(scenario, loop) == expected
    return expected
