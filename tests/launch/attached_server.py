"""A server that tests attach to while it runs. Works on mcp 1.x and 2.x, and imports nothing of the probe.

    python attached_server.py stdio|PORT [asyncio|uvloop|trio]

``ATTACHED_PROBE=1`` makes it attach a probe of its own. The tool ``fingerprint`` says what its process consists of.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import gc
import json
import os
import re
import signal
import sys
import threading
import time
from typing import Any

import anyio
import anyio.to_thread

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP as MCPServer  # type: ignore[no-redef,attr-defined,import-not-found,unused-ignore]

HOW = sys.argv[1]
LOOP = sys.argv[2] if len(sys.argv) > 2 else "asyncio"
server = MCPServer("attached")
locks: dict[str, Any] = {}
POOL = anyio.CapacityLimiter(2)


@server.tool()
async def pid() -> int:
    return os.getpid()


@server.tool()
async def add(a: int, b: int) -> int:
    await anyio.sleep(0)
    return a + b


@server.tool()
async def in_thread(text: str) -> str:
    return await anyio.to_thread.run_sync(text.upper)


@server.tool()
async def sleeper(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "slept"


@server.tool()
async def deadlock(first: str, second: str) -> str:
    async with lock(first):
        await anyio.sleep(0.2)
        async with lock(second):  # the line that hangs
            return "never"


@server.tool()
async def block(seconds: float) -> str:
    time.sleep(seconds)  # the line that blocks
    return "blocked"


@server.tool()
async def compute(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        re.match("(a+)+b", "a" * 22)  # the line that computes
    return "computed"


@server.tool()
async def locked(name: str, seconds: float) -> str:
    async with lock(name):  # the line that waits for the lock
        await anyio.sleep(seconds)
    return "unlocked"


@server.tool()
async def held(name: str, until: str) -> str:
    async with lock(name):
        while not os.path.exists(until):
            await anyio.sleep(0.02)
    return "let go"


@server.tool()
async def pooled(seconds: float) -> str:
    await anyio.to_thread.run_sync(time.sleep, seconds, limiter=POOL)
    return "worked"


@server.tool()
async def fingerprint(path: str) -> str:
    with open(path, "w") as stream:
        json.dump(parts(), stream)
    return path


def lock(name: str) -> Any:
    if name not in locks:
        locks[name] = asyncio.Lock() if LOOP != "trio" else anyio.Lock()
    return locks[name]


def parts() -> dict[str, str]:
    """Every attribute of every module and class by identity, and what else a process has."""
    names = sorted(thread.name for thread in threading.enumerate())
    others = [name for name in names if not name.startswith(("AnyIO", "Trio thread"))]  # they come and go with the load
    found = {
        "threads": str(_thread._count() - len(names) + len(others)),
        "known threads": str(others),
        "sys.path": str(sys.path),
        "meta_path": str([id(finder) for finder in sys.meta_path]),
        "path_hooks": str([id(hook) for hook in sys.path_hooks]),
        "gc.callbacks": str([id(callback) for callback in gc.callbacks]),
        "atexit": str(atexit._ncallbacks()),
        "excepthook": str((id(sys.excepthook), id(sys.unraisablehook), id(threading.excepthook))),
        "trace": str((sys.gettrace(), sys.getprofile(), threading.gettrace())),
        "files": str(sorted(files())),
        "signals": str([(number, id(signal.getsignal(number))) for number in sorted(signal.valid_signals())]),
    }
    for module in [module for name, module in list(sys.modules.items()) if name.partition(".")[0] != "mcp_probe"]:
        name = str(getattr(module, "__name__", "?"))
        found.update(attributes(name, module))
        for kind in [value for value in list(own(module).values()) if isinstance(value, type)]:
            found.update(attributes(f"{kind.__module__}.{kind.__qualname__}", kind))
    for thing in gc.get_objects():
        if type(thing).__name__ in ("Server", "_UnixSelectorEventLoop", "EpollSelector", "MCPServer", "FastMCP"):
            found.update(attributes(f"{type(thing).__name__} {id(thing)}", thing))
            found[f"{type(thing).__name__} {id(thing)} middleware"] = str(
                list(map(id, getattr(thing, "middleware", ())))
            )
    return found


def own(thing: Any) -> dict[str, Any]:
    """What stands in for a module need not have a dictionary."""
    found = getattr(thing, "__dict__", {})
    return dict(found)


def attributes(owner: str, thing: Any) -> dict[str, str]:
    return {f"{owner}.{name}": str(id(value)) for name, value in list(own(thing).items()) if name not in PASSING}


# `collections` has its `heapq`, or `_nlargest` (3.15), only once somebody has asked for the most common of something.
# asyncio makes a loop's list of timers anew when a hundred of them have been cancelled.
PASSING = {
    "heapq",
    "_nlargest",
    "_scheduled",
    "__dict__",
    "__weakref__",
    "__doc__",
    "__annotations__",
    "__annotate__",
    "__annotations_cache__",
    "_abc_impl",
}


def files() -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(f"{descriptor} {os.readlink(f'/proc/self/fd/{descriptor}')}")
        except OSError:  # the one that lists them
            continue
    return found


def main() -> None:
    if os.environ.get("ATTACHED_PROBE"):
        import mcp_probe

        mcp_probe.attach(server)
    if HOW != "stdio":
        import uvicorn

        app = server.streamable_http_app()
        # A connection that rests for 5 s is closed by default. A machine may stop everybody for so long, and then the
        # server closes it on a client that has just written.
        uvicorn.run(app, port=int(HOW), log_level="error", loop=LOOP, ws="none", timeout_keep_alive=3600)
    elif LOOP == "uvloop":
        import uvloop

        uvloop.run(server.run_stdio_async())
    else:
        anyio.run(server.run_stdio_async, backend=LOOP)


if __name__ == "__main__":
    main()
