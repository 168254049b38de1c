"""Calls that are sent without waiting: against one by one, and ever more of them at once."""

from __future__ import annotations

from mcp_probe.clock import now_ns
from mcp_probe.workloads.bench.machine import ForeignLoad, is_contended
from mcp_probe.workloads.bench.own.calls import all_well, answer, burst
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
    count = max(5, min(sheet.bench.size(quick=40, full=200), round(2_000 / max(sheet.medians[main.label], 0.1))))
    one_by_one: list[float] = []
    at_once: list[float] = []
    load = ForeignLoad()
    for number in range(sheet.bench.size(quick=3, full=7)):
        sheet.bench.step(f"{count} calls one by one and at once, round {number + 1}")
        began = now_ns()
        for _ in range(count):
            await answer(peer, main.order)
        one_by_one.append((now_ns() - began) / 1e6)
        with sheet.phases.named("at once"):
            replies, wall_ms = await burst(peer, main.order, count)
        all_well(replies, main)
        at_once.append(wall_ms)
    foreign = load.cores()
    busy = is_contended(foreign)
    first = describe(one_by_one, foreign_cores=foreign, contended=busy)
    second = describe(at_once, foreign_cores=foreign, contended=busy)
    table = f"{count} × {main.label}, one by one and all at once"
    sheet.row(table, "one by one", "ms", first, x="one by one", series=main.label)
    sheet.row(table, "all at once", "ms", second, "at once", x="all at once", series=main.label)
    gain = first.median / second.median
    sheet.check(
        "000-7",
        "sending the next call before the last is answered is no slower on this server",
        documented="one by one is 2-2.5x faster (in process, without a transport)",
        measured=f"{first.median:.0f} ms one by one, {second.median:.0f} ms at once: {gain:.2f}x",
        tolerance="at once at least 0.95x as fast",
        verdict="does not hold" if gain < 0.95 else "holds",
        value=gain,
        contended=busy,
    )


async def fan_out(sheet: Sheet, peer: Peer) -> None:
    """001: N calls at once, and whether they are answered in waves."""
    main = sheet.main
    if main is None:
        return
    rounds = sheet.bench.size(quick=3, full=9)
    walls: dict[int, float] = {}
    best: dict[int, tuple[float, list[float]]] = {}  # the round that was disturbed least
    busy = False
    for count in FANOUT:
        sheet.bench.step(f"{count} calls at once")
        taken, load = [], ForeignLoad()
        for _ in range(rounds + 1):
            with sheet.phases.named(f"fan-out {count}"):
                replies, wall_ms = await burst(peer, main.order, count)
            all_well(replies, main)
            taken.append(wall_ms)
            ends = [reply.service_ms for reply in replies]
            best[count] = min(best.get(count, (wall_ms, ends)), (wall_ms, ends))
        foreign = load.cores()
        stats = describe(taken, foreign_cores=foreign, contended=is_contended(foreign))
        busy = busy or stats.contended
        walls[count] = stats.median
        sheet.row(
            f"fan-out of {main.label}",
            f"{count} at once",
            "ms",
            stats,
            f"fan-out {count}" if count > 1 else "",
            x=count,
            series=main.label,
        )
    found = waves_of(best[1][0], best[FANOUT[-1]][1])
    sheet.check(
        "001-1, 001-3",
        "calls in flight at once are handled at once, or in waves of as many as the server has places",
        documented="20 calls: 108 ms without a limit, 521 ms (5 waves) with a pool of 4",
        measured=f"1: {walls[1]:.1f} ms, {FANOUT[-1]}: {walls[FANOUT[-1]]:.1f} ms. {found.sentence}",
        tolerance="ends of the calls cluster at multiples of one call's time",
        verdict="cannot be told here" if busy and found.width is None else found.verdict,
        why="Others used this machine, and waves are told by their timing." if busy and found.width is None else "",
        value=found.width,
        contended=busy,
    )
