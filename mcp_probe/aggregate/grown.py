"""What grew between two arms of calls: the quick and the slow calls of an operation, or two stretches of time.

Each arm is flattened into *leaves* that partition its mean call: a part of the budget, who held the loop, what was
awaited. What grew is the difference leaf by leaf. So the parts add up to the difference of the two arms, and no part is
longer than the call it is a part of. Time in which nobody saw anything is a leaf like any other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import add, attrgetter

from mcp_probe.aggregate.awaiting import AwaitsTally
from mcp_probe.aggregate.phrasing import duration
from mcp_probe.histogram import bucket_of
from mcp_probe.model import (
    BUDGET_PARTS,
    CROWDING_OPERATION,
    LOOP_OPERATION,
    LOOP_WAITS,
    AwaitKind,
    AwaitStage,
    BlockedBy,
    GrownPart,
    RequestRecord,
    SlowCalls,
    Tag,
)

WORTH_MS = 10.0
WORTH_RATIO = 1.5
"""Slow calls are told from quick ones where they take this much longer and this many times as long."""

_TOLD = 3  # parts in a sentence
_VISIBLE = 0.1  # of what grew, from which a part is told
_MS = 1e6
_FINE_MS = 0.95  # parts below this are told in microseconds
_LOOP: str = "loop"
_values_of = attrgetter(*BUDGET_PARTS)
_GROUPS = {
    **dict.fromkeys(("queue_transport", "queue_dispatch"), "queue"),
    **dict.fromkeys(("ready_wait", "executor_return"), "ready"),
    **dict.fromkeys(("write_wait", "write_flush"), "write"),
}
"""Parts of the budget that are one leaf where it is not known who held the loop."""

_HELD = (*LOOP_WAITS, "write_wait", "write_flush")
"""In these a request may wait for steps of other requests."""

_OTHERS = tuple(part for part in BUDGET_PARTS if part not in _HELD)

Leaf = tuple[str, "AwaitKind | None", "str | None"]
"""(part of the budget or its group, or ``loop`` for waits for somebody's steps; kind of what was awaited; its name)"""

Leaves = dict[Leaf, float]
Awaited = tuple[AwaitStage, AwaitKind, str]


@dataclass(slots=True)
class Arm:
    """Sums over some calls, ns. ``weight``: how many calls these are."""

    weight: int = 0
    total_ns: float = 0.0
    parts: list[float] = field(default_factory=lambda: [0.0] * len(BUDGET_PARTS))
    awaits: dict[Awaited, float] = field(default_factory=dict)
    blockers: dict[str, float] = field(default_factory=dict)
    looks: dict[Awaited, float] = field(default_factory=dict)  # share of what nobody timed, as looks tell
    run_unseen: float = 0.0  # share of the jobs without a name at which nobody looked
    inexact: frozenset[str] = frozenset()  # parts of the budget, or ``loop``

    @classmethod
    def of(cls, requests: Iterable[RequestRecord], blocked_by: Iterable[BlockedBy]) -> Arm:
        """Of these requests, with the rows of who waited for whom in their time."""
        requests = tuple(requests)
        arm = cls(inexact=_inexact(requests))
        for request in requests:
            arm.weight += request.weight
            arm.total_ns += max(0, request.end_ns - request.arrival_ns) * request.weight
            for index, ns in enumerate(_values_of(request.budget)):
                arm.parts[index] += (ns or 0) * request.weight
            for one in request.awaits or ():
                key = one.stage, one.kind, one.object
                arm.awaits[key] = arm.awaits.get(key, 0.0) + one.ns * request.weight
        names = {each.name or each.method for each in requests}
        for row in blocked_by:
            if row.kind is None and row.victim in names:
                arm.blockers[row.blocker] = arm.blockers.get(row.blocker, 0.0) + max(0.0, row.lo_ms) * _MS
        return arm

    @property
    def mean_ms(self) -> float:
        """Of a call. There must be one."""
        return self.total_ns / self.weight / _MS

    def leaves(self) -> dict[Leaf, float]:
        """A mean call in ms, in parts that add up to it."""
        values = dict(zip(BUDGET_PARTS, self.parts, strict=True))
        whole = sum(values.values())
        fit = min(1.0, self.total_ns / whole) if whole else 0.0
        found: Leaves = defaultdict(float)
        held = {part: values[part] * fit for part in _HELD}
        waited = sum(held.values())
        _divide(found, _LOOP, waited, {(_LOOP, None, name): ns for name, ns in self.blockers.items()})
        rest = found.pop((_LOOP, None, None)) / waited if waited else 0.0
        for part, ns in held.items():  # in which of them it waited for whom is not kept
            found[_GROUPS.get(part, part), None, None] += ns * rest
        for part in _OTHERS:
            rows = self.awaits.items()
            named: dict[Leaf, float] = {(part, kind, name): ns for (stage, kind, name), ns in rows if stage == part}
            _divide(found, part, values[part] * fit, named)
        found["unaccounted", None, None] += max(0.0, self.total_ns - whole * fit)
        self._spread(found)
        return {leaf: ns / self.weight / _MS for leaf, ns in found.items()}

    def _spread(self, found: Leaves) -> None:
        """Awaiting and jobs that nobody looked at go by what looks saw of others, if there were enough."""
        for stage, part in (("awaiting", 1.0), ("executor_run", self.run_unseen)):
            shares = {key: share for key, share in self.looks.items() if key[0] == stage}
            rest = found[stage, None, None] * part
            fit = 1.0 / max(1.0, sum(shares.values()))
            for (_, kind, name), share in shares.items():
                found[stage, kind, name] += rest * share * fit
                found[stage, None, None] -= rest * share * fit


def _divide(found: Leaves, part: str, ns: float, named: Mapping[Leaf, float]) -> None:
    """Leaves of ``part``, which took ``ns``: those with a name, never longer than it together, and the rest."""
    whole = sum(named.values())
    fit = min(1.0, ns / whole) if whole else 0.0
    for leaf, each in named.items():
        found[leaf] += each * fit
    found[part, None, None] += max(0.0, ns - whole * fit)


@dataclass(slots=True)
class GrownTally:
    """Budgets and blockers of finished calls, by the bucket of their total: which are slow shows only at the end."""

    budgets: dict[int, list[int]] = field(default_factory=dict)  # bucket -> [weight, total, *parts]
    blockers: dict[int, Counter[str]] = field(default_factory=dict)

    def add(self, record: RequestRecord) -> None:
        """Take one record in, unless it has not finished."""
        total = record.end_ns - record.arrival_ns
        if record.outcome == "unfinished" or total <= 0:
            return
        weight = record.weight
        values = [1, total, *(ns or 0 for ns in _values_of(record.budget))]
        if weight > 1:
            values = [value * weight for value in values]
        bucket = bucket_of(total)
        row = self.budgets.get(bucket)
        self.budgets[bucket] = values if row is None else list(map(add, row, values))

    def add_blame(self, bucket: int, rows: Mapping[str, tuple[int, int]], weight: int) -> None:
        """Whose steps a call of this bucket waited for."""
        found = self.blockers.get(bucket)
        if found is None:
            found = self.blockers[bucket] = Counter()
        for blocker, (lo, _) in rows.items():
            if lo > 0:
                found[blocker] += lo * weight

    def merge(self, other: GrownTally) -> None:
        """Add ``other``, which stays as it is."""
        for bucket, values in other.budgets.items():
            row = self.budgets.get(bucket)
            self.budgets[bucket] = list(values) if row is None else list(map(add, row, values))
        for bucket, blockers in other.blockers.items():
            self.blockers.setdefault(bucket, Counter()).update(blockers)

    def summary(
        self, quick: Collection[int], slow: Collection[int], awaits: AwaitsTally, inexact: frozenset[str]
    ) -> SlowCalls | None:
        """What grew from the calls in ``quick`` buckets to those in ``slow`` ones; ``None`` where they are alike."""
        arms = [self._arm(buckets, awaits, inexact) for buckets in (quick, slow)]
        return grown(*arms) if all(arm.weight for arm in arms) else None

    def _arm(self, buckets: Collection[int], awaits: AwaitsTally, inexact: frozenset[str]) -> Arm:
        arm = Arm(inexact=inexact)
        for bucket in buckets:
            weight, total, *parts = self.budgets.get(bucket, [0] * (2 + len(BUDGET_PARTS)))
            arm.weight += weight
            arm.total_ns += total
            arm.parts = list(map(add, arm.parts, parts))
            for blocker, ns in self.blockers.get(bucket, {}).items():
                arm.blockers[blocker] = arm.blockers.get(blocker, 0.0) + ns
        for row in awaits.rows.values():
            key = row.stage, row.kind, row.object
            arm.awaits[key] = arm.awaits.get(key, 0.0) + sum(row.per_bucket.get(bucket, 0) for bucket in buckets)
        arm.looks = awaits.looked_shares()
        run = arm.parts[BUDGET_PARTS.index("executor_run")]
        run -= sum(ns for (stage, _, _), ns in arm.awaits.items() if stage == "executor_run")
        arm.run_unseen = (
            min(1.0, sum(awaits.near.run_unseen.get(bucket, 0) for bucket in buckets) / run) if run > 0 else 0.0
        )
        return arm


def grown(quick: Arm, slow: Arm) -> SlowCalls | None:
    """What grew from one arm to the other, most first; ``None`` where the second is not clearly slower."""
    before, after = quick.mean_ms, slow.mean_ms
    return None if after - before < WORTH_MS or after < WORTH_RATIO * before else changed(quick, slow)


def changed(quick: Arm, slow: Arm) -> SlowCalls:
    """What the second arm took longer for, most first, however little it is. Both must have calls."""
    first, last = quick.leaves(), slow.leaves()
    inexact = quick.inexact | slow.inexact
    changed = {leaf: last.get(leaf, 0.0) - first.get(leaf, 0.0) for leaf in {**first, **last}}
    parts = tuple(
        GrownPart(*leaf, ms, _tag(leaf, inexact))
        for leaf, ms in sorted(changed.items(), key=lambda item: (-item[1], str(item[0])))
        if ms
    )
    return SlowCalls(quick.mean_ms, quick.weight, slow.mean_ms, slow.weight, parts)


def told(found: SlowCalls, operation: str | None = None) -> str:
    """``+140 ms waiting for `resize`, +12 ms on the event loop``: what grew, most first, and what became shorter."""
    whole = sum(part.ms for part in found.parts if part.ms > 0)
    longer = [part for part in found.parts if part.ms >= _VISIBLE * whole][:_TOLD]
    shorter = [part for part in reversed(found.parts) if -part.ms >= _VISIBLE * whole][:1]
    shown = (*longer, *shorter)
    words = [f"{_signed(part.ms)} {phrase(part, operation)}" for part in shown]
    rest = found.slow_ms - found.quick_ms - sum(part.ms for part in shown)
    if whole and abs(rest) >= _VISIBLE * whole:
        words.append(f"{_signed(rest)} of smaller parts")
    return ("" if all(part.quality == "exact" for part in shown) else "about ") + ", ".join(words)


def _signed(ms: float) -> str:
    size = abs(ms)
    return f"{'−' if ms < 0 else '+'}{duration(size) if size >= _FINE_MS else f'{size * 1e3:.0f} µs'}"


_PHRASES = {
    "queue": "waiting to be taken up",
    "ready": "waiting for a turn on the event loop",
    "busy": "of its own on the event loop",
    "executor_wait": "waiting for a thread",
    "executor_run": "in a worker thread",
    "awaiting": "awaiting what nothing named",
    "write": "until its answer was written",
    "gc": "in the garbage collector",
    "unaccounted": "where the probe could not look",
}
_NAMED = {
    "awaiting": "awaiting {}",
    "executor_run": "waiting for {} in a worker thread",
    "busy": "blocking the event loop, on {}",
}


def phrase(part: GrownPart, operation: str | None = None) -> str:
    """What a call did in that time."""
    if part.name is None:
        return _PHRASES[part.part]
    if part.part == _LOOP:
        names = {CROWDING_OPERATION: "many short steps", LOOP_OPERATION: "background work", operation: "calls like it"}
        return f"waiting for {names.get(part.name, f'`{part.name}`')}"
    thing = part.name if part.kind in (part.name, None) else f"{part.kind} `{part.name}`"
    if part.kind == "other":
        thing = f"`{part.name}`"
    return _NAMED.get(part.part, "in {}").format(thing)


def _tag(leaf: Leaf, inexact: Collection[str]) -> Tag:
    return "estimate" if leaf[0] in inexact else "exact"


def _inexact(requests: Iterable[RequestRecord]) -> frozenset[str]:
    found = {row[0] for request in requests for row in request.quality if row[1] != "exact"}
    sampled = {one.stage for request in requests for one in request.awaits or () if one.tag != "exact"}
    return leaves_of(found) | frozenset(sampled)


def leaves_of(parts: Iterable[str]) -> frozenset[str]:
    """Leaves that these parts of the budget go into."""
    parts = set(parts)
    return frozenset(_GROUPS.get(part, part) for part in parts) | ({_LOOP} if parts & set(_HELD) else set())
