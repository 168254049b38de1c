"""What capture writes while a request lives: stamps and marks, no arithmetic.

A mark *claims* a stretch of time for one unit of the request (its handler task, a child task). A
:data:`StepMark` claims three: suspended until ready, ready until started, on the loop until its end.
Because a claim carries both of its ends, a mark that is lost leaves a hole that no other mark
covers, and the hole surfaces as ``unaccounted`` (measurement.md section 1).

Written on the loop's thread and, for jobs and flush stamps, on worker threads; each field has one
writer, and list appends are atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mcp_probe import native
from mcp_probe.model import ALL_SEEN

if TYPE_CHECKING:
    from mcp_probe.model import AwaitPhase, HolderPart, Outcome, RequestKind, Wait

StepMark = tuple[int, int, int, int, int, int, int]
"""(unit, suspended_ns, earliest_ready_ns, ready_ns, start_ns, end_ns, wake); unit 0 = a plain callback."""

Claim = tuple[int, int, int]
"""(from_ns, to_ns, part), the part as an index into ``assemble.PRIORITY``."""

WAKE_LOOP = 0  # woken by something on the loop, or by a timer: ready_ns is exact
WAKE_THREAD = 1  # woken by a worker thread: the wait is executor_return
WAKE_SOCKET = 2  # became ready between two polls, or as a poll that waited for it returned
WAKE_UNKNOWN = 3  # nobody saw the wake-up: suspended..start claims nothing
WAKE_SPLIT = 4  # the second half of a step that was split: not a resumption

MAX_MARKS = 256
"""Marks kept before they are folded into ``Spilled``; bounds a request that lives for hours."""


class AwaitMark(NamedTuple):
    """A wait that a hook saw. ``thing`` has ``kind``, ``name`` and ``tag``; the other fields are those of ``Await``."""

    from_ns: int
    to_ns: int | None  # None while it lasts
    thing: Any
    where: str | None
    holders: Sequence[HolderPart] = ()
    in_job: bool = False  # seen on a worker thread, in a job of the request
    phase: AwaitPhase | None = None
    calls: int = 0
    opened: int = 0
    limit: int | None = None
    pending: int = 0
    looks: int = 0
    library: str | None = None  # whose call keeps its thread until it returns; None: its task is suspended


class ClientWait(NamedTuple):
    """A question to the client: asked, its answer at the server between its bounds, and read off the transport."""

    asked_ns: int
    earliest_ns: int
    answered_ns: int
    read_ns: int


class AwaitLook(NamedTuple):
    """One look at a suspended task: it names the whole suspension, for the stack cannot change until the task runs."""

    unit: int
    suspended_ns: int
    thing: Any
    where: str | None
    own_tasks: bool = False  # it may wait for tasks of its own
    drawn: bool = True  # the first of its operation in its round: only those stand for what nobody looked at


MAX_AWAITS = 256
"""Await marks, and looks, kept per request; what comes after that has no name."""


class JobLook:
    """A wait of a job that looks at its thread saw: [from_ns, to_ns]; ``cpu_ns`` of the thread at its end."""

    __slots__ = ("cpu_ns", "from_ns", "thing", "to_ns", "where")

    def __init__(self, from_ns: int, to_ns: int, cpu_ns: int, thing: Any, where: str | None) -> None:
        self.from_ns = from_ns
        self.to_ns = to_ns
        self.cpu_ns = cpu_ns
        self.thing = thing
        self.where = where


class Job:
    """One call on a worker thread. ``None`` = has not happened."""

    __slots__ = (
        "awaited",
        "called",
        "cancelled",
        "carried",
        "cpu_ns",
        "finish_ns",
        "looks",
        "native_id",
        "operation",
        "pool",
        "ran_on_ns",
        "raw",
        "resumed_ns",
        "start_cpu_ns",
        "start_ns",
        "submit_ns",
        "thread_id",
        "transport",
        "unwanted_ns",
        "work",
        "work_goes_on",
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
        self.start_cpu_ns = 0  # CPU time of its thread as it began
        self.thread_id = 0  # of Python; 0: not begun
        self.native_id = 0  # of the system
        self.called: str | None = None  # a function that has no frame
        self.looks: list[JobLook] | None = None  # by the thread that looks, which is the only one to write
        # (file:line, function called there) -> (CPU ns, looks), as looks saw it compute; replaced, never changed
        self.work: dict[tuple[str | None, str], tuple[int, int]] | None = None
        # Where it computed at the last look, and the thread's CPU time then; ``None``: it waited
        self.work_goes_on: tuple[tuple[str | None, str], int] | None = None
        self.transport = False
        self.carried: Any = None  # calls a function in the trace context of whoever submitted the job
        self.cancelled = False  # its waiter was gone before the job began
        self.unwanted_ns: int | None = None  # nobody wants its result from then on; see ``give_up``
        self.ran_on_ns = 0  # how much of its run after that was told
        self.awaited = False  # its waiter can be seen to resume: until then a finished job waits for the loop


def give_up(jobs: Sequence[Job], at_ns: int) -> None:
    """Whoever asked for ``jobs`` was cancelled, or failed: those that have not ended run for nobody. Any thread."""
    for job in jobs:
        if job.finish_ns is None and job.unwanted_ns is None and not job.transport:
            job.unwanted_ns = at_ns


class Kept:
    """Marks that were folded into totals, as they were: the first of them. ``copy`` is a view of its own."""

    __slots__ = ("jobs", "marks", "marks_left_out", "pauses")

    def __init__(self) -> None:
        self.marks: list[StepMark] = []
        self.marks_left_out = 0
        self.pauses: list[tuple[int, int]] = []
        self.jobs: list[Job] = []  # that are over


class Spilled:
    """Totals of marks that were folded away while the request was still alive."""

    __slots__ = (
        "awaits",
        "crowded_ns",
        "horizon_ns",
        "immediate",
        "jobs",
        "kept",
        "last",
        "looked",
        "parts",
        "run_sum_ns",
        "stages",
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
        self.crowded_ns = 0  # the last time at which more than one unit lived
        self.parts = [0] * parts
        self.steps = 0
        self.step_max_ns = 0
        self.immediate = 0
        self.awaits = 0
        self.run_sum_ns = 0
        self.vague_ns = 0
        self.waits: list[Wait] = []
        self.jobs: list[Job] = []  # the earliest jobs that are over
        self.stages: list[Claim] | None = None  # stretches of ``parts`` that waits may name; None: not kept
        self.kept: Kept | None = None  # what was folded, one by one; None: nobody wants it
        self.looked: list[tuple[int, int, AwaitLook]] = []  # (from_ns, to_ns, look): suspensions that have ended


RING_NS = 500_000
"""Steps at least this long are kept one by one for blame; shorter ones only as sums (section 3)."""


class PythonRequest:
    """A request while it lives; see the module's text for who writes what. Twin of ``Request`` in native/request.h.

    Fields that most requests never touch are class attributes: setting 40 slots would cost more than
    all the marks of a short request. Only read ``marks`` and ``units``: in C they are copies.
    """

    request_id: Any = None
    protocol_version: str | None = None
    session_id: str | None = None
    trace_id: int | None = None  # see RequestRecord for these eight; ids as integers until the record is made
    span_id: int | None = None
    parent_span_id: str | None = None
    trace_flags: int | None = None
    trace_state: str | None = None
    server_span: Literal["app", "probe"] | None = None
    resource_uri: str | None = None
    session: Any = None  # set once an attached server has claimed it
    channel: Any = None
    parent: RawRequest | None = None  # an enclosing request still running (profiled calls, nested servers)
    handler = 0  # unit of the handler task
    unit_peak = 0  # units alive at once, at most
    loop: int | None = None  # ordinal of the loop its handler began on
    settles = False  # ends with its handler task unless it was answered before
    ended = False
    arrival_ns: int | None = None  # None: this transport has no arrival (in-process)
    arrival_earliest_ns: int | None = None
    seen = ALL_SEEN  # what its loop shows; for its transport see transport_seen and write_seen
    transport_seen = True  # False: arrival_ns is when the message left a stream, not when its bytes came
    new_connection = False  # over HTTP: it is the first that came on its connection
    taken_ns: int | None = None
    first_step_ns: int | None = None
    result_ns: int | None = None
    write_seen = False  # the transport's writer can be seen, so write_wait and write_flush are known
    write_taken_ns: int | None = None
    starved: Sequence[tuple[Literal["read", "write"], int, int, str, str]] = ()  # see RequestRecord
    flushed_ns: int | None = None
    end_ns: int | None = None
    gone_ns: int | None = None  # its client had given up, or left: nobody waits for it from then on
    outcome: Outcome = "ok"
    error: str | None = None
    error_code: str | None = None
    jobs: Sequence[Job] = ()
    pauses: Sequence[tuple[int, int]] = ()
    awaits: Sequence[AwaitMark] = ()  # by hooks, on the loop's thread and in jobs
    looks: Sequence[AwaitLook] = ()  # by the thread that looks, which is the only one to append
    client_waits: Sequence[ClientWait] = ()
    write_waits: Sequence[tuple[int, int]] | None = None  # its writer waited for the loop; None: it was not seen
    spilled: Spilled | None = None
    decode_ns: int | None = None
    encode_ns: int | None = None
    request_bytes: int | None = None
    response_bytes: int | None = None
    detached_ns = 0
    partial = False
    seen_open = False
    sized: tuple[int | None, int | None] | None = None  # bytes of (arguments, result), of a call that was sampled
    sent_ns: int | None = None  # when its client wrote it, on our clock; None unless the client says so
    measured: dict[str, int] | None = None  # what measures have read so far, by name (capture/measuring.py)
    metered: Any = None  # a capture.meters.Metered, where steps are read in Python
    blocked_others_ns = 0  # how long requests that ended before it waited for it
    ambient: Any = None  # the span that was current before the SDK opened its own
    lend_span: Callable[[dict[str, Any]], Any] | None = None  # our open span for a framework that would open its own

    def __init__(self, number: int, kind: RequestKind, method: str, name: str | None, transport: str) -> None:
        self.id = number
        self.kind: RequestKind = kind
        self.method = method
        self.name = name
        self.transport = transport
        self.marks: list[StepMark] = []
        self.units: dict[int, int] = {}  # live unit -> end of its last step
        # Creates the dict now. CPython 3.11 creates it when there is no room for another attribute. It frees the values
        # twice if the garbage collector runs at that moment and its callback, or another thread, sets an attribute.
        _ = self.__dict__

    @property
    def operation(self) -> str:
        """Tool or prompt name, else the method."""
        return self.name or self.method

    def add_mark(self, mark: StepMark) -> None:
        """Keep one more mark."""
        self.marks.append(mark)

    @property
    def mark_count(self) -> int:
        """How many marks there are."""
        return len(self.marks)

    def set_unit(self, unit: int, end_ns: int) -> None:
        """``unit`` lives, and its last step ended at ``end_ns``."""
        self.units[unit] = end_ns
        self.unit_peak = max(self.unit_peak, len(self.units))

    def drop_unit(self, unit: int) -> None:
        """``unit`` will not run again."""
        self.units.pop(unit, None)

    def clear_marks(self) -> None:
        """Forget the marks: they have been folded."""
        self.marks.clear()

    def end_at(self, now: int) -> bool:
        """End it at ``now``. If it had ended before, returns False and changes nothing."""
        if self.ended:
            return False
        self.ended = True
        self.end_ns = now
        return True

    def small_steps(self) -> tuple[int, int]:
        """(count, total ns) of the steps shorter than :data:`RING_NS`."""
        lengths = [mark[5] - mark[4] for mark in self.marks if mark[5] - mark[4] < RING_NS]
        return len(lengths), sum(lengths)

    def memory(self) -> tuple[int, int, int, int | None, int, int | None] | None:
        """(requested, allocations, requested of blocks with an owner, held, peak, blocks), in bytes.

        ``None`` if it was not measured from its beginning to its end; held and blocks are ``None`` if they are not
        known any more. Only the native twin measures it.
        """
        return None


if TYPE_CHECKING:
    RawRequest = PythonRequest
else:
    RawRequest = PythonRequest if native.core is None else native.core.Request
