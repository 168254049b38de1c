"""``session-reuse``: document 004's client per request, as MCP has it: a session, or a process, for every call."""

from __future__ import annotations

import ssl
import sys
import time
from functools import partial
from statistics import fmean
from typing import Any

import anyio
import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_probe.workloads.bench.context import Bench, Interleaved, Ms, Timed
from mcp_probe.workloads.bench.figures import share
from mcp_probe.workloads.bench.serving import Mode, ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome, Why
from mcp_probe.workloads.bench.statistics import floor_of, ratio_of
from mcp_probe.workloads.client import stdio_client_session
from mcp_probe.workloads.scenarios.documents import doc004 as doc
from mcp_probe.workloads.scenarios.providers import Followed, followed
from mcp_probe.workloads.scenarios.tables import Table

MODULE = "mcp_probe.workloads.servers.twin"
TABLE = "004 sessions"
ARGUMENTS = {"a": 1, "b": 2}
OWN, OWN_CONTEXT, SHARED = "a session per call", "a session per call, TLS context shared", "one session"
PROTOCOLS: tuple[tuple[Mode, str], ...] = (("legacy", "legacy handshake"), ("auto", "2026-07-28"))

Spans = list[tuple[float, ...]]
"""Milliseconds of each part of calls with a session of their own: to connect, the call, and to close."""


async def run(bench: Bench) -> Outcome:
    """Streamable HTTP in both protocols; then stdio, where a session is a process."""
    rounds = bench.size(15, 100)
    async with bench.server(MODULE, transport="sse", connect=False) as server:
        found: dict[str, Interleaved] = {}
        looked: list[Followed] = []  # what was seen on the client's side, as soon as it was
        for mode, protocol in PROTOCOLS:
            bench.step(f"streamable HTTP, {protocol}")
            found[protocol], spans = await _http(bench, server, mode, protocol, rounds)
            _http_rows(bench, server, protocol, found[protocol], spans, lambda: looked[0].why() if looked else "")
        bench.step("what a probe on the client's side says")
        looked.append(await _client_side(server.url))
        for mode, protocol in PROTOCOLS:
            with server.phase(_counted(protocol)):  # one call alone; the server's probe counts what it takes
                await _timed_session(server.url, mode, [])
    for _, protocol in PROTOCOLS:
        _http_claim(bench, protocol, found[protocol])
        note = "besides the tool call: what a session begins with, and the tools listed to check the result"
        table = Table(bench, TABLE, metric="requests", series=OWN, x=protocol, protocol=protocol, note=note)
        count = len(server.seen(_counted(protocol)).requests)
        table.put(f"{protocol}: requests at the server, a session a call", "", count)
    await _stdio(bench)
    return bench.outcome()


async def _http(
    bench: Bench, server: ProfiledServer, mode: Mode, protocol: str, rounds: int
) -> tuple[Interleaved, Spans]:
    assert server.url is not None
    url, context = server.url, ssl.create_default_context()
    spans: Spans = []
    async with Client(url, mode=mode, cache=None) as client:
        await client.list_tools()

        async def shared() -> None:
            await client.call_tool("add", ARGUMENTS)

        with server.phase(protocol):
            own, with_context = partial(_timed_session, url, mode, spans), partial(_with_context, url, mode, context)
            ways: dict[str, Timed] = {OWN: own, OWN_CONTEXT: with_context, SHARED: shared}
            taken = await bench.interleaved(ways, rounds, twin=SHARED, warm_up=1)
    return taken, spans


async def _timed_session(url: str, mode: Mode, spans: Spans) -> None:
    """One call in a session of its own."""
    began = time.perf_counter_ns()
    async with Client(url, mode=mode, cache=None) as client:
        connected = time.perf_counter_ns()
        await client.call_tool("add", ARGUMENTS)
        answered = time.perf_counter_ns()
    closed = time.perf_counter_ns()
    spans.append(((connected - began) / 1e6, (answered - connected) / 1e6, (closed - answered) / 1e6))


async def _with_context(url: str, mode: Mode, context: ssl.SSLContext) -> None:
    """As the SDK makes its HTTP client, but with a TLS context that exists already."""
    async with httpx2.AsyncClient(verify=context, timeout=httpx2.Timeout(30.0, read=300.0)) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, cache=None) as client:
            await client.call_tool("add", ARGUMENTS)


def _counted(protocol: str) -> str:
    return f"{protocol}, counted"


async def _client_side(url: str) -> Followed:
    """What a probe in the client's process says of calls with a session each, five at once."""

    async def call() -> dict[str, Any]:
        async with Client(url, cache=None) as client:
            return {"result": await client.call_tool("add", ARGUMENTS)}

    call.__qualname__ = "call"
    with followed() as calls:
        once = calls.follow(call)
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(once)
    return calls


def _http_rows(
    bench: Bench, server: ProfiledServer, protocol: str, taken: Interleaved, spans: Spans, client_side: Why
) -> None:
    over = f"streamable HTTP, {protocol}"
    table = Table(bench, TABLE, x=protocol, floor=taken.floor, protocol=over, arm=protocol)
    whys: dict[str, Why] = {OWN: client_side, SHARED: server.later(protocol)}
    for way, stats in taken.stats.items():
        table.put(f"{protocol}: {way}", "ms", stats, metric="time", series=way, why=whys.get(way, ""))
    note = "the document's figure is of plain HTTP requests"
    ratio = table.sub(metric="ratio", series="session per call", why=client_side, note=note)
    times = ratio_of(taken.stats[OWN], taken.stats[SHARED], taken.floor)
    ratio.put(f"{protocol}: session per call over one", "×", times, doc.PER_REQUEST)
    parts = Table(bench, TABLE, x=protocol, metric="spans")
    for name, taken_ms in zip(("to connect", "the call", "to close"), zip(*spans, strict=True), strict=True):
        parts.put(f"{protocol}: {name}, mean", "ms", fmean(taken_ms), series=name)


def _http_claim(bench: Bench, protocol: str, taken: Interleaved) -> None:
    own, context, shared = (taken.stats[way].median for way in (OWN, OWN_CONTEXT, SHARED))
    of_context = share(own - context, own - shared)
    ratio = ratio_of(taken.stats[OWN], taken.stats[SHARED], taken.floor)
    bench.claim(
        doc.CLAIMS["004-1m"].of(protocol),
        ratio,
        said=f"{own:.1f} and {shared:.2f} ms: {ratio.value:.1f}×; {context:.1f} ms with one TLS context for all",
        why=f"{of_context} of the difference is the TLS context that a new client builds, for a URL without TLS"
        if of_context
        else "",
    )


async def _stdio(bench: Bench) -> None:
    """A process per call, and the one that is kept."""
    command = [sys.executable, "-m", MODULE]
    table = Table(bench, TABLE, x="stdio")
    spans: Spans = []

    async def process() -> Ms:
        began = time.perf_counter_ns()
        async with stdio_client_session(command) as session:
            connected = time.perf_counter_ns()
            await session.call("add", **ARGUMENTS)
            answered = time.perf_counter_ns()
        spans.append(((connected - began) / 1e6, (answered - connected) / 1e6))
        return Ms((answered - began) / 1e6)

    async with bench.server(MODULE) as server:

        async def kept() -> None:
            await server.session.call("add", **ARGUMENTS)

        bench.step("stdio: one process")
        with server.phase("kept"):
            shared = await bench.timed(kept, bench.size(100, 500), warm_up=10)
        table.put("stdio: one process", "ms", shared, metric="time", series=SHARED, why=server.later("kept"))
        bench.step("stdio: a process per call")
        own = await bench.timed(process, bench.size(2, 6), first_apart=False)  # none of a process's rounds is warm
        note = "from starting it to its answer; stopping it is not counted"
        table.put("stdio: a process per call", "ms", own, metric="time", series=OWN, note=note)
        ratio, floor = own.median / shared.median, floor_of(own, shared)
        label = "stdio: process per call over one"
        table.put(label, "×", ratio, metric="ratio", series="process per call", floor=floor)
        bench.step("stdio: importing alone")
        importing = partial(anyio.run_process, [sys.executable, "-c", f"import {MODULE}"])
        imported = await bench.timed(importing, bench.size(1, 5), first_apart=False)
        label = "stdio: a process that only imports the server"
        table.put(label, "ms", imported, metric="spans", series="import")
    connect, call = map(fmean, zip(*spans, strict=True))
    why = (
        f"{share(connect, connect + call)} of it, {connect:.0f} ms, pass before the session stands: Python starts, the "
        f"server is imported, the handshake; the call takes {call:.1f} ms."
    )
    for name, mean in (("until its session stands", connect), ("the call", call)):
        label = f"stdio: a process per call, {name}, mean"
        table.put(label, "ms", mean, metric="spans", series=name, why=why)
    bench.claim(
        doc.CLAIMS["004-1p"],
        ratio_of(own, shared),
        said=f"{own.median:.0f} and {shared.median:.2f} ms: {ratio:.0f}×",
        why=why,
    )
