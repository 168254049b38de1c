"""The load of ``mcp-probe demo``: three phases, each of which shows one thing.

Order and number of the calls are always the same; of a clock only the pauses inside a round depend.
Importing this module imports the ``mcp`` package.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from mcp_probe.workloads.client import Call, LoadSession


async def drive(session: LoadSession, *, scale: float = 1.0, show: Callable[[str], None] | None = None) -> None:
    """Puts the whole load on ``session``; ``show`` is told the name of each phase as it begins.

    ``scale`` multiplies the rounds of each phase (never below one); at 1.0 they take some 5 s.
    """
    for title, rounds, play in PHASES:
        if show is not None:
            show(title)
        for number in range(max(1, round(rounds * scale))):
            await play(session, number)


async def mixed_round(session: LoadSession, number: int) -> None:
    """Every tool but the blocking one, six calls in flight: the server on a quiet day."""
    lookups = _lookups(9, start=number)
    renders = [Call("render", {"page": number + n, "dpi": 60 + 10 * n}) for n in range(3)]
    slow = [Call("fetch", {"url": f"https://example.com/{number}"}), Call("score", {"words": 400_000})]
    calls = [slow[0], *lookups[:3], renders[0], slow[1], *lookups[3:6], *renders[1:], *lookups[6:]]
    await session.pipelined(calls, in_flight=6)


async def starving_round(session: LoadSession, number: int) -> None:
    """More renders at once than the SDK has threads for, and quick calls that need none.

    With up to 38 the stdio transport's reader and writer still find a thread of the 40 they share with the
    tools; from 39 on they queue behind them, and with them every answer, whatever its tool.
    """
    async with anyio.create_task_group() as group:
        renders = [Call("render", {"page": n, "dpi": 250 + n % 30}) for n in range(60)]
        group.start_soon(session.pipelined, renders)
        await anyio.sleep(0.06)
        group.start_soon(session.pipelined, _lookups(4, start=number))


async def blocking_round(session: LoadSession, number: int) -> None:
    """One call that holds the event loop, and who is then kept waiting: an await, a thread job, quick calls."""
    async with anyio.create_task_group() as group:
        group.start_soon(session.pipelined, [Call("fetch", {"url": f"https://example.com/{number}"})])
        await anyio.sleep(0.2)
        group.start_soon(session.pipelined, [Call("render", {"page": number, "dpi": 60})])
        await anyio.sleep(0.02)
        group.start_soon(session.pipelined, [Call("resize", {"image": f"photo-{number}", "width": 600})])
        await anyio.sleep(0.02)
        group.start_soon(session.pipelined, _lookups(6, start=number))


def _lookups(count: int, *, start: int) -> list[Call]:
    return [Call("lookup", {"item": f"item-{(start + n) % 50}"}) for n in range(count)]


PHASES: tuple[tuple[str, int, Callable[[LoadSession, int], Awaitable[None]]], ...] = (
    ("a mix of calls, six in flight", 5, mixed_round),
    ("60 calls at once for 40 threads", 2, starving_round),
    ("a call that blocks the event loop", 5, blocking_round),
)
"""What the phase is called, its rounds at scale 1, and one round of it."""
