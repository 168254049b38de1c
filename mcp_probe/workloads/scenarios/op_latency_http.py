"""``op-latency-http``: document 002's stdio against HTTP, over streamable HTTP with SSE and with JSON answers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

from mcp_probe.aggregate.explain import explain
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Outcome
from mcp_probe.workloads.bench.statistics import little
from mcp_probe.workloads.scenarios.documents.doc002 import HTTP as DOCUMENTED
from mcp_probe.workloads.scenarios.documents.doc002 import THROUGHPUT
from mcp_probe.workloads.scenarios.operations import PROBE_NAMES, Timed, closed_loop, stages_ms, take_turns
from mcp_probe.workloads.scenarios.verdicts import graded

MODULE = "mcp_probe.workloads.servers.twin"
TABLE, HIDDEN = "002 HTTP", "002 conditions"
COMPARED = ("ping", "tool call", "resource read")
CONCURRENCY = 32
ONE_BY_ONE, MANY = "one by one", "many at once"


LABELS: Mapping[str, str] = {"stdio": "stdio", "sse": "HTTP, SSE answers", "json": "HTTP, JSON answers"}
PROTOCOLS: Mapping[str, str] = {
    "stdio": "stdio, legacy handshake",
    "sse": "streamable HTTP, SSE, legacy handshake",
    "json": "streamable HTTP, JSON, legacy handshake",
}

Found = Mapping[tuple[str, str], Timed]
Rates = Mapping[str, tuple[float, float]]


async def run(bench: Bench) -> Outcome:
    """The same server over three transports, all taking turns call by call; then many at once, and 2026-07-28."""
    count = bench.size(100, 1000)
    bench.step("starting three servers")
    async with AsyncExitStack() as stack:
        servers: dict[str, ProfiledServer] = {
            kind: await stack.enter_async_context(bench.server(MODULE, transport=kind, mode="legacy"))  # type: ignore[arg-type]
            for kind in LABELS
        }
        bench.step("one call after another")
        clients = {kind: server.session.client for kind, server in servers.items()}
        with servers["stdio"].phase(ONE_BY_ONE), servers["sse"].phase(ONE_BY_ONE), servers["json"].phase(ONE_BY_ONE):
            found = await take_turns(bench, clients, COMPARED, count)
        rates = {}
        for kind, server in servers.items():
            bench.step(f"{LABELS[kind]}: {CONCURRENCY} pings at a time")
            with server.phase(MANY):
                rates[kind] = await closed_loop(clients[kind], "ping", CONCURRENCY, 3 * count)
        bench.step("protocol 2026-07-28")
        modern = await _modern(bench, servers, count)
    bench.note("All three servers run under the probe; what that adds to a call is what `overhead` shows.")
    _table(bench, found, rates, servers)
    _conditions(bench, found, modern, servers)
    _claims(bench, found, rates)
    return bench.outcome()


async def _modern(bench: Bench, servers: Mapping[str, ProfiledServer], count: int) -> Found:
    """The newer protocol, which has no ping; over HTTP it has no session either."""
    async with AsyncExitStack() as stack:
        clients = {}
        for kind in ("sse", "json"):
            session = await stack.enter_async_context(servers[kind].connect("auto"))
            clients[kind] = session.client
        stdio = await stack.enter_async_context(bench.server(MODULE))
        clients["stdio"] = stdio.session.client
        return await take_turns(bench, clients, ("tool call", "resource read"), count)


# --- rows ---


def _table(bench: Bench, found: Found, rates: Rates, servers: Mapping[str, ProfiledServer]) -> None:
    for name in COMPARED:
        documented = DOCUMENTED[name]
        for kind, label in LABELS.items():
            timed = found[kind, name]
            bench.row(
                TABLE,
                f"{name}: {label}",
                "ms",
                timed.stats,
                documented=documented.stdio if kind == "stdio" else documented.http,
                metric="latency",
                series=label,
                x=name,
                protocol=PROTOCOLS[kind],
                why=explain(servers[kind].seen(ONE_BY_ONE), PROBE_NAMES[name]),
                note="the document's HTTP tool is echo, its stdio tool add; here both are add"
                if name == "tool call" and kind != "stdio"
                else "",
            )
            if kind != "stdio":
                bench.row(
                    TABLE,
                    f"{name}: {label} over stdio",
                    "×",
                    timed.stats.median / found["stdio", name].stats.median,
                    documented=documented.ratio,
                    metric="ratio",
                    series=label,
                    x=name,
                    contended=timed.contended,
                )
    for kind, label in LABELS.items():
        rate, latency_ms = rates[kind]
        bench.row(
            TABLE,
            f"maximum throughput: {label}",
            "1/s",
            rate,
            documented=THROUGHPUT.stdio if kind == "stdio" else THROUGHPUT.http,
            metric="throughput",
            series=label,
            x="maximum throughput",
            little=little(1, 1 / rate, latency_ms / 1000, CONCURRENCY),
            protocol=PROTOCOLS[kind],
            why=explain(servers[kind].seen(MANY)),
            note=f"{CONCURRENCY} pings at a time; the document's stdio figure is of one at a time",
        )
        if kind != "stdio":
            bench.row(
                TABLE,
                f"maximum throughput: stdio over {label}",
                "×",
                rates["stdio"][0] / rate,
                documented=THROUGHPUT.ratio,
                metric="ratio",
                series=label,
                x="maximum throughput",
            )


def _conditions(bench: Bench, found: Found, modern: Found, servers: Mapping[str, ProfiledServer]) -> None:
    for (kind, name), timed in modern.items():
        bench.row(
            HIDDEN,
            f"{name}: {LABELS[kind]}, 2026-07-28",
            "ms",
            timed.stats,
            metric="latency, 2026-07-28",
            series=LABELS[kind],
            x=name,
            protocol="2026-07-28, which has no ping" if name == "tool call" else "2026-07-28",
        )
    for kind, server in servers.items():
        seen = server.seen(ONE_BY_ONE)
        for stage, ms in stages_ms(seen, "tool call").items():
            label = f"tool call: {stage}, in the {kind} server"
            bench.row(HIDDEN, label, "ms", ms, metric="HTTP stages", series=stage, x=LABELS[kind])
    serial = 1000 / found["sse", "ping"].stats.mean
    bench.row(
        HIDDEN,
        "ping: HTTP, one at a time",
        "1/s",
        serial,
        documented=402,
        metric="serial throughput",
        series=LABELS["sse"],
        x="ping",
        note="documented: 1000 / 2.488 ms, the serial figure that belongs beside 4 077; it is 10.1×, not 4.8×",
    )


# --- claims ---


def _claims(bench: Bench, found: Found, rates: Rates) -> None:
    contended = any(timed.contended for timed in found.values())
    ratios = {
        kind: [found[kind, name].stats.median / found["stdio", name].stats.median for name in COMPARED]
        for kind in ("sse", "json")
    }
    least = min(min(values) for values in ratios.values())
    bench.check(
        "002-5",
        "stdio answers 8 to 10 times as fast as HTTP",
        documented="10.2, 8.2 and 9.2×",
        measured="; ".join(
            f"{' / '.join(f'{value:.1f}' for value in ratios[kind])}× with {kind.upper()} answers" for kind in ratios
        ),
        tolerance="stdio faster by more than 1.2×",
        verdict=graded(least > 8, least > 1.2),
        why="The direction holds; the size is that of the document's own HTTP server: a connection for every call.",
        value=least,
        contended=contended,
    )
    gains = {kind: rates["stdio"][0] / rates[kind][0] for kind in ("sse", "json")}
    bench.check(
        "002-7",
        "stdio has 4.8 times the throughput of HTTP",
        documented="4 077 (one at a time) against 850 (concurrent) requests/s",
        measured=f"{CONCURRENCY} pings at a time: {rates['stdio'][0]:.0f} against {rates['sse'][0]:.0f} (SSE) and "
        f"{rates['json'][0]:.0f} (JSON): {gains['sse']:.1f}× and {gains['json']:.1f}×",
        tolerance="> 1.2×",
        verdict=graded(min(gains.values()) > 4, min(gains.values()) > 1.2),
        value=min(gains.values()),
        contended=contended,
    )
