"""Spans made from frames, with true times: phases of slow and of sampled requests, and SERVER spans nobody else makes.

Runs on the collector's thread, or in the parent of ``mcp-probe run``; never on a server's loop. A request that waits
for its blockers' steps is held :data:`HOLD_NS` of the stream's time.

Invariants: nothing is made for a request whose trace was not sampled; memory is bounded whatever comes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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

from mcp_probe.aggregate.backends import backend_of
from mcp_probe.aggregate.blocking import union
from mcp_probe.clock import wall_anchor
from mcp_probe.export import semantic_conventions as names
from mcp_probe.export.span_attributes import (
    Attributes,
    Blocking,
    Holding,
    await_attributes,
    blocked_by,
    blocker_name,
    budget_attributes,
    code_attributes,
    error_attributes,
    is_sampled,
    network_attributes,
    operation_attributes,
    queue_attributes,
    span_name,
    starved,
    waited_for,
    write_attributes,
)
from mcp_probe.histogram import bucket_of
from mcp_probe.model import (
    Await,
    Frame,
    Header,
    JobTimes,
    LoopSample,
    PoolSample,
    ProcessSample,
    RequestGroup,
    RequestRecord,
    StepRecord,
)
from mcp_probe.record.running_p99 import RunningP99

HOLD_NS = 2_000_000_000
"""As long as the fold waits for blockers: the steps of a request's time may be drained a batch later than it."""

MAX_HELD = 4096
KEEP_STEPS = 8192

LOOPS = 8
"""Loops of one process whose last step may still be looked at."""

_REQUEST: Attributes = {names.LINK_KIND: "request"}
_BLOCKED_BY: Attributes = {names.LINK_KIND: "blocked_by"}
_WAITED_FOR: Attributes = {names.LINK_KIND: "waited_for"}


class SpanExport:
    """A :class:`~mcp_probe.model.FrameListener`. Not thread-safe.

    Args:
        provider: Makes the spans; whoever hands it over also shuts it down.
        slow_step_ms: Steps this long get a span of their own.
        slow_request_ms: Requests this long get phase spans; ``None``: the larger of 1 s and their operation's p99.
        detail: Share of the other requests that get them too, by trace id, so that several servers agree.
        give_ids: Makes ``provider`` call its next span by the ids of a request, and by ids of its own again after
            ``None``. With it the SERVER span of requests that have ids but nobody's span is made.
        anchor: Reads (seconds since the epoch, instant of the frames' clock).
    """

    def __init__(
        self,
        provider: TracerProvider,
        *,
        slow_step_ms: float = 10.0,
        slow_request_ms: float | None = None,
        detail: float = 0.0,
        give_ids: Callable[[RequestRecord | None], None] | None = None,
        anchor: Callable[[], tuple[float, int]] = wall_anchor,
    ) -> None:
        self._tracer: Any = provider.get_tracer(names.SCOPE)
        self._slow_step_ns = round(slow_step_ms * 1e6)
        self._slow = SlowLimit(slow_request_ms)
        self._detail = detail
        self._give_ids = give_ids
        self._anchor = anchor
        self._offset_ns = 0
        self._steps: OrderedDict[tuple[int, int], StepRecord] = OrderedDict()
        self._held: deque[tuple[int, RequestRecord, bool]] = deque()
        self._victims = Victims()
        self._traced_by_others: frozenset[str] = frozenset()  # backends that somebody else makes client spans for
        self._last_ns = 0

    def take(self, frames: Sequence[Frame]) -> None:
        """Take the next frames."""
        unix, at = self._anchor()
        self._offset_ns = round(unix * 1e9) - at
        for frame in frames:
            if isinstance(frame, RequestRecord):
                self._take_request(frame)
            elif isinstance(frame, RequestGroup):
                self._slow.merge(frame.name or frame.method, [(bucket, count) for bucket, count, _ in frame.durations])
            elif isinstance(frame, StepRecord):
                self._take_step(frame)
            elif isinstance(frame, (LoopSample, PoolSample, ProcessSample)):
                self._last_ns = max(self._last_ns, frame.at_ns)
            elif isinstance(frame, Header):
                self._traced_by_others = frozenset(frame.client_spans)
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
        ours = self._makes_server_span(record)
        if phases or (ours and (record.waits or record.step_max_ns >= self._slow_step_ns)):
            self._held.append((self._last_ns, record, phases))
        elif ours:
            self._make_server_span(record, [], 0)

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
            own = [step for step in near if step.request == record.id and self._is_slow(step)]
            if self._makes_server_span(record):
                self._make_server_span(record, blockers, sum(map(self._victims.waited_for, own)))
            if phases:
                for phase in phases_of(record, own, self._victims, self._traced_by_others):
                    self._make_phase(record, phase, blockers)

    def _is_slow(self, step: StepRecord) -> bool:
        return step.end_ns - step.start_ns >= self._slow_step_ns

    def _makes_server_span(self, record: RequestRecord) -> bool:
        return self._give_ids is not None and record.server_span is None

    def _make_server_span(self, record: RequestRecord, blockers: list[Blocking], blocked_others_ns: int) -> None:
        attributes = _server_attributes(record)
        if blocked_others_ns:
            attributes[names.BLOCKED_OTHERS] = blocked_others_ns / 1e9
        if blockers:
            attributes[names.BLOCKED_BY] = blocker_name(blockers[0].blocker)
        assert self._give_ids is not None
        holders = waited_for(record)
        self._give_ids(record)
        span = self._tracer.start_span(
            span_name(record.method, record.name),
            _parent_context(record),
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=[*_links(blockers), *_links_to_holders(holders)],
            start_time=record.arrival_ns + self._offset_ns,
        )
        self._give_ids(None)
        for row in blockers:
            span.add_event(names.EVENT_BLOCKED_BY, row.event(), timestamp=row.step.end_ns + self._offset_ns)
        for held in holders:
            span.add_event(names.EVENT_WAITED_FOR, held.event(), timestamp=held.end_ns + self._offset_ns)
        self._add_starved(span, record)
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
        if phase.name == names.SPAN_WRITE:
            self._add_starved(span, record)
        span.end(phase.end_ns + self._offset_ns)

    def _add_starved(self, span: Any, record: RequestRecord) -> None:
        for row in starved(record):
            span.add_event(names.EVENT_STARVED, row.event(), timestamp=row.end_ns + self._offset_ns)


def _phase_attributes(record: RequestRecord, phase: Phase) -> Attributes:
    """The tool's name is under a name of ours: a backend counts what has the conventions' as a call of the tool."""
    found: Attributes = {names.MCP_METHOD_NAME: record.method, **phase.attributes}
    if record.name:
        found[names.OPERATION] = record.name
    return found


def _server_attributes(record: RequestRecord) -> Attributes:
    found = {
        **operation_attributes(record.method, record.name),
        **network_attributes(record.transport),
        **error_attributes(record.outcome, record.error, record.error_code),
        **budget_attributes(record, is_over=True),
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


def _links_to_holders(holders: list[Holding]) -> Iterator[Link]:
    spans = dict.fromkeys((held.trace_id, held.span_id) for held in holders if held.span_id is not None)
    for trace_id, span_id in spans:
        yield Link(_context(trace_id, span_id, 1, None), _WAITED_FOR)


# --- the phases of one request: when each began and ended, and what is known of it -------------------------

MAX_STEP_SPANS = 32
MAX_AWAIT_SPANS = 32
MAX_VICTIMS = 4096


@dataclass(frozen=True, slots=True)
class Phase:
    """One INTERNAL span of a request."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes


class Victims:
    """The latest requests that waited for something, to be asked what a step cost them. Bounded."""

    def __init__(self) -> None:
        self._waits: deque[tuple[int, int | None, list[tuple[int, int]]]] = deque(maxlen=MAX_VICTIMS)

    def add(self, record: RequestRecord) -> None:
        """Remember when ``record`` certainly waited."""
        spans = union((wait.start_ns, wait.end_ns) for wait in record.waits)
        if spans:
            self._waits.append((record.id, record.loop, spans))

    def waited_for(self, step: StepRecord) -> int:
        """Nanoseconds that other requests certainly waited for ``step``, summed over them."""
        total = 0
        for request, loop, spans in self._waits:
            if spans[0][0] >= step.end_ns or spans[-1][1] <= step.start_ns or request in (step.request, *step.within):
                continue
            if loop is None or loop == step.loop:
                total += sum(max(0, min(end, step.end_ns) - max(start, step.start_ns)) for start, end in spans)
        return total


def phases_of(
    record: RequestRecord, steps: Iterable[StepRecord], victims: Victims, traced_by_others: frozenset[str] = frozenset()
) -> Iterator[Phase]:
    """Phases of ``record`` in the order of its life; ``steps``: its own slow ones.

    ``traced_by_others``: backends that have client spans already, as ``Header.client_spans``.
    """
    if record.first_step_ns is not None:
        found = queue_attributes(record)
        # Where nothing is certain it is a span of no length, which says how long it can have been.
        if record.arrival_ns < record.first_step_ns or names.upper_end(names.QUEUE_WAIT_TRANSPORT) in found:
            yield Phase(names.SPAN_QUEUE, record.arrival_ns, record.first_step_ns, found)
    for job in record.jobs:
        yield _executor_phase(job, record.end_ns)
    cost_ns = 0
    for number, step in enumerate(sorted(steps, key=lambda step: step.start_ns)):
        blocked_ns = victims.waited_for(step)
        cost_ns += blocked_ns
        if number < MAX_STEP_SPANS:
            yield Phase(names.SPAN_STEP, step.start_ns, step.end_ns, _step_attributes(step, blocked_ns))
    outbound = [one for one in record.awaits or () if _is_outbound(one) and _traced_as(one) not in traced_by_others]
    for one in sorted(sorted(outbound, key=lambda one: -one.ns)[:MAX_AWAIT_SPANS], key=lambda one: one.from_ns):
        yield Phase(names.SPAN_AWAIT, one.from_ns, one.to_ns, await_attributes(one))
    if record.result_ns is not None and record.budget.write_wait is not None:
        found = write_attributes(record)
        if cost_ns:
            found[names.BLOCKED_OTHERS] = cost_ns / 1e9
        yield Phase(names.SPAN_WRITE, record.result_ns, record.end_ns, found)


_HTTP_LIBRARIES = frozenset({"aiohttp", "httpcore", "httpcore2", "httpx", "httpx2", "requests", "urllib3"})
_OUTBOUND = ("connection-pool", "connect", "http", "db", "subprocess")


def _is_outbound(one: Await) -> bool:
    """Whether it waits for something outside the process, and its instants are its own: no sum of short waits."""
    return one.kind in _OUTBOUND and one.count == 1 and one.ns > 0


def _traced_as(one: Await) -> str:
    """As whose calls a tracing library would show it: ``http``, ``db`` or ``subprocess``."""
    if one.kind in ("http", "db", "subprocess"):
        return one.kind
    backend = backend_of(one.object)
    if backend is not None:
        return "http" if backend.is_http else "db"
    library = one.object.partition(" ")[0]  # of a pool; a database that has no address is called by its scheme
    is_http = library in _HTTP_LIBRARIES or (one.kind == "connect" and library not in names.DB_SYSTEMS)
    return "http" if is_http else "db"


def _executor_phase(job: JobTimes, end_ns: int) -> Phase:
    found: Attributes = {names.EXECUTOR_NAME: names.token(job.executor)}
    last = job.submit_ns
    for since, until, attribute in (
        (job.submit_ns, job.start_ns, names.EXECUTOR_WAIT_TIME),
        (job.start_ns, job.finish_ns, names.EXECUTOR_RUN_TIME),
        (job.finish_ns, job.resumed_ns, names.EXECUTOR_RETURN_TIME),
    ):
        if since is not None and until is not None and until >= since:
            found[attribute] = (until - since) / 1e9
            last = until
    over = job.finish_ns is not None or job.resumed_ns is not None
    return Phase(names.SPAN_EXECUTOR, job.submit_ns, last if over else max(last, end_ns), found)


def _step_attributes(step: StepRecord, blocked_ns: int) -> Attributes:
    found = code_attributes(step)
    if step.cause is not None:
        found[names.STEP_CAUSE] = step.cause
    if step.cpu_ns is not None:
        found[names.CPU] = step.cpu_ns / 1e9
    if step.gc_ns:
        found[names.GC_TIME] = step.gc_ns / 1e9
    if blocked_ns:
        found[names.BLOCKED_OTHERS] = blocked_ns / 1e9
    return found


# --- which requests are looked at closely -----------------------------------------------------------------

DEFAULT_LIMIT_NS = 1_000_000_000


class SlowLimit:
    """A fixed limit, or by default the larger of 1 s and the running p99 of a request's operation."""

    def __init__(self, slow_request_ms: float | None) -> None:
        self._fixed_ns = None if slow_request_ms is None else round(slow_request_ms * 1e6)
        self._p99 = RunningP99(names.MAX_NAMES, names.OTHER)

    def passed_by(self, record: RequestRecord) -> bool:
        """Whether ``record`` is slow, compared with those before it."""
        duration = record.end_ns - record.arrival_ns
        if self._fixed_ns is not None:
            return duration >= self._fixed_ns
        operation = record.name or record.method
        slow = duration >= DEFAULT_LIMIT_NS and duration >= (self._p99.of(operation) or 0)
        self._p99.count(operation, [(bucket_of(duration), 1)])
        return slow

    def merge(self, operation: str, durations: Iterable[tuple[int, int]]) -> None:
        """Count requests of which only (bucket, how many) are known."""
        if self._fixed_ns is None:
            self._p99.count(operation, durations)


def detailed(record: RequestRecord, share: float) -> bool:
    """Whether ``record`` is in the sample; the same for every server that sees its trace."""
    return share > 0 and record.trace_id is not None and int(record.trace_id[16:], 16) < share * 2**64
