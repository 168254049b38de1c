"""``result-size``: what results of 1 kB to 100 MB cost the server, and whom they keep waiting.

Over stdio a client that only decodes JSON makes the calls: the SDK's own reads a line in time that grows with its
square. The server counts its memory and its loop's longest pause itself, beside the probe. Over HTTP a second
connection makes quick calls all the while.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import anyio

from mcp_probe.aggregate.seen import Seen
from mcp_probe.workloads.bench.context import Bench, Interleaved, Timed
from mcp_probe.workloads.bench.figures import number
from mcp_probe.workloads.bench.serving import ProfiledServer
from mcp_probe.workloads.bench.shapes import Asked, Claim, Measured, Outcome
from mcp_probe.workloads.bench.statistics import counted, describe, ratio_of
from mcp_probe.workloads.raw_http import RawSession
from mcp_probe.workloads.scenarios.own_claims import exactly, judged
from mcp_probe.workloads.scenarios.providers import ThreadedProvider, threaded_provider
from mcp_probe.workloads.scenarios.tables import Table

SERVER = "mcp_probe.workloads.servers.results"
TABLE, WAITING = "now results over stdio", "now results, who waits (streamable HTTP, JSON)"
KB, MB = 1_000, 1_000_000
PIECE_BYTES = 64 * KB
BLOCK, STRUCTURED, PIECES = "one block", "with an output schema", "in pieces of 64 kB"
LONGEST = "the longest of the quick calls that were made meanwhile, round by round"
PAUSE = "the longest, counted by a task of the server's that wants a turn every millisecond"
ENVELOPE_BYTES = 8
"""What the envelope of an answer may differ by: the digits of its id."""


Grown = list[int]
"""Bytes that the process grew by while a result was sent, as the server itself counted, call by call."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A large call beside quick ones, round by round: the longest quick one, and how long the loop was held."""

    label: str
    size: int
    quick_ms: list[float]
    held_ms: list[float]
    contended: bool


async def run(bench: Bench) -> Outcome:
    """Sizes over stdio, then who waits, over HTTP."""
    sizes = bench.size([KB, 100 * KB, MB, 10 * MB], [KB, 100 * KB, MB, 10 * MB, 100 * MB])
    bench.step("results over stdio")
    grown: dict[int, Grown] = {}
    async with threaded_provider(SERVER) as provider:
        for size in sizes:
            bench.step(f"results of {_told(size)}")
            grown[size] = []
            _time_rows(bench, provider, size, await _one_size(bench, provider, size, grown[size]))
    _stdio_rows(bench, provider, sizes, grown)
    beside, server = await _quick_beside(bench, [size for size in sizes if size >= MB])
    _bytes_claim(bench, provider, sizes)
    _memory_claim(bench, provider, sizes[-1], grown[sizes[-1]])
    _held_claims(bench, beside, server)
    return bench.outcome()


# --- over stdio -----------------------------------------------------------------------------------


async def _one_size(bench: Bench, provider: ThreadedProvider, size: int, grown: Grown) -> Interleaved:
    ways: dict[str, Timed] = {
        BLOCK: partial(_asked, provider, "text", size),
        STRUCTURED: partial(_asked, provider, "structured", size),
    }
    if size > PIECE_BYTES:
        ways[PIECES] = partial(_in_pieces, provider, size)
    # First, while no memory of an earlier call of this size can be used again.
    for label, tool in ((BLOCK, "text"), (STRUCTURED, "structured")):
        with provider.phase(f"{label} {size}"):
            for _ in range(3):
                before = await _watched(provider)
                await _asked(provider, tool, size)
                after = await _watched(provider)
                if label == BLOCK and before["resident_bytes"] is not None:
                    grown.append(max(0, after["peak_bytes"] - before["resident_bytes"]))
    if size > PIECE_BYTES:
        with provider.phase(f"{PIECES} {size}"):
            await _in_pieces(provider, size)
    return await bench.interleaved(ways, bench.size(3, 8 if size < 100 * MB else 4), twin=BLOCK)


async def _asked(provider: ThreadedProvider, tool: str, size: int) -> None:
    await anyio.to_thread.run_sync(provider.client.call, tool, {"size_bytes": size})


async def _in_pieces(provider: ThreadedProvider, size: int) -> None:
    """One after another, as a client reads on."""
    for begun in range(0, size, PIECE_BYTES):
        await _asked(provider, "text", min(PIECE_BYTES, size - begun))


async def _watched(provider: ThreadedProvider) -> dict[str, Any]:
    result = await anyio.to_thread.run_sync(provider.client.call, "watched", {})
    found: dict[str, Any] = json.loads(result["content"][0]["text"])
    return found


def _time_rows(bench: Bench, provider: ProfiledServer, size: int, taken: Interleaved) -> None:
    table = Table(bench, TABLE, metric="time", x=size / MB, floor=taken.floor)
    for label, stats in taken.stats.items():
        tool = "structured" if label == STRUCTURED else "text"
        why = provider.later(f"{label} {size}", tool)
        table.put(f"{_told(size)}, {label}", "ms", stats, series=label, why=why)


def _stdio_rows(bench: Bench, provider: ProfiledServer, sizes: list[int], grown: dict[int, Grown]) -> None:
    """What only the ended server says."""
    for size in sizes:
        table = Table(bench, TABLE, x=size / MB)
        for label in (BLOCK, STRUCTURED):
            seen = provider.seen(f"{label} {size}").only("text" if label == BLOCK else "structured")
            encoded = [each.encode_ns / 1e6 for each in seen.requests if each.encode_ns is not None]
            note = "the quickest of its answers, as the probe timed it" if encoded else "the probe did not see it"
            own = table.sub(metric="encoding", series=label, note=note)
            own.put(f"{_told(size)}, {label}: encoding", "ms", min(encoded, default=None))
        if grown[size] and size >= 10 * MB:  # below that it is noise of the allocator
            note = "from before a call to its peak, by the kernel; the most of all rounds"
            own = table.sub(metric="memory", series="the process, as the kernel counts", note=note)
            own.put(f"{_told(size)}: the process grew", "MB", max(grown[size]) / MB)
            note = "the tool's own; the copies made on the way out are the transport's, and nobody's request"
            own = table.sub(metric="memory", series="the request, as the probe counts", note=note)
            requested = _requested(provider.seen(f"{BLOCK} {size}")) / MB
            own.put(f"{_told(size)}: its request allocated", "MB", requested)


def _requested(seen: Seen) -> float:
    known = [each.memory.requested for each in seen.only("text").requests if each.memory is not None]
    return float(median([each for each in known if each is not None] or [0]))


def _bytes_claim(bench: Bench, provider: ProfiledServer, sizes: list[int]) -> None:
    over = {}
    for size in sizes:
        counted = [each.response_bytes for each in provider.seen(f"{BLOCK} {size}").only("text").requests]
        over[size] = [None if each is None else each - size for each in counted]
    found = [each for values in over.values() for each in values]
    known = [each for each in found if each is not None]
    exact = len(known) == len(found) and bool(known) and max(known) - min(known) <= ENVELOPE_BYTES
    least, most = (min(known), max(known)) if known else (0, 0)
    exactly(
        bench,
        "now-1",
        "the probe counts a result to the byte, whatever its size",
        fine=exact,
        said=f"{least}-{most} bytes of envelope around results of {_told(sizes[0])} to {_told(sizes[-1])}",
        how=f"the same envelope around each, but for {ENVELOPE_BYTES} bytes of its id",
        why=f"The largest answer was a line of {sizes[-1] + most:,} bytes, its end not counted.",
    )


def _memory_claim(bench: Bench, provider: ProfiledServer, size: int, grown: Grown) -> None:
    handler = _requested(provider.seen(f"{BLOCK} {size}")) / size
    times = max(grown, default=0) / size
    bench.claim(
        Claim(
            "now-2",
            "while a result is sent, the process holds several copies of it",
            "",
            (Asked("at least", (2.0,), "not"),),
            "growth of the process over the result, of the kernel's count: the text, and the text encoded",
            f"The tool itself allocated {handler:.2f} times the result; the rest are copies of it on its way: encoded, "
            "with its line's end, and as the bytes that are written.",
        ),
        [counted(times)] if times else [],
        said=f"{times:.1f} times the result of {_told(size)}" if times else "no figure",
        untold="This system does not count a peak anew.",
    )


# --- who waits ------------------------------------------------------------------------------------


async def _quick_beside(bench: Bench, sizes: list[int]) -> tuple[list[Beside], ProfiledServer]:
    async with bench.server(SERVER, "--stateless", transport="json", connect=False) as server:
        assert server.url is not None
        with RawSession(server.url) as large, RawSession(server.url) as quick:
            bench.step("quick calls beside large ones")
            await anyio.to_thread.run_sync(_warm_up, large, quick)
            alone = await bench.timed(lambda: anyio.to_thread.run_sync(quick.call, "quick"), bench.size(20, 200))
            table = Table(bench, WAITING, metric="quick calls")
            table.put("a quick call, alone", "ms", alone, note="nothing else is called")
            found = []
            for size in sizes:
                calls: dict[str, Callable[[], object]] = {
                    BLOCK: partial(large.call, "text", size_bytes=size),
                    PIECES: partial(_pieces, large, size),
                }
                for label, call in calls.items():
                    with server.phase(f"{label} {size}"):
                        found.append(await _one_beside(bench, large, quick, f"{_told(size)} {label}", size, call))
                    _beside_rows(table, server, label, found[-1])
    return found, server


def _warm_up(*sessions: RawSession) -> None:
    for session in sessions:
        session.call("watched").text()
        session.call("quick").text()


def _pieces(session: RawSession, size: int) -> None:
    for begun in range(0, size, PIECE_BYTES):
        session.call("text", size_bytes=min(PIECE_BYTES, size - begun))


async def _one_beside(
    bench: Bench, large: RawSession, quick: RawSession, label: str, size: int, call: Callable[[], object]
) -> Beside:
    async def rounds() -> list[tuple[float, float]]:
        return [await anyio.to_thread.run_sync(_round, large, quick, call) for _ in range(bench.size(3, 6))]

    taken, _, contended = await bench.quiet(rounds)
    return Beside(label, size, [longest for longest, _ in taken], [held for _, held in taken], contended)


def _round(large: RawSession, quick: RawSession, call: Callable[[], object]) -> tuple[float, float]:
    """The longest of the quick calls that were made as long as ``call`` lasted, and how long the loop was held."""
    large.call("watched")
    taken: list[float] = []
    over, begun = threading.Event(), threading.Event()

    def keep_calling() -> None:
        while not over.is_set():
            taken.append(quick.call("quick").ms)
            begun.set()

    caller = threading.Thread(target=keep_calling)
    caller.start()
    try:
        begun.wait(60)
        call()
    finally:
        over.set()
        caller.join()
    return max(taken), float(json.loads(large.call("watched").text())["held_ms"])


def _beside_rows(table: Table, server: ProfiledServer, label: str, found: Beside) -> None:
    own = table.sub(x=found.size / MB, series=label, arm=found.label, contended=found.contended)
    why = server.later(f"{label} {found.size}", "quick")
    own.put(f"beside {found.label}: quick", "ms", describe(found.quick_ms), why=why, note=LONGEST)
    own.put(f"{found.label}: loop's pause", "ms", describe(found.held_ms), metric="pause", note=PAUSE)


def _held_claims(bench: Bench, beside: list[Beside], server: ProfiledServer) -> None:
    block, pieces = beside[-2], beside[-1]
    held = max(block.held_ms)
    seen = server.seen(f"{BLOCK} {block.size}")
    longest = max((step.end_ns - step.start_ns for step in seen.steps), default=0) / 1e6
    why = server.why(f"{BLOCK} {block.size}")
    judged(
        bench,
        "now-3",
        "the probe's longest step is the pause that the server itself saw of its event loop",
        Asked("same", load="blurs"),
        Measured(longest / held, floor=1.0, contended=block.contended),
        said=f"{number(longest)} ms by the probe, {number(held)} ms by a task that wants a turn every ms",
        how="the longest of all rounds, over the server's own",
        why=why,
    )
    whole, apart = describe(block.quick_ms, contended=block.contended), describe(pieces.quick_ms)
    judged(
        bench,
        "now-4",
        "every other call waits while a large result is encoded, and less if it is asked for in pieces",
        Asked("more"),
        ratio_of(whole, apart),
        said=f"a quick call took {number(whole.median)} ms beside {_told(block.size)} at once, "
        f"{number(apart.median)} ms beside the same in pieces; the loop paused up to {number(held)} and "
        f"{number(max(pieces.held_ms))} ms",
        how="the longest quick call of a round, at once over in pieces",
        why=why,
    )


def _told(size: int) -> str:
    return f"{size // MB} MB" if size >= MB else f"{size // KB} kB"
