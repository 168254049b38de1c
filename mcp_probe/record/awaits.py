"""What the awaiting of a request was for: the stretches of its budget against what hooks and looks say of them.

Durations are the budget's own. Hooks and looks only *name* instants that are awaiting already; what none of them
names stays without a name. Invariants: an instant gets at most one name, so the awaits of a request never add up to
more than its awaiting; the parts of an await's holders never add up to more than the await.

Where several units of a request await at once, the name is that of the await that ends last: it is what kept the
request waiting. That a task waits for other tasks of the same request names only what nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mcp_probe.model import Await, HolderPart
from mcp_probe.record.raw import AwaitLook, AwaitMark, Claim, StepMark

SHORT_AWAIT_NS = 5_000_000
"""Shorter stretches are summed by what they were for, without holders (waiting.md section 1)."""

MAX_AWAITS_KEPT = 64
"""Stretches and sums that a record has, the longest ones; the others stay without a name."""

Looked = tuple[int, int, AwaitLook]
"""(from_ns, to_ns, look): a suspension that somebody looked at."""

_Span = tuple[int, int]


def looked_at(looks: Sequence[AwaitLook], marks: Iterable[StepMark]) -> list[Looked]:
    """Those suspensions that ``marks`` end, each from when the task was suspended until it was ready."""
    open_ = {(look[0], look[1]): look for look in looks}
    return [
        (suspended, min(max(ready, suspended), began), look)
        for unit, suspended, _, ready, began, _, _ in marks
        if unit and (look := open_.get((unit, suspended))) is not None
    ]


def still_suspended(looks: Sequence[AwaitLook], units: dict[int, int], end: int) -> list[Looked]:
    """Those that have not ended by ``end``."""
    return [(look[1], end, look) for look in looks if units.get(look[0]) == look[1]]


def name_awaits(
    awaiting: Sequence[Claim], marks: Sequence[AwaitMark], looked: Sequence[Looked], end: int
) -> tuple[Await, ...]:
    """The awaits of one request, in the order of time, sums of short ones last.

    Args:
        awaiting: its stretches of awaiting, in order and without overlap.
        marks: what hooks saw. A mark without an end lasts until ``end``.
        looked: what looks saw.
        end: of the handling window.
    """
    others = [(since, end if until is None else until, *what) for since, until, *what in marks]
    others += [(since, until, look[2], look[3], ()) for since, until, look in looked if not look[4]]
    own_tasks = [(since, until, look[2], look[3], ()) for since, until, look in looked if look[4]]
    claims = [*sorted(others, key=_last_first), *sorted(own_tasks, key=_last_first)]
    free: list[_Span] = [(a, b) for a, b, _ in awaiting]
    single: list[Await] = []
    short: dict[tuple[str, str, str | None, str], Await] = {}
    for since, until, thing, where, holders in claims:
        if not free:
            break
        taken, free = _take(free, since, until)
        ns = sum(b - a for a, b in taken)
        if not ns:
            continue
        found = Await(
            kind=thing.kind,
            object=thing.name,
            where=where,
            from_ns=taken[0][0],
            to_ns=taken[-1][1],
            ns=ns,
            tag=thing.tag,
            holders=_held(holders, taken),
        )
        if ns >= SHORT_AWAIT_NS:
            single.append(found)
        else:
            _sum_up(short, found)
    single.sort(key=lambda one: (-one.ns, one.from_ns))
    kept = single[:MAX_AWAITS_KEPT]
    for one in single[MAX_AWAITS_KEPT:]:
        _sum_up(short, one)
    sums = sorted(short.values(), key=lambda one: -one.ns)[:MAX_AWAITS_KEPT]
    return (*sorted(kept, key=lambda one: one.from_ns), *sums)


def _last_first(claim: Any) -> tuple[int, int, str]:
    return -claim[1], claim[0], claim[2].name


def _take(free: list[_Span], since: int, until: int) -> tuple[list[_Span], list[_Span]]:
    """(what of [since, until) is free, what is still free afterwards)."""
    taken: list[_Span] = []
    left: list[_Span] = []
    for a, b in free:
        first, last = max(a, since), min(b, until)
        if first >= last:
            left.append((a, b))
            continue
        taken.append((first, last))
        if a < first:
            left.append((a, first))
        if last < b:
            left.append((last, b))
    return taken, left


def _held(holders: Sequence[HolderPart], taken: Sequence[_Span]) -> tuple[HolderPart, ...]:
    """The parts of ``holders`` that lie in ``taken``."""
    return tuple(
        HolderPart(part.request, part.operation, part.where, max(part.from_ns, a), min(part.to_ns, b), part.among)
        for part in holders
        for a, b in taken
        if max(part.from_ns, a) < min(part.to_ns, b)
    )


def _sum_up(sums: dict[tuple[str, str, str | None, str], Await], one: Await) -> None:
    key = (one.kind, one.object, one.where, one.tag)
    known = sums.get(key)
    sums[key] = Await(
        kind=one.kind,
        object=one.object,
        where=one.where,
        from_ns=one.from_ns if known is None else min(known.from_ns, one.from_ns),
        to_ns=one.to_ns if known is None else max(known.to_ns, one.to_ns),
        ns=one.ns + (known.ns if known else 0),
        tag=one.tag,
        count=one.count + (known.count if known else 0),
    )
