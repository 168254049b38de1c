"""``tls``: MCP calls over plain HTTP/1.1, over TLS with HTTP/1.1, and over TLS with real HTTP/2.

Document 004 compared HTTP/2 over a plain URL, where nothing negotiates it. Here every response says which version it
came with, and the client's ports count the connections. One server program, hypercorn, speaks all three.
"""

from __future__ import annotations

import importlib.util
import json
import ssl
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2

from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.context import Bench, Interleaved, Ms, Timed
from mcp_probe.workloads.bench.serving import ProfiledServer, side_by_side
from mcp_probe.workloads.bench.shapes import Asked, Outcome
from mcp_probe.workloads.bench.statistics import describe, ratio_of
from mcp_probe.workloads.load.wire import Order, encode, headers_of
from mcp_probe.workloads.scenarios.own_claims import exactly, judged
from mcp_probe.workloads.scenarios.tables import Table

SERVER = "mcp_probe.workloads.servers.tls"
TABLE = "now TLS"
PLAIN, PLAIN_2 = "plain, HTTP/1.1", "plain, http2=True"
TLS_1, TLS_2 = "TLS, HTTP/1.1", "TLS, HTTP/2"
AT_ONCE = 20
NEEDED = {"hypercorn": "TLS", "h2": "HTTP/2", "cryptography": "a certificate"}


@dataclass(slots=True)
class Caller:
    """One client of the library that mcp 2.x speaks HTTP with; the CPU time is this process's."""

    http: httpx2.AsyncClient
    url: str
    versions: Counter[str] = field(default_factory=Counter)
    ports: set[int] = field(default_factory=set)
    cpu_us: list[float] = field(default_factory=list)

    async def round(self, calls: int, at_once: int) -> Ms:
        """Milliseconds of one of ``calls`` calls, so many at once."""
        limit = anyio.CapacityLimiter(at_once)
        began, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        async with anyio.create_task_group() as group:
            for number in range(calls):
                group.start_soon(self._one, limit, number)
        self.cpu_us.append((time.process_time_ns() - cpu_ns) / 1e3 / calls)
        return Ms((time.perf_counter_ns() - began) / 1e6 / calls)

    async def _one(self, limit: anyio.CapacityLimiter, number: int) -> None:
        async with limit:
            await self.call("add", a=number, b=1)

    async def call(self, tool: str, **arguments: Any) -> str:
        """The text of one call's answer, in protocol 2026-07-28. Raises: LaunchError where it failed."""
        order = Order("tools/call", {"name": tool, "arguments": arguments})
        body, headers = encode(1, order, modern=True), headers_of(order, modern=True)
        async with self.http.stream("POST", self.url, content=body, headers=headers) as response:
            # The connection may be closed once the body is read.
            self.ports.add(response.extensions["network_stream"].get_extra_info("client_addr")[1])
            await response.aread()
        self.versions[response.http_version] += 1
        if response.status_code != httpx2.codes.OK:
            raise LaunchError(f"The server answered with status {response.status_code}.")
        return str(json.loads(response.content)["result"]["content"][0]["text"])


async def run(bench: Bench) -> Outcome:
    """One call after another, then many at once."""
    missing = [library for library in NEEDED if importlib.util.find_spec(library) is None]
    for library in missing:
        bench.lacks(library, f"{NEEDED[library]}, and with it this comparison")
    if missing:
        return bench.outcome()
    with tempfile.TemporaryDirectory(prefix="mcp-probe-tls-") as folder:
        certificate = Path(folder, "certificate.pem")
        from mcp_probe.workloads.certificates import write_certificate

        write_certificate(certificate)
        bench.step("starting two servers")
        starts = [
            bench.server(SERVER, *more, transport="json", connect=False)
            for more in ((), ("--certificate", str(certificate)))
        ]
        async with side_by_side(starts) as (plain, secure), AsyncExitStack() as stack:
            callers = await _callers(stack, plain, secure, certificate)
            servers = {label: secure if label.startswith("TLS") else plain for label in callers}
            for at_once in (1, AT_ONCE):
                bench.step(f"{at_once} at once")
                found = await _timed(bench, callers, servers, at_once)
    _version_claim(bench, callers)
    _connection_claim(bench, callers, servers)
    _cost_claim(bench, callers, servers, found)
    return bench.outcome()


async def _callers(
    stack: AsyncExitStack, plain: ProfiledServer, secure: ProfiledServer, certificate: Path
) -> dict[str, Caller]:
    trusted = ssl.create_default_context(cafile=str(certificate))
    there = (secure.url or "").replace("http:", "https:")
    kinds = {
        PLAIN: (plain.url or "", False),
        PLAIN_2: (plain.url or "", True),
        TLS_1: (there, False),
        TLS_2: (there, True),
    }
    limits = httpx2.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    return {
        label: Caller(
            await stack.enter_async_context(
                httpx2.AsyncClient(http2=http2, verify=trusted, timeout=60, limits=limits, trust_env=False)
            ),
            url,
        )
        for label, (url, http2) in kinds.items()
    }


async def _timed(
    bench: Bench, callers: Mapping[str, Caller], servers: Mapping[str, ProfiledServer], at_once: int
) -> Interleaved:
    calls, rounds = bench.size(40, 200), bench.size(4, 12)

    def turn(caller: Caller) -> Timed:
        return lambda: caller.round(calls, at_once)

    for label, caller in callers.items():
        await caller.round(calls, at_once)
        caller.ports.clear()
        with servers[label].phase(f"{label} {at_once}"):
            await caller.round(calls, at_once)
    taken = await bench.interleaved({label: turn(one) for label, one in callers.items()}, rounds, twin=PLAIN)
    table = Table(bench, TABLE, x=f"{at_once} at once")
    for label, stats in taken.stats.items():
        name, why = f"{label}, {at_once} at once", servers[label].later(f"{label} {at_once}", "add")
        table.put(name, "ms", stats, metric="a call", series=label, floor=taken.floor, arm=name, why=why)
        cpu = describe(callers[label].cpu_us[-rounds:])
        own = table.sub(metric="client's CPU", series=label, contended=stats.contended)
        own.put(f"{name}: client's CPU", "µs", cpu, arm=name, note="of a call, as this process counts it")
    return taken


# --- claims ---------------------------------------------------------------------------------------


def _version_claim(bench: Bench, callers: Mapping[str, Caller]) -> None:
    truth = {PLAIN: "HTTP/1.1", PLAIN_2: "HTTP/1.1", TLS_1: "HTTP/1.1", TLS_2: "HTTP/2"}
    found = {label: " and ".join(sorted(caller.versions)) for label, caller in callers.items()}
    exactly(
        bench,
        "now-28",
        "HTTP/2 is spoken where TLS negotiates it, and nowhere else: document 004's rows of it are HTTP/1.1",
        documented="004: a client with http2=True and a plain URL; HTTP/2 is of minimal benefit",
        said=", ".join(f"{label}: {version}" for label, version in found.items()),
        how="every response names its version",
        fine=found == truth,
        why="A plain URL negotiates nothing, so document 004 is void on HTTP/2: its rows measure HTTP/1.1 twice.",
    )


def _connection_claim(bench: Bench, callers: Mapping[str, Caller], servers: Mapping[str, ProfiledServer]) -> None:
    ports = {label: len(caller.ports) for label, caller in callers.items()}
    exactly(
        bench,
        "now-29",
        f"HTTP/2 carries {AT_ONCE} calls at once over one connection, HTTP/1.1 needs one for each",
        said=", ".join(f"{label}: {count}" for label, count in ports.items()) + " connections",
        how=f"1 with HTTP/2; more than half of {AT_ONCE} with HTTP/1.1; the client's own ports",
        fine=ports[TLS_2] == 1 and ports[TLS_1] > AT_ONCE / 2,
        why=f"HTTP/2: {servers[TLS_2].why(f'{TLS_2} {AT_ONCE}')}",
    )


def _cost_claim(
    bench: Bench, callers: Mapping[str, Caller], servers: Mapping[str, ProfiledServer], taken: Interleaved
) -> None:
    rounds = taken.stats[TLS_1].n
    contended = any(stats.contended for stats in taken.stats.values())
    one, two = (describe(callers[label].cpu_us[-rounds:], contended=contended) for label in (TLS_1, TLS_2))
    ratio = ratio_of(one, two)
    judged(
        bench,
        "now-30",
        f"with {AT_ONCE} at once HTTP/2 costs the client less CPU than HTTP/1.1, both with TLS",
        Asked("more"),
        ratio,
        said=f"{two.median:.0f} and {one.median:.0f} µs a call: {ratio.value:.2f}×; "
        f"{taken.ratio(TLS_1, TLS_2):.2f}× in time",
        how="HTTP/1.1 over HTTP/2, CPU time of this process a call",
        why=f"HTTP/2: {servers[TLS_2].why(f'{TLS_2} {AT_ONCE}')} HTTP/1.1: {servers[TLS_1].why(f'{TLS_1} {AT_ONCE}')}",
    )
