"""What naming awaits costs: the same probe with ``awaits=False``, off again, and on (see switches.py for how).

``--quick`` takes half a minute. Run it on a quiet machine: ``chrt -r 5 python benchmarks/awaits.py``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.switches import Switch, Tool

TAKEN = 100
"""Locks that a call of the tools ``free`` and ``waited`` takes."""

gate = asyncio.Lock()  # of the burst: one that somebody waited for belongs to its loop


def prepare() -> None:
    global gate
    gate = asyncio.Lock()


async def nothing() -> str:
    return "done"


async def one_free_lock() -> str:
    async with gate:
        return "done"


async def free() -> str:
    for _ in range(TAKEN):
        async with gate:
            pass
    return "done"


async def waited() -> str:
    """Two tasks that take turns: each acquire waits for the other's release."""

    async def turns() -> None:
        for _ in range(TAKEN // 2):
            async with gate:
                await asyncio.sleep(0)

    await asyncio.gather(turns(), turns())
    return "done"


TOOLS = {
    "nothing": Tool(nothing, "a tool that does nothing"),
    "one_free_lock": Tool(one_free_lock, "a tool that takes a free lock"),
    "free": Tool(free, "each of 100 free locks", TAKEN),
    "waited": Tool(waited, "each of 100 locks that another task holds", TAKEN),
}
SWITCH = Switch("awaits", __file__, {"awaits": False}, {"awaits": True}, TOOLS, prepare)

if __name__ == "__main__":
    SWITCH.main(__doc__)
