"""The server whose instructions are counted: that of ``subjects.py``, with arms between bare and probe, and two tools.

``settle`` has everybody finish what the calls so far have left (the collector its records, the exporter its spans), and
then callgrind write its counters (benchmarks/callgrind.py).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyio
from mcp.server import MCPServer

from benchmarks import subjects
from benchmarks.callgrind import write_counters
from mcp_probe.capture.worker import Worker

VARIANTS = {"bare": "bare", "span": "sdk-otel", "probe": "probe", "span and probe": "sdk-otel and probe"}
"""Arms that ``subjects.py`` has, by its names."""
NOTHING_MORE: dict[str, Any] = {"awaits": False, "memory": "off", "measures": "off"}
RUNGS: dict[str, dict[str, Any]] = {
    "loop": NOTHING_MORE,
    "streams": NOTHING_MORE,
    "messages": NOTHING_MORE,
    "server": NOTHING_MORE,
    "memory": {"awaits": False},
}
"""Arms from bare to probe, each with more than the one before; the options of each."""
ARMS = (*VARIANTS, *RUNGS)

thread_names: dict[int, str] = {}
"""Of the probe's threads, by native id."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("transport", choices=["memory", "stdio", "http"])
    parser.add_argument("--arm", choices=ARMS, required=True)
    parser.add_argument("--descriptor", type=int, help="over HTTP: a listening socket inherited from the parent")
    arguments = parser.parse_args()
    note_thread_names()
    server = make_server(arguments.arm)
    if arguments.transport == "memory":
        anyio.run(serve_memory, server)
    elif arguments.transport == "stdio":
        server.run("stdio")
    else:
        subjects.run_http(server, arguments.descriptor)


def make_server(arm: str) -> MCPServer:
    """The server of ``arm``, with the tools ``add`` and ``settle``."""
    server = subjects.make_server(VARIANTS.get(arm, "bare"))
    follow = attach_partly(server, arm) if arm in RUNGS else lambda: None
    settled = Settling("span" in arm)

    @server.tool(structured_output=False)
    async def prepare() -> str:
        """Frees later collections from what the start has left: a full one would fall into some blocks only."""
        follow()
        gc.collect()
        gc.freeze()
        return json.dumps({"pid": os.getpid()})

    @server.tool(structured_output=False)
    async def settle() -> str:
        settled.wait()
        write_counters()
        return json.dumps({"threads": threads()})

    return server


def attach_partly(server: MCPServer, arm: str) -> Callable[[], Any]:
    """Attach as far as ``arm`` goes. Returns what must be called on the loop once."""
    import mcp_probe
    from mcp_probe.adapters.stdio import StdioHooks
    from mcp_probe.adapters.threads import AnyioHook
    from mcp_probe.capture.streams import FromTransport
    from mcp_probe.session import Probe

    if arm in ("server", "memory"):
        mcp_probe.attach(server, **RUNGS[arm])
        return lambda: None
    if arm == "loop":
        instead(StdioHooks, "install", lambda self, module: None)
        instead(AnyioHook, "follow", lambda self, backend_name: None)
    elif arm == "streams":
        instead(FromTransport.__mro__[2], "_followed", lambda self: None)
    probe = Probe(**RUNGS[arm])
    return probe._hooks.loops.follow


def instead(owner: type, name: str, function: Callable[..., Any]) -> None:
    """Put ``function`` in the place of a method that must be there."""
    if name not in vars(owner):
        raise AttributeError(f"{owner.__name__} has no method {name!r} any more.")
    setattr(owner, name, function)


class Settling:
    """Waits until the collector and the exporter of spans have nothing left. The exporter's work has its own thread."""

    def __init__(self, exports_spans: bool) -> None:
        self._orders: SimpleQueue[threading.Event] = SimpleQueue()
        self._exports_spans = exports_spans
        if exports_spans:
            threading.Thread(target=self._export, name="span export", daemon=True).start()

    def wait(self) -> None:
        """Blocks the calling thread, which executes nothing meanwhile."""
        drain()
        if self._exports_spans:
            done = threading.Event()
            self._orders.put(done)
            done.wait()

    def _export(self) -> None:
        from opentelemetry import trace

        provider: Any = trace.get_tracer_provider()
        while True:
            done = self._orders.get()
            provider.force_flush()
            done.set()


def drain() -> None:
    """Have the collector make records of all that has ended, on its own thread, and wait for it."""
    from mcp_probe.collector import _Flush
    from mcp_probe.process import PROCESS

    collector = PROCESS.collector
    if collector is not None:
        done = threading.Event()
        collector._flushes.append(_Flush(done, closed=False))
        collector.wake()
        done.wait()


def note_thread_names() -> None:
    """Have each thread of the probe say who it is as it begins."""
    run = Worker._run

    def named(worker: Worker) -> None:
        thread_names[threading.get_native_id()] = worker._name
        run(worker)

    instead(Worker, "_run", named)


def threads() -> dict[int, str]:
    """Names of all threads that Python knows or the probe has started, by native id."""
    return {thread.native_id or 0: thread.name for thread in threading.enumerate()} | thread_names


async def serve_memory(server: MCPServer) -> None:
    """Client and server in this process, told by lines of JSON on stdin how many calls to make before it settles."""
    subjects.keep_client_out_of_telemetry()
    async with subjects.client_of(server) as session:
        print(json.dumps({}), flush=True)
        await session.call_tool("prepare", {})
        while order := await subjects.next_order():
            for _ in range(order["calls"]):
                await session.call_tool("add", subjects.ARGUMENTS)
            result: Any = await session.call_tool("settle", {})
            print(result.content[0].text, flush=True)


if __name__ == "__main__":
    main()
