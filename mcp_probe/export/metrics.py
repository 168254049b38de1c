"""Frames in, metrics out: the conventions' histograms and ours, off the hot path.

``mcp.server.operation.duration`` is recorded once per request in the context of the request's span, so that the
provider's views and exemplars apply to it. Everything of ours is aggregated here and handed over as ``histogram_set``
says. Gauges are over the last minute of the stream (see ``observables``).

Nothing here is called under a lock of ours that calls into the SDK: its collection calls back under a lock of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider

from mcp_probe.aggregate.backends import backend_of
from mcp_probe.aggregate.blocking import KEEP_SAMPLES, Blame, PollIndex, RecentSteps, blame, victim_of
from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.histogram_set import HistogramSet, Observed, Replay, Takes, Value
from mcp_probe.export.labels import Labels, Operation
from mcp_probe.export.observables import NO_SPAN, Levels, Observables, Reading
from mcp_probe.export.semantic_conventions import Series
from mcp_probe.export.span_attributes import Attributes, network_attributes
from mcp_probe.model import (
    QUEUE,
    TRANSPORT_CLOSED,
    WRITES,
    Await,
    End,
    Frame,
    JobTimes,
    LoopSample,
    PoolSample,
    ProcessSample,
    RequestGroup,
    RequestRecord,
    StepRecord,
)

_PARTS: tuple[tuple[str, names.Instrument, Series], ...] = (
    ("queue_transport", names.QUEUE_WAIT, ((names.STAGE, "transport"),)),
    ("queue_dispatch", names.QUEUE_WAIT, ((names.STAGE, "dispatch"),)),
    ("ready_wait", names.READY_WAIT, ()),
    ("busy", names.BUSY, ()),
    ("awaiting", names.AWAITING, ()),
    ("write_wait", names.WRITE_WAIT, ()),
    ("write_flush", names.WRITE_FLUSH, ()),
)
"""Parts of the budget of which every request has one value, their histograms, and what their series begin with."""

_MEMORY = (
    ("requested", names.MEMORY_REQUESTED),
    ("peak", names.MEMORY_PEAK),
    ("retained", names.MEMORY_RETAINED),
)

Recording = tuple[float, Attributes, Context]
"""Seconds, attributes and context of one value that the SDK aggregates."""


class MetricExport:
    """Sends the metrics of one stream of frames. A ``FrameListener``.

    Args:
        meter_provider: Whose readers and views apply.
        histograms: Where the provider is ours: a set for each of its exporters, which sends our histograms from there
            as exponential ones (``metric_push``). Without any they go out as observable counters and gauges.
        replay: Without ``histograms``: record every value of ours once more with the provider's own instead.
        await_hosts: Divide what was awaited by ``server.address``, too.

    Closing it neither flushes nor shuts the provider down. Until the provider's next collection, which may be its
    last, it is still answered.
    """

    def __init__(
        self,
        meter_provider: MeterProvider,
        *,
        histograms: Sequence[HistogramSet] = (),
        replay: bool = False,
        await_hosts: bool = False,
    ) -> None:
        meter = meter_provider.get_meter(names.SCOPE, schema_url=names.SCHEMA_URL)
        self._lock = threading.Lock()
        self._labels = Labels()
        self._levels = Levels(self._labels)
        self._blockers = Blockers()
        self._owners = StepOwners()
        self._sessions = Sessions()
        self._closed = False
        self._hosts = await_hosts
        self._bounded: set[names.Instrument] = set()  # those of which upper ends are sent, too
        self._operations, self._session_durations = (
            meter.create_histogram(
                instrument.name,
                instrument.unit,
                instrument.description,
                explicit_bucket_boundaries_advisory=names.OPERATION_BOUNDARIES_S,
            )
            for instrument in (names.OPERATION_DURATION, names.SESSION_DURATION)
        )
        self._observables = Observables(meter_provider, meter)
        self._register_levels()
        self._histograms: Sequence[Takes] = histograms
        if not histograms and replay:
            self._histograms = (Replay(meter, lambda count: self.note_dropped("not_replayed", count)),)
        elif not histograms:
            self._histograms = (Observed(self._observables),)

    def _register_levels(self) -> None:
        for instrument in names.LEVELS:
            self._observables.level(*_described(instrument), lambda known=instrument: self._read(known))  # type: ignore[misc]
        self._observables.balance(*_described(names.ACTIVE), lambda: self._read(names.ACTIVE))
        self._observables.counter(*_described(names.PROBE_DROPPED), lambda: self._read(names.PROBE_DROPPED))

    def _read(self, instrument: names.Instrument) -> list[Reading]:
        with self._lock:
            return self._levels.read(instrument)

    # --- in ---

    def take(self, frames: Sequence[Frame]) -> None:
        """Take the next frames. One thread at a time; calls the SDK, which may take its locks, but no backend."""
        values: list[Value] = []
        operations: list[Recording] = []
        sessions: list[Session] = []
        with self._lock:
            for frame in frames:
                if isinstance(frame, RequestRecord):
                    sessions += self._sessions.add(frame)
                    values += self._request_values(frame, operations)
                elif isinstance(frame, StepRecord):
                    values += self._step_values(frame)
                elif isinstance(frame, LoopSample):
                    values += self._loop_values(frame)
                elif isinstance(frame, PoolSample):
                    self._levels.add(frame)
                    values += [
                        (names.THREAD_WAIT, (), total // count, count) for _, count, total in frame.transport_waits
                    ]
                elif isinstance(frame, ProcessSample):
                    self._levels.add(frame)
                    values += _gc_values(frame)
                elif isinstance(frame, End):
                    sessions += self._sessions.end(frame.at_ns, everything=frame.reason != TRANSPORT_CLOSED)
            values += self._blocked_values()
        self._hand_over(values, operations, sessions)
        for frame in frames:
            if isinstance(frame, RequestGroup) and frame.kind == "request":
                self._note_group(frame)

    def _note_group(self, group: RequestGroup) -> None:
        """Count requests without a record, each with the mean of its bucket, so that count and sum are exact."""
        error = group.error
        code = error if error is not None and error.lstrip("-").isdigit() else None  # of JSON-RPC, or a class
        operation = Operation(
            group.method, group.name, group.transport, group.outcome, error, code, group.protocol_version
        )
        with self._lock:
            self._levels.know(self._labels.method(operation))
            attributes = self._labels.operation(operation, is_partial=is_partial_group(group))
        for _, count, total_ns in group.durations:
            for _ in range(count):
                self._operations.record(total_ns / count / 1e9, attributes, NO_SPAN)

    def note_dropped(self, reason: str, count: int) -> None:
        """Something of telemetry was lost: it shows in ``mcp_probe.probe.dropped``. Any thread."""
        with self._lock:
            self._levels.drop(reason, count)

    def close(self, timeout_s: float) -> None:
        """No more frames will come: count what was held back. Does not block."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            values = [*self._blocked_values(all_of_them=True)]
            values += ((names.STEP_DURATION, series, length, 1) for length, series in self._owners.rest())
            sessions = [*self._sessions.end(0)]
        self._hand_over(values, [], sessions)
        self._observables.close()

    def _hand_over(self, values: list[Value], operations: list[Recording], sessions: list[Session]) -> None:
        if values:
            for histograms in self._histograms:
                histograms.add(values)
        for seconds, attributes, context in operations:
            self._operations.record(seconds, attributes, context)
        for session in sessions:
            seconds, attributes = self._session(session)
            self._session_durations.record(seconds, attributes, NO_SPAN)

    # --- requests ---

    def _request_values(self, record: RequestRecord, operations: list[Recording]) -> Iterator[Value]:
        tool = self._labels.tool(record)
        for length, series in self._owners.add_request(record, tool):
            yield names.STEP_DURATION, series, length, 1
        if record.kind == "function":
            self._labels.know_function(record.method)
        if record.kind == "function" or record.outcome == "unfinished":
            return  # a part of another request, or not over
        self._levels.know(self._labels.method(record))
        seconds = max(0, record.end_ns - record.arrival_ns) / 1e9
        operations.append((seconds, self._labels.operation(record, is_partial=is_partial(record)), context_of(record)))
        self._blockers.add_request(record, tool)
        rows = {row[0]: row for row in record.quality}
        for part, instrument, own in _PARTS:
            if (ns := getattr(record.budget, part)) is not None:
                yield from self._both_ends(instrument, (*own, *tool), ns, rows.get(part))
        if (use := record.memory) is not None:
            rows = {row[0]: row for row in use.quality}
            for part, instrument in _MEMORY:
                if (size := getattr(use, part)) is not None:
                    series = (*tool, (names.MEMORY_SCOPE, names.SCOPES[use.method]))
                    yield from self._both_ends(instrument, series, size, rows.get(part))
        for name, value, _ in record.measures:
            if value and name in names.MEASURED:
                yield names.MEASURED[name], tool, value, 1
        for one in record.awaits or ():
            if one.ns:
                yield names.AWAIT, self._await_series(one, tool), one.ns // one.count, one.count
        for job in record.jobs:
            yield from self._job_values(job, tool)

    def _await_series(self, one: Await, tool: Series) -> Series:
        series = (*tool, (names.KIND, one.kind))
        backend = backend_of(one.object) if self._hosts else None
        return series if backend is None else (*series, (names.SERVER_ADDRESS, self._labels.host(backend.host)))

    def _both_ends(self, instrument: names.Instrument, series: Series, value: int, row: Any) -> Iterator[Value]:
        """The lower end; and, once a value was bounded, the upper end of this and of each one that follows."""
        lo = hi = value
        if row is not None and row[3] is not None:
            lo, hi = row[2] or 0, row[3]
            if hi > lo:
                self._bounded.add(instrument)
        yield instrument, series, lo, 1
        if instrument in self._bounded:
            yield names.MAXIMA[instrument], series, hi, 1

    def _session(self, session: Session) -> tuple[float, Attributes]:
        attributes = self._labels.version(session.protocol_version)
        for key, value in network_attributes(session.transport).items():
            if key in names.SESSION_DURATION.attributes:
                attributes[key] = value
        return max(0, session.end_ns - session.start_ns) / 1e9, attributes

    def _job_values(self, job: JobTimes, tool: Series) -> Iterator[Value]:
        series = ((names.EXECUTOR_NAME, self._labels.executor(job.executor)), *tool)
        if job.start_ns is None:
            return
        yield names.EXECUTOR_WAIT, series, job.start_ns - job.submit_ns, 1
        if job.finish_ns is None:
            return
        yield names.EXECUTOR_RUN, series, job.finish_ns - job.start_ns, 1
        if job.resumed_ns is not None and job.resumed_ns >= job.finish_ns:
            yield names.EXECUTOR_RETURN, series, job.resumed_ns - job.finish_ns, 1

    def _blocked_values(self, *, all_of_them: bool = False) -> Iterator[Value]:
        for blocked in self._blockers.due(all_of_them=all_of_them):
            for operation, (lo_ns, hi_ns) in blocked.found.rows.items():
                if hi_ns > 0:
                    series = (*blocked.tool, (names.BLOCKER, self._labels.blocker(operation)))
                    yield from self._both_ends(names.BLOCKED, series, lo_ns, ("", "", lo_ns, hi_ns))

    # --- steps and samples ---

    def _step_values(self, step: StepRecord) -> Iterator[Value]:
        if self._blockers.add_step(step) and not step.running:
            for length, series in self._owners.add_step(step):
                yield names.STEP_DURATION, series, length, 1

    def _loop_values(self, sample: LoopSample) -> Iterator[Value]:
        """Steps too short to be kept one by one count with their mean, so that count and sum hold."""
        self._levels.add(sample)
        self._blockers.add_sample(sample)
        for operation, count, total_ns in sample.small_steps:
            if count > 0 and not self._labels.is_function(operation):
                yield names.STEP_DURATION, self._labels.tool_of(operation), total_ns // count, count


def _described(instrument: names.Instrument) -> tuple[str, str, str]:
    return instrument.name, instrument.unit, instrument.description


def _gc_values(sample: ProcessSample) -> Iterator[Value]:
    """Pauses of at least 1 ms one by one; the shorter ones with their mean, of no known generation."""
    count, total = sample.gc_count, sample.gc_ns
    for start_ns, end_ns, generation in sample.gc_pauses:
        count -= 1
        total -= end_ns - start_ns
        yield names.GC_PAUSE, ((names.GENERATION, str(generation)),), end_ns - start_ns, 1
    if count > 0 and total > 0:
        yield names.GC_PAUSE, (), total // count, count


def context_of(record: RequestRecord) -> Context:
    """The context of the request's SERVER span, or of no span where it has none: an ambient one is not its own."""
    if record.trace_id is None or record.span_id is None:
        return NO_SPAN
    flags = trace.TraceFlags(record.trace_flags or 0)
    span = trace.SpanContext(int(record.trace_id, 16), int(record.span_id, 16), True, flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(span), Context())


# --- is a duration from received to sent? --------------------------------------------------------------------

UNCERTAIN_SHARE = 0.1
UNCERTAIN_NS = 1_000_000
"""A duration that may be longer by more than both is partial: the lowest boundary of its histogram is 10 ms."""


def is_partial(record: RequestRecord) -> bool:
    """Whether the time from ``record``'s arrival to its end is only the least that it can have taken."""
    if record.partial or _misses_an_end(record):
        return True
    width = sum(hi - (lo or 0) for part, _, lo, hi in record.quality if part in _ENDS and hi is not None)
    return _is_wide(width, record.end_ns - record.arrival_ns, 1)


def is_partial_group(group: RequestGroup) -> bool:
    """The same for all of ``group``, of which only the sums are known."""
    if _misses_an_end(group):
        return True
    shortest, longest = (sum(total for _, _, total in rows) for rows in (group.durations, group.longest))
    return bool(group.longest) and _is_wide(longest - shortest, shortest, group.count)


_ENDS = ("queue_transport", "write_wait", "write_flush")


def _misses_an_end(of: RequestRecord | RequestGroup) -> bool:
    """Nobody saw it come, or an answer leave. In process there is no write: the answer is there when it is ready."""
    needed = QUEUE | WRITES if of.kind == "request" and of.transport != "memory" else QUEUE
    return of.seen & needed != needed


def _is_wide(width_ns: int, least_ns: int, count: int) -> bool:
    return width_ns > max(UNCERTAIN_SHARE * least_ns, UNCERTAIN_NS * count)


# --- whose step was that: steps are drained before the request they belong to is known to be a tool's call ------

MAX_WAITING = 4096
"""Requests whose steps wait for them; the steps of the oldest are then counted as no tool's."""

Length = tuple[int, Series]


class StepOwners:
    """Lengths of ended steps, handed on once their request's tool is known. Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, list[tuple[int, tuple[int, ...]]]] = OrderedDict()

    def add_step(self, step: StepRecord) -> Iterator[Length]:
        """Take one in; yields what can be counted now."""
        length = step.end_ns - step.start_ns
        if not step.request:
            yield length, ()
            return
        self._waiting.setdefault(step.request, []).append((length, step.within))
        if len(self._waiting) > MAX_WAITING:
            for length, _ in self._waiting.popitem(last=False)[1]:
                yield length, ()

    def add_request(self, record: RequestRecord, tool: Series) -> Iterator[Length]:
        """``record`` has come: its steps are its tool's, those of a profiled function the enclosing request's."""
        for length, within in self._waiting.pop(record.id, ()):
            if record.kind == "function" and within:
                self._waiting.setdefault(within[0], []).append((length, within[1:]))
            else:
                yield length, tool

    def rest(self) -> Iterator[Length]:
        """The stream is over."""
        while self._waiting:
            for length, _ in self._waiting.popitem(last=False)[1]:
                yield length, ()


# --- who waited for whom: known once the steps of a request's time are -----------------------------------------

HOLD_NS = 1_000_000_000
MAX_HELD = 4096
"""Requests held at most; beyond, the oldest are worked out with what is known."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """One request of ``tool`` and what it waited for."""

    tool: Series
    found: Blame


class Blockers:
    """Steps, samples and requests in, blame out. Not thread-safe.

    A request is held for :data:`HOLD_NS` of the stream, or until the end. :mod:`mcp_probe.aggregate.blocking` decides
    which part of a wait is a blocker's own.
    """

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
        self._last_ns = max(self._last_ns, record.end_ns)
        if record.waits:
            self._held.append((self._last_ns, record, tool))

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


# --- how long sessions lasted ----------------------------------------------------------------------------------

IDLE_NS = 30 * 60 * 1_000_000_000
MAX_SESSIONS = 10_000


@dataclass(slots=True)
class Session:
    """One session, as far as its requests tell."""

    transport: str
    start_ns: int
    end_ns: int
    protocol_version: str | None = None


class Sessions:
    """Requests in, ended sessions out. Not thread-safe.

    A session begins with the first request seen of it. Over stdio there is one, which ends with the transport; a
    request that came before that end is of it, though its answer is written, and so its record comes, later. Over HTTP
    its id identifies it, and it ends, as a server without state of ours can see it, with its last request: it counts
    once none has come for :data:`IDLE_NS`, or when the probe ends. Requests of no session (stateless HTTP, in-process)
    count nothing.
    """

    def __init__(self) -> None:
        self._stdio: Session | None = None
        self._stdio_ended_ns = 0
        self._by_id: OrderedDict[str, Session] = OrderedDict()  # the longest idle first

    def add(self, record: RequestRecord) -> Iterator[Session]:
        """Take one request in; yields sessions that are over by now."""
        if record.kind == "function":
            return
        seen = Session(record.transport, record.arrival_ns, record.end_ns, record.protocol_version)
        session_id = record.session_id
        if session_id is not None:
            session = self._by_id.setdefault(session_id, seen)
            self._by_id.move_to_end(session_id)
        elif seen.transport == "stdio" and seen.start_ns >= self._stdio_ended_ns:
            session = self._stdio = self._stdio or seen
        else:
            return
        session.start_ns = min(session.start_ns, seen.start_ns)
        session.end_ns = max(session.end_ns, seen.end_ns)
        session.protocol_version = seen.protocol_version or session.protocol_version
        while self._by_id and self._is_over(next(iter(self._by_id.values())), seen.end_ns):
            yield self._by_id.popitem(last=False)[1]

    def _is_over(self, longest_idle: Session, now_ns: int) -> bool:
        return len(self._by_id) > MAX_SESSIONS or longest_idle.end_ns + IDLE_NS <= now_ns

    def end(self, at_ns: int, *, everything: bool = True) -> Iterator[Session]:
        """The probe ends; or, without ``everything``, one transport has closed: HTTP sessions have one each."""
        while everything and self._by_id:
            yield self._by_id.popitem(last=False)[1]
        session, self._stdio = self._stdio, None
        if session is not None:
            self._stdio_ended_ns = session.end_ns = max(session.end_ns, at_ns)
            yield session
