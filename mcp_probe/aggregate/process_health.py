"""The profiled process as a whole: outstanding requests, collector pauses, pressure, and the probe's own cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

from mcp_probe.aggregate.blocking import OTHER
from mcp_probe.aggregate.loop_health import plus
from mcp_probe.aggregate.operations import MAX_OPERATIONS, larger
from mcp_probe.model import Outstanding, ProcessSample

SECOND_NS = 1_000_000_000
MIN_SLOPE_SAMPLES = 5

LOST_REQUESTS = frozenset({"requests", "buffer full", "too many live requests"})
"""Reasons under which whole requests were dropped; all other drops are marks or frames."""


class Slope:
    """Least-squares slope of a level over time, online. After a merge it is the common slope within each stream."""

    def __init__(self) -> None:
        self.count = 0
        self.xx = 0.0
        self.xy = 0.0
        self._own = 0
        self._origin_ns = 0
        self._x = self._y = 0.0

    def add(self, at_ns: int, level: float) -> None:
        """One reading. Source: B. P. Welford (1962), the update of a covariance."""
        if self._own == 0:
            self._origin_ns = at_ns
        self._own += 1
        self.count += 1
        x = (at_ns - self._origin_ns) / SECOND_NS
        dx = x - self._x
        self._x += dx / self._own
        self._y += (level - self._y) / self._own
        self.xx += dx * (x - self._x)
        self.xy += dx * (level - self._y)

    def merge(self, other: Slope) -> None:
        """Add another stream's readings; their clocks and their levels need not agree."""
        self.count += other.count
        self.xx += other.xx
        self.xy += other.xy

    @property
    def per_second(self) -> float | None:
        """``None`` with fewer than :data:`MIN_SLOPE_SAMPLES` readings, or if all were taken at one instant."""
        return self.xy / self.xx if self.count >= MIN_SLOPE_SAMPLES and self.xx > 0 else None


class Course:
    """A level's readings over time, thinned out if there are many. After a merge the stream that grew most counts."""

    MOST = 256

    def __init__(self) -> None:
        self._readings: list[tuple[int, int]] = []  # (ns, level)
        self._merged: int | None = None

    def add(self, at_ns: int, level: int | None) -> None:
        """Add a reading; ``None`` is ignored."""
        if level is None:
            return
        self._readings.append((at_ns, level))
        if len(self._readings) >= self.MOST:
            self._readings = self._readings[1::2]

    def merge(self, other: Course) -> None:
        """Add another stream's readings."""
        if not self._readings and self._merged is None:
            self._readings, self._merged = list(other._readings), other._merged
        else:
            self._merged = larger(self._merged, other.growth)

    @property
    def growth(self) -> int | None:
        """Median of the last quarter of the time minus median of the second; ``None`` with too few readings."""
        levels = self._quarters()
        own = None if levels is None else round(levels[3] - levels[1])
        return larger(own, self._merged)

    @property
    def still_grows(self) -> bool:
        """Whether at least a third of the growth came last: it is not over. Of a stream's own readings only."""
        levels = self._quarters()
        return levels is not None and levels[3] - levels[2] >= (levels[3] - levels[1]) / 3 > 0

    def _quarters(self) -> list[float] | None:
        """The median of each quarter of the time; ``None`` with too few readings."""
        if len(self._readings) < 8:
            return None
        start, quarter = self._readings[0][0], (self._readings[-1][0] - self._readings[0][0]) / 4
        parts: list[list[int]] = [[], [], [], []]
        for at, level in self._readings:
            parts[min(3, int((at - start) / quarter)) if quarter else 3].append(level)
        return [median(part) for part in parts] if all(parts) else None


class GcTally:
    """Collector pauses. All but ``total_ns`` goes by their CPU time where it is known: the host may stretch a pause."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.stretched_ns = 0  # of total_ns: the thread that collected did not run
        self.worst_second_ns = 0
        self.max_ns = 0
        self.max_generation: int | None = None
        self._second: deque[tuple[int, int]] = deque()

    def add(self, sample: ProcessSample) -> None:
        """Take one sample's pauses in; ``total_ns`` also counts those below 1 ms."""
        self.total_ns += sample.gc_ns
        cpu = sample.gc_pauses_cpu or (None,) * len(sample.gc_pauses)
        for (start, end, generation), used in zip(sample.gc_pauses, cpu, strict=True):
            own = end - start if used is None else min(used, end - start)
            self.stretched_ns += end - start - own
            self._keep_longest(own, generation)
            self._slide(end - own, end)

    def _slide(self, start: int, end: int) -> None:
        """Sum up the pauses in the second that ends with this one."""
        self._second.append((start, end))
        since = end - SECOND_NS
        while self._second and self._second[0][1] <= since:
            self._second.popleft()
        paused = sum(max(0, b - max(a, since)) for a, b in self._second)
        self.worst_second_ns = max(self.worst_second_ns, paused)

    def _keep_longest(self, ns: int, generation: int | None) -> None:
        if ns > self.max_ns or (ns == self.max_ns and (generation or 0) > (self.max_generation or 0)):
            self.max_ns, self.max_generation = ns, generation

    def merge(self, other: GcTally) -> None:
        """Add another stream's pauses."""
        self.total_ns += other.total_ns
        self.stretched_ns += other.stretched_ns
        self.worst_second_ns = max(self.worst_second_ns, other.worst_second_ns)
        self._keep_longest(other.max_ns, other.max_generation)


class ProcessTally:
    """Everything the process's samples sum up to."""

    def __init__(self) -> None:
        self.cpu_ns = 0
        self.probe_cpu_ns = 0
        self.hook_ns = 0
        self.rss_bytes_max: int | None = None
        self.rss = Course()
        self.throttled_ns: int | None = None
        self.cpu_pressure: float | None = None
        self.dropped: dict[str, int] = {}
        self.detached_ns: dict[str, int] = {}  # operation -> work after its requests had ended
        self.outstanding_peak = 0
        self.finished_unwritten_peak = 0
        self.backlog_bytes_peak: int | None = None
        self.stdout_foreign_bytes = 0
        self.stdout_foreign_at: str | None = None
        self.stdout_is_wire = False
        self.slope = Slope()
        self.gc = GcTally()

    def add(self, sample: ProcessSample) -> None:
        """Take one sample in."""
        self.cpu_ns += sample.cpu_ns
        self.probe_cpu_ns += sample.probe_cpu_ns
        self.hook_ns += sample.hook_ns
        self.rss_bytes_max = larger(self.rss_bytes_max, sample.rss_bytes)
        self.rss.add(sample.at_ns, sample.rss_bytes)
        self.throttled_ns = plus(self.throttled_ns, sample.throttled_ns)
        self.cpu_pressure = _more(self.cpu_pressure, sample.cpu_pressure)
        _add_each(self.dropped, sample.dropped)
        _add_each(self.detached_ns, sample.detached)
        self.outstanding_peak = max(self.outstanding_peak, sample.outstanding_peak, sample.outstanding)
        self.finished_unwritten_peak = max(self.finished_unwritten_peak, sample.finished_unwritten_peak)
        self.backlog_bytes_peak = larger(self.backlog_bytes_peak, sample.backlog_bytes_peak)
        self.stdout_foreign_bytes += sample.stdout_foreign_bytes
        self.stdout_foreign_at = self.stdout_foreign_at or sample.stdout_foreign_at
        self.stdout_is_wire |= sample.stdout_is_wire
        self.slope.add(sample.at_ns, sample.outstanding)
        self.gc.add(sample)

    def merge(self, other: ProcessTally) -> None:
        """Add another stream's samples; ``other`` stays as it is."""
        self.cpu_ns += other.cpu_ns
        self.probe_cpu_ns += other.probe_cpu_ns
        self.hook_ns += other.hook_ns
        self.rss_bytes_max = larger(self.rss_bytes_max, other.rss_bytes_max)
        self.rss.merge(other.rss)
        self.throttled_ns = plus(self.throttled_ns, other.throttled_ns)
        self.cpu_pressure = _more(self.cpu_pressure, other.cpu_pressure)
        _add_each(self.dropped, other.dropped.items())
        _add_each(self.detached_ns, other.detached_ns.items())
        self.outstanding_peak = max(self.outstanding_peak, other.outstanding_peak)
        self.finished_unwritten_peak = max(self.finished_unwritten_peak, other.finished_unwritten_peak)
        self.backlog_bytes_peak = larger(self.backlog_bytes_peak, other.backlog_bytes_peak)
        self.stdout_foreign_bytes += other.stdout_foreign_bytes
        self.stdout_foreign_at = self.stdout_foreign_at or other.stdout_foreign_at
        self.stdout_is_wire |= other.stdout_is_wire
        self.slope.merge(other.slope)
        self.gc.merge(other.gc)

    def outstanding(self) -> Outstanding:
        """Requests read and not yet answered, over time."""
        return Outstanding(
            peak=self.outstanding_peak,
            slope_per_s=self.slope.per_second,
            finished_unwritten_peak=self.finished_unwritten_peak,
            backlog_bytes_peak=self.backlog_bytes_peak,
        )

    @property
    def overhead_share(self) -> float | None:
        """Share of the process's CPU that the probe used; ``None`` before any was seen."""
        return self.probe_cpu_ns / self.cpu_ns if self.cpu_ns > 0 else None

    @property
    def dropped_requests(self) -> int:
        """Requests that happened and are not in the counts."""
        return sum(count for reason, count in self.dropped.items() if reason in LOST_REQUESTS)

    @property
    def dropped_marks(self) -> int:
        """Everything else that was dropped."""
        return sum(self.dropped.values()) - self.dropped_requests


def _add_each(into: dict[str, int], rows: Iterable[tuple[str, int]]) -> None:
    for name, amount in rows:
        if name not in into and len(into) >= MAX_OPERATIONS:
            name = OTHER
        into[name] = into.get(name, 0) + amount


def _more(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)
