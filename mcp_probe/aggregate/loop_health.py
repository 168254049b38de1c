"""Event-loop health: how busy a loop was, and how long an event at a random instant would wait.

An iteration keeps the loop away from its poll for a time L. An event that arrives then waits for the rest
of L; one that arrives during the poll does not wait. Over a window T with iterations L_i that gives
``P(delay > x) = sum(max(0, L_i - x)) / T`` and ``mean = sum(L_i ** 2) / 2T``.
A heartbeat cannot see this: it does not beat while the loop is blocked (coordinated omission).

Source: measurement.md section 3, "Event-loop health" (docs/how-it-measures.md).
"""

from __future__ import annotations

from mcp_probe.aggregate.buckets import Buckets
from mcp_probe.aggregate.quality import worst
from mcp_probe.histogram import bucket_bounds
from mcp_probe.model import ArrivalDelay, LoopSample, LoopSummary, StepRecord, Tag

MAX_LOOPS = 32
LEAST_SPAN_NS = 500_000_000
"""A loop's first and last samples may be short, and then full by chance."""
OTHER_LOOP = -1
"""Loops beyond :data:`MAX_LOOPS` (a tool that calls ``asyncio.run`` each time) are one row, never the main one."""


class LoopTally:
    """Everything one loop's samples sum up to. Merging is addition."""

    def __init__(self) -> None:
        self.span_ns = 0
        self.poll_ns = 0
        self.iterations = Buckets()
        self.sum_sq_ns2 = 0
        self.max_ns = 0
        self.quality: Tag = "exact"
        self.cpu_ns: int | None = None
        self.run_queue_ns: int | None = None
        self.other_threads_cpu_ns: int | None = None
        self.contended_ns = 0  # off-CPU busy time while other threads burned as much CPU
        self.blocked_off_cpu_ns = 0  # off-CPU time of steps known to be blocking calls
        self.busiest_share = 0.0
        self.queued_beside = 0.0  # run-queue ns x CPUs that the process's other threads used meanwhile

    def add(self, sample: LoopSample) -> None:
        """Take one sample in."""
        self.span_ns += sample.span_ns
        self.poll_ns += sample.poll_ns
        self.iterations.add_rows(sample.iterations)
        self.sum_sq_ns2 += sample.sum_sq_ns2
        self.max_ns = max(self.max_ns, sample.max_ns)
        self.quality = worst((self.quality, sample.quality))
        self.cpu_ns = plus(self.cpu_ns, sample.cpu_ns)
        self.run_queue_ns = plus(self.run_queue_ns, sample.run_queue_ns)
        self.other_threads_cpu_ns = plus(self.other_threads_cpu_ns, sample.other_threads_cpu_ns)
        if sample.cpu_ns is not None and sample.other_threads_cpu_ns is not None:
            off = sample.span_ns - sample.poll_ns - sample.cpu_ns - (sample.run_queue_ns or 0)
            self.contended_ns += max(0, min(off, sample.other_threads_cpu_ns))
        if sample.span_ns >= LEAST_SPAN_NS:
            self.busiest_share = max(self.busiest_share, max(0, sample.span_ns - sample.poll_ns) / sample.span_ns)
        if sample.run_queue_ns and sample.other_threads_cpu_ns and sample.span_ns > 0:
            self.queued_beside += sample.run_queue_ns * sample.other_threads_cpu_ns / sample.span_ns

    def add_step(self, step: StepRecord) -> None:
        """Remember the time that a blocking call explains."""
        if step.cause == "blocking-call" and step.cpu_ns is not None:
            off = step.end_ns - step.start_ns - step.cpu_ns - (step.run_queue_ns or 0)
            self.blocked_off_cpu_ns += max(0, off)

    def merge(self, other: LoopTally) -> None:
        """Add ``other``, which stays as it is."""
        self.span_ns += other.span_ns
        self.poll_ns += other.poll_ns
        self.iterations.merge(other.iterations)
        self.sum_sq_ns2 += other.sum_sq_ns2
        self.max_ns = max(self.max_ns, other.max_ns)
        self.quality = worst((self.quality, other.quality))
        self.cpu_ns = plus(self.cpu_ns, other.cpu_ns)
        self.run_queue_ns = plus(self.run_queue_ns, other.run_queue_ns)
        self.other_threads_cpu_ns = plus(self.other_threads_cpu_ns, other.other_threads_cpu_ns)
        self.contended_ns += other.contended_ns
        self.blocked_off_cpu_ns += other.blocked_off_cpu_ns
        self.busiest_share = max(self.busiest_share, other.busiest_share)
        self.queued_beside += other.queued_beside

    @property
    def seen(self) -> bool:
        """Its polls or iterations could be seen at all."""
        if self.span_ns <= 0 or self.quality == "unavailable":
            return False
        return self.quality == "exact" or self.poll_ns > 0 or bool(self.iterations.rows)

    @property
    def busy_ns(self) -> int:
        """Time outside the poll; 0 where the polls could not be seen."""
        return max(0, self.span_ns - self.poll_ns) if self.seen else 0

    @property
    def off_cpu_ns(self) -> int | None:
        """Busy time in which the thread neither ran nor waited for a CPU of the host."""
        if self.cpu_ns is None or not self.seen:
            return None
        return max(0, self.busy_ns - self.cpu_ns - (self.run_queue_ns or 0))

    @property
    def queued_beside_cpus(self) -> float | None:
        """CPUs that the process's other threads used while this one waited for a CPU, on average over that wait.

        Its error is the length of a sample: when in it the thread waited is not known.
        """
        if not self.run_queue_ns or self.other_threads_cpu_ns is None:
            return None
        return self.queued_beside / self.run_queue_ns

    @property
    def gil_wait_ns(self) -> int | None:
        """Estimate: off-CPU busy time that no blocking call explains, while other threads burned CPU.

        Too high if steps below the slow-step limit block: their cause is not examined.
        """
        off = self.off_cpu_ns
        if off is None or self.other_threads_cpu_ns is None:
            return None
        return max(0, min(self.contended_ns, off - self.blocked_off_cpu_ns))

    def summary(self) -> LoopSummary:
        """Utilization and arrival_delay; ``None`` where the loop's polls could not be seen."""
        if not self.seen:
            return LoopSummary(None, ArrivalDelay(None, None, None, None, None), "unavailable")
        p50, p90, p99 = (arrival_delay_ns(self.iterations, self.span_ns, q) / 1e6 for q in (0.5, 0.9, 0.99))
        return LoopSummary(
            utilization=min(1.0, self.busy_ns / self.span_ns),
            arrival_delay_ms=ArrivalDelay(
                mean=self.sum_sq_ns2 / (2 * self.span_ns) / 1e6, p50=p50, p90=p90, p99=p99, max=self.max_ns / 1e6
            ),
            quality=self.quality,
        )


class Loops:
    """All loops of the stream."""

    def __init__(self) -> None:
        self.by_ordinal: dict[int, LoopTally] = {}

    def tally(self, ordinal: int) -> LoopTally:
        """The row of loop ``ordinal``."""
        if ordinal not in self.by_ordinal and len(self.by_ordinal) >= MAX_LOOPS:
            ordinal = OTHER_LOOP
        return self.by_ordinal.setdefault(ordinal, LoopTally())

    def merge(self, other: Loops) -> None:
        """Add ``other``, loop by loop. Processes of one kind have matching loops: the first matches the first."""
        for ordinal, tally in other.by_ordinal.items():
            self.tally(ordinal).merge(tally)

    def main(self) -> LoopTally:
        """The loop that ran longest: the server's own."""
        candidates = [(-tally.span_ns, ordinal) for ordinal, tally in self.by_ordinal.items() if ordinal != OTHER_LOOP]
        return self.by_ordinal[min(candidates)[1]] if candidates else LoopTally()


def arrival_delay_ns(iterations: Buckets, span_ns: int, q: float) -> float:
    """The delay that a share ``q`` of random arrivals in ``span_ns`` does not exceed.

    Error: less than the width of the bucket it falls in (1/16 of its value), because P is known exactly at
    bucket edges. No error if the iterations in that bucket are equally long.
    """
    wanted = (1 - q) * span_ns
    count = total = 0  # of the iterations in buckets above
    for bucket in sorted(iterations.rows, reverse=True):
        low = bucket_bounds(bucket)[0]
        here, length = iterations.rows[bucket]
        if total + length - (count + here) * low >= wanted:
            return _inside(wanted, count, total, here, length)
        count += here
        total += length
    return (total - wanted) / count if count and total > wanted else 0.0


def _inside(wanted: float, count: int, total: int, here: int, length: int) -> float:
    """Solve excess over x == wanted inside a bucket, assuming that its iterations are equally long."""
    mean = length / here
    if count and total - count * mean >= wanted:
        return (total - wanted) / count
    return (total + length - wanted) / (count + here)


def plus(a: int | None, b: int | None) -> int | None:
    """Sum of what is known; ``None`` where neither is."""
    if a is None or b is None:
        return b if a is None else a
    return a + b
