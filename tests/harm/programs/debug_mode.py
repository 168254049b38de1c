"""What asyncio's debug mode tells of handles, timers and tasks, and what they are."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import Any

from tests.harm.programs.probing import Watched, tell


def described(thing: Any) -> str:
    return re.sub(r"0x[0-9a-f]+|when=[\d.]+|Task-\d+", "…", repr(thing))


def place(frame: Any) -> str:
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}"


def called() -> None:
    """A callback."""


async def main() -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    sentences: list[str] = []
    loop.set_exception_handler(
        lambda loop, context: sentences.append(re.sub(r"0x[0-9a-f]+", "…", f"{context['message']} | {sorted(context)}"))
    )
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    made = {
        "handle": loop.call_soon(called),
        "threadsafe": loop.call_soon_threadsafe(called),
        "timer": loop.call_later(60, called),
        "timer at": loop.call_at(loop.time() + 60, called),
        "with arguments": loop.call_soon(print, "", {"end": ""}),
        "in a context": loop.call_soon(called, context=__import__("contextvars").copy_context()),
    }
    task = asyncio.create_task(asyncio.sleep(60), name="sleeper")
    future = loop.create_future()
    await asyncio.sleep(0)
    found: dict[str, Any] = {"line": line}
    for name, handle in made.items():
        trace = getattr(handle, "_source_traceback", None)
        found[name] = {
            "repr": described(handle),
            "ends at": place(trace[-1]) if trace else None,
            "bases": [base.__module__ + "." + base.__qualname__ for base in asyncio_bases(type(handle))],
        }
    others: dict[str, Any] = {"task": task, "future": future}
    for name, other in others.items():
        found[name] = {"repr": described(other), "ends at": place(other._source_traceback[-1])}
    for handle in made.values():
        handle.cancel()
    found["cancelled"] = [described(handle) for handle in made.values()]
    loop.call_soon(lambda: 1 / 0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0.01)
    found["told of an exception"] = sentences
    return found


def asyncio_bases(kind: type) -> list[type]:
    """What of ``kind`` is asyncio's; our own subclasses, which are declared, are left out."""
    return [base for base in kind.__mro__ if base.__module__.startswith("asyncio")]


def types_seen() -> dict[str, list[str]]:
    """The types of what is queued and scheduled, as ``module.name``, for the test to hold against what is declared."""
    loop = asyncio.new_event_loop()
    seen: dict[str, set[str]] = {"_ready": set(), "_scheduled": set()}

    async def work() -> None:
        loop.call_soon(called)
        loop.call_later(60, called).cancel()
        loop.call_later(60, called)
        for queue, names in seen.items():
            for handle in getattr(loop, queue):
                names.add(f"{type(handle).__mro__[1].__qualname__}>{type(handle).__module__}.{type(handle).__name__}")

    with Watched() as watched:
        watched.on(loop, lambda: loop.run_until_complete(work()))
    loop.close()
    return {queue: sorted(names) for queue, names in seen.items()}


if __name__ == "__main__":
    with Watched() as watched:

        async def live() -> Any:
            watched.follow()
            with watched.request():
                return await main()

        told = asyncio.run(live(), debug=True)
    told["types"] = types_seen()
    tell(told)
