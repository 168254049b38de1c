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
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import Any

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

Amounts = tuple["int | None", ...]
"""One value for each histogram of a :class:`Bundle`; ``None`` = there is none."""


class Bundle:
    """Histograms that get one value each of every request. Compared by identity: made once, and kept."""

    __slots__ = ("keys",)

    def __init__(self, keys: tuple[tuple[Instrument, Series], ...]) -> None:
        self.keys = keys


class Ladder:
    """Bounds of the finest buckets, in whole steps of ``1 / per_unit`` of the unit that is sent."""

    __slots__ = ("_bounds", "_first", "_packed", "_within", "per_unit")

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
        self._packed: tuple[int, bytes] | None = None

    def packed(self) -> tuple[int, bytes]:
        """(bucket below the first bound, the bounds as 64-bit integers), for the accelerator."""
        if self._packed is None:
            self._packed = self._first, array("q", self._bounds).tobytes()
        return self._packed

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

Part = tuple[int, int, int, int, "int | None", int, dict[int, int]]
"""(scale, zeros, count, total, min, max, counts) of a histogram."""


class PythonRow:
    """The histograms of one bundle between two looks at them. Twin of ``Row`` in native/exponential.h."""

    def __init__(self, ladders: list[Ladder]) -> None:
        self._ladders = ladders
        self._histograms = [ExponentialHistogram(ladder) for ladder in ladders]

    def add(self, amounts: Amounts) -> None:
        """Count one value, or none, in each histogram."""
        for histogram, amount in zip(self._histograms, amounts, strict=True):
            if amount is not None:
                histogram.add(amount)

    def take(self) -> list[Part]:
        """What was counted since the last call, histogram by histogram."""
        taken, self._histograms = self._histograms, [ExponentialHistogram(ladder) for ladder in self._ladders]
        return [(row.scale, row.zeros, row.count, row.total, row.min, row.max, row.counts) for row in taken]


def row_of(bundle: Bundle) -> Any:
    """A row for ``bundle``: the accelerator's, where there is one."""
    ladders = [ladder_of(instrument.unit) for instrument, _ in bundle.keys]
    return PythonRow(ladders)


def _histogram_of(ladder: Ladder, part: Part) -> ExponentialHistogram:
    found = ExponentialHistogram(ladder)
    found.scale, found.zeros, found.count, found.total, found.min, found.max, found.counts = part
    return found


Known = dict[Instrument, set[Series]]


@dataclass(frozen=True, slots=True)
class Page:
    """Every histogram of a :class:`Book` at one instant, and the stretch of time that it covers."""

    start_unix_ns: int
    end_unix_ns: int
    histograms: Mapping[Instrument, Mapping[Series, ExponentialHistogram]]


class Book:
    """The histograms of one pipeline. Any thread; takes its lock for no longer than it takes to copy them.

    Args:
        known: the series of each instrument that have a histogram of their own; shared by books that follow each other.
    """

    def __init__(self, max_series: int = MAX_SERIES, known: Known | None = None) -> None:
        self._lock = threading.Lock()
        self._max_series = max_series
        self._start_unix_ns = time.time_ns()
        self._known: Known = {} if known is None else known
        self._histograms: dict[Instrument, dict[Series, ExponentialHistogram]] = {}
        self._rows: dict[Bundle, Any] = {}
        self._settled = True  # nothing was counted by a row that is not in the histograms yet

    def add(self, values: Iterable[Value]) -> None:
        """Count every one of ``values``."""
        with self._lock:
            for instrument, series, value, times in values:
                self._of(instrument, series).add(value, times)

    def add_requests(self, requests: Iterable[tuple[Bundle, Amounts]]) -> None:
        """Count one value in each histogram of each request's bundle."""
        with self._lock:
            self._settled = False
            rows = self._rows
            for bundle, amounts in requests:
                row = rows.get(bundle)
                if row is None:
                    row = rows[bundle] = row_of(bundle)
                row.add(amounts)

    def _of(self, instrument: Instrument, series: Series) -> ExponentialHistogram:
        found = self._histograms.get(instrument, _NONE).get(series)
        return self._opened(instrument, series) if found is None else found

    def _opened(self, instrument: Instrument, series: Series) -> ExponentialHistogram:
        known = self._known.setdefault(instrument, set())
        if series not in known:
            if len(known) < self._max_series:
                known.add(series)
            else:
                series = tuple((key, OTHER) for key, _ in series)
        return self._histograms.setdefault(instrument, {}).setdefault(
            series, ExponentialHistogram(ladder_of(instrument.unit))
        )

    def _settle(self) -> None:
        """Bring what the rows have counted into the histograms."""
        if self._settled:
            return
        self._settled = True
        for bundle, row in self._rows.items():
            for (instrument, series), part in zip(bundle.keys, row.take(), strict=True):
                if part[2]:
                    self._of(instrument, series).merge(_histogram_of(ladder_of(instrument.unit), part))

    def of(self, instrument: Instrument) -> dict[Series, ExponentialHistogram]:
        """A copy of the histograms of ``instrument``."""
        with self._lock:
            self._settle()
            return {series: histogram.copy() for series, histogram in self._histograms.get(instrument, _NONE).items()}

    def so_far(self) -> Page:
        """Everything counted since the book was opened."""
        with self._lock:
            self._settle()
            copied = {
                instrument: {series: histogram.copy() for series, histogram in known.items()}
                for instrument, known in self._histograms.items()
            }
            return Page(self._start_unix_ns, time.time_ns(), copied)

    def turn(self) -> Page:
        """What was counted since the previous turn; from now on it counts anew."""
        with self._lock:
            self._settle()
            turned, self._histograms = self._histograms, {}
            self._known.clear()
            start, self._start_unix_ns = self._start_unix_ns, time.time_ns()
            return Page(start, self._start_unix_ns, turned)
