"""Detaches from another thread, again and again, at any moment: also while the watchdog starts and the loop is busy."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import time

import anyio
import mcp.server.lowlevel.server
import mcp.server.stdio
import mcp.server.streamable_http_manager  # noqa: F401

from tests.harm.programs.identities import changed, instance, is_ours, walk
from tests.harm.programs.probing import Watched, tell


async def busy(watched: Watched, entered: threading.Event, until: threading.Event) -> None:
    loop = asyncio.get_running_loop()
    entered.set()
    watched.follow()
    with watched.request():
        while not until.is_set():
            await asyncio.gather(asyncio.sleep(0), asyncio.to_thread(int))
            loop.call_soon_threadsafe(int)
            loop.call_later(0.0001, int)
            await asyncio.sleep(0.0001)


def round_of(rolls: random.Random, memory: str, said: list[str]) -> None:
    loop = asyncio.new_event_loop()
    watched = Watched(memory=memory)
    entered, until = threading.Event(), threading.Event()

    def serve() -> None:
        try:
            loop.run_until_complete(busy(watched, entered, until))
        except BaseException as exc:
            said.append(f"the loop: {type(exc).__name__}: {exc}")

    def detach() -> None:
        try:
            watched.probe.detach()
        except BaseException as exc:
            said.append(f"detach: {type(exc).__name__}: {exc}")

    server = threading.Thread(target=serve)
    server.start()
    entered.wait(10)
    time.sleep(rolls.choice((0, 0, 1e-5, 1e-4, 1e-3)) * rolls.random())
    detaching = [threading.Thread(target=detach) for _ in range(rolls.choice((1, 1, 2)))]
    for thread in detaching:
        thread.start()
    for thread in detaching:
        thread.join(30)
        if thread.is_alive():
            said.append("detach has not come back")
    detach()
    if any(thread.name.startswith("mcp-probe") for thread in threading.enumerate()):
        said.append(f"left a thread: {sorted(thread.name for thread in threading.enumerate())}")
    until.set()
    server.join(30)
    if server.is_alive():
        said.append("the loop has not ended")
    left = [*instance("loop", loop).items(), *instance("selector", loop._selector).items()]  # type: ignore[attr-defined]
    said.extend(f"left behind: {name}" for name, value in left if is_ours(value))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def main(rounds: int) -> None:
    import mcp_probe.session  # noqa: F401 - what it imports is no change

    Watched().probe.detach()  # what the first probe ever imports, neither
    from mcp_probe import native

    asyncio.new_event_loop().close()  # makes the policy
    for name in dir(anyio):  # these are imported as they are asked for
        getattr(anyio, name)
    before, callbacks = walk(), list(gc.callbacks)
    rolls = random.Random(7)
    said: list[str] = []
    for number in range(rounds):
        found: list[str] = []
        round_of(rolls, rolls.choice(("light", "off")), found)
        said += [f"round {number}: {sentence}" for sentence in found]
        if len(said) > 10:
            break
    if native.memory is not None:
        state = native.memory.state()
        if state["mode"] != "off":
            said.append(f"the allocator: {state}")
    if gc.callbacks != callbacks:
        said.append("left a callback of the collector")
    tell({"changed": changed(before, walk()), "said": said})


if __name__ == "__main__":
    main(int(sys.argv[2]))
