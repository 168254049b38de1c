"""What capture writes while a request lives: stamps and marks, no arithmetic.

A mark *claims* a stretch of time for one unit of the request (its handler task, a child task). A
:data:`StepMark` claims three: suspended until ready, ready until started, on the loop until its end.
Because a claim carries both of its ends, a mark that is lost leaves a hole that no other mark
covers, and the hole surfaces as ``unaccounted`` (measurement.md section 1).

Written on the loop's thread and, for jobs and flush stamps, on worker threads; each field has one
writer, and list appends are atomic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_probe.model import Outcome, RequestKind, Wait

StepMark = tuple[int, int, int, int, int, int, int]
"""(unit, suspended_ns, earliest_ready_ns, ready_ns, start_ns, end_ns, wake); unit 0 = a plain callback."""

WAKE_LOOP = 0  # woken by something on the loop, or by a timer: ready_ns is exact
WAKE_THREAD = 1  # woken by a worker thread: the wait is executor_return
WAKE_SOCKET = 2  # became ready between two polls: earliest_ready_ns < ready_ns
WAKE_UNKNOWN = 3  # nobody saw the wake-up: suspended..start claims nothing
WAKE_SPLIT = 4  # the second half of a step that was split: not a resumption

MAX_MARKS = 256
"""Marks kept before they are folded into ``Spilled``; bounds a request that lives for hours."""


class Job:
    """One call on a worker thread. ``None`` = has not happened."""

    __slots__ = (
        "abandoned",
        "cpu_ns",
        "finish_ns",
        "operation",
        "pool",
        "raw",
        "resumed_ns",
        "start_ns",
        "submit_ns",
        "transport",
    )

    def __init__(self, pool: Any, raw: RawRequest | None, operation: str, submit_ns: int) -> None:
        self.pool = pool
        self.raw = raw
        self.operation = operation
        self.submit_ns = submit_ns
        self.start_ns: int | None = None
        self.finish_ns: int | None = None
        self.resumed_ns: int | None = None
        self.cpu_ns: int | None = None
        self.transport = False
        self.abandoned = False


class Spilled:
    """Totals of marks that were folded away while the request was still alive."""

    __slots__ = ("awaits", "immediate", "parts", "run_sum_ns", "step_max_ns", "steps", "until_ns", "vague_ns", "waits")

    def __init__(self, until_ns: int, parts: int) -> None:
        self.until_ns = until_ns
        self.parts = [0] * parts
        self.steps = 0
        self.step_max_ns = 0
        self.immediate = 0
        self.awaits = 0
        self.run_sum_ns = 0
        self.vague_ns = 0
        self.waits: list[Wait] = []


class RawRequest:
    """A request while it lives; see the module's text for who writes what."""

    __slots__ = (
        "arrival_earliest_ns",
        "arrival_ns",
        "channel",
        "client_waits",
        "decode_ns",
        "detached_ns",
        "encode_ns",
        "end_ns",
        "ended",
        "error",
        "first_step_ns",
        "flushed_ns",
        "handler",
        "id",
        "jobs",
        "kind",
        "marks",
        "method",
        "name",
        "outcome",
        "parent",
        "partial",
        "pauses",
        "protocol_version",
        "request_bytes",
        "request_id",
        "response_bytes",
        "result_ns",
        "seen_open",
        "session",
        "settles",
        "spilled",
        "taken_ns",
        "transport",
        "units",
        "write_seen",
        "write_taken_ns",
    )

    def __init__(self, number: int, kind: RequestKind, method: str, name: str | None, transport: str) -> None:
        self.id = number
        self.kind: RequestKind = kind
        self.handler = 0  # unit of the handler task
        self.settles = False  # ends with its handler task unless it was answered before
        self.method = method
        self.name = name
        self.transport = transport
        self.request_id: Any = None
        self.protocol_version: str | None = None
        self.session: Any = None  # set once an attached server has claimed it
        self.channel: Any = None
        self.parent: RawRequest | None = None  # an enclosing request still running (profiled calls, nested servers)
        self.ended = False
        self.arrival_ns: int | None = None  # None: this transport has no arrival (in-process)
        self.arrival_earliest_ns: int | None = None
        self.taken_ns: int | None = None
        self.first_step_ns: int | None = None
        self.result_ns: int | None = None
        self.write_seen = False  # the transport's writer can be seen, so write_wait and write_flush are known
        self.write_taken_ns: int | None = None
        self.flushed_ns: int | None = None
        self.end_ns: int | None = None
        self.outcome: Outcome = "ok"
        self.error: str | None = None
        self.marks: list[StepMark] = []
        self.jobs: list[Job] = []
        self.pauses: list[tuple[int, int]] = []
        self.units: dict[int, int] = {}  # live unit -> end of its last step
        self.spilled: Spilled | None = None
        self.client_waits: list[tuple[int, int]] = []
        self.decode_ns: int | None = None
        self.encode_ns: int | None = None
        self.request_bytes: int | None = None
        self.response_bytes: int | None = None
        self.detached_ns = 0
        self.partial = False
        self.seen_open = False

    @property
    def operation(self) -> str:
        """Tool or prompt name, else the method."""
        return self.name or self.method
