"""Calls in flight that hold much, as the watch for peaks sees them: ``python -m tests.capture.peaking`` prints what.

In a process of its own: tracemalloc would slow the tests down for good.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from mcp_probe import native
from mcp_probe.capture.peak_lines import PeakWatch
from mcp_probe.capture.tracemalloc_sites import start_tracing, tracing_cost
from mcp_probe.record.raw import RawRequest

hooks: Any = native.memory

MB = 1_000_000
kept: list[Any] = []


def loads(size: int) -> None:
    kept.append(bytearray(size))


def builds(count: int) -> None:
    kept.append([bytes(200 - sys.getsizeof(b"")) for _ in range(count)])


def elsewhere(size: int) -> None:
    """Allocates the same sizes as :func:`loads`, for nobody."""
    kept.append(bytearray(size))


def builds_elsewhere(count: int) -> None:
    """The same of :func:`builds`."""
    kept.append([bytes(200 - sys.getsizeof(b"")) for _ in range(count)])


class Watched:
    """A watch, and the calls that it is shown."""

    def __init__(self) -> None:
        self.calls: list[RawRequest] = []
        self.watch = PeakWatch(lambda: self.calls)

    def call(self, name: str, function: Callable[[int], None], size: int) -> RawRequest:
        """One call that goes on, and holds what it allocated."""
        raw = RawRequest(len(self.calls) + 1, "request", "tools/call", name, "memory")
        before = hooks.charge(raw)
        function(size)
        hooks.charge(before)
        self.calls.append(raw)
        return raw

    def look(self) -> dict[str, list[Any]]:
        """What is known after a look, which no earlier one holds up."""
        self.watch._free_ns = 0
        self.watch.look()
        return {peak[0]: [*peak[2:]] for peak in self.watch.peaks()}


def main() -> dict[str, Any]:
    """Each case with a watch of its own."""
    told: dict[str, Any] = {"tracing": start_tracing()}
    hooks.install("shadow")
    try:
        small, large, many, doubtful, crowd, rising = (Watched() for _ in range(6))
        small.call("small", loads, 7 * MB)
        told["small"] = small.look()
        large.call("large", loads, 20 * MB)
        told["large"] = large.look()
        large.call("large", loads, 24 * MB)
        told["large, a little more"] = large.look()
        large.call("large", loads, 26 * MB)
        told["large, much more"] = large.look()
        many.call("many", builds, 10 * MB // 200)
        told["many"] = many.look()
        elsewhere(9 * MB)
        doubtful.call("doubtful", loads, 9 * MB)
        told["doubtful"] = doubtful.look()
        builds_elsewhere(2 * MB // 200)
        crowd.call("crowd", builds, 12 * MB // 200)
        told["crowd"] = crowd.look()
        rising.call("one", loads, 10 * MB)
        rising.call("other", loads, 30 * MB)
        told["first of two"] = rising.look()
        told["both"] = rising.look()
    finally:
        hooks.uninstall()
    told["cost"] = tracing_cost()
    return told


if __name__ == "__main__":
    print(json.dumps(main()))
