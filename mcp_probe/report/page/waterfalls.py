"""The requests that the page shows one by one: which ones, and what happened in each, in its order.

All times are milliseconds since the window's start. What the recording has not is left out, never guessed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from mcp_probe.aggregate.blocking import Blame, blame, blocker_of, victim_of
from mcp_probe.aggregate.phrasing import file_and_line
from mcp_probe.model import BUDGET_PARTS, RequestRecord, StepRecord
from mcp_probe.record.timeline import Phase, kept_phases
from mcp_probe.report.page.window import Window
from mcp_probe.report.places import place
from mcp_probe.report.sections.waits import CAUSES

SLOWEST = 100
OF_EACH_OPERATION = 4
OF_EACH_PAIR = 4
MOST_PAIRS = 60
MOST_SHOWN = 360
MOST_ROWS = 40
"""Of one request: steps and awaits that are drawn; the longest ones where there are more."""

MOST_PHASES = 150
"""Of one request: the longest ones where there are more."""

WHOLE_PARTS = ("queue", "write")
"""Parts that an ordinary recording does not divide further; they come after those of the budget."""

MOST_BLOCKERS = 12
"""Steps of others that held it up: the longest."""

Pair = tuple[str, str]
"""(victim's operation, blocker's or holder's operation)"""


class Chosen:
    """The requests that are shown, by id, the slowest first; and those that tell most about a pair of operations."""

    def __init__(self, window: Window) -> None:
        self.candidates = window.candidates()
        self.phases = window.phases
        steps, polls = window.indexes()
        self.blames: dict[int, Blame] = {}
        for record in self.candidates.values():
            victim = victim_of(record)
            if victim is not None:
                self.blames[record.id] = blame(victim, steps, polls)
        self.pairs = self._pairs()
        self.steps = _Steps(window.steps())
        ids = dict.fromkeys(self._wanted())
        for id in list(ids):
            ids.update(dict.fromkeys(self._held_up(self.candidates[id])))
        shown = [self.candidates[id] for id in ids if id in self.candidates][:MOST_SHOWN]
        shown.sort(key=lambda record: record.arrival_ns - record.end_ns)
        self.records = {record.id: record for record in shown}

    def _pairs(self) -> dict[Pair, list[int]]:
        """For each pair the ids of those that waited longest."""
        waited: defaultdict[Pair, dict[int, int]] = defaultdict(dict)
        for record in self.candidates.values():
            victim = record.name or record.method
            for blocker, (lo, hi) in self.blames[record.id].rows.items() if record.id in self.blames else ():
                waited[victim, blocker][record.id] = lo or hi
            for found in record.awaits or ():
                for part in found.holders:
                    ns = waited[victim, part.operation].get(record.id, 0)
                    waited[victim, part.operation][record.id] = ns + part.to_ns - part.from_ns
        ranked = sorted(waited.items(), key=lambda item: -sum(item[1].values()))
        return {pair: sorted(found, key=lambda id: -found[id])[:OF_EACH_PAIR] for pair, found in ranked[:MOST_PAIRS]}

    def _wanted(self) -> Iterable[int]:
        yield from list(self.candidates)[:SLOWEST]
        taken: defaultdict[str, int] = defaultdict(int)
        for record in self.candidates.values():
            taken[record.name or record.method] += 1
            if taken[record.name or record.method] <= OF_EACH_OPERATION:
                yield record.id
        for ids in self.pairs.values():
            yield from ids

    def _held_up(self, record: RequestRecord) -> Iterable[int]:
        """Who held it up, as far as it may be shown."""
        for found in self.steps.blocking(record):
            yield found.request
        for waited in record.awaits or ():
            yield from (part.request for part in waited.holders)


class _Steps:
    """Steps in the order of time, and those of each request."""

    def __init__(self, steps: Sequence[StepRecord]) -> None:
        self._steps = steps
        self._starts = [step.start_ns for step in steps]
        self._longest = max((step.end_ns - step.start_ns for step in steps), default=0)
        self._own: defaultdict[int, list[StepRecord]] = defaultdict(list)
        for step in steps:
            if step.request:
                self._own[step.request].append(step)

    def own(self, record: RequestRecord) -> list[StepRecord]:
        return self._own.get(record.id, [])

    def blocking(self, record: RequestRecord) -> list[StepRecord]:
        """Steps of others on its loop during its waits, the longest part first, at most :data:`MOST_BLOCKERS`."""
        found: dict[int, tuple[int, StepRecord]] = {}
        for wait in record.waits:
            first = bisect_left(self._starts, wait.earliest_ns - self._longest)
            last = bisect_left(self._starts, wait.end_ns)
            for at in range(first, last):
                step = self._steps[at]
                inside = min(step.end_ns, wait.end_ns) - max(step.start_ns, wait.earliest_ns)
                is_other = step.request != record.id and record.id not in step.within
                if inside > 0 and is_other and record.loop in (None, step.loop):
                    found[at] = (found.get(at, (0, step))[0] + inside, step)
        ranked = sorted(found.values(), key=lambda item: -item[0])
        return [step for _, step in ranked[:MOST_BLOCKERS]]


class Waterfalls:
    """Puts requests into the page's shape."""

    def __init__(self, chosen: Chosen, start_ns: int, cwd: str) -> None:
        self._chosen = chosen
        self._parts = {name: at for at, name in enumerate((*BUDGET_PARTS, *WHOLE_PARTS))}
        self._start_ns = start_ns
        self._cwd = cwd

    def all(self) -> list[dict[str, Any]]:
        """Every request that is shown, the slowest first."""
        return [self._request(record) for record in self._chosen.records.values()]

    def _ms(self, instant_ns: int | None) -> float | None:
        return None if instant_ns is None else round((instant_ns - self._start_ns) / 1e6, 3)

    def _request(self, record: RequestRecord) -> dict[str, Any]:
        found = self._chosen.blames.get(record.id)
        blamed = () if found is None else sorted(found.rows.items(), key=lambda item: -item[1][1])
        return {
            "id": record.id,
            "name": record.name or record.method,
            "method": record.method,
            "outcome": record.outcome,
            "error": record.error,
            "from": self._ms(record.arrival_ns),
            "first": self._ms(record.first_step_ns),
            "result": self._ms(record.result_ns),
            "to": self._ms(record.end_ns),
            "weight": record.weight,
            "partial": record.partial,
            "budget": [_length(getattr(record.budget, part)) for part in BUDGET_PARTS],
            "quality": {name: [tag, _length(lo), _length(hi)] for name, tag, lo, hi in record.quality},
            "phases": [[self._ms(a), self._ms(b), self._parts[part]] for a, b, part in self._phases(record)],
            "steps": record.steps,
            "own": [self._step(step) for step in _longest(self._chosen.steps.own(record))],
            "waits": [
                [self._ms(w.earliest_ns), self._ms(w.start_ns), self._ms(w.end_ns), w.stage] for w in record.waits
            ],
            "blocked": [self._step(step) for step in self._chosen.steps.blocking(record)],
            "blamed": [[name, _length(lo), _length(hi)] for name, (lo, hi) in blamed],
            "jobs": [
                [job.executor, *map(self._ms, (job.submit_ns, job.start_ns, job.finish_ns, job.resumed_ns))]
                for job in record.jobs
            ],
            "awaits": self._awaits(record),
            "memory": None if record.memory is None else [record.memory.requested, record.memory.peak],
        }

    def _phases(self, record: RequestRecord) -> list[Phase]:
        """What it did, in the order of time, as far as the recording knows."""
        known = self._chosen.phases.get(record.id)
        found = kept_phases(record, self._chosen.steps.own(record)) if known is None else known
        return sorted(sorted(found, key=lambda phase: phase.from_ns - phase.to_ns)[:MOST_PHASES])

    def _step(self, step: StepRecord) -> list[Any]:
        where = place(step.file, step.line, self._cwd)
        cause = None if step.cause is None else CAUSES[step.cause]
        return [
            self._ms(step.start_ns),
            self._ms(step.end_ns),
            blocker_of(step),
            step.request,
            where,
            cause,
            step.where,
        ]

    def _awaits(self, record: RequestRecord) -> list[list[Any]] | None:
        """``None``: nobody looked."""
        if record.awaits is None:
            return None
        longest = sorted(record.awaits, key=lambda found: -found.ns)[:MOST_ROWS]
        return [
            [
                found.kind,
                found.object,
                self._place(found.where),
                self._ms(found.from_ns),
                self._ms(found.to_ns),
                _length(found.ns),
                found.tag,
                found.count,
                found.stage,
                [
                    [
                        part.request,
                        part.operation,
                        self._place(part.where),
                        self._ms(part.from_ns),
                        self._ms(part.to_ns),
                    ]
                    for part in found.holders[:MOST_ROWS]
                ],
            ]
            for found in sorted(longest, key=lambda found: found.from_ns)
        ]

    def _place(self, where: str | None) -> str | None:
        found = file_and_line(where)
        return where if found is None else place(*found, self._cwd)


def _longest(steps: Sequence[StepRecord]) -> list[StepRecord]:
    found = sorted(steps, key=lambda step: step.start_ns - step.end_ns)[:MOST_ROWS]
    return sorted(found, key=lambda step: step.start_ns)


def _length(ns: int | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 3)
