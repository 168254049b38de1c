# mypy: ignore-errors
"""Breaks each function that attach() enters, one after the other, and tells what became of the server.

Usage: broken_attach.py FOLDER. Each line of stdout is one function: what attach() and detach() raised, what stayed
hooked, and whether the probe sees nothing (``inert``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time

from mcp.server.mcpserver import MCPServer

import mcp_probe
from mcp_probe.adapters.hook import declared
from mcp_probe.capture.guard import guarded
from mcp_probe.capture.worker import workers_alive
from mcp_probe.process import PROCESS
from mcp_probe.session import InertProbe
from tests.safety.broken_parts import Fault, Replaced, counting, functions
from tests.test_attach import Snapshot, make_server, use

ROOMS = (
    *("adapters", "aggregate", "at_exit", "capture", "collector", "export", "header", "live", "options", "process"),
    *("record", "session"),
)
NOT_BROKEN = {
    "Process.leave", "Probe._undo", "Probe._leave_servers", "Probe._leave_process", "Hub.runs_loop",  # they put back
    "Hub._on_gc",  # is nothing but the guard of what it calls
    "Active.__init__",  # four assignments
    "attach", "_attach", "Probe.__init__",  # what is tried
}  # fmt: skip


def leftovers(server: MCPServer, before: Snapshot) -> list[str]:
    """What is not as it was. On a loop's thread detach() does not wait until threads of ours have ended."""
    until = time.monotonic() + 10
    while workers_alive() and time.monotonic() < until:
        time.sleep(0.001)
    left = [*Snapshot(server).differences(before), *(f"{one.owner}.{one.name}" for one in declared())]
    left += [f"session {session!r}" for session in PROCESS.sessions]
    return left + ["threads of ours"] * bool(workers_alive()) + ["a hub"] * (PROCESS.hub is not None)


def breaking(thread):
    """Makes a function that is at fault on ``thread``, and on threads of ours as it was."""

    def make(original):
        def call(*args, **kwargs):
            if threading.get_ident() == thread:
                raise Fault("planted")
            return original(*args, **kwargs)

        return guarded(call) if hasattr(original, "__wrapped__") else call

    return make


async def main(folder):
    options = {
        "record": f"{folder}/recording", "flight": f"{folder}/flights", "report": f"{folder}/report", "live": True,
        "full": True, "resources": True, "memory": "detailed", "measures": "detailed",
    }  # fmt: skip
    server = make_server()
    await use(server)
    before, parts, entered = Snapshot(server), list(functions(ROOMS)), {}
    counters = [Replaced(owner, name, member, counting(entered, part)) for part, owner, name, member in parts]
    mcp_probe.attach(server, **options).detach()
    for one in counters:
        one.undo()
    print(json.dumps({"part": "", "left": leftovers(server, before), "entered": len(entered)}), flush=True)
    for part, owner, name, member in parts:
        if part not in entered or part.partition(":")[2] in NOT_BROKEN:
            continue
        row = {"part": part, "inert": False, "raised": ""}
        broken = Replaced(owner, name, member, breaking(threading.get_ident()))
        try:
            probe = mcp_probe.attach(server, **options)
        except BaseException as exc:  # noqa: BLE001 - told
            row["raised"] = repr(exc)
        finally:
            broken.undo()
        if not row["raised"]:
            row["inert"] = isinstance(probe, InertProbe)
            probe.detach()
            del probe
        print(json.dumps(row | {"left": leftovers(server, before)}), flush=True)
    await use(server)
    print(json.dumps({"part": "works"}), flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    os.environ["XDG_RUNTIME_DIR"] = sys.argv[1]
    asyncio.run(main(sys.argv[1]))
    os._exit(0)  # each probe that worked would report now
