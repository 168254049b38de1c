"""What needs connections of its own: a session for each call, and the other transport."""

from __future__ import annotations

from mcp_probe.clock import now_ns
from mcp_probe.workloads.bench.figures import number
from mcp_probe.workloads.bench.machine import serving
from mcp_probe.workloads.bench.own.calls import all_well, answer
from mcp_probe.workloads.bench.own.claims import between_transports
from mcp_probe.workloads.bench.own.operations import OwnServer
from mcp_probe.workloads.bench.own.sheet import Sheet
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.load.connecting import connect
from mcp_probe.workloads.load.peer import Target


async def sessions(sheet: Sheet, own: OwnServer) -> None:
    """004, #1918: a connection of one's own for each call, beside one that is kept."""
    main = sheet.main
    if main is None:
        return
    stdio = own.target.transport == "stdio"
    rounds = sheet.bench.size(quick=2, full=5) if stdio else sheet.bench.size(quick=8, full=50)
    taken, load = [], sheet.bench.load()
    for turn in range(rounds):
        sheet.bench.step(f"a {'process' if stdio else 'session'} per call, {turn + 1} of {rounds}")
        began = now_ns()
        async with connect(own.target, say=sheet.bench.step) as peer:
            reply = await answer(peer, main.order)
            taken.append((now_ns() - began) / 1e6)
        all_well([reply], main)
    stats = describe(taken, foreign_cores=load.cores())
    table = "session reuse"
    shared = sheet.alone[main.label]
    sheet.row(table, "one session for all calls", "ms", shared, x="shared", series=main.label)
    label = "a server process for each call" if stdio else "a connection and session for each call"
    sheet.row(
        table,
        label,
        "ms",
        stats,
        x="per call",
        series=main.label,
        note=f"{number(stats.median / shared.median)} times as long; start, handshake and one call",
    )


async def transports(sheet: Sheet, own: OwnServer, over_http: Target) -> None:
    """002: the same calls over the other transport."""
    main = sheet.main
    if main is None:
        return
    sheet.bench.step("the same over HTTP")
    rounds = sheet.bench.size(quick=20, full=200)
    async with connect(over_http, say=sheet.bench.step) as peer:
        sheet.bench.ours = serving(over_http.url)
        all_well([await answer(peer, main.order)], main)
        load = sheet.bench.load()
        taken = [(await answer(peer, main.order)).service_ms for _ in range(rounds)]
    stats = describe(taken, foreign_cores=load.cores())
    table = "stdio and HTTP"
    here = sheet.alone[main.label]
    sheet.row(table, f"{main.label}, stdio", "ms", here, x="stdio", series=main.label)
    sheet.row(table, f"{main.label}, HTTP", "ms", stats, x="HTTP", series=main.label)
    sheet.claim(between_transports(here, stats))
