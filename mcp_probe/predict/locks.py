"""Locks, semaphores and connection pools: who held which from where to where in its own work.

A recording says who held one only while somebody else waited for it. So how calls of an operation take and give back
is learned from those of which it is known, and taken to be the same for its other calls: the same code.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mcp_probe.model import Await, RequestRecord, Timeline
from mcp_probe.predict.tasks import NEAR_NS, Draft, Tasks
from mcp_probe.predict.workload import DELAY, HOLD, RELEASE, Resource

KINDS = frozenset({"lock", "semaphore", "limiter", "connection-pool"})
_MOSTLY = 0.5
_UNKNOWN_SHARE = 0.3


@dataclass(slots=True)
class Shared:
    """One lock, semaphore or pool of connections."""

    object: str
    kind: str
    limit: int
    held: dict[int, list[list[int]]] = field(default_factory=lambda: defaultdict(list))  # request -> [from, to]
    certain: set[tuple[int, int]] = field(default_factory=set)  # (request, to) at which it certainly gave it back


def shared_of(timelines: Iterable[Timeline], is_job: Mapping[int, Sequence[tuple[int, int]]]) -> list[Shared]:
    """What requests waited for because all of its places were taken, by others that are known."""
    waits: dict[str, list[Await]] = defaultdict(list)
    for timeline in timelines:
        for one in timeline.awaits:
            if one.kind in KINDS and one.count == 1 and not _of_job(one, is_job.get(timeline.request, ())):
                waits[one.object].append(one)
    found = []
    for object, some in waits.items():
        limit = max((one.limit or 0 for one in some), default=0)
        limit = limit or (
            1 if some[0].kind == "lock" else max((p.among for one in some for p in one.holders), default=0)
        )
        if limit and _was_full(some, limit) and _is_known(some):
            found.append(_shared(object, some, limit))
    return found


def _of_job(one: Await, jobs: Sequence[tuple[int, int]]) -> bool:
    """A limiter that a job waited for is a pool of threads, and told as such."""
    return one.kind == "limiter" and any(submit - NEAR_NS <= one.from_ns <= start for submit, start in jobs)


def _was_full(some: Sequence[Await], limit: int) -> bool:
    return any(part.among >= limit and part.request for one in some for part in one.holders)


def _is_known(some: Sequence[Await]) -> bool:
    unknown = whole = 0
    for one in some:
        for part in one.holders:
            whole += part.to_ns - part.from_ns
            if not part.request and part is not one.holders[-1]:
                unknown += part.to_ns - part.from_ns
    return unknown <= _UNKNOWN_SHARE * whole


def _shared(object: str, some: Sequence[Await], limit: int) -> Shared:
    shared = Shared(object, some[0].kind, limit)
    parts = defaultdict(list)
    for one in some:
        goes_on = {(part.request, part.from_ns) for part in one.holders}
        for part in one.holders:
            if part.request:
                parts[part.request].append((part.from_ns, part.to_ns))
                is_over = (part.request, part.to_ns) not in goes_on  # a part ends with each change among the holders
                if is_over and (part.to_ns < one.to_ns - NEAR_NS or limit == 1):
                    shared.certain.add((part.request, part.to_ns))
    for request, spans in parts.items():
        held = shared.held[request]
        for start, end in sorted(spans):
            # Between two stretches without a sure end nobody waited, and so nobody saw that it went on holding.
            if held and (start < held[-1][1] or (request, held[-1][1]) not in shared.certain):
                held[-1][1] = max(held[-1][1], end)
            else:
                held.append([start, end])
    return shared


@dataclass(slots=True)
class _Turn:
    """One taking of a resource by one call. Numbers of steps do not count steps that only follow a wait for it."""

    unit: int
    taken: int | None  # at the end of this step
    given: int | None
    is_waited: bool
    wanted_ns: int
    since_ns: int
    until_ns: int | None
    is_seen: bool = False  # somebody saw it hold


def hold(shared: Sequence[Shared], first: int, every: Sequence[Tasks]) -> list[Resource]:
    """Puts takings and givings into ``every``; resources are numbered from ``first``."""
    for number, one in enumerate(shared, first):
        _hold_one(one, number, every)
    return [
        Resource(one.object, "lock" if one.limit == 1 and one.kind == "lock" else "places", one.limit) for one in shared
    ]


def _hold_one(shared: Shared, number: int, every: Sequence[Tasks]) -> None:
    turns = {tasks.record.id: _turns(shared, number, tasks) for tasks in every}
    habits: dict[tuple[str, int], Counter[tuple[int, int, int]]] = defaultdict(Counter)
    calls: Counter[str] = Counter(_name(tasks.record) for tasks in every)
    takers: Counter[str] = Counter()
    for tasks in every:
        name = _name(tasks.record)
        takers[name] += bool(turns[tasks.record.id])
        for nth, turn in enumerate(turns[tasks.record.id]):
            if turn.taken is not None and turn.given is not None:
                habits[name, nth][turn.unit, turn.taken, turn.given] += 1
    for tasks in every:
        name = _name(tasks.record)
        own = turns[tasks.record.id]
        if not own and (takers[name] < _MOSTLY * calls[name] or not habits[name, 0]):
            continue
        usual: list[tuple[int, int, int]] = []
        while habits[name, len(usual)] and len(usual) < 64:
            usual.append(habits[name, len(usual)].most_common(1)[0][0])
        if not own:
            count = round(sum(len(turns[t.record.id]) for t in every if _name(t.record) == name) / max(1, takers[name]))
            own = [_Turn(unit, taken, given, False, 0, 0, None) for unit, taken, given in usual[:count]]
        _place(tasks, own, usual, number)
        for unit in tasks.units:
            _balance(unit, number)


def _name(record: RequestRecord) -> str:
    return record.name or record.method


def _turns(shared: Shared, number: int, tasks: Tasks) -> list[_Turn]:
    held = list(shared.held.get(tasks.record.id, ()))
    found: list[_Turn] = []
    for at, unit in enumerate(tasks.units):
        waits = 0
        for index, step in enumerate(unit):
            if step.after == HOLD and step.arg == number:
                waits += 1
                wanted = unit[index - 1].end_ns if index else step.ready_ns
                found.append(_Turn(at, index - waits, None, True, wanted - NEAR_NS, step.ready_ns, None))
    for start, end in held:
        before = [turn for turn in found if turn.is_waited and turn.wanted_ns <= start]
        last = max(before, key=lambda turn: turn.wanted_ns, default=None)
        until = end if (tasks.record.id, end) in shared.certain else None
        if last is not None and not last.is_seen:
            last.is_seen, last.until_ns = True, until
        else:
            found.append(_Turn(0, None, None, False, start, start, until))
    for turn in found:
        _place_end(turn, number, tasks)
    return sorted(found, key=lambda turn: turn.since_ns)


def _numbered(unit: Sequence[Draft], number: int) -> list[int]:
    """The number of each step of ``unit``, as turns count them."""
    waits, found = 0, []
    for index, step in enumerate(unit):
        waits += step.after == HOLD and step.arg == number
        found.append(index - waits)
    return found


def _place_end(turn: _Turn, number: int, tasks: Tasks) -> None:
    """In which step it gave it back; of one that did not wait also, at the latest, in which it took it."""
    for at, unit in enumerate(tasks.units):
        numbers = _numbered(unit, number)
        starts = [step.start_ns for step in unit]
        if turn.until_ns is not None:
            index = bisect_left(starts, turn.until_ns) - 1
            if index >= 0 and turn.until_ns <= unit[index].end_ns + NEAR_NS and (not turn.is_waited or turn.unit == at):
                turn.given = numbers[index]
                if not turn.is_waited:
                    turn.unit = at
                    before = bisect_right(starts, turn.since_ns) - 1
                    turn.taken = max(0, numbers[before]) if before >= 0 else 0
                return


def _place(tasks: Tasks, own: Sequence[_Turn], usual: Sequence[tuple[int, int, int]], number: int) -> None:
    for nth, turn in enumerate(own):
        habit = usual[min(nth, len(usual) - 1)] if usual else None
        taken, given = turn.taken, turn.given
        if habit is not None:
            if not turn.is_waited:  # when it took it is not known; when it gave it back may be
                turn.unit = habit[0]
                taken = habit[1] if given is None else min(habit[1], given)
            given = given if given is not None else (taken or 0) + habit[2] - habit[1]
        if turn.unit >= len(tasks.units):
            continue
        unit = tasks.units[turn.unit]
        numbers = _numbered(unit, number)
        last = numbers[-1] if numbers else 0
        taken = min(taken if taken is not None else last, last)
        given = min(given if given is not None else last, last)
        if not numbers:
            continue
        # The last step with the number is the one behind the wait, if there is one.
        end = max(index for index, each in enumerate(numbers) if each <= max(given, taken))
        unit[end].ends.insert(0, (RELEASE, number))
        if not turn.is_waited:
            at = max(index for index, each in enumerate(numbers) if each <= taken)
            step = unit[at]
            hold_step = Draft(step.end_ns, step.end_ns, step.end_ns, 0, HOLD, number)
            if at == end:  # taken and given back within one step: held for that step
                hold_step.ends.append(step.ends.pop(0))
            unit.insert(at + 1, hold_step)
            # What the step does once it has the lock comes after it: an answer is not given before.
            hold_step.ends, step.ends = [*step.ends, *hold_step.ends], []


def _balance(unit: list[Draft], number: int) -> None:
    """What a task takes it gives back, once, before it takes it again: else a wrong guess would stop the window."""
    is_held = False
    for step in list(unit):
        if step.after == HOLD and step.arg == number:
            if is_held:
                step.after, step.arg = DELAY, 0
            is_held = True
        kept = []
        for act in step.ends:
            if act == (RELEASE, number):
                if not is_held:
                    continue
                later = unit[unit.index(step) + 1 :]
                if any((RELEASE, number) in each.ends for each in later) and not any(
                    each.after == HOLD and each.arg == number for each in later
                ):
                    continue  # the last one counts
                is_held = False
            kept.append(act)
        step.ends = kept
    if is_held:
        unit[-1].ends.append((RELEASE, number))
