"""What the flight recorder costs: the same probe without ``flight``, without again, and with (see switches.py for how).

Nothing is slow enough to be written, as in a healthy server. Looking for findings, every 10 s, is not in a burst: it
is held to 0.5 % of a core.

``--quick`` takes half a minute. Run it on a quiet machine: ``chrt -r 5 python benchmarks/flight.py``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyio

from benchmarks.switches import Switch, Tool


async def nothing() -> str:
    return "done"


async def sleeping() -> str:
    for _ in range(10):
        await anyio.sleep(0)
    return "done"


def in_thread() -> str:
    return "done"


TOOLS = {
    "nothing": Tool(nothing, "a tool that does nothing"),
    "sleeping": Tool(sleeping, "a tool of ten steps"),
    "in_thread": Tool(in_thread, "a plain `def`, on a thread"),
}


def switch(folder: str) -> Switch:
    """Files, if there were any, would go to ``folder``."""
    return Switch("the flight recorder", __file__, {}, {"flight": folder}, TOOLS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="flights-") as folder:
        switch(folder).main(__doc__)
