"""A recording as tracks on one line of time: what the writers of traces draw.

Full recordings give each phase, step and job. Ordinary ones give what was long enough to be kept: steps from 0.5 ms on,
waits from 1 ms on, awaits from ``wait_ms`` on, the first jobs.

Invariants: slices of one track lie inside each other or apart; a flow begins and ends in a slice of its track, and
never runs backwards; counters are never negative; all times are nanoseconds of the recording's clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mcp_probe.errors import OptionError
from mcp_probe.model import (
    Await,
    Frame,
    Header,
    JobTimes,
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
from mcp_probe.record.timeline import Phase, kept_phases, phases_of, ready_waits

FLOW_NS = 1_000_000
"""Shorter waits get no arrow."""

REQUESTS, LOOPS, COLLECTOR = "requests", "event loops", "garbage collector"


@dataclass(frozen=True, slots=True)
class Track:
    """Where slices lie: ``number`` is unique within ``group``."""

    group: str
    number: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that lasted."""

    track: Track
    from_ns: int
    to_ns: int
    name: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flow:
    """An arrow from who held something up, at ``from_ns``, to who waited for it, at ``to_ns``."""

    origin: Track
    from_ns: int
    target: Track
    to_ns: int
    name: str


@dataclass(frozen=True, slots=True)
class Level:
    """The values of a counter from ``at_ns`` on."""

    counter: str
    at_ns: int
    values: dict[str, float]


@dataclass(slots=True)
class Tracks:
    """All of one recording. ``notes``: sentences on what is missing; a reader of the trace must know them."""

    server: str = "server"
    is_full: bool = False
    names: dict[Track, str] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def tracks_of(frames: Iterable[Frame]) -> Tracks:
    """The tracks of a whole recording."""
    reader = TrackReader()
    for frame in frames:
        reader.add(frame)
    return reader.tracks()


MOST_DRAWN = 80_000
"""Requests of a trace: it needs 5 kB of memory for each. Steps, jobs and awaits of a timeline count for a quarter."""


class TrackReader:
    """Sorts frames by kind, and draws them.

    Args:
        window: draw only what lies, at least in part, between these two, in seconds from the recording's start.
    """

    def __init__(self, window: tuple[float, float] = (0.0, float("inf"))) -> None:
        self._window = window
        self._size = 0.0
        self.header: Header | None = None
        self.records: dict[int, RequestRecord] = {}
        self.timelines: dict[int, Timeline] = {}
        self.steps: dict[tuple[int, int], StepRecord] = {}  # the last one of a loop that began then
        self.open: dict[int, OpenRequest] = {}
        self.loops: list[LoopSample] = []
        self.pools: list[PoolSample] = []
        self.processes: list[ProcessSample] = []
        self.counted = 0
        self.cut: Part | None = None
        self._drawn = Tracks()
        self._runs: dict[int, list[tuple[int, int, Track, int]]] = defaultdict(list)  # of a loop, by their starts

    def add(self, frame: Frame) -> None:
        """Take one frame in. Raises: OptionError where there are too many to be drawn."""
        if not self._is_wanted(frame):
            return
        if isinstance(frame, RequestRecord):
            self.records[frame.id] = frame
            self.open.pop(frame.id, None)
            self._grow(1)
        elif isinstance(frame, Timeline):
            self.timelines[frame.request] = frame
            self._grow((len(frame.steps) + len(frame.jobs) + len(frame.awaits)) / 4)
        elif isinstance(frame, StepRecord):
            self.steps[frame.loop, frame.start_ns] = frame
            self._grow(0.25)
        elif isinstance(frame, OpenRequest):
            self.open[frame.id] = frame
        elif isinstance(frame, RequestGroup):
            self.counted += frame.count
            for closed in frame.closes:
                self.open.pop(closed, None)
        elif isinstance(frame, LoopSample):
            self.loops.append(frame)
        elif isinstance(frame, PoolSample):
            self.pools.append(frame)
        elif isinstance(frame, ProcessSample):
            self.processes.append(frame)
        elif isinstance(frame, Header):
            self.header = frame
        elif isinstance(frame, Part) and not frame.ends:
            self.cut = frame

    def _grow(self, size: float) -> None:
        self._size += size
        if self._size > MOST_DRAWN:
            raise OptionError(
                f"There are more requests and steps than a trace can show ({MOST_DRAWN:,}). Expected a window: add "
                "--from and --to, in seconds from the recording's start, such as --from 60 --to 90."
            )

    def _is_wanted(self, frame: Frame) -> bool:
        if isinstance(frame, RequestRecord):
            since, until = frame.arrival_ns, frame.end_ns
        elif isinstance(frame, StepRecord):
            since, until = frame.start_ns, frame.end_ns
        elif isinstance(frame, (LoopSample, PoolSample, ProcessSample)):
            since, until = frame.at_ns - frame.span_ns, frame.at_ns
        elif isinstance(frame, OpenRequest):
            since, until = frame.arrival_ns, frame.seen_ns
        else:
            return not isinstance(frame, Timeline) or frame.request in self.records
        zero = 0 if self.header is None else self.header.start_ns
        return (until - zero) / 1e9 >= self._window[0] and (since - zero) / 1e9 <= self._window[1]

    def tracks(self) -> Tracks:
        """The tracks of all frames so far. To be asked once."""
        drawn = self._drawn
        if self.header is not None:
            drawn.server, drawn.is_full = self.header.server, self.header.full
        for record in self.records.values():
            self._draw_request(record)
        for request in self.open.values():
            track = self._track(request.id, request.name or request.method)
            end = max(request.seen_ns, request.arrival_ns + 1)
            drawn.slices.append(Slice(track, request.arrival_ns, end, f"{request.name or request.method} (still open)"))
        self._draw_loops()
        self._draw_jobs()
        self._draw_collector()
        self._draw_flows()
        self._count()
        drawn.notes.extend(self._notes())
        return drawn

    # --- requests ---

    def _track(self, request: int, operation: str) -> Track:
        track = Track(REQUESTS, request)
        self._drawn.names[track] = f"#{request} {operation}"
        return track

    def _draw_request(self, record: RequestRecord) -> None:
        track = self._track(record.id, operation_of(record))
        slices = self._drawn.slices
        timeline = self.timelines.get(record.id)
        if timeline is None:
            phases, awaits = kept_phases(record, self._steps_of.get(record.id, ())), record.awaits or ()
        else:
            phases, awaits = phases_of(record, timeline), timeline.awaits
        began = min(record.arrival_ns, phases[0].from_ns if phases else record.arrival_ns)
        slices.append(Slice(track, began, max(record.end_ns, began + 1), operation_of(record), _facts(record)))
        for phase in phases:
            name, facts = _named(phase, awaits) if phase.part == "awaiting" else (phase.part, {})
            slices.append(Slice(track, phase.from_ns, phase.to_ns, name, facts))

    @cached_property
    def _steps_of(self) -> dict[int, list[StepRecord]]:
        """By request."""
        found: dict[int, list[StepRecord]] = defaultdict(list)
        for step in self.steps.values():
            found[step.request].append(step)
        return found

    # --- loops ---

    def _draw_loops(self) -> None:
        runs: dict[tuple[int, int, int], Slice] = {}
        owners: dict[tuple[int, int, int], int] = {}
        for timeline in self.timelines.values():
            record = self.records.get(timeline.request)
            if record is None or record.loop is None:
                continue
            track = Track(LOOPS, record.loop)
            for step in timeline.steps:
                key = (record.loop, step.start_ns, step.end_ns)
                if step.end_ns > step.start_ns and (key not in runs or record.kind != "function"):
                    facts = {"request": record.id, "task": step.task}
                    runs[key] = Slice(track, step.start_ns, step.end_ns, operation_of(record), facts)
                    owners[key] = record.id
        for step_record in self.steps.values():
            key = (step_record.loop, step_record.start_ns, step_record.end_ns)
            known = runs.get(key)
            track = Track(LOOPS, step_record.loop)
            facts = {**({} if known is None else known.args), **_evidence(step_record)}
            runs[key] = Slice(track, step_record.start_ns, step_record.end_ns, step_record.operation, facts)
            owners.setdefault(key, step_record.request)
        for loop, some in _by_loop(runs).items():
            self._drawn.names[Track(LOOPS, loop)] = f"event loop {loop}: {self._loop_name(loop)}"
            for each in _nested(some):
                self._drawn.slices.append(each)
                owner = owners[loop, each.from_ns, each.to_ns]
                self._runs[loop].append((each.from_ns, each.to_ns, each.track, owner))

    def _loop_name(self, loop: int) -> str:
        return next((sample.name for sample in self.loops if sample.loop == loop), "unknown")

    # --- threads ---

    def _draw_jobs(self) -> None:
        lanes: dict[str, list[int]] = defaultdict(list)  # where threads are not known: until when each is taken
        numbers: dict[tuple[str, int], int] = {}
        for start, end, executor, thread, operation, facts in sorted(self._jobs(), key=lambda job: job[:2]):
            group = f"threads of {executor}"
            if thread:
                number, name = thread, f"thread {thread}"
            else:
                free = next((at for at, until in enumerate(lanes[executor]) if until <= start), len(lanes[executor]))
                lanes[executor][free:] = [end, *lanes[executor][free + 1 :]]
                number, name = free + 1, f"one of its threads ({free + 1})"
            track = Track(group, number)
            since = max(start, numbers.get((group, number), 0))  # a job inside of a job is the outer one's
            if end > since:
                numbers[group, number] = end
                self._drawn.names[track] = name
                self._drawn.slices.append(Slice(track, since, end, operation, facts))

    def _jobs(self) -> Iterator[tuple[int, int, str, int, str, dict[str, Any]]]:
        seen: set[tuple[int, int, int]] = set()  # a profiled call has its request's jobs, too
        for record in self.records.values():
            timeline = self.timelines.get(record.id)
            jobs: Sequence[Any] = record.jobs if timeline is None else timeline.jobs
            for job in jobs:
                if job.start_ns is None:
                    continue
                thread = 0 if isinstance(job, JobTimes) else job.thread
                end = record.end_ns if job.finish_ns is None else job.finish_ns
                if end > job.start_ns and (job.submit_ns, job.start_ns, end) not in seen:
                    seen.add((job.submit_ns, job.start_ns, end))
                    facts = {"request": record.id, "waited_ms": (job.start_ns - job.submit_ns) / 1e6}
                    yield job.start_ns, end, job.executor, thread, operation_of(record), facts

    def _draw_collector(self) -> None:
        track, last = Track(COLLECTOR, 1), 0
        for start, end, generation in sorted({one for sample in self.processes for one in sample.gc_pauses}):
            if end > start >= last:
                self._drawn.names[track] = "pauses of 1 ms and more"
                self._drawn.slices.append(Slice(track, start, end, f"generation {generation}"))
                last = end

    # --- who waited for whom ---

    def _draw_flows(self) -> None:
        spans = {
            id: (record.arrival_ns, max(record.end_ns, record.arrival_ns + 1)) for id, record in self.records.items()
        }
        for record in self.records.values():
            timeline = self.timelines.get(record.id)
            for one in (record.awaits or ()) if timeline is None else timeline.awaits:
                for part in one.holders:
                    if part.request in spans and part.request != record.id and part.to_ns - part.from_ns >= FLOW_NS:
                        origin = Track(REQUESTS, part.request)
                        name = f"held {one.object}"
                        self._draw_flow(origin, part.to_ns, spans[part.request], record, one.to_ns, name)
            for since, until in self._late(record, timeline):
                blocker = self._blocker(record, since, until)
                if blocker is not None:
                    start, end, track, _ = blocker
                    self._draw_flow(track, min(end, until), (start, end), record, until, "held the event loop")

    def _draw_flow(
        self, origin: Track, from_ns: int, span: tuple[int, int], victim: RequestRecord, to_ns: int, name: str
    ) -> None:
        """From just inside the slice that ``span`` is, to just inside the victim's."""
        sent = min(max(from_ns - 1, span[0]), span[1] - 1)
        got = min(max(to_ns - 1, victim.arrival_ns, sent), max(victim.end_ns, victim.arrival_ns + 1) - 1)
        if got >= sent:
            self._drawn.flows.append(Flow(origin, sent, Track(REQUESTS, victim.id), got, name))

    def _late(self, record: RequestRecord, timeline: Timeline | None) -> Iterator[tuple[int, int]]:
        """Its waits for the event loop of at least a millisecond."""
        if timeline is not None:
            yield from ((since, until) for since, until, _ in ready_waits(timeline, FLOW_NS))
        for wait in record.waits:
            if wait.end_ns - wait.start_ns >= FLOW_NS and (timeline is None or wait.stage in ("queue", "write")):
                yield wait.start_ns, wait.end_ns

    def _blocker(self, record: RequestRecord, since: int, until: int) -> tuple[int, int, Track, int] | None:
        """The run on its loop that took most of [since, until), and at least a millisecond."""
        runs = self._runs.get(record.loop or 0, [])
        best, most = None, FLOW_NS - 1
        first = bisect_right(runs, (since,)) - 1
        while first > 0 and runs[first][1] > since:
            first -= 1
        for run in runs[max(0, first) : bisect_left(runs, (until,))]:
            shared = min(run[1], until) - max(run[0], since)
            if shared > most and run[3] != record.id:
                best, most = run, shared
        return best

    # --- counters ---

    def _count(self) -> None:
        levels = self._drawn.levels
        is_whole = not self.counted
        if is_whole:
            spans = [(r.arrival_ns, r.end_ns) for r in self.records.values() if r.kind == "request"]
            levels += [Level("requests in flight", at, {"requests": n}) for at, n in _levels(spans)]
        else:
            levels += [Level("requests in flight", s.at_ns, {"requests": s.outstanding}) for s in self.processes]
        for sample in self.processes:
            if sample.rss_bytes is not None:
                levels.append(Level("resident memory", sample.at_ns, {"MB": sample.rss_bytes / 1e6}))
        self._count_pools()
        for loop in self.loops:
            busy = min(sum(total for _, _, total in loop.iterations), loop.span_ns)
            if loop.span_ns <= 0:
                continue
            since = loop.at_ns - loop.span_ns
            values = {"percent": 100 * busy / loop.span_ns}
            levels.append(Level(f"event loop {loop.loop} busy", since, values))
            if self._drawn.is_full and is_whole:
                other = max(0, busy - self._of_requests(loop.loop, since, loop.at_ns))
                values = {"percent": 100 * other / loop.span_ns}
                levels.append(Level(f"event loop {loop.loop} busy with work of no request", since, values))
        levels.sort(key=lambda level: level.at_ns)

    def _of_requests(self, loop: int, since: int, until: int) -> int:
        runs = self._runs.get(loop, [])
        some = runs[max(0, bisect_left(runs, (since,)) - 1) : bisect_left(runs, (until,))]
        return sum(max(0, min(end, until) - max(start, since)) for start, end, _, owner in some if owner)

    def _count_pools(self) -> None:
        limits = {pool.name: pool.max for pool in self.pools}
        levels = self._drawn.levels
        if not self._drawn.is_full or self.counted:
            for pool in self.pools:
                values: dict[str, float] = {"in use, at most": pool.active_peak, "waiting, at most": pool.pending_peak}
                values |= {} if pool.max is None else {"limit": pool.max}
                levels.append(Level(f"pool {pool.name}", pool.at_ns - pool.span_ns, values))
            return
        work, queue = defaultdict(list), defaultdict(list)
        for id, timeline in self.timelines.items():
            end = self.records[id].end_ns if id in self.records else 0
            for job in timeline.jobs:
                began = job.start_ns or job.resumed_ns or end
                queue[job.executor].append((job.submit_ns, began))
                if job.start_ns is not None:
                    work[job.executor].append((job.start_ns, job.finish_ns or end))
        for name in sorted(queue):
            limit = limits.get(name)
            for at, count in _levels(work[name]):
                values = {"in use": count, **({} if limit is None else {"limit": limit})}
                levels.append(Level(f"pool {name}: threads at work for requests", at, values))
            levels += [Level(f"pool {name}: jobs waiting", at, {"jobs": count}) for at, count in _levels(queue[name])]

    # --- what is missing ---

    def _notes(self) -> Iterator[str]:
        if not self._drawn.is_full:
            yield (
                "The recording was made without --full: steps shorter than 0.5 ms on the event loop, and waits shorter "
                "than 1 ms, are not in it. `mcp-probe run --record FILE --full` keeps each of them."
            )
        if self._window != (0.0, float("inf")):
            yield f"Drawn is a window of the recording: {self._window[0]:g} to {self._window[1]:g} s from its start."
        if self.cut is not None:
            before, size = self.cut.requests_before, self.cut.limit_bytes / 1e6
            yield f"The recording is cut: of {before:,} earlier requests it has only what fits into {size:,.0f} MB."
        if self.counted:
            yield f"There were too many requests for a record each: {self.counted:,} of them are counted, not drawn."
        missing = sum(1 for id in self.records if id not in self.timelines) if self._drawn.is_full else 0
        if missing:
            yield f"{missing:,} requests have a record and no timeline: they are drawn as in an ordinary recording."
        cut: Counter[str] = Counter()
        requests: Counter[str] = Counter()
        for timeline in self.timelines.values():
            for what, count in timeline.left_out:
                cut[what] += count
                requests[what] += 1
        for what in sorted(requests):
            many = f"{cut[what]:,}" if cut[what] else "some"
            yield f"Of {requests[what]:,} requests {many} {what} are not in the file, and their time is unaccounted."
        lost: Counter[str] = Counter()
        for sample in self.processes:
            lost.update(dict(sample.dropped))
        for reason, count in sorted(lost.items()):
            yield f"Dropped while recording: {count:,} ({reason})."


def operation_of(record: RequestRecord) -> str:
    """Tool or prompt name, else the method."""
    return record.name or record.method


def _facts(record: RequestRecord) -> dict[str, Any]:
    facts = {"request": record.id, "method": record.method, "outcome": record.outcome, "error": record.error}
    facts |= {"transport": record.transport, "stands_for": record.weight if record.weight > 1 else None}
    facts |= {f"{name} is": tag for name, tag, _, _ in record.quality}
    return {name: value for name, value in facts.items() if value is not None}


def _evidence(step: StepRecord) -> dict[str, Any]:
    facts: dict[str, Any] = {"request": step.request or None, "cause": step.cause, "function": step.function}
    facts["where"] = None if step.file is None else f"{step.file}:{step.line}"
    facts["library"] = step.library
    facts["cpu_ms"] = None if step.cpu_ns is None else step.cpu_ns / 1e6
    facts["gc_ms"] = step.gc_ns / 1e6 if step.gc_ns else None
    facts["still_running"] = step.running or None
    return {name: value for name, value in facts.items() if value is not None}


def _named(phase: Phase, awaits: Iterable[Await]) -> tuple[str, dict[str, Any]]:
    """(name, facts) of a stretch of awaiting: of the await that has most of it, one that a hook saw first."""

    def shared(one: Await) -> int:
        return min(one.to_ns, phase.to_ns) - max(one.from_ns, phase.from_ns)

    here = [one for one in awaits if one.stage == "awaiting" and one.count == 1 and shared(one) > 0]
    if not here:
        return "awaiting", {}
    best = max(here, key=lambda one: (shared(one), -one.looks))
    facts: dict[str, Any] = {"for": best.object, "where": best.where, "how_sure": best.tag}
    if best.holders:
        facts["held_by"] = ", ".join(dict.fromkeys(f"#{part.request} {part.operation}" for part in best.holders))
    return f"awaiting {best.kind}", {name: value for name, value in facts.items() if value is not None}


def _by_loop(runs: dict[tuple[int, int, int], Slice]) -> dict[int, list[Slice]]:
    found: dict[int, list[Slice]] = defaultdict(list)
    for (loop, _, _), one in runs.items():
        found[loop].append(one)
    return found


def _nested(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Those that lie inside each other or apart, in the order of time. A run cut by a later look at it goes."""
    open_: list[int] = []
    for one in sorted(slices, key=lambda each: (each.from_ns, -each.to_ns)):
        while open_ and open_[-1] <= one.from_ns:
            open_.pop()
        if one.to_ns > one.from_ns and (not open_ or one.to_ns <= open_[-1]):
            open_.append(one.to_ns)
            yield one


def _levels(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(at_ns, how many of ``spans`` cover it from then on), one row an instant."""
    changes: Counter[int] = Counter()
    for start, end in spans:
        if end > start:
            changes[start] += 1
            changes[end] -= 1
    level, found = 0, []
    for at in sorted(changes):
        level += changes[at]
        found.append((at, level))
    return found
