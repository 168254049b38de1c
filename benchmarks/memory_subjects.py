"""The processes under measurement: client and server over memory streams, the probe attached, three tools.

Run as ``python benchmarks/memory_subjects.py --tool NAME``; blocks are asked for on stdin, one JSON line each, and
answered on stdout. The tier of the probe changes from block to block within one process, so that tiers are compared
where everything else is the same; a foreign tracer runs from beginning to end in a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import time
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyio
from mcp.client.session import ClientSession
from mcp.server import MCPServer

import mcp_probe
from benchmarks.subjects import client_of, keep_client_out_of_telemetry, next_order, without_spans

TRACERS = ("none", "tracemalloc", "memray")
ROWS = [
    {
        "id": number,
        "name": f"customer {number}",
        "city": ["Oslo", "Lyon", "Porto", "Graz"][number % 4],
        "orders": [{"sku": f"A-{number % 17}", "amount": number * 1.25 + place} for place in range(3)],
        "note": "called twice, wants an answer by the end of the week " * (number % 3),
    }
    for number in range(150)
]
DOCUMENT = json.dumps(ROWS)
WORD = re.compile(r"[a-z]{4,}")


def report(text: str) -> str:
    """What a tool does that reads a document and answers with a report: parse, group, render, pack."""
    rows = json.loads(text)
    cities: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        total = sum(order["amount"] for order in row["orders"])
        cities.setdefault(row["city"], []).append({**row, "total": total, "words": len(WORD.findall(row["note"]))})
    lines = []
    for city, found in sorted(cities.items()):
        found.sort(key=lambda row: -row["total"])
        lines += [f"{city}: {row['name']} bought for {row['total']:.2f} ({row['words']} words)" for row in found]
    body = "\n".join(lines)
    packed = zlib.compress(json.dumps(cities).encode())
    return f"{hashlib.sha256(packed).hexdigest()} {len(packed)} {len(body)}"


def objects() -> int:
    """Nothing but small objects that come and go: the worst there can be for whoever looks at each."""
    kept: list[Any] = []
    for number in range(2000):
        kept.append({"id": number, "name": f"n{number}", "tags": [str(tag) for tag in range(5)], "value": number * 0.5})
        if len(kept) > 200:
            kept.clear()
    return len(kept)


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "call": ("add", {"a": 1, "b": 2}),
    "documents": ("report", {}),
    "objects": ("objects", {}),
}
"""By row: the tool that is called, with its arguments."""


def make_server() -> MCPServer:
    """Three tools, without the SDK's own spans."""
    server = MCPServer("bench", log_level="WARNING")
    without_spans(server._lowlevel_server)

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool(name="report")
    async def report_tool() -> str:
        return report(DOCUMENT)

    @server.tool(name="objects")
    async def objects_tool() -> int:
        return objects()

    return server


def tracer(name: str, folder: str) -> AbstractContextManager[Any]:
    """The foreign tracer over everything that follows."""
    if name == "memray":
        import memray

        found: AbstractContextManager[Any] = memray.Tracker(Path(folder) / "out.bin", trace_python_allocators=True)
        return found
    if name == "tracemalloc":
        tracemalloc.start(1)
    return nullcontext()


async def block(session: ClientSession, tool: str, calls: int, lead_in: int) -> dict[str, Any]:
    """Wall nanoseconds of each call after ``lead_in`` calls that are not kept; CPU of all of them."""
    name, arguments = CALLS[tool]
    clock, taken, cpu = time.perf_counter_ns, [], time.process_time_ns()
    for _ in range(lead_in):
        await session.call_tool(name, arguments)
    for _ in range(calls):
        began = clock()
        await session.call_tool(name, arguments)
        taken.append(clock() - began)
    return {"taken_ns": taken, "cpu_ns": time.process_time_ns() - cpu}


def described(probe: Any, tool: str) -> dict[str, Any]:
    """What the probe says: whether the calls were measured, and how."""
    summary = probe.snapshot()
    rows = [row for row in summary.operations if row.name == CALLS[tool][0]]
    memory = rows[0].memory if rows else None
    return {
        "disabled_hooks": list(summary.probe.disabled_hooks),
        "calls": rows[0].count if rows else 0,
        "measured": getattr(memory, "measured", 0) if memory is not None else 0,
        "method": getattr(memory, "method", None) if memory is not None else None,
    }


async def serve(tool: str) -> None:
    """Answer orders until stdin ends."""
    keep_client_out_of_telemetry()
    server = make_server()
    probe = mcp_probe.attach(server, memory="off")
    tier = "off"
    async with client_of(server) as session:
        print(json.dumps({"pid": os.getpid()}), flush=True)
        while order := await next_order():
            if "describe" in order:
                print(json.dumps(described(probe, tool)), flush=True)
                continue
            if order["tier"] != tier:
                probe.memory = tier = order["tier"]
            print(json.dumps(await block(session, tool, order["calls"], order["lead_in"])), flush=True)
    probe.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", choices=sorted(CALLS), required=True)
    parser.add_argument("--tracer", choices=TRACERS, default="none")
    arguments = parser.parse_args()
    os.environ.pop("MCP_PROBE_REPORT", None)
    with tempfile.TemporaryDirectory() as folder, tracer(arguments.tracer, folder):
        serving: Callable[[str], Any] = serve
        anyio.run(serving, arguments.tool)


if __name__ == "__main__":
    main()
