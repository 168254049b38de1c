"""Eight tools as a hunt sees them, without a server: ``python -m tests.capture.leaking`` prints what is told of each.

One leaks 500 bytes a call, one 64, one a small dict, and one feeds a thread that keeps 100 kB for each call; the others
are clean, cached, and leave cyclic garbage. With
``MCP_PROBE_NATIVE=0`` blocks have no owners, and tracemalloc's traces stand in for them.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

from mcp_probe import native
from mcp_probe.adapters.tools import _last_line
from mcp_probe.aggregate.fold import Fold
from mcp_probe.aggregate.growth import LeakTally
from mcp_probe.capture import leak_hunt
from mcp_probe.capture.leak_hunt import LeakHunt
from mcp_probe.capture.places import Code
from mcp_probe.capture.tracemalloc_sites import start_tracing
from mcp_probe.model import LeakHunt as Found
from mcp_probe.record.raw import RawRequest

hooks: Any = native.memory

LEAK_BYTES, TRICKLE_BYTES, FED_BYTES = 500, 64, 100_000
history: list[bytes] = []
trickled: list[bytes] = []
records: dict[int, dict[str, Any]] = {}
parcels: SimpleQueue[int] = SimpleQueue()
taken: SimpleQueue[None] = SimpleQueue()
stored: list[bytes] = []


def clean(number: int) -> None:
    scratch = bytearray(100_000)
    scratch[number] = 1


@lru_cache(maxsize=40)
def render(number: int) -> bytes:
    return bytes(1000 + number % 7)


def cached(number: int) -> None:
    render(number)


def tangle(number: int) -> None:
    first: dict[str, Any] = {"payload": bytes(2500 + number % 3)}
    first["self"] = first


def remember(number: int) -> None:
    history.append(bytes(LEAK_BYTES - 33))


def trickle(number: int) -> None:
    trickled.append(bytes(TRICKLE_BYTES - 33))


def small_dict(number: int) -> None:
    records[number] = {"at": number * 1.5, "name": f"call {number}"}


def feed(number: int) -> None:
    """What the thread keeps is nobody's."""
    parcels.put(number)
    taken.get()


def store() -> None:
    while True:
        parcels.get()
        stored.append(bytes(FED_BYTES))
        taken.put(None)


def once(number: int) -> None:
    """What its first call sets up stays, and grows no further."""
    if not hasattr(once, "table"):
        once.table = bytearray(1_000_000)  # type: ignore[attr-defined]


TOOLS: tuple[Callable[[int], None], ...] = (clean, cached, tangle, remember, trickle, once, small_dict, feed)


def codes() -> tuple[Code, ...]:
    tools = {tool.__name__: tool.__code__ for tool in TOOLS} | {"cached": render.__wrapped__.__code__}
    return tuple(Code(name, code.co_filename, code.co_firstlineno, _last_line(code)) for name, code in tools.items())


def call(tool: Callable[[int], None], number: int) -> RawRequest:
    """One call, whose allocations are charged to it where anything charges."""
    raw = RawRequest(number, "request", "tools/call", tool.__name__, "memory")
    before = hooks.charge(raw) if native.core is not None else None
    tool(number)
    if native.core is not None:
        hooks.charge(before)
    raw.ended = True
    return raw


def hunted(calls: int, *, looks: int) -> Found:
    """What a hunt finds of ``calls`` calls of each tool, looking so many times."""
    owners = native.core is not None
    tracing = start_tracing()
    threading.Thread(target=store, daemon=True).start()
    if owners:
        hooks.install("shadow")
    try:
        hunt, tally = LeakHunt(lambda: owners, codes, tracing=tracing), LeakTally()
        for number in range(calls):
            hunt.settle(waiting=1, final=False)
            hunt.take(call(tool, number) for tool in TOOLS)
            if (number + 1) % (calls // looks) == 0:
                hunt.settle(waiting=1, final=True)
                for frame in hunt.frames(0, final=True):
                    tally.add(frame)
        found = tally.hunt()
        assert found is not None
        return found
    finally:
        if owners:
            hooks.uninstall()


if __name__ == "__main__":
    leak_hunt.LAST_LOOK_NS = 60_000_000_000  # no client waits for the end of this process
    Fold()  # what a test of the shape needs is imported before anything is traced
    found = hunted(int(sys.argv[1]), looks=int(sys.argv[2]))
    rows = {
        row.name: {
            "verdict": row.verdict,
            "each": row.bytes_per_call,
            "floor": row.floor_bytes,
            "how": row.how,
            "lines": [(line.function, line.line, line.bytes) for line in row.lines],
            "types": [(kind.name, kind.objects) for kind in row.types],
        }
        for row in found.operations
    }
    print(
        json.dumps(
            {
                "rows": rows,
                "types": [kind.name for kind in found.types],
                "notes": found.notes,
                "factor": found.tracing_factor,
                "process": None if found.process is None else asdict(found.process),
            }
        )
    )
