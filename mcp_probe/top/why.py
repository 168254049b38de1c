"""Who holds up whom at this instant: pure functions of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mcp_probe.now import Holder, RequestNow, Snapshot, WaitNow

MOST_LINKS = 8


@dataclass(frozen=True, slots=True)
class HeldUp:
    """One holder of one thing, and all who wait for it."""

    holder: Holder
    kind: str
    object: str
    waiters: int
    longest_ms: float | None
    first: int  # the waiter that waits longest


def held_up(snapshot: Snapshot) -> list[HeldUp]:
    """Holders that requests wait for, most waiters first; those that nobody knows are left out."""
    groups: dict[tuple[str, str, int | None, str, str | None], list[tuple[RequestNow, WaitNow, Holder]]] = {}
    for request in snapshot.requests:
        for wait in request.waits:
            for holder in wait.holders:
                where = None if wait.kind == "loop" else holder.where  # a step's line changes while it runs
                key = (wait.kind, wait.object, holder.request, holder.operation, where)
                groups.setdefault(key, []).append((request, wait, holder))
    rows = []
    for (kind, thing, *_), members in groups.items():
        times = [(wait.for_ms if wait.for_ms is not None else request.state_ms) for request, wait, _ in members]
        oldest = max(members, key=lambda member: member[0].state_ms or 0.0)
        longest = max((ms for ms in times if ms is not None), default=None)
        rows.append(HeldUp(oldest[2], kind, thing, len(members), longest, oldest[0].id))
    return sorted(rows, key=lambda row: (-row.waiters, -(row.longest_ms or 0.0)))


def by_id(snapshot: Snapshot) -> dict[int, RequestNow]:
    """Its requests."""
    return {request.id: request for request in snapshot.requests}


def links(request: RequestNow, known: Mapping[int, RequestNow]) -> tuple[list[RequestNow], bool]:
    """(``request``, who holds what it waits for, who holds what that waits for …; whether that is a circle)."""
    chain = [request]
    while len(chain) < MOST_LINKS:
        after = _holder_of(chain[-1], known)
        if after is None:
            return chain, False
        if after in chain:
            return [*chain, after], True
        chain.append(after)
    return chain, False


def _holder_of(request: RequestNow, known: Mapping[int, RequestNow]) -> RequestNow | None:
    for wait in request.waits:
        for holder in wait.holders:
            if holder.request is not None and holder.request in known:
                return known[holder.request]
    return None


def circles(snapshot: Snapshot) -> list[list[RequestNow]]:
    """Requests of which each waits for the next, and the last for the first: none of them will ever go on."""
    known = by_id(snapshot)
    found: dict[frozenset[int], list[RequestNow]] = {}
    for request in snapshot.requests:
        chain, is_circle = links(request, known)
        if is_circle:
            circle = chain[chain.index(chain[-1]) :]
            found.setdefault(frozenset(one.id for one in circle), circle)
    return list(found.values())
