"""One row per operation: counts, total time, mean budget, and how exact each of these is.

What enters which number:

- ``count`` is every call, finished or not. ``unfinished`` calls have no total yet. They are left out of p50,
  p95 and p99, because a call in flight at a snapshot would make its tool look fast. They raise ``max`` if
  they are already older; ``quality["total_ms"]`` then says ``lower``.
- A budget part's mean is over the calls that could see the part. Unfinished calls are included, because the
  report must show what a hung call waits for. ``None`` if no call could see the part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from operator import add, attrgetter

from mcp_probe.aggregate.awaiting import AwaitsTally, Traces, Waiter
from mcp_probe.aggregate.blocking import OTHER, Blame, Matrix, PollIndex, StepIndex, Victim
from mcp_probe.aggregate.bounded import Bounded, earlier_ns, is_open, seen_in
from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.aggregate.first_calls import FirstCallsTally
from mcp_probe.aggregate.grown import GrownTally, leaves_of
from mcp_probe.aggregate.job_lines import JobLinesTally
from mcp_probe.aggregate.measured import MeasuresTally
from mcp_probe.aggregate.memory_use import MemoryTally
from mcp_probe.aggregate.quality import worst
from mcp_probe.aggregate.slow_steps import SlowSteps
from mcp_probe.histogram import bucket_of
from mcp_probe.model import (
    ALL_SEEN,
    BUDGET_PARTS,
    CAPABILITIES,
    STEPS,
    WAKE_UPS,
    BudgetMeans,
    OpenRequest,
    OperationSummary,
    Percentiles,
    Quality,
    RequestGroup,
    RequestKind,
    RequestRecord,
    SlowCalls,
    StepStats,
    Tag,
    WriteMeans,
)

MAX_OPERATIONS = 200
"""Operation names counted separately; calls of further ones are counted under ``other``."""

LEAST_CALLS = 10
"""Calls of an operation from which its slow ones are told from its quick ones."""

OperationKey = tuple[str, str]
"""(method, name)"""

QualityRow = tuple[str, Tag, int | None, int | None]

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

ESTIMATED = (
    "waited_for_others_ms",
    "waited_for_others_p95_share",
    "crowding_ms",
    "crowding_p95_share",
    "steps",
    "detached_ms",
    "client_wait_ms",
    "decode_ms",
    "encode_ms",
    "write_flush_p95_ms",
    "executor_run_sum_ms",
)
"""Figures that are summed by weights if not every call has a record."""

_values_of = attrgetter(*BUDGET_PARTS)
_INDEX = {name: index for index, name in enumerate(BUDGET_PARTS)}


@dataclass(slots=True)
class PartTally:
    """One budget part over the calls that could see it."""

    count: int = 0
    sum_ns: int = 0
    lo_ns: int = 0
    hi_ns: int = 0
    tag: Tag = "exact"
    has_lo: bool = True
    has_hi: bool = True
    unseen: int = 0

    def add(self, ns: int | None, row: QualityRow | None, weight: int = 1) -> None:
        """One call's value; ``row`` says how exact it is, ``None`` = exact."""
        if ns is None:
            self.unseen += weight
            return
        self.count += weight
        self.sum_ns += ns * weight
        if row is None:
            self.lo_ns += ns * weight
            self.hi_ns += ns * weight
            return
        _, tag, lo, hi = row
        self.tag = worst((self.tag, tag))
        if lo is None and tag == "lower":
            lo = ns
        if hi is None and tag == "upper":
            hi = ns
        self.has_lo = self.has_lo and lo is not None
        self.has_hi = self.has_hi and hi is not None
        self.lo_ns += (lo or 0) * weight
        self.hi_ns += (hi or 0) * weight

    def merge(self, other: PartTally) -> None:
        """Add ``other``."""
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.lo_ns += other.lo_ns
        self.hi_ns += other.hi_ns
        self.tag = worst((self.tag, other.tag))
        self.has_lo = self.has_lo and other.has_lo
        self.has_hi = self.has_hi and other.has_hi
        self.unseen += other.unseen

    @property
    def mean_ms(self) -> float | None:
        """Mean over the calls that could see it."""
        return self.sum_ns / self.count / 1e6 if self.count else None

    @property
    def quality(self) -> Quality | None:
        """``None`` where it is exact; the bounds are means like the value."""
        if not self.count:
            return Quality("unavailable") if self.unseen else None
        if self.tag == "exact":
            return None
        lo = self.lo_ns / self.count / 1e6 if self.has_lo else None
        hi = self.hi_ns / self.count / 1e6 if self.has_hi else None
        return Quality(self.tag, lo, hi)


@dataclass(slots=True)
class WaitedTally:
    """What clients waited for all calls of an operation together. Merging is addition."""

    lo_ns: int = 0
    hi_ns: int = 0  # as if each had come as early as it may have
    is_open: bool = False  # of one of them there is no upper bound
    is_upper: bool = False  # the client of one of them may have given up, and nobody saw it

    def add(self, lo_ns: int, hi_ns: int, *, is_open: bool = False, is_upper: bool = False) -> None:
        """One or more calls."""
        self.lo_ns += lo_ns
        self.hi_ns += hi_ns
        self.is_open |= is_open
        self.is_upper |= is_upper

    def merge(self, other: WaitedTally) -> None:
        """Add ``other``."""
        self.add(other.lo_ns, other.hi_ns, is_open=other.is_open, is_upper=other.is_upper)

    def quality(self) -> Quality | None:
        """``None`` where it is exact."""
        lo, hi = self.lo_ns / 1e6, None if self.is_open else self.hi_ns / 1e6
        if self.is_upper:
            return Quality("estimate" if self.is_open else "upper", None, hi)
        if self.is_open:
            return Quality("lower", lo)
        return Quality("bounded", lo, hi) if self.hi_ns > self.lo_ns else None


@dataclass(slots=True)
class MeanTally:
    """A figure that some calls report."""

    count: int = 0
    sum_ns: int = 0

    def add(self, ns: int | None, weight: int = 1) -> None:
        """One call's value; ``None`` = it has none."""
        if ns is not None:
            self.count += weight
            self.sum_ns += ns * weight

    def merge(self, other: MeanTally) -> None:
        """Add ``other``."""
        self.count += other.count
        self.sum_ns += other.sum_ns

    @property
    def mean_ms(self) -> float | None:
        """Mean over the calls that reported it."""
        return self.sum_ns / self.count / 1e6 if self.count else None


def _parts() -> list[PartTally]:
    return [PartTally() for _ in BUDGET_PARTS]


@dataclass(slots=True)
class OperationTally:
    """Everything the records and groups of one operation sum up to. Merging is addition.

    Whole budgets are summed in ``exact_sums``; :meth:`settle` moves these sums into ``parts``.
    """

    method: str
    name: str
    kind: RequestKind
    count: int = 0
    errors: int = 0
    cancelled: int = 0
    unfinished: int = 0
    seen: int = ALL_SEEN  # what could be seen of every call
    unrecorded: int = 0  # of ``count``, those that have no record
    estimated: bool = False  # some records stand for others, too: their sums are estimates
    totals: Bounded = field(default_factory=Bounded)
    waited_per_bucket: Counter[int] = field(default_factory=Counter)  # bucket of total -> ns behind other requests
    crowded_per_bucket: Counter[int] = field(default_factory=Counter)  # the same, ns behind many small steps
    waited: WaitedTally = field(default_factory=WaitedTally)
    finished_max_ns: int = 0
    finished_longest_ns: int = 0  # as if each had come as early as it may have
    unfinished_max_ns: int = 0
    parts: list[PartTally] = field(default_factory=_parts)
    exact_count: int = 0  # calls summed as if every part were exact; these sums are not in ``parts`` yet
    exact_sums: list[int] = field(default_factory=lambda: [0] * len(BUDGET_PARTS))
    records: int = 0  # calls that the records stand for
    steps: int = 0
    immediate: int = 0
    step_max_ns: int = 0
    waited_ns: int = 0
    crowding_lo_ns: int = 0
    crowding_hi_ns: int = 0
    blame_clipped: bool = False
    detached_ns: int = 0
    executor_run_sum_ns: int = 0
    client_wait: MeanTally = field(default_factory=MeanTally)
    decode: MeanTally = field(default_factory=MeanTally)
    encode: MeanTally = field(default_factory=MeanTally)
    write_flush: Buckets = field(default_factory=Buckets)
    pipe_wait: Buckets = field(default_factory=Buckets)
    pipe_wait_max_ns: int = 0
    pipe_wait_tag: Tag = "exact"
    request_bytes_max: int | None = None
    response_bytes_max: int | None = None
    gc_share_max: float = 0.0
    partial: int = 0
    tasks_max: int = 0
    memory: MemoryTally = field(default_factory=MemoryTally)
    measures: MeasuresTally = field(default_factory=MeasuresTally)
    awaits: AwaitsTally = field(default_factory=AwaitsTally)
    grown: GrownTally = field(default_factory=GrownTally)
    job_lines: JobLinesTally = field(default_factory=JobLinesTally)
    write_ns: list[int] = field(default_factory=lambda: [0] * len(fields(WriteMeans)))

    def add(self, record: RequestRecord) -> None:
        """Take one record in; its blame follows through :meth:`add_blame` once its blockers are known."""
        weight = record.weight
        self._count(record)
        self.seen &= seen_in(record)
        self.records += weight
        self.estimated = self.estimated or weight > 1
        if record.memory is not None:
            self.memory.add(record.memory, weight)
        if record.measures:
            self.measures.add(record.measures, weight)
        self.awaits.add(record)
        self.grown.add(record)
        self.job_lines.add(record)
        self._add_budget(record, weight)
        if record.sent_ns is not None:
            self._add_pipe_wait(record.sent_ns, record)
        if record.result_ns is not None and (record.waits or record.starved):
            self._add_write(record.result_ns, record)
        self.steps += record.steps * weight
        self.immediate += record.immediate_resumes * weight
        self.detached_ns += record.detached_ns * weight
        self.executor_run_sum_ns += record.executor_run_sum_ns * weight
        self.client_wait.add(record.client_wait_ns, weight)
        self.decode.add(record.decode_ns, weight)
        self.encode.add(record.encode_ns, weight)
        self.partial += record.partial
        if record.step_max_ns > self.step_max_ns:
            self.step_max_ns = record.step_max_ns
        if record.tasks_peak > self.tasks_max:
            self.tasks_max = record.tasks_peak
        if record.request_bytes is not None and record.request_bytes > (self.request_bytes_max or -1):
            self.request_bytes_max = record.request_bytes
        if record.response_bytes is not None and record.response_bytes > (self.response_bytes_max or -1):
            self.response_bytes_max = record.response_bytes

    def _add_budget(self, record: RequestRecord, weight: int) -> None:
        budget = record.budget
        values = _values_of(budget)
        if record.quality and not self._add_bounds(values, record.quality, weight):
            rows = {row[0]: row for row in record.quality}
            for name, part, value in zip(BUDGET_PARTS, self.parts, values, strict=True):
                part.add(value, rows.get(name), weight)
        else:
            if None in values:
                self._note_unseen(values, weight)
                values = tuple(value or 0 for value in values)
            if weight > 1:
                values = tuple(value * weight for value in values)
            self.exact_count += weight
            self.exact_sums = list(map(add, self.exact_sums, values))
        if budget.write_flush is not None and record.outcome != "unfinished":
            self.write_flush.add(budget.write_flush, weight)

    def add_group(self, group: RequestGroup) -> None:
        """Calls that have no record."""
        self.count += group.count
        self.unrecorded += group.count
        self.seen &= group.seen
        self.errors += group.count if group.outcome in ("error", "tool_error") else 0
        self.cancelled += group.count if group.outcome == "cancelled" else 0
        may_be_longer = is_open(group.kind, group.seen, group.outcome)
        self.totals.add_group(group.durations, group.longest, is_open=may_be_longer)
        lo, hi = (sum(ns for _, _, ns in rows) for rows in (group.durations, group.longest or group.durations))
        self.waited.add(lo, hi, is_open=may_be_longer)
        self.finished_max_ns = max(self.finished_max_ns, group.max_ns)
        self.finished_longest_ns = max(self.finished_longest_ns, group.max_longest_ns)

    def _add_pipe_wait(self, sent_ns: int, record: RequestRecord) -> None:
        """The time from the client's write to the arrival; if no arrival was seen, it includes the queue."""
        waited = max(0, record.arrival_ns - sent_ns)
        self.pipe_wait.add(waited, record.weight)
        self.pipe_wait_max_ns = max(self.pipe_wait_max_ns, waited)
        if record.budget.queue_transport is None:
            self.pipe_wait_tag = "upper"

    def _add_write(self, result_ns: int, record: RequestRecord) -> None:
        """What its writer waited for until it took the answer, and from then on."""
        taken = result_ns + (record.budget.write_wait or 0)
        waits = [(wait.start_ns, wait.end_ns, 0) for wait in record.waits if wait.stage == "write"]
        waits += [(start, end, 1) for stage, start, end, _, _ in record.starved if stage == "write"]
        for start, end, which in waits:
            start, end = max(start, result_ns), min(end, record.end_ns)
            before = max(0, min(end, taken) - start)
            self.write_ns[which] += before * record.weight
            self.write_ns[2 + which] += (max(0, end - start) - before) * record.weight

    def _count(self, record: RequestRecord) -> None:
        total = max(0, record.end_ns - record.arrival_ns)
        longest = total if not record.quality else total + earlier_ns(record)
        may_be_longer = is_open(record.kind, seen_in(record), record.outcome)
        waited = total if record.gone_ns is None else max(0, min(record.gone_ns, record.end_ns) - record.arrival_ns)
        if record.outcome == "unfinished":
            self.add_unfinished(total)
            self.waited.add(waited, waited + longest - total, is_upper=record.gone_ns is None)
            return
        self.waited.add(waited, waited + longest - total, is_open=may_be_longer)
        self.count += 1
        self.errors += record.outcome in ("error", "tool_error")
        self.cancelled += record.outcome == "cancelled"
        self.totals.add(total, longest, is_open=may_be_longer)
        self.finished_max_ns = max(self.finished_max_ns, total)
        self.finished_longest_ns = max(self.finished_longest_ns, longest)

    def add_unfinished(self, age_ns: int) -> None:
        """A call that was never seen to end; it is at least ``age_ns`` long."""
        self.count += 1
        self.unfinished += 1
        self.unfinished_max_ns = max(self.unfinished_max_ns, age_ns)

    def add_blame(self, victim: Victim, found: Blame) -> None:
        """What one call of this operation waited for."""
        waited = found.others_ns * victim.weight
        self.waited_ns += waited
        lo, hi = (ns * victim.weight for ns in found.crowding_ns)
        self.crowding_lo_ns += lo
        self.crowding_hi_ns += hi
        self.blame_clipped = self.blame_clipped or found.clipped
        if victim.finished:
            bucket = bucket_of(victim.total_ns)
            self.waited_per_bucket[bucket] += waited
            self.crowded_per_bucket[bucket] += lo
            self.grown.add_blame(bucket, found.rows, victim.weight)

    def _add_bounds(self, values: tuple[int | None, ...], rows: tuple[QualityRow, ...], weight: int) -> bool:
        """Note how far the bounds are from the values, which are summed as if exact; False if a bound is missing."""
        if any(values[_INDEX[name]] is not None and (lo is None or hi is None) for name, _, lo, hi in rows):
            return False
        for name, tag, lo, hi in rows:
            index = _INDEX[name]
            part, value = self.parts[index], values[index]
            if value is not None:
                if part.tag != tag:
                    part.tag = worst((part.tag, tag))
                part.lo_ns += ((lo or 0) - value) * weight
                part.hi_ns += ((hi or 0) - value) * weight
        return True

    def _note_unseen(self, values: tuple[int | None, ...], weight: int) -> None:
        for part, value in zip(self.parts, values, strict=True):
            if value is None:
                part.unseen += weight
                part.count -= weight  # ``settle`` adds all of ``exact_count``, this call included

    def settle(self) -> None:
        """Move the sums over whole budgets into ``parts``."""
        for part, total in zip(self.parts, self.exact_sums, strict=True):
            part.count += self.exact_count
            part.sum_ns += total
            part.lo_ns += total
            part.hi_ns += total
        self.exact_count = 0
        self.exact_sums = [0] * len(BUDGET_PARTS)

    def merge(self, other: OperationTally) -> None:
        """Add ``other``, which is settled and says the same afterwards."""
        self.settle()
        other.settle()
        self._merge_sums(other)
        self.waited.merge(other.waited)
        self.totals.merge(other.totals)
        self.write_flush.merge(other.write_flush)
        self.pipe_wait.merge(other.pipe_wait)
        self.pipe_wait_max_ns = max(self.pipe_wait_max_ns, other.pipe_wait_max_ns)
        self.pipe_wait_tag = worst((self.pipe_wait_tag, other.pipe_wait_tag))
        self.waited_per_bucket.update(other.waited_per_bucket)
        self.crowded_per_bucket.update(other.crowded_per_bucket)
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            mine.merge(theirs)
        self.client_wait.merge(other.client_wait)
        self.decode.merge(other.decode)
        self.encode.merge(other.encode)
        self.finished_max_ns = max(self.finished_max_ns, other.finished_max_ns)
        self.finished_longest_ns = max(self.finished_longest_ns, other.finished_longest_ns)
        self.unfinished_max_ns = max(self.unfinished_max_ns, other.unfinished_max_ns)
        self.step_max_ns = max(self.step_max_ns, other.step_max_ns)
        self.tasks_max = max(self.tasks_max, other.tasks_max)
        self.request_bytes_max = larger(self.request_bytes_max, other.request_bytes_max)
        self.response_bytes_max = larger(self.response_bytes_max, other.response_bytes_max)
        self.memory.merge(other.memory)
        self.measures.merge(other.measures)
        self.awaits.merge(other.awaits)
        self.grown.merge(other.grown)
        self.job_lines.merge(other.job_lines)
        self.write_ns = list(map(add, self.write_ns, other.write_ns))

    def _merge_sums(self, other: OperationTally) -> None:
        self.count += other.count
        self.errors += other.errors
        self.cancelled += other.cancelled
        self.unfinished += other.unfinished
        self.records += other.records
        self.seen &= other.seen
        self.unrecorded += other.unrecorded
        self.estimated = self.estimated or other.estimated
        self.steps += other.steps
        self.immediate += other.immediate
        self.waited_ns += other.waited_ns
        self.crowding_lo_ns += other.crowding_lo_ns
        self.crowding_hi_ns += other.crowding_hi_ns
        self.blame_clipped = self.blame_clipped or other.blame_clipped
        self.detached_ns += other.detached_ns
        self.executor_run_sum_ns += other.executor_run_sum_ns
        self.partial += other.partial

    def total_ms(self) -> Percentiles:
        """See the module's text for what unfinished calls do to it."""
        p50, p95, p99 = (self.totals.least.quantile(q) for q in QUANTILES.values())
        longest = max(self.finished_max_ns, self.unfinished_max_ns)
        return Percentiles(_ms(p50), _ms(p95), _ms(p99), longest / 1e6 if self.count else None)

    def pipe_wait_ms(self) -> Percentiles:
        """Percentiles over the calls that tell when their client wrote them."""
        p50, p95, p99 = (self.pipe_wait.quantile(q) for q in (0.5, 0.95, 0.99))
        return Percentiles(_ms(p50), _ms(p95), _ms(p99), self.pipe_wait_max_ns / 1e6 if self.pipe_wait.rows else None)

    def share_near_p95(self, lost_per_bucket: Counter[int]) -> float | None:
        """The share of the time of the calls between p90 and p99 that was certainly lost in this way."""
        near = self.near_p95()
        total = sum(self.totals.least.rows[bucket][1] for bucket in near)
        lost = sum(lost_per_bucket[bucket] for bucket in near)
        return min(1.0, lost / total) if total else None

    def near_p95(self) -> list[int]:
        """The buckets of the totals of calls between p90 and p99."""
        low, high = self.totals.least.bucket_at(0.90), self.totals.least.bucket_at(0.99)
        if low is None or high is None:
            return []
        return [bucket for bucket in self.totals.least.rows if low <= bucket <= high]

    def slow_calls(self) -> SlowCalls | None:
        """What the calls near p95 spent longer in than the quicker half; ``None`` where they are alike, or few."""
        half, high = self.totals.least.bucket_at(0.5), self.totals.least.bucket_at(0.95)
        if half is None or high is None or half >= high or self.records < LEAST_CALLS:
            return None
        quick = [bucket for bucket in self.totals.least.rows if bucket <= half]
        inexact = set(BUDGET_PARTS) if self.estimated else set(self.quality()) & set(BUDGET_PARTS)
        inexact |= {row.stage for row in self.awaits.rows.values() if row.looks}
        slow = [bucket for bucket in self.near_p95() if bucket > half]
        return self.grown.summary(quick, slow, self.awaits, leaves_of(inexact))

    def quality(self) -> dict[str, Quality]:
        """The quality of each number of the row that is not exact."""
        self.settle()
        found = {
            name: quality
            for name, part in zip(BUDGET_PARTS, self.parts, strict=True)
            if (quality := part.quality) is not None
        }
        found.update(self._total_quality())
        if self.kind != "notification" and (waited := self.waited.quality()) is not None:
            found["all_calls_ms"] = waited
        if not self.seen & STEPS:
            found.update(dict.fromkeys(("steps", "waited_for_others_ms", "crowding_ms"), Quality("unavailable")))
        if self.estimated:
            for name in (*BUDGET_PARTS, *ESTIMATED):
                if found.get(name, Quality("exact")).tag != "unavailable":
                    found[name] = Quality("estimate")
        if self.crowding_hi_ns > self.crowding_lo_ns and "crowding_ms" not in found:
            lo, hi = (ns / self.count / 1e6 for ns in (self.crowding_lo_ns, self.crowding_hi_ns))
            found["crowding_ms"] = Quality("lower" if self.blame_clipped else "bounded", lo, hi)
        if self.pipe_wait_tag != "exact":
            found["pipe_wait_ms"] = Quality(self.pipe_wait_tag)
        if self.waited_ns and "waited_for_others_ms" not in found:
            found["waited_for_others_ms"] = Quality("lower", self.waited_ns / self.count / 1e6)
        return {**found, **self.memory.quality(), **self.measures.quality()}

    def _total_quality(self) -> dict[str, Quality]:
        """Each percentile of ``total_ms`` that is not exact; ``total_ms`` itself gets the worst of them."""
        found: dict[str, Quality] = {}
        is_unfinished = self.unfinished_max_ns > self.finished_max_ns or (
            self.unfinished and not self.totals.least.rows
        )
        for name, q in QUANTILES.items():
            quality = self.totals.quality(q)
            if is_unfinished:
                quality = Quality("lower", _ms(self.totals.least.quantile(q)))
            if quality is not None:
                found[f"total_ms_{name}"] = quality
        longest_ms = max(self.finished_max_ns, self.unfinished_max_ns) / 1e6
        if is_unfinished or self.totals.is_open:
            found["total_ms_max"] = Quality("lower", longest_ms)
        elif self.finished_longest_ns > self.finished_max_ns:
            found["total_ms_max"] = Quality("bounded", longest_ms, self.finished_longest_ns / 1e6)
        if found:
            most = found.get("total_ms_max", Quality("exact", longest_ms, longest_ms))
            found["total_ms"] = replace(most, tag=worst(quality.tag for quality in found.values()))
        return found

    def _step_stats(self) -> StepStats:
        if not self.records:
            return StepStats(0.0, self.step_max_ns / 1e6)
        follows = self.seen & STEPS and self.seen & WAKE_UPS
        immediate = self.immediate / self.records if follows else None
        return StepStats(self.steps / self.records, self.step_max_ns / 1e6, immediate)

    def summary(self, slow: SlowSteps, detached_ns: int, firsts: FirstCallsTally) -> OperationSummary:
        """The row of the report; ``detached_ns`` is work of its requests that was seen after they had ended."""
        self.settle()
        steps = slow.of_operation(self.name)
        means = [part.mean_ms for part in self.parts]
        near = self.near_p95()
        return OperationSummary(
            name=self.name,
            method=self.method,
            kind=self.kind,
            count=self.count,
            errors=self.errors,
            cancelled=self.cancelled,
            unfinished=self.unfinished,
            total_ms=self.total_ms(),
            budget_ms=BudgetMeans(*means),
            steps=self._step_stats(),
            memory=self.memory.summary(),
            quality=self.quality(),
            slow_steps=steps.count,
            critical_steps=steps.critical,
            slow_step_p50_ms=_ms(steps.lengths.quantile(0.5)),
            slow_step_cpu_share=steps.cpu_share,
            waited_for_others_ms=self.waited_ns / self.count / 1e6 if self.count else 0.0,
            waited_for_others_p95_share=self.share_near_p95(self.waited_per_bucket),
            crowding_ms=self.crowding_lo_ns / self.count / 1e6 if self.count else 0.0,
            detached_ms=(self.detached_ns + detached_ns) / 1e6,
            client_wait_ms=self.client_wait.mean_ms,
            decode_ms=self.decode.mean_ms,
            encode_ms=self.encode.mean_ms,
            write_flush_p95_ms=_ms(self.write_flush.quantile(0.95)),
            request_bytes_max=self.request_bytes_max,
            response_bytes_max=self.response_bytes_max,
            executor_run_sum_ms=self.executor_run_sum_ns / 1e6,
            crowding_p95_share=self.share_near_p95(self.crowded_per_bucket),
            tasks_max=self.tasks_max,
            pipe_wait_ms=self.pipe_wait_ms(),
            measures=self.measures.summary(),
            awaits=self.awaits.summary(near),
            awaits_unnamed_ms=self.awaits.unnamed_ms,
            awaits_unnamed_p95_share=self.awaits.unnamed_share(near),
            serial_awaits=self.awaits.serial.summary(),
            first_calls=firsts.summary((self.method, self.name), self.totals.least),
            jobs_cpu_ms=self.job_lines.cpu_ns / 1e6,
            job_lines=self.job_lines.summary(),
            slow_calls=self.slow_calls(),
            all_calls_ms=None if self.kind == "notification" else self.waited.lo_ns / 1e6,
            write_ms=WriteMeans(*(ns / max(1, self.records) / 1e6 for ns in self.write_ns)),
            unseen=tuple(name for name, bit in CAPABILITIES.items() if not self.seen & bit),
        )


class Operations:
    """All operations of the stream, and the matrix of who waited for whom among them."""

    def __init__(self) -> None:
        self.by_key: dict[OperationKey, OperationTally] = {}
        self.matrix = Matrix()

    def of(self, call: RequestRecord | RequestGroup | OpenRequest) -> OperationTally:
        """The row that ``call`` is counted in."""
        return self._tally((call.method, call.name or call.method), call.kind)

    def _tally(self, key: OperationKey, kind: RequestKind) -> OperationTally:
        tally = self.by_key.get(key)
        if tally is None:
            if len(self.by_key) >= MAX_OPERATIONS:
                key = (OTHER, OTHER)
            tally = self.by_key.setdefault(key, OperationTally(*key, kind))
        return tally

    def add_blame(self, victim: Victim, found: Blame) -> None:
        """What one call waited for; it was counted before."""
        tally = self._tally((victim.method, victim.operation), "request")
        tally.add_blame(victim, found)
        self.matrix.add(tally.name, found, victim.weight)

    def add_roots(self, waiter: Waiter, traces: Traces, steps: StepIndex, polls: PollIndex) -> None:
        """What held up those who held what one call awaited; the call was counted before."""
        awaits = self._tally((waiter.method, waiter.operation), "request").awaits
        for one in waiter.awaits:
            row = awaits.of(one)
            for part in one.holders:
                for root, ns in traces.roots(part, steps, polls).items():
                    row.roots[root] = row.roots.get(root, 0.0) + ns * waiter.weight

    def merge(self, other: Operations) -> None:
        """Add ``other``, which stays as it is. Up to :data:`MAX_OPERATIONS` names the order does not matter."""
        for key, tally in other.by_key.items():
            self._tally(key, tally.kind).merge(tally)
        self.matrix.merge(other.matrix)

    def summaries(
        self, slow: SlowSteps, detached_ns: Mapping[str, int], firsts: FirstCallsTally
    ) -> tuple[OperationSummary, ...]:
        """Rows, the operation that took most time in sum first. ``detached_ns`` is by operation name."""
        ranked = sorted(self.by_key.items(), key=lambda item: (-item[1].totals.least.total, -item[1].count, item[0]))
        return tuple(tally.summary(slow, detached_ns.get(tally.name, 0), firsts) for _, tally in ranked)


def larger(a: int | None, b: int | None) -> int | None:
    """The larger of what is known."""
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
