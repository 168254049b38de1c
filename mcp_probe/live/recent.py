"""Operations over the last seconds, and the last health of each loop: from the frames that a session hands on."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from mcp_probe.histogram import bucket_of, merge, quantile
from mcp_probe.model import Frame, LoopSample, RequestGroup, RequestRecord, Tag
from mcp_probe.now import OperationNow

WINDOW_S = 10
MAX_OPERATIONS = 200
"""Told apart in one second; further ones are ``other``: a client may invent names."""
OTHER = "other"
_MS = 1e6
_NS = 1_000_000_000


class Health(NamedTuple):
    """Of one loop; utilization of the last second, the others of the window."""

    utilization: float
    arrival_delay_ms: float  # mean, of what arrives at a random instant
    longest_ms: float  # iteration
    quality: Tag


class _Tally:
    __slots__ = ("count", "durations", "errors", "max_ns")

    def __init__(self) -> None:
        self.count = self.errors = self.max_ns = 0
        self.durations: dict[int, int] = {}


class Recent:
    """A :class:`~mcp_probe.model.FrameListener`. It takes nothing until :meth:`begin`, nor after :meth:`stop`.

    Frames come on the collector's thread; rows are asked for on another. Each second has a table of its own, which
    nobody changes once the next has begun.
    """

    def __init__(self) -> None:
        self._since_ns: int | None = None  # when somebody began to watch
        self._seconds: deque[tuple[int, dict[str, _Tally]]] = deque(maxlen=WINDOW_S + 1)
        self._loops: dict[int, deque[LoopSample]] = {}

    def begin(self, now: int) -> None:
        """Somebody watches from ``now`` on."""
        if self._since_ns is None:
            self._seconds = deque(maxlen=WINDOW_S + 1)  # others may still read the ones before
            self._loops = {}
            self._since_ns = now

    def stop(self) -> None:
        """Nobody does any more."""
        self._since_ns = None

    def take(self, frames: Sequence[Frame]) -> None:
        """Frames, in their order."""
        since = self._since_ns
        if since is None:
            return
        for frame in frames:
            if isinstance(frame, RequestRecord):
                if frame.end_ns >= since:
                    self._add(frame)
            elif isinstance(frame, RequestGroup):
                if frame.last_ns >= since:
                    self._add_group(frame)
            elif isinstance(frame, LoopSample) and frame.span_ns > 0:
                self._loops.setdefault(frame.loop, deque(maxlen=WINDOW_S)).append(frame)

    def close(self, timeout_s: float) -> None:
        """No more frames will come."""
        self.stop()

    def _tally(self, name: str, at_ns: int) -> _Tally:
        second = at_ns // _NS
        if not self._seconds or self._seconds[-1][0] < second:
            self._seconds.append((second, {}))
        table = self._seconds[-1][1]  # what ended a little earlier came with this drain
        if name not in table and len(table) >= MAX_OPERATIONS:
            name = OTHER
        return table.setdefault(name, _Tally())

    def _add(self, record: RequestRecord) -> None:
        if record.outcome == "unfinished":
            return
        tally = self._tally(record.name or record.method, record.end_ns)
        length = max(0, record.end_ns - record.arrival_ns)
        tally.count += 1
        tally.errors += record.outcome in ("error", "tool_error")
        tally.max_ns = max(tally.max_ns, length)
        merge(tally.durations, ((bucket_of(length), 1),))

    def _add_group(self, group: RequestGroup) -> None:
        tally = self._tally(group.name or group.method, group.last_ns)
        tally.count += group.count
        tally.errors += group.count if group.outcome in ("error", "tool_error") else 0
        tally.max_ns = max(tally.max_ns, group.max_ns)
        merge(tally.durations, ((bucket, count) for bucket, count, _ in group.durations))

    def operations(self, now: int) -> tuple[list[OperationNow], float]:
        """(what has ended, most calls first; the seconds that it covers)."""
        since = self._since_ns
        if since is None:
            return [], 0.0
        first = now // _NS - WINDOW_S
        sums: dict[str, _Tally] = {}
        for second, table in list(self._seconds):
            for name, tally in table.copy().items() if second > first else ():
                into = sums.setdefault(name, _Tally())
                into.count += tally.count
                into.errors += tally.errors
                into.max_ns = max(into.max_ns, tally.max_ns)
                merge(into.durations, tally.durations.copy())
        covered = max(0.0, min(float(WINDOW_S), (now - since) / _NS))
        rows = [_row(name, tally, covered) for name, tally in sums.items()]
        return sorted(rows, key=lambda row: (-row.count, row.name)), covered

    def loop(self, ordinal: int) -> Health | None:
        """The health of a loop; ``None``: there was no sample of it."""
        samples = list(self._loops.get(ordinal, ()))
        return health_of(samples) if samples else None


def health_of(samples: Sequence[LoopSample]) -> Health:
    """Of samples that follow each other; the formula is that of aggregate/loop_health.py.

    An iteration that began before the first sample delays only what comes in their time.
    """
    last, span_ns = samples[-1], sum(sample.span_ns for sample in samples)
    delayed = 0.0
    for sample in samples:
        for _, count, total in sample.iterations:
            delayed += count * min(total / count, span_ns) ** 2 / 2
    return Health(
        utilization=1 - min(1.0, last.poll_ns / last.span_ns),
        arrival_delay_ms=delayed / span_ns / _MS,
        longest_ms=max(sample.max_ns for sample in samples) / _MS,
        quality=last.quality,
    )


def _row(name: str, tally: _Tally, covered: float) -> OperationNow:
    p50, p95 = (quantile(tally.durations, q) for q in (0.5, 0.95))
    return OperationNow(
        name=name,
        count=tally.count,
        errors=tally.errors,
        rate_per_s=tally.count / covered if covered >= 0.5 else None,
        p50_ms=None if p50 is None else p50 / _MS,
        p95_ms=None if p95 is None else p95 / _MS,
        max_ms=tally.max_ns / _MS,
    )
