"""The shapes of what a server does right now: what the live channel carries, and `mcp-probe top --json` prints.

Times are floats in milliseconds. ``None``: it could not be known; never 0 for unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcp_probe.model import Tag

State = Literal[
    "queue",
    "busy",
    "executor_run",
    "executor_return",
    "ready_wait",
    "executor_wait",
    "awaiting",
    "write",
    "unknown",
]
"""The words of the budget. ``write``: it has its result, which has not left. ``unknown``: its loop does not show it."""

LoopState = Literal["idle", "busy", "blocked", "unknown"]
"""``blocked``: one step runs for longer than ``slow_step_ms``."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has what others wait for."""

    request: int | None  # RequestNow.id; None: several, or no request
    operation: str  # or LOOP_OPERATION, BACKGROUND_OPERATION, UNKNOWN_HOLDER
    where: str | None  # file:line at which it took it; of a loop: where it is now
    held_ms: float | None  # so far; of several: the longest
    count: int = 1  # so many of them


@dataclass(frozen=True, slots=True)
class WaitNow:
    """What a request waits for. ``kind``: an ``AwaitKind``, or ``loop``, ``threads``, ``writer``, ``reader``."""

    kind: str
    object: str
    where: str | None = None  # file:line of the user's own code that waits
    for_ms: float | None = None
    holders: tuple[Holder, ...] = ()
    tag: Tag = "exact"  # of the name
    phase: str | None = None  # of a backend's call


@dataclass(frozen=True, slots=True)
class RequestNow:
    """One request in flight."""

    id: int
    operation: str
    method: str
    kind: str
    transport: str
    state: State
    age_ms: float | None
    state_ms: float | None  # how long it has been in this state
    waits: tuple[WaitNow, ...] = ()
    where: str | None = None  # file:line that runs now: of ``busy`` and ``executor_run``
    parent: int | None = None  # the request that it is part of
    tasks: int = 0  # its tasks that live
    jobs: int = 0  # its calls on threads that have not ended


@dataclass(frozen=True, slots=True)
class StepNow:
    """What runs on a loop."""

    request: int | None
    operation: str
    for_ms: float
    where: str | None  # file:line of the user's own code, as far as it can be seen
    function: str | None
    call: str | None  # the function of another library, or of no Python code, that this line is in
    cpu_ms: float | None  # None: not known, or the step is short


@dataclass(frozen=True, slots=True)
class LoopNow:
    """One event loop."""

    loop: int
    name: str
    state: LoopState
    step: StepNow | None
    utilization: float | None = None  # of the last sample, about a second
    arrival_delay_ms: float | None = None  # mean, of the same
    longest_ms: float | None = None  # the longest iteration, of the same
    quality: Tag = "unavailable"  # of these three
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class PoolNow:
    """One executor. ``active`` and ``pending`` are calls of requests; the transport's own are in ``taken``."""

    name: str
    made_at: str | None
    max: float | None
    taken: int | None  # of its threads or tokens, by whomever; None: it does not say
    active: int
    pending: int
    longest_wait_ms: float | None  # of those that wait now; None: none does
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class OperationNow:
    """Calls of one operation that ended in the last seconds."""

    name: str
    count: int
    errors: int
    rate_per_s: float | None
    p50_ms: float | None
    p95_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True)
class ServerNow:
    """Who is watched."""

    pid: int
    name: str
    sdk: str
    python: str
    probe: str
    transport: str
    loop: str
    command: str  # the program's name, without its arguments


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A server at one instant."""

    server: ServerNow
    at_unix: float
    every_s: float  # until the next one
    slow_step_ms: float
    in_flight: int
    unread: int | None  # messages that nobody has parsed yet; None: the transport does not show it
    requests: tuple[RequestNow, ...]  # the oldest
    loops: tuple[LoopNow, ...]
    pools: tuple[PoolNow, ...]
    operations: tuple[OperationNow, ...]  # most calls first
    window_s: float  # which ``operations`` are of
    rss_bytes: int | None
    memory_limit_bytes: int | None
    dropped: int = 0  # snapshots that this viewer was too slow for
    took_ms: float | None = None  # CPU that the last snapshot took
    flight: str | None = None  # the folder of flight recordings; None: none are made
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """One frame of a stack. ``own``: of the user's own code."""

    file: str
    line: int
    function: str
    own: bool


@dataclass(frozen=True, slots=True)
class TaskNow:
    """One task of a request, or one of its calls on a thread. ``stack``: innermost last, as a traceback has it."""

    what: str
    state: str
    for_ms: float | None
    stack: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Detail:
    """One request in flight, opened."""

    request: RequestNow
    tasks: tuple[TaskNow, ...]
