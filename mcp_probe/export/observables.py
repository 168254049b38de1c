"""Observable instruments that outlive the probes that answer for them, and the levels that most of them report.

A provider keeps an observable instrument for as long as it lives, and takes no other callback for it: a probe that is
attached after another has gone must answer through the instruments that are there. So they are registered once for
each provider, and ask whoever reads at that moment. Counters never fall: what a reader had counted stays.

A level read when somebody asks misses what came and went in between, so every gauge is over the last
:data:`WINDOW_NS` of the stream: shares and quantiles of it, peaks within it.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from mcp_probe.aggregate.loop_health import Loops, arrival_delay_ns
from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.labels import Labels
from mcp_probe.export.semantic_conventions import MAX_SERIES, Series
from mcp_probe.model import LoopSample, PoolSample, ProcessSample

logger = logging.getLogger("mcp_probe")

NO_SPAN = trace.set_span_in_context(trace.INVALID_SPAN, Context())
"""The context of a value that belongs to no trace; an empty one would be taken for the ambient one."""

Reading = tuple[float, Series]

Read = Callable[[], Iterable[Reading]]
"""Gives (value, attributes) of each series. Any thread."""

_lock = threading.Lock()


class Reader:
    """One probe's answer for one instrument. After :meth:`end` it is given once more.

    Once more, because a server that lived for less than an export interval is exported only at its end.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._failed = self._ended = self.over = False

    def end(self) -> None:
        """The probe has gone."""
        self._ended = True

    def values(self) -> list[tuple[float, Series]]:
        """What it reads; a fault of ours is logged once, and then it reads nothing."""
        self.over = self._ended
        try:
            return list(self._read())
        except Exception as exc:
            if not self._failed:
                logger.warning("mcp_probe: a metric is not exported", exc_info=exc)
            self._failed = True
            return []


class Tap:
    """One observable instrument."""

    def __init__(self, *, counts: bool) -> None:
        self.counts = counts
        self._state: tuple[tuple[Reader, ...], Mapping[Series, float]] = ((), {})  # replaced as a whole

    def observe(self, options: CallbackOptions) -> list[Observation]:
        """The callback."""
        readers, before = self._state
        total = dict(before)
        for reader in readers:
            if not reader.over:
                _add(total, reader.values(), counts=self.counts)
        return [Observation(value, dict(series), NO_SPAN) for series, value in total.items()]

    def join(self, reader: Reader) -> None:
        """``reader`` answers too."""
        readers, before = self._state
        self._state = (*(known for known in readers if not known.over), reader), before

    def leave(self, reader: Reader) -> None:
        """``reader`` is at its end: what it counted stays, what it measured is told once more."""
        reader.end()
        if not self.counts:
            return
        readers, before = self._state
        total = dict(before)
        _add(total, reader.values(), counts=True)
        self._state = tuple(known for known in readers if known is not reader), total

    def forget(self) -> None:
        """This is a forked child: the values are its parent's."""
        self._state = (), {}


def _add(total: dict[Series, float], values: Iterable[tuple[float, Series]], *, counts: bool) -> None:
    for value, series in values:
        if series not in total and len(total) >= MAX_SERIES + 1:
            series = tuple((key, names.OTHER) for key, _ in series)
        total[series] = total.get(series, 0) + value if counts else value


_taps: weakref.WeakKeyDictionary[MeterProvider, dict[str, Tap]] = weakref.WeakKeyDictionary()


class Observables:
    """The observable instruments of one provider, as one probe uses them."""

    def __init__(self, provider: MeterProvider, meter: Meter) -> None:
        self._meter = meter
        with _lock:
            try:
                self._taps = _taps.setdefault(provider, {})
            except TypeError:  # not every provider can be remembered
                self._taps = {}
        self._joined: list[tuple[Tap, Reader]] = []

    def counter(self, name: str, unit: str, about: str, read: Read) -> None:
        """Report ``read()`` as a counter, which it must not let fall."""
        self._join(name, unit, about, read, self._meter.create_observable_counter, counts=True)

    def level(self, name: str, unit: str, about: str, read: Read) -> None:
        """Report ``read()`` as a gauge."""
        self._join(name, unit, about, read, self._meter.create_observable_gauge)

    def balance(self, name: str, unit: str, about: str, read: Read) -> None:
        """Report ``read()`` as an up-down counter."""
        self._join(name, unit, about, read, self._meter.create_observable_up_down_counter)

    def _join(
        self, name: str, unit: str, about: str, read: Read, create: Callable[..., object], *, counts: bool = False
    ) -> None:
        reader = Reader(read)
        with _lock:
            tap = self._taps.get(name)
            if tap is None:
                tap = self._taps[name] = Tap(counts=counts)
                create(name, [tap.observe], unit, about)
            tap.join(reader)
        self._joined.append((tap, reader))

    def close(self) -> None:
        """The probe has gone."""
        with _lock:
            for tap, reader in self._joined:
                tap.leave(reader)
        self._joined.clear()


def _forget_parent() -> None:
    """After a fork, in the child: what the parent's probes would answer is not asked for; they may hold their locks."""
    global _lock
    _lock = threading.Lock()
    for taps in list(_taps.values()):
        for tap in taps.values():
            tap.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


# --- levels of the last minute --------------------------------------------------------------------------

SLOT_NS = 5_000_000_000
SLOTS = 12
WINDOW_NS = SLOT_NS * SLOTS


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
        reason = names.token(reason)
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
    rows = [(level, ((names.EXECUTOR_NAME, name),)) for name, level in pools.items()]
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
