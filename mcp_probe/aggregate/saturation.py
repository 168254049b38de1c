"""Executors: how full each was, how long its jobs waited, and how many tokens their callers needed.

Tokens needed follow Little's law: arrival rate x mean run. The rate is weighted by jobs (each job counts
the rate of the sample it arrived in), so that an hour of silence does not dilute a minute of crowding.

Source: J. Little, "A proof for the queuing formula L = lambda W" (1961).
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.model import AbandonedWork, ExecutorSummary, PoolSample, WaitPercentiles

MAX_POOLS = 64
MAX_HOLDERS = 200
SHOWN_HOLDERS = 5
OTHER_POOLS = "other"

PoolKey = tuple[str, str]


class PoolTally:
    """Everything one pool's samples sum up to. Merging is addition; levels take the maximum."""

    def __init__(self, name: str, made_at: str | None) -> None:
        self.name = name
        self.made_at = made_at
        self.max: float | None = None
        self._max_at_ns = -1
        self.span_ns = self.at_limit_ns = 0
        self.borrowed_peak = self.active_peak = self.pending_peak = 0
        self.queued_peak: int | None = 0
        self.submitted = self.finished = self.abandoned = self.returned = 0
        self.submitted_per_ns = 0.0  # sum of submitted ** 2 / span
        self.wait = Buckets()
        self.run_ns = self.cpu_ns = self.return_ns = 0
        self.transport_jobs = self.transport_wait_ns = self.transport_wait_max_ns = 0
        self.transport_starved_max_ns = 0
        self._was_full = False
        self.holders: dict[str, int] = {}
        self.active_ns = 0
        self.ran_on: dict[str, tuple[int, int, int]] = {}  # operation -> (jobs, ns, longest_ns)

    def add(self, sample: PoolSample) -> None:
        """Take one sample in."""
        self._keep_max(sample.at_ns, sample.max)
        self._raise_peaks(sample.borrowed_peak, sample.active_peak, sample.pending_peak, sample.transport_wait_max_ns)
        self._raise_queue(sample.queued_peak)
        self.span_ns += sample.span_ns
        self.at_limit_ns += sample.at_limit_ns
        self.submitted += sample.submitted
        self.finished += sample.finished
        self.abandoned += sample.abandoned
        self.returned += sample.returned
        if sample.span_ns > 0:
            self.submitted_per_ns += sample.submitted**2 / sample.span_ns
        self.wait.add_rows(sample.wait)
        self.run_ns += sample.run_ns
        self.cpu_ns += sample.cpu_ns
        self.return_ns += sample.return_ns
        self.transport_jobs += sample.transport_jobs
        self.transport_wait_ns += sample.transport_wait_ns
        is_full = sample.max is not None and (sample.borrowed_peak >= sample.max or sample.at_limit_ns > 0)
        if is_full or self._was_full:  # who waits for a thread has it as soon as the pool is full no more
            self.transport_starved_max_ns = max(self.transport_starved_max_ns, sample.transport_wait_max_ns)
        self._was_full = is_full
        self._hold((operation, run_ns) for operation, _, run_ns in sample.holders)
        self.active_ns += sample.active_ns
        self._run_on((operation, (jobs, ns, longest)) for operation, jobs, ns, longest in sample.ran_on)

    def merge(self, other: PoolTally) -> None:
        """Add ``other``, which stays as it is."""
        self._keep_max(other._max_at_ns, other.max)
        self._raise_peaks(other.borrowed_peak, other.active_peak, other.pending_peak, other.transport_wait_max_ns)
        self._raise_queue(other.queued_peak)
        self.span_ns += other.span_ns
        self.at_limit_ns += other.at_limit_ns
        self.submitted += other.submitted
        self.finished += other.finished
        self.abandoned += other.abandoned
        self.returned += other.returned
        self.submitted_per_ns += other.submitted_per_ns
        self.wait.merge(other.wait)
        self.run_ns += other.run_ns
        self.cpu_ns += other.cpu_ns
        self.return_ns += other.return_ns
        self.transport_jobs += other.transport_jobs
        self.transport_wait_ns += other.transport_wait_ns
        self.transport_starved_max_ns = max(self.transport_starved_max_ns, other.transport_starved_max_ns)
        self._hold(other.holders.items())
        self.active_ns += other.active_ns
        self._run_on(other.ran_on.items())

    def _keep_max(self, at_ns: int, maximum: float | None) -> None:
        """The limit may change while the server runs: the latest one counts."""
        if (at_ns, maximum or 0.0) > (self._max_at_ns, self.max or 0.0):
            self._max_at_ns, self.max = at_ns, maximum

    def _raise_peaks(self, borrowed: int, active: int, pending: int, transport_wait_ns: int) -> None:
        self.borrowed_peak = max(self.borrowed_peak, borrowed)
        self.active_peak = max(self.active_peak, active)
        self.pending_peak = max(self.pending_peak, pending)
        self.transport_wait_max_ns = max(self.transport_wait_max_ns, transport_wait_ns)

    def _raise_queue(self, queued: int | None) -> None:
        known = self.queued_peak is not None and queued is not None
        self.queued_peak = max(self.queued_peak or 0, queued or 0) if known else None

    def _hold(self, rows: Iterable[tuple[str, int]]) -> None:
        for operation, run_ns in rows:
            if operation in self.holders or len(self.holders) < MAX_HOLDERS:
                self.holders[operation] = self.holders.get(operation, 0) + run_ns

    def _run_on(self, rows: Iterable[tuple[str, tuple[int, int, int]]]) -> None:
        for operation, (jobs, ns, longest) in rows:
            if operation in self.ran_on or len(self.ran_on) < MAX_HOLDERS:
                before = self.ran_on.get(operation, (0, 0, 0))
                self.ran_on[operation] = (before[0] + jobs, before[1] + ns, max(before[2], longest))

    def _abandoned_work(self) -> Iterable[AbandonedWork]:
        for operation, (jobs, ns, longest) in sorted(self.ran_on.items(), key=lambda row: (-row[1][1], row[0])):
            share = min(1.0, ns / self.active_ns) if self.active_ns else None
            yield AbandonedWork(operation, jobs, ns / 1e6, longest / 1e6, share)

    @property
    def tokens_needed(self) -> float | None:
        """Tokens needed to serve the jobs as they came; ``None`` before the first one finished.

        A lower bound for a burst shorter than a sample (0.5 s): within a sample, arrivals count as even.
        """
        if not self.finished or not self.submitted:
            return None
        return self.submitted_per_ns / self.submitted * (self.run_ns / self.finished)

    def summary(self) -> ExecutorSummary:
        """The pool's row of the report."""
        ranked = sorted(self.holders, key=lambda operation: (-self.holders[operation], operation))
        return ExecutorSummary(
            name=self.name,
            made_at=self.made_at,
            max=self.max,
            borrowed_peak=self.borrowed_peak,
            active_peak=self.active_peak,
            pending_peak=self.pending_peak,
            queued_peak=self.queued_peak,
            wait_ms=WaitPercentiles(_ms(self.wait.quantile(0.5)), _ms(self.wait.quantile(0.99))),
            wait_max_ms=_ms(self.wait.largest()),
            run_ms=self.run_ns / self.finished / 1e6 if self.finished else None,
            return_ms=self.return_ns / self.returned / 1e6 if self.returned else None,
            at_limit_share=min(1.0, self.at_limit_ns / self.span_ns) if self.span_ns else 0.0,
            tokens_needed=self.tokens_needed,
            jobs=self.submitted,
            abandoned=self.abandoned,
            transport_jobs=self.transport_jobs,
            transport_wait_max_ms=self.transport_wait_max_ns / 1e6,
            transport_wait_ms=self.transport_wait_ns / 1e6,
            holders=tuple(ranked[:SHOWN_HOLDERS]),
            cpu_ms=self.cpu_ns / 1e6,
            wait_total_ms=self.wait.total / 1e6,
            abandoned_work=tuple(self._abandoned_work()),
            transport_starved_max_ms=self.transport_starved_max_ns / 1e6,
        )


class Pools:
    """All executors of the stream; pools with the same name made at the same place are one row."""

    def __init__(self) -> None:
        self.by_key: dict[PoolKey, PoolTally] = {}

    def add(self, sample: PoolSample) -> None:
        """Take one sample in."""
        key = (sample.name, sample.made_at or f"#{sample.pool}")
        self._tally(key, sample.name, sample.made_at).add(sample)

    def merge(self, other: Pools) -> None:
        """Add ``other``, which stays as it is."""
        for key, tally in other.by_key.items():
            self._tally(key, tally.name, tally.made_at).merge(tally)

    def _tally(self, key: PoolKey, name: str, made_at: str | None) -> PoolTally:
        if key not in self.by_key and len(self.by_key) >= MAX_POOLS:
            key, name, made_at = (OTHER_POOLS, ""), OTHER_POOLS, None
        return self.by_key.setdefault(key, PoolTally(name, made_at))

    def summaries(self) -> tuple[ExecutorSummary, ...]:
        """Rows, the pool whose jobs waited longest in sum first."""
        ranked = sorted(self.by_key.items(), key=lambda item: (-item[1].wait.total, -item[1].run_ns, item[0]))
        return tuple(tally.summary() for _, tally in ranked)


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
