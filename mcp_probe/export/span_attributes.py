"""What a request says on its SERVER span: its record's attributes, who held it up, and content that was asked for.

Pure; knows no OpenTelemetry.

Times are seconds, as everywhere in telemetry. A number that is bounded is its lower end, with the upper one beside it
as ``…_max``. An attribute that is missing is 0 unless ``mcp_probe.quality`` calls its
number unavailable: a request that used no thread has no ``mcp_probe.executor.*``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_probe.aggregate.backends import backend_of
from mcp_probe.aggregate.blocking import blocker_of, union
from mcp_probe.aggregate.phrasing import file_and_line
from mcp_probe.capture.tracing import Message, param_of
from mcp_probe.export import semantic_conventions as names
from mcp_probe.measures import BY_NAME
from mcp_probe.model import CROWDING_OPERATION, UNKNOWN_HOLDER, Await, MemoryUse, RequestRecord, StepRecord, Tag

logger = logging.getLogger("mcp_probe")

Value = str | bool | int | float
Attributes = dict[str, Value]

# Budget part -> (attribute, whether it goes out where it is 0).
_PARTS = (
    ("busy", names.BUSY_TIME, True),
    ("awaiting", names.AWAITING_TIME, True),
    ("unaccounted", names.UNACCOUNTED, False),
    ("queue_transport", names.QUEUE_WAIT_TRANSPORT, True),
    ("queue_dispatch", names.QUEUE_WAIT_DISPATCH, True),
    ("executor_wait", names.EXECUTOR_WAIT_TIME, False),
    ("executor_run", names.EXECUTOR_RUN_TIME, False),
    ("executor_return", names.EXECUTOR_RETURN_TIME, False),
    ("gc", names.GC_TIME, False),
    ("ready_wait", names.READY_WAIT_TIME, True),
)
_WRITE_PARTS = (("write_wait", names.WRITE_WAIT_TIME, True), ("write_flush", names.WRITE_FLUSH_TIME, True))
_QUEUE_PARTS = _PARTS[3:5]
_EXACT: tuple[str, Tag, int | None, int | None] = ("", "exact", None, None)
# The key in ``mcp_probe.quality`` is the attribute's name without the prefix.
_KEYS = {
    part: attribute.removeprefix("mcp_probe.")
    for part, attribute in (
        *((part, attribute) for part, attribute, _ in _PARTS),
        *((part, attribute) for part, attribute, _ in _WRITE_PARTS),
    )
}


def budget_attributes(record: RequestRecord, *, is_over: bool = False) -> Attributes:
    """Where the time of ``record`` went up to its result; if it ``is_over``, up to its end.

    A span that ends with the result cannot say what comes after it.
    """
    found: Attributes = {names.STEPS: record.steps, names.STEP_MAX: record.step_max_ns / 1e9}
    if record.request_bytes is not None:
        found[names.REQUEST_BYTES] = record.request_bytes
    _add_parts(found, record, _PARTS + _WRITE_PARTS if is_over else _PARTS)
    if record.partial:
        _append_quality(found, ["partial"])
    if record.memory is not None:
        _add_memory(found, record.memory, _MEMORY + _RETAINED if is_over else _MEMORY)
    if is_over and record.response_bytes is not None:
        found[names.RESPONSE_BYTES] = record.response_bytes
    if record.measures:
        _add_measures(found, record)
    return found


def queue_attributes(record: RequestRecord) -> Attributes:
    """What came before its first step."""
    found: Attributes = {}
    _add_parts(found, record, _QUEUE_PARTS)
    return found


def write_attributes(record: RequestRecord) -> Attributes:
    """What came after its result: the SERVER span has ended before."""
    found: Attributes = {}
    if record.response_bytes is not None:
        found[names.RESPONSE_BYTES] = record.response_bytes
    _add_parts(found, record, _WRITE_PARTS)
    if record.memory is not None:
        _add_memory(found, record.memory, _RETAINED)
    return found


def _add_parts(found: Attributes, record: RequestRecord, parts: tuple[tuple[str, str, bool], ...]) -> None:
    """Each of ``parts``, where it is bounded with both ends, and what is not exact of them."""
    rows = {row[0]: row for row in record.quality}
    told = []
    for part, attribute, always in parts:
        ns = getattr(record.budget, part)
        _, tag, lo, hi = rows.get(part, _EXACT)
        if tag != "exact":
            told.append(f"{_KEYS[part]}={tag}")
        if hi is not None:
            found[attribute], found[names.upper_end(attribute)] = (lo or 0) / 1e9, hi / 1e9
        elif ns or (always and ns is not None):
            found[attribute] = ns / 1e9
    _append_quality(found, told)


def _add_measures(found: Attributes, record: RequestRecord) -> None:
    rows = []
    for name, value, tag in record.measures:
        measure = BY_NAME.get(name)
        if value and measure is not None:
            found[f"mcp_probe.{name}"] = value / 1e9 if measure.unit == "ns" else value
        if tag != "exact":
            rows.append(f"{name}={tag}")
    _append_quality(found, rows)


_MEMORY = (("requested", names.MEMORY_REQUESTED_BYTES), ("peak", names.MEMORY_PEAK_BYTES))
_RETAINED = (("retained", names.MEMORY_RETAINED_BYTES),)


def _add_memory(found: Attributes, use: MemoryUse, parts: tuple[tuple[str, str], ...]) -> None:
    rows = {row[0]: row for row in use.quality}
    told = []
    for part, attribute in parts:
        size = getattr(use, part)
        _, tag, lo, hi = rows.get(part, _EXACT)
        if tag != "exact":
            told.append(f"{attribute.removeprefix('mcp_probe.')}={tag}")
        if size is not None:
            found[attribute] = size if lo is None else lo
            if hi is not None:
                found[names.upper_end(attribute)] = hi
    _append_quality(found, told)


def _append_quality(found: Attributes, rows: list[str]) -> None:
    if rows:
        known = found.get(names.QUALITY)
        found[names.QUALITY] = ",".join([str(known), *rows] if known else rows)


@dataclass(frozen=True, slots=True)
class Blocking:
    """What one request (or the loop's own work) cost another one that could run meanwhile."""

    blocker: str
    lo_ns: int
    hi_ns: int
    step: StepRecord  # its longest step among them

    def event(self) -> Attributes:
        """Attributes of its ``mcp_probe.blocked_by`` event."""
        found: Attributes = {names.BLOCKER: blocker_name(self.blocker), **duration_attributes(self.lo_ns, self.hi_ns)}
        found.update(code_attributes(self.step))
        return found


@dataclass(frozen=True, slots=True)
class Starving:
    """How long one request lay in the transport while that waited for a thread of a full pool."""

    pool: str
    holder: str
    lo_ns: int
    hi_ns: int
    end_ns: int

    def event(self) -> Attributes:
        """Attributes of its ``mcp_probe.starved`` event."""
        told: Attributes = {names.POOL: names.token(self.pool), names.HOLDER: blocker_name(self.holder)}
        return {**told, **duration_attributes(self.lo_ns, self.hi_ns)}


def starved(record: RequestRecord, most: int = names.MAX_BLOCKED_BY) -> list[Starving]:
    """What ``record`` waited for its transport to get a thread: to be read, and to be written; longest first."""
    if not record.starved:
        return []
    queued = record.budget.queue_transport or 0
    first, taken = record.arrival_ns, record.arrival_ns + queued
    for part, _, _, hi in record.quality:
        if part == "queue_transport" and hi is not None:
            first = taken - hi
    result = record.end_ns if record.result_ns is None else record.result_ns
    found: dict[tuple[str, str], Starving] = {}
    for stage, start, end, pool, holder in record.starved:
        if stage == "write":
            lo = hi = _shared(start, end, result, record.end_ns)
        else:
            lo, hi = _shared(start, end, record.arrival_ns, taken), _shared(start, end, first, taken)
        if hi > 0:
            known = found.get((pool, holder), Starving(pool, holder, 0, 0, end))
            found[pool, holder] = Starving(pool, holder, known.lo_ns + lo, known.hi_ns + hi, end)
    return sorted(found.values(), key=lambda row: (-row.hi_ns, -row.lo_ns))[:most]


def _shared(a: int, b: int, c: int, d: int) -> int:
    return max(0, min(b, d) - max(a, c))


@dataclass(frozen=True, slots=True)
class Holding:
    """Who held what one request waited for, summed over its waits for it at one line."""

    kind: str
    object: str
    where: str | None
    holder: str
    held_at: str | None
    ns: float
    end_ns: int
    tag: Tag
    trace_id: str | None  # of the holder's SERVER span
    span_id: str | None

    def event(self) -> Attributes:
        """Attributes of its ``mcp_probe.waited_for`` event."""
        found: Attributes = {
            names.KIND: self.kind,
            names.OBJECT: self.object,
            names.HOLDER: self.holder,
            names.DURATION: self.ns / 1e9,
            names.QUALITY: self.tag,
            **place_attributes(self.where),
        }
        if self.held_at is not None:
            found[names.HELD_AT] = self.held_at
        return found


def waited_for(record: RequestRecord, most: int = names.MAX_BLOCKED_BY) -> list[Holding]:
    """Who held what ``record`` awaited; the longest wait first, one entry per object, line and holder."""
    found: dict[tuple[object, ...], Holding] = {}
    for one in record.awaits or ():
        for part in one.holders:
            key = (one.kind, one.object, one.where, part.request, part.operation, part.where)
            ns, end_ns = (part.to_ns - part.from_ns) / part.among, part.to_ns
            known = found.get(key)
            if known is not None:
                ns, end_ns = ns + known.ns, max(end_ns, known.end_ns)
            tag: Tag = "unavailable" if part.operation == UNKNOWN_HOLDER else one.tag
            found[key] = Holding(
                one.kind,
                one.object,
                one.where,
                part.operation,
                part.where,
                ns,
                end_ns,
                tag,
                part.trace_id,
                part.span_id,
            )
    return sorted(found.values(), key=lambda row: -row.ns)[:most]


def place_attributes(where: str | None) -> Attributes:
    """``file:line`` as the conventions have it."""
    place = file_and_line(where)
    return {} if place is None else {names.CODE_FILE_PATH: place[0], names.CODE_LINE_NUMBER: place[1]}


def await_attributes(one: Await) -> Attributes:
    """What a wait for a backend or a program says on a span of its own: no path, no statement, no argument."""
    found: Attributes = {names.KIND: one.kind, **place_attributes(one.where)}
    if one.phase is not None:
        found[names.PHASE] = one.phase
    if one.kind == "subprocess":
        found[names.PROCESS_EXECUTABLE_NAME] = one.object
    backend = backend_of(one.object)
    if backend is not None:
        found[names.SERVER_ADDRESS] = backend.host
        if backend.port is not None:
            found[names.SERVER_PORT] = backend.port
    scheme = one.object if backend is None else backend.scheme  # of a file or of an address that nobody knows: no more
    system = names.DB_SYSTEMS.get(scheme.partition("+")[0])
    if system is not None:
        found[names.DB_SYSTEM_NAME] = system
    return found


def blocker_name(operation: str) -> str:
    """How telemetry calls the operation that held a loop."""
    return names.SMALL_STEPS if operation == CROWDING_OPERATION else operation


def duration_attributes(lo_ns: int, hi_ns: int) -> Attributes:
    """How long what an event tells took, and how exact that is."""
    found: Attributes = {names.DURATION: lo_ns / 1e9, names.QUALITY: "exact" if lo_ns == hi_ns else "bounded"}
    if lo_ns != hi_ns:
        found[names.upper_end(names.DURATION)] = hi_ns / 1e9
    return found


def code_attributes(step: StepRecord) -> Attributes:
    """Where ``step`` was, as far as known."""
    found: Attributes = {}
    if step.file is not None:
        found[names.CODE_FILE_PATH] = step.file
    if step.line is not None:
        found[names.CODE_LINE_NUMBER] = step.line
    if step.function is not None:
        found[names.CODE_FUNCTION_NAME] = step.function
    return found


def blocked_by(record: RequestRecord, steps: Iterable[StepRecord], most: int = names.MAX_BLOCKED_BY) -> list[Blocking]:
    """Who held ``record`` up with ``steps``: the largest certain loss first, one entry per blocking request."""
    if not record.waits:
        return []
    certain = union((wait.start_ns, wait.end_ns) for wait in record.waits)
    possible = union((wait.earliest_ns, wait.end_ns) for wait in record.waits)
    found: dict[tuple[str, int], Blocking] = {}
    for step in _distinct(step for step in steps if _may_block(step, record)):
        hi = _overlap(step, possible)
        if hi <= 0:
            continue
        key = (blocker_of(step), step.request)
        known = found.get(key)
        longest = step if known is None or _length(step) > _length(known.step) else known.step
        lo_before, hi_before = (0, 0) if known is None else (known.lo_ns, known.hi_ns)
        found[key] = Blocking(key[0], lo_before + _overlap(step, certain), hi_before + hi, longest)
    return sorted(found.values(), key=lambda row: (-row.lo_ns, -row.hi_ns))[:most]


def _may_block(step: StepRecord, record: RequestRecord) -> bool:
    return (record.loop is None or step.loop == record.loop) and record.id not in (step.request, *step.within)


def _distinct(steps: Iterable[StepRecord]) -> Iterable[StepRecord]:
    """A step that was drained while it ran comes again with its end."""
    latest: dict[tuple[int, int], StepRecord] = {}
    for step in steps:
        key = (step.loop, step.start_ns)
        if key not in latest or step.end_ns > latest[key].end_ns:
            latest[key] = step
    return latest.values()


def _length(step: StepRecord) -> int:
    return step.end_ns - step.start_ns


def _overlap(step: StepRecord, spans: Iterable[tuple[int, int]]) -> int:
    return sum(max(0, min(step.end_ns, end) - max(step.start_ns, start)) for start, end in spans)


# --- what the conventions ask for ---------------------------------------------------------------------

NETWORKS: dict[str, Attributes] = {
    "stdio": {names.NETWORK_TRANSPORT: "pipe"},
    "http": {names.NETWORK_TRANSPORT: "tcp", names.NETWORK_PROTOCOL_NAME: "http"},
}
_NONE: Attributes = {}


def network_attributes(transport: str) -> Attributes:
    """Not to be changed; empty where no network or pipe is known to lie between."""
    return NETWORKS.get(transport, _NONE)


def is_sampled(request: RequestRecord) -> bool:
    """Whether it has a span that is recorded."""
    return request.span_id is not None and request.trace_id is not None and bool((request.trace_flags or 0) & 1)


def span_name(method: str, name: str | None) -> str:
    """Name of the SERVER span."""
    return f"{method} {name}" if name else method


def operation_attributes(method: str, name: str | None) -> Attributes:
    """What was called."""
    found: Attributes = {names.MCP_METHOD_NAME: method}
    if method == "tools/call":
        found[names.GEN_AI_OPERATION_NAME] = names.EXECUTE_TOOL
        if name:
            found[names.GEN_AI_TOOL_NAME] = name
    elif name and method == "prompts/get":
        found[names.GEN_AI_PROMPT_NAME] = name
    return found


_NO_TYPE = ("", "0", "None")
"""What stands for an exception that the SDK does not name: mcp 1.x answers it with the code 0, which nobody defines."""


def error_attributes(outcome: str, error: str | None, code: str | None) -> Attributes:
    """How it failed, if it did; ``error.type`` is there exactly where the span's status must be ERROR."""
    found: Attributes = {}
    if code is not None:
        found[names.RPC_RESPONSE_STATUS_CODE] = code
    if outcome == "cancelled":
        found[names.ERROR_TYPE] = names.CANCELLED
    elif outcome == "tool_error":
        found[names.ERROR_TYPE] = names.TOOL_ERROR
    elif outcome == "error" and code not in names.NOT_AN_ERROR_CODES:
        known = names.TIMEOUT if error == "TimeoutError" else error
        found[names.ERROR_TYPE] = names.OTHER_ERROR if known is None or known in _NO_TYPE else known
    return found


# --- content: only what was asked for by name, redacted, cut to a length ---------------------------------

MAX_CONTENT = 4096
"""Characters of one content attribute."""

MAX_VARIABLES = 16
MAX_VARIABLE_NAME = 64

Redact = Callable[[str, Any], Any]
"""(kind, value) -> what may be shown; ``None`` shows nothing."""


class Content:
    """What of a message's content goes onto its span. Nothing, unless kinds were named."""

    def __init__(self, kinds: Iterable[str] = (), redact: Redact | None = None) -> None:
        self._kinds = frozenset(kinds)
        self._redact = redact
        self._told = False

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def of_request(self, message: Message) -> Attributes:
        """Arguments of a tool, variables of a prompt."""
        arguments = param_of(message.params, "arguments")
        if not isinstance(arguments, Mapping):
            return {}
        if message.method == "tools/call" and "arguments" in self._kinds:
            return self._shown("arguments", arguments, names.GEN_AI_TOOL_CALL_ARGUMENTS)
        if message.method == "prompts/get" and "prompt" in self._kinds:
            return self._variables(arguments)
        return {}

    def of_result(self, message: Message, result: Any) -> Attributes:
        """Result of a tool, contents of a resource."""
        if message.method == "tools/call" and "result" in self._kinds:
            return self._shown("result", _dumped(result), names.GEN_AI_TOOL_CALL_RESULT)
        if message.method == "resources/read" and "resource" in self._kinds:
            return self._shown("resource", _dumped(result), names.RESOURCE_CONTENTS)
        return {}

    def _variables(self, arguments: Mapping[Any, Any]) -> Attributes:
        shown = self._allowed("prompt", arguments)
        if not isinstance(shown, Mapping):
            return {}
        pairs = list(shown.items())[:MAX_VARIABLES]
        return {
            f"{names.GEN_AI_PROMPT_VARIABLE}.{str(key)[:MAX_VARIABLE_NAME]}": str(value)[:MAX_CONTENT]
            for key, value in pairs
        }

    def _shown(self, kind: str, value: Any, attribute: str) -> Attributes:
        shown = self._allowed(kind, value)
        return {} if shown is None else {attribute: _text(shown)[:MAX_CONTENT]}

    def _allowed(self, kind: str, value: Any) -> Any:
        """What ``redact`` lets through; nothing where it fails."""
        if self._redact is None:
            return value
        try:
            return self._redact(kind, value)
        except Exception as exc:  # noqa: BLE001 - the server's request goes on; its content stays home
            if not self._told:
                self._told = True
                logger.warning("mcp_probe: redact raised %s; content is left out", type(exc).__name__)
            return None


def _dumped(result: Any) -> Any:
    root = getattr(result, "root", result)
    dump = getattr(root, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else root


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
