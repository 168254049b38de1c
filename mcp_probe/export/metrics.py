"""Frames in, metrics out: the conventions' histograms and ours, off the hot path.

``mcp.server.operation.duration`` is recorded once per request in the context of the request's span, so that the
provider's views and exemplars apply to it. Everything of ours is aggregated here and handed over in one of the ways of
``handover`` and ``exponential``. Gauges are over the last minute of the stream (see ``levels``).

Nothing here is called under a lock of ours that calls into the SDK: its collection calls back under a lock of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import propagation

from mcp_probe.export import conventions as names
from mcp_probe.export.blockers import Blockers
from mcp_probe.export.enrich import Attributes, is_sampled, network_attributes
from mcp_probe.export.handover import Observed, Replay, Takes
from mcp_probe.export.histograms import Amounts, Book, Bundle, Series, Value
from mcp_probe.export.labels import Labels
from mcp_probe.export.levels import Levels, Reading
from mcp_probe.export.lots import AMOUNT_PARTS, NO_LIMIT_NS, Lot
from mcp_probe.export.observables import NO_SPAN, Observables
from mcp_probe.export.recording import Recorder
from mcp_probe.export.sessions import Session, Sessions
from mcp_probe.export.steps import StepOwners
from mcp_probe.model import (
    TRANSPORT_CLOSED,
    End,
    Frame,
    JobTimes,
    LoopSample,
    PoolSample,
    ProcessSample,
    RequestRecord,
    StepRecord,
)
from mcp_probe.record.raw import RawRequest

PARTS: tuple[tuple[names.Instrument, Series], ...] = (
    (names.QUEUE_WAIT, ((names.STAGE, "transport"),)),
    (names.QUEUE_WAIT, ((names.STAGE, "dispatch"),)),
    (names.READY_WAIT, ()),
    (names.BUSY, ()),
    (names.AWAITING, ()),
    (names.WRITE_WAIT, ()),
    (names.WRITE_FLUSH, ()),
)
"""The histograms of AMOUNT_PARTS, and what their series begin with."""

_MEMORY = (names.MEMORY_REQUESTED, names.MEMORY_PEAK, names.MEMORY_RETAINED)
_parts_of = attrgetter(*AMOUNT_PARTS)

_SPAN_KEY: str | None = getattr(propagation, "_SPAN_KEY", None)  # where the API looks for a context's span

Recording = tuple[Callable[[float, Attributes, Context], None], float, Attributes, Context]
"""(by what, seconds, attributes, context) of one value that the SDK aggregates."""


class MetricExport:
    """Sends the metrics of one stream of frames. A ``FrameListener``.

    Args:
        meter_provider: Whose readers and views apply.
        books: Where the provider is ours: a book for each of its exporters, which sends our histograms from there as
            exponential ones (``exponential.source_of``). Without any they go out as observable counters and gauges.
        replay: Without books: record every value of our histograms once more with the provider's own instead.

    Closing it neither flushes nor shuts the provider down. Until the provider's next collection, which may be its
    last, it is still answered.
    """

    record_from_ns = NO_LIMIT_NS

    def __init__(self, meter_provider: MeterProvider, *, books: Sequence[Book] = (), replay: bool = False) -> None:
        meter = meter_provider.get_meter(names.SCOPE, schema_url=names.SCHEMA_URL)
        self._lock = threading.Lock()
        self._labels = Labels()
        self._levels = Levels(self._labels)
        self._blockers = Blockers()
        self._owners = StepOwners()
        self._sessions = Sessions()
        self._closed = False
        self._operations, self._session_durations = (
            meter.create_histogram(
                instrument.name,
                instrument.unit,
                instrument.description,
                explicit_bucket_boundaries_advisory=names.OPERATION_BOUNDARIES_S,
            )
            for instrument in (names.OPERATION_DURATION, names.SESSION_DURATION)
        )
        self._succeeded = Recorder(self._operations)
        self._observables = Observables(meter_provider, meter)
        self._register_levels()
        self._bundles: dict[tuple[Series, str | None], Bundle] = {}  # as many as there are tools with a label
        self._histograms: Sequence[Takes] = books
        if not books and replay:
            self._histograms = (Replay(meter, lambda count: self.note_dropped("not replayed", count)),)
        elif not books:
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
        requests: list[tuple[Bundle, Amounts]] = []
        operations: list[Recording] = []
        sessions: list[Session] = []
        with self._lock:
            for frame in frames:
                if isinstance(frame, RequestRecord):
                    tool = self._labels.tool(frame)
                    if frame.kind != "function" and frame.outcome != "unfinished":
                        operations.append(self._operation(frame))
                        requests.append(self._amounts(frame, tool))
                    sessions += self._sessions.add(frame)
                    self._add_request_values(values, frame, tool)
                elif isinstance(frame, StepRecord):
                    values += self._step_values(frame)
                elif isinstance(frame, LoopSample):
                    values += self._loop_values(frame)
                elif isinstance(frame, PoolSample):
                    self._levels.add(frame)
                elif isinstance(frame, ProcessSample):
                    self._levels.add(frame)
                    values += _gc_values(frame)
                elif isinstance(frame, End):
                    sessions += self._sessions.end(frame.at_ns, everything=frame.reason != TRANSPORT_CLOSED)
            values += self._blocked_values()
        self._hand_over(values, requests, operations, sessions)

    def take_lots(self, lots: list[Lot]) -> None:
        """Take requests that need no record. As :meth:`take`."""
        values: list[Value] = []
        requests: list[tuple[Bundle, Amounts]] = []
        sessions: list[Session] = []
        operations: list[tuple[list[int], Attributes, list[RawRequest]]] = []
        with self._lock:
            for lot in lots:
                like = lot.raws[0]
                tool = self._labels.tool(like)
                self._levels.know(self._labels.method(like))
                operations.append((lot.durations, self._labels.operation(like), lot.raws))
                bundle = self._bundle(tool, lot.memory_scope)
                requests += [(bundle, amounts) for amounts in lot.amounts]
                seen = Session(like.transport, lot.first_ns, lot.last_ns, like.protocol_version)
                sessions += self._sessions.extend(like.session_id, seen)
                self._blockers.note_end(lot.last_ns)
                if self._owners:
                    for raw in lot.raws:
                        values += self._owned_values(raw, tool)
        self._hand_over(values, requests, [], sessions)
        for durations, attributes, raws in operations:
            seconds = [duration / 1e9 for duration in durations]
            self._succeeded.record_all(seconds, attributes, raws, _context_in, is_sampled)

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
        self._hand_over(values, [], [], sessions)
        self._observables.close()

    def _hand_over(
        self,
        values: list[Value],
        requests: list[tuple[Bundle, Amounts]],
        operations: list[Recording],
        sessions: list[Session],
    ) -> None:
        for histograms in self._histograms:
            if values:
                histograms.add(values)
            if requests:
                histograms.add_requests(requests)
        for recorded, seconds, attributes, context in operations:
            recorded(seconds, attributes, context)
        for session in sessions:
            seconds, attributes = self._session(session)
            self._session_durations.record(seconds, attributes, NO_SPAN)

    # --- requests ---

    def _operation(self, record: RequestRecord) -> Recording:
        self._levels.know(self._labels.method(record))
        seconds = max(0, record.end_ns - record.arrival_ns) / 1e9
        # What an error is called may be anything, so its attributes are made anew each time.
        recorded = self._succeeded.record if record.outcome == "ok" else self._operations.record
        return recorded, seconds, self._labels.operation(record), context_of(record)

    def _session(self, session: Session) -> tuple[float, Attributes]:
        attributes = self._labels.version(session.protocol_version)
        for key, value in network_attributes(session.transport).items():
            if key in names.SESSION_DURATION.attributes:
                attributes[key] = value
        return max(0, session.end_ns - session.start_ns) / 1e9, attributes

    def _amounts(self, record: RequestRecord, tool: Series) -> tuple[Bundle, Amounts]:
        """What every request has one value of."""
        use = record.memory
        bundle = self._bundle(tool, None if use is None else use.scope)
        amounts: Amounts = _parts_of(record.budget)
        return bundle, amounts if use is None else (*amounts, use.requested, use.peak, use.retained)

    def _bundle(self, tool: Series, memory_scope: str | None) -> Bundle:
        key = (tool, memory_scope)
        bundle = self._bundles.get(key)
        if bundle is None:
            bundle = self._bundles[key] = _bundle_of(*key)
        return bundle

    def _add_request_values(self, values: list[Value], record: RequestRecord, tool: Series) -> None:
        values += self._owned_values(record, tool)
        if record.kind == "function":
            self._labels.know_function(record.method)
        if record.kind == "function" or record.outcome == "unfinished":
            return  # a part of another request, or not over
        self._blockers.add_request(record, tool)
        for job in record.jobs:
            values += self._job_values(job, tool)

    def _owned_values(self, request: RequestRecord | RawRequest, tool: Series) -> Iterator[Value]:
        """Its steps, and those of profiled functions in it."""
        for length, series in self._owners.add_request(request, tool):
            yield names.STEP_DURATION, series, length, 1

    def _job_values(self, job: JobTimes, tool: tuple[tuple[str, str], ...]) -> Iterator[Value]:
        series = ((names.EXECUTOR, self._labels.executor(job.executor)), *tool)
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
            for operation, (lo_ns, _) in blocked.found.rows.items():
                if lo_ns > 0:
                    blocker = (names.BLOCKER, self._labels.blocker(operation))
                    yield names.BLOCKED, (*blocked.tool, blocker), lo_ns, 1

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


def _bundle_of(tool: Series, memory_scope: str | None) -> Bundle:
    keys = [(instrument, (*own, *tool)) for instrument, own in PARTS]
    if memory_scope is not None:
        series = (*tool, (names.MEMORY_SCOPE, memory_scope))
        keys += [(instrument, series) for instrument in _MEMORY]
    return Bundle(tuple(keys))


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
    return _context(int(record.trace_id, 16), int(record.span_id, 16), record.trace_flags)


def _context_in(raw: RawRequest) -> Context:
    """As :func:`context_of` of its record."""
    if raw.trace_id is None or raw.span_id is None:
        return NO_SPAN
    return _context(raw.trace_id, raw.span_id, raw.trace_flags)


def _context(trace_id: int, span_id: int, flags: int | None) -> Context:
    span = trace.NonRecordingSpan(trace.SpanContext(trace_id, span_id, True, trace.TraceFlags(flags or 0)))
    return trace.set_span_in_context(span, Context()) if _SPAN_KEY is None else Context({_SPAN_KEY: span})
