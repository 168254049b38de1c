"""How our histograms go out under somebody else's provider, which takes values one by one, 5.6 µs each.

- :class:`Observed`, the default: observable counters (count, sum) and gauges (p50, p99, max).
- :class:`Replay`, on request: every value is recorded once more, so that the provider's views apply.

Where the pipeline is ours, a :class:`~mcp_probe.export.histograms.Book` takes their place (see ``exponential``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from opentelemetry.metrics import Meter

from mcp_probe.export.conventions import EXPONENTIAL, SIZE_BOUNDARIES_BY, WAIT_BOUNDARIES_S, Instrument
from mcp_probe.export.histograms import Amounts, Book, Bundle, ExponentialHistogram, Known, Series, Value, ladder_of
from mcp_probe.export.observables import NO_SPAN, Observables

RECENT_S = 60.0
"""Quantiles and maxima are of the last one to two such stretches."""

_BOUNDARIES = {"s": WAIT_BOUNDARIES_S, "By": SIZE_BOUNDARIES_BY}

MAX_REPLAYED = 100
"""Values replayed of one lot of equal ones (steps too short to be kept one by one); the others are counted as lost."""


class Takes(Protocol):
    """Where values go."""

    def add(self, values: Iterable[Value]) -> None:
        """Count every one of ``values``. Any thread."""

    def add_requests(self, requests: Sequence[tuple[Bundle, Amounts]]) -> None:
        """Count one value in each histogram of each request's bundle. Any thread."""


class Observed:
    """Histograms as observable statistics. Any thread.

    Invariant: what was counted is in one of three, the past (sums only), the book before, and the recent one.
    """

    def __init__(self, observables: Observables, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Known = {}  # for as long as it lives: a counter's series must not go
        self._past: dict[Instrument, dict[Series, tuple[int, int]]] = {}
        self._recent, self._before = self._book(), self._book()
        self._turned = clock()
        for instrument in EXPONENTIAL:
            self._register(observables, instrument)

    def _book(self) -> Book:
        return Book(known=self._known)

    def _register(self, to: Observables, instrument: Instrument) -> None:
        name, unit, about = instrument.name, instrument.unit, instrument.description
        per_unit = ladder_of(unit).per_unit
        to.counter(f"{name}.count", "{value}", f"How many: {about}", lambda: self._counted(instrument, 0, 1))
        to.counter(f"{name}.sum", unit, f"Sum: {about}", lambda: self._counted(instrument, 1, per_unit))
        to.level(f"{name}.p50", unit, f"Median: {about}", lambda: self._quantiles(instrument, 0.5))
        to.level(f"{name}.p99", unit, f"99th percentile: {about}", lambda: self._quantiles(instrument, 0.99))
        to.level(f"{name}.max", unit, f"Maximum: {about}", lambda: self._maxima(instrument))

    def add(self, values: Iterable[Value]) -> None:
        """Count every one of ``values``."""
        with self._lock:
            self._turn()
            self._recent.add(values)

    def add_requests(self, requests: Sequence[tuple[Bundle, Amounts]]) -> None:
        """Count one value in each histogram of each request's bundle."""
        with self._lock:
            self._turn()
            self._recent.add_requests(requests)

    def _turn(self) -> None:
        now = self._clock()
        if now - self._turned < RECENT_S:
            return
        aside = [self._before]
        if now - self._turned < 2 * RECENT_S:
            self._before = self._recent
        else:
            aside.append(self._recent)
            self._before = self._book()
        self._recent, self._turned = self._book(), now
        for book in aside:
            for instrument, histograms in book.so_far().histograms.items():
                _add_sums(self._past.setdefault(instrument, {}), histograms)

    def _counted(self, instrument: Instrument, which: int, per_unit: int) -> list[tuple[float, Series]]:
        with self._lock:
            found = dict(self._past.get(instrument, {}))
            for book in (self._before, self._recent):
                _add_sums(found, book.of(instrument))
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
        return [(histogram.max / histogram.ladder.per_unit, series) for series, histogram in found.items()]


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
            amount = max(value, 0) / ladder_of(instrument.unit).per_unit
            for _ in range(min(times, MAX_REPLAYED)):
                self._histograms[instrument].record(amount, dict(series), NO_SPAN)
            if times > MAX_REPLAYED:
                self._lost(times - MAX_REPLAYED)

    def add_requests(self, requests: Sequence[tuple[Bundle, Amounts]]) -> None:
        """Record one value in each histogram of each request's bundle."""
        for bundle, amounts in requests:
            self.add(
                (instrument, series, amount, 1)
                for (instrument, series), amount in zip(bundle.keys, amounts, strict=True)
                if amount is not None
            )
