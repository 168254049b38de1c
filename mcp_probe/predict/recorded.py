"""The frames of a recording, sorted, and whether they are enough to run its window again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate, pairwise

from mcp_probe.errors import ProbeError
from mcp_probe.model import (
    STEPS,
    WAKE_UPS,
    End,
    Frame,
    Header,
    LoopSample,
    OpenRequest,
    Part,
    PoolSample,
    ProcessSample,
    RequestGroup,
    RequestRecord,
    StepRecord,
    Timeline,
)

MOST_CUT = 0.01
"""Share of requests whose timeline may be cut short: of what is left out, nothing can be run again."""


class CannotPredictError(ProbeError):
    """The window cannot be run again, or running it again does not give what was measured."""


class Recorded:
    """All of one recording."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.records: dict[int, RequestRecord] = {}
        self.timelines: dict[int, Timeline] = {}
        self.steps: dict[tuple[int, int], StepRecord] = {}
        self.pools: dict[int, PoolSample] = {}
        self.groups = 0
        self.dropped: Counter[str] = Counter()
        self.open: dict[int, OpenRequest] = {}
        self.gaps = self.missing = 0
        self.transport_pools: set[int] = set()
        self.busy_ns = 0  # the loop's, with steps too short to be in the file

    def add(self, frame: Frame) -> None:
        """Take one frame in."""
        if isinstance(frame, RequestRecord):
            if frame.kind != "function":
                self.records[frame.id] = frame
            self.open.pop(frame.id, None)
        elif isinstance(frame, Timeline):
            self.timelines[frame.request] = frame
        elif isinstance(frame, StepRecord):
            self.steps[frame.loop, frame.start_ns] = frame
        elif isinstance(frame, PoolSample):
            self.pools[frame.pool] = frame
            if frame.transport_jobs:
                self.transport_pools.add(frame.pool)
        elif isinstance(frame, RequestGroup):
            self.groups += frame.count
            for closed in frame.closes:
                self.open.pop(closed, None)
        elif isinstance(frame, ProcessSample):
            self.dropped.update(dict(frame.dropped))
        elif isinstance(frame, OpenRequest):
            self.open[frame.id] = frame
        elif isinstance(frame, Part):  # comes only where something is missing
            self.gaps += 1
        elif isinstance(frame, End):
            self.missing = max(self.missing, frame.missing)
        elif isinstance(frame, LoopSample):
            self.busy_ns += sum(total for _, _, total in frame.iterations)
        elif isinstance(frame, Header):
            self.header = frame

    @classmethod
    def of(cls, frames: Iterable[Frame]) -> Recorded:
        found = cls()
        for frame in frames:
            found.add(frame)
        return found

    def check(self) -> None:
        """Raises: CannotPredictError where the window is not whole; the sentence says what is missing."""
        reason = self._missing()
        if reason is not None:
            raise CannotPredictError(reason)

    def _missing(self) -> str | None:
        again = "Record it again with `mcp-probe run --record FILE --full`"
        if self.header is None or not self.records:
            return f"The recording has no requests, so there is nothing to run again. {again}, under load."
        if not self.header.full:
            return f"The recording is not a full one: what requests did one by one is not in it. {again}."
        if self.groups or any(record.weight > 1 for record in self.records.values()):
            return (
                f"The recording is sampled: {self.groups:,} requests came too fast for a record each, and those are "
                f"only counted. {again} at a lower rate."
            )
        if lost := {reason: count for reason, count in self.dropped.items() if count}:
            listed = ", ".join(f"{count:,} ({reason})" for reason, count in sorted(lost.items()))
            return f"The recording lost frames: {listed}. What was lost cannot be run again. {again}."
        if self.gaps or self.missing:
            return (
                "The recording is truncated: its oldest files were deleted to keep within --record-limit, or frames of "
                f"it are missing. {again}, and without a limit."
            )
        if without := sum(1 for id in self.records if id not in self.timelines):
            return f"The recording is truncated: {without:,} requests have a record and no timeline. {again}."
        if self.open:
            return f"The recording is truncated: {len(self.open):,} requests had not ended when it did. {again}."
        return self._cut() or self._unseen()

    def _cut(self) -> str | None:
        cut = [t for t in self.timelines.values() if any(what != "awaits" for what, _ in t.left_out)]
        if len(cut) > MOST_CUT * len(self.timelines):
            return (
                f"The recording is truncated: of {len(cut):,} of {len(self.timelines):,} requests it has only the "
                "first steps or jobs. A request with more than 1,024 steps or 256 jobs cannot be run again."
            )
        return None

    def _unseen(self) -> str | None:
        need = STEPS | WAKE_UPS
        blind = sum(1 for record in self.records.values() if record.seen & need != need)
        if blind:
            return (
                f"Steps and wake-ups of {blind:,} of {len(self.records):,} requests could not be seen on this event "
                "loop, so what they did in which order is not known. `mcp-probe doctor` says why."
            )
        loops = Counter(record.loop for record in self.records.values() if record.loop is not None)
        if len(loops) > 1:
            return f"Requests ran on {len(loops)} event loops. A window of one loop can be run again, not of several."
        return None

    # --- what the loop did ---

    @cached_property
    def background(self) -> list[StepRecord]:
        """Steps of no request, oldest first. A step that ran as frames were drained is there once, as it ended."""
        return sorted((one for one in self.steps.values() if not one.request), key=lambda one: one.start_ns)

    @cached_property
    def busy(self) -> Busy:
        """When the loop was at work that is known."""
        spans = [(step.start_ns, step.end_ns) for t in self.timelines.values() for step in t.steps]
        spans += [(one.start_ns, one.end_ns) for one in self.steps.values()]
        return Busy(spans)

    @cached_property
    def busy_or_on_the_way(self) -> Busy:
        """The same, and when a message was on its way in or out."""
        spans = list(zip(self.busy.starts, self.busy.ends, strict=True))
        for one in self.records.values():
            if one.first_step_ns is not None:
                spans.append((one.arrival_ns, one.first_step_ns))
            if one.result_ns is not None:
                spans.append((one.result_ns, one.end_ns))
        return Busy(spans)

    @cached_property
    def busy_or_full(self) -> Busy:
        """The same, and when the pool from which the transport takes its threads had none for it."""
        spans = list(zip(self.busy.starts, self.busy.ends, strict=True))
        for id in self.transport_pools:
            limit = self.pools[id].max
            if limit is not None:
                spans += deeper_than(self._job_spans(id), int(limit) - 2)  # the reader, or the writer, has one
        return Busy(spans)

    def _job_spans(self, pool: int) -> list[tuple[int, int]]:
        """How long each job had its thread: a limiter's until its task has gone on."""
        return [
            (job.start_ns, max(job.finish_ns, job.resumed_ns or 0))
            for timeline in self.timelines.values()
            for job in timeline.jobs
            if job.pool == pool and job.start_ns is not None and job.finish_ns is not None
        ]

    @property
    def unseen_run_ns(self) -> int:
        """What the loop did in steps that are not in the file: those of no request below 0.5 ms."""
        return max(0, self.busy_ns - self.busy.sums[-1])


def deeper_than(spans: Iterable[tuple[int, int]], depth: int) -> Iterator[tuple[int, int]]:
    """When more than ``depth`` of ``spans`` went on at once."""
    edges = sorted(edge for start, end in spans for edge in ((start, 1), (end, -1)))
    now = 0
    for (at, change), (following, _) in pairwise(edges):
        now += change
        if now > depth:
            yield at, following


class Busy:
    """Stretches that may overlap, as one measure of time."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        joined: list[tuple[int, int]] = []
        for start, end in sorted(spans):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            elif end > start:
                joined.append((start, end))
        self.starts = [start for start, _ in joined]
        self.ends = [end for _, end in joined]
        self.sums = [0, *accumulate(end - start for start, end in joined)]

    def within(self, since: int, until: int) -> int:
        """How much of [since, until) they cover."""
        if until <= since:
            return 0
        first, last = bisect_right(self.ends, since), bisect_left(self.starts, until)
        if first >= last:
            return 0
        whole = self.sums[last] - self.sums[first]
        return whole - max(0, since - self.starts[first]) - max(0, self.ends[last - 1] - until)

    def covers(self, at: int) -> bool:
        """Whether one of them goes on at ``at``, its ends left out."""
        index = bisect_left(self.ends, at + 1)
        return index < len(self.starts) and self.starts[index] < at < self.ends[index]
