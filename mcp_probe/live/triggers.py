"""When a flight recording is worth writing: a slow request, one that hangs, a finding. Pure but for its memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mcp_probe.histogram import bucket_of
from mcp_probe.model import Finding, Frame, RequestGroup, RequestRecord
from mcp_probe.record.raw import RawRequest
from mcp_probe.record.running_p99 import RunningP99

FLOOR_NS = 100_000_000
"""A faster answer is at once for whoever waits for it, however many times its p99 it took."""
HANGS_NS = 30_000_000_000
"""Of an operation with fewer than 100 calls. Half of the 60 s after which the SDK's TypeScript client gives up, so that
the recording is written before that. Source: modelcontextprotocol/typescript-sdk, DEFAULT_REQUEST_TIMEOUT_MSEC."""
ONCE_NS = 60_000_000_000
"""At most one recording a minute says the same."""
MAX_OPERATIONS = 500
MAX_KEYS = 512
_STAYS_OPEN = frozenset({"subscriptions/listen"})
"""Requests that live as long as their client does (mcp 2.x)."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A reason to write. ``key`` is what may fire once a minute, ``word`` goes into the file's name."""

    key: str
    word: str
    sentence: str


class Triggers:
    """``factor`` times its operation's p99 is slow; ``slow_ns``, where given, is the limit for all instead."""

    def __init__(self, factor: float, slow_ns: int | None = None) -> None:
        self._factor = factor
        self._slow_ns = slow_ns
        self._p99 = RunningP99(MAX_OPERATIONS, "other")
        self._fired: dict[str, int] = {}
        self._hung: set[int] = set()
        self._known: frozenset[str] = frozenset()

    def of_frames(self, frames: Iterable[Frame], now: int) -> list[Trigger]:
        """Requests among ``frames`` that were slow compared with those before them."""
        found = []
        for frame in frames:
            if isinstance(frame, RequestRecord) and frame.kind == "request" and frame.outcome != "unfinished":
                operation, took = frame.name or frame.method, frame.end_ns - frame.arrival_ns
                limit = self.limit_ns(operation)
                if took >= limit and frame.id not in self._hung and frame.method not in _STAYS_OPEN:
                    found.append(self._slow(operation, took, f"{operation} took {_ms(took)}"))
                self._hung.discard(frame.id)
                self._p99.count(operation, [(bucket_of(max(0, took)), 1)])
            elif isinstance(frame, RequestGroup) and frame.kind == "request":
                rows = [(bucket, count) for bucket, count, _ in frame.durations]
                self._p99.count(frame.name or frame.method, rows)
        return self._due(found, now)

    def of_live(self, live: Iterable[RawRequest], now: int) -> list[Trigger]:
        """Requests in flight that have taken too long already; each is told once."""
        found = []
        for raw in live:
            if raw.kind != "request" or raw.id in self._hung or raw.arrival_ns is None or raw.method in _STAYS_OPEN:
                continue
            age = now - raw.arrival_ns
            if age >= self.limit_ns(raw.operation):
                if len(self._hung) >= MAX_KEYS:
                    self._hung.clear()
                self._hung.add(raw.id)
                found.append(self._slow(raw.operation, age, f"{raw.operation} has not answered for {_ms(age)}"))
        return self._due(found, now)

    def of_findings(self, findings: Sequence[Finding], now: int) -> list[Trigger]:
        """Findings, but notices, that were not raised the last time."""
        raised = {f"{one.code} {one.subject}": one for one in findings if one.severity != "info"}
        fresh = [one for key, one in raised.items() if key not in self._known]
        self._known = frozenset(raised)
        return self._due([Trigger(f"{one.code} {one.subject}", one.code, one.sentence) for one in fresh], now)

    def limit_ns(self, operation: str) -> float:
        """From when on a request of ``operation`` is slow."""
        if self._slow_ns is not None:
            return self._slow_ns
        p99 = self._p99.of(operation)
        return HANGS_NS if p99 is None else max(FLOOR_NS, self._factor * p99)

    def _slow(self, operation: str, took: int, told: str) -> Trigger:
        p99 = self._p99.of(operation)
        if self._slow_ns is not None:
            why = f"slow is {_ms(self._slow_ns)} here"
        elif p99 is None:
            why = f"fewer than 100 calls are known, so its limit is {_ms(HANGS_NS)}"
        else:
            why = f"its p99 is {_ms(p99)}"
        return Trigger(f"slow {operation}", operation, f"{told}; {why}.")

    def _due(self, found: Sequence[Trigger], now: int) -> list[Trigger]:
        due = []
        for trigger in found:
            last = self._fired.get(trigger.key)
            if last is not None and now - last < ONCE_NS:
                continue
            if len(self._fired) >= MAX_KEYS:
                self._fired = {key: at for key, at in self._fired.items() if now - at < ONCE_NS}
            if len(self._fired) < MAX_KEYS:
                self._fired[trigger.key] = now
                due.append(trigger)
        return due


def _ms(ns: float) -> str:
    return f"{ns / 1e9:.2f} s" if ns >= 1e9 else f"{ns / 1e6:.0f} ms"
