"""What the page shows of a window beside its summary: levels over time, distributions, and the requests worth showing.

Takes a recording's frames in, in bounded memory, however many there are.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator
from operator import attrgetter

from mcp_probe.aggregate.blocking import PollIndex, StepIndex, blocker_of
from mcp_probe.histogram import bucket_of
from mcp_probe.model import (
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
from mcp_probe.record.timeline import Phase, phases_of
from mcp_probe.report.page.levels import Bins, Level

LONGEST = 2_000
"""Of all requests: so many with the longest time, and so many with the longest step, may be shown."""

LONGEST_OF_EACH = 40
"""The same of each operation: the longest, and those that waited longest for others."""

MOST_WITH_PHASES = 2_000
"""Of a full recording: so many requests have their phases, the longest ones."""

MOST_STEPS = 100_000
MOST_OPERATIONS = 256
MOST_POOLS = 16
MOST_SAMPLES = 4_096
OTHER = "(others)"

Key = tuple[str, str]
"""(method, name), as in the summary."""


class Best:
    """The ``most`` requests of the largest rank."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[int, int, RequestRecord]] = []

    def add(self, rank: int, record: RequestRecord) -> bool:
        """Keeps ``record`` as long as few have a larger rank; a rank of 0 is none. Returns whether it is kept."""
        if rank <= 0 or (len(self._heap) == self._most and rank <= self._heap[0][0]):
            return False
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, (rank, record.id, record))
        else:
            heapq.heapreplace(self._heap, (rank, record.id, record))
        return True

    def __iter__(self) -> Iterator[RequestRecord]:
        """The largest first."""
        return (record for _, _, record in sorted(self._heap, key=lambda item: item[:2], reverse=True))


class Window:
    """One process's stream of frames, as the page draws it. Not thread-safe.

    Attributes:
        in_flight: Requests from arrival to end; where requests were sampled, estimated by the weights of records.
        phases: Of a full recording: what requests did, by their ids; of an ordinary one empty.
        seen: How many requests have a record.
        hidden_steps_ns: Steps shorter than this may be missing from :attr:`steps`; 0 where all are there.
    """

    def __init__(self) -> None:
        self.bins = Bins(0)
        self._has_start = False
        self.occupancy: dict[str, Level] = {}
        self.loops: set[int] = set()
        self.in_flight = Level(self.bins)
        self.gc = Level(self.bins)
        self.pools: dict[int, tuple[PoolSample, Level, Level]] = {}  # the latest sample, running, waiting
        self.resident: list[tuple[int, int]] = []  # (instant, bytes)
        self.durations: defaultdict[Key, Counter[int]] = defaultdict(Counter)  # -> bucket -> requests
        self.seen = 0
        self.is_sampled = False
        self.hidden_steps_ns = 0
        self.phases: dict[int, list[Phase]] = {}
        self._latest: RequestRecord | None = None
        self._longest = Best(LONGEST)
        self._longest_steps = Best(LONGEST)
        self._longest_of: dict[Key, Best] = {}
        self._waited_of: dict[Key, Best] = {}
        self._steps: list[StepRecord] = []
        self._running: dict[int, StepRecord] = {}
        self._samples: list[LoopSample] = []
        self._open: dict[int, OpenRequest] = {}

    # --- in ---

    def add(self, frame: Frame) -> None:
        """Take one frame in."""
        if isinstance(frame, RequestRecord):
            self._add_request(frame)
        elif isinstance(frame, StepRecord):
            self._add_step(frame)
        elif isinstance(frame, Timeline):
            self._add_timeline(frame)
        elif isinstance(frame, RequestGroup):
            self._start(frame.first_ns)
            self.is_sampled = True
            durations = self.durations[self._key(frame)]
            for bucket, count, _ in frame.durations:
                durations[bucket] += count
            for ended in frame.closes:
                self._open.pop(ended, None)
        elif isinstance(frame, LoopSample):
            self._add_sample(frame)
        elif isinstance(frame, PoolSample):
            self._add_pool(frame)
        elif isinstance(frame, ProcessSample):
            self._add_process(frame)
        elif isinstance(frame, OpenRequest):
            self._start(frame.arrival_ns)
            if len(self._open) < LONGEST:
                self._open[frame.id] = frame
        elif isinstance(frame, Header):
            self._start(frame.start_ns)
        elif isinstance(frame, Part) and not self.seen and not frame.ends:
            self._has_start = False  # its time begins with what is left

    def _start(self, instant_ns: int) -> None:
        """The first frame says when the window begins; a header is the first of a whole recording."""
        if not self._has_start:
            self._has_start = True
            self.bins.start_ns = self.bins.end_ns = instant_ns

    def _key(self, call: RequestRecord | RequestGroup) -> Key:
        key = (call.method, call.name or call.method)
        return key if key in self.durations or len(self.durations) < MOST_OPERATIONS else ("", OTHER)

    def _add_request(self, record: RequestRecord) -> None:
        self._start(record.arrival_ns)
        self._open.pop(record.id, None)
        self.seen += 1
        total = record.end_ns - record.arrival_ns
        if record.kind == "request":
            self.in_flight.add(record.arrival_ns, record.end_ns, record.weight)
        key = self._key(record)
        if record.outcome != "unfinished":
            self.durations[key][bucket_of(total)] += 1
        kept = [self._longest.add(total, record), self._longest_steps.add(record.step_max_ns, record)]
        if key not in self._longest_of:
            self._longest_of[key] = Best(LONGEST_OF_EACH)
            self._waited_of[key] = Best(LONGEST_OF_EACH)
        kept.append(self._longest_of[key].add(total, record))
        kept.append(self._waited_of[key].add(sum(wait.end_ns - wait.start_ns for wait in record.waits), record))
        self._latest = record if any(kept) else None

    def _add_timeline(self, timeline: Timeline) -> None:
        """Comes right after its record, in full recordings."""
        if self._latest is None or self._latest.id != timeline.request:
            return
        self.phases[timeline.request] = phases_of(self._latest, timeline)
        if len(self.phases) > MOST_WITH_PHASES:
            kept = self.candidates()
            longest = [id for id in kept if id in self.phases][: MOST_WITH_PHASES // 2]
            self.phases = {id: self.phases[id] for id in longest}

    def _add_step(self, step: StepRecord) -> None:
        """A step that still runs comes again, longer, until it has ended."""
        self._start(step.start_ns)
        if step.running:
            self._running[step.loop] = step
            return
        self._running.pop(step.loop, None)
        self._keep_step(step)

    def _keep_step(self, step: StepRecord) -> None:
        self.loops.add(step.loop)
        self._level(blocker_of(step)).add(step.start_ns, step.end_ns)
        if step.end_ns - step.start_ns >= self.hidden_steps_ns:
            self._steps.append(step)
        if len(self._steps) > 2 * MOST_STEPS:
            self._steps.sort(key=lambda one: one.start_ns - one.end_ns)
            del self._steps[MOST_STEPS:]
            self.hidden_steps_ns = self._steps[-1].end_ns - self._steps[-1].start_ns

    def _level(self, operation: str) -> Level:
        if operation not in self.occupancy and len(self.occupancy) >= MOST_OPERATIONS:
            operation = OTHER
        if operation not in self.occupancy:
            self.occupancy[operation] = Level(self.bins)
        return self.occupancy[operation]

    def _add_sample(self, sample: LoopSample) -> None:
        """Steps that are too short for a frame of their own are spread evenly over the sample's span."""
        since = sample.at_ns - sample.span_ns
        self._start(since)
        self.loops.add(sample.loop)
        self._samples.append(sample)
        if len(self._samples) > 2 * MOST_SAMPLES:
            del self._samples[:MOST_SAMPLES]
        if sample.span_ns > 0:
            for operation, _, sum_ns in sample.small_steps:
                self._level(operation).add(since, sample.at_ns, sum_ns / sample.span_ns)

    def _add_pool(self, sample: PoolSample) -> None:
        since = sample.at_ns - sample.span_ns
        self._start(since)
        known = self.pools.get(sample.pool)
        if known is None and len(self.pools) >= MOST_POOLS:
            return
        running, waiting = (Level(self.bins), Level(self.bins)) if known is None else known[1:]
        self.pools[sample.pool] = (sample, running, waiting)
        if sample.span_ns > 0:
            running.add(since, sample.at_ns, sample.active_ns / sample.span_ns)
            waiting.add(since, sample.at_ns, sample.pending_ns / sample.span_ns)

    def _add_process(self, sample: ProcessSample) -> None:
        self._start(sample.at_ns - sample.span_ns)
        self.bins.saw(sample.at_ns)
        for start, end, _ in sample.gc_pauses:
            self.gc.add(start, end)
        if sample.rss_bytes is not None:
            self.resident.append((sample.at_ns, sample.rss_bytes))
        if len(self.resident) > MOST_SAMPLES:
            self.resident = self.resident[::2]

    # --- out ---

    def candidates(self) -> dict[int, RequestRecord]:
        """The requests that may be shown, the longest first."""
        found: dict[int, RequestRecord] = {}
        each = (*self._longest_of.values(), *self._waited_of.values())
        for best in (self._longest, self._longest_steps, *each):
            for record in best:
                found.setdefault(record.id, record)
        return dict(sorted(found.items(), key=lambda item: item[1].arrival_ns - item[1].end_ns))

    def steps(self) -> list[StepRecord]:
        """Steps of at least 0.5 ms in the order of time, those that still run included."""
        return sorted((*self._steps, *self._running.values()), key=attrgetter("start_ns"))

    def indexes(self) -> tuple[StepIndex, PollIndex]:
        """What blame is worked out from."""
        return StepIndex(self.steps()), PollIndex(self._samples)

    def never_ended(self) -> list[OpenRequest]:
        """Requests that have no record: they were open when the recording ended."""
        return list(self._open.values())
