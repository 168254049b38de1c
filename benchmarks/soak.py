"""Requests through one attached server until its memory has shown whether it grows.

Client and server share a process and a loop; the client is two stream operations a request. The load is mostly one
quick tool, with the rarer ways a request can go mixed in, since those are the ones that forget to let go.
Resident memory is read every ``--every`` requests and must stay within ``ALLOWED_MB`` of its first reading.
Linux only. Exit code 1: it did not, or requests are missing from the probe's counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.shared.memory import MessageStream
from mcp.shared.message import SessionMessage

import mcp_probe
from benchmarks.machine import describe_machine
from benchmarks.page import write_page
from benchmarks.subjects import served, without_spans
from mcp_probe.model import Summary

RESULT = Path(__file__).with_name("results") / "soak.json"
FORMAT = "mcp-probe-soak/1"
ALLOWED_MB = 5.0
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory after ``requests`` requests."""

    requests: int
    seconds: float
    rss_mb: float


def drift_mb(samples: Sequence[Sample]) -> float | None:
    """The furthest any later sample is from the first, signed; ``None`` with fewer than two samples."""
    if len(samples) < 2:
        return None
    return max((sample.rss_mb - samples[0].rss_mb for sample in samples[1:]), key=abs)


def is_flat(samples: Sequence[Sample]) -> bool:
    """Whether memory stayed within the allowance; never with too few samples to tell."""
    drift = drift_mb(samples)
    return drift is not None and abs(drift) <= ALLOWED_MB


def resident_mb() -> float:
    """What this process holds in memory now; garbage that the interpreter has yet to collect is held by nobody."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MB


async def call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
    """The tools of the load."""
    if params.name == "threaded":
        await anyio.to_thread.run_sync(int)
    elif params.name == "sleepy":
        await anyio.sleep(0.001)
    elif params.name == "raising":
        raise LookupError("as asked")
    content: list[Any] = [types.TextContent(type="text", text="3")]
    return types.CallToolResult(content=content, is_error=params.name == "failing")


async def list_tools(
    ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="add", input_schema={"type": "object"})])


RARE = {10: "failing", 20: "raising", 30: "threaded", 40: "sleepy"}
"""Of every hundred requests these are the odd ones; 50 is tools/list and 60 a method that does not exist."""


def message_of(number: int, distinct_names: bool) -> types.JSONRPCRequest:
    """The request with this number."""
    place = number % 100
    if place in (50, 60):
        return types.JSONRPCRequest(jsonrpc="2.0", id=number, method="tools/list" if place == 50 else "no/such")
    name = RARE.get(place, "add")
    if distinct_names and place % 10 == 5:
        name = f"tool-{number}"
    params = {"name": name, "arguments": {"a": 1, "b": 2}}
    return types.JSONRPCRequest(jsonrpc="2.0", id=number, method="tools/call", params=params)


class LeanClient:
    """Writes messages into the server's stream and waits for each answer."""

    def __init__(self, streams: MessageStream) -> None:
        self._reading, self._writing = streams

    async def open(self) -> None:
        """The handshake of 2025-11-25."""
        client = {"name": "soak", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        await self.ask(types.JSONRPCRequest(jsonrpc="2.0", id="open", method="initialize", params=params))
        ready = types.JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
        await self._writing.send(SessionMessage(ready))

    async def ask(self, request: types.JSONRPCRequest) -> None:
        """One request and its answer."""
        await self._writing.send(SessionMessage(request))
        answer = await self._reading.receive()
        if isinstance(answer, Exception) or getattr(answer.message, "id", None) != request.id:
            raise RuntimeError(f"Request {request.id} was answered by {answer!r}.")


async def soak(requests: int, every: int, server: Server[Any], distinct_names: bool) -> list[Sample]:
    """Run the load; prints a line per sample."""
    samples: list[Sample] = []
    began = time.monotonic()
    async with served(server) as near:
        client = LeanClient(near)
        await client.open()
        for number in range(1, requests + 1):
            await client.ask(message_of(number, distinct_names))
            if number % every == 0:
                samples.append(Sample(number, round(time.monotonic() - began, 1), round(resident_mb(), 2)))
                print(line_of(samples), flush=True)
    return samples


def line_of(samples: Sequence[Sample]) -> str:
    """The last sample as a line of the table."""
    last = samples[-1]
    grown = last.rss_mb - samples[0].rss_mb
    rate = last.requests / max(last.seconds, 1e-9)
    return f"{last.requests:>10,}  {last.seconds:>8.1f} s  {last.rss_mb:>8.2f} MB  {grown:>+7.2f} MB  {rate:>7.0f}/s"


def make_server() -> Server[Any]:
    """A low-level server without the SDK's spans: the probe is what is under test."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # a traceback for each raising call would drown the rest
    server: Server[Any] = Server("soak", on_list_tools=list_tools, on_call_tool=call_tool)
    without_spans(server)
    return server


def accounted(summary: Summary) -> dict[str, Any]:
    """What the probe says it has seen."""
    return {
        "requests": sum(row.count for row in summary.operations if row.kind == "request"),
        "dropped": summary.requests.dropped,
        "dropped_marks": summary.probe.dropped_marks,
        "operations": len(summary.operations),
        "disabled_hooks": list(summary.probe.disabled_hooks),
        "overhead_share": summary.probe.overhead_share,
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """The whole soak as its JSON document."""
    server = make_server()
    probe = None if arguments.bare else mcp_probe.attach(server)
    samples = anyio.run(soak, arguments.requests, arguments.every, server, arguments.distinct_names)
    seen = None
    if probe is not None:
        seen = accounted(probe.snapshot())
        probe.detach()
    return {
        "format": FORMAT,
        "machine": describe_machine(),
        "requests": arguments.requests,
        "samples": [asdict(sample) for sample in samples],
        "drift_mb": drift_mb(samples),
        "allowed_mb": ALLOWED_MB,
        "flat": is_flat(samples),
        "seen": seen,
    }


def missing(document: dict[str, Any]) -> int:
    """Requests that the probe neither counted nor admits to have dropped; the handshake is one more than was asked."""
    seen = document["seen"]
    return 0 if seen is None else document["requests"] + 1 - seen["requests"] - seen["dropped"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=50_000, help="requests between two readings of memory")
    parser.add_argument("--bare", action="store_true", help="without the probe: what the SDK itself retains")
    parser.add_argument("--distinct-names", action="store_true", help="one call in ten names a tool never seen before")
    parser.add_argument(
        "--output", type=Path, help="write the results here (default: the committed file, whole runs only)"
    )
    arguments = parser.parse_args()
    document = run(arguments)
    drift = "unknown" if document["drift_mb"] is None else f"{document['drift_mb']:+.2f} MB"
    print(f"drift {drift}, allowed ±{ALLOWED_MB:g} MB: {'flat' if document['flat'] else 'NOT FLAT'}")
    print(f"the probe: {document['seen']}; missing {missing(document)}")
    whole = arguments.requests >= 1_000_000 and not arguments.bare and not arguments.distinct_names
    target = arguments.output or (RESULT if whole else None)
    if target is not None:
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(document, indent=1) + "\n")
    if target == RESULT:
        write_page()
    return 0 if document["flat"] and not missing(document) else 1


if __name__ == "__main__":
    sys.exit(main())
