"""What capture writes while a request lives: stamps and marks, no arithmetic.

A mark *claims* a stretch of time for one unit of the request (its handler task, a child task). A
:data:`StepMark` claims three: suspended until ready, ready until started, on the loop until its end.
Because a claim carries both of its ends, a mark that is lost leaves a hole that no other mark
covers, and the hole surfaces as ``unaccounted`` (measurement.md section 1).

Written on the loop's thread and, for jobs and flush stamps, on worker threads; each field has one
writer, and list appends are atomic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_probe.model import Outcome, RequestKind, Wait

StepMark = tuple[int, int, int, int, int, int, int]
"""(unit, suspended_ns, earliest_ready_ns, ready_ns, start_ns, end_ns, wake); unit 0 = a plain callback."""

Claim = tuple[int, int, int]
"""(from_ns, to_ns, part), the part as an index into ``assemble.PRIORITY``."""

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
        "awaited",
        "cancelled",
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
        self.cancelled = False  # its waiter had gone before it began
        self.awaited = False  # its waiter will be seen to resume: until then a job that is done waits for the loop


class Spilled:
    """Totals of marks that were folded away while the request was still alive."""

    __slots__ = (
        "awaits",
        "crowded_ns",
        "horizon_ns",
        "immediate",
        "last",
        "parts",
        "run_sum_ns",
        "step",
        "step_max_ns",
        "steps",
        "tail",
        "until_ns",
        "vague_ns",
        "waits",
    )

    def __init__(self, until_ns: int, parts: int) -> None:
        self.until_ns = until_ns  # marks are folded up to here
        self.horizon_ns = until_ns  # ``parts`` are final up to here
        self.tail: list[Claim] = []  # the partition between the two
        self.last: dict[int, int] = {}  # unit that lived then -> end of its last step
        self.step = (0, 0, 0)  # (unit, start, end) of the last one: the next mark may be its second half
        self.crowded_ns = 0  # when last more than one unit lived
        self.parts = [0] * parts
        self.steps = 0
        self.step_max_ns = 0
        self.immediate = 0
        self.awaits = 0
        self.run_sum_ns = 0
        self.vague_ns = 0
        self.waits: list[Wait] = []


class RawRequest:
    """A request while it lives; see the module's text for who writes what.

    Fields that most requests never touch are class attributes: setting 40 slots would cost more than
    all the marks of a short request.
    """

    request_id: Any = None
    protocol_version: str | None = None
    session: Any = None  # set once an attached server has claimed it
    channel: Any = None
    parent: RawRequest | None = None  # an enclosing request still running (profiled calls, nested servers)
    handler = 0  # unit of the handler task
    loop: int | None = None  # ordinal of the loop its handler began on
    settles = False  # ends with its handler task unless it was answered before
    ended = False
    arrival_ns: int | None = None  # None: this transport has no arrival (in-process)
    arrival_earliest_ns: int | None = None
    transport_seen = True  # False: arrival_ns is when the message left a stream, not when its bytes came
    taken_ns: int | None = None
    first_step_ns: int | None = None
    result_ns: int | None = None
    write_seen = False  # the transport's writer can be seen, so write_wait and write_flush are known
    write_taken_ns: int | None = None
    flushed_ns: int | None = None
    end_ns: int | None = None
    outcome: Outcome = "ok"
    error: str | None = None
    jobs: Sequence[Job] = ()
    pauses: Sequence[tuple[int, int]] = ()
    client_waits: Sequence[tuple[int, int]] = ()
    spilled: Spilled | None = None
    decode_ns: int | None = None
    encode_ns: int | None = None
    request_bytes: int | None = None
    response_bytes: int | None = None
    detached_ns = 0
    partial = False
    seen_open = False

    def __init__(self, number: int, kind: RequestKind, method: str, name: str | None, transport: str) -> None:
        self.id = number
        self.kind: RequestKind = kind
        self.method = method
        self.name = name
        self.transport = transport
        self.marks: list[StepMark] = []
        self.units: dict[int, int] = {}  # live unit -> end of its last step

    @property
    def operation(self) -> str:
        """Tool or prompt name, else the method."""
        return self.name or self.method
