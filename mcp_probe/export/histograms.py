"""Base-2 exponential histograms, aggregated as integers; no OpenTelemetry here.

Bucket ``i`` at scale ``s`` holds the values in ``(2 ** (i / 2**s), 2 ** ((i + 1) / 2**s)]`` of the unit that is sent
(seconds, bytes). Which bucket an integer (nanoseconds, bytes) falls in is found by comparing integers, so it is exact:
a whole number exceeds a bound exactly if it exceeds the bound's floor. A histogram starts at scale :data:`MAX_SCALE`
(a bucket is 2.2 % wide) and halves its resolution whenever it would need more than :data:`MAX_BUCKETS` buckets.

Source: OpenTelemetry specification, metrics data model, "ExponentialHistogram".
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

from mcp_probe.export.conventions import OTHER, Instrument

MAX_SCALE = 5
MAX_BUCKETS = 160
"""As the SDK's default; at 160 buckets a range of 1 µs to 300 s has buckets 19 % wide, of 1 ms to 30 ms 2.2 %."""

MAX_SERIES = 1990
"""Attribute sets of one instrument; further ones are counted under ``other``. Just under the SDK's own limit."""

_TOP_BITS = 62
_GUARD_BITS = 256

Series = tuple[tuple[str, str], ...]
"""Attributes of one series, in the order in which the instrument names them."""

Value = tuple[Instrument, Series, int, int]
"""(instrument, series, value, how many times); the value in nanoseconds where the unit is seconds."""


class Ladder:
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


_LADDERS: dict[str, Ladder] = {}


def ladder_of(unit: str) -> Ladder:
    """The ladder for values sent in ``unit``: ``s`` takes nanoseconds, every other unit is taken as it is."""
    if unit not in _LADDERS:
        _LADDERS[unit] = Ladder(10**9 if unit == "s" else 1)
    return _LADDERS[unit]


class ExponentialHistogram:
    """One series. Not thread-safe; merging is addition, at the coarser scale of the two."""

    __slots__ = ("count", "counts", "ladder", "max", "min", "scale", "total", "zeros")

    def __init__(self, ladder: Ladder) -> None:
        self.ladder = ladder
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
        index = self.ladder.index(value) >> (MAX_SCALE - self.scale)
        counts = self.counts
        if index in counts:
            counts[index] += times
        else:
            counts[index] = times
            self._fit()

    def merge(self, other: ExponentialHistogram) -> None:
        """Add ``other``, which has the same ladder and stays as it is."""
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
        twin = ExponentialHistogram(self.ladder)
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
        per_unit, growth = self.ladder.per_unit, 2.0**-self.scale
        for index in sorted(self.counts):
            rank -= self.counts[index]
            if rank <= 0:
                middle: float = 2.0 ** ((index + 0.5) * growth)
                return min(self.max / per_unit, max((self.min or 0) / per_unit, middle))
        raise AssertionError("unreachable: the rank is within the count")


_NONE: dict[Series, ExponentialHistogram] = {}


@dataclass(frozen=True, slots=True)
class Page:
    """Every histogram of a :class:`Book` at one instant, and the stretch of time that it covers."""

    start_unix_ns: int
    end_unix_ns: int
    histograms: Mapping[Instrument, Mapping[Series, ExponentialHistogram]]


class Book:
    """The histograms of one pipeline. Any thread; takes its lock for no longer than it takes to copy them."""

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._lock = threading.Lock()
        self._max_series = max_series
        self._start_unix_ns = time.time_ns()
        self._histograms: dict[Instrument, dict[Series, ExponentialHistogram]] = {}

    def add(self, values: Iterable[Value]) -> None:
        """Count every one of ``values``."""
        with self._lock:
            for instrument, series, value, times in values:
                histogram = self._histograms.get(instrument, _NONE).get(series)
                if histogram is None:
                    histogram = self._opened(instrument, series)
                histogram.add(value, times)

    def _opened(self, instrument: Instrument, series: Series) -> ExponentialHistogram:
        known = self._histograms.setdefault(instrument, {})
        if len(known) >= self._max_series:
            series = tuple((key, OTHER) for key, _ in series)
        return known.setdefault(series, ExponentialHistogram(ladder_of(instrument.unit)))

    def so_far(self) -> Page:
        """Everything counted since the book was opened."""
        with self._lock:
            copied = {
                instrument: {series: histogram.copy() for series, histogram in known.items()}
                for instrument, known in self._histograms.items()
            }
            return Page(self._start_unix_ns, time.time_ns(), copied)

    def turn(self) -> Page:
        """What was counted since the previous turn; from now on it counts anew."""
        with self._lock:
            turned, self._histograms = self._histograms, {}
            start, self._start_unix_ns = self._start_unix_ns, time.time_ns()
            return Page(start, self._start_unix_ns, turned)
