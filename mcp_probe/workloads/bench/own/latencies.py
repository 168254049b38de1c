"""One call after another: every operation, and a quick one beside a slow one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_probe.errors import OptionError
from mcp_probe.workloads.bench.figures import sentence
from mcp_probe.workloads.bench.own.calls import answer, in_time
from mcp_probe.workloads.bench.own.claims import held_up, not_held_up
from mcp_probe.workloads.bench.own.operations import Offer, Operation, OwnServer
from mcp_probe.workloads.bench.own.sheet import Sheet
from mcp_probe.workloads.bench.statistics import describe
from mcp_probe.workloads.load.peer import Peer

SLOW_MS = 20.0
"""A call shorter than this has no time in which another could be seen to wait for it."""

FEWEST = 4
"""Rounds that even an operation of many seconds gets."""


async def latencies(sheet: Sheet, peer: Peer, own: OwnServer, offer: Offer) -> None:
    """002: every operation, one call after another; the operations take turns."""
    usable = await _usable(sheet, peer, own, offer)
    taken = await _turns(sheet, peer, usable)
    sheet.alone.update((label, describe(times, foreign_cores=taken.foreign)) for label, times in taken.ms.items())
    ranked = sorted(usable, key=lambda operation: sheet.alone[operation.label].median)
    tools = [operation for operation in ranked if operation.order.method == "tools/call"]
    sheet.quickest = ranked[0] if ranked else None
    sheet.main = offer.main if offer.main in usable else next(iter((tools or ranked)[::-1]), None)
    _tools(sheet, offer)
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


def _tools(sheet: Sheet, offer: Offer) -> None:
    """Each tool: what it was called with, or why not, and the command that calls it."""
    for tool in offer.tools:
        label = tool.operation.label
        is_main = sheet.main is not None and label == sheet.main.label
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
            sheet.bench.note(sentence(f"{operation.label} fails and is left out: {reply.failure}") + better)
    return usable


@dataclass(frozen=True, slots=True)
class _Taken:
    ms: dict[str, list[float]]
    foreign: float | None  # cores that others used


async def _turns(sheet: Sheet, peer: Peer, usable: Sequence[Operation]) -> _Taken:
    """The times of each, in turns; one that takes long gets fewer of them."""
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
    return _Taken(taken, load.cores())


async def beside(sheet: Sheet, peer: Peer) -> None:
    """001 S5: a quick call sent while a slow one is being answered."""
    main, quick = sheet.main, sheet.quickest
    if main is None or quick is None:
        return
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
            await in_time(first, main)
    stats = describe(waits, first_apart=False, foreign_cores=load.cores())
    table = "a quick call beside a slow one"
    sheet.row(table, f"{quick.label} alone", "ms", before, x="alone", series=quick.label)
    sheet.row(
        table,
        f"{quick.label} beside {main.label}",
        "ms",
        stats,
        "beside",
        operation=quick.order.operation,
        x="beside",
        series=quick.label,
    )
    sheet.claim(held_up(before, stats, slow, main.label))
