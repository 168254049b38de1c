"""``op-latency-http``: document 002's stdio against HTTP, over streamable HTTP with SSE and with JSON answers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

from mcp.client import Client

from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer, Transport, side_by_side
from mcp_probe.workloads.bench.shapes import Measured, Outcome
from mcp_probe.workloads.bench.statistics import floor_of, ratio_of
from mcp_probe.workloads.scenarios.documents import doc002 as doc
from mcp_probe.workloads.scenarios.operations import PROBE_NAMES, Rate, Timed, closed_loop, stages_ms, take_turns
from mcp_probe.workloads.scenarios.tables import Table

MODULE = "mcp_probe.workloads.servers.twin"
TABLE, HIDDEN = "002 HTTP", "002 conditions"
COMPARED = ("ping", "tool call", "resource read")
CONCURRENCY = 32
ONE_BY_ONE, MANY = "one by one", "many at once"

OVER_HTTP: tuple[Transport, ...] = ("sse", "json")
LABELS: Mapping[Transport, str] = {"stdio": "stdio", "sse": "HTTP, SSE answers", "json": "HTTP, JSON answers"}
PROTOCOLS: Mapping[Transport, str] = {
    "stdio": "stdio, legacy handshake",
    "sse": "streamable HTTP, SSE, legacy handshake",
    "json": "streamable HTTP, JSON, legacy handshake",
}

Found = Mapping[tuple[Transport, str], Timed]
Rates = Mapping[Transport, Rate]


async def run(bench: Bench) -> Outcome:
    """The same server over three transports, all taking turns call by call; then many at once, and 2026-07-28."""
    count = bench.size(100, 1000)
    bench.note("All three servers run under the probe; what that adds to a call is what `overhead` shows.")
    bench.step("starting three servers")
    async with side_by_side([bench.server(MODULE, transport=kind, mode="legacy") for kind in LABELS]) as started:
        servers = dict(zip(LABELS, started, strict=True))
        bench.step("one call after another")
        clients: dict[Transport, Client] = {kind: server.session.client for kind, server in servers.items()}
        with servers["stdio"].phase(ONE_BY_ONE), servers["sse"].phase(ONE_BY_ONE), servers["json"].phase(ONE_BY_ONE):
            found = await take_turns(bench, clients, COMPARED, count)
        _latency_rows(bench, found, servers)
        _serial_row(bench, found, servers["sse"])
        rates = {}
        for kind, server in servers.items():
            bench.step(f"{LABELS[kind]}: {CONCURRENCY} pings at a time")
            with server.phase(MANY):
                rates[kind] = await closed_loop(clients[kind], "ping", CONCURRENCY, bench.size(150, 1500))
            _rate_rows(bench, rates, kind, servers)
        bench.step("protocol 2026-07-28")
        _modern_rows(bench, await _modern(bench, servers, bench.size(60, 500)))
    for kind, server in servers.items():
        _stage_rows(bench, kind, server)
    told = {phase: servers["sse"].why(phase) for phase in (ONE_BY_ONE, MANY)}
    _claims(bench, found, rates, told)
    return bench.outcome()


async def _modern(bench: Bench, servers: Mapping[Transport, ProfiledServer], count: int) -> Found:
    """The newer protocol, which has no ping; over HTTP it has no session either."""
    async with AsyncExitStack() as stack:
        clients: dict[Transport, Client] = {}
        for kind in OVER_HTTP:
            session = await stack.enter_async_context(servers[kind].connect("auto"))
            clients[kind] = session.client
        stdio = await stack.enter_async_context(bench.server(MODULE))
        clients["stdio"] = stdio.session.client
        return await take_turns(bench, clients, ("tool call", "resource read"), count)


# --- rows ---


def _latency_rows(bench: Bench, found: Found, servers: Mapping[Transport, ProfiledServer]) -> None:
    echo = "the document's HTTP tool is echo, its stdio tool add; here both are add"
    for name in COMPARED:
        documented, stdio = doc.HTTP[name], found["stdio", name].stats
        for kind, label in LABELS.items():
            stats, server = found[kind, name].stats, servers[kind]
            table = Table(bench, TABLE, series=label, x=name, contended=stats.contended)
            why = server.later(ONE_BY_ONE, PROBE_NAMES[name])
            latency = table.sub(metric="latency", protocol=PROTOCOLS[kind], why=why)
            if kind == "stdio":
                latency.put(f"{name}: {label}", "ms", stats, documented.stdio)
                continue
            latency.put(f"{name}: {label}", "ms", stats, documented.http, note=echo if name == "tool call" else "")
            why = server.grew(servers["stdio"], ONE_BY_ONE, PROBE_NAMES[name])
            ratio = ratio_of(stats, stdio)
            table.put(f"{name}: {label} over stdio", "×", ratio, documented.ratio, metric="ratio", why=why)


def _rate_rows(bench: Bench, rates: Rates, kind: Transport, servers: Mapping[Transport, ProfiledServer]) -> None:
    label, rate, stdio = LABELS[kind], rates[kind], rates["stdio"]
    table = Table(bench, TABLE, series=label, x="maximum throughput")
    note = f"{CONCURRENCY} pings at a time; the document's stdio figure is of one at a time"
    own = table.sub(metric="throughput", protocol=PROTOCOLS[kind], floor=rate.floor, little=rate.little, note=note)
    documented = doc.THROUGHPUT.stdio if kind == "stdio" else doc.THROUGHPUT.http
    own.put(f"maximum throughput: {label}", "1/s", rate.per_s, documented, why=servers[kind].later(MANY))
    if kind != "stdio":
        why = servers[kind].grew(servers["stdio"], MANY)
        ratio = table.sub(metric="ratio", floor=floor_of(stdio.floor, rate.floor), why=why)
        ratio.put(f"maximum throughput: stdio over {label}", "×", stdio.per_s / rate.per_s, doc.THROUGHPUT.ratio)


def _modern_rows(bench: Bench, modern: Found) -> None:
    table = Table(bench, HIDDEN, metric="latency, 2026-07-28")
    for (kind, name), timed in modern.items():
        protocol = "2026-07-28, which has no ping" if name == "tool call" else "2026-07-28"
        label = LABELS[kind]
        table.put(f"{name}: {label}, 2026-07-28", "ms", timed.stats, series=label, x=name, protocol=protocol)


def _stage_rows(bench: Bench, kind: Transport, server: ProfiledServer) -> None:
    for stage, ms in stages_ms(server.seen(ONE_BY_ONE), "tool call").items():
        label = f"tool call: {stage}, in the {kind} server"
        bench.row(HIDDEN, label, "ms", ms, metric="HTTP stages", series=stage, x=LABELS[kind])


def _serial_row(bench: Bench, found: Found, server: ProfiledServer) -> None:
    """The figure that the document left out: HTTP, one at a time."""
    ping = found["sse", "ping"].stats
    note = "documented: 1000 / 2.488 ms, the serial figure that belongs beside 4 077; it is 10.1×, not 4.8×"
    table = Table(bench, HIDDEN, metric="serial throughput", series=LABELS["sse"], x="ping", note=note)
    why = server.later(ONE_BY_ONE, PROBE_NAMES["ping"])
    table.put("ping: HTTP, one at a time", "1/s", 1000 / ping.mean, doc.HTTP_SERIAL_PER_S, floor=ping.halves, why=why)


# --- claims ---


def _claims(bench: Bench, found: Found, rates: Rates, whys: Mapping[str, str]) -> None:
    ratios = {
        kind: [ratio_of(found[kind, name].stats, found["stdio", name].stats) for name in COMPARED] for kind in OVER_HTTP
    }
    bench.claim(
        doc.CLAIMS["002-5"],
        [each for every in ratios.values() for each in every],
        said="; ".join(
            f"{' / '.join(f'{each.value:.1f}' for each in ratios[kind])}× with {kind.upper()} answers"
            for kind in ratios
        ),
        why=whys.get(ONE_BY_ONE, ""),
    )
    contended = any(timed.contended for timed in found.values())
    gains = [
        Measured(
            rates["stdio"].per_s / rates[kind].per_s,
            floor=floor_of(rates["stdio"].floor, rates[kind].floor),
            contended=contended,
        )
        for kind in OVER_HTTP
    ]
    bench.claim(
        doc.CLAIMS["002-7"],
        gains,
        said=f"{CONCURRENCY} pings at a time: {rates['stdio'].per_s:.0f} against {rates['sse'].per_s:.0f} (SSE) "
        f"and {rates['json'].per_s:.0f} (JSON): {gains[0].value:.1f}× and {gains[1].value:.1f}×",
        why=whys.get(MANY, ""),
    )
