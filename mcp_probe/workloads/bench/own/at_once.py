"""Calls that are sent without waiting: against one by one, and ever more of them at once."""

from __future__ import annotations

from mcp_probe.clock import now_ns
from mcp_probe.workloads.bench.own.calls import all_well, answer, burst
from mcp_probe.workloads.bench.own.claims import fanned_out, pipelined
from mcp_probe.workloads.bench.own.sheet import Sheet
from mcp_probe.workloads.bench.own.waves import waves_of
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.load.peer import Peer

FANOUT = (1, 2, 5, 10, 20, 40)


async def pipelining(sheet: Sheet, peer: Peer) -> None:
    """000: the same calls one by one and all at once."""
    main = sheet.main
    if main is None:
        return
    count = max(5, min(sheet.bench.size(quick=40, full=200), round(2_000 / max(sheet.alone[main.label].median, 0.1))))
    one_by_one: list[float] = []
    at_once: list[float] = []
    load = sheet.bench.load()
    for number in range(sheet.bench.size(quick=3, full=7)):
        sheet.bench.step(f"{count} calls one by one and at once, round {number + 1}")
        began = now_ns()
        for _ in range(count):
            await answer(peer, main.order)
        one_by_one.append((now_ns() - began) / 1e6)
        with sheet.reasons.phase("at once"):
            replies, wall_ms = await burst(peer, main.order, count)
        all_well(replies, main)
        at_once.append(wall_ms)
    foreign = load.cores()
    first, second = (describe(taken, foreign_cores=foreign) for taken in (one_by_one, at_once))
    table = f"{count} × {main.label}, one by one and all at once"
    sheet.row(table, "one by one", "ms", first, x="one by one", series=main.label)
    sheet.row(table, "all at once", "ms", second, "at once", x="all at once", series=main.label)
    sheet.claim(pipelined(one_by_one, at_once, contended=first.contended))


async def fan_out(sheet: Sheet, peer: Peer) -> None:
    """001: N calls at once, and whether they are answered in waves."""
    main = sheet.main
    if main is None:
        return
    rounds = sheet.bench.size(quick=3, full=9)
    walls: dict[int, list[float]] = {}
    best: dict[int, tuple[float, list[float]]] = {}  # the round that was disturbed least
    busy = False
    for count in FANOUT:
        sheet.bench.step(f"{count} calls at once")
        taken, load = [], sheet.bench.load()
        for _ in range(rounds + 1):
            with sheet.reasons.phase(f"fan-out {count}"):
                replies, wall_ms = await burst(peer, main.order, count)
            all_well(replies, main)
            taken.append(wall_ms)
            ends = [reply.service_ms for reply in replies]
            best[count] = min(best.get(count, (wall_ms, ends)), (wall_ms, ends))
        stats = describe(taken, foreign_cores=load.cores())
        busy = busy or stats.contended
        walls[count] = taken
        sheet.row(
            f"fan-out of {main.label}",
            f"{count} at once",
            "ms",
            stats,
            f"fan-out {count}" if count > 1 else "",
            x=count,
            series=main.label,
        )
    most = FANOUT[-1]
    for claim in fanned_out(walls[1], walls[most], most, waves_of(best[1][0], best[most][1]), contended=busy):
        sheet.claim(claim)
