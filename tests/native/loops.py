"""A loop of asyncio's with the probe's hooks on it, in C or in Python, or bare."""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_probe import native
from mcp_probe.adapters import asyncio_handles, asyncio_loop
from mcp_probe.adapters.asyncio_loop import HANDLES, AsyncioHooks
from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.hub import Hub

BARE = {name: vars(events)[name] for name in HANDLES if name in vars(events)}
"""asyncio's own classes of handles, as they were before any of ours stood there."""


@contextmanager
def loop_of(kind: type[asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop) -> Iterator[Any]:
    """A new loop, not in debug mode even where ``-X dev`` asks for that; closed at the end."""
    loop: Any = kind()
    loop.set_debug(False)
    try:
        yield loop
    finally:
        loop.close()


@contextmanager
def hooked(hub: Hub | None = None) -> Iterator[AsyncioHooks]:
    """The hooks are installed, and no loop is followed yet; at the end nothing of them is left."""
    hub = Hub() if hub is None else hub
    hooks = AsyncioHooks(hub)
    hooks.install()
    assert hooks.installed, hub.hooks
    try:
        yield hooks
    finally:
        assert hooks.restore() == []
        hub.watchdog.stop()
        assert {name: vars(events)[name] for name in BARE} == BARE


@contextmanager
def followed(loop: Any, hub: Hub | None = None) -> Iterator[Any]:
    """``loop`` with the hooks installed and followed; gives its monitor."""
    with hooked(hub) as hooks:
        monitor = hooks.follow(loop)
        assert monitor is not None
        yield monitor


@contextmanager
def python_only() -> Iterator[None]:
    """Hooks installed inside use the Python twins of the loop's part; requests and steps stay as they are."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (asyncio_loop, asyncio_handles):
            patch.setattr(module, "native", SimpleNamespace(core=None))
        patch.setattr(asyncio_handles, "_classes", {})
        yield


TWINS: dict[str, Callable[[], Any]] = {"python": python_only}
"""The twins that this process has, each by what has to be around the hooks."""
if native.core is not None:
    TWINS["native"] = nullcontext


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Hooks that the test installs are of one of the twins."""
    with TWINS[request.param]():
        yield request.param


def run_ready(loop: Any) -> None:
    """Run what is in the queue now, and what that puts there for the same turn."""
    loop.call_soon(lambda *_: loop.stop())
    loop.run_forever()


def run_for(loop: Any, seconds: float) -> None:
    """Run what comes within so long."""
    loop.call_later(seconds, loop.stop)
    loop.run_forever()


def nothing(*_: Any) -> None:
    """A callback that does nothing."""


def open_request(hub: Hub) -> Any:
    """A request that has just begun."""
    return hub.requests.open("request", "tools/call", "t", "stdio")


def context_of(raw: Any) -> contextvars.Context:
    """A context that carries the request."""
    context = contextvars.copy_context()
    context.run(CURRENT.set, raw)
    return context


def is_ours(handle: Any) -> bool:
    """Whether it is of our subclass of one of asyncio's classes, which is of the same name."""
    kind = type(handle)
    return kind is not BARE[kind.__name__] and kind.__bases__ == (BARE[kind.__name__],)


def same_as_bare(scenario: Callable[[Any], Any], kind: type[Any] = asyncio.SelectorEventLoop) -> Any:
    """What ``scenario`` sees on a bare loop, and just so on one that either twin follows, in a request and in none."""
    with loop_of(kind) as loop:
        expected = scenario(loop)
    for around in TWINS.values():
        with loop_of(kind) as loop, around(), followed(loop) as monitor:
            assert is_ours(loop.call_soon(nothing))
            run_ready(loop)
            seen = scenario(loop)
            assert seen == expected, (seen, expected)
            assert monitor.alive
        hub = Hub()
        with loop_of(kind) as loop, around(), followed(loop, hub) as monitor:
            seen = context_of(open_request(hub)).run(scenario, loop)
            assert seen == expected, (seen, expected)
            assert monitor.alive
    return expected
