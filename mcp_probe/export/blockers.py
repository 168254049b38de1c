"""Who waited for whom, request by request, for the ``blocked`` histogram.

A request's blockers are known once the steps of its time are: it is held for :data:`HOLD_NS` of the stream, or until
the end. Which of a wait is a blocker's own is :mod:`mcp_probe.aggregate.blocking`'s business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mcp_probe.aggregate.blocking import KEEP_SAMPLES, Blame, PollIndex, RecentSteps, blame, victim_of
from mcp_probe.export.histograms import Series
from mcp_probe.model import LoopSample, RequestRecord, StepRecord

HOLD_NS = 1_000_000_000
MAX_HELD = 4096
"""Requests held at most; beyond, the oldest are worked out with what is known."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """One request of ``tool`` and what it waited for."""

    tool: Series
    found: Blame


class Blockers:
    """Steps, samples and requests in, blame out. Not thread-safe."""

    def __init__(self) -> None:
        self._steps = RecentSteps()
        self._polls: deque[LoopSample] = deque(maxlen=KEEP_SAMPLES)
        self._held: deque[tuple[int, RequestRecord, Series]] = deque()
        self._last_ns = 0

    def add_step(self, step: StepRecord) -> bool:
        """Remember ``step``. False where it is known already."""
        self._last_ns = max(self._last_ns, step.end_ns)
        return self._steps.add(step)

    def add_sample(self, sample: LoopSample) -> None:
        """Remember how long the loop was in its poll."""
        self._last_ns = max(self._last_ns, sample.at_ns)
        self._polls.append(replace(sample, iterations=(), small_steps=()))

    def add_request(self, record: RequestRecord, tool: Series) -> None:
        """Hold ``record`` until its blockers are known, if it waited at all."""
        self.note_end(record.end_ns)
        if record.waits:
            self._held.append((self._last_ns, record, tool))

    def note_end(self, at_ns: int) -> None:
        """Requests that waited for nobody have ended by then."""
        self._last_ns = max(self._last_ns, at_ns)

    def due(self, *, all_of_them: bool = False) -> Iterator[Blocked]:
        """Those whose blockers are known by now."""
        count = len(self._held) if all_of_them else self._ripe()
        if not count:
            return
        batch = [self._held.popleft() for _ in range(count)]
        earliest = min(wait.earliest_ns for _, record, _ in batch for wait in record.waits)
        steps = self._steps.index(earliest)
        polls = PollIndex(sample for sample in self._polls if sample.at_ns > earliest)
        for _, record, tool in batch:
            victim = victim_of(record)
            if victim is not None:
                yield Blocked(tool, blame(victim, steps, polls))

    def _ripe(self) -> int:
        """How many are old enough; few at a time would each pay for an index of all steps."""
        if len(self._held) > MAX_HELD:
            return MAX_HELD // 2
        if not self._held or self._held[0][0] + 1.5 * HOLD_NS > self._last_ns:
            return 0
        return sum(1 for seen, _, _ in self._held if seen + HOLD_NS <= self._last_ns)
