"""Measures while a request lives: who reads them, and what they have read of it (:mod:`mcp_probe.measures`).

A reader of steps is made without arguments. Its ``read()`` returns counters of the calling thread that only grow: one
for each measure that names the reader, in the measures' order. It is called before and after each step and each thread
job of a request. A reader of marks is made with the hub and :data:`Add`, which it calls on the thread that works for
the request. Its ``is_complete()`` is false if it may miss something, and its ``restore()`` is that of a hook. If making
a reader raises, its measures are unavailable, and the report says why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any, Protocol, get_args

from mcp_probe.capture.current import CURRENT
from mcp_probe.capture.guard import Guard
from mcp_probe.capture.tiers import Tiered
from mcp_probe.clock import now_ns
from mcp_probe.measures import MEASURES, Measure
from mcp_probe.model import STEPS, MeasureTier, Tag
from mcp_probe.record.raw import RawRequest

TIERS: tuple[MeasureTier, ...] = get_args(MeasureTier)
"""From nothing to everything."""

Add = Callable[[str, int], None]
"""(measure, what was read): counts for the request that the calling thread works for, and for the enclosing ones."""

Reading = list[tuple[int, ...]]


class Hooked(Protocol):
    """The part of the hub that readers and their owner use."""

    loop_names: dict[str, None]

    def missing(self, hook: str, why: str) -> None: ...

    def fail(self, hook: str, exc: Exception) -> None: ...


class StepReader(Protocol):
    """Reads counters of the calling thread."""

    def read(self) -> tuple[int, ...]: ...


class MarkReader(Protocol):
    """Reads whenever something happens."""

    def is_complete(self) -> bool: ...

    def restore(self) -> list[str]: ...


class Active:
    """One reader that works, its measures, and since when."""

    def __init__(self, reader: Any, measures: tuple[Measure, ...]) -> None:
        self.reader = reader
        self.measures = measures
        self.by_steps = measures[0].read == "steps"
        self.since_ns = now_ns()


class Measuring(Tiered[MeasureTier]):
    """All readers of the process: the highest tier that a session wants is in force. Its methods never raise."""

    def __init__(self, hub: Hooked, measures: Iterable[Measure] = MEASURES) -> None:
        super().__init__(TIERS)
        self._hub = hub
        self._measures = {measure.name: measure for measure in measures}
        self._declared: dict[str, list[Measure]] = {}
        for measure in self._measures.values():
            self._declared.setdefault(measure.reader, []).append(measure)
        # A request's steps and jobs add on several threads, and a destructor that logs an error on one that adds.
        self._adding = threading.RLock()
        self._active: dict[str, Active] = {}
        self.meter: StepMeter | None = None  # for loops and pools, where something is read around steps
        self.changed: Callable[[], None] = lambda: None  # called when ``meter`` has changed

    def abandon(self) -> None:
        """This is a forked child, where the thread that held a lock may not exist."""
        self._adding = threading.RLock()
        super().abandon()

    def _settle(self) -> list[str]:
        tier = self._wanted()
        stuck: list[str] = []
        for path, measures in self._declared.items():
            wanted = tier == "detailed" or (tier == "light" and not measures[0].detailed)
            if wanted and path not in self._active:
                self._start(path, tuple(measures))
            elif not wanted and path in self._active:
                stuck += self._stop(path)
        steps = tuple(one for one in self._active.values() if one.by_steps)
        had, self.meter = self.meter, StepMeter(self, steps) if steps else None
        if had is not None or self.meter is not None:
            self.changed()
        return stuck

    def _start(self, path: str, measures: tuple[Measure, ...]) -> None:
        module, _, name = path.partition(":")
        try:
            make = getattr(import_module(module), name)
            reader = make() if measures[0].read == "steps" else make(self._hub, self.add)
        except Exception as exc:  # noqa: BLE001 - the server runs on without this measure
            for measure in measures:
                self._hub.missing(f"measure {measure.name}", f"{type(exc).__name__}: {exc}")
            return
        self._active[path] = Active(reader, measures)

    def _stop(self, path: str) -> list[str]:
        gone = self._active.pop(path)
        return [] if gone.by_steps else list(gone.reader.restore())

    # --- what was read ---

    def add(self, name: str, value: int) -> None:
        """See :data:`Add`."""
        self.charge(CURRENT.get(), name, value)

    def charge(self, raw: RawRequest | None, name: str, value: int) -> None:
        """Add ``value`` of the measure ``name`` to ``raw`` and to the requests that enclose it."""
        with self._adding:
            while raw is not None:
                self._add_to(raw, name, value)
                raw = raw.parent

    def charge_alone(self, raw: RawRequest, name: str, value: int) -> None:
        """Add ``value`` of the measure ``name`` to ``raw``, and not to the requests that enclose it."""
        with self._adding:
            self._add_to(raw, name, value)

    def _add_to(self, raw: RawRequest, name: str, value: int) -> None:
        if not raw.ended:
            kept = raw.measured
            if kept is None:
                kept = raw.measured = {}
            before = kept.get(name, 0)
            kept[name] = max(before, value) if self._measures[name].fold == "max" else before + value

    def of(self, raw: RawRequest) -> tuple[tuple[str, int | None, Tag], ...]:
        """(measure, value or ``None``, how exact) of each measure that is read now. Any thread."""
        rows: list[tuple[str, int | None, Tag]] = []
        began = raw.first_step_ns
        for active in tuple(self._active.values()):
            known = began is not None and began >= active.since_ns and (not active.by_steps or raw.seen & STEPS)
            whole = known and (active.by_steps or active.reader.is_complete())
            for measure in active.measures:
                shown = known and _is_shown(raw, measure)
                value = (raw.measured or {}).get(measure.name, 0) if shown else None
                tag = "unavailable" if not shown else measure.quality if whole else "lower"
                rows.append((measure.name, value, tag))
        return tuple(rows)

    def broken(self) -> None:
        """A reader of steps has raised: no reader of steps is called any more."""
        with self._lock:
            for path in [path for path, active in self._active.items() if active.by_steps]:
                del self._active[path], self._declared[path]
            self._settle()


def _is_shown(raw: RawRequest, measure: Measure) -> bool:
    """Whether of ``raw`` is seen what ``measure`` needs."""
    if measure.needs is None:
        return True
    if measure.needs == "steps":
        return bool(raw.seen & STEPS)
    return raw.channel is not None and (measure.needs == "messages" or raw.channel.times_writes)


class StepMeter:
    """Reads around steps, on the loop's thread, and around thread jobs, on theirs."""

    def __init__(self, measuring: Measuring, readers: tuple[Active, ...]) -> None:
        self._measuring = measuring
        self._readers = readers
        self._guard = Guard("measures of steps", measuring._hub.fail, measuring.broken)

    def begin(self) -> Reading:
        """A step begins."""
        return self._guard.call(self._read) or []

    def _read(self) -> Reading:
        return [active.reader.read() for active in self._readers]

    def end(self, reading: Reading, owner: RawRequest) -> None:
        """The step has ended; it was a step of ``owner``."""
        if reading and self._guard.active:
            self._guard.call(self._charge, reading, owner)

    def _charge(self, reading: Reading, owner: RawRequest) -> None:
        for active, before in zip(self._readers, reading, strict=True):
            for measure, then, now in zip(active.measures, before, active.reader.read(), strict=True):
                if now != then:
                    self._measuring.charge(owner, measure.name, now - then)

    def enter(self, raw: RawRequest | None) -> tuple[Reading, RawRequest] | None:
        """A job of ``raw`` begins on the calling thread. Returns the token for :meth:`leave`."""
        return None if raw is None or raw.ended else (self.begin(), raw)

    def leave(self, token: tuple[Reading, RawRequest] | None) -> None:
        """The job has ended."""
        if token is not None:
            self.end(*token)


class Around:
    """What a loop calls around a step of a request: several meters. Each gets back its own reading."""

    def __init__(self, meters: tuple[Any, ...]) -> None:
        self._meters = meters

    def begin(self) -> Callable[[RawRequest], None]:
        """A step begins. Returns what to call with its owner as it ends; the meters may have changed by then."""
        return partial(_end, [(meter, meter.begin()) for meter in self._meters])


def _end(readings: list[tuple[Any, Any]], owner: RawRequest) -> None:
    for meter, reading in readings:
        meter.end(reading, owner)


def around(meters: Iterable[Any]) -> Around | None:
    """All of these meters that are not ``None``; ``None`` without any."""
    there = tuple(meter for meter in meters if meter is not None)
    return Around(there) if there else None
