"""How a program has the probe in it. Standard library and ``mcp_probe`` only: some run where nothing else is."""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
BARE = len(sys.argv) > 1 and sys.argv[1] == "bare"
"""The program is the baseline: no probe."""


class Watched:
    """The probe of the program, or nothing where it is bare."""

    def __init__(self, **options: Any) -> None:
        self.probe: Any = None
        if not BARE:
            from mcp_probe.session import Probe

            self.probe = Probe(**options)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        if self.probe is not None:
            self.probe.detach()

    def disabled(self) -> list[str]:
        """Hooks that a fault has switched off."""
        hooks = {} if self.probe is None else self.probe._hub.hooks
        return [f"{hook}: {state}" for hook, state in hooks.items() if "disabled" in state]

    def follow(self) -> None:
        """Follow the running loop."""
        if self.probe is not None:
            self.probe._hooks.loops.follow()

    @contextmanager
    def request(self, name: str = "work") -> Iterator[None]:
        """What runs inside is a live request. On a loop's thread the loop is followed."""
        if self.probe is None:
            yield
            return
        from mcp_probe.capture.current import CURRENT
        from mcp_probe.clock import now_ns

        hub = self.probe._hub
        raw = hub.begin("function", name, None, "function", self.probe)
        token = CURRENT.set(raw)
        try:
            yield
        finally:
            CURRENT.reset(token)
            now = now_ns()
            hub.requests.finished(raw, now)
            hub.requests.end(raw, now)

    def run(self, main: Callable[[], Any]) -> Any:
        """As ``asyncio.run(main())``, on a followed loop and inside a request."""

        async def live() -> Any:
            self.follow()
            with self.request():
                return await main()

        return asyncio.run(live())

    def on(self, loop: Any, function: Callable[[], T]) -> T:
        """Call ``function`` inside a request of its own context, with ``loop`` followed before it runs."""

        async def begin() -> None:
            self.follow()

        if self.probe is not None:
            loop.run_until_complete(begin())

        def inside() -> T:
            with self.request():
                return function()

        return contextvars.copy_context().run(inside)


def tell(value: Any) -> None:
    """The program's last line."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
