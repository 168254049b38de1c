"""Observable instruments that outlive the probes that answer for them.

A provider keeps an observable instrument for as long as it lives, and takes no other callback for it: a probe that is
attached after another has gone must answer through the instruments that are there. So they are registered once for
each provider, and ask whoever reads at that moment. Counters never fall: what a reader had counted stays.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from mcp_probe.export import conventions as names
from mcp_probe.export.histograms import MAX_SERIES, Series

logger = logging.getLogger("mcp_probe")

NO_SPAN = trace.set_span_in_context(trace.INVALID_SPAN, Context())
"""The context of a value that belongs to no trace; an empty one would be taken for the ambient one."""

Read = Callable[[], Iterable[tuple[float, Series]]]
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
