"""Timers with delays that no clock shows."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.harm.programs.probing import Watched, tell

DELAYS = ("nan", "inf", "-inf", "1e300", "-1", "0", "-1e300")


def timer(watched: Watched, make: str, text: str) -> dict[str, Any]:
    """What a timer with this delay does to a loop, and whether the loop goes on."""
    loop = asyncio.new_event_loop()
    seen: list[str] = []
    loop.set_exception_handler(lambda loop, context: seen.append(type(context.get("exception")).__name__))

    def scenario() -> None:
        delay = float(text)
        try:
            handle = getattr(loop, make)(delay, seen.append, "called")
            seen.append(type(handle.when()).__name__)
        except Exception as exc:
            seen.append(f"refused: {type(exc).__name__}")
        loop.call_later(0.05, seen.append, "later")
        loop.call_later(0.1, loop.stop)
        loop.call_later(0.01, loop.call_soon, loop.stop)
        for _ in range(2):
            try:
                loop.run_forever()
            except BaseException as exc:
                seen.append(f"raised: {type(exc).__name__}")
        loop.call_soon(seen.append, "alive")
        loop.call_soon(loop.stop)
        try:
            loop.run_forever()
        except BaseException as exc:
            seen.append(f"raised: {type(exc).__name__}")

    try:
        watched.on(loop, scenario)
    finally:
        loop.close()
    return {"seen": seen}


def main() -> None:
    with Watched() as watched:
        tell({f"{make}({text})": timer(watched, make, text) for make in ("call_later", "call_at") for text in DELAYS})


if __name__ == "__main__":
    main()
