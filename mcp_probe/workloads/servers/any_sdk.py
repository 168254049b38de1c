"""The same tools with whichever SDK the interpreter has: ``any_sdk.py mcp|fastmcp``, over stdio.

Runs as a file, in interpreters that have no mcp_probe; needs nothing but that SDK.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib import import_module
from importlib.metadata import distributions, version
from typing import Any

BEGAN_NS = time.monotonic_ns()
CLASSES = {
    "mcp": (("mcp.server", "MCPServer"), ("mcp.server.fastmcp", "FastMCP")),  # 2.x, 1.x
    "fastmcp": (("fastmcp", "FastMCP"),),
}
_counted = {"answered": 0, "ready_ns": 0}


def made(sdk: str) -> Any:
    """A server. Raises: LookupError where this interpreter has no such SDK."""
    for module, name in CLASSES[sdk]:
        try:
            return getattr(import_module(module), name)("any sdk")
        except (ImportError, AttributeError):
            continue
    raise LookupError(f"{sys.executable} has no {sdk}.")


def worked(turns: int) -> int:
    """Ordinary Python for as many turns: names, a dictionary, calls, arithmetic. Its value is the same everywhere."""
    seen: dict[str, int] = {}
    for turn in range(turns):
        name = f"word {turn * turn % 97}"
        seen[name] = seen.get(name, 0) + _step(turn)
    return sum(len(name) * count for name, count in sorted(seen.items()))


def _step(turn: int) -> int:
    return turn % 7 if turn & 1 else -turn // 3


async def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    _counted["answered"] += 1
    return a + b


async def compute(turns: int) -> int:
    """Computes on the event loop."""
    _counted["answered"] += 1
    return worked(turns)


async def counted() -> str:
    """What this process is, what it has answered, and what CPU time it has used."""
    cpu_ns = time.process_time_ns()
    sdk = sys.argv[1]
    return json.dumps({"pid": os.getpid(), "cpu_ns": cpu_ns, "sdk": sdk, "version": version(sdk), **_counted})


async def about() -> str:
    """The interpreter, how it began, and what else is installed beside it."""
    return json.dumps(
        {
            "python": platform.python_version(),
            "began_ns": BEGAN_NS,
            "modules": len(sys.modules),
            "uncompiled": _uncompiled(),
            "blocks": sys.getallocatedblocks(),
            "packages": {each.metadata["Name"]: each.version for each in distributions()},
            **_counted,
        }
    )


def _uncompiled() -> int:
    """Modules whose bytecode is not kept: each start compiles them anew."""
    specs = [getattr(each, "__spec__", None) for each in list(sys.modules.values())]
    kept = [each.cached for each in specs if each is not None and each.has_location and each.cached]
    return sum(not os.path.exists(path) for path in kept)


def main() -> None:
    """Serves until stdin ends."""
    sdk = sys.argv[1]
    server = made(sdk)
    for tool in (add, compute, counted, about):
        server.tool()(tool)
    _counted["ready_ns"] = time.monotonic_ns()
    server.run(transport="stdio", **({"show_banner": False} if sdk == "fastmcp" else {}))


if __name__ == "__main__":
    main()
