"""Spans made from frames, with true times: phases of slow and of sampled requests, and SERVER spans nobody else makes.

Runs on the collector's thread, or in the parent of ``mcp-probe run``; never on a server's loop. A request that waits
for its blockers' steps is held :data:`HOLD_NS` of the stream's time.

Invariants: nothing is made for a request whose trace was not sampled; memory is bounded whatever comes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
    TraceState,
    set_span_in_context,
)

from mcp_probe.clock import wall_anchor
from mcp_probe.export import conventions as names
from mcp_probe.export.enrich import (
    Attributes,
    Blocking,
    blocked_by,
    budget_attributes,
    error_attributes,
    is_sampled,
    network_attributes,
    operation_attributes,
    span_name,
)
from mcp_probe.export.lots import Lot
from mcp_probe.export.phases import Phase, Victims, phases_of
from mcp_probe.export.slow import SlowLimit, detailed
from mcp_probe.model import Frame, LoopSample, PoolSample, ProcessSample, RequestRecord, StepRecord

HOLD_NS = 2_000_000_000
"""As long as the fold waits for blockers: the steps of a request's time may be drained a batch later than it."""

MAX_HELD = 4096
KEEP_STEPS = 8192

LOOPS = 8
"""Loops of one process whose last step may still be looked at."""

_REQUEST: Attributes = {names.LINK_KIND: "request"}
_BLOCKED_BY: Attributes = {names.LINK_KIND: "blocked_by"}


class SpanExport:
    """A :class:`~mcp_probe.model.FrameListener`. Not thread-safe.

    Args:
        provider: Makes the spans; whoever hands it over also shuts it down.
        slow_step_ms: Steps this long get a span of their own.
        slow_request_ms: Requests this long get phase spans; ``None``: the larger of 1 s and their operation's p99.
        detail: Share of the other requests that get them too, by trace id, so that several servers agree.
        server_spans: Whether to make the SERVER span of requests that have ids but nobody's span.
        anchor: Reads (seconds since the epoch, instant of the frames' clock).
    """

    def __init__(
        self,
        provider: TracerProvider,
        *,
        slow_step_ms: float = 10.0,
        slow_request_ms: float | None = None,
        detail: float = 0.0,
        server_spans: bool = True,
        anchor: Callable[[], tuple[float, int]] = wall_anchor,
    ) -> None:
        self._tracer: Any = provider.get_tracer(names.SCOPE)
        self._ids = _GivenIds.onto(self._tracer)
        self._slow_step_ns = round(slow_step_ms * 1e6)
        self._slow = SlowLimit(slow_request_ms)
        self._detail = detail
        self._server_spans = server_spans
        self._anchor = anchor
        self._offset_ns = 0
        self._steps: OrderedDict[tuple[int, int], StepRecord] = OrderedDict()
        self._held: deque[tuple[int, RequestRecord, bool]] = deque()
        self._victims = Victims()
        self._last_ns = 0

    def take(self, frames: Sequence[Frame]) -> None:
        """Take the next frames."""
        unix, at = self._anchor()
        self._offset_ns = round(unix * 1e9) - at
        for frame in frames:
            if isinstance(frame, RequestRecord):
                self._take_request(frame)
            elif isinstance(frame, StepRecord):
                self._take_step(frame)
            elif isinstance(frame, (LoopSample, PoolSample, ProcessSample)):
                self._last_ns = max(self._last_ns, frame.at_ns)
        self._settle(self._ripe())

    @property
    def record_from_ns(self) -> int:
        """Any request may be in the sample, where there is one."""
        return 0 if self._detail > 0 else self._slow.least_ns

    def take_lots(self, lots: list[Lot]) -> None:
        """Nothing is to be made of them."""
        for lot in lots:
            self._last_ns = max(self._last_ns, lot.last_ns)
            self._slow.add(lot.raws[0].name or lot.raws[0].method, lot.durations)
        self._settle(self._ripe())

    def close(self, timeout_s: float) -> None:
        """No more frames will come: make the spans of every request still held."""
        self._settle(len(self._held))

    # --- in ---

    def _take_step(self, step: StepRecord) -> None:
        self._last_ns = max(self._last_ns, step.end_ns)
        key = (step.loop, step.start_ns)
        known = self._steps.get(key)
        if known is None or step.end_ns > known.end_ns:
            self._steps[key] = step
        while len(self._steps) > KEEP_STEPS:
            self._steps.popitem(last=False)

    def _take_request(self, record: RequestRecord) -> None:
        self._last_ns = max(self._last_ns, record.end_ns)
        if record.kind == "function":
            return
        if record.waits:
            self._victims.add(record)
        slow = self._slow.passed_by(record)
        if not is_sampled(record):
            return
        phases = slow or detailed(record, self._detail)
        ours = self._server_spans and record.server_span is None
        if phases or (ours and record.waits):
            self._held.append((self._last_ns, record, phases))
        elif ours:
            self._make_server_span(record, [])

    def _ripe(self) -> int:
        excess = max(0, len(self._held) - MAX_HELD)
        if not self._held or self._held[0][0] + HOLD_NS > self._last_ns:
            return excess
        return max(excess, sum(1 for seen, _, _ in self._held if seen + HOLD_NS <= self._last_ns))

    # --- out ---

    def _settle(self, count: int) -> None:
        if not count:
            return
        steps = sorted(self._steps.values(), key=lambda step: step.end_ns)
        ends = [step.end_ns for step in steps]
        for _ in range(count):
            _, record, phases = self._held.popleft()
            since = min((wait.earliest_ns for wait in record.waits), default=record.arrival_ns)
            first = bisect_right(ends, min(since, record.arrival_ns))
            # Sorted by their ends: of each loop one more may have begun before the request ended.
            near = steps[first : bisect_right(ends, record.end_ns) + LOOPS]
            blockers = blocked_by(record, near)
            if self._server_spans and record.server_span is None:
                self._make_server_span(record, blockers)
            if phases:
                own = [step for step in near if step.request == record.id and self._is_slow(step)]
                for phase in phases_of(record, own, self._victims):
                    self._make_phase(record, phase, blockers)

    def _is_slow(self, step: StepRecord) -> bool:
        return step.end_ns - step.start_ns >= self._slow_step_ns

    def _make_server_span(self, record: RequestRecord, blockers: list[Blocking]) -> None:
        attributes = _server_attributes(record)
        if blockers:
            attributes[names.BLOCKED_BY] = blockers[0].blocker
        self._ids.give(record)
        span = self._tracer.start_span(
            span_name(record.method, record.name),
            _parent_context(record),
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=list(_links(blockers)),
            start_time=record.arrival_ns + self._offset_ns,
        )
        self._ids.give(None)
        for row in blockers:
            span.add_event(names.EVENT_BLOCKED_BY, row.event(), timestamp=row.step.end_ns + self._offset_ns)
        if names.ERROR_TYPE in attributes:
            span.set_status(Status(StatusCode.ERROR))
        span.end(record.end_ns + self._offset_ns)

    def _make_phase(self, record: RequestRecord, phase: Phase, blockers: list[Blocking]) -> None:
        server = _server_context(record)
        links: list[Link] = []
        if phase.name == names.SPAN_WRITE:
            links = [Link(server, _REQUEST), *_links(blockers)]
        span = self._tracer.start_span(
            phase.name,
            set_span_in_context(NonRecordingSpan(server), Context()),
            kind=SpanKind.INTERNAL,
            attributes=_phase_attributes(record, phase),
            links=links,
            start_time=phase.start_ns + self._offset_ns,
        )
        span.end(phase.end_ns + self._offset_ns)


class _GivenIds:
    """An id generator that can be told what to say next; otherwise the provider's own speaks."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self._record: RequestRecord | None = None

    @classmethod
    def onto(cls, tracer: Any) -> _GivenIds:
        """Take the place of ``tracer``'s generator; a tracer that shows none makes SERVER spans with ids of its own."""
        ids = cls(getattr(tracer, "id_generator", None))
        if ids._own is not None:
            tracer.id_generator = ids
        return ids

    def give(self, record: RequestRecord | None) -> None:
        """The next span is the SERVER span of ``record``."""
        self._record = record

    def generate_span_id(self) -> int:
        """What an ``IdGenerator`` must answer."""
        record = self._record
        return int(self._own.generate_span_id()) if record is None else int(record.span_id or "0", 16)

    def generate_trace_id(self) -> int:
        """What an ``IdGenerator`` must answer."""
        record = self._record
        return int(self._own.generate_trace_id()) if record is None else int(record.trace_id or "0", 16)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def _phase_attributes(record: RequestRecord, phase: Phase) -> Attributes:
    found = {**operation_attributes(record.method, record.name), **phase.attributes}
    found.pop(names.GEN_AI_OPERATION_NAME, None)  # a backend counts what has it as an execution of the tool
    return found


def _server_attributes(record: RequestRecord) -> Attributes:
    found = {
        **operation_attributes(record.method, record.name),
        **network_attributes(record.transport),
        **error_attributes(record.outcome, record.error, record.error_code),
        **budget_attributes(record),
    }
    for key, value in (
        (names.JSONRPC_REQUEST_ID, record.request_id),
        (names.MCP_PROTOCOL_VERSION, record.protocol_version),
        (names.MCP_SESSION_ID, record.session_id),
        (names.MCP_RESOURCE_URI, record.resource_uri),
    ):
        if value is not None:
            found[key] = value
    return found


def _state_of(record: RequestRecord) -> TraceState | None:
    return None if record.trace_state is None else TraceState.from_header([record.trace_state])


def _server_context(record: RequestRecord) -> SpanContext:
    return _context(record.trace_id, record.span_id, record.trace_flags, _state_of(record))


def _context(trace_id: str | None, span_id: str | None, flags: int | None, state: TraceState | None) -> SpanContext:
    return SpanContext(int(trace_id or "0", 16), int(span_id or "0", 16), True, TraceFlags(flags or 0), state)


def _parent_context(record: RequestRecord) -> Context:
    if record.parent_span_id is None:
        return Context()
    caller = _context(record.trace_id, record.parent_span_id, record.trace_flags, _state_of(record))
    return set_span_in_context(NonRecordingSpan(caller), Context())


def _links(blockers: list[Blocking]) -> Iterator[Link]:
    for row in blockers:
        if row.step.trace_id is not None and row.step.span_id is not None:
            yield Link(_context(row.step.trace_id, row.step.span_id, 1, None), _BLOCKED_BY)
