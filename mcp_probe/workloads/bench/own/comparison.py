"""The documents' comparisons on a user's own server: operations, fan-out, a quick call beside a slow one, the knee.

A tool is called only if the server declares it read-only or the user says so. A command is started under the probe,
which says why; how many calls to have in flight is measured without it, since that is how the server will run.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_probe.clock import now_ns
from mcp_probe.errors import OptionError
from mcp_probe.workloads.bench import figures
from mcp_probe.workloads.bench.context import Bench
from mcp_probe.workloads.bench.machine import serving
from mcp_probe.workloads.bench.own.calls import all_well, answer, burst, in_time
from mcp_probe.workloads.bench.own.claims import between_transports, fanned_out, held_up, not_held_up, pipelined
from mcp_probe.workloads.bench.own.operations import Offer, Operation, OwnServer, offer_of
from mcp_probe.workloads.bench.own.sheet import Reasons, Sheet
from mcp_probe.workloads.bench.own.sweep import sweep, under_the_probe
from mcp_probe.workloads.bench.own.waves import waves_of
from mcp_probe.workloads.bench.shapes import Outcome, Stats
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.load.connecting import connect
from mcp_probe.workloads.load.peer import Peer, Target

FROM_OUTSIDE = "A server at a URL is seen from outside: what limits it is told of one that `--server` starts."

SLOW_MS = 20.0
"""A call shorter than this has no time in which another could be seen to wait for it."""

FEWEST = 4
"""Rounds that even an operation of many seconds gets."""

FANOUT = (1, 2, 5, 10, 20, 40)


async def compare(own: OwnServer, bench: Bench) -> Outcome:
    """Runs it all; rows and claims go to ``bench`` as they are found, the probe's reasons when the server has ended.

    Raises:
        LaunchError: the server does not start, or hangs.
        OptionError: a named tool does not exist, or fails.
    """
    reasons = Reasons()
    try:
        await _compared(Sheet(bench, reasons), own)
    finally:
        missing = FROM_OUTSIDE if own.target.url else reasons.missing if bench.has_findings else ""
        if missing:
            bench.note(missing)
    return bench.outcome()


async def _compared(sheet: Sheet, own: OwnServer) -> None:
    async with _served(own, sheet.bench, sheet.reasons) as peer:
        sheet.bench.ours = serving(own.target.url)
        main = await latencies(sheet, peer, own)
        if main is None:
            return
        for each in (pipelining, fan_out, beside):
            await each(sheet, peer, main)
        if not own.is_probed:
            await sweep(sheet, peer, main)
    if own.is_probed:
        await _swept_bare(sheet, own, main)
    await sessions(sheet, own.target, main)
    if own.over_http is not None:
        await transports(sheet, own.over_http, main)


@asynccontextmanager
async def _served(own: OwnServer, bench: Bench, reasons: Reasons) -> AsyncIterator[Peer]:
    """The server, under the probe where it can be; afterwards ``reasons`` are there, however it ended."""
    with tempfile.TemporaryDirectory(prefix="mcp-probe-own-") as folder:
        recording = Path(folder, "recording.jsonl")
        target = own.target.under_probe(recording) if own.is_probed else own.target
        bench.step("starting the server" if target.command else "connecting")
        try:
            async with connect(target, say=bench.step) as peer:
                yield peer
        finally:
            if own.is_probed:
                reasons.read(recording)


async def _swept_bare(sheet: Sheet, own: OwnServer, main: Operation) -> None:
    """The sweep of a server without the probe, then each of its levels once more under it, for the reasons.

    One after the other: two of a server may not be able to open the same file or port.
    """
    sheet.bench.step("starting the server without the probe")
    async with connect(own.target, say=sheet.bench.step) as peer:
        swept = await sweep(sheet, peer, main)
    if swept is not None:
        async with _served(own, sheet.bench, swept.reasons) as peer:
            await under_the_probe(swept, peer)


async def latencies(sheet: Sheet, peer: Peer, own: OwnServer) -> Operation | None:
    """002: every operation, one call after another; the operations take turns.

    Returns the one that everything else is measured with; ``None`` where none answers well.
    """
    offer = await offer_of(peer, own)
    for note in offer.notes:
        sheet.bench.note(note)
    usable = await _usable(sheet, peer, own, offer)
    sheet.alone = await _turns(sheet, peer, usable)
    sheet.ranked = sorted(usable, key=lambda operation: sheet.alone[operation.label].median)
    tools = [operation for operation in sheet.ranked if operation.order.method == "tools/call"]
    main = offer.main if offer.main in usable else next(iter((tools or sheet.ranked)[::-1]), None)
    _tools(sheet, offer, main)
    for operation in usable:
        sheet.row(
            "operations, one call after another",
            operation.label,
            "ms",
            sheet.alone[operation.label],
            "operations",
            operation=operation.order.operation,
            x=operation.label,
            series=own.target.transport,
            protocol="" if peer.modern else "handshake",
        )
    return main


def _tools(sheet: Sheet, offer: Offer, main: Operation | None) -> None:
    """Each tool: what it was called with, or why not, and the command that calls it."""
    for tool in offer.tools:
        label = tool.operation.label
        is_main = main is not None and label == main.label
        used = " The other comparisons are made with it." if is_main else ""
        used = " It failed." if tool.is_called and label not in sheet.alone else used
        note = f"{tool.reason}.{used} To call it: `{tool.command}`"
        sheet.row("tools", tool.name, "ms", sheet.alone.get(label), note=note)


async def _usable(sheet: Sheet, peer: Peer, own: OwnServer, offer: Offer) -> list[Operation]:
    """Those that answer well. Raises: OptionError for one that the user named."""
    named = {tool.operation.label for tool in offer.tools if tool.is_named}
    commands = {tool.operation.label: tool.command for tool in offer.tools}
    usable = []
    for operation in offer.operations:
        sheet.bench.step(f"first call of {operation.label}")
        reply = await answer(peer, operation.order)
        if reply.kind == "ok":
            usable.append(operation)
        elif operation.label in named:
            option = "--arguments" if operation.label == f"tool {own.tool}" else "--call"
            raise OptionError(f"{operation.label} fails ({reply.kind}): {reply.failure}. Correct its {option}.")
        else:
            better = f" Give it better arguments: `{commands[operation.label]}`" if operation.label in commands else ""
            sheet.bench.note(figures.sentence(f"{operation.label} fails and is left out: {reply.failure}") + better)
    return usable


async def _turns(sheet: Sheet, peer: Peer, usable: Sequence[Operation]) -> dict[str, Stats]:
    """Milliseconds of each by its label, taken in turns; one that takes long gets fewer of them."""
    rounds, patience_ms = sheet.bench.size(quick=20, full=200), sheet.bench.size(quick=4e3, full=4e4)
    taken: dict[str, list[float]] = {operation.label: [] for operation in usable}
    load = sheet.bench.load()
    with sheet.reasons.phase("operations"):
        for number in range(rounds):
            sheet.bench.step(f"every operation, {number + 1} of {rounds}")
            for operation in usable:
                mine = taken[operation.label]
                if number < FEWEST or sum(mine) < patience_ms:
                    mine.append((await answer(peer, operation.order)).service_ms)
    foreign = load.cores()
    return {label: describe(times, foreign_cores=foreign) for label, times in taken.items()}


async def pipelining(sheet: Sheet, peer: Peer, main: Operation) -> None:
    """000: the same calls one by one and all at once."""
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


async def fan_out(sheet: Sheet, peer: Peer, main: Operation) -> None:
    """001: N calls at once, and whether they are answered in waves."""
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
        table, phase = f"fan-out of {main.label}", f"fan-out {count}" if count > 1 else ""
        sheet.row(table, f"{count} at once", "ms", stats, phase, x=count, series=main.label)
    most = FANOUT[-1]
    for claim in fanned_out(walls[1], walls[most], most, waves_of(best[1][0], best[most][1]), contended=busy):
        sheet.claim(claim)


async def beside(sheet: Sheet, peer: Peer, main: Operation) -> None:
    """001 S5: a quick call sent while a slow one is being answered."""
    quick = sheet.ranked[0]
    slow, before = sheet.alone[main.label], sheet.alone[quick.label]
    if slow.median < SLOW_MS or quick is main:
        sheet.claim(not_held_up(main.label, slow.median, SLOW_MS))
        return
    waits: list[float] = []
    load = sheet.bench.load()
    with sheet.reasons.phase("beside"):
        for number in range(sheet.bench.size(quick=5, full=20)):
            sheet.bench.step(f"a quick call beside a slow one, {number + 1}")
            first = peer.post(main.order, stamped=True)
            await asyncio.sleep(0.2 * slow.median / 1e3)
            waits.append((await answer(peer, quick.order)).service_ms)
            await in_time(first, main.label)
    stats = describe(waits, first_apart=False, foreign_cores=load.cores())
    table, label = "a quick call beside a slow one", f"{quick.label} beside {main.label}"
    sheet.row(table, f"{quick.label} alone", "ms", before, x="alone", series=quick.label)
    operation = quick.order.operation
    sheet.row(table, label, "ms", stats, "beside", operation=operation, x="beside", series=quick.label)
    sheet.claim(held_up(before, stats, slow, main.label))


async def sessions(sheet: Sheet, target: Target, main: Operation) -> None:
    """004, #1918: a connection of one's own for each call, beside one that is kept."""
    stdio = target.transport == "stdio"
    rounds = sheet.bench.size(quick=2, full=5) if stdio else sheet.bench.size(quick=8, full=50)
    taken, load = [], sheet.bench.load()
    for turn in range(rounds):
        sheet.bench.step(f"a {'process' if stdio else 'session'} per call, {turn + 1} of {rounds}")
        began = now_ns()
        async with connect(target, say=sheet.bench.step) as peer:
            reply = await answer(peer, main.order)
            taken.append((now_ns() - began) / 1e6)
        all_well([reply], main)
    stats = describe(taken, foreign_cores=load.cores())
    table, shared = "session reuse", sheet.alone[main.label]
    label = "a server process for each call" if stdio else "a connection and session for each call"
    note = f"{figures.number(stats.median / shared.median)} times as long; start, handshake and one call"
    sheet.row(table, "one session for all calls", "ms", shared, x="shared", series=main.label)
    sheet.row(table, label, "ms", stats, x="per call", series=main.label, note=note)


async def transports(sheet: Sheet, over_http: Target, main: Operation) -> None:
    """002: the same calls over the other transport."""
    sheet.bench.step("the same over HTTP")
    rounds = sheet.bench.size(quick=20, full=200)
    async with connect(over_http, say=sheet.bench.step) as peer:
        sheet.bench.ours = serving(over_http.url)
        all_well([await answer(peer, main.order)], main)
        load = sheet.bench.load()
        taken = [(await answer(peer, main.order)).service_ms for _ in range(rounds)]
    stats = describe(taken, foreign_cores=load.cores())
    table, here = "stdio and HTTP", sheet.alone[main.label]
    sheet.row(table, f"{main.label}, stdio", "ms", here, x="stdio", series=main.label)
    sheet.row(table, f"{main.label}, HTTP", "ms", stats, x="HTTP", series=main.label)
    sheet.claim(between_transports(here, stats))
