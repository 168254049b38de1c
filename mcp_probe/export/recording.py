"""Values for a histogram of somebody else's provider, without most of what ``Histogram.record`` costs.

The SDK cleans and hashes the attributes of each value anew, to find where it belongs; of a request's duration these
are always the same few objects, so where they led to is remembered. Views, exemplar filters and reservoirs apply as
they do there. Whatever is not known to be the SDK's own, and a reader that starts anew with each collection (delta
temporality), gets ``record``.

Source: opentelemetry/sdk/metrics/_internal/{instrument,measurement_consumer,_view_instrument_match}.py, 1.45.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from time import time_ns
from typing import Any, TypeVar

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram

from mcp_probe.export.enrich import Attributes

T = TypeVar("T")

MAX_KNOWN = 4096
_SDK = "opentelemetry.sdk.metrics._internal"


class _Place:
    """Where values with these attributes belong; nowhere that is known, where there are no aggregations."""

    __slots__ = ("aggregations", "are_buckets", "cleaned", "given", "storages")

    def __init__(self, given: Attributes, cleaned: Attributes, storages: Any, aggregations: tuple[Any, ...]) -> None:
        self.given = given  # keeps their id theirs
        self.cleaned = cleaned
        self.storages = storages
        self.aggregations = aggregations
        self.are_buckets = bool(aggregations) and all(map(_has_buckets, aggregations))


class Recorder:
    """Records into ``histogram``. Attributes must not change once they were given. Not thread-safe."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram: Any = histogram
        self._consumer: Any = _known_consumer(histogram)
        self._measurement: Any = None if self._consumer is None else sys.modules[f"{_SDK}.measurement"].Measurement
        self._places: dict[int, _Place] = {}

    def record(self, value: float, attributes: Attributes, context: Context) -> None:
        """As ``Histogram.record``, of a value that is finite and not negative."""
        place, consumer = self._places.get(id(attributes)), self._consumer
        if place is None or place.storages is not consumer._reader_storages:
            self._histogram.record(value, attributes, context)
            if consumer is not None:
                self._learn(attributes, context)
            return
        if not place.aggregations or not self._histogram._is_enabled():
            self._histogram.record(value, attributes, context)
            return
        at, cleaned = time_ns(), place.cleaned
        sampled = consumer._sdk_config.exemplar_filter.should_sample(value, at, cleaned, context)
        measurement = object.__new__(self._measurement)
        vars(measurement).update(
            value=value, time_unix_nano=at, instrument=self._histogram, context=context, attributes=cleaned
        )
        for aggregation in place.aggregations:
            aggregation.aggregate(measurement, sampled)

    def record_all(
        self,
        values: Sequence[float],
        attributes: Attributes,
        sources: Sequence[T],
        context_of: Callable[[T], Context],
        is_sampled: Callable[[T], bool],
    ) -> None:
        """As :meth:`record` of each of ``values``, at least one.

        Args:
            sources: What each of them is of.
            context_of: Its context.
            is_sampled: Whether there is a sampled span in that.
        """
        rest = 0
        if id(attributes) not in self._places:
            self.record(values[0], attributes, context_of(sources[0]))
            rest = 1
        place, consumer = self._places.get(id(attributes)), self._consumer
        if (
            place is None
            or not place.are_buckets
            or place.storages is not consumer._reader_storages
            or not _takes_sampled(consumer)
            or not self._histogram._is_enabled()
        ):
            for at in range(rest, len(values)):
                self.record(values[at], attributes, context_of(sources[at]))
            return
        now = time_ns()
        for aggregation in place.aggregations:
            for at in _add_all(aggregation, values, rest, lambda at: is_sampled(sources[at])):
                aggregation._reservoir.offer(values[at], now, place.cleaned, context_of(sources[at]))

    def _learn(self, attributes: Attributes, context: Context) -> None:
        """Find where the value just recorded went."""
        self._places.pop(id(attributes), None)
        if len(self._places) >= MAX_KNOWN:
            return
        try:
            self._places[id(attributes)] = self._find(attributes, context)
        except (AttributeError, KeyError, TypeError):  # not the SDK that we know after all
            self._consumer = None
            self._places.clear()

    def _find(self, attributes: Attributes, context: Context) -> _Place:
        hash_of = sys.modules[f"{_SDK}._view_instrument_match"]._hash_attributes
        made = self._measurement(0.0, 0, self._histogram, context, attributes)
        storages, aggregations = self._consumer._reader_storages, []
        for storage in storages.values():
            for match in storage._instrument_view_instrument_matches.get(self._histogram, ()):
                keys = match._view._attribute_keys
                kept = (
                    dict(made.attributes) if keys is None else {k: v for k, v in made.attributes.items() if k in keys}
                )
                aggregation = match._attributes_aggregation.get(hash_of(kept))
                if match._reset_on_collect or aggregation is None:  # counted as overflow
                    return _Place(attributes, made.attributes, storages, ())
                aggregations.append(aggregation)
        return _Place(attributes, made.attributes, storages, tuple(aggregations))


def _add_all(aggregation: Any, values: Sequence[float], first: int, sampled_at: Callable[[int], bool]) -> list[int]:
    """What ``aggregate`` does with the values from ``first`` on, but for exemplars.

    Of each bucket its reservoir keeps the last: returns where those are.
    """
    bounds = aggregation._boundaries
    buckets = [bisect_left(bounds, value) for value in values]
    with aggregation._lock:
        if aggregation._value is None:
            aggregation._value = aggregation._get_empty_bucket_counts()
        counts, total = aggregation._value, aggregation._sum
        for at in range(first, len(values)):
            total += values[at]
            counts[buckets[at]] += 1
        aggregation._sum = total
        if aggregation._record_min_max and first < len(values):
            aggregation._min = min(aggregation._min, *values[first:])
            aggregation._max = max(aggregation._max, *values[first:])
    wanted, found = set(buckets[first:]), []
    for at in range(len(values) - 1, first - 1, -1):
        if buckets[at] in wanted and sampled_at(at):
            wanted.discard(buckets[at])
            found.append(at)
            if not wanted:
                break
    return found


def _has_buckets(aggregation: Any) -> bool:
    """Explicit ones, of which the reservoir keeps the last value each."""
    aggregations, reservoirs = (
        sys.modules.get(f"{_SDK}.{name}") for name in ("aggregation", "exemplar.exemplar_reservoir")
    )
    fields = ("_lock", "_value", "_sum", "_min", "_max", "_record_min_max", "_boundaries", "_get_empty_bucket_counts")
    return (
        type(aggregation) is getattr(aggregations, "_ExplicitBucketHistogramAggregation", ())
        and type(getattr(aggregation, "_reservoir", None))
        is getattr(reservoirs, "AlignedHistogramBucketExemplarReservoir", ())
        and all(hasattr(aggregation, field) for field in fields)
    )


def _takes_sampled(consumer: Any) -> bool:
    """Its exemplars are of values in the context of a sampled span, and of no others."""
    filters = sys.modules.get(f"{_SDK}.exemplar.exemplar_filter")
    return type(consumer._sdk_config.exemplar_filter) is getattr(filters, "TraceBasedExemplarFilter", ())


def _known_consumer(histogram: Any) -> Any:
    """Of the SDK's own histogram and consumer; else ``None``."""
    instruments, consumers = sys.modules.get(f"{_SDK}.instrument"), sys.modules.get(f"{_SDK}.measurement_consumer")
    matches, measurements = (sys.modules.get(f"{_SDK}.{name}") for name in ("_view_instrument_match", "measurement"))
    if instruments is None or consumers is None or matches is None or measurements is None:
        return None
    consumer = getattr(histogram, "_measurement_consumer", None)
    known = (
        getattr(type(histogram), "record", None) is instruments.Histogram.record
        and type(consumer) is getattr(consumers, "SynchronousMeasurementConsumer", None)
        and callable(getattr(histogram, "_is_enabled", None))
        and hasattr(consumer, "_reader_storages")
        and hasattr(getattr(consumer, "_sdk_config", None), "exemplar_filter")
        and callable(getattr(matches, "_hash_attributes", None))
    )
    return consumer if known else None
