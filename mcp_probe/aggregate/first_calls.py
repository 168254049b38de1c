"""What the first calls of an operation cost, beside the calls that came after them.

The *first calls* of an operation are those that came before any call of it had ended. Only work of their own counts:
the event loop, threads that work, and what they await outside (connections, programs, backends). What somebody else
may have caused does not count: waits for the loop, for a CPU, the GIL, the collector, a thread, a lock, an event, a
sleep or the client. So a call that waits for another call's start, or for the server's, has no part in the cost.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace

from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.aggregate.slow_steps import IMPORT
from mcp_probe.model import AwaitKind, Cause, FirstCall, FirstCalls, RequestGroup, RequestRecord, StepRecord
from mcp_probe.record.sampling import NEVER_NS

MAX_OPERATIONS = 200
MAX_FIRST = 64
"""First calls kept of an operation."""

MAX_TOLD = 16
MAX_STEPS = 1024
"""Requests whose slow steps are remembered until their record comes, or after it."""

RECENT = 512
FRESH_NS = 10_000_000_000
"""Calls that came this long after the end of a first call do not tell what ran beside it."""

OUTSIDE: frozenset[AwaitKind] = frozenset({"connect", "http", "db", "subprocess"})
_NOT_ITS_OWN: frozenset[Cause] = frozenset({"gil", "run-queue"})

FirstKey = tuple[str, str]
"""(method, name)"""


@dataclass(slots=True)
class _Steps:
    """The slow steps of one request."""

    foreign_ns: int = 0  # they waited for a CPU or the GIL
    imports: tuple[str, ...] = ()
    longest_ns: int = 0
    what: str | None = None
    where: str | None = None

    def add(self, step: StepRecord) -> None:
        long = step.end_ns - step.start_ns
        if step.cause in _NOT_ITS_OWN:
            self.foreign_ns += long
            return
        self.foreign_ns += step.run_queue_ns or 0
        if step.library is not None and step.library.startswith(IMPORT) and step.library not in self.imports:
            self.imports = (*self.imports, step.library)
        if long > self.longest_ns:
            self.longest_ns, self.what = long, step.library
            self.where = None if step.file is None or step.line is None else f"{step.file}:{step.line}"


@dataclass(slots=True, order=True)
class _Call:
    """One of the first calls."""

    arrival_ns: int
    id: int
    end_ns: int = field(compare=False)
    total_ns: int | None = field(compare=False)  # None: it is in no percentile
    loop_ns: int | None = field(compare=False)  # busy; None: nobody knows what it did
    shared_ns: int = field(compare=False)  # of threads and of what it awaited outside
    what: str | None = field(compare=False)
    where: str | None = field(compare=False)
    longest_ns: int = field(compare=False)
    beside: int = field(default=0, compare=False)  # requests that were in flight with it

    def told(self, steps: _Steps) -> FirstCall | None:
        """``None`` where it is not known what it did."""
        if self.loop_ns is None:
            return None
        loop_ns = max(0, self.loop_ns - steps.foreign_ns)
        own = self.longest_ns >= steps.longest_ns
        return FirstCall(
            own_ms=(loop_ns + self.shared_ns) / 1e6,
            # Threads that compute, and a backend, may take as much longer as there are others beside it.
            alone_ms=(loop_ns + self.shared_ns / (1 + self.beside)) / 1e6,
            imports=tuple(library.removeprefix(IMPORT) for library in steps.imports),
            what=self.what if own else steps.what,
            where=self.where if own else steps.where,
        )


@dataclass(slots=True)
class _Operation:
    """The first calls of one operation in one process, and the most that a later one took."""

    calls: list[_Call] = field(default_factory=list)  # by arrival
    first_end_ns: int = NEVER_NS
    unrecorded_ns: int = NEVER_NS  # the earliest arrival of those without a record
    warm_max_ns: int = 0
    warm_known: int = 0  # later calls whose work is known

    def add(self, record: RequestRecord) -> _Call | None:
        """Returns the call if, so far, it is one of the first."""
        if record.arrival_ns >= self.first_end_ns:
            self._warm(record)
            return None
        call = _call_of(record)
        insort(self.calls, call)
        self.first_end_ns = min(self.first_end_ns, call.end_ns)
        while self.calls and self.calls[-1].arrival_ns >= self.first_end_ns:
            later = self.calls.pop()
            self._worked(later)
        del self.calls[MAX_FIRST:]
        return call

    def _warm(self, record: RequestRecord) -> None:
        self.warm_known += _is_known(record) and (record.jobs_looked or not record.budget.executor_run)
        if record.end_ns - record.arrival_ns > self.warm_max_ns:
            self._worked(_call_of(record))

    def _worked(self, call: _Call) -> None:
        self.warm_max_ns = max(self.warm_max_ns, (call.loop_ns or 0) + call.shared_ns)


class FirstCallsTally:
    """The first calls of all operations of a stream. Merged with another process's, the dearer ones stay."""

    def __init__(self) -> None:
        self._by_key: dict[FirstKey, _Operation] = {}
        self._steps: OrderedDict[int, _Steps] = OrderedDict()
        self._recent: deque[tuple[int, int, int]] = deque(maxlen=RECENT)
        self._fresh: deque[_Call] = deque(maxlen=MAX_FIRST)
        self._others: dict[FirstKey, list[tuple[FirstCalls, Buckets]]] = {}

    def add(self, record: RequestRecord) -> None:
        """One call. Order does not matter, but for what ran beside it: calls should come about as they end."""
        arrival, end = record.arrival_ns, record.end_ns
        while self._fresh and self._fresh[0].end_ns + FRESH_NS < arrival:
            self._fresh.popleft()
        for other in self._fresh:
            if arrival < other.end_ns and end > other.arrival_ns:
                other.beside += record.weight
        operation = self._of((record.method, record.name or record.method))
        call = None if operation is None else operation.add(record)
        if call is not None:
            call.beside = sum(n for since, until, n in self._recent if since < call.end_ns and until > call.arrival_ns)
            self._fresh.append(call)
        self._recent.append((arrival, end, record.weight))

    def add_group(self, group: RequestGroup) -> None:
        """Calls without a record."""
        for call in self._fresh:
            if group.first_ns < call.end_ns and group.last_ns > call.arrival_ns:
                call.beside += group.count
        operation = self._of((group.method, group.name or group.method))
        if operation is not None:
            operation.unrecorded_ns = min(operation.unrecorded_ns, group.first_ns)

    @property
    def answered_ns(self) -> int | None:
        """When the first call of all had ended, at the latest; ``None`` where none has."""
        ends = (min(one.first_end_ns, one.unrecorded_ns) for one in self._by_key.values())
        first = min(ends, default=NEVER_NS)
        return None if first == NEVER_NS else first

    def add_step(self, step: StepRecord) -> None:
        """One step; only those that were looked into say anything."""
        if step.cause is None:
            return
        for request in (step.request, *step.within):
            steps = self._steps.get(request)
            if steps is None:
                if len(self._steps) >= MAX_STEPS:
                    self._forget()
                steps = self._steps[request] = _Steps()
            steps.add(step)

    def _forget(self) -> None:
        """The older half of the steps, but for those of first calls."""
        first = {call.id for operation in self._by_key.values() for call in operation.calls}
        for request in list(self._steps)[: MAX_STEPS // 2]:
            if request not in first:
                del self._steps[request]
        while len(self._steps) >= MAX_STEPS:
            self._steps.popitem(last=False)

    def _of(self, key: FirstKey) -> _Operation | None:
        operation = self._by_key.get(key)
        if operation is None and len(self._by_key) < MAX_OPERATIONS:
            operation = self._by_key[key] = _Operation()
        return operation

    def merge(self, other: FirstCallsTally) -> None:
        """Add ``other``, which stays as it is."""
        for key, operation in other._by_key.items():
            if (told := other._told(operation)) is not None:
                self._others.setdefault(key, []).append(told)
        for key, rows in other._others.items():
            self._others.setdefault(key, []).extend(rows)

    def _told(self, operation: _Operation) -> tuple[FirstCalls, Buckets] | None:
        calls = operation.calls
        if not calls or operation.unrecorded_ns <= calls[0].arrival_ns:
            return None
        found = [told for call in calls if (told := call.told(self._steps.get(call.id, _Steps()))) is not None]
        if not found:
            return None
        found.sort(key=lambda call: -call.own_ms)
        totals = Buckets()
        for call in calls:
            if call.total_ns is not None:
                totals.add(call.total_ns)
        kept = FirstCalls(
            tuple(found[:MAX_TOLD]), len(calls), 0, None, operation.warm_max_ns / 1e6, operation.warm_known
        )
        return kept, totals

    def summary(self, key: FirstKey, totals: Buckets) -> FirstCalls | None:
        """The dearest first calls of one process; ``totals`` are of all calls of the operation."""
        rows = self._others.get(key)
        if not rows:
            return None
        warm = Buckets()
        warm.merge(totals)
        for _, first in rows:
            warm.take_out(first)
        dearest, _ = max(rows, key=lambda row: row[0].calls[0].own_ms)
        p50, most = warm.quantile(0.5), max(row.warm_max_ms for row, _ in rows)
        return replace(
            dearest,
            warm=warm.count,
            warm_p50_ms=None if p50 is None else p50 / 1e6,
            warm_max_ms=most,
            warm_known=sum(row.warm_known for row, _ in rows),
        )


def _is_known(record: RequestRecord) -> bool:
    """Whether its time on the loop and its awaits were seen."""
    seen = record.awaits is not None and record.budget.busy is not None
    return seen and record.outcome == "ok" and not record.partial


def _call_of(record: RequestRecord) -> _Call:
    awaits, budget = record.awaits, record.budget
    finished = record.outcome != "unfinished"
    shared, longest, what, where = 0, 0, None, None
    for one in awaits or ():
        if one.stage == "awaiting" and one.kind in OUTSIDE:
            shared += one.ns
            if one.ns > longest:
                longest, what, where = one.ns, f"{one.kind} {one.object}", one.where
    if record.jobs_looked:
        foreign = sum(one.ns for one in awaits or () if one.stage == "executor_run" and one.kind not in OUTSIDE)
        shared += max(0, (budget.executor_run or 0) - foreign)
    return _Call(
        record.arrival_ns,
        record.id,
        record.end_ns if finished else NEVER_NS,
        record.end_ns - record.arrival_ns if finished else None,
        budget.busy if _is_known(record) else None,
        shared,
        what,
        where,
        longest,
    )
