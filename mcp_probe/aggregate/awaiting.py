"""What the calls of an operation awaited, who held it, and what held the holders up meanwhile.

Times are sums of records' awaits; each instant of a call counts once. With n holders at once each gets 1/n, so what
holders are charged with adds up to the waits. A *root* is what a holder itself waited for while it held what others
awaited: another request's step, or an await of its own.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from mcp_probe.aggregate.blocking import OTHER, PollIndex, StepIndex, Victim, blame
from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.aggregate.quality import worst
from mcp_probe.aggregate.serial_awaits import SerialTally
from mcp_probe.histogram import bucket_of
from mcp_probe.model import (
    CROWDING_OPERATION,
    UNKNOWN_HOLDER,
    Await,
    AwaitHolder,
    AwaitKind,
    AwaitPhase,
    AwaitRoot,
    AwaitStage,
    AwaitSummary,
    BlockedBy,
    HolderPart,
    OperationSummary,
    RequestRecord,
    Tag,
    Wait,
)

MAX_ROWS = 64
"""Different awaits of one operation counted separately; further ones are counted under ``other``."""

LEAST_LOOKS = 10
"""Looks at an operation's suspensions from which they stand for those that nobody looked at."""

ESTIMATE_SHARE = 0.05
"""Of a row's time: more than this by share of looks makes the row an estimate."""

MAX_HOLDERS = 32
MAX_TRACES = 4_096
TRACE_NS = 4_000_000_000

AwaitKey = tuple[str, str, "str | None"]
"""(kind, object, where)"""

RowKey = tuple[AwaitKind, str, "str | None", AwaitStage, "AwaitPhase | None"]


@dataclass(slots=True)
class AwaitTally:
    """One await of an operation over the window."""

    kind: AwaitKind
    object: str
    where: str | None
    stage: AwaitStage = "awaiting"
    phase: AwaitPhase | None = None
    count: int = 0
    total_ns: int = 0
    lengths: Buckets = field(default_factory=Buckets)  # of stretches that are known one by one
    tag: Tag = "exact"
    calls: int = 0
    opened: int = 0
    limit: int | None = None
    pending_peak: int = 0
    held_peak: int = 0
    looks: int = 0
    looked_ns: int = 0  # seen by looks, of calls that count once
    holders: dict[tuple[str, str | None], list[float]] = field(default_factory=dict)  # -> [ns, calls]
    roots: dict[AwaitKey, float] = field(default_factory=dict)
    library: str | None = None
    per_bucket: Counter[int] = field(default_factory=Counter)  # bucket of the call's total -> ns

    def add(self, one: Await, weight: int, bucket: int | None) -> None:
        """One stretch, or the sum of short ones, of a call that stands for ``weight``; ``bucket``: of its total."""
        self.count += one.count * weight
        if bucket is not None:
            self.per_bucket[bucket] += one.ns * weight
        self.total_ns += one.ns * weight
        sampled = weight > 1 or (one.looks > 0 and one.stage == "executor_run")
        self.tag = worst((self.tag, one.tag, "estimate" if sampled else "exact"))
        self.looks += one.looks
        self.looked_ns += one.ns if one.looks else 0
        self.library = self.library or one.library
        self.calls += one.calls * weight
        self.opened += one.opened * weight
        held = _most_at_once(one)
        self._widen(one.limit or held or None, one.pending, held)
        if one.count == 1 and one.ns:
            self.lengths.add(one.ns, weight)
        if one.holders:
            self._add_holders(one.holders, weight)

    def _add_holders(self, holders: Iterable[HolderPart], weight: int) -> None:
        held: dict[tuple[str, str | None], float] = {}
        for part in holders:
            key = (part.operation, part.where)
            held[key] = held.get(key, 0.0) + _share(part)
        for key, ns in held.items():
            row = self._row(key)
            row[0] += ns * weight
            row[1] += weight

    def _widen(self, limit: int | None, pending: int, held: int) -> None:
        if limit is not None:
            self.limit = max(limit, self.limit or 0)
        self.pending_peak = max(self.pending_peak, pending)
        self.held_peak = max(self.held_peak, held)

    def _row(self, key: tuple[str, str | None]) -> list[float]:
        if key not in self.holders and len(self.holders) >= MAX_HOLDERS:
            key = (OTHER, None)
        return self.holders.setdefault(key, [0.0, 0.0])

    def merge(self, other: AwaitTally) -> None:
        """Add ``other``."""
        self.count += other.count
        self.total_ns += other.total_ns
        self.lengths.merge(other.lengths)
        self.tag = worst((self.tag, other.tag))
        self.library = self.library or other.library
        self.calls += other.calls
        self.opened += other.opened
        self.looks += other.looks
        self.looked_ns += other.looked_ns
        self._widen(other.limit, other.pending_peak, other.held_peak)
        for key, (ns, calls) in other.holders.items():
            row = self._row(key)
            row[0] += ns
            row[1] += calls
        for root, ns in other.roots.items():
            self.roots[root] = self.roots.get(root, 0.0) + ns
        self.per_bucket.update(other.per_bucket)

    def summary(
        self, p95_share: float | None, unseen_ns: float = 0.0, share: tuple[float, float, float] = (0.0, 0.0, 0.0)
    ) -> AwaitSummary:
        """Its row; holders and roots with the longest time first.

        Args:
            p95_share: of the time of the operation's calls near p95.
            unseen_ns: time of the operation that nobody looked at.
            share: of it that is this row's, as far as looks tell: (share, lo, hi).
        """
        part, lo, hi = share
        estimated = unseen_ns * part
        tag = worst((self.tag, "estimate" if estimated > ESTIMATE_SHARE * self.total_ns else "exact"))
        p50, p95, p99 = map(self._quantile_ms, (0.5, 0.95, 0.99))
        return AwaitSummary(
            kind=self.kind,
            object=self.object,
            where=self.where,
            count=self.count,
            total_ms=(self.total_ns + estimated) / 1e6,
            p95_ms=p95,
            holders=tuple(
                AwaitHolder(
                    operation, where, ns / 1e6, round(calls), "unavailable" if operation == UNKNOWN_HOLDER else self.tag
                )
                for (operation, where), (ns, calls) in sorted(self.holders.items(), key=lambda item: -item[1][0])
            ),
            root=tuple(
                AwaitRoot(kind, name, where, ns / 1e6)  # type: ignore[arg-type]
                for (kind, name, where), ns in sorted(self.roots.items(), key=lambda item: -item[1])
            ),
            quality=tag,
            p50_ms=p50,
            p99_ms=p99,
            stage=self.stage,
            phase=self.phase,
            calls=self.calls,
            opened=self.opened,
            limit=self.limit,
            pending_peak=self.pending_peak,
            p95_share=p95_share,
            held_peak=self.held_peak,
            looks=self.looks,
            estimated_ms=estimated / 1e6,
            lo_ms=(self.total_ns + unseen_ns * lo) / 1e6 if estimated else None,
            hi_ms=(self.total_ns + unseen_ns * hi) / 1e6 if estimated else None,
            library=self.library,
        )

    def _quantile_ms(self, q: float) -> float | None:
        found = self.lengths.quantile(q)
        return None if found is None else found / 1e6


@dataclass(slots=True)
class NearTally:
    """Times of finished calls by the bucket of their total. Which buckets are near p95 shows only at the end."""

    total: Counter[int] = field(default_factory=Counter)
    unnamed: Counter[int] = field(default_factory=Counter)  # awaiting that nothing named
    run_unseen: Counter[int] = field(default_factory=Counter)  # run of jobs that nobody looked at

    def add(self, record: RequestRecord, awaiting_ns: int, awaits: tuple[Await, ...]) -> int | None:
        """Take one record in; its bucket, ``None`` if it has not finished."""
        total = record.end_ns - record.arrival_ns
        if record.outcome == "unfinished" or total <= 0:
            return None
        bucket = bucket_of(total)
        self.total[bucket] += total * record.weight
        named = sum(one.ns for one in awaits if one.stage == "awaiting")
        self.unnamed[bucket] += max(0, awaiting_ns - named) * record.weight
        return bucket

    def merge(self, other: NearTally) -> None:
        """Add ``other``."""
        self.total.update(other.total)
        self.unnamed.update(other.unnamed)
        self.run_unseen.update(other.run_unseen)

    def share(self, per_bucket: Mapping[int, int], near: Collection[int]) -> float | None:
        """What share of the time of the calls in ``near`` is in ``per_bucket``; ``None`` if nobody looked at any."""
        total = sum(self.total[bucket] for bucket in near)
        return min(1.0, sum(per_bucket.get(bucket, 0) for bucket in near) / total) if total else None


@dataclass(slots=True)
class AwaitsTally:
    """All awaits of one operation. ``looked`` calls could be named at all."""

    rows: dict[RowKey, AwaitTally] = field(default_factory=dict)
    looked: int = 0
    awaiting_ns: int = 0
    near: NearTally = field(default_factory=NearTally)
    serial: SerialTally = field(default_factory=SerialTally)
    run_calls: int = 0  # whose jobs were looked at
    run_looked_ns: int = 0  # of their jobs
    run_unseen_ns: int = 0  # of the jobs of other calls, and not named by hooks

    def add(self, record: RequestRecord) -> None:
        """Take one record in. Does nothing where nobody looked."""
        if record.awaits is None or record.budget.awaiting is None:
            return
        self.looked += record.weight
        self.awaiting_ns += record.budget.awaiting * record.weight
        bucket = self.near.add(record, record.budget.awaiting, record.awaits)
        for one in record.awaits:
            self.of(one).add(one, record.weight, bucket)
        self.serial.add(record, record.awaits)
        hooked = sum(one.ns for one in record.awaits if one.stage == "executor_run" and not one.looks)
        run_ns = max(0, (record.budget.executor_run or 0) - hooked)
        if record.jobs_looked:
            self.run_calls += 1
            self.run_looked_ns += run_ns
        else:
            self.run_unseen_ns += run_ns * record.weight
            if bucket is not None:
                self.near.run_unseen[bucket] += run_ns * record.weight

    def of(self, one: Await) -> AwaitTally:
        """The row that ``one`` counts in."""
        return self._row((one.kind, one.object, one.where, one.stage, one.phase))

    def _row(self, key: RowKey) -> AwaitTally:
        if key not in self.rows and len(self.rows) >= MAX_ROWS:
            key = ("other", OTHER, None, key[3], None)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = AwaitTally(*key)
        return row

    def merge(self, other: AwaitsTally) -> None:
        """Add ``other``."""
        self.looked += other.looked
        self.awaiting_ns += other.awaiting_ns
        self.near.merge(other.near)
        self.serial.merge(other.serial)
        self.run_calls += other.run_calls
        self.run_looked_ns += other.run_looked_ns
        self.run_unseen_ns += other.run_unseen_ns
        for key, tally in other.rows.items():
            self._row(key).merge(tally)

    def summary(self, near: Collection[int] = ()) -> tuple[AwaitSummary, ...]:
        """Rows, the longest in sum first. ``near``: buckets of the totals of calls near p95.

        Suspensions that nobody looked at are divided by share of looks, and jobs as those were that somebody looked at,
        if there were enough.
        """
        looks = self._looks
        unseen = self.near.share(self.near.unnamed, near) or 0.0
        run_unseen = self.near.share(self.near.run_unseen, near) or 0.0
        rows = []
        for row in self.rows.values():
            share = self.near.share(row.per_bucket, near)
            if row.stage == "awaiting" and looks >= LEAST_LOOKS and row.looks:
                share = None if share is None else share + unseen * row.looks / looks
                rows.append(row.summary(share, self._unseen_ns, share_of(row.looks, looks)))
            elif row.stage == "executor_run" and self.run_calls >= LEAST_LOOKS and row.looks and self.run_looked_ns:
                of_run = min(1.0, row.looked_ns / self.run_looked_ns)
                share = None if share is None else share + run_unseen * of_run
                rows.append(row.summary(share, self.run_unseen_ns, share_of(of_run * self.run_calls, self.run_calls)))
            else:
                rows.append(row.summary(share))
        return tuple(sorted(rows, key=lambda row: (-row.total_ms, row.object)))

    def unnamed_share(self, near: Collection[int]) -> float | None:
        """Of the time of the calls near p95: awaiting that nothing named; ``None`` where nobody looked."""
        found = self.near.share(self.near.unnamed, near)
        return found if found is None or self._looks < LEAST_LOOKS else 0.0

    def looked_shares(self) -> dict[tuple[AwaitStage, AwaitKind, str], float]:
        """Of suspensions, and of jobs, that nobody looked at: the share of each await, if there were enough looks."""
        found: dict[tuple[AwaitStage, AwaitKind, str], float] = {}
        for row in self.rows.values():
            share = 0.0
            if row.stage == "awaiting" and self._looks >= LEAST_LOOKS:
                share = row.looks / self._looks
            elif row.stage == "executor_run" and self.run_calls >= LEAST_LOOKS and row.looks and self.run_looked_ns:
                share = min(1.0, row.looked_ns / self.run_looked_ns)
            if share:
                key = row.stage, row.kind, row.object
                found[key] = found.get(key, 0.0) + share
        return found

    @property
    def _looks(self) -> int:
        return sum(row.looks for row in self.rows.values() if row.stage == "awaiting")

    @property
    def _unseen_ns(self) -> int:
        named = sum(row.total_ns for row in self.rows.values() if row.stage == "awaiting")
        return max(0, self.awaiting_ns - named)

    @property
    def unnamed_ms(self) -> float | None:
        """Awaiting that nothing named, over the window; ``None`` where nobody looked."""
        if not self.looked:
            return None
        return 0.0 if self._looks >= LEAST_LOOKS else self._unseen_ns / 1e6


def held_rows(operations: Iterable[OperationSummary]) -> tuple[BlockedBy, ...]:
    """Who waited for whom because of what that one held; the longest first. A holder that nobody saw has no row."""
    found: dict[tuple[str, str, str, str, str | None], BlockedBy] = {}
    for operation in operations:
        for one in operation.awaits:
            for holder in one.holders:
                if holder.operation == UNKNOWN_HOLDER:
                    continue
                key = (operation.name, holder.operation, one.kind, one.object, holder.where)
                known = found.get(key)
                calls, ms, tags = (
                    (0, 0.0, [holder.quality])
                    if known is None
                    else (known.victims, known.lo_ms, [known.quality, holder.quality])
                )
                ms += holder.ms
                found[key] = BlockedBy(
                    *(operation.name, holder.operation, calls + holder.calls, ms, ms, worst(tags)),
                    *(one.kind, one.object, holder.where),
                )
    return tuple(sorted(found.values(), key=lambda row: (-row.lo_ms, row.victim, row.blocker)))


# --- what held the holders up ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiter:
    """A call some of whose awaits have holders."""

    method: str
    operation: str
    awaits: tuple[Await, ...]
    weight: int


@dataclass(frozen=True, slots=True)
class _Trace:
    """What a request that held something may have waited for meanwhile."""

    at_ns: int
    request: int
    operation: str
    method: str
    loop: int | None
    waits: Sequence[Wait]  # by their beginning
    awaits: tuple[Await, ...]


class Traces:
    """The latest requests, by id: those that may turn out to have held what others awaited. Bounded."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[int, _Trace] = OrderedDict()

    def add(self, record: RequestRecord) -> None:
        """Remember ``record`` if it waited for anything."""
        if not record.waits and not record.awaits:
            return
        name = record.name or record.method
        waits = sorted(record.waits, key=_earliest)
        trace = _Trace(record.end_ns, record.id, name, record.method, record.loop, waits, record.awaits or ())
        self._by_id[record.id] = trace
        while len(self._by_id) > MAX_TRACES or next(iter(self._by_id.values())).at_ns < record.end_ns - TRACE_NS:
            self._by_id.popitem(last=False)

    def roots(self, part: HolderPart, steps: StepIndex, polls: PollIndex) -> dict[AwaitKey, float]:
        """What the holder waited for in ``part``: (kind, name, where) -> ns of the waiter's time."""
        trace = self._by_id.get(part.request)
        if trace is None:
            return {}
        a, b = part.from_ns, part.to_ns
        found: dict[AwaitKey, float] = {}
        before = takewhile(lambda wait: wait.earliest_ns < b, trace.waits)
        waits = tuple(_clipped(wait, a, b) for wait in before if wait.end_ns > a)
        if waits:
            victim = Victim(trace.request, trace.operation, trace.method, b - a, waits, trace.loop, None, True, True)
            for blocker, (lo, _) in blame(victim, steps, polls).rows.items():
                if lo and blocker != CROWDING_OPERATION:
                    found["blocked", blocker, steps.place(victim, blocker, a, b)] = lo / part.among
        for one in trace.awaits:
            overlap = min(one.to_ns, b) - max(one.from_ns, a)
            if one.count == 1 and overlap > 0:
                key = (one.kind, one.object, one.where)
                found[key] = found.get(key, 0.0) + min(overlap, one.ns) / part.among
        return found


def share_of(count: float, whole: int) -> tuple[float, float, float]:
    """(share, lo, hi) of ``count`` in ``whole`` draws; the interval has it with 95 % probability.

    Source: Wilson, Probable inference, the law of succession, and statistical inference (1927).
    """
    z = 1.96
    share = count / whole
    middle = (share + z * z / (2 * whole)) / (1 + z * z / whole)
    half = z * math.sqrt(share * (1 - share) / whole + z * z / (4 * whole * whole)) / (1 + z * z / whole)
    return share, min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def waiter_of(record: RequestRecord) -> Waiter | None:
    """``record`` as a waiter; ``None`` if nobody is known to have held what it awaited."""
    held = tuple(one for one in record.awaits or () if any(part.request for part in one.holders))
    return Waiter(record.method, record.name or record.method, held, record.weight) if held else None


def earliest_of(waiters: Iterable[Waiter]) -> int:
    """The first instant that any of them waited."""
    return min(one.from_ns for waiter in waiters for one in waiter.awaits)


def _most_at_once(one: Await) -> int:
    """While somebody waits for a lock or its kin, everything that it can give is held. 0: nobody knows who holds it."""
    return max((part.among for part in one.holders if part.operation != UNKNOWN_HOLDER), default=0)


def _share(part: HolderPart) -> float:
    return (part.to_ns - part.from_ns) / part.among


def _earliest(wait: Wait) -> int:
    return wait.earliest_ns


def _clipped(wait: Wait, a: int, b: int) -> Wait:
    start, end = max(wait.start_ns, a), min(wait.end_ns, b)
    return Wait(max(wait.earliest_ns, a), min(start, end), end, wait.stage)
