"""Handles that somebody has taken a slot out of, or put nonsense in, and then uses."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

from tests.harm.programs.probing import Watched, tell

SLOTS = ("_callback", "_args", "_cancelled", "_loop", "_source_traceback", "_repr", "_context", "_when", "_scheduled")
MAKERS: dict[str, Callable[[Any], Any]] = {
    "call_soon": lambda loop: loop.call_soon(nothing),
    "call_soon_threadsafe": lambda loop: loop.call_soon_threadsafe(nothing),
    "call_later": lambda loop: loop.call_later(0.001, nothing),
    "call_at": lambda loop: loop.call_at(loop.time(), nothing),
}
USES: dict[str, Callable[[Any, Any], Any]] = {
    "cancel": lambda loop, handle: handle.cancel(),
    "cancelled": lambda loop, handle: handle.cancelled(),
    "repr": lambda loop, handle: type(repr(handle)).__name__,
    "when": lambda loop, handle: type(handle.when()).__name__ if hasattr(handle, "when") else None,
    "compare": lambda loop, handle: [handle == handle, handle < handle] if hasattr(handle, "when") else None,
    "get_context": lambda loop, handle: type(handle.get_context()).__name__ if sys.version_info >= (3, 12) else None,
    "run": lambda loop, handle: handle._run(),
    "turn": lambda loop, handle: turn(loop),
}


def nothing() -> None:
    """The callback of every handle."""


def turn(loop: Any) -> None:
    """Two turns of the loop, long enough for the timers."""
    loop.call_later(0.002, loop.stop)
    loop.run_forever()


def outcome(
    watched: Watched, make: Callable[[Any], Any], slot: str, change: str, use: Callable[[Any, Any], Any]
) -> list[str]:
    loop = asyncio.new_event_loop()
    said: list[str] = []
    loop.set_exception_handler(lambda loop, context: said.append(type(context.get("exception")).__name__))

    def scenario() -> None:
        handle = make(loop)
        try:
            if change == "deleted":
                delattr(handle, slot)
            else:
                setattr(handle, slot, None)
        except Exception as exc:
            said.append(f"cannot: {type(exc).__name__}")
            return
        try:
            said.append(repr(use(loop, handle)))
        except Exception as exc:
            said.append(re.sub(r"'\w+' object", "object", f"{type(exc).__name__}: {exc}"))

    try:
        watched.on(loop, scenario)
    finally:
        loop._ready.clear()  # type: ignore[attr-defined]
        loop._scheduled.clear()  # type: ignore[attr-defined]
        loop.close()
    return said


def main() -> None:
    found = {}
    with Watched() as watched:
        for made, slot, change, used in product(MAKERS, SLOTS, ("deleted", "None"), USES):
            case = f"{made}: {slot} {change}, then {used}"
            sys.stderr.write(case + "\n")
            found[case] = outcome(watched, MAKERS[made], slot, change, USES[used])
        found["disabled hooks"] = watched.disabled()
    tell(found)


if __name__ == "__main__":
    main()
