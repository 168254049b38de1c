"""Base-2 exponential histograms, aggregated as integers, and how they go out under somebody else's provider.

Bucket ``i`` at scale ``s`` holds the values in ``(2 ** (i / 2**s), 2 ** ((i + 1) / 2**s)]`` of the unit that is sent
(seconds, bytes). Which bucket an integer (nanoseconds, bytes) falls in is found by comparing integers, so it is exact:
a whole number exceeds a bound exactly if it exceeds the bound's floor. A histogram starts at scale :data:`MAX_SCALE`
(a bucket is 2.2 % wide) and halves its resolution whenever it would need more than :data:`MAX_BUCKETS` buckets.

Where the pipeline is ours, ``metric_push`` sends a :class:`HistogramSet` as it is. Somebody else's provider takes
values one by one, 5.6 µs each; there it is :class:`Observed`, or by request :class:`Replay`.

Source: OpenTelemetry specification, metrics data model, "ExponentialHistogram".
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import Protocol

from opentelemetry.metrics import Meter

from mcp_probe.export.observables import NO_SPAN, Observables
from mcp_probe.export.semantic_conventions import (
    EXPONENTIAL,
    MAX_SERIES,
    OTHER,
    SIZE_BOUNDARIES_BY,
    WAIT_BOUNDARIES_S,
    Instrument,
    Series,
)

MAX_SCALE = 5
MAX_BUCKETS = 160
"""As the SDK's default; at 160 buckets a range of 1 µs to 300 s has buckets 19 % wide, of 1 ms to 30 ms 2.2 %."""

_TOP_BITS = 62
_GUARD_BITS = 256

Value = tuple[Instrument, Series, int, int]
"""(instrument, series, value, how many times); the value in nanoseconds where the unit is seconds."""


class BucketScheme:
    """Bounds of the finest buckets, in whole steps of ``1 / per_unit`` of the unit that is sent."""

    __slots__ = ("_bounds", "_first", "_within", "per_unit")

    def __init__(self, per_unit: int) -> None:
        self.per_unit = per_unit
        octaves_below = per_unit.bit_length()
        self._first = -octaves_below << MAX_SCALE
        mantissas = [_scaled_root(per_unit, step) for step in range(1 << MAX_SCALE)]
        self._bounds: list[int] = [
            mantissa << octave >> _GUARD_BITS if octave >= 0 else mantissa >> _GUARD_BITS - octave
            for octave in range(-octaves_below, _TOP_BITS - octaves_below + 1)
            for mantissa in mantissas
        ]
        powers = [bisect_left(self._bounds, 1 << bits) for bits in range(_TOP_BITS + 2)]
        self._within = [(0, 1), *pairwise(powers)]

    def index(self, value: int) -> int:
        """Bucket of ``value`` > 0 at :data:`MAX_SCALE`; what is too large for 64 bits falls into the last one."""
        bits = value.bit_length()
        low, high = self._within[bits if bits <= _TOP_BITS else _TOP_BITS + 1]
        return self._first + bisect_left(self._bounds, value, low, high) - 1


def _scaled_root(per_unit: int, step: int) -> int:
    """``per_unit * 2 ** (step / 2**MAX_SCALE)`` with :data:`_GUARD_BITS` binary digits, rounded down."""
    power = 1 << MAX_SCALE
    root: int = per_unit**power << step + _GUARD_BITS * power
    for _ in range(MAX_SCALE):
        root = isqrt(root)
    return root


_SCHEMES: dict[str, BucketScheme] = {}


def scheme_of(unit: str) -> BucketScheme:
    """The buckets for values sent in ``unit``: ``s`` takes nanoseconds, every other unit is taken as it is."""
    if unit not in _SCHEMES:
        _SCHEMES[unit] = BucketScheme(10**9 if unit == "s" else 1)
    return _SCHEMES[unit]


class ExponentialHistogram:
    """One series. Not thread-safe; merging is addition, at the coarser scale of the two."""

    __slots__ = ("count", "counts", "max", "min", "scale", "scheme", "total", "zeros")

    def __init__(self, scheme: BucketScheme) -> None:
        self.scheme = scheme
        self.scale = MAX_SCALE
        self.counts: dict[int, int] = {}
        self.zeros = 0
        self.count = 0
        self.total = 0
        self.min: int | None = None
        self.max = 0

    def add(self, value: int, times: int = 1) -> None:
        """Count ``value`` so many times; below 0 it counts as 0."""
        self.count += times
        if value <= 0:
            self.min = 0
            self.zeros += times
            return
        self.total += value * times
        if value > self.max:
            self.max = value
        if self.min is None or value < self.min:
            self.min = value
        index = self.scheme.index(value) >> (MAX_SCALE - self.scale)
        counts = self.counts
        if index in counts:
            counts[index] += times
        else:
            counts[index] = times
            self._fit()

    def merge(self, other: ExponentialHistogram) -> None:
        """Add ``other``, which has the same scheme and stays as it is."""
        while self.scale > other.scale:
            self._halve()
        shift = other.scale - self.scale
        for index, count in other.counts.items():
            self.counts[index >> shift] = self.counts.get(index >> shift, 0) + count
        self._fit()
        self.zeros += other.zeros
        self.count += other.count
        self.total += other.total
        self.max = max(self.max, other.max)
        if other.min is not None:
            self.min = other.min if self.min is None else min(self.min, other.min)

    def copy(self) -> ExponentialHistogram:
        """A histogram of its own with the same counts."""
        twin = ExponentialHistogram(self.scheme)
        twin.scale, twin.counts, twin.zeros = self.scale, dict(self.counts), self.zeros
        twin.count, twin.total, twin.min, twin.max = self.count, self.total, self.min, self.max
        return twin

    def _fit(self) -> None:
        while max(self.counts, default=0) - min(self.counts, default=0) >= MAX_BUCKETS:
            self._halve()

    def _halve(self) -> None:
        halved: dict[int, int] = {}
        for index, count in self.counts.items():
            halved[index >> 1] = halved.get(index >> 1, 0) + count
        self.counts = halved
        self.scale -= 1

    def dense(self) -> tuple[int, list[int]]:
        """(index of the first bucket, counts from there on without a gap)."""
        if not self.counts:
            return 0, []
        first, last = min(self.counts), max(self.counts)
        return first, [self.counts.get(index, 0) for index in range(first, last + 1)]

    def quantile(self, q: float) -> float | None:
        """Value at ``q`` in [0, 1] by nearest rank, in the unit that is sent; off by at most half a bucket.

        ``None`` where nothing was counted.
        """
        if not self.count:
            return None
        rank = max(1, min(self.count, -int(-q * self.count // 1))) - self.zeros
        if rank <= 0:
            return 0.0
        per_unit, growth = self.scheme.per_unit, 2.0**-self.scale
        for index in sorted(self.counts):
            rank -= self.counts[index]
            if rank <= 0:
                middle: float = 2.0 ** ((index + 0.5) * growth)
                return min(self.max / per_unit, max((self.min or 0) / per_unit, middle))
        raise AssertionError("unreachable: the rank is within the count")


_NONE: dict[Series, ExponentialHistogram] = {}

Known = dict[Instrument, set[Series]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every histogram of a :class:`HistogramSet` at one instant, and the stretch of time that it covers."""

    start_unix_ns: int
    end_unix_ns: int
    histograms: Mapping[Instrument, Mapping[Series, ExponentialHistogram]]


class HistogramSet:
    """The histograms of one pipeline. Any thread; takes its lock for no longer than it takes to copy them.

    Args:
        known: the series of each instrument that have a histogram of their own; shared by sets that follow each other.
    """

    def __init__(self, max_series: int = MAX_SERIES, known: Known | None = None) -> None:
        self._lock = threading.Lock()
        self._max_series = max_series
        self._start_unix_ns = time.time_ns()
        self._known: Known = {} if known is None else known
        self._histograms: dict[Instrument, dict[Series, ExponentialHistogram]] = {}

    def add(self, values: Iterable[Value]) -> None:
        """Count every one of ``values``."""
        with self._lock:
            for instrument, series, value, times in values:
                found = self._histograms.get(instrument, _NONE).get(series)
                (self._opened(instrument, series) if found is None else found).add(value, times)

    def _opened(self, instrument: Instrument, series: Series) -> ExponentialHistogram:
        known = self._known.setdefault(instrument, set())
        if series not in known:
            if len(known) < self._max_series:
                known.add(series)
            else:
                series = tuple((key, OTHER) for key, _ in series)
        return self._histograms.setdefault(instrument, {}).setdefault(
            series, ExponentialHistogram(scheme_of(instrument.unit))
        )

    def of(self, instrument: Instrument) -> dict[Series, ExponentialHistogram]:
        """A copy of the histograms of ``instrument``."""
        with self._lock:
            return {series: histogram.copy() for series, histogram in self._histograms.get(instrument, _NONE).items()}

    def snapshot(self) -> Snapshot:
        """Everything counted since it was made."""
        with self._lock:
            copied = {
                instrument: {series: histogram.copy() for series, histogram in known.items()}
                for instrument, known in self._histograms.items()
            }
            return Snapshot(self._start_unix_ns, time.time_ns(), copied)

    def restart(self) -> Snapshot:
        """What was counted since the previous restart; from now on it counts anew."""
        with self._lock:
            counted, self._histograms = self._histograms, {}
            self._known.clear()
            start, self._start_unix_ns = self._start_unix_ns, time.time_ns()
            return Snapshot(start, self._start_unix_ns, counted)


# --- under somebody else's provider ------------------------------------------------------------------

RECENT_S = 60.0
"""Quantiles and maxima are of the last one to two such stretches."""

_BOUNDARIES = {"s": WAIT_BOUNDARIES_S, "By": SIZE_BOUNDARIES_BY}

MAX_REPLAYED = 100
"""Values replayed of many equal ones (steps too short to be kept one by one); the others are counted as lost."""


class Takes(Protocol):
    """Where values go."""

    def add(self, values: Iterable[Value]) -> None:
        """Count every one of ``values``. Any thread."""


class Observed:
    """Histograms as observable statistics. Any thread.

    Invariant: what was counted is in one of three, the past (sums only), the set before, and the recent one.
    """

    def __init__(self, observables: Observables, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Known = {}  # for as long as it lives: a counter's series must not go
        self._past: dict[Instrument, dict[Series, tuple[int, int]]] = {}
        self._recent, self._before = self._new(), self._new()
        self._turned = clock()
        for instrument in EXPONENTIAL:
            self._register(observables, instrument)

    def _new(self) -> HistogramSet:
        return HistogramSet(known=self._known)

    def _register(self, to: Observables, instrument: Instrument) -> None:
        name, unit, about = instrument.name, instrument.unit, instrument.description
        per_unit = scheme_of(unit).per_unit
        to.counter(f"{name}_count", "{value}", f"How many: {about}", lambda: self._counted(instrument, 0, 1))
        to.counter(f"{name}_sum", unit, f"Sum: {about}", lambda: self._counted(instrument, 1, per_unit))
        to.level(f"{name}_p50", unit, f"Median: {about}", lambda: self._quantiles(instrument, 0.5))
        to.level(f"{name}_p99", unit, f"99th percentile: {about}", lambda: self._quantiles(instrument, 0.99))
        to.level(f"{name}_largest", unit, f"Maximum: {about}", lambda: self._maxima(instrument))

    def add(self, values: Iterable[Value]) -> None:
        """Count every one of ``values``."""
        with self._lock:
            self._turn()
            self._recent.add(values)

    def _turn(self) -> None:
        now = self._clock()
        if now - self._turned < RECENT_S:
            return
        aside = [self._before]
        if now - self._turned < 2 * RECENT_S:
            self._before = self._recent
        else:
            aside.append(self._recent)
            self._before = self._new()
        self._recent, self._turned = self._new(), now
        for counted in aside:
            for instrument, histograms in counted.snapshot().histograms.items():
                _add_sums(self._past.setdefault(instrument, {}), histograms)

    def _counted(self, instrument: Instrument, which: int, per_unit: int) -> list[tuple[float, Series]]:
        with self._lock:
            found = dict(self._past.get(instrument, {}))
            for counted in (self._before, self._recent):
                _add_sums(found, counted.of(instrument))
            return [(row[which] if per_unit == 1 else row[which] / per_unit, series) for series, row in found.items()]

    def _lately(self, instrument: Instrument) -> dict[Series, ExponentialHistogram]:
        with self._lock:
            self._turn()
            found = self._recent.of(instrument)
            for series, histogram in self._before.of(instrument).items():
                if series in found:
                    histogram.merge(found[series])
                found[series] = histogram
            return found

    def _quantiles(self, instrument: Instrument, q: float) -> list[tuple[float, Series]]:
        found = ((histogram.quantile(q), series) for series, histogram in self._lately(instrument).items())
        return [(value, series) for value, series in found if value is not None]

    def _maxima(self, instrument: Instrument) -> list[tuple[float, Series]]:
        found = self._lately(instrument)
        return [(histogram.max / histogram.scheme.per_unit, series) for series, histogram in found.items()]


def _add_sums(sums: dict[Series, tuple[int, int]], histograms: Mapping[Series, ExponentialHistogram]) -> None:
    for series, histogram in histograms.items():
        count, total = sums.get(series, (0, 0))
        sums[series] = count + histogram.count, total + histogram.total


class Replay:
    """Every value recorded once more, with the provider's own histograms. Any thread; costs it 5.6 µs a value."""

    def __init__(self, meter: Meter, lost: Callable[[int], None]) -> None:
        self._lost = lost
        self._histograms = {
            instrument: meter.create_histogram(
                instrument.name,
                instrument.unit,
                instrument.description,
                explicit_bucket_boundaries_advisory=_BOUNDARIES.get(instrument.unit),
            )
            for instrument in EXPONENTIAL
        }

    def add(self, values: Iterable[Value]) -> None:
        """Record every one of ``values``."""
        for instrument, series, value, times in values:
            amount = max(value, 0) / scheme_of(instrument.unit).per_unit
            for _ in range(min(times, MAX_REPLAYED)):
                self._histograms[instrument].record(amount, dict(series), NO_SPAN)
            if times > MAX_REPLAYED:
                self._lost(times - MAX_REPLAYED)
