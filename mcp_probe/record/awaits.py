"""What a request waited for: the stretches of its budget against what hooks and looks say of them.

Durations are the budget's own. Hooks and looks only *name* instants that are awaiting, or run in a job, already; what
none of them names stays without a name. A call that keeps the event loop until it returns names instants that are busy.
Invariants: an instant gets at most one name, so the awaits of a request never add up to more than its awaiting and its
jobs; the parts of an await's holders never add up to more than the await.

Where several units of a request await at once, the name is that of the await that ends last: it is what kept the
request waiting. The result did not wait for what lasts longer than it: that, and that a task waits for other tasks of
the same request, names only what nothing else does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mcp_probe.model import Await, AwaitStage, HolderPart, draft_of
from mcp_probe.record.raw import AwaitLook, AwaitMark, Claim, Job, StepMark

SHORT_AWAIT_NS = 5_000_000
"""Shorter stretches are summed by what they were for, without holders, unless ``wait_ms`` says otherwise."""

LOOK_EDGE_NS = 100_000_000
"""Of a job, before its first and after its last look: so much is taken for what that look saw, if it did not work."""

MOST_WORK = 0.2
"""Share of a stretch that a thread may have worked in it, if the stretch is to be a wait."""

MAX_AWAITS_KEPT = 64
"""Stretches and sums that a record has, the longest ones; the others stay without a name."""

COVERED_SHARE = 0.8
"""Of what looks at a job saw: so much of it inside of calls that a hook saw, and it is those calls that were seen."""

Looked = tuple[int, int, AwaitLook]
"""(from_ns, to_ns, look): a suspension that somebody looked at."""

_Span = tuple[int, int]

_Draft = draft_of(Await)


def looked_at(looks: Sequence[AwaitLook], marks: Iterable[StepMark]) -> list[Looked]:
    """Those suspensions that ``marks`` end, each from when the task was suspended until it was ready."""
    open_ = {(look.unit, look.suspended_ns): look for look in looks}
    return [
        (suspended, min(max(ready, suspended), began), look)
        for unit, suspended, _, ready, began, _, _ in marks
        if unit and (look := open_.get((unit, suspended))) is not None
    ]


def still_suspended(looks: Sequence[AwaitLook], units: dict[int, int], end: int) -> list[Looked]:
    """Those that have not ended by ``end``."""
    return [(look.suspended_ns, end, look) for look in looks if units.get(look.unit) == look.suspended_ns]


def job_looks(jobs: Iterable[Job]) -> list[AwaitMark]:
    """What looks saw jobs wait for. The last wait goes on to the job's end if its thread hardly ran after it."""
    marks = []
    for job in jobs:
        looks = list(job.looks or ())
        for look in looks:
            until = look.to_ns
            rest = 0 if job.finish_ns is None else job.finish_ns - until
            if look is looks[-1] and 0 < rest <= LOOK_EDGE_NS and job.finish_ns and job.cpu_ns is not None:
                worked = job.start_cpu_ns + job.cpu_ns - look.cpu_ns
                until += rest - max(0, worked) if worked <= rest * MOST_WORK else 0
            marks.append(AwaitMark(look.from_ns, until, look.thing, look.where, (), True, looks=1))
    return marks


def job_work(jobs: Iterable[Job]) -> tuple[tuple[str | None, str, int, int], ...]:
    """Where looks saw jobs compute. What a job used after its last look counts for the line that this one found."""
    found: dict[tuple[str | None, str], tuple[int, int]] = {}
    for job in jobs:
        goes_on, work = job.work_goes_on, dict(job.work or {})  # in this order: looks may go on meanwhile
        if goes_on is not None and job.cpu_ns is not None:
            key, at = goes_on
            ns, looks = work[key]
            work[key] = ns + max(0, job.start_cpu_ns + job.cpu_ns - at), looks
        for key, (ns, looks) in work.items():
            known = found.get(key, (0, 0))
            found[key] = known[0] + ns, known[1] + looks
    return tuple((*key, *values) for key, values in sorted(found.items(), key=lambda item: -item[1][0]))


def name_awaits(
    awaiting: Sequence[Claim],
    running: Sequence[Claim],
    marks: Sequence[AwaitMark],
    looked: Sequence[Looked],
    end: int,
    short_ns: int = SHORT_AWAIT_NS,
    in_jobs: Sequence[AwaitMark] = (),
    busy: Sequence[Claim] = (),
    pauses: Sequence[Claim] = (),
    answered: bool = False,
) -> tuple[Await, ...]:
    """The awaits of one request, in the order of time, sums of short ones last.

    Args:
        awaiting: its stretches of awaiting, in order and without overlap.
        running: those in which its jobs ran on worker threads. Only marks made in jobs name them.
        marks: what hooks saw. A mark without an end lasts until ``end``.
        looked: what looks saw.
        end: of the handling window.
        short_ns: awaits shorter than this are summed.
        in_jobs: what looks saw in jobs; names what hooks do not.
        busy: its stretches on the event loop. Only calls that kept the loop from beginning to end name them.
        pauses: of the collector, on the loop.
        answered: the result came at ``end``.
    """
    blocking, hooked = _parted([mark for mark in marks if not mark.in_job], [*busy, *pauses])
    own_tasks = [_of_look(one) for one in looked if one[2].own_tasks]
    seen, again = list(hooked), []
    for look in (_of_look(one) for one in looked if not one[2].own_tasks):
        alike = [mark for mark in hooked if mark.where == look.where is not None and _overlap(look, mark, end)]
        if any(_is_its_client(mark, look, end) for mark in hooked):
            again.append(look)
        elif not alike:
            seen.append(look)
        elif not is_covered(look, alike, end):  # the hook knows more of what this line waited for
            again.append(look)
    found = _Found(short_ns)
    order = [mark for some in (seen, again, own_tasks) for mark in _last_first(some, end, answered)]
    found.add(awaiting, "awaiting", order, end)
    found.add(busy, "busy", _last_first(blocking, end), end)
    hooked = [mark for mark in marks if mark.in_job]
    more = [look for look in in_jobs if not is_covered(look, hooked, end)]
    found.add(running, "executor_run", [*_last_first(hooked, end), *_last_first(more, end)], end)
    return found.awaits()


def _parted(marks: Sequence[AwaitMark], on_loop: Iterable[Claim]) -> tuple[list[AwaitMark], list[AwaitMark]]:
    """(calls that kept the loop from their beginning to their end, all other marks).

    A blocking call that was suspended all the same ran in a greenlet.
    """
    if not any(mark.library for mark in marks):
        return [], list(marks)
    held: list[_Span] = []
    for a, b, _ in sorted(on_loop):
        held[-1:] = [(held[-1][0], b)] if held and held[-1][1] == a else [*held[-1:], (a, b)]
    blocking: list[AwaitMark] = []
    others: list[AwaitMark] = []
    for mark in marks:
        span = held[bisect_right(held, mark.from_ns, key=_start) - 1] if held else (0, 0)
        is_within = span[0] <= mark.from_ns and mark.to_ns is not None and mark.to_ns <= span[1]
        (blocking if mark.library and is_within else others).append(mark)
    return blocking, others


def _start(span: _Span) -> int:
    return span[0]


def _end(span: _Span) -> int:
    return span[1]


def _of_look(looked: Looked) -> AwaitMark:
    since, until, look = looked
    return AwaitMark(since, until, look.thing, look.where, looks=int(look.drawn))


def is_covered(look: AwaitMark, hooked: Iterable[AwaitMark], end: int) -> bool:
    """Whether ``look`` saw a wait that a hook saw, too. What is left of it at its ends is no wait of its own."""
    since, until = look.from_ns, _until(look, end)
    covered = sum(_overlap(look, mark, end) for mark in hooked)
    return covered >= COVERED_SHARE * (until - since)


def _is_its_client(mark: AwaitMark, look: AwaitMark, end: int) -> bool:
    """Whether ``look`` saw the SDK wait for the answer that ``mark`` is of: the queue that it comes through."""
    return mark.thing.kind == "client" and is_covered(look, [mark], end) and is_covered(mark, [look], end)


def _overlap(one: AwaitMark, other: AwaitMark, end: int) -> int:
    return max(0, min(_until(one, end), _until(other, end)) - max(one.from_ns, other.from_ns))


def _last_first(marks: Iterable[AwaitMark], end: int, answered: bool = False) -> list[AwaitMark]:
    """By their ends, latest first; but those that last until an answer at ``end`` come after all others."""

    def rank(mark: AwaitMark) -> tuple[bool, int, int, str]:
        until = _until(mark, end)
        return answered and until >= end, -until, mark.from_ns, mark.thing.name

    return sorted(marks, key=rank)


def _until(mark: AwaitMark, end: int) -> int:
    return end if mark.to_ns is None else mark.to_ns


def await_of(
    mark: AwaitMark, stage: AwaitStage, span: _Span, ns: int, holders: Sequence[HolderPart], library: str | None
) -> Await:
    """What ``mark`` saw, as a recording has it: ``ns`` of ``span``."""
    found = _Draft(
        kind=mark.thing.kind,
        object=mark.thing.name,
        where=mark.where,
        from_ns=span[0],
        to_ns=span[1],
        ns=ns,
        tag=mark.thing.tag,
        holders=tuple(holders),
        stage=stage,
        phase=mark.phase,
        calls=mark.calls,
        opened=mark.opened,
        limit=mark.limit,
        pending=mark.pending,
        looks=mark.looks,
        library=library,
    )
    found.__class__ = Await
    return found


class _Found:
    """Awaits so far: those long enough to be kept one by one, and sums of the others."""

    def __init__(self, short_ns: int) -> None:
        self._short_ns = short_ns
        self._single: list[Await] = []
        self._sums: dict[tuple[str, str, str | None, str, str, str | None], list[Await]] = {}

    def add(self, stretches: Sequence[Claim], stage: AwaitStage, marks: Sequence[AwaitMark], end: int) -> None:
        """Name ``stretches``: each instant by the first of ``marks`` that has it."""
        free: list[_Span] = [(a, b) for a, b, _ in stretches]
        for mark in marks:
            taken = _take(free, mark.from_ns, _until(mark, end))
            ns = sum(b - a for a, b in taken)
            if not ns and not mark.calls and not mark.opened:
                continue
            span = (taken[0][0], taken[-1][1]) if taken else (mark.from_ns, mark.from_ns)
            is_single = ns >= self._short_ns
            holders = _held(mark.holders, taken) if is_single else ()
            one = await_of(mark, stage, span, ns, holders, mark.library if stage == "busy" else None)
            if is_single:
                self._single.append(one)
            else:
                self._sum_up(one)

    def awaits(self) -> tuple[Await, ...]:
        """As :func:`name_awaits`."""
        single = sorted(self._single, key=lambda one: (-one.ns, one.from_ns))
        for one in single[MAX_AWAITS_KEPT:]:
            self._sum_up(one)
        sums = sorted(map(_summed, self._sums.values()), key=lambda one: -one.ns)[:MAX_AWAITS_KEPT]
        return (*sorted(single[:MAX_AWAITS_KEPT], key=lambda one: one.from_ns), *sums)

    def _sum_up(self, one: Await) -> None:
        key = (one.kind, one.object, one.where, one.tag, one.stage, one.phase)
        self._sums.setdefault(key, []).append(one)


def _summed(some: Sequence[Await]) -> Await:
    """Alike stretches as one."""
    last = some[-1]
    if len(some) == 1 and not last.holders:
        return last
    return replace(
        last,
        holders=(),
        from_ns=min([one.from_ns for one in some]),
        to_ns=max([one.to_ns for one in some]),
        ns=sum([one.ns for one in some]),
        count=sum([one.count for one in some]),
        calls=sum([one.calls for one in some]),
        opened=sum([one.opened for one in some]),
        limit=max([one.limit for one in some if one.limit], default=None),
        pending=max([one.pending for one in some]),
        looks=sum([one.looks for one in some]),
    )


def _take(free: list[_Span], since: int, until: int) -> list[_Span]:
    """Takes [since, until) out of ``free``, which is in order: what of it was free.

    A request of thousands of tasks has as many stretches, and hundreds of marks: only those that a mark meets are
    looked at.
    """
    begin = bisect_right(free, since, key=_end)
    stop = max(begin, bisect_left(free, until, key=_start))
    taken: list[_Span] = []
    left: list[_Span] = []
    for a, b in free[begin:stop]:
        first, last = max(a, since), min(b, until)
        if first >= last:
            left.append((a, b))
            continue
        taken.append((first, last))
        if a < first:
            left.append((a, first))
        if last < b:
            left.append((last, b))
    free[begin:stop] = left
    return taken


def _held(holders: Sequence[HolderPart], taken: Sequence[_Span]) -> tuple[HolderPart, ...]:
    """The parts of ``holders`` that lie in ``taken``."""
    if len(taken) == 1 and holders:
        a, b = taken[0]
        if a <= holders[0].from_ns and all([part.to_ns <= b for part in holders]):
            return tuple(holders)
    found = []
    for part in holders:
        for a, b in taken:
            since, until = max(part.from_ns, a), min(part.to_ns, b)
            if since < until:
                is_whole = since == part.from_ns and until == part.to_ns
                found.append(part if is_whole else part._replace(from_ns=since, to_ns=until))
    return tuple(found)
