"""Calls to a user's server: one alone, many at once, so many kept in flight; each bounded, none left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from statistics import median

from mcp_probe.clock import now_ns
from mcp_probe.errors import LaunchError
from mcp_probe.workloads.bench.own.knee import Level
from mcp_probe.workloads.bench.own.operations import Operation
from mcp_probe.workloads.load.peer import Peer
from mcp_probe.workloads.load.wire import Order, Reply

ANSWER_S = 60.0
"""For any one answer; a server that takes longer is said to hang."""

DRAIN_S = 4.0
"""What is unanswered so long after a level of the sweep is given up."""

_TICK_S = 0.02
"""Between two looks at how late this process's own timers are."""


async def answer(peer: Peer, order: Order) -> Reply:
    """One call, alone.

    Raises: LaunchError where the server has gone or does not answer in time.
    """
    reply = await in_time(peer.post(order, stamped=True), order.operation)
    if reply.kind == "transport error":
        raise LaunchError(f"{order.operation} got no answer: {await peer.last_words() or reply.failure}.")
    return reply


async def in_time(future: asyncio.Future[Reply], operation: str) -> Reply:
    """An answer that was asked for. Raises: LaunchError where it does not come."""
    await asyncio.wait((future,), timeout=ANSWER_S)
    if not future.done():
        future.cancel()
        raise LaunchError(f"{operation} was not answered within {ANSWER_S:g} s.")
    return future.result()


async def burst(peer: Peer, order: Order, count: int) -> tuple[list[Reply], float]:
    """So many at once: their replies, and milliseconds from the first sending to the last answer.

    Raises: LaunchError where one is not answered in time.
    """
    began = now_ns()
    futures = [peer.post(order, stamped=True) for _ in range(count)]
    await asyncio.wait(futures, timeout=ANSWER_S)
    late = [future for future in futures if not future.done()]
    for future in late:
        future.cancel()
    if late:
        raise LaunchError(
            f"{len(late)} of {count} calls of {order.operation} at once were not answered in {ANSWER_S:g} s."
        )
    replies = [future.result() for future in futures]
    return replies, (max(reply.answered_ns for reply in replies) - began) / 1e6


def all_well(replies: Sequence[Reply], operation: Operation) -> None:
    """Raises: LaunchError where one failed."""
    bad = [reply for reply in replies if reply.kind != "ok"]
    if bad:
        raise LaunchError(f"{len(bad)} of {len(replies)} calls of {operation.label} failed: {bad[0].failure}.")


async def hold(peer: Peer, order: Order, in_flight: int, span_s: float) -> Level:
    """Keeps so many in flight for ``span_s`` seconds; what is unanswered :data:`DRAIN_S` later is given up."""
    began = now_ns()
    burned = time.process_time_ns()
    end = began + round(span_s * 1e9)
    replies: list[Reply] = []
    cancelled = 0
    late_ms: list[float] = []

    async def client() -> None:
        nonlocal cancelled
        while (left := end - now_ns()) > 0 and not peer.gone():
            future = peer.post(order, stamped=True)
            await asyncio.wait((future,), timeout=left / 1e9 + DRAIN_S)
            if not future.done():
                future.cancel()
                cancelled += 1
                return
            replies.append(future.result())

    async def ticks() -> None:
        while (now := now_ns()) < end:
            await asyncio.sleep(_TICK_S)
            late_ms.append((now_ns() - now) / 1e6 - 1e3 * _TICK_S)

    clients: list[Awaitable[None]] = [client() for _ in range(in_flight)]
    ticking = asyncio.ensure_future(ticks())
    try:
        await asyncio.gather(*clients)
    finally:
        ticking.cancel()
    good = [reply for reply in replies if reply.kind == "ok"]
    last = max((reply.answered_ns for reply in replies), default=end)
    return Level(
        in_flight=in_flight,
        span_s=(last - began) / 1e9,
        times_ms=tuple(reply.service_ms for reply in good),
        ends_ms=tuple((reply.answered_ns - began) / 1e6 for reply in good if reply.answered_ns <= end),
        failed=len(replies) - len(good),
        cancelled=cancelled,
        client_cores=(time.process_time_ns() - burned) / max(1, last - began),
        client_late_ms=median(late_ms) if late_ms else 0.0,
    )
