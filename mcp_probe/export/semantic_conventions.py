"""Every name that telemetry emits: spans, events, attributes, metrics, with their units and bucket boundaries.

Names under ``mcp.*``, ``gen_ai.*``, ``jsonrpc.*``, ``rpc.*`` and ``network.*`` are those of the conventions and stand
here because the Python package of the conventions flags its ``mcp.*`` constants as moved. Everything of ours is under
``mcp_probe.*``. ``docs/telemetry.md`` has one row for each; a test keeps the page, this file and what is sent together.

Source: open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md and model/mcp/*.yaml (status: development).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcp_probe.measures import MEASURES
from mcp_probe.model import MemoryMethod, Tag

SCOPE = "mcp_probe"
"""Instrumentation scope of every span and metric of ours."""

SCHEMA_URL: str | None = None
"""The conventions for MCP have no published schema of their own yet."""

# --- attributes of the conventions --------------------------------------------------------------------

MCP_METHOD_NAME = "mcp.method.name"
MCP_PROTOCOL_VERSION = "mcp.protocol.version"
MCP_SESSION_ID = "mcp.session.id"
MCP_RESOURCE_URI = "mcp.resource.uri"
GEN_AI_TOOL_NAME = "gen_ai.tool.name"
GEN_AI_PROMPT_NAME = "gen_ai.prompt.name"
GEN_AI_OPERATION_NAME = "gen_ai.operation.name"
GEN_AI_TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"  # opt-in only
GEN_AI_TOOL_CALL_RESULT = "gen_ai.tool.call.result"  # opt-in only
GEN_AI_PROMPT_VARIABLE = "gen_ai.prompt.variable"  # prefix, opt-in only
JSONRPC_REQUEST_ID = "jsonrpc.request.id"
RPC_RESPONSE_STATUS_CODE = "rpc.response.status_code"
ERROR_TYPE = "error.type"
NETWORK_TRANSPORT = "network.transport"
NETWORK_PROTOCOL_NAME = "network.protocol.name"
NETWORK_PROTOCOL_VERSION = "network.protocol.version"
CLIENT_ADDRESS = "client.address"
CLIENT_PORT = "client.port"
CODE_FILE_PATH = "code.file.path"
CODE_LINE_NUMBER = "code.line.number"
CODE_FUNCTION_NAME = "code.function.name"
SERVER_ADDRESS = "server.address"  # on metrics by opt-in only
SERVER_PORT = "server.port"
DB_SYSTEM_NAME = "db.system.name"
PROCESS_EXECUTABLE_NAME = "process.executable.name"

DB_SYSTEMS = {
    "cassandra": "cassandra",
    "clickhouse": "clickhouse",
    "elasticsearch": "elasticsearch",
    "mariadb": "mariadb",
    "mongodb": "mongodb",
    "mssql": "microsoft.sql_server",
    "mysql": "mysql",
    "oracle": "oracle.db",
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "redis": "redis",
    "rediss": "redis",
    "sqlite": "sqlite",
}
"""Scheme of a database's URL, without its driver -> value of ``db.system.name``.

Source: opentelemetry.io, semantic conventions 1.38, "Database attributes".
"""

EXECUTE_TOOL = "execute_tool"
TOOL_ERROR = "tool_error"
TIMEOUT = "timeout"
CANCELLED = "cancelled"
OTHER_ERROR = "_OTHER"

KNOWN_METHODS = frozenset(
    {
        *("completion/complete", "elicitation/create", "initialize", "logging/setLevel", "ping"),
        *("notifications/cancelled", "notifications/initialized", "notifications/message", "notifications/progress"),
        *("notifications/prompts/list_changed", "notifications/resources/list_changed"),
        *("notifications/resources/updated", "notifications/roots/list_changed", "notifications/tools/list_changed"),
        *("prompts/get", "prompts/list", "resources/list", "resources/read", "resources/subscribe"),
        *("resources/templates/list", "resources/unsubscribe", "roots/list", "sampling/createMessage"),
        *("tools/call", "tools/list"),
    }
)
"""Well-known values of ``mcp.method.name``; other methods count against :data:`MAX_NAMES`."""

NOT_AN_ERROR_CODES = frozenset({"-32700", "-32600", "-32601", "-32602", "-32002"})
"""JSON-RPC codes that are the client's fault: they set ``rpc.response.status_code``, not ``error.type`` nor the status.

Source: semantic-conventions-genai, change #404 (status of the MCP server span).
"""

# --- attributes of metrics that are ours -----------------------------------------------------------------

PARTIAL = "mcp_probe.partial"  # true: the value is the least that it can have been
STAGE = "mcp_probe.stage"  # transport, dispatch
BLOCKER = "mcp_probe.blocker"  # on events, too
EXECUTOR_NAME = "mcp_probe.executor.name"  # on spans, too
MEMORY_SCOPE = "mcp_probe.scope"  # whose allocations the bytes are of: see SCOPES
GENERATION = "mcp_probe.generation"
REASON = "mcp_probe.reason"
KIND = "mcp_probe.kind"  # what was awaited: lock, http, sleep, …; on events and spans, too

SCOPES: dict[MemoryMethod, str] = {
    "native-gross": "python_allocator",
    "native-hybrid": "python_allocator",
    "native-shadow": "python_allocator",
    "tracemalloc": "python_allocator",
    "jemalloc": "malloc",
}
"""Values of :data:`MEMORY_SCOPE`."""

SMALL_STEPS = "(small_steps)"
"""The value that stands for ``CROWDING_OPERATION``, whose name is for reports."""

OTHER = "other"
"""The value that stands for every name beyond the cap."""

MAX_NAMES = 200
"""Tool, prompt and method names kept apart in metric attributes."""

MAX_UNPROVEN_NAMES = 50
"""Of these, names of which no call has succeeded yet: a client that makes names up cannot crowd out the real ones."""

MAX_HOSTS = 50
"""Values of ``server.address`` on metrics; further hosts are ``other``."""

MAX_SERIES = 1990
"""Attribute sets of one instrument; further ones are counted under ``other``. Just under the SDK's own limit."""

Series = tuple[tuple[str, str], ...]
"""Attributes of one series of a metric, in the order in which the instrument names them."""

# --- metrics ---------------------------------------------------------------------------------------------

Kind = Literal["histogram", "exponential histogram", "counter", "updowncounter", "gauge"]
"""``histogram`` goes through the user's views; ``exponential histogram`` is aggregated by us (see ``histograms``)."""

Standing = Literal["convention", "ours"]


@dataclass(frozen=True, slots=True, eq=False)
class Instrument:
    """One metric: its name, kind, UCUM unit, the attributes it may carry, and what it means. Compared by identity.

    ``exactness`` is that of its values where the transport and the loop let us see everything.
    """

    name: str
    kind: Kind
    unit: str
    attributes: tuple[str, ...]
    description: str
    standing: Standing = "ours"
    exactness: Tag = "exact"


OPERATION_BOUNDARIES_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Recommended boundaries of the conventions' histograms."""

WAIT_BOUNDARIES_S = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)
"""Boundaries of our histograms where they are replayed into explicit buckets: a stdio call takes about 1 ms."""

SIZE_BOUNDARIES_BY = tuple(float(1 << power) for power in range(10, 33, 2))
"""The same for bytes: 1 KiB to 4 GiB in factors of four."""

OPERATION_DURATION = Instrument(
    "mcp.server.operation.duration",
    "histogram",
    "s",
    (
        MCP_METHOD_NAME,
        ERROR_TYPE,
        GEN_AI_TOOL_NAME,
        GEN_AI_PROMPT_NAME,
        RPC_RESPONSE_STATUS_CODE,
        GEN_AI_OPERATION_NAME,
        MCP_PROTOCOL_VERSION,
        NETWORK_TRANSPORT,
        NETWORK_PROTOCOL_NAME,
        PARTIAL,
    ),
    "MCP request or notification duration from the time it was received until the result or ack is sent.",
    "convention",
)
SESSION_DURATION = Instrument(
    "mcp.server.session.duration",
    "histogram",
    "s",
    (MCP_PROTOCOL_VERSION, NETWORK_PROTOCOL_NAME),
    "The duration of the MCP session as observed on the MCP server.",
    "convention",
    "lower",
)


def token(text: str) -> str:
    """``text`` as a value of an attribute: in one piece."""
    return "_".join(text.split())


def _histogram(
    name: str, unit: str, attributes: tuple[str, ...], description: str, exactness: Tag = "exact"
) -> Instrument:
    """One of ours, aggregated by us."""
    return Instrument(name, "exponential histogram", unit, attributes, description, exactness=exactness)


QUEUE_WAIT = _histogram(
    "mcp_probe.request.queue_wait",
    "s",
    (STAGE, GEN_AI_TOOL_NAME),
    "Time from bytes there to off the transport (stage transport), and from there to the first step (stage dispatch).",
)
READY_WAIT = _histogram(
    "mcp_probe.request.ready_wait", "s", (GEN_AI_TOOL_NAME,), "Time in which a request could run and did not."
)
BLOCKED = _histogram(
    "mcp_probe.request.blocked",
    "s",
    (GEN_AI_TOOL_NAME, BLOCKER),
    "Time in which a request could certainly run while another one held its event loop.",
    exactness="lower",
)
AWAIT = _histogram(
    "mcp_probe.request.await",
    "s",
    (GEN_AI_TOOL_NAME, KIND, SERVER_ADDRESS),
    "One stretch in which a request waited for something that is named: a lock, a backend, a timer.",
)
BUSY = _histogram("mcp_probe.request.busy", "s", (GEN_AI_TOOL_NAME,), "Time in which a request was on the event loop.")
AWAITING = _histogram(
    "mcp_probe.request.awaiting",
    "s",
    (GEN_AI_TOOL_NAME,),
    "Time in which every unit of a request was seen suspended on something outside.",
)
WRITE_WAIT = _histogram(
    "mcp_probe.request.write_wait",
    "s",
    (GEN_AI_TOOL_NAME,),
    "Time from the result being ready to the transport's writer taking it.",
)
WRITE_FLUSH = _histogram(
    "mcp_probe.request.write_flush", "s", (GEN_AI_TOOL_NAME,), "Time from the writer taking a result to its flush."
)
STEP_DURATION = _histogram(
    "mcp_probe.step.duration", "s", (GEN_AI_TOOL_NAME,), "Uninterrupted runs on the event loop between two suspensions."
)
EXECUTOR_WAIT = _histogram(
    "mcp_probe.executor.wait",
    "s",
    (EXECUTOR_NAME, GEN_AI_TOOL_NAME),
    "Time of a job from its submission to its start on a thread.",
)
EXECUTOR_RUN = _histogram(
    "mcp_probe.executor.run", "s", (EXECUTOR_NAME, GEN_AI_TOOL_NAME), "Time of a job on its thread."
)
EXECUTOR_RETURN = _histogram(
    "mcp_probe.executor.return",
    "s",
    (EXECUTOR_NAME, GEN_AI_TOOL_NAME),
    "Time from a job being done to its waiter running again.",
)
MEMORY_REQUESTED = _histogram(
    "mcp_probe.request.memory.requested",
    "By",
    (GEN_AI_TOOL_NAME, MEMORY_SCOPE),
    "Bytes that a request asked of the allocator, freed or not.",
)
MEMORY_PEAK = _histogram(
    "mcp_probe.request.memory.peak",
    "By",
    (GEN_AI_TOOL_NAME, MEMORY_SCOPE),
    "Most bytes that a request held at one time.",
    exactness="bounded",
)
MEMORY_RETAINED = _histogram(
    "mcp_probe.request.memory.retained",
    "By",
    (GEN_AI_TOOL_NAME, MEMORY_SCOPE),
    "Bytes that a request still held up to a second after its end.",
    exactness="bounded",
)
MAXIMA = {
    instrument: _histogram(
        f"{instrument.name}_max",
        instrument.unit,
        instrument.attributes,
        f"The most that it can have been: {instrument.description}",
        exactness="upper",
    )
    for instrument in (
        QUEUE_WAIT,
        READY_WAIT,
        BLOCKED,
        AWAITING,
        WRITE_WAIT,
        WRITE_FLUSH,
        MEMORY_PEAK,
        MEMORY_RETAINED,
    )
}
"""Histogram of lower ends -> that of upper ends, which is sent once a value was bounded."""

THREAD_WAIT = _histogram(
    "mcp_probe.transport.thread_wait",
    "s",
    (),
    "Time of the stdio transport's own read or write from its submission to its start on a thread.",
)
GC_PAUSE = _histogram("mcp_probe.gc.pause", "s", (GENERATION,), "Pauses of the garbage collector.")

_UNITS = {"ns": "s", "bytes": "By", "count": "1"}
MEASURED = {
    measure.name: _histogram(
        f"mcp_probe.request.{measure.name}",
        _UNITS[measure.unit],
        (GEN_AI_TOOL_NAME,),
        f"Of requests where it is not 0: {measure.meaning}.",
        exactness=measure.quality,
    )
    for measure in MEASURES
}
"""One for each measure that is declared, by its name."""

ACTIVE = Instrument(
    "mcp_probe.request.active",
    "updowncounter",
    "{request}",
    (MCP_METHOD_NAME,),
    "Requests and notifications seen and not yet ended.",
)
OUTSTANDING = Instrument(
    "mcp_probe.request.outstanding",
    "gauge",
    "{request}",
    (),
    "Requests read and not yet answered: the peak of the last minute.",
)
BACKLOG = Instrument(
    "mcp_probe.transport.backlog",
    "gauge",
    "By",
    (),
    "Bytes that wait on stdin, read or not: the peak of the last minute.",
)
LOOP_UTILIZATION = Instrument(
    "mcp_probe.loop.utilization",
    "gauge",
    "1",
    (),
    "Share of the last minute that the server's event loop spent outside its poll call.",
)
_DELAY = "Delay that an event arriving at a random instant of the last minute would see: "
ARRIVAL_DELAY_MEAN = Instrument("mcp_probe.loop.arrival_delay.mean", "gauge", "s", (), _DELAY + "mean.")
ARRIVAL_DELAY_P50 = Instrument("mcp_probe.loop.arrival_delay.p50", "gauge", "s", (), _DELAY + "median.")
ARRIVAL_DELAY_P90 = Instrument("mcp_probe.loop.arrival_delay.p90", "gauge", "s", (), _DELAY + "90th percentile.")
ARRIVAL_DELAY_P99 = Instrument("mcp_probe.loop.arrival_delay.p99", "gauge", "s", (), _DELAY + "99th percentile.")
ARRIVAL_DELAY_MAX = Instrument("mcp_probe.loop.arrival_delay.max", "gauge", "s", (), _DELAY + "maximum.")
EXECUTOR_MAX = Instrument("mcp_probe.executor.max", "gauge", "{thread}", (EXECUTOR_NAME,), "The executor's limit.")
EXECUTOR_BORROWED = Instrument(
    "mcp_probe.executor.borrowed",
    "gauge",
    "{thread}",
    (EXECUTOR_NAME,),
    "Tokens taken (hand-off, run and return): the peak of the last minute.",
)
EXECUTOR_ACTIVE = Instrument(
    "mcp_probe.executor.active",
    "gauge",
    "{thread}",
    (EXECUTOR_NAME,),
    "Jobs running on a thread: the peak of the last minute.",
)
EXECUTOR_PENDING = Instrument(
    "mcp_probe.executor.pending",
    "gauge",
    "{thread}",
    (EXECUTOR_NAME,),
    "Jobs waiting for a thread: the peak of the last minute.",
)
PROBE_OVERHEAD = Instrument(
    "mcp_probe.probe.overhead",
    "gauge",
    "1",
    (),
    "The probe's own share of the process's CPU time over the last minute.",
    exactness="estimate",
)
PROBE_DROPPED = Instrument(
    "mcp_probe.probe.dropped",
    "counter",
    "{item}",
    (REASON,),
    "What the probe had to drop.",
)

EXPONENTIAL = (
    QUEUE_WAIT,
    READY_WAIT,
    BLOCKED,
    AWAIT,
    BUSY,
    AWAITING,
    WRITE_WAIT,
    WRITE_FLUSH,
    STEP_DURATION,
    EXECUTOR_WAIT,
    EXECUTOR_RUN,
    EXECUTOR_RETURN,
    MEMORY_REQUESTED,
    MEMORY_PEAK,
    MEMORY_RETAINED,
    *MAXIMA.values(),
    THREAD_WAIT,
    GC_PAUSE,
    *MEASURED.values(),
)
"""Histograms of ours, aggregated by us."""

LEVELS = (
    OUTSTANDING,
    BACKLOG,
    LOOP_UTILIZATION,
    ARRIVAL_DELAY_MEAN,
    ARRIVAL_DELAY_P50,
    ARRIVAL_DELAY_P90,
    ARRIVAL_DELAY_P99,
    ARRIVAL_DELAY_MAX,
    EXECUTOR_MAX,
    EXECUTOR_BORROWED,
    EXECUTOR_ACTIVE,
    EXECUTOR_PENDING,
    PROBE_OVERHEAD,
)
"""Gauges."""

METRICS = (OPERATION_DURATION, SESSION_DURATION, *EXPONENTIAL, ACTIVE, *LEVELS, PROBE_DROPPED)
"""Every metric, by the name it has where its kind can be sent."""

STATISTICS = ("count", "sum", "p50", "p99", "largest")
"""Under somebody else's providers an exponential histogram goes out as these, each a suffix of its name after ``_``."""

# --- spans -----------------------------------------------------------------------------------------------
# Keys and names of what the probe puts on SERVER spans and on spans of its own.

QUALITY = "mcp_probe.quality"

SPAN_QUEUE = "queue"
SPAN_EXECUTOR = "executor"
SPAN_STEP = "step"
SPAN_AWAIT = "await"
SPAN_WRITE = "write"
PHASE_SPANS = (SPAN_QUEUE, SPAN_EXECUTOR, SPAN_STEP, SPAN_AWAIT, SPAN_WRITE)
"""INTERNAL spans of slow and of detailed requests, with true times; ``write`` is the one that is linked to the SERVER
span as well, since it begins when that has ended."""

EVENT_BLOCKED_BY = "mcp_probe.blocked_by"
EVENT_STARVED = "mcp_probe.starved"
EVENT_WAITED_FOR = "mcp_probe.waited_for"
MAX_BLOCKED_BY = 5
"""Events of one kind, and their links, on one span."""

QUEUE_WAIT_TRANSPORT = "mcp_probe.queue_wait.transport"
QUEUE_WAIT_DISPATCH = "mcp_probe.queue_wait.dispatch"
BUSY_TIME = "mcp_probe.busy"
STEPS = "mcp_probe.steps"
STEP_MAX = "mcp_probe.step.max"
READY_WAIT_TIME = "mcp_probe.ready_wait"
EXECUTOR_WAIT_TIME = "mcp_probe.executor.wait"
EXECUTOR_RUN_TIME = "mcp_probe.executor.run"
EXECUTOR_RETURN_TIME = "mcp_probe.executor.return"
AWAITING_TIME = "mcp_probe.awaiting"
GC_TIME = "mcp_probe.gc"
UNACCOUNTED = "mcp_probe.unaccounted"
CPU = "mcp_probe.cpu"
OPERATION = "mcp_probe.operation"  # of phase spans: the tool or prompt
MEMORY_REQUESTED_BYTES = "mcp_probe.memory.requested"
MEMORY_PEAK_BYTES = "mcp_probe.memory.peak"
MEMORY_RETAINED_BYTES = "mcp_probe.memory.retained"
REQUEST_BYTES = "mcp_probe.request.bytes"
RESPONSE_BYTES = "mcp_probe.response.bytes"
BLOCKED_BY = "mcp_probe.blocked_by"
BLOCKED_OTHERS = "mcp_probe.blocked_others"
WRITE_WAIT_TIME = "mcp_probe.write_wait"
WRITE_FLUSH_TIME = "mcp_probe.write_flush"
STEP_CAUSE = "mcp_probe.step.cause"
RESOURCE_CONTENTS = "mcp_probe.resource.contents"  # opt-in only: the conventions have no name for it

DURATION = "mcp_probe.duration"  # on events
POOL = "mcp_probe.pool"
HOLDER = "mcp_probe.holder"
OBJECT = "mcp_probe.object"
HELD_AT = "mcp_probe.held_at"
PHASE = "mcp_probe.phase"  # of a call of a backend: dns, tcp, tls, first-byte, body
LINK_KIND = "mcp_probe.link"  # blocked_by, waited_for, caller, ambient, request

BOUNDED = (
    QUEUE_WAIT_TRANSPORT,
    QUEUE_WAIT_DISPATCH,
    READY_WAIT_TIME,
    EXECUTOR_WAIT_TIME,
    EXECUTOR_RETURN_TIME,
    AWAITING_TIME,
    WRITE_WAIT_TIME,
    WRITE_FLUSH_TIME,
    MEMORY_PEAK_BYTES,
    MEMORY_RETAINED_BYTES,
    DURATION,
)
"""Attributes that are the lower end where the number is bounded; :func:`upper_end` names the one of the upper end."""


def upper_end(attribute: str) -> str:
    """The attribute beside ``attribute`` that says how large the number can be at most."""
    return f"{attribute}_max"


SERVER_SPAN_ATTRIBUTES = (
    MCP_METHOD_NAME,
    MCP_PROTOCOL_VERSION,
    MCP_SESSION_ID,
    MCP_RESOURCE_URI,
    GEN_AI_TOOL_NAME,
    GEN_AI_PROMPT_NAME,
    GEN_AI_OPERATION_NAME,
    JSONRPC_REQUEST_ID,
    RPC_RESPONSE_STATUS_CODE,
    ERROR_TYPE,
    NETWORK_TRANSPORT,
    NETWORK_PROTOCOL_NAME,
    CLIENT_ADDRESS,
    CLIENT_PORT,
    QUEUE_WAIT_TRANSPORT,
    QUEUE_WAIT_DISPATCH,
    BUSY_TIME,
    STEPS,
    STEP_MAX,
    READY_WAIT_TIME,
    EXECUTOR_WAIT_TIME,
    EXECUTOR_RUN_TIME,
    EXECUTOR_RETURN_TIME,
    AWAITING_TIME,
    GC_TIME,
    UNACCOUNTED,
    MEMORY_REQUESTED_BYTES,
    MEMORY_PEAK_BYTES,
    MEMORY_RETAINED_BYTES,
    REQUEST_BYTES,
    RESPONSE_BYTES,
    WRITE_WAIT_TIME,
    WRITE_FLUSH_TIME,
    *(f"mcp_probe.{name}" for name in MEASURED),
    BLOCKED_BY,
    BLOCKED_OTHERS,
    QUALITY,
)
"""What a SERVER span may carry without any content being asked for."""

CONTENT_ATTRIBUTES = (
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_RESULT,
    GEN_AI_PROMPT_VARIABLE,
    RESOURCE_CONTENTS,
)
PHASE_ATTRIBUTES = (
    MCP_METHOD_NAME,
    OPERATION,
    QUEUE_WAIT_TRANSPORT,
    QUEUE_WAIT_DISPATCH,
    EXECUTOR_NAME,
    EXECUTOR_WAIT_TIME,
    EXECUTOR_RUN_TIME,
    EXECUTOR_RETURN_TIME,
    STEP_CAUSE,
    CPU,
    GC_TIME,
    KIND,
    PHASE,
    SERVER_ADDRESS,
    SERVER_PORT,
    DB_SYSTEM_NAME,
    PROCESS_EXECUTABLE_NAME,
    CODE_FILE_PATH,
    CODE_LINE_NUMBER,
    CODE_FUNCTION_NAME,
    WRITE_WAIT_TIME,
    WRITE_FLUSH_TIME,
    RESPONSE_BYTES,
    MEMORY_RETAINED_BYTES,
    BLOCKED_OTHERS,
    QUALITY,
)
"""What phase spans may carry, each those that fit it."""

EVENT_ATTRIBUTES = (
    BLOCKER,
    POOL,
    KIND,
    OBJECT,
    HOLDER,
    HELD_AT,
    DURATION,
    QUALITY,
    CODE_FILE_PATH,
    CODE_LINE_NUMBER,
    CODE_FUNCTION_NAME,
)
"""What events may carry."""
