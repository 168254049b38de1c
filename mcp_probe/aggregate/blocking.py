"""Who waited for whom: the waits of one request against the slow steps of all others.

For each victim and blocker two figures are kept: ``lo``, the time in which the victim certainly could
run while the blocker was on its loop, and ``hi``, which adds the time in which it possibly could (a
socket became readable at an unknown instant between two polls). The rest of a wait, outside all slow
steps, was spent behind many small ones; :data:`CROWDING_OPERATION` is their name.

Invariants: lo <= truth <= hi per victim and blocker, unless the blame says it is ``clipped``; no instant
of a victim counts twice; a request's own steps are never blamed; an instant in which a request could not
run is never blamed on anybody.

Source: measurement.md section 3, "Head-of-line blocking" (docs/how-it-measures.md).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from mcp_probe.model import (
    CROWDING_OPERATION,
    LOOP_OPERATION,
    QUEUE,
    STEPS,
    BlockedBy,
    LoopSample,
    RequestRecord,
    StepRecord,
    Tag,
    Wait,
)

KEEP_STEPS = 4096
"""Steps remembered one by one; at 0.5 ms each that is at least 4 s of a loop that does nothing else."""

KEEP_LONG_STEPS = 8192
LONG_STEP_NS = 10_000_000
"""Steps this long are remembered longer than shorter ones."""

KEEP_SAMPLES = 256
MAX_CELLS = 4096
OTHER = "other"

_FEW = 24
"""Up to this many steps are visited one by one; for more, the running sums per operation are faster."""

_OUTSIDE = ("queue", "write")
"""Stages in which no unit of the request runs."""

MAX_SPANS = 65_536
"""Stretches of which is remembered what was going on in them. Answers that wait for the same writer share its waits, so
that dozens of requests ask for the same ones."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Victim:
    """What blame needs to know of a request."""

    request: int
    operation: str
    method: str
    total_ns: int
    waits: tuple[Wait, ...]
    loop: int | None  # None: not known which loop it ran on
    on_loop_ns: int | None  # its own time on the loop
    clipped: bool  # some of its waits are missing
    finished: bool
    weight: int = 1  # how many requests it stands for


def victim_of(record: RequestRecord) -> Victim | None:
    """``record`` as a victim; ``None`` if none of its waits is long enough, or its loop was not seen meanwhile.

    Nobody waits for a notification.
    """
    if not record.waits or not record.seen & STEPS or record.kind == "notification":
        return None
    busy, gc = record.budget.busy, record.budget.gc
    return Victim(
        request=record.id,
        operation=record.name or record.method,
        method=record.method,
        total_ns=record.end_ns - record.arrival_ns,
        waits=record.waits,
        loop=record.loop,
        on_loop_ns=None if busy is None else busy + (gc or 0),
        clipped=record.partial or _queue_is_unseen(record),
        finished=record.outcome != "unfinished",
        weight=record.weight,
    )


def _queue_is_unseen(record: RequestRecord) -> bool:
    """It came from outside, and it could not be seen since when it was there."""
    return record.kind != "function" and not record.seen & QUEUE


@dataclass(slots=True)
class Blame:
    """What one victim waited for: blocker -> (lo, hi) in ns. ``clipped``: steps or waits were forgotten."""

    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    clipped: bool = False

    @property
    def others_ns(self) -> int:
        """Time certainly lost to single steps of other requests."""
        return sum(lo for blocker, (lo, _) in self.rows.items() if blocker not in (LOOP_OPERATION, CROWDING_OPERATION))

    @property
    def crowding_ns(self) -> tuple[int, int]:
        """(lo, hi) of the time lost to many small steps."""
        return self.rows.get(CROWDING_OPERATION, (0, 0))


# --- the slow steps of a stretch of time, indexed ----------------------------------------------------


class _Lane:
    """Steps that follow each other without overlap; answers how much of [a, b) they cover."""

    __slots__ = ("ends", "starts", "sums")

    def __init__(self, spans: Sequence[Span]) -> None:
        self.starts = [start for start, _ in spans]
        self.ends = [end for _, end in spans]
        self.sums = [0, *accumulate(end - start for start, end in spans)]

    def slice(self, a: int, b: int) -> tuple[int, int]:
        """Range of the steps that share an instant with [a, b)."""
        return bisect_right(self.ends, a), bisect_left(self.starts, b)

    def covered(self, a: int, b: int) -> int:
        """Nanoseconds of [a, b) inside a step."""
        first, stop = self.slice(a, b)
        if first >= stop:
            return 0
        whole = self.sums[stop] - self.sums[first]
        return whole - max(0, a - self.starts[first]) - max(0, self.ends[stop - 1] - b)


class _LoopSteps:
    """The slow steps of one loop."""

    def __init__(self, steps: Iterable[StepRecord]) -> None:
        self._steps: list[tuple[int, int, StepRecord]] = []
        by_operation: defaultdict[str, list[Span]] = defaultdict(list)
        self._own: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
        self._placed: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
        cursor = 0
        for step in sorted(steps, key=lambda step: (step.start_ns, step.end_ns)):
            start, end = max(step.start_ns, cursor), step.end_ns
            if start >= end:
                continue
            cursor = end
            operation = blocker_of(step)
            self._steps.append((start, end, step))
            by_operation[operation].append((start, end))
            if step.file is not None and step.line is not None:
                self._placed[operation].append((start, end, f"{step.file}:{step.line}"))
            for request in (step.request, *step.within):
                if request:
                    self._own[request].append((start, end, operation))
        self._all = _Lane([(start, end) for start, end, _ in self._steps])
        self._by_operation = {operation: _Lane(spans) for operation, spans in by_operation.items()}
        self._covered: dict[Span, int] = {}
        self._few: dict[Span, Sequence[tuple[str, int, StepRecord]] | None] = {}

    def covered(self, span: Span) -> int:
        """Nanoseconds of ``span`` inside any slow step."""
        found = self._covered.get(span)
        if found is None:
            if len(self._covered) >= MAX_SPANS:
                self._covered.clear()
            found = self._covered[span] = self._all.covered(*span)
        return found

    def own_ns(self, request: int) -> int:
        """Total of the slow steps of ``request``."""
        return sum(end - start for start, end, _ in self._own.get(request, ()))

    def place(self, operation: str, a: int, b: int) -> str | None:
        """``file:line`` at which ``operation`` spent most of [a, b), as far as slow steps have a line."""
        placed = self._placed.get(operation, ())
        first = bisect_right(placed, a, key=lambda one: one[1])
        stop = bisect_left(placed, b, key=lambda one: one[0])
        inside = [(min(end, b) - max(start, a), where) for start, end, where in placed[first:stop]]
        return max(inside, default=(0, None))[1]

    def blockers(self, spans: Iterable[Span], request: int) -> dict[str, int]:
        """Nanoseconds of ``spans`` per operation, steps of ``request`` itself left out."""
        found: defaultdict[str, int] = defaultdict(int)
        own = self._own.get(request, [])
        for span in spans:
            few = self._few[span] if span in self._few else self._visit(span)
            if few is not None:
                for operation, ns, step in few:
                    if request != step.request and request not in step.within:
                        found[operation] += ns
                continue
            a, b = span
            for operation, lane in self._by_operation.items():
                found[operation] += lane.covered(a, b)
            for start, end, operation in own:
                found[operation] -= max(0, min(end, b) - max(start, a))
        return {operation: ns for operation, ns in found.items() if ns > 0}

    def _visit(self, span: Span) -> Sequence[tuple[str, int, StepRecord]] | None:
        """(blocker, nanoseconds, step) of each step in ``span``; ``None`` if there are more than a few."""
        a, b = span
        first, stop = self._all.slice(a, b)
        few = None
        if stop - first <= _FEW:
            few = [
                (blocker_of(step), min(end, b) - max(start, a), step) for start, end, step in self._steps[first:stop]
            ]
        if len(self._few) >= MAX_SPANS:
            self._few.clear()
        self._few[span] = few
        return few


class StepIndex:
    """Slow steps by loop. Steps that ended before ``since_ns`` may be missing. Does not change."""

    def __init__(self, steps: Iterable[StepRecord], since_ns: int | None = None) -> None:
        by_loop: defaultdict[int, list[StepRecord]] = defaultdict(list)
        for step in steps:
            by_loop[step.loop].append(step)
        self.loops = {loop: _LoopSteps(steps) for loop, steps in by_loop.items()}
        self.since_ns = since_ns

    def place(self, victim: Victim, operation: str, a: int, b: int) -> str | None:
        """``file:line`` at which ``operation`` held up the victim in [a, b); ``None`` if that is not known."""
        places = [loop.place(operation, a, b) for loop in self.loops_of(victim)]
        return places[0] if len(places) == 1 else None

    def loops_of(self, victim: Victim) -> list[_LoopSteps]:
        """The loops that may be the victim's: its own where that is known."""
        if victim.loop is None:
            return list(self.loops.values())
        known = self.loops.get(victim.loop)
        return [] if known is None else [known]


class _Polls:
    """The samples of one loop, which do not overlap, and sums of the time in its poll and outside."""

    __slots__ = ("_idle", "ends", "polls", "starts", "turns")

    def __init__(self, samples: Sequence[LoopSample]) -> None:
        self._idle: dict[Span, Span] = {}
        self.starts = [sample.at_ns - sample.span_ns for sample in samples]
        self.ends = [sample.at_ns for sample in samples]
        self.polls = [0, *accumulate(sample.poll_ns for sample in samples)]
        self.turns = [0, *accumulate(sample.span_ns - sample.poll_ns for sample in samples)]

    def idle(self, span: Span) -> Span:
        """(at least, at most) nanoseconds of ``span`` in the poll."""
        found = self._idle.get(span)
        if found is None:
            if len(self._idle) >= MAX_SPANS:
                self._idle.clear()
            found = self._idle[span] = self._idle_in(*span)
        return found

    def _idle_in(self, a: int, b: int) -> Span:
        first, stop = bisect_right(self.ends, a), bisect_left(self.starts, b)
        at_least, at_most = 0, b - a
        if stop - first > 2:  # those between the first and the last are inside as a whole
            at_least += self.polls[stop - 1] - self.polls[first + 1]
            at_most -= self.turns[stop - 1] - self.turns[first + 1]
        for index in {first, stop - 1} if first < stop else ():
            inside = min(self.ends[index], b) - max(self.starts[index], a)
            at_least += max(0, inside - (self.turns[index + 1] - self.turns[index]))
            at_most -= max(0, inside - (self.polls[index + 1] - self.polls[index]))
        return at_least, max(at_least, at_most)


class PollIndex:
    """How much of a stretch each loop spent in its poll call, as far as its samples tell."""

    def __init__(self, samples: Iterable[LoopSample] = ()) -> None:
        by_loop: defaultdict[int, list[LoopSample]] = defaultdict(list)
        for sample in samples:
            if sample.quality == "exact":
                by_loop[sample.loop].append(sample)
        self._loops = {loop: _Polls(sorted(found, key=lambda one: one.at_ns)) for loop, found in by_loop.items()}

    def idle(self, loop: int | None) -> Callable[[Span], Span]:
        """What says (at least, at most) how much of a span ``loop`` was in its poll; without any sample 0 and all."""
        if loop is None and len(self._loops) == 1:
            loop = next(iter(self._loops))
        known = self._loops.get(loop) if loop is not None else None
        return _not_sampled if known is None else known.idle


def _not_sampled(span: Span) -> Span:
    return 0, span[1] - span[0]


# --- one victim --------------------------------------------------------------------------------------


def blocker_of(step: StepRecord) -> str:
    """Name that ``step`` is blamed under."""
    return step.operation if step.request else LOOP_OPERATION


def union(spans: Iterable[Span]) -> list[Span]:
    """``spans`` sorted, with those that touch or overlap made one, and empty ones left out."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def blame(victim: Victim, steps: StepIndex, polls: PollIndex | None = None) -> Blame:
    """What ``victim`` waited for.

    If its loop is not known and several loops have slow steps, any of these may be its loop: ``lo`` is then 0.
    """
    certain = union([(wait.start_ns, wait.end_ns) for wait in victim.waits])
    possible = certain
    if any(wait.earliest_ns != wait.start_ns for wait in victim.waits):
        possible = union((wait.earliest_ns, wait.end_ns) for wait in victim.waits)
    loops = steps.loops_of(victim)
    rows: dict[str, tuple[int, int]] = {}
    for loop in loops:
        his = loop.blockers(possible, victim.request)
        if len(loops) > 1:
            los: dict[str, int] = {}
        else:
            los = his if certain is possible or certain == possible else loop.blockers(certain, victim.request)
        for operation, hi in his.items():
            before = rows.get(operation, (0, 0))
            rows[operation] = (before[0] + los.get(operation, 0), before[1] + hi)
    lo, hi = _crowding(victim, certain, possible, loops, steps.since_ns, polls or PollIndex())
    if hi > 0:
        rows[CROWDING_OPERATION] = (lo, hi)
    forgotten = steps.since_ns is not None and bool(possible) and possible[0][0] < steps.since_ns
    return Blame(rows, victim.clipped or forgotten)


def _crowding(
    victim: Victim,
    certain: list[Span],
    possible: list[Span],
    loops: list[_LoopSteps],
    since_ns: int | None,
    polls: PollIndex,
) -> Span:
    """(lo, hi) of the waits that no slow step covers.

    While a unit is ready its loop does not sleep, so the unit waits behind small steps. Some of them may be
    its own: they are subtracted from ``lo``. A request still in a queue, or its answer, may wait for a thread or
    a pipe instead. So only the time that the loop cannot have spent in the poll counts as certain.
    """
    idle = polls.idle(victim.loop)
    outside = [wait for wait in victim.waits if wait.stage in _OUTSIDE]
    queued = union([(wait.earliest_ns, wait.end_ns) for wait in outside])
    gaps = sum([_gap(span, loops) for span in possible])
    hi = gaps - sum([idle(span)[0] for span in queued])
    if victim.on_loop_ns is None or len(loops) > 1:
        return 0, max(0, hi)
    is_same = possible is certain and (since_ns is None or not certain or certain[0][0] >= since_ns)
    lo = gaps if is_same else sum([_gap(span, loops) for span in _after(certain, since_ns)])
    for span in _after([(wait.start_ns, wait.end_ns) for wait in outside], since_ns):
        lo -= min(_gap(span, loops), idle(span)[1])
    lo -= max(0, victim.on_loop_ns - sum(loop.own_ns(victim.request) for loop in loops))
    return max(0, min(lo, hi)), max(0, hi)


def _gap(span: Span, loops: list[_LoopSteps]) -> int:
    """At most this much of ``span`` lies outside slow steps, whichever of ``loops`` the victim ran on."""
    if not loops:
        return span[1] - span[0]
    covered = loops[0].covered(span) if len(loops) == 1 else min(loop.covered(span) for loop in loops)
    return span[1] - span[0] - covered


def _after(spans: Iterable[Span], since_ns: int | None) -> Iterator[Span]:
    for start, end in spans:
        if since_ns is not None and start < since_ns:
            start = since_ns
        if start < end:
            yield start, end


# --- the stream: what is remembered -------------------------------------------------------------------


class RecentSteps:
    """Bounded memory of the latest slow steps; the long ones are remembered for longer."""

    def __init__(self, keep: int = KEEP_STEPS, keep_long: int = KEEP_LONG_STEPS) -> None:
        self._keep = keep
        self._keep_long = keep_long
        self._steps: OrderedDict[Span, StepRecord] = OrderedDict()
        self._long: OrderedDict[Span, StepRecord] = OrderedDict()
        self.since_ns: int | None = None

    @property
    def full(self) -> bool:
        """The next step makes it forget older ones."""
        return len(self._steps) >= self._keep

    def add(self, step: StepRecord) -> bool:
        """Remember ``step``; it replaces a frame of it that was still running. False if its end is known already."""
        key = (step.loop, step.start_ns)
        known = self._steps.get(key) or self._long.get(key)
        if known is not None and (not known.running or (step.running and step.end_ns <= known.end_ns)):
            return False
        if key in self._long:
            self._long[key] = step
            return True
        if known is None and self.full:
            self._forget()
        self._steps[key] = step
        return True

    def forget(self, step: StepRecord) -> None:
        """``step`` was none."""
        key = (step.loop, step.start_ns)
        self._steps.pop(key, None)
        self._long.pop(key, None)

    def _forget(self) -> None:
        for _ in range(max(1, self._keep // 4)):
            key, step = self._steps.popitem(last=False)
            if step.end_ns - step.start_ns >= LONG_STEP_NS:
                self._long[key] = step
            else:
                self.since_ns = max(self.since_ns or 0, step.end_ns)
        while len(self._long) > self._keep_long:
            _, step = self._long.popitem(last=False)
            self.since_ns = max(self.since_ns or 0, step.end_ns)

    def index(self, earliest_ns: int) -> StepIndex:
        """What is remembered of the time since ``earliest_ns``."""
        steps = [*self._long.values(), *self._steps.values()]
        return StepIndex((step for step in steps if step.end_ns > earliest_ns), self.since_ns)


# --- the matrix ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Cell:
    """One victim operation against one blocker, summed over the window."""

    victims: int = 0
    certain_victims: int = 0
    lo_ns: int = 0
    hi_ns: int = 0
    clipped: bool = False
    estimated: bool = False  # some of the victims stand for others

    def merge(self, other: Cell) -> None:
        """Add ``other``."""
        self.victims += other.victims
        self.certain_victims += other.certain_victims
        self.lo_ns += other.lo_ns
        self.hi_ns += other.hi_ns
        self.clipped = self.clipped or other.clipped
        self.estimated = self.estimated or other.estimated

    @property
    def tag(self) -> Tag:
        """Exact where both bounds meet."""
        if self.estimated:
            return "estimate"
        if self.clipped:
            return "lower"
        return "exact" if self.lo_ns == self.hi_ns else "bounded"


class Matrix:
    """Victim operation x blocker operation. Bounded: pairs beyond :data:`MAX_CELLS` count under ``other``."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], Cell] = {}

    def add(self, victim: str, found: Blame, weight: int = 1) -> None:
        """Add one victim's blame, which counts for ``weight`` victims."""
        for blocker, (lo, hi) in found.rows.items():
            certain = weight if lo > 0 else 0
            cell = Cell(weight, certain, lo * weight, hi * weight, found.clipped, weight > 1)
            self._merge((victim, blocker), cell)

    def merge(self, other: Matrix) -> None:
        """Add ``other``, which stays as it is."""
        for key, cell in other.cells.items():
            self._merge(key, cell)

    def _merge(self, key: tuple[str, str], cell: Cell) -> None:
        if key not in self.cells and len(self.cells) >= MAX_CELLS:
            key = (OTHER, OTHER)
        self.cells.setdefault(key, Cell()).merge(cell)

    def rows(self) -> tuple[BlockedBy, ...]:
        """Largest certain loss first."""
        ranked = sorted(self.cells.items(), key=lambda item: (-item[1].lo_ns, -item[1].hi_ns, item[0]))
        return tuple(
            BlockedBy(victim, blocker, cell.victims, cell.lo_ns / 1e6, cell.hi_ns / 1e6, cell.tag)
            for (victim, blocker), cell in ranked
        )

    def caused_by(self, blocker: str) -> tuple[int, float]:
        """(requests that certainly waited for ``blocker``, ms that they waited)."""
        cells = [cell for (_, name), cell in self.cells.items() if name == blocker]
        return sum(cell.certain_victims for cell in cells), sum(cell.lo_ns for cell in cells) / 1e6
