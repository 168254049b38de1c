"""What calls awaited while they held a lock: from the timelines of a full recording. Pure.

A lock that is taken and given back in one step was held over no await. Else the task was suspended in between, however
short, and everybody else who wanted the lock would have waited for what it awaited.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcp_probe.model import Await, LockHold, RequestRecord, StepRun, Timeline


@dataclass(frozen=True, slots=True)
class LockedAwait:
    """A call that was suspended while it held a lock.

    Attributes:
        lock: As in reports: ``asyncio.Lock shop.GATE``.
        where: ``file:line`` at which it took it; ``None``: not known.
        awaited: What it awaited meanwhile, as far as something named it: looks miss what is shorter than some ms.
        times: How often it was suspended.
        held_ms: How long it had the lock.
    """

    operation: str
    lock: str
    where: str | None
    awaited: tuple[str, ...]
    times: int
    held_ms: float

    def __str__(self) -> str:
        what = " and ".join(self.awaited) or "something too short to be named"
        at = "" if self.where is None else f" (taken at {short_place(self.where)})"
        return f"`{self.operation}` awaited {what} while it held {self.lock}{at}"


def short_place(where: str) -> str:
    """``file:line`` with the file's own name."""
    return os.path.basename(where)


def locked_awaits(record: RequestRecord, timeline: Timeline) -> Iterator[LockedAwait]:
    """Each lock that the call held while it was suspended."""
    for hold in timeline.holds:
        suspensions = suspended_within(hold, timeline.steps)
        if not suspensions or _is_inner(hold, timeline.holds):
            continue
        yield LockedAwait(
            operation=record.name or record.method,
            lock=hold.object,
            where=hold.where,
            awaited=tuple(dict.fromkeys(_names(hold, suspensions, timeline.awaits))),
            times=len(suspensions),
            held_ms=(hold.to_ns - hold.from_ns) / 1e6,
        )


def _is_inner(hold: LockHold, holds: Sequence[LockHold]) -> bool:
    """Whether it is trio's lock inside one of anyio's, which is the one that the user knows."""
    return hold.object.startswith("trio.") and any(
        other.object.startswith("anyio.")
        and other.where == hold.where
        and max(other.from_ns, hold.from_ns) < min(other.to_ns, hold.to_ns)
        for other in holds
    )


def suspended_within(hold: LockHold, steps: Sequence[StepRun]) -> list[tuple[int, int]]:
    """(from_ns, to_ns) in which the task that gave ``hold`` back was suspended, from its getting the lock on."""
    last = next((step for step in steps if step.start_ns <= hold.to_ns <= step.end_ns), None)
    if last is None:
        return []
    own = sorted((step for step in steps if step.task == last.task), key=lambda step: step.start_ns)
    # The call that gets the lock returns within a step, or the step that it returned in was lost.
    during = [step for step in own if step.end_ns >= hold.from_ns and step.start_ns <= last.start_ns]
    return [(step.suspended_ns, step.start_ns) for step in during[1:]]


def _names(hold: LockHold, suspensions: Sequence[tuple[int, int]], awaits: Sequence[Await]) -> Iterator[str]:
    for one in awaits:
        is_own = one.kind == hold.kind and one.object == hold.object
        if is_own or one.stage == "busy":
            continue
        if any(max(one.from_ns, a) < min(one.to_ns, b) for a, b in suspensions):
            at = "" if one.where is None else f" at {short_place(one.where)}"
            yield f"{one.object if one.object != one.kind else one.kind}{at}"
