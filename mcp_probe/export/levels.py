"""Levels of the last minute: how busy the loop is, how full the executors, how much is outstanding.

A level read when somebody asks misses what came and went in between, so every gauge is over the last
:data:`WINDOW_NS` of the stream: shares and quantiles of it, peaks within it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from mcp_probe.aggregate.loop_health import Loops, arrival_delay_ns
from mcp_probe.export import conventions as names
from mcp_probe.export.histograms import Series
from mcp_probe.export.labels import Labels
from mcp_probe.model import LoopSample, PoolSample, ProcessSample

SLOT_NS = 5_000_000_000
SLOTS = 12
WINDOW_NS = SLOT_NS * SLOTS

Reading = tuple[float, Series]


@dataclass(slots=True)
class PoolLevel:
    """Peaks of the executors of one name; those of the fullest, where there are several."""

    max: float | None = None
    borrowed: int = 0
    active: int = 0
    pending: int = 0

    def add(self, maximum: float | None, borrowed: int, active: int, pending: int) -> None:
        """Take one sample's peaks in."""
        self.max = maximum if self.max is None else max(self.max, maximum or 0.0)
        self.borrowed = max(self.borrowed, borrowed)
        self.active = max(self.active, active)
        self.pending = max(self.pending, pending)


@dataclass(slots=True)
class _Slot:
    number: int
    loops: Loops = field(default_factory=Loops)
    pools: dict[str, PoolLevel] = field(default_factory=dict)
    outstanding: int | None = None
    backlog: int | None = None
    cpu_ns: int = 0
    probe_cpu_ns: int = 0

    def merge(self, other: _Slot) -> None:
        self.loops.merge(other.loops)
        for name, level in other.pools.items():
            self.pools.setdefault(name, PoolLevel()).add(level.max, level.borrowed, level.active, level.pending)
        self.outstanding = _larger(self.outstanding, other.outstanding)
        self.backlog = _larger(self.backlog, other.backlog)
        self.cpu_ns += other.cpu_ns
        self.probe_cpu_ns += other.probe_cpu_ns


class Levels:
    """Samples in, gauges out. Not thread-safe."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._slots: deque[_Slot] = deque(maxlen=SLOTS)
        self._active: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._readings: dict[names.Instrument, list[Reading]] | None = None

    def add(self, sample: LoopSample | PoolSample | ProcessSample) -> None:
        """Take one sample in."""
        self._readings = None
        slot = self._slot(sample.at_ns // SLOT_NS)
        if isinstance(sample, LoopSample):
            slot.loops.tally(sample.loop).add(sample)
        elif isinstance(sample, PoolSample):
            level = slot.pools.setdefault(self._labels.executor(sample.name), PoolLevel())
            level.add(sample.max, sample.borrowed_peak, sample.active_peak, sample.pending_peak)
        else:
            slot.outstanding = _larger(slot.outstanding, max(sample.outstanding, sample.outstanding_peak))
            slot.backlog = _larger(slot.backlog, sample.backlog_bytes_peak)
            slot.cpu_ns += sample.cpu_ns
            slot.probe_cpu_ns += sample.probe_cpu_ns
            self._count(sample)

    def _slot(self, number: int) -> _Slot:
        """The slot of that time, or the latest one where a late sample comes."""
        if not self._slots or self._slots[-1].number < number:
            self._slots.append(_Slot(number))
            while self._slots[0].number <= number - SLOTS:
                self._slots.popleft()
        return self._slots[-1]

    def _count(self, sample: ProcessSample) -> None:
        self._active = dict.fromkeys(self._active, 0)
        for method, count in sample.active:
            label = self._labels.known_method(method)
            self._active[label] = self._active.get(label, 0) + count
        for reason, count in sample.dropped:
            self.drop(reason, count)

    def know(self, method: str) -> None:
        """A request of ``method`` was seen: its number in flight is reported, from zero on."""
        if method not in self._active:
            self._readings = None
            self._active[method] = 0

    def drop(self, reason: str, count: int) -> None:
        """So much more was lost for ``reason``."""
        self._readings = None
        if reason not in self._dropped and len(self._dropped) >= names.MAX_NAMES:
            reason = names.OTHER
        self._dropped[reason] = self._dropped.get(reason, 0) + count

    def read(self, instrument: names.Instrument) -> list[Reading]:
        """What ``instrument`` says now; nothing where it could not be seen."""
        if self._readings is None:
            self._readings = self._read()
        return self._readings.get(instrument, [])

    def _read(self) -> dict[names.Instrument, list[Reading]]:
        window = _Slot(0)
        for slot in self._slots:
            window.merge(slot)
        found = _loop_readings(window.loops) | _pool_readings(window.pools)
        if window.outstanding is not None:
            found[names.OUTSTANDING] = [(window.outstanding, ())]
        if window.backlog is not None:
            found[names.BACKLOG] = [(window.backlog, ())]
        if window.cpu_ns > 0:
            found[names.PROBE_OVERHEAD] = [(window.probe_cpu_ns / window.cpu_ns, ())]
        found[names.ACTIVE] = [(count, ((names.MCP_METHOD_NAME, method),)) for method, count in self._active.items()]
        found[names.PROBE_DROPPED] = [(count, ((names.REASON, reason),)) for reason, count in self._dropped.items()]
        return found


def _loop_readings(loops: Loops) -> dict[names.Instrument, list[Reading]]:
    tally = loops.main()
    if not tally.seen:
        return {}
    p50, p90, p99 = (arrival_delay_ns(tally.iterations, tally.span_ns, q) / 1e9 for q in (0.5, 0.9, 0.99))
    return {
        names.LOOP_UTILIZATION: [(min(1.0, tally.busy_ns / tally.span_ns), ())],
        names.ARRIVAL_DELAY_MEAN: [(tally.sum_sq_ns2 / (2 * tally.span_ns) / 1e9, ())],
        names.ARRIVAL_DELAY_P50: [(p50, ())],
        names.ARRIVAL_DELAY_P90: [(p90, ())],
        names.ARRIVAL_DELAY_P99: [(p99, ())],
        names.ARRIVAL_DELAY_MAX: [(tally.max_ns / 1e9, ())],
    }


def _pool_readings(pools: dict[str, PoolLevel]) -> dict[names.Instrument, list[Reading]]:
    rows = [(level, ((names.EXECUTOR, name),)) for name, level in pools.items()]
    return {
        names.EXECUTOR_MAX: [(level.max, series) for level, series in rows if level.max is not None],
        names.EXECUTOR_BORROWED: [(level.borrowed, series) for level, series in rows],
        names.EXECUTOR_ACTIVE: [(level.active, series) for level, series in rows],
        names.EXECUTOR_PENDING: [(level.pending, series) for level, series in rows],
    }


def _larger(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)
