"""Calls to ``shop_server`` over a real transport, and what their telemetry must then say."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import anyio
from mcp.client import Client, session, stdio

from tests.export.backends.loopback import LIMIT_S, accepts, running
from tests.ports import free_port

SERVER = Path(__file__).with_name("shop_server.py")
NAP_MS, HOLD_MS, HOLD_AFTER_MS = 2_000, 2_600, 250  # a loaded machine may be 1.7 s late with `hold`, or the naps
WAITED_MS = HOLD_AFTER_MS + HOLD_MS - NAP_MS  # of each nap, for the loop that `hold` holds
WAIT_MS = 1_300  # over the limit from which on a request gets phase spans
CALLS = {"nap": 3, "hold": 1, "add": 5, "wait": 1, "render": 1, "fail": 1, "forward": 1, "forward_from_thread": 1}
PARENT_SPAN_ID = "00f067aa0ba902b7"
SECRET = 987_654_321
"""An argument that no backend may ever see."""

Transport = Literal["stdio", "http"]


@dataclass
class Visit:
    """What was done, seen from the client and from whom the server called."""

    service: str
    log: Path  # what the server wrote to stderr
    traces: dict[str, list[str]] = field(default_factory=dict)  # tool -> trace ids that its client sent
    slowest_s: dict[str, float] = field(default_factory=dict)  # tool -> its longest call, as the client saw it
    outgoing: dict[str, str] = field(default_factory=dict)  # path -> traceparent that arrived there


@contextmanager
def downstream(visit: Visit) -> Iterator[str]:
    """A service that the server's tools call; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            visit.outgoing[self.path] = self.headers.get("traceparent", "")
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as service:
        thread = threading.Thread(target=service.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{service.server_address[1]}"
        finally:
            service.shutdown()
            thread.join()


def shop(
    folder: Path,
    service: str,
    environment: Mapping[str, str],
    *,
    transport: Transport = "stdio",
    own: bool = False,
    command: Sequence[str] | None = None,
) -> Visit:
    """One visit by a client; the server has ended, and delivered what it had, when this returns.

    ``command`` starts another server, over stdio; of its tools only those in ``CALLS`` are called.
    """
    visit = Visit(service, folder / f"{service}.log")
    command = list(command or [sys.executable, str(SERVER), *(["--own"] if own else [])])
    variables = {
        "PYTHONPATH": "",  # above all nothing through which another interpreter could find mcp_probe
        "OTEL_SERVICE_NAME": service,
        "OTEL_RESOURCE_ATTRIBUTES": "service.version=1.2.3",
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        **environment,
    }
    with downstream(visit) as url:
        if transport == "stdio":
            # The SDK's client would kill a server that takes longer over its exit, which a loaded machine makes it.
            patience = patch.object(stdio, "PROCESS_TERMINATION_TIMEOUT", LIMIT_S)
            starts = patch.object(session, "DISCOVER_TIMEOUT_SECONDS", LIMIT_S)  # its first answer waits for that
            with visit.log.open("w", encoding="utf-8") as errors, patience, starts:
                anyio.run(_talk, visit, url, stdio.stdio_client(_parameters(command, variables), errlog=errors))
        else:
            port = free_port()
            serving = [*command, "--http", str(port)]
            with running(
                serving, log=visit.log, is_ready=lambda: accepts(port), environment=variables, ends_with=signal.SIGINT
            ):
                anyio.run(_talk, visit, url, f"http://127.0.0.1:{port}/mcp")
    return visit


def _parameters(command: list[str], variables: Mapping[str, str]) -> stdio.StdioServerParameters:
    return stdio.StdioServerParameters(command=command[0], args=command[1:], env={**os.environ, **variables})


async def _talk(visit: Visit, url: str, where: Any) -> None:
    async with _connected(where) as client:
        offered = {tool.name for tool in (await client.list_tools()).tools}
        async with anyio.create_task_group() as group:
            for _ in range(CALLS["nap"]):
                group.start_soon(_call, visit, client, "nap", {"ms": NAP_MS})
            await anyio.sleep(HOLD_AFTER_MS / 1000)
            group.start_soon(_call, visit, client, "hold", {"ms": HOLD_MS})
        arguments: dict[str, dict[str, Any]] = {
            "add": {"a": SECRET, "b": 2},
            "wait": {"ms": WAIT_MS},
            "render": {"ms": 20},
            "fail": {},
            "forward": {"url": f"{url}/forward"},
            "forward_from_thread": {"url": f"{url}/forward_from_thread"},
        }
        for tool in (tool for tool in arguments if tool in offered):
            for _ in range(CALLS[tool]):
                await _call(visit, client, tool, arguments[tool])


@asynccontextmanager
async def _connected(where: Any) -> AsyncIterator[Client]:
    async with Client(where, read_timeout_seconds=60, cache=None) as client:
        yield client


async def _call(visit: Visit, client: Client, tool: str, arguments: dict[str, Any]) -> None:
    """With a trace of its own, as a client that traces sends it."""
    trace_id = os.urandom(16).hex()
    visit.traces.setdefault(tool, []).append(trace_id)
    meta: Any = {"traceparent": f"00-{trace_id}-{PARENT_SPAN_ID}-01"}
    began = time.perf_counter()
    await client.call_tool(tool, arguments, meta=meta)
    visit.slowest_s[tool] = max(visit.slowest_s.get(tool, 0.0), time.perf_counter() - began)
